# SPDX-License-Identifier: Apache-2.0
"""Claims as NVIDIA's DRA driver documents them, with deploy/components/nvidia-claims: its classes, attributes, opaque
parameters and consumable shares. Manifests of ours that use its API in the shapes of its quickstart and examples; nothing in
them says Sluice but the image. Those that need more cards, or A100s: run.py --gpus a100-40gx8 --only 'nvidia*'."""
import json
import os
import socket

import test_dialects
from dra_world import (CLAIMS, PODS, RESOURCE, SLICES, TEMPLATES, agent_env, bare_uuids, check, claim_of, claims_gone,
                       container, deploy, fills, nothing_left, pod, pod_events, request, results, same, share,
                       template, tenant_of, tenants, wait)
from world import SIM_ROOT, bare, cards, test

NVIDIA = "gpu.nvidia.com"
MIG = "mig.nvidia.com"
API = "resource.nvidia.com/v1beta1"
H200_MIB, A100_MIB = 143771, 40960
A100S = "a100-40gx8"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


# ---- the node

def offered(w):
    """{name: device} of NVIDIA's driver, by the API server."""
    return {d["name"]: d for s in w.api.get(SLICES)["items"] if s["spec"]["driver"] == NVIDIA
            for d in s["spec"].get("devices", [])}


def begin(w, shares=None):
    """The overlay dra with the component; `shares` is NVIDIA's CONSUMABLE_SHARES."""
    check(len(w.cards) == 1 or "A100" in w.sim("list"), f"the test is for --gpus {A100S}")
    name = f"nvidia-{shares or 'whole'}"
    if w.overlay != name:
        w.clean()
        deploy(w, name, components=("nvidia-claims", "mps"),
               changes=agent_env(CONSUMABLE_SHARES=shares) if shares else agent_env(CONSUMABLE_SHARES="disabled"))
    w.agent()
    kind = "share" if shares else "gpu"
    wait(lambda: f"slices of {NVIDIA}: {list(offered(w))}", lambda: [
        d for d in offered(w).values() if d["attributes"]["type"]["string"] == "gpu" and
        d["attributes"]["gpu.sluice.io/type"]["string"] == kind], 40)
    wait("slices under the former name to be gone", lambda: not [
        s for s in w.api.get(SLICES)["items"] if s["spec"]["driver"] == "gpu.sluice.io"], 40)


# ---- manifests

def claim_spec(*requests, config=None, constraints=None):
    devices = {"requests": list(requests)}
    if config:
        devices["config"] = config
    if constraints:
        devices["constraints"] = constraints
    return {"devices": devices}


def template_of(w, name, spec):
    w.api.delete(f"{TEMPLATES}/{name}")
    w.api.create(TEMPLATES, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                             "metadata": {"name": name}, "spec": {"spec": spec}})


def gpu_request(name="gpu", **how):
    return request(name, device_class=NVIDIA, **how)


def parameters(kind, *names, **fields):
    # "kind" first, as Go writes it.
    config = {"opaque": {"driver": NVIDIA, "parameters": {"kind": kind, "apiVersion": API, **fields}}}
    return {"requests": list(names), **config} if names else config


def slicing(interval=None):
    how = {"strategy": "TimeSlicing"}
    return {**how, "timeSlicingConfig": {"interval": interval}} if interval else how


def mps(percent=50, limit="10Gi"):
    return {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": percent,
                                             "defaultPinnedDeviceMemoryLimit": limit}}


TOLERATE = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def pod_with(w, name, claims, *containers):
    """claims: {name in the pod: {resourceClaimTemplateName or resourceClaimName: …}}."""
    w.pod(name, containers=list(containers), tolerations=TOLERATE,
          resourceClaims=[{"name": n, **how} for n, how in claims.items()])


def deployment(w, name, replicas, spec):
    w.api.create(DEPLOYMENTS, {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
                 "template": {"metadata": {"labels": {"app": name}},
                              "spec": {"terminationGracePeriodSeconds": 0, "tolerations": TOLERATE, **spec}}}})


def pods_of(w, name):
    return sorted(p["metadata"]["name"] for p in w.api.get(PODS + f"?labelSelector=app%3D{name}")["items"]
                  if not p["metadata"].get("deletionTimestamp"))


def end_deployment(w, name):
    w.api.delete(f"{DEPLOYMENTS}/{name}")
    wait(f"pods of {name} to be gone", lambda: not w.api.get(PODS + f"?labelSelector=app%3D{name}")["items"], 90)


def sees(w, name, where):
    return json.loads(w.cluster.kubectl("exec", name, "-c", where, "--", "gpus"))


def listed(w, name, where):
    """nvidia-smi -L in a container, as the quickstart's pods call it."""
    return w.cluster.kubectl("exec", name, "-c", where, "--", "nvidia-smi", "-L").strip().splitlines()


def intervals(w):
    """The time-slice of each simulated card, as its nvidia-smi was told."""
    lines = [line for line in w.sim("show").splitlines() if " GPU-" in line]
    return [int(line.split("timeslice ")[1].split()[0]) if "timeslice " in line else 0 for line in lines]


def refused(w, name, *words, reason="SluiceConfigInvalid"):
    """The pod does not run, and an event on it says why."""
    message = wait(f"an event on {name}: {w.why(name)}", lambda: pod_events(w, name, reason), 40)[0]["message"]
    check(all(x in message for x in words), f"{name}: {message}")
    check(w.get_pod(name)["status"]["phase"] == "Pending", w.why(name))
    w.delete(name)
    return message


# ---- what is offered

@test("nvidia.attributes_under_its_name")
def attributes(w):
    begin(w)
    gpu = offered(w)["gpu-0"]
    a = {k: next(iter(v.values())) for k, v in gpu["attributes"].items()}
    same("attributes of the card", {k: a.get(k) for k in ("type", "productName", "brand", "architecture", "uuid",
                                                          "cudaComputeCapability")},
         {"type": "gpu", "productName": "NVIDIA H200", "brand": "Nvidia", "architecture": "Hopper", "uuid": w.cards[0],
          "cudaComputeCapability": "9.0.0"})
    check({"driverVersion", "cudaDriverVersion", "resource.kubernetes.io/pciBusID"} <= set(a), f"{a}")
    same("its memory", gpu["capacity"]["memory"]["value"], f"{H200_MIB}Mi")
    small = offered(w)["gpu-0-mig-1g18gb-0"]
    mig = {k: next(iter(v.values())) for k, v in small["attributes"].items()}
    same("attributes of an instance", (mig["type"], mig["profile"], mig["parentUUID"]), ("mig", "1g.18gb", w.cards[0]))
    check({"memory", "multiprocessors", "copyEngines", "decoders", "encoders", "jpegEngines", "ofaEngines"}
          <= set(small["capacity"]), f"{small['capacity']}")
    # Nothing is offered a second time under Sluice's own name.
    same("drivers of the slices", {s["spec"]["driver"] for s in w.api.get(SLICES)["items"]}, {NVIDIA})


@test("nvidia.gpu_test2_two_containers_one_gpu")
def test2(w):
    begin(w)
    template_of(w, "single-gpu", claim_spec(gpu_request()))
    pod_with(w, "pod", {"shared-gpu": {"resourceClaimTemplateName": "single-gpu"}},
             container("ctr0", {"name": "shared-gpu"}), container("ctr1", {"name": "shared-gpu"}))
    w.wait_running("pod")
    for ctr in ("ctr0", "ctr1"):
        lines = listed(w, "pod", ctr)
        check(len(lines) == 1 and w.cards[0] in lines[0], f"nvidia-smi -L in {ctr}: {lines}")
        same(f"memory in {ctr}", [d["mib"] for d in sees(w, "pod", ctr)["cuda"]], [H200_MIB])
    status = wait("the claim's status", lambda: claim_of(w, "pod", "shared-gpu")["status"].get("devices"), 20)
    same("its driver there", status[0]["driver"], NVIDIA)
    # The card is the claim's alone: neither a claim of Sluice's classes nor nvidia.com/gpu gets it.
    pod(w, "beside", share(w))
    w.pod("classic", "nvidia.com/gpu", command=("sleep", "1000"))
    for name in ("beside", "classic"):
        wait(f"{name} to wait", lambda n=name: w.waiting(n), 30)
    w.delete("pod", "beside", "classic")
    claims_gone(w)
    nothing_left(w)


@test("nvidia.gpu_test3_one_claim_two_pods")
def test3(w):
    begin(w)
    w.api.create(CLAIMS, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "single-gpu"},
                          "spec": claim_spec(gpu_request())})
    for name in ("pod1", "pod2"):
        pod_with(w, name, {"shared-gpu": {"resourceClaimName": "single-gpu"}}, container("ctr", {"name": "shared-gpu"}))
    w.wait_running("pod1", "pod2")
    for name in ("pod1", "pod2"):
        same(f"cards in {name}", bare_uuids(sees(w, name, "ctr")), [bare(w.cards[0])])
    w.delete("pod1", "pod2")
    w.api.delete(f"{CLAIMS}/single-gpu")
    claims_gone(w)
    nothing_left(w)


@test("nvidia.extended_resources")
def extended(w):
    """nvidia.com/gpu by the class, and a MIG profile by a class of the user's own."""
    begin(w)
    w.pod("gpu-full-pod", "nvidia.com/gpu", command=("sleep", "1000"), tolerations=TOLERATE)
    w.wait_running("gpu-full-pod")
    same("its memory", [d["mib"] for d in w.sees("gpu-full-pod")["cuda"]], [H200_MIB])
    name = w.get_pod("gpu-full-pod")["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    claim = w.api.get(f"{CLAIMS}/{name}")
    same("its claim", (claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"], results(claim)[0]["driver"],
                       results(claim)[0]["device"]), (NVIDIA, NVIDIA, "gpu-0"))
    w.delete("gpu-full-pod")
    claims_gone(w)
    mine = "mig-1g-18gb.gpu.nvidia.com"
    w.api.delete(f"{RESOURCE}/deviceclasses/{mine}")
    w.api.create(f"{RESOURCE}/deviceclasses", {
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": mine}, "spec": {
            "extendedResourceName": "nvidia.com/mig-1g.18gb",
            "selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com' && "
                                   "device.attributes['gpu.nvidia.com'].type == 'mig' && "
                                   "device.attributes['gpu.nvidia.com'].profile == '1g.18gb'"}}]}})
    w.pod("mig-pod", "nvidia.com/mig-1g.18gb", command=("sleep", "1000"), tolerations=TOLERATE)
    w.wait_running("mig-pod")
    lines = w.exec("mig-pod", "nvidia-smi", "-L").strip()
    check("MIG 1g.18gb" in lines and "MIG-" in lines, lines)
    w.delete("mig-pod")
    claims_gone(w)
    w.api.delete(f"{RESOURCE}/deviceclasses/{mine}")
    nothing_left(w)
    check("MIG" not in w.sim("list"), "the instance is still there")


@test("nvidia.mps_in_one_claim")
def one_mps(w):
    begin(w)
    template_of(w, "shared-gpu", claim_spec(gpu_request("mps-gpu"), config=[
        parameters("GpuConfig", "mps-gpu", sharing=mps())]))
    pod_with(w, "test-pod", {"shared-gpu": {"resourceClaimTemplateName": "shared-gpu"}},
             *(container(c, {"name": "shared-gpu", "request": "mps-gpu"}) for c in ("mps-ctr0", "mps-ctr1")))
    w.wait_running("test-pod")
    for ctr in ("mps-ctr0", "mps-ctr1"):
        held_by_mps(w, "test-pod", ctr, 10240, "50")
    w.delete("test-pod")
    claims_gone(w)
    nothing_left(w)
    # By device, as its API has it: over the limit for all.
    template_of(w, "by-device", claim_spec(gpu_request(), config=[parameters("GpuConfig", sharing={
        "strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "10Gi",
                                         "defaultPerDevicePinnedMemoryLimit": {"0": "8Gi"}}})]))
    pod(w, "by-device", "by-device")
    w.wait_running("by-device")
    held_by_mps(w, "by-device", "main", 8192, None)
    w.delete("by-device")
    claims_gone(w)


def held_by_mps(w, name, ctr, mib, percent):
    env = dict(
        line.split("=", 1) for line in w.cluster.kubectl("exec", name, "-c", ctr, "--", "env").splitlines() if "=" in line)
    same(f"MPS in {ctr}", (env.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), env.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")),
         (percent, f"0={mib}M"))
    check(env.get("CUDA_MPS_PIPE_DIRECTORY", "").startswith("/"), f"no pipe directory: {env}")
    view = json.loads(w.cluster.kubectl("exec", name, "-c", ctr, "--", "gpus", "fill"))
    same(f"the error at the limit in {ctr}", view["fill_error"], 2)
    check(mib - 1024 <= view["filled_mib"] <= mib, f"{ctr} could allocate {view['filled_mib']} of {mib} MiB")


@test("nvidia.interval_of_time_slicing")
def interval(w):
    """Set on the card while the claim has it, also over a killed agent; the driver's own afterwards."""
    begin(w)
    template_of(w, "long", claim_spec(gpu_request(), config=[parameters("GpuConfig", "gpu", sharing=slicing("Long"))]))
    template_of(w, "plain", claim_spec(gpu_request(), config=[parameters("GpuConfig", "gpu", sharing=slicing("Default"))]))
    same("before", intervals(w), [0])
    pod(w, "long", "long")
    w.wait_running("long")
    same("with Long", intervals(w), [3])
    w.kill_agent()
    wait("the agent's next process", w.agent_pid)
    w.agent()
    same("with the next agent", intervals(w), [3])
    w.delete("long")
    claims_gone(w)
    wait(lambda: f"the interval to be the driver's own again: {intervals(w)}", lambda: intervals(w) == [0], 20)
    pod(w, "plain", "plain")
    w.wait_running("plain")
    same("with Default", intervals(w), [0])
    w.delete("plain")
    claims_gone(w)
    # Where the driver's program does not do it the pod waits, and says why.
    os.chmod(SIM_ROOT + "/bin/nvidia-smi", 0o644)
    try:
        pod(w, "cannot", "long")
        note = refused(w, "cannot", "interval of time-slicing", w.cards[0], reason="SluicePrepareFailed")
    finally:
        os.chmod(SIM_ROOT + "/bin/nvidia-smi", 0o755)
    claims_gone(w)
    nothing_left(w)
    return f"\"{note}\""


@test("nvidia.what_is_not_served_is_said")
def unserved(w):
    begin(w)
    gpu, mig = gpu_request(), request("gpu", device_class=MIG, expression="device.attributes['gpu.nvidia.com'].profile == '1g.18gb'")
    notes = []
    for name, ask, config, words in (
            ("no-kind", gpu, parameters("VfioDeviceConfig", "gpu"), ("VfioDeviceConfig", "GpuConfig")),
            ("no-key", gpu, parameters("GpuConfig", "gpu", sharing={**slicing(), "replicas": 4}), ("replicas", "sharing")),
            ("no-strategy", gpu, parameters("GpuConfig", "gpu", sharing={"strategy": "Exclusive"}), ("TimeSlicing or MPS",)),
            ("no-interval", gpu, parameters("GpuConfig", "gpu", sharing=slicing("Longest")), ("Default, Short",)),
            ("both", gpu, parameters("GpuConfig", "gpu", sharing={**mps(), "timeSlicingConfig": {"interval": "Long"}}),
             ("timeSlicingConfig", "MPS")),
            ("percent", gpu, parameters("GpuConfig", "gpu", sharing=mps(percent=101)), ("from 1 to 100",)),
            ("memory", gpu, parameters("GpuConfig", "gpu", sharing=mps(limit="1k")), ("at least 1Mi",)),
            ("mig-config-on-gpu", gpu, parameters("MigDeviceConfig", "gpu", sharing=slicing()), ("MigDeviceConfig", "gpu-0")),
            ("mps-on-mig", mig, parameters("MigDeviceConfig", "gpu", sharing=mps()), ("MPS", "MIG instance"))):
        template_of(w, name, claim_spec(ask, config=[config]))
        pod(w, name, name)
        notes.append(refused(w, name, *words))
    # Two cards by MPS in one container would need two daemons.
    claims_gone(w)
    nothing_left(w)
    return f"\"{notes[0]}\""


@test("nvidia.sluices_own_classes_go_on")
def own_classes(w):
    begin(w)
    pod(w, "share", share(w, "10Gi", "30"))
    w.wait_running("share")
    fills(w, "share", 10240)
    same("its tenant", tenant_of(w, "share")["cores_request_percent"], 30)
    same("its driver", results(claim_of(w, "share"))[0]["driver"], NVIDIA)
    # A claim of NVIDIA's class does not get the card beside it.
    template_of(w, "single-gpu", claim_spec(gpu_request()))
    pod(w, "whole", "single-gpu")
    wait("the other to wait", lambda: w.waiting("whole"), 30)
    w.delete("share", "whole")
    claims_gone(w)
    template(w, "own-mig", request(device_class="mig.gpu.sluice.io",
                                   expression='device.attributes["gpu.sluice.io"].profile == "1g.18gb"'))
    pod(w, "mig", "own-mig")
    w.wait_running("mig")
    w.delete("mig")
    claims_gone(w)
    nothing_left(w)


@test("nvidia.another_driver_has_the_name")
def name_taken(w):
    """While something answers as gpu.nvidia.com in kubelet's registry, the agent offers nothing, and the Node says so."""
    begin(w)
    path = "/var/lib/kubelet/plugins_registry/gpu.nvidia.com-reg.sock"
    other = socket.socket(socket.AF_UNIX)
    other.bind(path)
    other.listen(16)
    try:
        w.cluster.kubectl("-n", "sluice-system", "delete", "pods", "-l", "app.kubernetes.io/name=sluiced", "--wait=true")
        event = wait("an event on the Node", lambda: w.events("DRANameTaken"), 60)[0]["message"]
        before = {s["metadata"]["name"] for s in w.api.get(SLICES)["items"]}
        for name in before:
            w.api.delete(f"{SLICES}/{name}")
        w.agent()
        same("slices while it waits", w.api.get(SLICES)["items"], [])
    finally:
        other.close()
        os.unlink(path)
    wait("the slices when the other has ended", lambda: offered(w), 40)
    template_of(w, "single-gpu", claim_spec(gpu_request()))
    pod(w, "after", "single-gpu")
    w.wait_running("after")
    w.delete("after")
    claims_gone(w)
    return f"\"{event}\""


@test("nvidia.the_controllers_dialects_go_on")
def dialects(w):
    """sluice-controller reads the slices and writes claims under either name of the driver."""
    begin(w)
    folder = test_dialects.deploy_folder("dra")
    w.cluster.kubectl("apply", "-k", folder)
    wait(lambda: "the controller's two replicas: " + test_dialects.controller_words(w),
         lambda: test_dialects.controllers(w), 90, every=0.3)
    wait("pods to go through the webhook", lambda: test_dialects.admits(w), 60, every=0.5)
    test_dialects.apply(w, test_dialects.pod("hami", {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50,
                                                      "nvidia.com/gpucores": 30}))
    w.wait_running("hami")
    words = test_dialects.held_to(w, "hami", H200_MIB * 50 // 100, (30, 30))
    same("its driver", {r["driver"] for c in w.api.get(CLAIMS)["items"] for r in results(c)}, {NVIDIA})
    w.delete("hami")
    claims_gone(w)
    w.cluster.kubectl("delete", "-k", folder, "--wait=true")
    wait("the controller to be gone", lambda: not w.api.get(test_dialects.CONTROLLERS)["items"], 60)
    return words


# ---- consumable shares

def share_deployment(w, name, replicas, ask):
    template_of(w, name, claim_spec(ask))
    deployment(w, name, replicas, {
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}],
        "containers": [container("ctr", {"name": "gpu"})]})
    wait(lambda: f"{replicas} pods of {name}: {[w.why(p) for p in pods_of(w, name)]}",
         lambda: len(pods_of(w, name)) == replicas and all(
             w.get_pod(p)["status"].get("phase") == "Running" for p in pods_of(w, name)), 90)
    return pods_of(w, name)


@test("nvidia.consumable_memory")
def consumable_memory(w):
    """What a claim names of the memory is its own, and it is held to it."""
    begin(w, "memory")
    names = share_deployment(w, "memory-sharing", 2, gpu_request(memory="4Gi"))
    for name in names:
        fills(w, name, 4096)
        same("cards", bare_uuids(w.sees(name)), [bare(w.cards[0])])
    # Without a figure a claim takes all of a card: there is no room for it now.
    template_of(w, "all", claim_spec(gpu_request()))
    pod(w, "all", "all")
    wait("the claim for all memory to wait", lambda: w.waiting("all"), 30)
    template_of(w, "mps", claim_spec(gpu_request(memory="4Gi"), config=[parameters("GpuConfig", "gpu", sharing=mps())]))
    pod(w, "mps", "mps")
    note = refused(w, "mps", "MPS", "shared with other claims")
    template_of(w, "sliced", claim_spec(gpu_request(memory="4Gi"), config=[parameters("GpuConfig", "gpu", sharing=slicing())]))
    pod(w, "sliced", "sliced")
    w.wait_running("sliced")
    w.delete("sliced")
    end_deployment(w, "memory-sharing")
    wait("the claim for all memory to get it", lambda: w.get_pod("all")["status"]["phase"] == "Running", 90)
    same("its memory", [d["mib"] for d in w.sees("all")["cuda"]], [H200_MIB])
    w.delete("all")
    claims_gone(w)
    nothing_left(w)
    return f"\"{note}\""


@test("nvidia.consumable_number")
def consumable_number(w):
    """Four equal shares: a quarter of memory and time each, and no fifth."""
    begin(w, "4")
    names = share_deployment(w, "integer-sharing", 4, gpu_request())
    for name in names:
        fills(w, name, H200_MIB // 4)
        same(f"time of {name}", tenant_of(w, name)["cores_request_percent"], 25)
    template_of(w, "fifth", claim_spec(gpu_request()))
    pod(w, "fifth", "fifth")
    wait("a fifth to wait", lambda: w.waiting("fifth"), 30)
    w.delete("fifth")
    end_deployment(w, "integer-sharing")
    claims_gone(w)
    two = gpu_request()
    two["exactly"]["capacity"] = {"requests": {"shares": "2"}}
    template_of(w, "two-shares", claim_spec(two))
    pod(w, "two-shares", "two-shares")
    note = refused(w, "two-shares", "2 shares", "name memory and cores")
    claims_gone(w)
    nothing_left(w)
    return f"\"{note}\""


@test("nvidia.consumable_unlimited")
def consumable_unlimited(w):
    """Any number beside each other; each sees the whole card, and nothing is enforced."""
    begin(w, "unlimited")
    names = share_deployment(w, "unlimited-sharing", 6, gpu_request())
    for name in names:
        same(f"memory in {name}", [d["mib"] for d in w.sees(name)["cuda"]], [H200_MIB])
    same("tenants of the arbiter", tenants(w), {})
    end_deployment(w, "unlimited-sharing")
    claims_gone(w)
    nothing_left(w)


@test("nvidia.only_the_class_was_changed")
def forgotten(w):
    """Without the component: NVIDIA's parameters on Sluice's own class are refused, not ignored."""
    w.clean()
    # As docs/uninstall.md says: kubectl apply deletes nothing, and nvidia.com/gpu would stay the class that nobody serves.
    w.cluster.kubectl("delete", "deviceclass", NVIDIA, MIG, "--ignore-not-found")
    deploy(w, "dra")
    w.agent()
    wait("slices under Sluice's own name alone", lambda: {s["spec"]["driver"] for s in w.api.get(SLICES)["items"]}
         == {"gpu.sluice.io"}, 60)
    template_of(w, "half-way", claim_spec(request(device_class="whole.gpu.sluice.io"), config=[
        parameters("GpuConfig", "gpu", sharing=mps())]))
    pod(w, "half-way", "half-way")
    note = refused(w, "half-way", "gpu.nvidia.com", "nvidia-claims")
    w.pod("classic", "nvidia.com/gpu", command=("sleep", "1000"))
    w.wait_running("classic")
    w.delete("classic")
    claims_gone(w)
    return f"\"{note}\""


# ---- eight A100s, as the quickstart has them

@test("nvidia.eight.gpu_test1_two_pods_two_gpus")
@cards(8, A100S)
def test1(w):
    begin(w)
    template_of(w, "single-gpu", claim_spec(gpu_request()))
    for name in ("pod1", "pod2"):
        pod_with(w, name, {"gpu": {"resourceClaimTemplateName": "single-gpu"}}, container("ctr", {"name": "gpu"}))
    w.wait_running("pod1", "pod2")
    cards_of = [bare_uuids(sees(w, name, "ctr")) for name in ("pod1", "pod2")]
    check([len(c) for c in cards_of] == [1, 1] and cards_of[0] != cards_of[1], f"{cards_of}")
    w.delete("pod1", "pod2")
    claims_gone(w)


@test("nvidia.eight.gpu_test5_time_slicing_and_mps")
@cards(8, A100S)
def test5(w):
    begin(w)
    template_of(w, "multiple-gpus", claim_spec(gpu_request("ts-gpu"), gpu_request("mps-gpu"), config=[
        parameters("GpuConfig", "ts-gpu", sharing=slicing("Long")), parameters("GpuConfig", "mps-gpu", sharing=mps())]))
    pod_with(w, "pod0", {"shared-gpus": {"resourceClaimTemplateName": "multiple-gpus"}},
             *(container(f"{kind}-ctr{i}", {"name": "shared-gpus", "request": f"{kind}-gpu"})
               for kind in ("ts", "mps") for i in (0, 1)))
    w.wait_running("pod0")
    seen = {c: bare_uuids(sees(w, "pod0", c)) for c in ("ts-ctr0", "ts-ctr1", "mps-ctr0", "mps-ctr1")}
    check(seen["ts-ctr0"] == seen["ts-ctr1"] != seen["mps-ctr0"] == seen["mps-ctr1"], f"{seen}")
    same("cards with a long interval", [bare(w.cards[i]) for i, n in enumerate(intervals(w)) if n == 3], seen["ts-ctr0"])
    for ctr in ("mps-ctr0", "mps-ctr1"):
        held_by_mps(w, "pod0", ctr, 10240, "50")
    same("memory by time-slicing", [d["mib"] for d in sees(w, "pod0", "ts-ctr0")["cuda"]], [A100_MIB])
    w.delete("pod0")
    claims_gone(w)
    nothing_left(w)
    same("intervals afterwards", intervals(w), [0] * 8)


@test("nvidia.eight.gpu_test6_selected_by_attributes")
@cards(8, A100S)
def test6(w):
    begin(w)
    expression = ("device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*a100.*$') && ("
                  + " || ".join(f"device.attributes['gpu.nvidia.com'].index == {i}" for i in (0, 2, 4, 6)) + ")")
    template_of(w, "a100", claim_spec(gpu_request(expression=expression), config=[
        parameters("GpuConfig", "gpu", sharing=slicing("Long"))]))
    deployment(w, "gpu-test6", 4, {"resourceClaims": [{"name": "a100", "resourceClaimTemplateName": "a100"}],
                                   "containers": [container("ctr", {"name": "a100"})]})
    wait(lambda: f"four pods: {[w.why(p) for p in pods_of(w, 'gpu-test6')]}", lambda: [
        w.get_pod(p)["status"].get("phase") for p in pods_of(w, "gpu-test6")] == ["Running"] * 4, 90)
    got = sorted(bare_uuids(w.sees(p))[0] for p in pods_of(w, "gpu-test6"))
    same("their cards", got, sorted(bare(w.cards[i]) for i in (0, 2, 4, 6)))
    same("intervals", intervals(w), [3, 0] * 4)
    end_deployment(w, "gpu-test6")
    claims_gone(w)


@test("nvidia.eight.two_by_mps_in_one_container_are_refused")
@cards(8, A100S)
def two_mps(w):
    begin(w)
    template_of(w, "two", claim_spec(gpu_request(count=2), config=[parameters("GpuConfig", "gpu", sharing=mps())]))
    pod(w, "two", "two")
    note = refused(w, "two", "one daemon")
    template_of(w, "pair", claim_spec(gpu_request("a"), gpu_request("b"), config=[parameters("GpuConfig", sharing=mps())]))
    pod(w, "pair", "pair")
    refused(w, "pair", "one daemon")
    template_of(w, "one", claim_spec(gpu_request(), config=[parameters("GpuConfig", sharing=mps())]))
    w.pod("claims", claims={"a": "one", "b": "one"}, command=("sleep", "1000"))
    refused(w, "claims", "two claims")
    # Without sharing two cards are no matter.
    template_of(w, "double-gpu", claim_spec(gpu_request(count=2)))
    pod(w, "double", "double-gpu")
    w.wait_running("double")
    same("cards", len(set(bare_uuids(w.sees("double")))), 2)
    w.delete("double")
    claims_gone(w)
    nothing_left(w)
    return f"\"{note}\""


@test("nvidia.eight.gpu_test4_four_instances_of_one_card")
@cards(8, A100S)
def test4(w):
    """Four replicas, each with four instances of one A100. Simulated cards change to MIG mode at once; real A100s have to be
    in it before, as the quickstart says."""
    begin(w)
    sizes = {"mig-1g-5gb-0": "1g.5gb", "mig-1g-5gb-1": "1g.5gb", "mig-2g-10gb": "2g.10gb", "mig-3g-20gb": "3g.20gb"}
    template_of(w, "mig-devices", claim_spec(
        *(request(name, device_class=MIG, expression=f"device.attributes['gpu.nvidia.com'].profile == '{profile}'")
          for name, profile in sizes.items()),
        constraints=[{"requests": [], "matchAttribute": "gpu.nvidia.com/parentUUID"}]))
    deployment(w, "gpu-test4", 4, {
        "resourceClaims": [{"name": "mig-devices", "resourceClaimTemplateName": "mig-devices"}],
        "containers": [container(f"ctr{i}", {"name": "mig-devices", "request": name}) for i, name in enumerate(sizes)]})
    wait(lambda: f"four pods: {[w.why(p) for p in pods_of(w, 'gpu-test4')]}", lambda: [
        w.get_pod(p)["status"].get("phase") for p in pods_of(w, "gpu-test4")] == ["Running"] * 4, 120)
    for p in pods_of(w, "gpu-test4"):
        lines = [listed(w, p, f"ctr{i}") for i in range(4)]
        same(f"instances of {p}", ["".join(x).count("MIG ") for x in lines], [1] * 4)
        check(all(profile in "".join(x) for x, profile in zip(lines, sizes.values())), f"{lines}")
        same(f"cards of {p}", len({r["device"].split("-mig-")[0] for r in results(claim_of(w, p, "mig-devices"))}), 1)
    end_deployment(w, "gpu-test4")
    claims_gone(w)
    nothing_left(w)


