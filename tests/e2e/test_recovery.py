# SPDX-License-Identifier: Apache-2.0
"""Kubelet and agent killed under running pods."""
import os
import signal
import sys
import time

import images
from world import check, same, test, wait

sys.path.insert(0, os.path.join(images.TOP, "tests", "support"))
from control import Control  # noqa: E402

GPU = "nvidia.com/gpu"
KUBELET_SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"


def begin(w):
    w.clean()
    w.apply("time-sliced-2")
    w.agent()
    w.wait_allocatable({GPU: 2})
    w.pod("steady", GPU)
    w.wait_running("steady")


def goes_on(w, before):
    """The pod is the same container as before, and still uses its GPU."""
    same("the pod's container", w.container("steady"), before)
    beats = wait("kubelet to show the pod's output", lambda: w.beats("steady"), 20, every=0.5)
    wait("the pod to go on using its GPU", lambda: w.beats("steady") > beats + 1, 20, every=0.5)


def next_registration(w, after):
    return wait("kubelet to have a registration",
                lambda: next((t for t, r in w.registrations() if t > after and r == GPU), None), 60, every=0.05)


def soon(control, seconds, words):
    """Within a second, or as much longer as anything took in the same moments."""
    check(seconds <= 1.0 / control.part, f"registered {seconds:.2f} s {words}, control {control.part:.2f}")


@test("recovery.kubelet_killed_and_back")
def kubelet(w):
    begin(w)
    before, agent = w.container("steady"), w.agent()
    w.cluster.end("kubelet", signal.SIGKILL)
    killed = time.time()
    with Control() as control:
        w.cluster.start_kubelet()
        moment = next_registration(w, killed)
    back = os.stat(KUBELET_SOCKET).st_ctime
    soon(control, moment - back, "after kubelet's socket was back")
    wait("the node to be ready", w.cluster.node_ready, 60)
    w.wait_allocatable({GPU: 2})
    goes_on(w, before)
    after = w.agent()
    same("the agent's pod and restarts",
         (after["metadata"]["uid"], after["status"]["containerStatuses"][0]["restartCount"]),
         (agent["metadata"]["uid"], agent["status"]["containerStatuses"][0]["restartCount"]))
    w.pod("later", GPU)
    w.wait_running("later")
    w.delete("later")
    return f"registered {max(0, moment - back) * 1000:.0f} ms after kubelet's socket was back"


@test("recovery.kubelet_killed_ten_times")
def kubelet_often(w):
    begin_if_needed(w)
    before, agent = w.container("steady"), w.agent()
    slowest = 0
    for _ in range(10):
        w.cluster.end("kubelet", signal.SIGKILL)
        killed = time.time()
        with Control() as control:
            w.cluster.start_kubelet()
            moment = next_registration(w, killed)
        took = moment - os.stat(KUBELET_SOCKET).st_ctime
        soon(control, took, "after kubelet's socket was back")
        slowest = max(slowest, took)
    wait("the node to be ready", w.cluster.node_ready, 60)
    w.wait_allocatable({GPU: 2})
    goes_on(w, before)
    same("the agent's restarts", w.agent()["status"]["containerStatuses"][0]["restartCount"],
         agent["status"]["containerStatuses"][0]["restartCount"])
    return f"the slowest registered {slowest * 1000:.0f} ms after kubelet's socket was back"


@test("recovery.agent_replaced")
def replaced(w):
    """A rolling update: another pod of the agent, the same pods on the GPU."""
    begin_if_needed(w)
    before, uid = w.container("steady"), w.agent()["metadata"]["uid"]
    w.cluster.kubectl("-n", "sluice-system", "rollout", "restart", "daemonset/sluiced")
    wait("another pod of the agent", lambda: w.agent()["metadata"]["uid"] != uid, 60)
    w.wait_allocatable({GPU: 2})
    goes_on(w, before)
    w.pod("later", GPU)
    w.wait_running("later")
    w.delete("later")


@test("recovery.agent_killed")
def agent(w):
    begin_if_needed(w)
    before, restarts = w.container("steady"), w.agent()["status"]["containerStatuses"][0]["restartCount"]
    killed = time.time()
    with Control() as control:
        w.kill_agent()
        moment = next_registration(w, killed)
    w.wait_allocatable({GPU: 2})
    goes_on(w, before)
    same("the agent's container", w.agent()["status"]["containerStatuses"][0]["restartCount"], restarts)
    w.pod("later", GPU)
    w.wait_running("later")
    w.delete("later")
    soon(control, moment - killed, "after it was killed")
    return f"registered {(moment - killed) * 1000:.0f} ms after it was killed"


@test("recovery.agents_container_killed")
def container(w):
    """Kubelet starts another; how soon it notices is kubelet's own affair."""
    begin_if_needed(w)
    before, uid = w.container("steady"), w.agent()["metadata"]["uid"]
    restarts = w.agent()["status"]["containerStatuses"][0]["restartCount"]
    killed = time.time()
    with Control() as control:
        w.kill_agent("sluiced-parent")
        moment = next_registration(w, killed)
    wait("the agent's container to be another", lambda: w.agent()["status"]["containerStatuses"][0]
         ["restartCount"] == restarts + 1)
    started = wait("the agent's new process", w.agent_pid)
    began = time.time() - age(started)
    w.wait_allocatable({GPU: 2})
    goes_on(w, before)
    same("the agent's pod", w.agent()["metadata"]["uid"], uid)
    w.pod("later", GPU)
    w.wait_running("later")
    w.delete("later")
    soon(control, moment - began, "after kubelet had started it again")
    return f"registered {(moment - killed):.2f} s after the kill, {(moment - began) * 1000:.0f} ms after its start"


def begin_if_needed(w):
    if w.api.get("/api/v1/namespaces/default/pods/steady") is None:
        begin(w)


def age(pid):
    """Seconds since a process started."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        ticks = int(f.read().rsplit(")", 1)[1].split()[19])
    with open("/proc/uptime", encoding="ascii") as f:
        return float(f.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


@test("recovery.a_card_fails_and_comes_back")
def card(w):
    begin_if_needed(w)
    w.sim("lost", "0")
    wait("its shares to be unhealthy", lambda: w.allocatable() == {}, 30)
    w.pod("unlucky", GPU)
    wait("a new pod to be found no place", lambda: w.waiting("unlucky"))
    w.sim("back", "0")
    w.wait_allocatable({GPU: 2})
    w.wait_running("unlucky")
    w.delete("unlucky", "steady")


@test("recovery.agent_killed_under_mps")
def agent_mps(w):
    """Its container lives on, and with it the daemon: clients notice nothing, the next agent adopts it."""
    w.clean()
    w.apply("mps-2")
    w.agent()
    w.wait_allocatable({GPU: 2})
    w.pod("client", GPU)
    w.wait_running("client")
    killed = time.time()
    w.kill_agent()
    next_registration(w, killed)
    w.wait_allocatable({GPU: 2})
    beats = w.beats("client")
    wait("the client to go on", lambda: w.beats("client") > beats + 1, 20, every=0.5)
    w.delete("client")
    w.pod("next", GPU)
    w.wait_running("next")
    wait("the next pod to use its GPU", lambda: w.beats("next") > 1, 20, every=0.5)
    w.delete("next")
