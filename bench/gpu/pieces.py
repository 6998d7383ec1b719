# SPDX-License-Identifier: Apache-2.0
"""How long a step ran, from the times of its pieces. No torch in here: the harness tests it."""


def undisturbed_mean(values):
    """
    The mean of those that nothing came between: one with a wait at a gate in it is far longer than
    the shortest ones, the same work at a lower clock is not.
    """
    v = sorted(values)
    limit = 1.25 * v[(len(v) - 1) // 10]
    kept = [x for x in v if x <= limit]
    return sum(kept) / len(kept)


def step_us(steps):
    """
    steps: the times of the pieces of each step, in order. A long step is hardly ever let through as
    a whole, but each of its pieces is now and then: the step is the sum of them.
    """
    usual = max((len(s) for s in steps), key=[len(s) for s in steps].count)
    whole = [s for s in steps if len(s) == usual]
    return sum(undisturbed_mean(piece) for piece in zip(*whole))
