# SPDX-License-Identifier: Apache-2.0
"""Results of several runs as one. A share is of the solo run of its own run, so nothing is lost."""
import json
import os

from .cells import counted_us, time_share, worst_second


def words(text):
    return set(text.lower().replace(",", "").split())


def replaces(new, old):
    """Whether a later cell is the earlier one, run again. A broken one has no mode."""
    if new["group"] != old["group"]:
        return False
    if "broken" not in old and "broken" not in new:
        return (new["label"], new.get("mode")) == (old["label"], old.get("mode"))
    if "broken" in new:  # a good figure is not lost to a rerun that broke
        return new["label"] == old["label"] and "broken" in old
    mine = words(new["label"]) | {new.get("mode")}
    wants = words(old["label"]) - {"solo"}
    return old["label"] == old["group"] or (wants <= mine
                                            and ("mps" in wants or new.get("mode") != "mps"))


def merge(data, later):
    data["cells"] = [c for c in data["cells"] if not any(replaces(n, c) for n in later["cells"])]
    data["cells"] += [c for c in later["cells"]
                      if "broken" not in c or not any(c["group"] == o["group"] and
                                                      c["label"] == o["label"] for o in data["cells"])]
    data["solo"].update(later["solo"])
    data["solo_history"] += later["solo_history"]
    data["about"]["elapsed_s"] += later["about"]["elapsed_s"]
    data["about"].setdefault("with", []).append(later["about"]["time"])
    data["slack_points"] = max(data["slack_points"], later["slack_points"])
    return data


def worst_of(cell, result, work, scale, asked):
    rate = cell["solo_rate"][work] * result["bucket_ms"] / 1000
    return worst_second([100 * b / rate * scale for b in result["buckets"]], result["bucket_ms"], asked)


def with_times(data):
    """Cells of runs that did not reckon in GPU time yet: the same from their raw results."""
    for c in data["cells"]:
        if "got" not in c or "got_time" in c or c["group"] == "eight":
            continue
        names = c.get("work", "gemm")
        names = names if isinstance(names, list) else [names] * len(c["raw"])
        times = [time_share(data["solo"][w], r, c["mode"]) if w in data["solo"] else None
                 for w, r in zip(names, c["raw"])]
        got = c["got"] if isinstance(c["got"], list) else [c["got"]]
        # The run's own solo rate of that moment is in `got`; only the length of a unit is new.
        times = [None if t is None else g * t / (100 * r["rate"] / data["solo"][w]["rate"])
                 for t, g, r, w in zip(times, got, c["raw"], names)]
        if c["group"] == "caps" and names[0] in data["solo"]:
            c["unit_us"] = counted_us(data["solo"][names[0]], c["raw"][0], c["mode"])
        c["got_time"] = times if isinstance(c["got"], list) else times[0]
        if c.get("asked"):
            asked = c["asked"] if isinstance(c["asked"], list) else [c["asked"]]
            error = [(g if t is None else t) - a for t, g, a in zip(times, got, asked)]
            c["error"] = error if isinstance(c["got"], list) else error[0]
            worst = [worst_of(c, r, w, 1 if t is None else t / g, a)
                     for r, w, t, g, a in zip(c["raw"], names, times, got, asked)]
            c["worst_second"] = worst if isinstance(c["got"], list) else worst[0]
    return data


def files(names, out):
    data = None
    for name in names:
        with open(name, encoding="utf-8") as f:
            one = with_times(json.load(f))
        data = one if data is None else merge(data, one)
    with open(os.path.join(out, "results.json"), "w", encoding="utf-8") as f:
        json.dump(data, f)
    return data
