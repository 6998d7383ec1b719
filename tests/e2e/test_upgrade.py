# SPDX-License-Identifier: Apache-2.0
"""Upgrades under running pods (docs/upgrade.md): from the last version, built from the history, to this one and back. No
allocation is refused, no share is lost, and the metrics have no gap longer than a scrape."""
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request

import images
import restarts
from test_dialects import CONTROLLERS, admits, apply as apply_objects, controllers, controller_words, deploy_folder, held_to, \
    leader, pod as dialect_pod, scheduler_config
from test_fractions import GPU, IDLE, promise, tenants
from world import AGENTS, check, same, test, wait

sys.path.insert(0, os.path.join(images.TOP, "tests", "support"))
import old_version  # noqa: E402
from control import Control  # noqa: E402

LAST = "0.1.0"
SCRAPE_S = 15  # deploy/monitoring: the interval of the PodMonitors
OLD = [{"name": "localhost/sluice", "newTag": "old"}]
MIB = 1 << 20


def have_old(w):
    """The image of the last version on the node; False where this checkout has no history to build it from."""
    if not getattr(w, "old_image", False):
        try:
            w.cluster.import_image(os.path.join(old_version.old(images.BUILD, LAST, image=True), "sluice-image.tar"))
        except old_version.NoHistory as e:
            w.no_old = f"NOT RUN: {e}"
            return False
        w.old_image = True
    return True


class Scrapes:
    """Reads the agent's metrics each second, as Prometheus would; afterwards: the longest time without the pod's limit."""

    def __init__(self, w, pod, limit_mib):
        self.w, self.limit = w, limit_mib * MIB
        self.line = re.compile(r'^sluice_tenant_memory_limit_bytes\{[^}]*pod="%s"[^}]*\} (\S+)$' % pod, re.M)
        self.addresses = []
        self.seen, self.wrong, self.ending = [], [], threading.Event()
        self.thread = threading.Thread(target=self.go_on, daemon=True)
        self.control = Control()

    def once(self):
        """Each pod of the agent that has an address; while the API server is away, those that were there last."""
        status, answer = self.w.api.call("GET", AGENTS)
        if status == 200:
            self.addresses = [p["status"]["podIP"] for p in answer["items"] if p["status"].get("podIP")]
        for ip in self.addresses:
            try:
                with urllib.request.urlopen(f"http://{ip}:9400/metrics", timeout=2) as response:
                    found = self.line.search(response.read().decode())
            except OSError:
                continue
            if found:
                self.seen.append(time.monotonic())
                if float(found.group(1)) != self.limit:
                    self.wrong.append(found.group(0))

    def go_on(self):
        while not self.ending.wait(1):
            self.once()

    def __enter__(self):
        self.once()
        check(self.seen, "the metrics do not have the pod's limit")
        self.control.__enter__()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.thread.join()
        self.control.__exit__(None, None, None)
        self.once()

    def gap(self):
        same("limits that are not the pod's", self.wrong, [])
        longest = max(b - a for a, b in zip(self.seen, self.seen[1:]))
        check(longest < SCRAPE_S / self.control.part,
              f"the metrics have a gap of {longest:.1f} s, a scrape is {SCRAPE_S} s, control {self.control.part:.2f}")
        return longest


def replace_agent(w, pods, **more):
    """Another agent by `kubectl apply -k`; a pod that is created meanwhile gets its share, too."""
    uid, arbiter = w.agent()["metadata"]["uid"], restarts.status()["arbiter_pid"]
    w.apply("fractional", **more)
    name = f"while{pods}"
    w.pod(name, GPU, IDLE, annotations=promise(w, main=(4096, 5)))
    wait("another pod of the agent", lambda: w.agent()["metadata"]["uid"] != uid, 90)
    restarts.another_arbiter("churn", arbiter)
    w.wait_running(name)
    same(f"memory in {name}", w.sees(name)["cuda"][0]["mib"], 4096)
    return name


def protocols(pod):
    """Of the processes of a pod, by this version's `sluice status`; None: the arbiter does not tell."""
    name = next(t["name"] for t in restarts.status()["tenants"] if t["about"].get("pod") == pod)
    done = subprocess.run([os.path.join(images.BUILD, "bin", "sluice"), "status", "--dir", "/run/sluice", "--json", name],
                          capture_output=True, text=True, check=True)
    return {p["protocol"] for p in json.loads(done.stdout)["processes"]}


@test("upgrade.agent_forward_back_and_forward")
def agent(w):
    if not have_old(w):
        return w.no_old
    w.clean()
    w.apply("fractional", images=OLD)
    w.agent()
    w.wait_allocatable({GPU: 10})
    w.pod("churn", GPU, restarts.COMMAND, annotations=promise(w, main=(restarts.LIMIT_MIB, 50)))
    w.wait_running("churn")
    container = w.container("churn")
    restarts.goes_on(w, "churn")
    made = []
    with Scrapes(w, "churn", restarts.LIMIT_MIB) as scrapes:
        # Forward: the libsluice of the pod is older than the arbiter.
        made.append(replace_agent(w, 1))
        same("protocols of the old pod's processes", protocols("churn"), {1})
        restarts.goes_on(w, "churn")
        w.pod("new", GPU, ("gpus", "hold"), annotations=promise(w, main=(8192, 10)))
        w.wait_running("new")
        new = w.container("new")
        wait(lambda: f"the new pod's processes to speak protocol 3: {protocols('new')}", lambda: protocols("new") == {3}, 30)
        # A new process in the old container, under the new agent.
        same("memory in the old pod", w.sees("churn")["cuda"][0]["mib"], restarts.LIMIT_MIB)
        # Back: the libsluice of the new pod is newer than the arbiter.
        made.append(replace_agent(w, 2, images=OLD))
        same("protocols under the old agent", protocols("new"), {None})
        restarts.goes_on(w, "churn")
        same("memory in the new pod", w.sees("new")["cuda"][0]["mib"], 8192)
        # And forward again.
        made.append(replace_agent(w, 3))
        restarts.goes_on(w, "churn")
        w.wait_allocatable({GPU: 10})
    same("the old pod's container", w.container("churn"), container)
    same("the new pod's container", w.container("new"), new)
    granted = restarts.none_refused(w, "churn")
    gap = scrapes.gap()
    w.delete("churn", "new", *made)
    wait("tenants to be gone", lambda: not tenants(), 60)
    return f"{LAST} to this version, back, forward: {granted} allocations granted, 0 refused; longest gap of the metrics {gap:.1f} s"


def apply_controller(w, **more):
    folder = os.path.join(w.cluster.work, "controller-upgrade")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "kustomization.yaml"), "w", encoding="utf-8") as f:
        json.dump({"resources": [os.path.relpath(deploy_folder("extender"), folder)], **more}, f)
    w.cluster.kubectl("apply", "-k", folder)
    tag = more["images"][0]["newTag"] if more else None

    def replaced():
        pods = controllers(w)
        return pods and all(p["spec"]["containers"][0]["image"].endswith(":old") == (tag == "old") for p in pods)
    wait(lambda: "the controller's replicas: " + controller_words(w), replaced, 120, every=0.3)
    wait(lambda: "pods to go through the webhook: " + controller_words(w), lambda: admits(w), 60, every=0.5)
    wait(lambda: "a leader: " + controller_words(w), lambda: leader(w), 60, every=0.3)
    # There is no kube-proxy here: kube-scheduler has the leader's address instead of the Service's.
    w.cluster.start_scheduler(scheduler_config(w))
    return folder


@test("upgrade.controller_forward_and_back")
def controller(w):
    if not have_old(w):
        return w.no_old
    w.clean()
    w.use("fractional")
    w.wait_allocatable({GPU: 10})
    ask = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}
    names = []
    for images_of in ({"images": OLD}, {}, {"images": OLD}, {}):
        folder = apply_controller(w, **images_of)
        name = f"hami{len(names)}"
        apply_objects(w, dialect_pod(name, ask))
        w.wait_running(name)
        names.append(name)
        if len(names) > 2:  # 30 % of the time each
            w.delete(names[len(names) - 3])
        held_to(w, name, 3000, (30, 30)) if len(names) == 1 else same(f"memory in {name}", w.sees(name)["cuda"][0]["mib"], 3000)
    wait(lambda: f"the tenants of {names[2:]} alone: {restarts.status()['tenants']}",
         lambda: sorted(t["about"].get("pod") for t in restarts.status()["tenants"]) == names[2:], 30)
    w.cluster.kubectl("delete", "-k", folder, "--wait=true")
    w.cluster.start_scheduler()
    wait("the controller to be gone", lambda: not w.api.get(CONTROLLERS)["items"], 60)
    w.delete(*names[2:])
    return f"{len(names)} pods of HAMi placed by {LAST} and this version in turn"


@test("upgrade.kubernetes_under_pods")
def kubernetes(w):
    """All of its programs ended and started again, as an upgrade of a node with its control plane does. (That they are of
    another version each time is not shown here: there are programs of one.)"""
    w.clean()
    w.use("fractional")
    w.wait_allocatable({GPU: 10})
    w.pod("churn", GPU, restarts.COMMAND, annotations=promise(w, main=(restarts.LIMIT_MIB, 50)))
    w.wait_running("churn")
    container, arbiter = w.container("churn"), restarts.status()["arbiter_pid"]
    restarts.goes_on(w, "churn")
    with Scrapes(w, "churn", restarts.LIMIT_MIB) as scrapes:
        w.cluster.restart_control_plane()
        w.cluster.end("kubelet")
        w.cluster.start_kubelet()
        wait("the node to be ready", w.cluster.node_ready, 90)
        w.wait_allocatable({GPU: 10})
        w.pod("later", GPU, IDLE, annotations=promise(w, main=(4096, 5)))
        w.wait_running("later")
        restarts.goes_on(w, "churn")
    same("the arbiter", restarts.status()["arbiter_pid"], arbiter)
    same("the pod's container", w.container("churn"), container)
    gap = scrapes.gap()
    granted = restarts.none_refused(w, "churn")
    w.delete("churn", "later")
    return f"API server, scheduler, controller manager and kubelet replaced: {granted} granted, 0 refused; gap {gap:.1f} s"
