#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
A whole sluiced on a node of 8 simulated GPUs, each shared 32 times: how long from its start until kubelet has the
list, what memory it holds, what it costs while nothing happens. Usage: agent_idle.py BUILD [JSON-FILE]
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

GPUS, REPLICAS = 8, 32
BARS = {"registered_ms": 300, "rss_mb": 15, "cpu_percent": 0.1}
IDLE_S = float(os.environ.get("IDLE_SECONDS", "30"))


def status_kb(pid, key):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(rf"^{key}:\s+(\d+)", f.read(), re.M).group(1))


def cpu_ns(pid):
    """Of all its threads. Exact where the kernel counts so; else in ticks of 10 ms."""
    total = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as f:
                total += int(f.read().split()[0])
    except FileNotFoundError:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            user, system = f.read().rsplit(")", 1)[1].split()[11:13]
        total = (int(user) + int(system)) * 1000000000 // os.sysconf("SC_CLK_TCK")
    return total


class Kubelet:
    def __init__(self, build, folder):
        self.process = subprocess.Popen([f"{build}/tests/agent/kubelet_tool", folder], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


def prepare(build, folder, env):
    """The command that starts an agent here."""
    os.mkdir(f"{folder}/kubelet")
    subprocess.run([f"{build}/sim/sluice-sim-ctl", "make-root", f"{folder}/root", f"h200x{GPUS}"],
                   check=True, env=env)
    with open(f"{folder}/config.yaml", "w", encoding="ascii") as f:
        f.write("version: v1\nflags: {plugin: {deviceListStrategy: cdi-cri}}\nsharing: {timeSlicing: "
                f"{{resources: [{{name: nvidia.com/gpu, replicas: {REPLICAS}}}]}}}}\n")
    return [f"{build}/bin/sluiced", "--no-api", f"--config-file={folder}/config.yaml",
            f"--driver-root={folder}/root", f"--container-driver-root={folder}/root",
            f"--kubelet-socket={folder}/kubelet/kubelet.sock", f"--cdi-dir={folder}/cdi",
            f"--pod-resources-socket={folder}/podres.sock",
            f"--state-dir={folder}/state", f"--arbiter-dir={folder}/arbiter",
            "--metrics-address=127.0.0.1:0", "--log-level=warn"]


def start(kubelet, command, env):
    """An agent that kubelet has the whole list of, and how long that took."""
    began = time.monotonic_ns()
    agent = subprocess.Popen(command, env=env)
    answer = kubelet.ask(f"wait nvidia.com/gpu {GPUS * REPLICAS} {GPUS * REPLICAS} 10").split()
    if not answer or answer[0] != "ok":
        end(agent)
        raise SystemExit(f"agent_idle: never registered: {answer}")
    return agent, (int(answer[1]) - began) / 1e6


def end(agent):
    agent.terminate()
    try:
        agent.wait(timeout=10)
    except subprocess.TimeoutExpired:
        agent.kill()
        agent.wait()


def idle(agent):
    time.sleep(2)
    before, at = cpu_ns(agent.pid), time.monotonic()
    time.sleep(IDLE_S)
    if agent.poll() is not None:
        raise SystemExit(f"agent_idle: it ended by itself, with {agent.returncode}")
    share = (cpu_ns(agent.pid) - before) / 1e9 / (time.monotonic() - at)
    return share, status_kb(agent.pid, "VmRSS") / 1024


def measure(build, folder):
    # Of the machine's own variables those that would change what is measured stay out.
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("SLUICE_", "NVIDIA_", "CUDA_", "LD_LIBRARY_PATH"))}
    command = prepare(build, folder, env)
    kubelet = Kubelet(build, f"{folder}/kubelet")
    starts = []
    try:
        kubelet.ask("counts nvidia.com/gpu")  # it listens
        for _ in range(4):
            agent, took = start(kubelet, command, env)
            starts.append(took)
            end(agent)
            kubelet.ask("stop")  # and forgets what it knew
            kubelet.ask("start")
        agent, took = start(kubelet, command, env)
        starts.append(took)
        try:
            cpu, rss = idle(agent)
        finally:
            end(agent)
    finally:
        kubelet.process.stdin.close()
        kubelet.process.wait()
    return {"gpus": GPUS, "replicas": REPLICAS, "registered_ms": round(sorted(starts)[2], 1),
            "registered_ms_all": [round(s, 1) for s in starts], "rss_mb": round(rss, 1),
            "cpu_percent": round(100 * cpu, 4), "idle_s": IDLE_S}


def main():
    build = os.path.abspath(sys.argv[1])
    folder = tempfile.mkdtemp(prefix="sluice-bench-")
    try:
        got = measure(build, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"sluiced, {GPUS} simulated GPUs x {REPLICAS} replicas")
    bad = 0
    for key, bar in BARS.items():
        bad += got[key] > bar
        print(f"  {key:15} {got[key]:8.3f}  bar {bar:g}  {'ok' if got[key] <= bar else 'FAIL'}")
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="ascii") as f:
            json.dump(got, f, indent=1)
    return 1 if bad else 0


sys.exit(main())
