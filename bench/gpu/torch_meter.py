# SPDX-License-Identifier: Apache-2.0
"""What a PyTorch tenant shares with tenant.c: obeying `go` lines, and dating what was completed."""
import collections
import json
import sys
import time

import torch

from pieces import step_us

BUCKET_NS = 50_000_000

marks = []  # events inside the step that is being submitted
spare = []  # events to use again


def event():
    return spare.pop() if spare else torch.cuda.Event(enable_timing=True, blocking=True)


def mark(_grad=None):
    """Ends a piece of the step; also a hook for the moment a gradient is there."""
    e = event()
    e.record()
    marks.append(e)


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def percentiles(values):
    v = sorted(values)
    at = lambda q: v[int((len(v) - 1) * q + 0.5)]
    return {"n": len(v), "p10": at(0.1), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": v[-1]}


class Interval:
    def __init__(self, from_ns, until_ns, unit_ns):
        self.from_ns, self.until_ns, self.unit_ns = from_ns, until_ns, unit_ns
        self.buckets = [0.0] * ((until_ns - from_ns) // BUCKET_NS)
        self.samples = []
        self.steps = []  # of each, how long its pieces took, in us
        self.last = None
        self.finished = 0
        self.ref = torch.cuda.Event(enable_timing=True)
        self.ref.record()
        self.ref.synchronize()
        self.ref_ns = self.prev_ns = now_ns()

    def pieces(self, events, inside):
        """Event to event, from the end of the step before on."""
        if self.last and inside:
            self.steps.append([1e3 * a.elapsed_time(b)
                               for a, b in zip([self.last] + events, events)])
        if self.last:
            spare.append(self.last)
        spare.extend(events[:-1])
        self.last = events[-1]

    def done(self, events):
        """One step ended: it ran no longer than it does alone, nor before the one ahead of it ended."""
        events[-1].synchronize()
        end = self.ref_ns + int(self.ref.elapsed_time(events[-1]) * 1e6)
        begin = min(max(self.prev_ns, end - self.unit_ns), end - 1)
        lo, hi = max(begin, self.from_ns), min(end, self.until_ns)
        while lo < hi:
            b = (lo - self.from_ns) // BUCKET_NS
            edge = min(self.from_ns + (b + 1) * BUCKET_NS, hi)
            if b < len(self.buckets):
                self.buckets[b] += (edge - lo) / (end - begin)
            lo = edge
        if self.from_ns < end <= self.until_ns:
            self.samples.append((end - self.prev_ns) / 1e3)
        self.pieces(events, self.from_ns < end <= self.until_ns)
        self.prev_ns = max(end, self.prev_ns)
        self.finished += 1


def unit_ns(step, steps):
    """The median GPU time of a step, in steps back to back."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    for e in events:
        step()
        e.record()
    marks.clear()
    torch.cuda.synchronize()
    times = sorted(a.elapsed_time(b) for a, b in zip(events, events[1:]))
    return int(times[len(times) // 2] * 1e6)


def run(step, go, unit, queue_ms=12):
    load_from, load_until, from_ns, until_ns = go
    depth = max(2, min(16, int(queue_ms * 1e6 / unit)))
    time.sleep(max(0, (load_from - now_ns()) / 1e9))
    interval = Interval(from_ns, until_ns, unit)
    queue = collections.deque()
    launched = 0
    while now_ns() < load_until:
        marks.clear()
        step()
        mark()
        launched += 1
        queue.append(list(marks))
        if len(queue) >= depth:
            interval.done(queue.popleft())
    while queue:
        interval.done(queue.popleft())
    seconds = (until_ns - from_ns) / 1e9
    done = sum(interval.buckets)
    result = {"done": done, "rate": done / seconds, "seconds": seconds, "launched": launched,
              "finished": interval.finished, "bucket_ms": BUCKET_NS / 1e6,
              "buckets": [round(b, 4) for b in interval.buckets]}
    if interval.samples:
        result["batch_us"] = percentiles(interval.samples)
    if interval.steps:
        result["unit_us"] = step_us(interval.steps)
        result["unit_from"] = "events"
        result["time_share"] = 100 * result["rate"] * result["unit_us"] / 1e6
    return result


def serve(make_step, warm_steps=20):
    start = now_ns()
    torch.zeros(1, device="cuda")
    first_call_ms = (now_ns() - start) / 1e6
    if "--first-call" in sys.argv:
        print(json.dumps({"ready": True, "first_call_ms": first_call_ms}), flush=True)
        return
    step = make_step()
    for _ in range(warm_steps):
        step()
    torch.cuda.synchronize()
    unit = unit_ns(step, 10)
    print(json.dumps({"ready": True, "unit_alone_us": unit / 1e3, "first_call_ms": first_call_ms}),
          flush=True)
    for line in sys.stdin:
        word, *numbers = line.split()
        if word != "go" or len(numbers) != 4:
            sys.exit(f"not understood: {line}")
        result = run(step, [int(n) for n in numbers], unit)
        result["unit_alone_us"] = unit / 1e3
        result["first_call_ms"] = first_call_ms
        unit = int(1e3 * result.get("unit_us", unit / 1e3)) or unit  # better than at a busy start
        print(json.dumps(result), flush=True)
