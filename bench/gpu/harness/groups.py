# SPDX-License-Identifier: Apache-2.0
"""The groups of cells: one function each, in the order of the table they fill."""
import time

from . import stolen
from .bars import WORKS
from .cells import between, counted_us, jain, median, quartiles, reached, worst_second
from .rows import ROWS
from .world import Broken, Mps, now_ns

CAPS = (10, 25, 50, 75)


def works(bench):
    return [w for w in WORKS if (bench.world.torch or w not in ("train", "infer"))
            and bench.wanted("caps", w)]


def both(time_got, rate_got):
    """For the progress lines."""
    return f"{rate_got:.1f}" if time_got is None else f"{time_got:.1f} (rate {rate_got:.1f})"


def cap_cell(bench, work, asked, result, mode):
    got, got_time = bench.share(work, result), bench.time_share(work, result, mode)
    worst = worst_second(bench.series(work, result, mode), result["bucket_ms"], asked)
    bench.add("caps", f"{work} {asked}", mode=mode, work=work, asked=asked, got=got,
              got_time=got_time, unit_us=counted_us(bench.solo(work), result, mode),
              error=(got if got_time is None else got_time) - asked, worst_second=worst, raw=[result])
    bench.progress(f"caps {mode} {work}: asked {asked}, got {both(got_time, got)}"
                   + (f", worst second {worst:+.1f} points" if worst is not None else ""))


def caps(bench):
    """A hard cap, alone on the GPU."""
    world = bench.world
    for work in works(bench):
        if work in ("train", "infer"):
            bench.attempt("caps", work, lambda w=work: caps_torch(bench, w))
            continue
        if bench.attempt("caps", f"solo {work}", lambda w=work: bench.solo(w)) is None:
            continue
        for asked in CAPS:
            bench.attempt("caps", f"{work} {asked}", lambda w=work, a=asked: cap_cell(
                bench, w, a, bench.once([(w, {"mode": "sluice", "cores": a})])[0], "sluice"))
    if world.has_mps and bench.wanted("caps", "mps"):
        bench.attempt("caps", "solo gemm", lambda: bench.solo("gemm"))
        with Mps(world.scratch) as mps:
            for asked in CAPS:
                bench.attempt("caps", f"mps gemm {asked}", lambda a=asked: cap_cell(
                    bench, "gemm", a,
                    bench.once([("gemm", {"mode": "mps", "percent": a, "mps": mps})])[0], "mps"))


def caps_torch(bench, work):
    """PyTorch is slow to start: one process, given its caps in turn with `sluice set`."""
    tenant = bench.world.start(work, mode="sluice", cores="100")
    try:
        bench.solo(work, after=tenant)
        for asked in CAPS:
            bench.world.set_cores(tenant.name, asked)
            cap_cell(bench, work, asked, bench.measure([tenant], warm=1.0)[0], "sluice")
    finally:
        tenant.close()


def pair_cell(bench, group, label, mode, a, b, asked):
    """Two tenants at once: (work, options) each."""
    def run():
        bench.solo(a[0])
        bench.solo(b[0])
        results = bench.once([a, b])
        got = [bench.share(w, r) for w, r in zip((a[0], b[0]), results)]
        times = [bench.time_share(w, r, mode) for w, r in zip((a[0], b[0]), results)]
        worst = [worst_second(bench.series(w, r, mode), r["bucket_ms"], x)
                 for w, r, x in zip((a[0], b[0]), results, asked)] if asked else None
        error = [(g if t is None else t) - x
                 for t, g, x in zip(times, got, asked)] if asked else None
        bench.add(group, label, mode=mode, work=[a[0], b[0]], asked=asked, got=got, got_time=times,
                  error=error, sum=sum(got), worst_second=worst, raw=results)
        bench.progress(f"{group} {label}: got {both(times[0], got[0])} / {both(times[1], got[1])}, "
                       f"sum of the rates {sum(got):.1f}")
    if bench.wanted(group, label):
        bench.attempt(group, label, run)


def pairs(bench):
    """Two gemm tenants."""
    pair_cell(bench, "pairs", "time-slicing", "native", ("gemm", {}), ("gemm", {}), None)
    if bench.world.has_mps:
        with Mps(bench.world.scratch) as mps:
            for x, y in ((None, None), (30, 70)):
                pair_cell(bench, "pairs", f"MPS {x} / {y}" if x else "MPS, no percentages", "mps",
                          *(("gemm", {"mode": "mps", "mps": mps, "percent": p}) for p in (x, y)),
                          [x, y] if x else None)
    for x, y in ((30, 70), (10, 90), (50, 50)):
        pair_cell(bench, "pairs", f"Sluice {x} / {y}", "sluice",
                  *(("gemm", {"mode": "sluice", "cores": c}) for c in (x, y)), [x, y])


def long(bench):
    """Kernels of 20 ms beside gemm."""
    pair_cell(bench, "long", "time-slicing", "native", ("fma20ms", {}), ("gemm", {}), None)
    pair_cell(bench, "long", "Sluice 25 / 75", "sluice", ("fma20ms", {"mode": "sluice", "cores": 25}),
              ("gemm", {"mode": "sluice", "cores": 75}), [25, 75])


def priority(bench):
    """
    Requests that must be answered soon, beside work that only wants throughput. gemm of random numbers
    brings the card to its power limit, whose lower clock the requests' kernels share; gemm170, of ones, does
    not, and is as long as the reference's.
    """
    seconds = max(bench.seconds, 5 if not bench.world.sim else 4)

    def cell(label, mode, req, gemm, work="gemm"):
        def run():
            starts = [("req", req)] + ([(work, gemm)] if gemm is not None else [])
            bench.solo(work)
            def once():
                return bench.once(starts, seconds=seconds)
            results, lost = stolen.least(once) if bench.world.sim and not bench.world.clock else (once(), None)
            lat = results[0]["latency_ms"]
            rest = bench.share(work, results[1]) if gemm is not None else None
            rest_time = bench.time_share(work, results[1], mode) if gemm is not None else None
            bench.add("priority", label, mode=mode, beside=work, p50_ms=lat["p50"], p99_ms=lat["p99"],
                      max_ms=lat["max"], requests=lat["n"], gemm=rest, gemm_time=rest_time,
                      stolen=lost, raw=results)
            bench.progress(f"priority {label}: p50 {lat['p50']:.2f} p99 {lat['p99']:.2f} ms"
                           + (f", gemm {rest:.1f} %" if rest is not None else ""))
        if bench.wanted("priority", label):
            bench.attempt("priority", label, run)

    works = ["gemm"] if bench.world.sim else ["gemm170", "gemm"]
    cell("req alone", "native", {}, None, works[0])
    for work in works:
        cell(f"time-slicing, {work}", "native", {}, {}, work)
    if bench.world.has_mps:
        with Mps(bench.world.scratch) as mps:
            for work in works:
                cell(f"MPS, no percentages, {work}", "mps", {"mode": "mps", "mps": mps},
                     {"mode": "mps", "mps": mps}, work)
                cell(f"MPS 50 / 50, {work}", "mps", {"mode": "mps", "mps": mps, "percent": 50},
                     {"mode": "mps", "mps": mps, "percent": 50}, work)
    for work in works:
        cell(f"Sluice high / low, {work}", "sluice",
             {"mode": "sluice", "cores": "50:100", "priority": "high"},
             {"mode": "sluice", "cores": "50:100", "priority": "low"}, work)


def burst(bench):
    """30:100 alone, then a neighbour (70:100) works for a while, then alone again."""
    phase = 3.0 if bench.world.sim is None else 2.5

    def run():
        bench.solo("gemm")
        results = bench.once([("gemm", {"mode": "sluice", "cores": "30:100"}),
                              ("gemm", {"mode": "sluice", "cores": "70:100"})],
                             seconds=3 * phase, loads={1: (phase, 2 * phase)})
        series = [bench.series("gemm", r) for r in results]
        ms = results[0]["bucket_ms"]
        low, high = 30 - 5 - bench.slack, 30 + 5 + bench.slack
        cell = {"alone": between(series[0], ms, 0, phase),
                "beside": between(series[0], ms, phase + 1, 2 * phase),
                "neighbour": between(series[1], ms, phase + 1, 2 * phase),
                "again": between(series[0], ms, 2 * phase + 1, 3 * phase),
                "to_share_s": reached(series[0], ms, phase, low, high),
                "to_all_s": reached(series[0], ms, 2 * phase, 97 - bench.slack, 1000)}
        bench.add("burst", "30:100", mode="sluice", phase_s=phase, series=series, raw=results, **cell)
        bench.progress("burst: " + ", ".join(
            f"{k} {v:.2f}" if v is not None else f"{k} never" for k, v in cell.items()))
    bench.attempt("burst", "30:100", run)


def eight(bench):
    """Eight equal tenants."""
    def cell(label, mode, options):
        def run():
            bench.solo("gemm")
            results = bench.once([("gemm", options)] * 8)
            got = [bench.share("gemm", r) for r in results]
            bench.add("eight", label, mode=mode, got=got, sum=sum(got), jain=jain(got), raw=results)
            bench.progress(f"eight {label}: sum {sum(got):.1f}, Jain {jain(got):.4f}")
        if bench.wanted("eight", label):
            bench.attempt("eight", label, run)
    cell("time-slicing", "native", {})
    cell("Sluice 8 x 12.5", "sluice", {"mode": "sluice", "cores": "12.5"})


def launch(bench):
    """Paired runs, alternating: what an open gate with no limit adds."""
    # A process that holds the GPU without using it: else whoever comes first wakes the driver, and
    # that is no part of a first CUDA call.
    holder = bench.world.start("tiny")
    bench.clocks.stop()  # nobody else asks the driver anything meanwhile
    bench.watch = False
    try:
        bench.attempt("launch", "holder", holder.ready)
        bench.attempt("launch", "first call", lambda: launch_first(bench))
        for label in PATHS:
            if bench.wanted("launch", "path", label):
                bench.attempt("launch", label, lambda name=label: launch_path(bench, name))
        torch = ["train", "infer"] if bench.world.torch else []
        for names, processes in ((["tiny"], 4), (["gemm"], 2), (torch, 1)):
            names = [n for n in names if bench.wanted("launch", n)]
            if names:
                bench.attempt("launch", " ".join(names),
                              lambda n=names, p=processes: launch_works(bench, n, p))
    finally:
        bench.watch = True
        holder.close()


PAIRS = 20
PATHS = ("path", "path beside gemm170")


def launch_path(bench, label):
    """
    The hook and the driver's own function in turn, within one process (tenant_pairs.c): 40 pairs. Without Sluice both
    are the same, so what it shows there is noise.
    """
    def pairs(mode):
        others = [bench.world.start("gemm170", **mode)] if label != PATHS[0] else []
        tenant = None
        try:
            for other in others:
                other.ready()
                now = now_ns()
                other.go(now, now + 60 * 10**9, now, now + 10**9)
            tenant = bench.world.start("tiny", extra=("--launch-pairs",), **mode)
            return tenant.ready()
        finally:
            if tenant:
                tenant.close()
            for other in others:
                other.end()
    sluice, native = pairs({"mode": "sluice"}), pairs({})
    if not sluice["hooked"]:
        raise Broken("the tenant called the driver, not libsluice")
    added, noise = ([f - o for f, o in zip(r["found_ns"], r["own_ns"])] for r in (sluice, native))
    bench.add("launch", label, mode="sluice", pairs=len(added), added_ns=median(added),
              added_ns_iqr=quartiles(added), launch_ns=[median(sluice["own_ns"]), median(sluice["found_ns"])],
              noise_ns=median(noise), noise_ns_iqr=quartiles(noise), raw=[sluice, native])
    bench.progress(f"launch {label}: {median(added):+.1f} ns on {median(sluice['own_ns']):.0f}; without Sluice "
                   f"{median(noise):+.1f} ns")


def launch_works(bench, names, processes):
    """
    PAIRS windows of each, in so many pairs of processes (where things lie in memory differs from one
    to the next). All of a kind start at once, PyTorch being slow at it; then one runs at a time.
    """
    results = {n: [[], []] for n in names}
    for _ in range(processes):
        launch_process(bench, names, PAIRS // processes, results)
    for n in names:
        launch_cell(bench, n, results[n])


def launch_process(bench, names, pairs, results):
    if "gemm" in names and "gemm" not in bench.world.unit_us:
        bench.solo("gemm")  # both are told its length, and so make batches of the same size
    tenants = {n: [] for n in names}
    try:
        for n in names:
            for options in ({}, {"mode": "sluice"}):
                tenants[n].append(bench.world.start(n, **options))
        for n in names:
            for t in tenants[n]:
                t.ready()
        for n in names:
            launch_pairs(bench, tenants[n], pairs, 0.25 if n in ("train", "infer") else 0.2, results[n])
    finally:
        for t in sum(tenants.values(), []):
            t.close()


def launch_pairs(bench, tenants, pairs, seconds, results):
    for p in range(pairs):
        # AB, BA, AB: a drift in the clocks falls on both alike
        for i in (0, 1) if p % 2 == 0 else (1, 0):
            results[i].append(bench.measure([tenants[i]], seconds=seconds, warm=0.05,
                                            lead_ns=10_000_000, tail_ns=5_000_000)[0])


def launch_cell(bench, work, results):
    native, sluice = results
    percent = [100 * (n["rate"] / s["rate"] - 1) for n, s in zip(native, sluice)]
    cell = {"pairs": len(native), "added_percent": median(percent),
            "added_percent_iqr": quartiles(percent)}
    if work == "tiny":
        ns = [[r["launch_ns"]["p50"] for r in rs] for rs in results]
        added = [b - a for a, b in zip(*ns)]
        cell.update(launch_ns=[median(v) for v in ns], added_ns=median(added),
                    added_ns_iqr=quartiles(added))
    bench.add("launch", work, mode="sluice", raw=results, **cell)
    low, high = cell["added_percent_iqr"]
    bench.progress(f"launch {work}: {cell['added_percent']:+.2f} % (half of the pairs {low:+.2f} to "
                   f"{high:+.2f})" + (f", {cell['added_ns']:+.0f} ns a launch"
                                      if work == "tiny" else ""))


def launch_first(bench):
    """The first CUDA call of fresh processes, one at a time, in pairs."""
    plan = [("first call", "tiny", 5, ())]
    if bench.world.torch:
        plan.append(("first call, PyTorch", "train", 3, ("--first-call",)))
    for label, work, pairs, extra in plan:
        if not bench.wanted("launch", label):
            continue
        ms = [[], []]
        for p in range(pairs):
            for i in (0, 1) if p % 2 == 0 else (1, 0):
                tenant = bench.world.start(work, extra=extra, **({"mode": "sluice"} if i else {}))
                try:
                    ms[i].append(tenant.ready()["first_call_ms"])
                finally:
                    tenant.close()
        bench.add("launch", label, mode="sluice", pairs=pairs, each_ms=ms,
                  first_call_ms=[median(v) for v in ms], first_call_iqr=[quartiles(v) for v in ms])
        bench.progress(f"launch {label}: {median(ms[0]):.0f} ms native, {median(ms[1]):.0f} ms")


def multi(bench):
    """Four processes that are one tenant. Among themselves they are sliced by the driver, as always."""
    def cell(label, mode, options):
        def run():
            bench.solo("gemm")
            result = bench.once([("gemm", {"extra": ("--processes", "4"), **options})])[0]
            got, got_time = bench.share("gemm", result), bench.time_share("gemm", result, mode)
            asked = 25 if mode == "sluice" else None
            worst = worst_second(bench.series("gemm", result, mode), result["bucket_ms"], 25)
            bench.add("multi", label, mode=mode, asked=asked, got=got, got_time=got_time,
                      error=(got if got_time is None else got_time) - 25 if asked else None,
                      worst_second=worst if asked else None, raw=[result])
            bench.progress(f"multi {label}: got {both(got_time, got)}")
        if bench.wanted("multi", label):
            bench.attempt("multi", label, run)
    cell("4 processes without Sluice", "native", {})
    cell("4 processes, cores 25", "sluice", {"mode": "sluice", "cores": 25})


def set_(bench):
    """A live change of a running tenant's share."""
    at = 2.0

    def run():
        bench.solo("fma100us")
        tenant = bench.world.start("fma100us", mode="sluice", cores=25, extra=("--count",))
        when = []

        def change(start):
            wait_until(start + int(at * 1e9))
            when.append((now_ns() - start) / 1e9)
            bench.world.set_cores(tenant.name, 50)
            when.append((now_ns() - start) / 1e9)
        try:
            result = bench.measure([tenant], seconds=at + 3, during=change)[0]
        finally:
            tenant.close()
        series = bench.series("fma100us", result, "sluice")
        rates = bench.series("fma100us", result)
        ms = result["bucket_ms"]
        off = 5 + bench.slack
        cell = {"before": between(series, ms, 0, when[0]),
                "after": between(series, ms, when[0] + 1, at + 3),
                "to_share_s": reached(series, ms, when[0], 50 - off, 50 + off),
                "before_rate": between(rates, ms, 0, when[0]),
                "after_rate": between(rates, ms, when[0] + 1, at + 3),
                "set_took_s": when[1] - when[0],
                "lost": result["expected"] - result["counted"]
                + result["launched"] - result["finished"]}
        bench.add("set", "25 -> 50", mode="sluice", series=[series], raw=[result], **cell)
        bench.progress("set: " + ", ".join(
            f"{k} {v:.2f}" if v is not None else f"{k} never" for k, v in cell.items()))
    bench.attempt("set", "25 -> 50", run)


def wait_until(ns):
    while now_ns() < ns:
        time.sleep(min(0.01, max(0, (ns - now_ns()) / 1e9)))


GROUPS = {"caps": caps, "pairs": pairs, "long": long, "priority": priority, "burst": burst,
          "eight": eight, "launch": launch, "multi": multi, "set": set_, **ROWS}


def expected_seconds(bench, names):
    """A guess of the whole run's time, for the progress lines."""
    world = bench.world
    cell = bench.seconds + bench.warm + 0.6
    torch, mps = world.torch, world.has_mps
    again = 0 if world.sim else 1.5 * cell  # solo runs anew
    guess = {"caps": 20 * cell + (10 * cell + 30 if torch else 0) + (4 * cell if mps else 0),
             "pairs": (4 + 2 * mps) * cell, "long": 2 * cell, "priority": (3 + 2 * mps) * (cell + 2) * (1 if world.sim else 2),
             "burst": 10 + 1, "eight": 2 * (cell + 1), "launch": 44 + 45 * torch,
             "multi": 2 * cell, "set": 6.5, "people": 40 * cell + 60 * torch, "hosts": 12 * cell,
             "mixes": (35 + 15 * mps) * (cell + 1),
             "sync": 12 * cell, "streams": 6 * cell, "caps2": 20 * cell + 10, "high": 14 * cell,
             "queued": 4 * cell, "multi75": 2 * cell}
    for n, parts in bench.only.items():
        if parts and n == "caps":
            guess[n] = sum(5 * cell + (10 if p in ("train", "infer") else 0) for p in parts)
        elif parts:
            guess[n] = min(guess[n], len(parts) * (15 if n == "launch" else 2 * cell))
    return sum(guess[n] + again for n in names)
