#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Compute shares, measured: driver time-slicing, MPS where it is there, and Sluice, side by side.

Builds the tenants, runs every cell over a few seconds, prints the tables and what passes the bars,
and leaves results.json (raw, kept up to date while it runs), report.md and asked-got.svg in --out.
Only the standard library. PyTorch cells where PyTorch is there, cuBLAS on real GPUs only.
"""
import argparse
import os
import shutil
import signal
import sys
import tempfile

sys.dont_write_bytecode = True
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # the tenants' too: the tree stays as it was
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import merge, report  # noqa: E402
from harness.bars import summary  # noqa: E402
from harness.cells import Bench  # noqa: E402
from harness.groups import GROUPS, expected_seconds  # noqa: E402
from harness.world import ROOT, Broken, World  # noqa: E402


def arguments():
    p = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    p.add_argument("--sim", metavar="CARDS", help="on the simulated GPU, e.g. h200; bars looser by 2, unless under bench_clock")
    p.add_argument("--quick", action="store_true", help="half the time per cell")
    p.add_argument("--no-mps", action="store_true", help="without the rows and columns of MPS")
    p.add_argument("--seconds", type=float, help="measured time per cell")
    p.add_argument("--only", metavar="GROUP[:PART],...",
                   help="of " + ", ".join(GROUPS) + "; a PART is a work or a word of a row's name: "
                   "caps:gemm, caps:mps, pairs:sluice, launch:tiny, people:beside; of people also "
                   "trainings, third and limits")
    p.add_argument("--out", metavar="DIR", default="bench-results", help="default: bench-results")
    p.add_argument("--build", metavar="DIR", help="where sluice is built (default: build-core or build)")
    p.add_argument("--lenient", action="store_true", help="exit code 0 although a bar is not met")
    p.add_argument("--report", nargs="+", metavar="JSON",
                   help="measure nothing: tables and plot from results of earlier runs, put together, "
                   "the later one's where both have a cell")
    args = p.parse_args()
    args.parts = selection(args.only, p.error)
    args.groups = [g for g in GROUPS if g in args.parts] if args.only else list(GROUPS)
    if "SLUICE_BENCH_CLOCK" in os.environ:  # work on the host takes no time there: nothing to measure
        args.groups = [g for g in args.groups if g != "launch"]
    return args


def selection(text, error):
    """caps:gemm,caps:train,long as {"caps": ["gemm", "train"], "long": []}: empty is all of it."""
    parts = {}
    for item in text.split(",") if text else []:
        group, _, part = item.partition(":")
        if group not in GROUPS:
            error(f"no group {group}: there are {', '.join(GROUPS)}")
        if not part:
            parts[group] = []
        elif parts.get(group) != []:
            parts.setdefault(group, []).append(part)
    return parts


def find_build(named):
    for name in [named] if named else ["build-core", "build"]:
        path = name if named else os.path.join(ROOT, name)
        if os.access(os.path.join(path, "bin", "sluice"), os.X_OK):
            return path
    return named or os.path.join(ROOT, "build-core")


def measure(args, scratch):
    world = World(args.sim, find_build(args.build), scratch)
    world.has_mps &= not args.no_mps
    world.build_tenant()
    seconds = args.seconds or (2.0 if args.sim else 4.0) / (2 if args.quick else 1)
    # The simulated GPU on the real clock shows how busy the computer is, too. On a clock of its own it does not.
    loose = args.sim and not world.clock
    bench = Bench(world, args.out, seconds, warm=0.3 if loose else 0.5, slack=2 if loose else 0,
                  only=args.parts)
    bench.expected = expected_seconds(bench, args.groups)
    bench.save()
    try:
        for g in args.groups:
            bench.begin_group()
            bench.attempt(g, g, lambda group=GROUPS[g]: group(bench))
    except KeyboardInterrupt:
        bench.progress("stopped: what is there is reported")
    else:
        for name in bench.unmatched():
            bench.broken += 1
            bench.progress(f"--only {name}: nothing has that name")
    finally:
        bench.clocks.stop()
        world.close()
    bench.save()
    return bench


def stop(_signal, _frame):
    raise KeyboardInterrupt


def main():
    args = arguments()
    os.makedirs(args.out, exist_ok=True)
    signal.signal(signal.SIGTERM, stop)
    if args.report:
        print(report.write(merge.files(args.report, args.out), args.out), end="")
        return 0
    scratch = tempfile.mkdtemp(prefix="sluice-bench-")
    try:
        bench = measure(args, scratch)
        print("\n" + report.write(bench.data, args.out), end="")
    except Broken as e:
        print(f"bench: {e}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    failed = [r for r in summary(bench.data) if r.ok is False]
    print(f"\n{args.out}: results.json, report.md, asked-got.svg")
    for r in failed:
        print(f"bench: not met: {r.what}: {r.got} (bar: {r.bar})", file=sys.stderr)
    return 1 if bench.broken or (failed and not args.lenient) else 0


if __name__ == "__main__":
    sys.exit(main())
