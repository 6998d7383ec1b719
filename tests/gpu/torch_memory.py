#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch inside a lease: what it sees, where it stops, that it works below.

Run by tests/gpu/torch.sh under `sluice run --memory N`, once per allocator. Prints one JSON line.
usage: torch_memory.py LIMIT_BYTES
"""
import json
import os
import subprocess
import sys
import time

limit = int(sys.argv[1])
begin = time.perf_counter()
import torch  # noqa: E402  (the import is not what is timed below)

imported = time.perf_counter()
torch.cuda.init()
torch.zeros(1, device="cuda")
first_call_s = time.perf_counter() - imported

free, total = torch.cuda.mem_get_info()
smi = subprocess.run(["nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits"],
                     stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
apps = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
                      stdout=subprocess.PIPE, text=True, check=False).stdout.strip().splitlines()

# Take memory in 64 MiB pieces until the limit says no.
piece = 64 << 20
held = []
error = None
try:
    while len(held) * piece < 4 * limit:
        held.append(torch.empty(piece, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError as e:
    error = "torch.OutOfMemoryError"
except Exception as e:  # anything else is what no program expects
    error = f"{type(e).__name__}: {e}"
reached = len(held) * piece
free_at_limit = torch.cuda.mem_get_info()[0]
del held
torch.cuda.synchronize()
torch.cuda.empty_cache()

# And it works below the limit, after having hit it.
a = torch.randn(2048, 2048, device="cuda")
works = bool(torch.allclose((a @ torch.eye(2048, device="cuda")), a, atol=1e-2))
half = torch.empty(limit // 2, dtype=torch.uint8, device="cuda")
works = works and half.numel() == limit // 2

print(json.dumps({
    "allocator": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "caching (default)"),
    "limit_bytes": limit, "mem_get_info_total": total, "mem_get_info_free": free,
    "nvidia_smi_total_used_mib": smi, "nvidia_smi_processes": apps,
    "allocated_before_error": reached, "free_at_limit": free_at_limit, "error": error,
    "works_after": works, "first_cuda_call_s": first_call_s, "torch": torch.__version__,
}))
