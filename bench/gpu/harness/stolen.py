# SPDX-License-Identifier: Apache-2.0
"""Processor time that somebody else on this computer took: a virtual machine's hypervisor gave it to others."""


def parse(line):
    """(stolen, all) ticks of the first line of /proc/stat."""
    ticks = [int(n) for n in line.split()[1:9]]
    return ticks[7], sum(ticks)


def now():
    with open("/proc/stat", encoding="ascii") as f:
        return parse(f.readline())


def percent(before, after):
    total = after[1] - before[1]
    return 100 * (after[0] - before[0]) / total if total else 0.0


def least(run, tries=5, enough=0.5):
    """
    What run() returns, and the percentage stolen meanwhile. A simulated GPU's latencies are those of the
    processors it is simulated on: where more than `enough` was stolen it runs again, and the least disturbed
    counts, whatever its figures.
    """
    best = None
    for _ in range(tries):
        before = now()
        result = run()
        lost = percent(before, now())
        if best is None or lost < best[1]:
            best = result, lost
        if lost <= enough:
            break
    return best
