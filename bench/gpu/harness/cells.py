# SPDX-License-Identifier: Apache-2.0
"""Measuring: intervals in which tenants overlap exactly, and arithmetic on what they completed."""
import json
import os
import subprocess
import time

from .clocks import Clocks
from .world import HOSTS, TORCH, Broken, now_ns

MS = 1_000_000
# Work that leaves the GPU idle by itself, or whose units run side by side.
WAITING = ("req", "tiny", "sync", "eager", "train5", "hostfn", "waitvalue", "kernel2s", "streams8", "mixed",
           *(f"eager{us}" for us in HOSTS))
TAIL_NS = 60 * MS  # load goes on past the measured end, so nobody is alone at it


class Bench:
    """The results so far, kept on disk after every cell, and the solo rates they are compared with."""

    def __init__(self, world, out, seconds, warm, slack, only=None):
        self.world = world
        self.out = out
        self.seconds = seconds
        self.warm = warm
        self.slack = slack  # added to the bars, in points
        self.began = time.monotonic()
        self.expected = 0
        self.broken = 0
        self.data = {"about": world.describe(), "slack_points": slack, "solo": {},
                     "solo_history": [], "cells": []}
        self.fresh = set()
        self.clocks = Clocks(real=not world.sim)
        self.watch = True
        self.only = only or {}  # group: the parts of it that are wanted, all where it is empty
        self.matched = set()

    def wanted(self, group, *names):
        """Whether a part of a group is to run: one of its names has a word that was asked for."""
        parts = self.only.get(group)
        if not parts:
            return True
        words = {w for n in names for w in n.lower().replace(",", "").split()} | {
            n.lower().replace(" ", "") for n in names}
        hit = {p for p in parts if p.lower() in words}
        self.matched |= {(group, p) for p in hit}
        return bool(hit)

    def unmatched(self):
        return [f"{g}:{p}" for g, parts in self.only.items() for p in parts
                if (g, p) not in self.matched]

    def save(self):
        self.data["about"]["elapsed_s"] = round(time.monotonic() - self.began, 1)
        self.data["about"]["load"] = [round(x, 1) for x in os.getloadavg()]
        self.data["about"]["iters"] = {str(k): v for k, v in self.world.iters.items()}
        path = os.path.join(self.out, "results.json")
        with open(path + ".new", "w", encoding="utf-8") as f:
            json.dump(self.data, f)
        os.replace(path + ".new", path)

    def progress(self, text):
        gone = time.monotonic() - self.began
        print(f"[{gone:5.0f} s of ~{self.expected:.0f}] {text}", flush=True)

    def add(self, group, label, **cell):
        solo = {w: self.data["solo"][w]["rate"] for w in self.fresh}
        seen = {k: r[k] for r in cell.get("raw", [])[:1] if isinstance(r, dict)
                for k in ("sm_mhz", "power_w") if k in r}
        self.data["cells"].append({"group": group, "label": label, "solo_rate": solo, **seen, **cell})
        self.save()

    def attempt(self, group, label, fn):
        """A cell that breaks is recorded as broken; the others still run."""
        try:
            return fn()
        except (Broken, OSError, ValueError, KeyError, subprocess.SubprocessError) as e:
            self.broken += 1
            self.add(group, label, broken=str(e))
            self.progress(f"{group} {label}: BROKEN: {e}")
            return None

    def measure(self, tenants, seconds=None, warm=None, loads=None, during=None, lead_ns=30 * MS,
                tail_ns=TAIL_NS):
        """
        Runs tenants over one interval. loads: for some, (from, until) in seconds after the start of
        what is measured. during(start_ns) is called while they run. Returns their results.
        """
        seconds = self.seconds if seconds is None else seconds
        warm = self.warm if warm is None else warm
        for t in tenants:
            t.ready()
        if self.watch:
            self.clocks.start()
        load = now_ns() + lead_ns
        start = load + int(warm * 1e9)
        until = start + int(seconds * 1e9)
        for i, t in enumerate(tenants):
            mine = (loads or {}).get(i)
            t.go(start + int(mine[0] * 1e9) if mine else load,
                 start + int(mine[1] * 1e9) if mine else until + tail_ns, start, until)
        if during:
            during(start)
        results = [t.result() for t in tenants]
        for r in results:
            r.update(self.clocks.between(start, until))
        return results

    def once(self, starts, after=None, **kw):
        """
        Starts tenants ((work, options) each), measures one interval, ends them. `after`: another
        tenant that is starting meanwhile; it has to have done so, lest it disturb.
        """
        tenants = []
        try:
            for work, options in starts:
                tenants.append(self.world.start(work, **options))
            if after:
                after.ready()
            results = self.measure(tenants, **kw)
            for line in self.world.fallbacks() if any(o.get("mode") == "sluice" for _, o in starts) else []:
                self.progress(line)
            return results
        finally:
            for t in tenants:
                t.close()

    def begin_group(self):
        """A real GPU's clocks drift with its warmth: each group is compared with its own solo runs."""
        if not self.world.sim:
            self.fresh.clear()

    def busy_solo(self, work, after):
        """
        Alone, and the GPU never idle: a program that got no CPU for a while would make everything
        after it look good. Then once more, up to three times; the best counts.
        """
        best = None
        for _ in range(3):
            got = self.once([(work, {})], after=after)[0]
            best = got if best is None or got["rate"] > best["rate"] else best
            busy = got.get("time_share", 0) / 100
            # Python's steps are not that even, and a fresh PyTorch takes long to start.
            if work in WAITING or busy >= (0.95 if work in ("train", "infer") else 0.99):
                break
            self.progress(f"solo {work}: the GPU was busy {100 * busy:.0f} % of the time only")
        if best["rate"] <= 0:
            raise Broken(f"{work} alone completes nothing")
        return best

    def solo(self, work, after=None):
        """The rate of `work` alone, without Sluice, in this run."""
        if work not in self.fresh:
            got = self.busy_solo(work, after)
            if "unit_us" in got and work not in TORCH and work not in WAITING:
                self.world.unit_us[work] = got["unit_us"]
            self.data["solo"][work] = got
            self.data["solo_history"].append({"work": work, "rate": got["rate"],
                                              "at_s": round(time.monotonic() - self.began, 1)})
            self.fresh.add(work)
            self.save()
            self.progress(f"solo {work}: {got['rate']:.1f}/s")
        return self.data["solo"][work]

    def share(self, work, result):
        return 100 * result["rate"] / self.solo(work)["rate"]

    def time_share(self, work, result, mode):
        return time_share(self.solo(work), result, mode)

    def series(self, work, result, mode=None):
        """Share of solo in each bucket, in percent: of its rate, or with a mode of the GPU's time."""
        rate = self.solo(work)["rate"] * result["bucket_ms"] / 1000
        time_got = self.time_share(work, result, mode) if mode else None
        scale = time_got / self.share(work, result) if time_got else 1
        return [100 * b / rate * scale for b in result["buckets"]]


def unit_us(result):
    """The length of a unit in this run. Of results that have its percentiles only: their middle."""
    unit = result.get("unit_us")
    if isinstance(unit, dict):
        return unit["p50"] if unit["p50"] <= 1.25 * unit["p10"] else unit["p10"]
    return unit


def counted_us(solo, result, mode):
    """
    What a unit counts as. One longer than alone waited for something (a gate, a turn of another's)
    and counts as long as alone, unless the kernels themselves said when they began and nobody could
    be switched in. Nothing for MPS, whose clients run side by side on parts of the GPU.
    """
    alone, unit = unit_us(solo), unit_us(result)
    if mode == "mps" or not alone or not unit:
        return None
    own = mode == "sluice" and result.get("unit_from") == "kernel"
    return unit if unit <= (1.25 if own else 1) * alone else alone


def time_share(solo, result, mode):
    """
    Part of the GPU's time, in % of what the work has alone: units completed x the length of one in
    this very run.
    """
    unit = counted_us(solo, result, mode)
    return None if unit is None else 100 * result["rate"] * unit / (solo["rate"] * unit_us(solo))


def mean(values):
    return sum(values) / len(values) if values else float("nan")


def median(values):
    v = sorted(values)
    n = len(v)
    return float("nan") if n == 0 else v[n // 2] if n % 2 else (v[n // 2 - 1] + v[n // 2]) / 2


def quartiles(values):
    """[lower, upper]: half of the values lie between."""
    v = sorted(values)
    return [v[round((len(v) - 1) * q)] for q in (0.25, 0.75)] if v else None


def between(series, bucket_ms, from_s, until_s):
    """The mean of a series between two times."""
    return mean(series[round(from_s * 1000 / bucket_ms):round(until_s * 1000 / bucket_ms)])


def worst_second(series, bucket_ms, asked):
    """The second (any, not only whole ones) whose mean is furthest from what was asked, in points."""
    n = round(1000 / bucket_ms)
    off = [mean(series[i:i + n]) - asked for i in range(len(series) - n + 1)]
    return max(off, key=abs) if off else None


def reached(series, bucket_ms, after_s, low, high, window_s=0.5):
    """Seconds from `after_s` to the end of the first half second whose mean is in [low, high]."""
    at = after_s
    end = len(series) * bucket_ms / 1000
    while at + window_s <= end + 1e-9:
        if low <= between(series, bucket_ms, at, at + window_s) <= high:
            return at - after_s + window_s
        at += bucket_ms / 1000
    return None


def jain(values):
    squares = sum(v * v for v in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0
