# SPDX-License-Identifier: Apache-2.0
"""The bars, and whether what was measured meets them. On the simulated GPU they are looser."""


WORKS = ("fma100us", "gemm", "graph", "fma20ms", "train", "infer")


class Row:
    def __init__(self, what, bar, got, ok):
        self.what, self.bar, self.got, self.ok = what, bar, got, ok

    @property
    def verdict(self):
        return {True: "pass", False: "FAIL", None: "not measured"}[self.ok]


def cells(data, group, mode="sluice"):
    return [c for c in data["cells"] if c["group"] == group and c.get("mode") == mode]


def broken(data, group):
    return [c for c in data["cells"] if c["group"] == group and "broken" in c]


def judge(data, group, what, bar, found, fn):
    """A row from the group's cells; a broken cell fails it, none at all leaves it open."""
    bad = broken(data, group)
    if bad:
        return Row(what, bar, f"{len(bad)} broken: {bad[0]['label']}: {bad[0]['broken'][:80]}", False)
    if not found:
        return Row(what, bar, "", None)
    got, ok = fn(found)
    return Row(what, bar, got, ok)


def shares(cell):
    """(by GPU time, by rate), each a list. Without a time of its own (MPS) the rate stands for it."""
    rate = cell["got"] if isinstance(cell["got"], list) else [cell["got"]]
    time = cell.get("got_time")
    time = time if isinstance(time, list) else [time] * len(rate)
    return [r if t is None else t for t, r in zip(time, rate)], rate


def slashed(values):
    return " / ".join(f"{v:.1f}" for v in values)


def both(cell):
    """What is judged, and beside it what it was by rate."""
    time, rate = shares(cell)
    return f"{slashed(time)} (rate {slashed(rate)})"


def caps_rows(data, slack):
    rows = []
    error, second = 2 + slack, 10 + slack
    found = cells(data, "caps")
    names = []
    for work in [c["work"] for c in found] + [w for c in broken(data, "caps") for w in
                                              c["label"].split() if w in WORKS]:
        if work not in names:
            names.append(work)
    for work in names or ["caps"]:
        mine = [c for c in found if c["work"] == work]

        def look(cs):
            worst = max(cs, key=lambda c: abs(c["error"]))
            seconds = [c for c in cs if c["worst_second"] is not None]
            off = max((abs(c["worst_second"]) for c in seconds), default=0)
            by_rate = max((c["got"] - c["asked"] for c in cs), key=abs)
            text = (f"worst {worst['error']:+.1f} (asked {worst['asked']}), "
                    f"second {off:.1f} (rate: worst {by_rate:+.1f})")
            return text, abs(worst["error"]) <= error and off <= second and bool(seconds)
        bad = [c for c in broken(data, "caps") if work in c["label"].split()]
        one = {"cells": mine + bad}
        rows.append(judge(one, "caps", f"cap 10, 25, 50, 75 alone: {work}",
                          f"error <= {error}, no second off by > {second} points", mine, look))
    return rows


def pair_rows(data, slack):
    rows = []
    for label in ("30 / 70", "10 / 90", "50 / 50"):
        mine = [c for c in cells(data, "pairs") if label in c["label"]]
        rows.append(judge(data, "pairs", f"two gemm tenants {label}",
                          f"each within {2 + slack} points, sum of the rates >= {97 - slack}", mine,
                          lambda cs: (f"{both(cs[0])}, sum {cs[0]['sum']:.1f}",
                                      max(map(abs, cs[0]["error"])) <= 2 + slack
                                      and cs[0]["sum"] >= 97 - slack)))
    rows.append(judge(data, "long", "20 ms kernels (25) beside gemm (75)",
                      f"within {3 + slack} points", cells(data, "long"),
                      lambda cs: (both(cs[0]),
                                  max(map(abs, cs[0]["error"])) <= 3 + slack)))
    return rows


def priority_rows(data, slack):
    ratio, part = 1.2 + slack / 100, 95 - slack
    alone = [c for c in cells(data, "priority", "native") if c["label"] == "req alone"]

    def look(cs):
        solo, mine = alone[0], cs[0]
        # What requests leave is what their own kernels do not use.
        left = 100 - 100 * left_used(solo)
        times = mine["p99_ms"] / solo["p99_ms"]
        gemm = 100 * mine["gemm"] / left
        return (f"p99 {times:.2f} x solo, gemm {gemm:.0f} % of the {left:.0f} left",
                times <= ratio and gemm >= part)
    found = cells(data, "priority") if alone else []
    works = sorted({c.get("beside", "gemm") for c in found}, reverse=True) or ["gemm"]
    return [judge(data, "priority", f"req (high) beside {work} (low)",
                  f"req p99 <= {ratio:g} x solo and gemm >= {part} % of what is left",
                  [c for c in found if c.get("beside", "gemm") == work], look) for work in works]


def left_used(solo):
    """The part of the GPU's time that requests alone use: 20 kernels each, as calibrated."""
    result = solo["raw"][0]
    return result["rate"] * result["unit_alone_us"] / 1e6


def time_within(seconds):
    return "never" if seconds is None else f"{seconds:.2f} s"


def burst_rows(data, slack):
    full = 99 - slack

    def look(cs):
        c = cs[0]
        text = (f"{c['alone']:.1f}; {c['beside']:.1f} after {time_within(c['to_share_s'])}; "
                f"{c['again']:.1f} after {time_within(c['to_all_s'])}")
        ok = (c["alone"] >= full and abs(c["beside"] - 30) <= 2 + slack and c["again"] >= full
              and c["to_share_s"] is not None and c["to_share_s"] <= 1
              and c["to_all_s"] is not None and c["to_all_s"] <= 1)
        return text, ok
    return [judge(data, "burst", "burst 30:100 alone; neighbour arrives; leaves",
                  f">= {full} %; 30 +- {2 + slack} within 1 s; >= {full} % within 1 s",
                  cells(data, "burst"), look)]


def multi_text(data, cell, slack):
    """
    Alone, the four lose time to switching among themselves. That is the GPU's time too, spent for
    them and nobody else: 100 % is what the same four get without a limit.
    """
    alone = cells(data, "multi", "native")
    whole = shares(alone[0])[0][0] if alone and "got" in alone[0] else 100
    got = 100 * shares(cell)[0][0] / whole
    text = f"{got:.1f} of what the 4 get alone: {both(cell)} of {whole:.1f}"
    return text, abs(got - cell["asked"]) <= 2 + slack


def spread(cell, key, spec):
    """How many pairs, and between what half of them lie."""
    low, high = cell.get(key) or (None, None)
    half = f", half of them {low:+{spec}} to {high:+{spec}}" if low is not None else ""
    return f"({cell['pairs']} pairs{half})"


def other_rows(data, slack):
    rows = [judge(data, "eight", "8 tenants equal",
                  f"Jain >= {0.99 - slack / 100:g}, sum >= {95 - slack}", cells(data, "eight"),
                  lambda cs: (f"Jain {cs[0]['jain']:.4f}, sum {cs[0]['sum']:.1f}",
                              cs[0]["jain"] >= 0.99 - slack / 100 and cs[0]["sum"] >= 95 - slack))]
    for c in cells(data, "launch"):
        if "noise_ns" in c:
            rows.append(judge(data, "launch", f"launch {c['label']}, in one process",
                              "<= 20 ns added (median of 40 pairs)", [c],
                              lambda cs: (f"{cs[0]['added_ns']:+.1f} ns on {cs[0]['launch_ns'][0]:.0f}"
                                          f" {spread(cs[0], 'added_ns_iqr', '.1f')}, noise {cs[0]['noise_ns']:+.1f}",
                                          cs[0]["added_ns"] <= 20)))
    for c in [c for c in cells(data, "launch") if "added_percent" in c] or [None]:
        if c is None or c["label"] == "tiny":
            rows.append(judge(data, "launch", "launch path, no limit, open gate",
                              "<= 20 ns added (median of >= 20 pairs)", [c] if c else [],
                              lambda cs: (f"{cs[0]['added_ns']:+.0f} ns on {cs[0]['launch_ns'][0]:.0f}"
                                          f" {spread(cs[0], 'added_ns_iqr', '.0f')}",
                                          cs[0]["added_ns"] <= 20 + 10 * slack and cs[0]["pairs"] >= 20)))
        else:
            limit = 0.3 + slack
            rows.append(judge(data, "launch", f"the same: {c['label']}", f"<= {limit:g} %", [c],
                              lambda cs: (f"{cs[0]['added_percent']:+.2f} % "
                                          f"{spread(cs[0], 'added_percent_iqr', '.2f')}",
                                          cs[0]["added_percent"] <= limit)))
    first = [c for c in cells(data, "launch") if "first_call_ms" in c
             and c["label"].startswith("first call")]
    # Runs before there were cells of their own for it: `tiny` had a fresh process for each pair.
    first = first or [dict(c, label="first call") for c in cells(data, "launch")
                      if c["label"] == "tiny" and "first_call_ms" in c]
    if not data["about"]["sim"]:  # a simulated driver starts in no time: no ratio to speak of
        for c in first or [None]:
            name = c["label"].replace("first", "first CUDA") if c else "first CUDA call"
            rows.append(judge(data, "launch", name, "<= 1.1 x native", [c] if c else [],
                              lambda cs: ("{1:.0f} ms, native {0:.0f}".format(*cs[0]["first_call_ms"])
                                          + f" ({cs[0]['pairs']} pairs)",
                                          cs[0]["first_call_ms"][1]
                                          <= 1.1 * cs[0]["first_call_ms"][0])))
    rows.append(judge(data, "multi", "one tenant of 4 processes, cores 25", f"25 +- {2 + slack} together",
                      cells(data, "multi"), lambda cs: multi_text(data, cs[0], slack)))
    rows.append(judge(data, "set", "live `set` 25 -> 50", "new share within 1 s, no launch lost",
                      cells(data, "set"),
                      lambda cs: (f"{cs[0]['before']:.1f} -> {cs[0]['after']:.1f} after "
                                  f"{time_within(cs[0]['to_share_s'])}, {cs[0]['lost']} lost"
                                  + (" (rate {:.1f} -> {:.1f})".format(
                                      cs[0]["before_rate"], cs[0]["after_rate"])
                                     if "after_rate" in cs[0] else ""),
                                  cs[0]["to_share_s"] is not None and cs[0]["to_share_s"] <= 1
                                  and abs(cs[0]["after"] - 50) <= 2 + slack
                                  and cs[0]["lost"] == 0)))
    return rows


def judged_rows(data):
    """Cells that were judged where they were measured."""
    return [Row(f"{c['group']}: {c['label']}", c["bar"], c["text"], c["ok"]) for c in data["cells"]
            if "bar" in c] + [
        Row(f"{c['group']}: {c['label']}", "", c["broken"][:100], False) for c in data["cells"]
        if "broken" in c and c["group"] in ROWS]


ROWS = ("people", "hosts", "mixes", "sync", "streams", "caps2", "high", "queued", "multi75")


def summary(data):
    slack = data["slack_points"]
    return judged_rows(data) + (caps_rows(data, slack) + pair_rows(data, slack) + priority_rows(data, slack)
            + burst_rows(data, slack) + other_rows(data, slack))
