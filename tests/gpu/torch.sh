#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# PyTorch under `sluice run --memory 10Gi` on a real GPU, with three allocators; first-call time
# against native, alternating. usage: tests/gpu/torch.sh BUILD_DIR [OUT_DIR]
set -u
build=${1:?build directory}
out=${2:-.}
here=$(cd "$(dirname "$0")" && pwd)
limit=$((10 << 30))
python3 -c 'import torch' 2>/dev/null || { echo "no PyTorch here: nothing checked"; exit 77; }
result="$out/torch-memory.jsonl"
: > "$result"

for conf in "" "expandable_segments:True" "backend:cudaMallocAsync"; do
    export PYTORCH_CUDA_ALLOC_CONF=$conf
    [ -n "$conf" ] || unset PYTORCH_CUDA_ALLOC_CONF
    "$build/bin/sluice" run --memory 10Gi -- python3 "$here/torch_memory.py" "$limit" | tee -a "$result"
done
unset PYTORCH_CUDA_ALLOC_CONF

first='import time, torch; t = time.perf_counter(); torch.zeros(1, device="cuda"); print(time.perf_counter() - t)'
for _ in 1 2 3 4 5; do
    echo "first-call native $(python3 -c "$first") sluice $("$build/bin/sluice" run --memory 10Gi -- python3 -c "$first")"
done | tee "$out/first-call.txt"

python3 - "$result" "$out/first-call.txt" <<'PY'
import json
import statistics
import sys

bad = 0
for line in open(sys.argv[1]):
    r = json.loads(line)
    limit = r["limit_bytes"]
    smi = int(r["nvidia_smi_total_used_mib"].split(",")[0]) << 20
    checks = {
        "mem_get_info shows the limit": r["mem_get_info_total"] == limit,
        "nvidia-smi shows the limit": smi == limit,
        "stops with torch.OutOfMemoryError": r["error"] == "torch.OutOfMemoryError",
        "at the limit, not before (90 %)": 0.90 * limit <= r["allocated_before_error"] <= limit,
        "works below it afterwards": r["works_after"],
    }
    for name, ok in checks.items():
        print(f"{'ok  ' if ok else 'FAIL'} {r['allocator']}: {name}")
        bad += not ok
rows = [l.split() for l in open(sys.argv[2])]
native = statistics.median(float(r[2]) for r in rows)
sluice = statistics.median(float(r[4]) for r in rows)
ok = sluice <= 1.1 * native
bad += not ok
print(f"{'ok  ' if ok else 'FAIL'} first CUDA call: native {native:.3f} s, sluice {sluice:.3f} s, ratio {sluice / native:.3f}")
sys.exit(1 if bad else 0)
PY
