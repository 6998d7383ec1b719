# SPDX-License-Identifier: Apache-2.0
"""Case 14, the device plugin's days, beside recovery.kubelet_killed_and_back; and a reboot with claims."""
import os
import shutil
import signal
import subprocess
import time

import images
from dra_world import (DAEMONSET, begin, check, claim_of, claims_gone, devices, fills, nothing_left, pod, ready, same,
                       share, tenant_of, wait)
from world import PODS, test

GPU = "nvidia.com/gpu"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
# What a machine loses when it is started again.
VOLATILE = ("/run/containerd", "/run/cdi", "/run/sluice", "/run/nvidia", "/run/runc", "/run/netns")


def processes(word):
    """Of this machine, which is a PID namespace of its own."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if word in f.read():
                    yield int(pid)
        except OSError:
            continue


def below(*paths):
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as f:
        found = [line.split()[1] for line in f]
    return [m for m in reversed(found) if any(m.startswith(p + "/") for p in paths)]


def reboot(w):
    """Power off and on: no process of a pod is left, nor what was in memory. The control plane is elsewhere."""
    w.cluster.end("kubelet", signal.SIGKILL)
    w.cluster.end("containerd", signal.SIGKILL)
    # Of each pod the cgroup is known by kubelet's root; its processes and their shims end with the power.
    root = os.path.basename(w.cluster.work)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cgroup", encoding="ascii") as f:
                if f"/{root}/" in f.read():
                    os.kill(int(pid), signal.SIGKILL)
        except OSError:
            continue
    for pid in processes(b"containerd-shim-runc-v2"):
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    for path in below(*VOLATILE, "/var/lib/kubelet/pods"):
        subprocess.run(["umount", "-l", path], check=False, capture_output=True)
    for folder in VOLATILE:
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)
    check(w.agent_pid() is None, "the agent has survived a reboot")
    w.cluster.start_containerd()
    w.cluster.start_kubelet()
    wait("kubelet", lambda: w.cluster.alive("kubelet") and w.cluster.kubelet_answers(), 60)
    wait("the node to be ready", w.cluster.node_ready, 120)
    # The API server's word on the agent is from before; another container is not.
    wait("the agent's process", w.agent_pid, 60)


@test("dra.reboot_makes_prepared_claims_anew")
def claims(w):
    begin(w)
    pod(w, "keeper", share(w), restartPolicy="Always", command=("gpus", "hold"))
    w.wait_running("keeper")
    uid, tenant = w.get_pod("keeper")["metadata"]["uid"], tenant_of(w, "keeper")["name"]
    claim = claim_of(w, "keeper")["metadata"]["uid"]
    reboot(w)
    w.agent()
    wait("slices of the driver", lambda: devices(w), 60)
    wait(lambda: w.why("keeper"), lambda: w.container("keeper")[1] >= 1 and ready(w.get_pod("keeper")), 120, every=0.5)
    same("pod and claim", (w.get_pod("keeper")["metadata"]["uid"], claim_of(w, "keeper")["metadata"]["uid"]),
         (uid, claim))
    same("its tenant", tenant_of(w, "keeper")["name"], tenant)
    fills(w, "keeper", 10240, context_mib=1002)  # two contexts, and the 2 MiB that the MiB of `hold` takes
    w.delete("keeper")
    claims_gone(w)
    nothing_left(w)


def deployment(w, name):
    container = {"name": "main", "image": images.TEST, "imagePullPolicy": "Never", "command": ["gpus", "hold"],
                 "resources": {"limits": {GPU: 1}}}
    w.api.create(DEPLOYMENTS, {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}}})


def pods_of(w, name):
    return [p for p in w.api.get(f"{PODS}?labelSelector=app%3D{name}")["items"]
            if not p["metadata"].get("deletionTimestamp")]


def anew(p, first):
    """Does it run since the reboot?"""
    status = p["status"].get("containerStatuses", [{}])[0]
    return ready(p) and "running" in status.get("state", {}) and (
        p["metadata"]["uid"] != first or status["restartCount"] > 0)


@test("dra.14_device_plugin_registers_while_the_old_one_serves")
def overlap(w):
    w.clean()
    w.apply("time-sliced-2")
    w.agent()
    w.wait_allocatable({GPU: 2})
    w.pod("steady", GPU)
    w.wait_running("steady")
    before = w.container("steady")
    w.api.patch(DAEMONSET, {"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                                     "template": {"metadata": {"annotations": {"upgraded": str(time.time())}}}}})
    old = w.agent_pid()
    w.agent()
    wait("the old agent to be gone", lambda: w.agent_pid() not in (None, old), 30)
    w.wait_allocatable({GPU: 2})
    # Before 1.37 the end of the old one's stream can take the new one's registration with it.
    lost = 0
    end = time.monotonic() + 15
    while time.monotonic() < end:
        lost += w.allocatable() != {GPU: 2}
        time.sleep(0.2)
    w.wait_allocatable({GPU: 2})
    w.pod("later", GPU)
    w.wait_running("later")
    same("the container that ran meanwhile", w.container("steady"), before)
    w.delete("steady", "later")
    w.api.patch(DAEMONSET, {"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}})
    return f"{lost} of 75 looks saw fewer devices"


@test("dra.14_device_plugin_after_a_reboot")
def order(w):
    w.clean()
    w.apply("time-sliced-2")
    w.agent()
    w.wait_allocatable({GPU: 2})
    deployment(w, "app")
    try:
        wait("the app to run", lambda: any(ready(p) for p in pods_of(w, "app")), 60)
        first = pods_of(w, "app")[0]["metadata"]["uid"]
        reboot(w)
        w.agent()
        w.wait_allocatable({GPU: 2})
        wait(lambda: "the app to run again: " + "; ".join(w.why(p["metadata"]["name"]) for p in pods_of(w, "app")),
             lambda: [p for p in pods_of(w, "app") if anew(p, first)], 120, every=0.5)
        pods = pods_of(w, "app")
        refused = [p["status"].get("reason") for p in pods if p["status"].get("phase") == "Failed"]
        alive = [p for p in pods if anew(p, first)][0]
        view = w.sees(alive["metadata"]["name"])
        same("CUDA's devices", len(view["cuda"]), 1)
        same("pod", "the same" if alive["metadata"]["uid"] == first else "another",
             "another" if refused else "the same")
    finally:
        w.api.delete(f"{DEPLOYMENTS}/app")
        w.clean()
    return f"admitted before the plugin: {refused}, replaced" if refused else "the same pod, started again"
