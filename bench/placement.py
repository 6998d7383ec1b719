#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""placement.py [--quick] TRACES [BUILD]: the placement policies on the public openb trace, against what was published
and against each other, with a bar for each figure. TRACES is a folder with openb_node_list_gpu_node.csv and the pod
lists. --quick: two seeds and wider bars. Exit status: 0 all bars are met, 1 one is not, 77 there are no traces."""
import argparse
import csv
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PUBLISHED = HERE.parent / "docs/measurements/placement-2026-11-15/published.csv"
failed = []


def bar(what, value, limit):
    good = value <= limit
    print(f"{'ok  ' if good else 'MISS'}  {what}: {value:+.2f}, at most {limit:+.2f}")
    if not good:
        failed.append(what)


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def runs(args, traces, policies, seeds):
    """{(trace, policy): {"90": …, "100": …}}, means over the seeds."""
    files = [args.traces / f"openb_pod_list_{t}.csv" for t in traces]
    out = subprocess.run([args.build / "bin/sluice", "simulate", "--nodes", args.traces / "openb_node_list_gpu_node.csv",
                          "--policy", ",".join(policies), "--seeds", seeds, "--json", *files],
                         check=True, stdout=subprocess.PIPE).stdout.decode()
    found = {}
    for run in map(json.loads, out.splitlines()):
        found.setdefault((run["trace"], run["policy"]), []).append(run["unallocated_percent"])
    return {k: {at: mean(r[at] for r in v) for at in v[0]} for k, v in found.items()}


def published(args):
    with open(PUBLISHED, encoding="utf-8") as f:
        table = {row.pop("trace"): {p: float(v) for p, v in row.items()} for row in csv.DictReader(f)}
    policies = ["best-fit", "fgd"] if args.quick else list(next(iter(table.values())))
    got = runs(args, table, policies, "42-43" if args.quick else "42-51")
    off = {(t, p): got[t, p]["100"] - table[t][p] for t in table for p in policies}
    print(f"{'trace':12}" + "".join(f"{p:>21}" for p in policies))
    for t in table:
        print(f"{t:12}" + "".join(f"{got[t, p]['100']:13.2f} ({off[t, p]:+.2f})" for p in policies))
    bar(f"mean absolute difference to the published table, {len(off)} cells", mean(map(abs, off.values())),
        0.25 if args.quick else 0.2)
    worst = max((k for k in off if k[1] == "fgd"), key=lambda k: abs(off[k]))
    bar(f"largest difference of an fgd cell ({worst[0]})", abs(off[worst]), 1.0 if args.quick else 0.5)
    return list(table)


def ours(args, traces):
    """On seeds that nothing was tuned on."""
    got = runs(args, traces, ["fgd", "sluice"], "100-101" if args.quick else "100-109")
    for at in ("90", "100"):
        less = {t: got[t, "sluice"][at] - got[t, "fgd"][at] for t in traces}
        worst = max(less, key=less.get)
        bar(f"sluice less fgd at {at} %, mean of {len(less)} traces", mean(less.values()), -0.4)
        bar(f"sluice less fgd at {at} %, worst trace ({worst})", less[worst], 0.3 if args.quick else 0.1)


def main():
    p = argparse.ArgumentParser(description=__doc__.split(": ")[0])
    p.add_argument("--quick", action="store_true")
    p.add_argument("traces", type=pathlib.Path)
    p.add_argument("build", type=pathlib.Path, nargs="?", default=HERE.parent / "build")
    args = p.parse_args()
    if not (args.traces / "openb_node_list_gpu_node.csv").exists():
        print(f"skipped: no openb_node_list_gpu_node.csv in {args.traces}")
        return 77
    ours(args, published(args))
    return 1 if failed else 0


sys.exit(main())
