#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What people run in PyTorch, unlike saturating kernels: one step at a time, each waited for.

    torch_loop.py eager    inference of a small transformer, kernel by kernel: bound by launches
    torch_loop.py train    a training step, then 5 ms of work on the host (a data loader's)

Says {"ready": ...}, then obeys the same `go` lines as tenant.c; answers with steps per second and the
steps' latencies. The line `gpu` is answered with the GPU's time of one step; it wants the GPU alone.
"""
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

from torch_meter import now_ns, percentiles
from torch_train import WIDTH, WORDS, Block

HOST_S = 0.005
EAGER_BLOCKS, EAGER_TOKENS = 9, 128
TRAIN_BLOCKS, TRAIN_TOKENS, TRAIN_BATCH = 6, 512, 24


def eager():
    model = nn.Sequential(*[Block() for _ in range(EAGER_BLOCKS)]).cuda().bfloat16().eval()
    batch = torch.randn(1, EAGER_TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16)

    def submit():
        with torch.no_grad():
            return model(batch)
    return submit, lambda: None


def train():
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *[Block() for _ in range(TRAIN_BLOCKS)],
                          nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)).cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(WORDS, (TRAIN_BATCH, TRAIN_TOKENS + 1), device="cuda")

    def submit():
        optimizer.zero_grad(set_to_none=True)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
    return submit, lambda: time.sleep(HOST_S)


def gpu_us(submit, steps=20):
    """
    The GPU's time of a step. The stream first waits behind a kernel that is longer than it takes to
    submit the step, so nothing of the step waits for the host.
    """
    times = []
    for _ in range(steps):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(60_000_000)  # cycles: about 30 ms
        begin.record()
        submit()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return sorted(times)[len(times) // 2]


def run(submit, host, load_from, load_until, from_ns, until_ns):
    steps, latencies = 0, []
    time.sleep(max(0, (load_from - now_ns()) / 1e9))
    while now_ns() < load_until:
        host()
        begin = now_ns()
        submit()
        torch.cuda.synchronize()
        end = now_ns()
        if from_ns <= end < until_ns:
            steps += 1
            latencies.append((end - begin) / 1e6)
    seconds = (until_ns - from_ns) / 1e9
    result = {"done": steps, "rate": steps / seconds, "seconds": seconds}
    if latencies:
        result["latency_ms"] = percentiles(latencies)
    return result


def main():
    torch.manual_seed(1)
    submit, host = {"eager": eager, "train": train}[sys.argv[1]]()
    for _ in range(20):
        submit()
    torch.cuda.synchronize()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        word, *numbers = line.split()
        if word == "gpu":
            print(json.dumps({"gpu_us": gpu_us(submit)}), flush=True)
            continue
        if word != "go" or len(numbers) != 4:
            sys.exit(f"not understood: {line}")
        result = run(submit, host, *[int(n) for n in numbers])
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
