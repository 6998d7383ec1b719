# SPDX-License-Identifier: Apache-2.0
"""What a DRA driver owes Kubernetes: the acceptance cases, by number. Case 14 is the device plugin's."""
import os
import signal
import subprocess
import threading
import time

import images
from dra_world import (AGENTS, CLAIMS, DAEMONSET, DRIVER, FAULT_FILE, PODS, agent_env, agent_gone, agent_log, begin,
                       check, checkpoint, claim_of, claims_gone, container, deploy, devices, environment, faults_image,
                       fills, nothing_left, pod, ready, request, results, same, share, slices, template, tenant_of,
                       wait)
from world import NODE, test

PREPARE = ("planned", "mig", "lease", "leased", "cdi", "done")
UNPREPARE = ("begun", "cdi", "lease", "mig", "done")


def restart_kubelet(w):
    w.cluster.end("kubelet", signal.SIGKILL)
    w.cluster.start_kubelet()
    wait("the node to be ready", w.cluster.node_ready, 60)


@test("dra.01_registers_and_slices_return_after_a_kubelet_restart")
def registers(w):
    begin(w)
    before, names = {s["metadata"]["uid"] for s in slices(w)}, sorted(d["name"] for d in devices(w))
    check({"gpu-0", "gpu-0-share"} <= set(names), f"devices {names}")
    pod(w, "steady", share(w), command=("gpus", "hold"))
    w.wait_running("steady")
    untouched = w.container("steady")
    restart_kubelet(w)
    start = time.monotonic()
    # Kubelet removes the slices of a driver that it does not know yet.
    wait("kubelet to have taken the slices away", lambda: not before & {s["metadata"]["uid"] for s in slices(w)}, 60)
    wait("all slices to be back", lambda: sorted(d["name"] for d in devices(w)) == names, 30)
    took = time.monotonic() - start
    pod(w, "later", share(w))
    w.wait_running("later")
    fills(w, "later", 10240)
    same("the container that ran meanwhile", w.container("steady"), untouched)
    w.delete("steady", "later")
    return f"{len(names)} devices back {took:.1f} s after the node was ready"


@test("dra.02_container_sees_device_mounts_and_limits_of_its_claim")
def sees(w):
    begin(w)
    pod(w, "one", share(w, "10Gi", "30"))
    w.wait_running("one")
    result = results(claim_of(w, "one"))[0]
    same("what was allocated", (result["driver"], result["device"], result["consumedCapacity"]),
         (DRIVER, "gpu-0-share", {"memory": "10Gi", "cores": "30"}))
    mounts = {line.split()[1]: line.split()[3] for line in w.exec("one", "cat", "/proc/mounts").splitlines()}
    for path in ("/dev/nvidia0", "/dev/nvidiactl", "/etc/ld.so.preload", "/run/sluice"):
        check(path in mounts, f"{path} is not mounted: {sorted(mounts)}")
    for path in ("/etc/ld.so.preload", "/run/sluice"):
        check(mounts[path].startswith("ro"), f"{path} is mounted {mounts[path]}")
    env = environment(w, "one")
    same("NVIDIA_VISIBLE_DEVICES", env.get("NVIDIA_VISIBLE_DEVICES"), "void")
    check(not [k for k in env if k.startswith("SLUICE") and "SIM" not in k], f"limits are in the environment: {env}")
    filled = fills(w, "one", 10240)
    tenant = tenant_of(w, "one")
    same("the arbiter's lease", (tenant["gpus"][0]["memory_limit_bytes"], tenant["cores_request_percent"],
                                 tenant["cores_limit_percent"]), (10 << 30, 30, 30))
    w.delete("one")
    claims_gone(w)
    nothing_left(w)
    return f"{filled} MiB and a context's 500 are 10Gi"


@test("dra.03_fourth_share_waits_until_one_is_freed")
def fourth(w):
    begin(w)
    for name in ("a", "b", "c"):
        pod(w, name, share(w))
    w.wait_running("a", "b", "c")
    pod(w, "d", share(w))
    wait("the fourth share of 30 to be found no place", lambda: w.waiting("d"))
    time.sleep(2)
    check(w.waiting("d"), w.why("d"))
    w.delete("b")
    w.wait_running("d")
    fills(w, "d", 10240)
    w.delete("a", "c", "d")
    claims_gone(w)


@test("dra.04_whole_gpu_by_extended_resource_name")
def whole(w):
    begin(w)
    w.pod("whole", "nvidia.com/gpu", command=("sleep", "1000"))
    w.wait_running("whole")
    made = w.get_pod("whole")["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    same("what the scheduler's claim got", [r["device"] for r in results(w.api.get(f"{CLAIMS}/{made}"))],
         [f"gpu-{len(w.cards) - 1}"])
    view = w.sees("whole", "fill")
    same("its memory", view["cuda"][0]["mib"], 143771)
    check(view["filled_mib"] > 140000, f"filled {view['filled_mib']} MiB")
    same("/etc/ld.so.preload in a pod that shares with nobody",
         w.cluster.kubectl("exec", "whole", "--", "cat", "/etc/ld.so.preload", check=False).stdout, "")
    w.delete("whole")
    claims_gone(w)


@test("dra.05_claims_of_two_requests_and_two_containers")
def several(w):
    begin(w)
    two = (request("encoder", memory="4Gi", cores="10"), request("decoder", memory="6Gi", cores="20"))
    template(w, "two", *two)
    w.pod("apart", resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "two"}],
          containers=[container("enc", {"name": "gpus", "request": "encoder"}),
                      container("dec", {"name": "gpus", "request": "decoder"})])
    w.pod("together", resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "two"}],
          containers=[container("both", {"name": "gpus"})])
    template(w, "one", request(memory="5Gi", cores="10"))
    w.pod("shared", resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "one"}],
          containers=[container("left", {"name": "gpus"}), container("right", {"name": "gpus"})])
    w.wait_running("apart", "together", "shared")
    for name, who, mib in (("apart", "enc", 4096), ("apart", "dec", 6144), ("together", "both", 10240),
                           ("shared", "left", 5120), ("shared", "right", 5120)):
        fills(w, name, mib, where=("-c", who))
    w.delete("apart", "together", "shared")
    claims_gone(w)
    nothing_left(w)


def killed_at(w, point, act):
    """Arms the point, acts, and waits for the death and for the agent that comes after it."""
    old = wait("the agent", w.agent_pid)
    with open(FAULT_FILE, "w", encoding="ascii") as f:
        f.write(point)
    act()
    wait(f"the agent to die at {point}", lambda: not os.path.exists(FAULT_FILE), 60, every=0.02)
    left = checkpoint()
    wait("its successor", lambda: w.agent_pid() not in (None, old), 30)
    return left


@test("dra.06_killed_between_checkpoint_and_reply_then_retried")
def killed(w):
    tag = faults_image(w)
    begin(w, "dra-faults", tag=tag, changes=agent_env(SLUICE_FAULT="@" + FAULT_FILE))
    name = share(w)
    left = killed_at(w, "dra.prepare.done", lambda: pod(w, "retried", name))
    uid = claim_of(w, "retried")["metadata"]["uid"]
    same("the checkpoint when it died", left, {uid: 1})
    w.wait_running("retried")
    fills(w, "retried", 10240)
    same("the checkpoint after the retry", checkpoint(), {uid: 1})
    w.delete("retried")
    claims_gone(w)
    nothing_left(w)


@test("dra.06_killed_at_every_step_of_prepare_and_unprepare")
def every_step(w):
    begin(w, "dra-faults", tag=faults_image(w), changes=agent_env(SLUICE_FAULT="@" + FAULT_FILE))
    template(w, "mig-1g", request(device_class="mig.gpu.sluice.io",
                                  expression='device.attributes["gpu.sluice.io"].profile == "1g.18gb"'))
    seen = 0
    for kind, name in (("share", share(w)), ("MIG", "mig-1g")):
        for step in PREPARE:
            if kind == "MIG" and step == "lease":
                continue  # it has none
            killed_at(w, "dra.prepare." + step, lambda n=name: pod(w, "stepped", n))
            w.wait_running("stepped")
            if kind == "share":
                fills(w, "stepped", 10240)
            else:
                same("CUDA's devices", [d["name"] for d in w.sees("stepped")["cuda"]], ["NVIDIA H200 MIG 1g.18gb"])
            w.delete("stepped")
            claims_gone(w)
            nothing_left(w)
            seen += 1
        for step in UNPREPARE:
            if kind == "MIG" and step == "lease":
                continue
            pod(w, "stepped", name)
            w.wait_running("stepped")
            killed_at(w, "dra.unprepare." + step, lambda: w.api.delete(PODS + "/stepped"))
            wait("the pod to be gone", lambda: w.api.get(PODS + "/stepped") is None, 60)
            claims_gone(w)
            nothing_left(w)
            seen += 1
        check("1g.18gb" not in w.sim("list"), "a MIG instance was left")
    return f"{seen} deaths"


@test("dra.07_pod_deleted_without_a_driver_waits_for_it")
def down(w):
    begin(w)
    pod(w, "held", share(w))
    w.wait_running("held")
    agent_gone(w)
    w.api.delete(PODS + "/held")
    wait("the pod to be terminating", lambda: w.get_pod("held")["metadata"].get("deletionTimestamp"))
    time.sleep(8)
    check(w.api.get(PODS + "/held"), "the pod is gone, and nobody has unprepared its claim")
    deploy(w, "dra")
    w.agent()
    wait("the pod to be gone", lambda: w.api.get(PODS + "/held") is None, 90)
    claims_gone(w)
    nothing_left(w)


@test("dra.08_unprepare_after_the_claim_is_deleted")
def orphan(w):
    begin(w)
    pod(w, "orphan", share(w))
    w.wait_running("orphan")
    claim = claim_of(w, "orphan")["metadata"]
    agent_gone(w)
    w.api.delete(PODS + "/orphan")
    w.api.patch(f"{CLAIMS}/{claim['name']}", {"metadata": {"finalizers": None}})
    w.api.delete(f"{CLAIMS}/{claim['name']}")
    wait("the claim to be gone", lambda: w.api.get(f"{CLAIMS}/{claim['name']}") is None)
    check(w.api.get(PODS + "/orphan"), "the pod is gone before its claim was unprepared")
    check(claim["uid"] in checkpoint(), "the driver does not have the claim")
    deploy(w, "dra")
    w.agent()
    wait("the pod to be gone", lambda: w.api.get(PODS + "/orphan") is None, 90)
    nothing_left(w)


class Watcher(threading.Thread):
    """Looks at the slices and the agents all the time."""

    def __init__(self, w):
        super().__init__(daemon=True)
        self.w = w
        self.ending = threading.Event()
        self.uids, self.least, self.most_agents, self.looks = set(), 1 << 30, 0, 0
        self.start()

    def run(self):
        while not self.ending.is_set():
            now = slices(self.w)
            self.uids |= {s["metadata"]["uid"] for s in now}
            self.least = min(self.least, len(now))
            agents = [p for p in self.w.api.get(AGENTS)["items"] if p["status"].get("phase") == "Running"]
            self.most_agents = max(self.most_agents, len(agents))
            self.looks += 1
            time.sleep(0.05)

    def end(self):
        self.ending.set()
        self.join()


@test("dra.09_rolling_upgrade_overlaps_and_wipes_no_slice")
def upgrade(w):
    begin(w)
    pod(w, "steady", share(w), command=("gpus", "hold"))
    w.wait_running("steady")
    before, untouched = {s["metadata"]["uid"] for s in slices(w)}, w.container("steady")
    old = w.agent()["metadata"]["uid"]
    watcher = Watcher(w)
    w.api.patch(DAEMONSET, {"spec": {"template": {"metadata": {"annotations": {"upgraded": str(time.time())}}}}})
    pod(w, "during", share(w))
    wait("another agent", lambda: any(p["metadata"]["uid"] != old and ready(p) for p in w.api.get(AGENTS)["items"]), 60)
    new = w.agent()["metadata"]["uid"]
    check(new != old, "the agent was not replaced")
    w.wait_running("during")
    pod(w, "later", share(w))
    w.wait_running("later")
    fills(w, "later", 10240)
    beats = wait("the pod's output", lambda: w.beats("steady"))
    wait("the pod to go on using its GPU", lambda: w.beats("steady") > beats + 1, 30, every=0.5)
    time.sleep(32)  # kubelet takes a driver's slices 30 s after it has lost it
    watcher.end()
    same("agents running at once", watcher.most_agents, 2)
    same("slices, at the least", watcher.least, len(before))
    same("slices that were seen", watcher.uids, before)
    same("the container that ran meanwhile", w.container("steady"), untouched)
    w.delete("steady", "during", "later")
    claims_gone(w)
    nothing_left(w)
    return f"{watcher.looks} looks at the slices"


def health_in(w, name):
    found = [r for c in w.get_pod(name)["status"].get("containerStatuses", [])
             for s in c.get("allocatedResourcesStatus", []) for r in s.get("resources", [])]
    return [(r.get("health"), r.get("message")) for r in found]


@test("dra.10_unhealthy_device_is_in_the_pods_status")
def unhealthy(w):
    begin(w)
    pod(w, "sick", share(w))
    w.wait_running("sick")
    wait(lambda: f"a healthy device in the pod's status, it is {health_in(w, 'sick')}",
         lambda: [h for h, _ in health_in(w, "sick")] == ["Healthy"], 60)
    w.sim("xid", "0", "99")
    wait(lambda: f"an unhealthy device in the pod's status, it is {health_in(w, 'sick')}",
         lambda: [h for h, _ in health_in(w, "sick")] == ["Unhealthy"], 60)
    words = health_in(w, "sick")[0][1]
    taints = [t for d in devices(w) if d["name"] == "gpu-0-share" for t in d.get("taints", [])]
    same("the device's taints", [(t["key"], t["effect"]) for t in taints], [("gpu.sluice.io/unhealthy", "NoSchedule")])
    pod(w, "next", share(w))
    wait("no place on a sick card", lambda: w.waiting("next"))
    wait("the claim's condition", lambda: [c["status"] for d in claim_of(w, "sick")["status"]["devices"]
                                           for c in d["conditions"] if c["type"] == "Ready"] == ["False"], 20)
    check(w.get_pod("sick")["status"]["phase"] == "Running", "the pod was evicted")
    # A minute without another error, and the card is good again.
    wait("the next pod to be placed when the card is well", lambda: not w.waiting("next"), 100, every=0.5)
    w.wait_running("next")
    wait(lambda: f"a healthy device in the pod's status, it is {health_in(w, 'sick')}",
         lambda: [h for h, _ in health_in(w, "sick")] == ["Healthy"], 60)
    w.delete("sick", "next")
    return f"\"{words}\""


@test("dra.11_share_id_in_pod_resources_is_the_claims")
def share_id(w):
    begin(w)
    pod(w, "left", share(w))
    pod(w, "right", share(w, "20Gi", "50"))
    w.wait_running("left", "right")
    said = subprocess.run([os.path.join(images.BUILD, "tests/e2e/podres")], capture_output=True, text=True, check=True)
    expected = []
    for name in ("left", "right"):
        claim = claim_of(w, name)
        r = results(claim)[0]
        check(len(r["shareID"]) == 36, f"share ID {r['shareID']!r}")
        expected.append(f"default {name} main {claim['metadata']['name']} {r['device']} {r['shareID']}")
    same("kubelet's PodResources", sorted(said.stdout.splitlines()), sorted(expected))
    w.delete("left", "right")
    claims_gone(w)


@test("dra.12_no_execute_taint_evicts")
def evicts(w):
    begin(w)
    pod(w, "victim", share(w))
    w.wait_running("victim")
    w.sim("lost", "0")
    start = time.monotonic()
    try:
        wait("the pod to be gone", lambda: w.api.get(PODS + "/victim") is None, 60)
        took = time.monotonic() - start
        effects = {t["effect"] for d in devices(w) for t in d.get("taints", [])}
        same("taints of the lost card", effects, {"NoExecute"})
        said = [e["message"] for e in w.api.get("/api/v1/events")["items"]
                if e["involvedObject"].get("name") == "victim" and "Eviction" in e["reason"]]
        check(said, "nobody says that the pod was evicted")
    finally:
        w.sim("back", "0")
    wait("no taint any more", lambda: not any(d.get("taints") for d in devices(w)), 60)
    pod(w, "after", share(w))
    w.wait_running("after")
    fills(w, "after", 10240)
    w.delete("after")
    claims_gone(w)
    return f"gone {took:.1f} s after the card fell off the bus: \"{said[0]}\""


@test("dra.13_status_devices_is_written_with_these_rights_and_no_more")
def rights(w):
    begin(w)
    pod(w, "told", share(w))
    w.wait_running("told")
    claim = wait("the claim's status.devices", lambda: claim_of(w, "told") if claim_of(w, "told")["status"].get("devices")
                 else None, 20)
    d = claim["status"]["devices"][0]
    same("the device's status", (d["driver"], d["pool"], d["device"], d["shareID"]),
         (DRIVER, NODE, "gpu-0-share", results(claim)[0]["shareID"]))
    same("its lease", (d["data"]["memory"], d["data"]["cores"], d["data"]["gpu"]), ("10Gi", "30", w.cards[0]))
    same("its condition", [(c["type"], c["status"]) for c in d["conditions"]], [("Ready", "True")])
    account = "--as=system:serviceaccount:sluice-system:sluiced"
    for verb, what, allowed in (
            ("get", "resourceclaims.resource.k8s.io", True), ("patch", "resourceclaims.resource.k8s.io/status", True),
            ("update", "resourceclaims.resource.k8s.io/status", True), ("patch", "resourceclaims.resource.k8s.io", False),
            ("delete", "resourceclaims.resource.k8s.io", False), ("create", "resourceslices.resource.k8s.io", True),
            ("list", "pods", False), ("get", "secrets", False), ("delete", "pods", False), ("create", "pods", False)):
        what, _, part = what.partition("/")
        said = w.cluster.kubectl("auth", "can-i", verb, what, account, *([f"--subresource={part}"] if part else []),
                                 check=False).stdout.strip()
        same(f"whether the agent may {verb} {what}", said, "yes" if allowed else "no")
    # Without its right on the driver's own part the status stays empty, and the pod runs all the same.
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/sluice-dra"
    rules = w.api.get(role)["rules"]
    w.api.patch(role, {"rules": [r for r in rules if r["resources"] != ["resourceclaims/driver"]]})
    try:
        pod(w, "untold", share(w, "20Gi", "50"))
        w.wait_running("untold")
        wait("the agent to say why", lambda: "cannot write the status of a claim" in agent_log(w), 20)
        check(not claim_of(w, "untold")["status"].get("devices"), "it was written without the right to")
    finally:
        w.api.patch(role, {"rules": rules})
    w.delete("told", "untold")
    claims_gone(w)
