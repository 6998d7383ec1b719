# SPDX-License-Identifier: Apache-2.0
"""
The programs people run, side by side under plain time-slicing, MPS and Sluice, in one run.

Each function measures one group of rows and judges it: a cell has the bar, what was seen and whether
that is enough. PyTorch's programs are replaced by ones of the same shape where PyTorch is not there.
"""
from .cells import median
from .world import HOSTS, TORCH, Broken, Mps

# The speed of PyTorch's host goes up and down by a third within seconds. So intervals are short, and the ways to share
# follow one another in each of many rounds: what is compared saw the same minutes.
ROUNDS, ROUND_SECONDS = 10, 1.2
CAP_ROUNDS, CAP_SECONDS = 6, 2
# The simulated host always has the same speed. But one step in a hundred is as slow as chance has it.
CLOCK_ROUNDS = 3
# Which slices suit is found out in the first seconds that programs are side by side, and kept.
FOUND_SECONDS = 4


def rounds(bench, count, seconds):
    return (count, min(bench.seconds, seconds)) if not bench.world.clock else (min(count, CLOCK_ROUNDS), bench.seconds)


def rivals(bench, works, seconds=None):
    """The same works, with options of their own or without, under plain time-slicing and under MPS."""
    starts = [w if isinstance(w, tuple) else (w, {}) for w in works]
    seen = {"time-slicing": bench.once(starts, seconds=seconds)}
    if bench.world.has_mps:
        with Mps(bench.world.scratch) as mps:
            seen["MPS"] = bench.once([(w, {"mode": "mps", "mps": mps, **options}) for w, options in starts],
                                     seconds=seconds)
    return seen


def judged(bench, group, label, bar, text, ok, raw=None, **more):
    bench.add(group, label, mode="sluice", bar=bar, text=text, ok=ok, raw=raw or [], **more)
    bench.progress(f"{group} {label}: {text} [{'pass' if ok else 'FAIL'}: {bar}]")


def mean(values):
    return sum(values) / len(values)


def rate(results):
    return mean([r["rate"] for r in results])


def p99(results):
    return mean([r["latency_ms"]["p99"] for r in results])


def gpu_us(bench, work, tenant=None):
    """The GPU's time of one unit of work alone; asked of PyTorch's programs once."""
    known = bench.data.setdefault("gpu_us", {})
    if work not in known:
        if work in TORCH and bench.world.torch:
            own = tenant or bench.world.start(work)
            try:
                known[work] = own.ask("gpu")["gpu_us"]
            finally:
                if not tenant:
                    own.close()
        else:
            known[work] = {"eager": 150 * 4.0, "train5": 17000.0}.get(work) or bench.solo(work)["unit_us"]
    return known[work]


def gpu_percent(bench, work, result):
    """
    GPU time used, in % of all there is: what completed x the GPU's time of one unit in this very run where the
    program knows that (a limited one runs at a higher clock), else alone.
    """
    # What stands for PyTorch's programs where it is not there knows how long a step took, waits included.
    known = result.get("time_share") if bench.world.torch or work not in TORCH else None
    return known if known is not None else 100 * result["rate"] * gpu_us(bench, work) / 1e6


class Cast:
    """
    Tenants that stay. Without Sluice and under MPS there is one of each work. Under Sluice each pair has an arbiter of
    its own for hard limits and one for none, so that nothing but the neighbour ever changes for them.
    """

    LIMITS = {"hard": "50", "soft": "50:100"}
    BESIDE = ("train5", "gemm170")

    def __init__(self, bench, mps):
        self.bench, self.mps, self.tenants, self.sides = bench, mps, {}, {}
        for work in ("eager", *self.BESIDE):
            self.tenants["native", work] = bench.world.start(work)
            if mps:
                self.tenants["mps", work] = bench.world.start(work, mode="mps", mps=mps)
        for mode, cores in self.LIMITS.items():
            for beside in self.BESIDE:
                side = self.sides[mode, beside] = bench.world.aside()
                for work in ("eager", beside):
                    self.tenants[mode, beside, work] = side.start(work, mode="sluice", cores=cores)
        for t in self.tenants.values():
            t.ready()
        for work in ("eager", *self.BESIDE):
            gpu_us(bench, work, self.tenants["native", work])

    def run(self, mode, beside, seconds):
        """Eager inference and its neighbour, or one of them alone. Returns their results."""
        works = [beside] if mode == "alone" else ["eager", beside]
        key = {"alone": ("native",), "native": ("native",), "mps": ("mps",)}.get(mode, (mode, beside))
        tenants = [self.tenants[(*key, w)] for w in works]
        results = self.bench.measure(tenants, seconds=seconds)
        if key in self.sides:  # the slices last until the next period in which somebody works
            slices = self.sides[key].slices_us()
            for t, r in zip(tenants, results):
                r["slice_us"] = slices.get(t.name)
        return results

    def of(self, mode, beside):
        """Its arbiter, eager inference, and the neighbour."""
        return self.sides[mode, beside], *(self.tenants[mode, beside, w] for w in ("eager", beside))

    def close(self):
        for t in self.tenants.values():
            t.close()
        for side in self.sides.values():
            side.close()


def people(bench):
    """Eager inference beside training and beside gemm."""
    mps = Mps(bench.world.scratch) if bench.world.has_mps else None
    if mps:
        mps.__enter__()
    cast = None
    try:
        cast = Cast(bench, mps)
        if bench.wanted("people", "beside"):
            seen = people_rounds(bench, cast, ["native", *Cast.LIMITS, *(["mps"] if mps else [])])
            judge_people(bench, seen, mps)
            alone = {w: seen["alone", w, 0] for w in ("eager", *Cast.BESIDE)}
        else:
            alone = {w: cast.run("alone", w, bench.seconds) for w in ("eager", *Cast.BESIDE)}
        for part, measure in (("trainings", two_trainings), ("third", three_with), ("limits", inference_caps)):
            if bench.wanted("people", part):
                measure(bench, cast, alone)
    finally:
        if cast:
            cast.close()
        if mps:
            mps.__exit__()


def people_rounds(bench, cast, modes):
    """{(mode, neighbour, 0 for inference or 1 for the neighbour): results}; mode "alone" has one result each."""
    count, seconds = rounds(bench, ROUNDS, ROUND_SECONDS)
    seen = {}
    cells = [(m, b) for b in Cast.BESIDE for m in modes]
    for mode, beside in cells:
        if mode in Cast.LIMITS:
            cast.run(mode, beside, FOUND_SECONDS)
    for i in range(count):
        now = [("alone", "eager")] + cells
        if i % 3 == 0:  # these two do not go by the host's speed
            now += [("alone", b) for b in Cast.BESIDE]
        for mode, beside in now if i % 2 == 0 else reversed(now):
            for k, r in enumerate(cast.run(mode, beside, seconds)):
                seen.setdefault((mode, beside, k), []).append(r)
    return seen


def error_of(results, base):
    """The standard error of the mean of their rates, in % of base."""
    rates, n = [r["rate"] for r in results], len(results)
    off = sum((r - mean(rates)) ** 2 for r in rates)
    return 100 * (off / (n - 1) / n) ** 0.5 / base if n > 1 else 0


def judge_people(bench, seen, mps):
    base = rate(seen["alone", "eager", 0])
    for beside in Cast.BESIDE:
        def eager(mode):
            got = seen[mode, beside, 0]
            return 100 * rate(got) / base, p99(got)

        def told(mode):
            return f"{eager(mode)[0]:.0f} (+- {error_of(seen[mode, beside, 0], base):.0f})"

        def slices(mode):
            used = [r.get("slice_us") or 0 for r in seen[mode, beside, 1]]
            return f", slices of {beside} {min(used)} to {max(used)} us"

        def other(mode):
            got = seen[mode, beside, 1]
            return (100 * rate(got) / rate(seen["alone", beside, 0]),
                    mean([gpu_percent(bench, beside, r) for r in got]))
        ts, ts99 = eager("native")
        ts_other, _ = other("native")
        mps_text = ""
        if mps:
            m, m99 = eager("mps")
            mps_text = f"; MPS {m:.0f} + {other('mps')[0]:.0f}, p99 {m99:.1f} ms"
        hard, hard99 = eager("hard")
        rest, time = other("hard")
        need = min(ts + 5, 97)
        raw = [seen["alone", "eager", 0]]
        judged(bench, "people", f"eager 50 + {beside} 50",
               f"eager >= {need:.0f} (time-slicing + 5, at most 97), p99 <= {ts99:.1f} ms, "
               "the other at 50 +- 2 of GPU time",
               f"eager {told('hard')}, p99 {hard99:.1f} ms, {beside} {time:.1f} of GPU time (rate {rest:.0f})"
               f"{slices('hard')}; time-slicing {told('native')} + {ts_other:.0f}, p99 {ts99:.1f} ms{mps_text}",
               hard >= need and hard99 <= ts99 and abs(time - 50) <= 2,
               raw=raw + [seen[m, beside, i] for m in ("native", "hard") for i in (0, 1)])
        soft, soft99 = eager("soft")
        rest, _ = other("soft")
        judged(bench, "people", f"eager 50:100 + {beside} 50:100",
               f"eager >= {ts - 2:.0f}, the other >= {ts_other - 2:.0f}, p99 <= {1.1 * ts99:.1f} ms",
               f"eager {told('soft')}, {beside} {rest:.0f}, p99 {soft99:.1f} ms{slices('soft')}",
               soft >= ts - 2 and rest >= ts_other - 2 and soft99 <= 1.1 * ts99,
               raw=raw + [seen["soft", beside, i] for i in (0, 1)])


def two_trainings(bench, cast, alone):
    side, eager, first = cast.of("soft", "train5")
    side.set_cores(eager.name, "0.1:100")
    second = side.start("train5", mode="sluice", cores="49:100")
    try:
        second.ready()
        results = bench.measure([first, second], warm=0.7)
        got = [100 * r["rate"] / rate(alone["train5"]) for r in results]
        judged(bench, "people", "two trainings 50/50", "sum >= 110",
               f"{got[0]:.0f} + {got[1]:.0f} = {sum(got):.0f}", sum(got) >= 110, raw=results)
    finally:
        second.close()
        side.set_cores(eager.name, "50:100")


def three_with(bench, cast, alone):
    """The neighbour's share at 20, and a third that saturates the GPU at 30."""
    for beside in Cast.BESIDE:
        side, eager, other = cast.of("soft", beside)
        side.set_cores(other.name, "20:100")
        third = side.start("fma100us", mode="sluice", cores="30:100")
        count, seconds = rounds(bench, 2, bench.seconds)
        try:
            third.ready()
            results, before = [], []
            bench.measure([eager, other, third], seconds=FOUND_SECONDS)
            for _ in range(count):
                before.append(cast.run("alone", "eager", seconds / 2)[0])
                results.append(bench.measure([eager, other, third], seconds=seconds, warm=0.7))
        finally:
            third.close()
        each = list(zip(*results))
        speed = 100 * rate(each[0]) / rate(before)
        times = [mean([gpu_percent(bench, w, r) for r in got]) for w, got in zip(("eager", beside), each)]
        times.append(rate(each[2]) * 100e-6 * 100)
        need = 100 * rate(before) * gpu_us(bench, "eager") / 1e6
        ok = times[1] >= 18 and times[2] >= 28 and times[0] >= min(48, 0.8 * need)
        judged(bench, "people", f"eager 50, {beside} 20, fma100us 30, all :100",
               "each its request of GPU time where it has work (eager: >= 80 % of its speed alone)",
               f"GPU time {times[0]:.1f} / {times[1]:.1f} / {times[2]:.1f}, eager at {speed:.0f} % of alone",
               ok, raw=results)


def inference_caps(bench, cast, alone):
    """
    Caps by how busy it keeps the GPU. Its speed alone varies with the host, by 30 % within a minute. So a cap that is to
    leave it alone is 5 above its busiest interval so far, a cap of half is by the interval before, and what it gets is
    compared with the intervals before and after.
    """
    count, seconds = rounds(bench, CAP_ROUNDS, CAP_SECONDS)
    busy_per_rate = 100 * gpu_us(bench, "eager") / 1e6
    fastest = max(r["rate"] for r in alone["eager"])
    side, eager, other = cast.of("hard", "gemm170")
    side.set_cores(other.name, "0.1:100")

    def native():
        return cast.run("alone", "eager", seconds)[0]["rate"]

    def capped(percent):
        side.set_cores(eager.name, f"{percent:.1f}")
        return bench.measure([eager], seconds=seconds, warm=0.7)[0]
    for label, low, high in (("busy + 5", 97, 1000), ("busy / 2", 45, 55)):
        got, percents, caps = [], [], []
        after = native()
        for _ in range(count):
            before, fastest = after, max(fastest, after)
            caps.append(fastest * busy_per_rate + 5 if low == 97 else before * busy_per_rate / 2)
            got.append(capped(caps[-1]))
            after = native()
            percents.append(100 * got[-1]["rate"] / ((before + after) / 2))
        percent = median(percents)
        judged(bench, "people", f"eager alone, cap {label}",
               f"{low} to {high} % of alone" if high < 1000 else f">= {low} % of alone",
               f"{percent:.1f} % (caps {', '.join(f'{c:.1f}' for c in caps)})", low <= percent <= high, raw=got)


def hosts(bench):
    """
    A program that is bound by its launches ends a step with one of its neighbour's slices or with the next: whether the
    host is a little faster or slower makes its steps twice as long. So hosts of several speeds, beside gemm.
    """
    def run(work):
        alone = [bench.solo(w)["rate"] for w in (work, "gemm170")]

        def seen(**options):
            results = bench.once([(work, options), ("gemm170", options)], warm=1.5)
            return [100 * r["rate"] / a for r, a in zip(results, alone)], results
        sliced, plain = seen()
        got, results = seen(mode="sluice", cores="50:100")
        gain = 100 * got[0] / sliced[0] - 100
        judged(bench, "hosts", f"{work} 50:100 + gemm170 50:100", "each at least what time-slicing gives it, less 3",
               f"{got[0]:.0f} + {got[1]:.0f} ({gain:+.0f} % more steps), p50 {results[0]['latency_ms']['p50']:.2f} ms; "
               f"time-slicing {sliced[0]:.0f} + {sliced[1]:.0f}, {plain[0]['latency_ms']['p50']:.2f} ms",
               all(g >= s - 3 for g, s in zip(got, sliced)), raw=results, others={"time-slicing": plain})
    for us in HOSTS:
        if bench.wanted("hosts", f"eager{us}"):
            bench.attempt("hosts", f"eager{us}", lambda work=f"eager{us}": run(work))


MIXES = ("eager17", "train5", "gemm170", "sync", "graph")


def mixes(bench):
    """Each program beside each other one, all of the GPU for both: what Sluice costs whom, and gives whom."""
    def run(works, label):
        alone = [bench.solo(w)["rate"] for w in works]
        results = bench.once([(w, {"mode": "sluice", "cores": "50:100"}) for w in works], warm=2.0)
        others = rivals(bench, works)

        def seen(results):
            return [100 * r["rate"] / a for r, a in zip(results, alone)]

        def text(got):
            return " + ".join(f"{g:.0f}" for g in got) + f" = {sum(got):.0f}"
        got, sliced = seen(results), seen(others["time-slicing"])
        judged(bench, "mixes", label, "each at least what time-slicing gives it, less 3, or its half",
               text(got) + "".join(f"; {name} {text(seen(r))}" for name, r in others.items()),
               all(g >= min(s - 3, 47) for g, s in zip(got, sliced)), raw=results, others=others)
    for i, a in enumerate(MIXES):
        for b in MIXES[i:]:
            label = f"{a} + {b}"
            if bench.wanted("mixes", label, a, b):
                bench.attempt("mixes", label, lambda a=a, b=b, label=label: run((a, b), label))


def pair_row(bench, group, parts, bar, check, seconds=None):
    """parts: (work, cores) each; check(shares) says whether that is enough."""
    label = " + ".join(f"{w} {c}" for w, c in parts)

    def run():
        for w, _ in parts:
            bench.solo(w)
        # Who is behind is found out in the first second.
        results = bench.once([(w, {"mode": "sluice", "cores": c}) for w, c in parts],
                             warm=2.0 if group == "sync" else 0.8, seconds=seconds)
        got = [bench.share(w, r) for (w, _), r in zip(parts, results)]
        times = [bench.time_share(w, r, "sluice") or g for (w, _), r, g in zip(parts, results, got)]
        others = rivals(bench, [w for w, _ in parts], seconds) if group in ("sync", "streams") else {}
        text = " / ".join(f"{t:.1f} (rate {g:.1f})" for t, g in zip(times, got)) + f", sum {sum(got):.1f}"
        for name, seen in others.items():
            text += f"; {name} " + " / ".join(f"{bench.share(w, r):.1f}" for (w, _), r in zip(parts, seen))
        judged(bench, group, label, bar, text, check(times, got), raw=results, others=others)
    bench.attempt(group, label, run)


def near(values, asked, off):
    return all(abs(v - a) <= off for v, a in zip(values, asked))


def sync(bench):
    pair_row(bench, "sync", (("sync", "50"), ("gemm170", "50")), ">= 45 and >= 48",
             lambda t, g: g[0] >= 45 and t[1] >= 48)
    pair_row(bench, "sync", (("sync", "50:100"), ("gemm170", "50:100")), ">= 45 and >= 48",
             lambda t, g: g[0] >= 45 and t[1] >= 48)
    # Two that lose their slices to each other at each kernel.
    for cores in ("50:100", "50"):
        pair_row(bench, "sync", (("sync", cores), ("sync", cores)), "each >= 45", lambda t, g: min(g) >= 45)


def streams(bench):
    pair_row(bench, "streams", (("streams8", "30"), ("fma100us", "70")), "+- 2, sum >= 96",
             lambda t, g: near(g, (30, 70), 2) and sum(g) >= 96)
    pair_row(bench, "streams", (("gemm170", "20"), ("graph", "30"), ("fma100us", "50")),
             "+- 1.5, sum >= 95", lambda t, g: near(t, (20, 30, 50), 1.5) and sum(g) >= 95)


def caps2(bench):
    """What was not limited well by turns."""
    for work in ("streams8", "copy", "coop", "mixed"):
        if not bench.wanted("caps2", work):
            continue

        def run(w=work):
            bench.solo(w)
            got = {}
            for asked in (10, 25, 50, 75):
                got[asked] = bench.share(w, bench.once([(w, {"mode": "sluice", "cores": asked})],
                                                       warm=0.6)[0])
            worst = max((abs(v - a) for a, v in got.items()))
            judged(bench, "caps2", work, "+- 2", ", ".join(f"{a}: {v:.1f}" for a, v in got.items()),
                   worst <= 2)
        bench.attempt("caps2", work, run)

    def long():
        text, ok = [], True
        lengths = ((10, 27), (25, 10), (50, 9), (75, 7)) if not bench.world.sim else ((50, 5), (25, 9))
        for asked, seconds in lengths:
            r = bench.once([("kernel2s", {"mode": "sluice", "cores": asked})], seconds=seconds,
                           warm=0.0)[0]
            percent = 100 * 2000 / r["latency_ms"]["p50"]
            text.append(f"{asked}: {percent:.1f}")
            ok = ok and abs(percent - asked) <= 2
        judged(bench, "caps2", "a 2 s kernel", "+- 2", ", ".join(text), ok)
    if bench.wanted("caps2", "kernel2s"):
        bench.attempt("caps2", "a 2 s kernel", long)


HIGH = ("gemm170", "fma20ms", "graph", "streams8", "train5")


def high(bench):
    """Requests of high priority beside low tenants."""
    seconds = max(bench.seconds, 3)
    try:
        alone = bench.once([("req", {})], seconds=seconds)[0]
    except Broken as e:
        bench.add("high", "req alone", broken=str(e))
        return
    left = 100 - 100 * alone["rate"] * alone["unit_alone_us"] / 1e6
    solo99 = alone["latency_ms"]["p99"]
    for lows in [(w,) for w in HIGH] + [("gemm170",) * 2, ("gemm170",) * 4]:
        label = lows[0] if len(lows) == 1 else f"{ {2: 'two', 4: 'four'}[len(lows)] } {lows[0]}"
        if not bench.wanted("high", label):
            continue
        bar99, part = (1.15, 95) if len(lows) == 1 else (1.25, 90)

        def run(lows=lows, label=label, bar99=bar99, part=part):
            bases = {w: bench.solo(w)["rate"] for w in set(lows)}
            request = f"{100 - 12 * len(lows)}:100"
            results = bench.once([("req", {"mode": "sluice", "cores": request, "priority": "high"})]
                                 + [(w, {"mode": "sluice", "cores": "10:100", "priority": "low"})
                                    for w in lows], seconds=seconds, warm=1.0)
            others = rivals(bench, ["req", *lows], seconds=min(seconds, 2.5))

            def seen(results):
                return (results[0]["latency_ms"]["p99"] / solo99,
                        sum(100 * r["rate"] / bases[w] for w, r in zip(lows, results[1:])))
            times, got = seen(results)
            want = left
            if lows == ("train5",):  # its host's work stays as long; its GPU's takes longer
                unit = gpu_us(bench, "train5") / 1e6
                want = 100 * (1 / bases["train5"]) / (1 / bases["train5"] - unit + unit * 100 / left)
            rest = 100 * got / want
            beside = "".join("; {} {:.2f} x, {:.0f} %".format(name, p, 100 * low / want)
                             for name, (p, low) in ((n, seen(r)) for n, r in others.items()))
            judged(bench, "high", f"req beside {label}",
                   f"p99 <= {bar99} x alone, the low ones >= {part} % of what is left",
                   f"p99 {times:.2f} x ({results[0]['latency_ms']['p99']:.2f} ms), p50 "
                   f"{results[0]['latency_ms']['p50']:.2f}, low {rest:.0f} % of {want:.0f}{beside}",
                   times <= bar99 and rest >= part, raw=results, others=others)
        bench.attempt("high", label, run)


def queued(bench):
    """Kernels behind a host function, or behind a value in memory: they end."""
    work_ms = 32 * 0.1
    for work in ("hostfn", "waitvalue"):
        for cores, share, beside in (("30", 0.30, None), ("50:100", 0.50, "gemm170")):
            label = f"{work} {cores}" + (f" beside {beside}" if beside else "")

            def run(work=work, cores=cores, share=share, beside=beside, label=label):
                starts = [(work, {"mode": "sluice", "cores": cores})]
                starts += [(beside, {"mode": "sluice", "cores": "50:100"})] if beside else []
                results = bench.once(starts, warm=0.3)
                others = rivals(bench, [work, beside]) if beside else {}
                bound = work_ms / share * 1.5 + 100

                def seen(results):
                    ms = results[0]["latency_ms"]
                    return f"p50 {ms['p50']:.1f}, slowest {ms['max']:.1f} ms"
                judged(bench, "queued", label, f"each 32 kernels within {bound:.0f} ms",
                       seen(results) + "".join(f"; {name} {seen(r)}" for name, r in others.items()),
                       results[0]["latency_ms"]["max"] <= bound, raw=results, others=others)
            bench.attempt("queued", label, run)


def multi75(bench):
    """Four processes of one tenant beside another tenant."""
    def run():
        bench.solo("gemm170")
        four = {"extra": ("--processes", "4")}
        results = bench.once([("gemm170", {"mode": "sluice", "cores": 25, **four}),
                              ("gemm170", {"mode": "sluice", "cores": 75})], warm=1.0)
        others = rivals(bench, [("gemm170", four), "gemm170"])
        got = [bench.time_share("gemm170", r, "sluice") for r in results]
        beside = "".join("; {} {:.1f} / {:.1f}".format(name, *(bench.share("gemm170", r) for r in seen))
                         for name, seen in others.items())
        judged(bench, "multi75", "4 processes 25 + one 75", "+- 2",
               f"{got[0]:.1f} / {got[1]:.1f}{beside}", near(got, (25, 75), 2), raw=results, others=others)
    bench.attempt("multi75", "4 processes", run)


ROWS = {"people": people, "hosts": hosts, "mixes": mixes, "sync": sync, "streams": streams, "caps2": caps2,
        "high": high, "queued": queued, "multi75": multi75}
