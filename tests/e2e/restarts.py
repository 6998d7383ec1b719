# SPDX-License-Identifier: Apache-2.0
"""A pod that takes and gives memory below its limit while arbiters end and agents are replaced: nothing is refused."""
import json
import os
import re
import signal
import subprocess

import images
from world import PODS, check, same, wait

MIB = 1 << 20
LIMIT_MIB = 60 * 1024
# With the piece it stays far below the limit; counted twice, what is held alone is above it.
HELD_MIB = 40 * 1024
PIECE_MIB = 5 * 1024
# It rests a millisecond after each round: more than the second in which a new arbiter waits for its tenants' processes.
ROUNDS = 1200
# Its parent is a process of the tenant too, and comes back to each arbiter by itself: whoever is back first has a child, or a
# parent, that is not back yet.
COMMAND = ("sh", "-c", f"gpus churn {HELD_MIB} {PIECE_MIB} & exec gpus hold")


def status():
    """`sluice status --json` on the node; while there is no arbiter, it says that."""
    done = subprocess.run([os.path.join(images.BUILD, "bin", "sluice"), "status", "--dir", "/run/sluice", "--json"],
                          capture_output=True, text=True, check=False)
    check(done.returncode == 0, f"sluice status: {done.stderr.strip()}")
    return json.loads(done.stdout)


def counts(w, pod):
    """Rounds granted, refused, failed, by the pod's last word."""
    _, text = w.api.call("GET", f"{PODS}/{pod}/log?tailLines=30", plain=True)
    found = re.findall(r"^churn (\d+) (\d+) (\d+)$", text, re.MULTILINE) if isinstance(text, str) else []
    return tuple(map(int, found[-1])) if found else None


def none_refused(w, pod):
    now = wait(lambda: f"the output of {w.why(pod)}", lambda: counts(w, pod), 30)
    check(now[1:] == (0, 0), f"{now[0]} granted, {now[1]} refused, {now[2]} failed")
    return now[0]


def another_arbiter(pod, old):
    """The tenant's processes are back at an arbiter that is not the old one; who it is."""
    def back():
        now = status()
        mine = [t for t in now["tenants"] if t["about"].get("pod") == pod]
        return (now["arbiter_pid"] not in (None, old) and len(mine) == 1 and mine[0]["processes"] == 2 and
                now["arbiter_pid"])
    return wait(lambda: f"both processes of {pod} at another arbiter than {old}: {status()}", back, 60)


def goes_on(w, pod):
    """More than a second of rounds: none is refused, and what status shows is so."""
    until = none_refused(w, pod) + ROUNDS

    def enough():
        now = status()
        for tenant in now["tenants"]:
            gpu = tenant["gpus"][0]
            check(gpu["memory_used_bytes"] + gpu["memory_overhead_bytes"] <= LIMIT_MIB * MIB, f"status shows {gpu}")
            same("refusals by the ledger", tenant["oom_count"], 0)
        same("findings of the audit", now["audit"], [])
        return none_refused(w, pod) >= until
    wait(lambda: f"{ROUNDS} rounds, {until} in all: {counts(w, pod)}", enough, 60)


def refuse_nothing(w, pod, agents, kills):
    """Each of so many agents has so many of its arbiters ended, by SIGKILL and SIGTERM in turn, and is replaced. A new agent
    starts its first arbiters again at once; one whose arbiters go on dying waits longer each time."""
    container = w.container(pod)
    goes_on(w, pod)
    ended = {signal.SIGKILL: 0, signal.SIGTERM: 0}
    for _ in range(agents):
        for _ in range(kills):
            number = min(ended, key=ended.get)
            arbiter = status()["arbiter_pid"]
            os.kill(arbiter, number)
            another_arbiter(pod, arbiter)
            goes_on(w, pod)
            ended[number] += 1
        uid, arbiter = w.agent()["metadata"]["uid"], status()["arbiter_pid"]
        w.cluster.kubectl("-n", "sluice-system", "rollout", "restart", "daemonset/sluiced")
        wait("another pod of the agent", lambda u=uid: w.agent()["metadata"]["uid"] != u, 60)
        another_arbiter(pod, arbiter)
        goes_on(w, pod)
    same("the pod's container", w.container(pod), container)
    return (f"{ended[signal.SIGKILL]} SIGKILL, {ended[signal.SIGTERM]} SIGTERM, {agents} agents replaced: "
            f"{none_refused(w, pod)} granted, 0 refused")
