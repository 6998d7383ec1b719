#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
A whole sluiced on this machine's GPUs: what it finds, labels and measures against nvidia-smi; and two tenants of
its own MPS daemon, holding three and seven of ten shares. Changes no setting of the card.
Usage: agent.py [--build DIR] [--libs DIR] [--sim CARDS] [--out FILE]
--libs: shared libraries for sluiced where the machine has not got them (the build is carried, not made there).
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import types
import urllib.request

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench", "gpu"))
from harness.cells import Bench  # noqa: E402
from harness.world import World  # noqa: E402

SHARES, REPLICAS = (3, 7), 10
failures = []


def check(ok, what):
    print(f"{'ok  ' if ok else 'FAIL'} {what}", flush=True)
    if not ok:
        failures.append(what)


class Kubelet:
    def __init__(self, args, folder):
        self.process = subprocess.Popen([f"{args.build}/tests/agent/kubelet_tool", folder], text=True,
                                        env=with_libs(args), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


def with_libs(args):
    env = dict(os.environ)
    if args.libs:
        env["LD_LIBRARY_PATH"] = args.libs
    return env


def start_agent(args, folder, config):
    with open(f"{folder}/config.yaml", "w", encoding="ascii") as f:
        f.write(config)
    command = [f"{args.build}/bin/sluiced", "--no-api", f"--config-file={folder}/config.yaml",
               f"--kubelet-socket={folder}/kubelet/kubelet.sock", f"--cdi-dir={folder}/cdi",
               f"--state-dir={folder}/state", f"--arbiter-dir={folder}/arbiter", "--nfd",
               f"--output-file={folder}/labels", "--metrics-address=127.0.0.1:9411",
               f"--mps-root={folder}/mps"]
    if args.sim:
        command += [f"--driver-root={folder}/root", f"--container-driver-root={folder}/root"]
    log = open(f"{folder}/agent.log", "a", encoding="utf-8")
    return subprocess.Popen(command, env=with_libs(args), stderr=log)


def smi(fields):
    run = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"],
                         capture_output=True, text=True, check=True, timeout=30)
    return [[v.strip() for v in line.split(",")] for line in run.stdout.strip().splitlines()]


def metrics():
    with urllib.request.urlopen("http://127.0.0.1:9411/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line[0] != "#"}


def read_labels(folder):
    with open(f"{folder}/labels", encoding="ascii") as f:
        return dict(line.strip().split("=", 1) for line in f if "=" in line)


def against_smi(folder, kubelet):
    """Devices, labels and metrics are nvidia-smi's."""
    cards = smi("uuid,name,memory.total,driver_version,compute_cap")
    check(sorted(kubelet.ask("list nvidia.com/gpu").split()) == sorted(c[0] for c in cards),
          "the devices are nvidia-smi's GPUs, by UUID")
    labels = read_labels(folder)
    cc = cards[0][4].split(".")
    for key, want in (("gpu.count", str(len(cards))), ("gpu.memory", cards[0][2]),
                      ("gpu.product", cards[0][1].replace(" ", "-")),
                      ("cuda.driver-version.full", cards[0][3]),
                      ("gpu.compute.major", cc[0]), ("gpu.compute.minor", cc[1]),
                      ("gpu.replicas", "1"), ("gpu.sharing-strategy", "none")):
        check(labels.get(f"nvidia.com/{key}") == want, f"label {key}={labels.get(f'nvidia.com/{key}')}")
    now = metrics()
    power, heat, used, total = smi("power.draw,temperature.gpu,memory.used,memory.total")[0]
    gpu = f'{{gpu="{cards[0][0]}"}}'
    got = {k: now.get(f"sluice_gpu_{k}{gpu}") for k in
           ("memory_total_bytes", "memory_used_bytes", "power_watts", "temperature_celsius",
            "utilisation_ratio", "healthy")}
    check(got["memory_total_bytes"] == float(total) * 2**20, f"memory {total} MiB as nvidia-smi's")
    check(abs(got["memory_used_bytes"] / 2**20 - float(used)) <= 2, f"memory used {used} MiB as nvidia-smi's")
    check(abs(got["power_watts"] - float(power)) <= 0.1 * float(power) + 5,
          f"power {got['power_watts']:.0f} W, nvidia-smi {power}")
    check(abs(got["temperature_celsius"] - float(heat)) <= 2, f"{got['temperature_celsius']:.0f} C, nvidia-smi {heat}")
    check(got["utilisation_ratio"] is not None and got["healthy"] == 1, "utilisation and health are there")
    return {"labels": labels, "metrics": got, "smi": cards}


def allocate(kubelet, ids):
    answer = kubelet.ask(f"allocate nvidia.com/gpu {' '.join(ids)}")
    if answer.startswith("error"):
        raise SystemExit(f"agent: Allocate: {answer}")
    answer = json.loads(answer)
    env = {k: v for k, v in answer["envs"].items() if k.startswith("CUDA_MPS")}
    for mount in answer["mounts"]:  # no container here: the host's own paths
        if mount["container"] == env.get("CUDA_MPS_PIPE_DIRECTORY"):
            env["CUDA_MPS_PIPE_DIRECTORY"] = mount["host"]
    return env


# Allocates until it may not, and says how far it came.
GREEDY = r"""
import ctypes, json, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *a):
    rc = getattr(cuda, name)(*a)
    if rc: sys.exit(f"{name}: {rc}")
dev, ctx = ctypes.c_int(), ctypes.c_void_p()
call("cuInit", 0); call("cuDeviceGet", ctypes.byref(dev), 0)
call("cuCtxCreate_v2", ctypes.byref(ctx), 0, dev)
piece, got, rc = 256 << 20, 0, 0
while rc == 0:
    p = ctypes.c_uint64()
    rc = cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(piece))
    got += piece if rc == 0 else 0
print(json.dumps({"bytes": got, "error": rc}))
"""


def mps(args, folder, kubelet, out):
    ids = kubelet.ask("list nvidia.com/gpu").split()
    envs = [allocate(kubelet, ids[:SHARES[0]]), allocate(kubelet, ids[SHARES[0]:sum(SHARES)])]
    print("tenants get", envs)
    sim = {"SLUICE_SIM": args.sim, "SLUICE_SIM_STATE": f"{folder}/root/state/machine",
           "LD_LIBRARY_PATH": f"{folder}/root/lib"} if args.sim else {}
    scratch = tempfile.mkdtemp(prefix="s-", dir=folder)
    world = World(args.sim, args.core, scratch)
    world.build_tenant()
    if args.sim:
        world.native_env = lambda: {**os.environ, **sim}
    os.mkdir(os.path.join(scratch, "bench"))
    bench = Bench(world, os.path.join(scratch, "bench"), 4, warm=0.5, slack=0)
    work = "gemm" if args.sim else "gemm170"
    solo = bench.solo(work)["rate"]
    starts = [(work, {"mode": "mps", "mps": types.SimpleNamespace(env={**e, **sim})}) for e in envs]
    rates = [r["rate"] for r in bench.once(starts)]
    got = [100 * r / solo for r in rates]
    asked = [100 * s / REPLICAS for s in SHARES]
    for g, a in zip(got, asked):
        check(abs(g - a) <= 5, f"MPS tenant with {a:.0f} % of the shares: {g:.1f} % of the rate alone")
    total = smi("memory.total")[0][0] if not args.sim else "143771"
    run = subprocess.run([sys.executable, "-c", GREEDY], env={**os.environ, **sim, **envs[0]},
                         capture_output=True, text=True, timeout=120, check=False)
    greedy = json.loads(run.stdout) if run.returncode == 0 else {"error": run.stderr.strip()}
    limit = float(total) * 2**20 * SHARES[0] / REPLICAS
    check(greedy.get("error") == 2 and 0.85 * limit <= greedy.get("bytes", 0) <= limit,
          f"the tenant of {SHARES[0]} shares gets {greedy.get('bytes', 0) / 2**30:.2f} of its "
          f"{limit / 2**30:.2f} GiB, then error {greedy.get('error')}")
    out["mps"] = {"env": envs[0].keys() and [dict(sorted(e.items())) for e in envs], "solo_per_s": solo,
                  "asked": asked, "got": got, "memory": {"limit_bytes": limit, **greedy}}
    for e in out["mps"]["env"]:
        e.pop("CUDA_MPS_PIPE_DIRECTORY", None)


def main():
    p = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    p.add_argument("--build", default=os.path.join(ROOT, "build"))
    p.add_argument("--core", help="the build whose `sluice` the bench uses (default: --build)")
    p.add_argument("--libs")
    p.add_argument("--sim")
    p.add_argument("--out")
    args = p.parse_args()
    args.core = args.core or args.build
    folder = tempfile.mkdtemp(prefix="sluice-agent-")
    os.mkdir(f"{folder}/kubelet")
    if args.sim:
        subprocess.run([f"{args.build}/sim/sluice-sim-ctl", "make-root", f"{folder}/root", args.sim], check=True)
    out, agent = {"time": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())}, None
    kubelet = Kubelet(args, f"{folder}/kubelet")
    try:
        agent = start_agent(args, folder, "version: v1\n")
        answer = kubelet.ask("wait nvidia.com/gpu 1 1 20")
        check(answer.startswith("ok"), "one GPU is registered with kubelet")
        if not args.sim:
            out["exclusive"] = against_smi(folder, kubelet)
        with open(f"{folder}/config.yaml", "w", encoding="ascii") as f:
            f.write("version: v1\nsharing: {mps: {failRequestsGreaterThanOne: false, resources: "
                    f"[{{name: nvidia.com/gpu, replicas: {REPLICAS}}}]}}}}\n")
        answer = kubelet.ask(f"wait nvidia.com/gpu {REPLICAS} {REPLICAS} 30")
        check(answer.startswith("ok"), f"the same agent, told of MPS: {REPLICAS} healthy shares ({answer})")
        if answer.startswith("ok"):
            mps(args, folder, kubelet, out)
            labels = read_labels(folder)
            check(labels.get("nvidia.com/gpu.sharing-strategy") == "mps" and
                  labels.get("nvidia.com/gpu.replicas") == str(REPLICAS), "labels say mps and how many")
    finally:
        with open(f"{folder}/config.yaml", "w", encoding="ascii") as f:
            f.write("version: v1\n")  # the daemon is ended by its own agent
        if agent:
            kubelet.ask("wait nvidia.com/gpu 1 1 20")
            time.sleep(1)
            agent.terminate()
            agent.wait(20)
        kubelet.process.stdin.close()
        kubelet.process.wait(10)
        with open(f"{folder}/agent.log", encoding="utf-8") as f:
            print(f.read())
        shutil.rmtree(folder, ignore_errors=True)
    out["failures"] = failures
    if args.out:
        with open(args.out, "w", encoding="ascii") as f:
            json.dump(out, f, indent=1)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
