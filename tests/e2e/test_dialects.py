# SPDX-License-Identifier: Apache-2.0
"""Pods as HAMi, Volcano, gpushare and KubeShare document them, applied as they are: nothing in them says Sluice but the
image, which has a program that looks. By DRA (dialects.dra.*) and by the scheduler extender (dialects.extender.*); two cards
of two kinds: run.py --gpus a100-80g,h200.

The controller is its Deployment, applied from deploy/ unchanged. The cluster has no kube-proxy: the API server calls the
webhook at the endpoints of its Service (--enable-aggregator-routing), kube-scheduler is given the leading pod's address."""
import json
import os
import subprocess

import images
from dra_world import CLAIMS, STATUS, tenants
from world import PODS, bare, cards, check, cuda_uuids, ready, same, test, wait

CONTROLLERS = "/api/v1/namespaces/sluice-system/pods?labelSelector=app.kubernetes.io%2Fname%3Dsluice-controller"
WEBHOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/sluice-controller"
SETS = "/apis/apps/v1/namespaces/default/statefulsets"
CONTEXT_MIB = {"H200": 500, "A100": 420}  # of the simulated cards
OVERLAY = {"dra": "dra", "extender": "fractional"}


# ---- the node and the controller

def deploy_folder(way):
    return os.path.join(images.TOP, "deploy", "controller", way)


def controllers(w):
    """The Deployment's two pods, once both are ready."""
    pods = [p for p in w.api.get(CONTROLLERS)["items"] if not p["metadata"].get("deletionTimestamp")]
    return pods if len(pods) == 2 and all(ready(p) for p in pods) else None


def controller_words(w):
    done = w.cluster.kubectl("-n", "sluice-system", "logs", "deployment/sluice-controller", "--tail=5", check=False)
    return (done.stdout or done.stderr).strip()


def leader(w):
    found = [p for p in controllers(w) or [] if p["metadata"]["labels"].get("sluice.io/leader") == "true"]
    return found[0] if len(found) == 1 else None


def admits(w):
    """Whether pods go through the webhook: one that only it would refuse is refused."""
    status, answer = w.api.call("POST", PODS + "?dryRun=All", pod("probe", {"nvidia.com/gpumem": "3Gi"}))
    return status >= 400 and "whole number of MiB" in answer.get("message", "")


def scheduler_config(w):
    """deploy/controller/extender/scheduler-config.yaml, with what docs/controller.md says to fill in."""
    with open(os.path.join(deploy_folder("extender"), "scheduler-config.yaml"), encoding="utf-8") as f:
        text = f.read()
    secret = w.api.get("/api/v1/namespaces/sluice-system/secrets/sluice-controller-tls")
    url = f"https://{leader(w)['status']['podIP']}:8443"
    return text.replace("https://sluice-extender.sluice-system.svc", url).replace("CA_DATA", secret["data"]["ca.crt"])


def end(w):
    """No controller, the stock scheduler."""
    way = getattr(w, "dialects", None)
    if not way:
        return
    w.cluster.kubectl("delete", "-k", deploy_folder(way), "--wait=true")
    if way == "extender":
        w.cluster.start_scheduler()
    wait("the controller to be gone", lambda: not w.api.get(CONTROLLERS)["items"], 60)
    w.dialects = None


def begin(w, way):
    if getattr(w, "begun", None) == way and w.overlay == OVERLAY[way]:
        return
    w.begun = None
    end(w)
    w.clean()
    w.apply(OVERLAY[way])
    w.agent()
    w.dialects = way
    w.cluster.kubectl("apply", "-k", deploy_folder(way))
    wait(lambda: "the controller's two replicas: " + controller_words(w), lambda: controllers(w), 90, every=0.3)
    wait(lambda: "pods to go through the webhook: " + controller_words(w), lambda: admits(w), 60, every=0.5)
    if way == "extender":
        w.wait_allocatable({"nvidia.com/gpu": 10 * len(w.cards)})
        wait(lambda: "a leader: " + controller_words(w), lambda: leader(w), 60, every=0.3)
        w.cluster.start_scheduler(scheduler_config(w))
    w.begun = way


# ---- pods

def pod(name, limits=None, labels=None, annotations=None, **spec):
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
            "spec": {"containers": [{"name": "ctr", "image": images.TEST, "imagePullPolicy": "Never",
                                     "command": ["sleep", "86400"], "resources": {"limits": limits or {}}}],
                     "terminationGracePeriodSeconds": 0, **spec}}


def apply(w, *manifests):
    w.cluster.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))



def cores(w, name):
    """(at least, at most) percent of the time, as the arbiter on the node has it for the pod."""
    found = [t for t in tenants(w).values() if t["about"].get("pod") == name]
    check(len(found) == 1, f"{len(found)} tenants of pod {name}: {found}")
    return found[0]["cores_request_percent"], found[0]["cores_limit_percent"]


def held_to(w, name, mib, share, gpus=1):
    """Memory by CUDA's account and by trying, on each of its GPUs; time by the arbiter's."""
    view = w.sees(name)
    same(f"memory of CUDA's devices in {name}", [d["mib"] for d in view["cuda"]], [mib] * gpus)
    same(f"cards of {name}", len(set(cuda_uuids(view))), gpus)
    check({d["uuid"] for d in view["cuda"]} <= {bare(c) for c in w.cards}, f"{name} has other cards: {view}")
    filled = []
    for i in range(gpus):
        full = json.loads(w.exec(name, "env", f"CUDA_VISIBLE_DEVICES={i}", "gpus", "fill"))
        same(f"the error at the limit in {name}", full["fill_error"], 2)
        context = [c for kind, c in CONTEXT_MIB.items() if kind in full["cuda"][0]["name"]]
        same(f"MiB allocated in {name} on GPU {i}", [full["filled_mib"]], [mib - c for c in context])
        filled.append(full["filled_mib"])
    same(f"share of the time of {name}", cores(w, name), share)
    return f"{name}: {gpus} x {mib} MiB, {filled} allocated, {share[0]}-{share[1]} % of the time"


def placed_by(w, way, name):
    """That it came by the way the test is about, and by no other."""
    found = w.get_pod(name)
    lease = found["metadata"].get("annotations", {}).get("sluice.io/lease")
    claims = found["spec"].get("resourceClaims")
    check(bool(claims) == (way == "dra") and bool(lease) == (way == "extender"),
          f"{name} has claims {claims} and lease {lease}")
    same("its scheduler", found["spec"]["schedulerName"], "default-scheduler")
    if way == "extender":
        def notes():
            return w.get_pod(name)["metadata"]["annotations"]
        wait("HAMi's annotations to say that it has its GPUs", lambda: notes()["hami.io/bind-phase"] == "success", 30)
        devices = [f"{g['uuid']},NVIDIA,{g['memoryMiB']},{g['cores']}:" for c in json.loads(lease)["containers"] for g in c["gpus"]]
        same("what HAMi's tools read", notes()["hami.io/vgpu-devices-allocated"], "".join(devices) + ";")
        same("what is left to do", notes()["hami.io/vgpu-devices-to-allocate"], ";")


def gone(w, way, *pods):
    w.delete(*pods)
    if way == "dra":
        wait("the claims to be gone", lambda: not w.api.get(CLAIMS)["items"], 60)
    wait(lambda: f"tenants to be gone, there are {list(tenants(w))}", lambda: not tenants(w), 60, every=0.3)


def runs(w, way, manifest, mib, share, gpus=1):
    begin(w, way)
    apply(w, manifest)
    name = manifest["metadata"]["name"]
    w.wait_running(name)
    placed_by(w, way, name)
    words = held_to(w, name, mib, share, gpus)
    gone(w, way, name)
    return words


# ---- a node with one H200 (143771 MiB)

def hami(w, way):
    return runs(w, way, pod("gpu-pod", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}),
                3000, (30, 30))


def hami_percentage(w, way):
    return runs(w, way, pod("gpu-pod", {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50,
                                        "nvidia.com/gpucores": 30}, schedulerName="hami-scheduler"), 71885, (30, 30))


def volcano(w, way):
    return runs(w, way, pod("gpu-pod1", {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 3000,
                                         "volcano.sh/vgpu-cores": 50}, schedulerName="volcano"), 3000, (50, 50))


def gpushare(w, way):
    """Its demonstration is a StatefulSet, here with three pods on one card."""
    begin(w, way)
    template = pod("binpack", {"aliyun.com/gpu-mem": 3}, labels={"app": "binpack"})
    apply(w, {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "binpack"},
              "spec": {"replicas": 3, "serviceName": "binpack", "podManagementPolicy": "Parallel",
                       "selector": {"matchLabels": {"app": "binpack"}},
                       "template": {"metadata": {"labels": {"app": "binpack"}}, "spec": template["spec"]}}})
    pods = [f"binpack-{i}" for i in range(3)]
    try:
        wait("the set's pods", lambda: all(w.api.get(f"{PODS}/{p}") for p in pods), 30)
        w.wait_running(*pods)
        for name in pods:
            placed_by(w, way, name)
        # Nothing is said of time: what nobody uses. A claim has 1, the least that DRA counts; a lease the least of all.
        words = [held_to(w, name, 3072, (1 if way == "dra" else 0.1, 100)) for name in pods]
    finally:
        w.api.delete(f"{SETS}/binpack")
        gone(w, way, *pods)
    return words[0] + ", and two more"


def kubeshare(w, way):
    return runs(w, way, pod("pod1", labels={"sharedgpu/gpu_request": "0.5", "sharedgpu/gpu_limit": "1.0",
                                            "sharedgpu/gpu_mem": "3145728000", "sharedgpu/gpu_model": "NVIDIA-H200"},
                            schedulerName="kubeshare-scheduler"), 3000, (50, 100))


def volcano_card(w, way):
    """Volcano's plugin before vGPU: MiB of one card."""
    return runs(w, way, pod("gpu-pod1", {"volcano.sh/gpu-memory": 1024}, schedulerName="volcano"),
                1024, (1 if way == "dra" else 0.1, 100))


def less_than_asked(w, way):
    """What is not served is refused or said: HAMi's dynamic MIG, KubeShare's gangs."""
    begin(w, way)
    mig = pod("gpu-pod", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8000}, annotations={"nvidia.com/vgpu-mode": "mig"})
    status, answer = w.api.call("POST", PODS, mig)
    check(status >= 400 and "nvidia.com/vgpu-mode" in answer["message"], f"{status}: {answer}")
    gang = pod("gang", labels={"sharedgpu/gpu_request": "0.5", "sharedgpu/gpu_limit": "1.0", "sharedgpu/min_available": "3"},
               schedulerName="kubeshare-scheduler")
    done = w.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(gang), check=False)
    check(done.returncode == 0 and "Warning: sharedgpu/min_available" in done.stderr, done.stderr)
    w.wait_running("gang")
    gone(w, way, "gang")
    return answer["message"]


def together(w, way):
    """All four on one card at once, and one more than it has time for."""
    begin(w, way)
    pods = {"hami": (pod("hami", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}), 3000),
            "volcano": (pod("volcano", {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 4000,
                                        "volcano.sh/vgpu-cores": 20}, schedulerName="volcano"), 4000),
            "gpushare": (pod("gpushare", {"aliyun.com/gpu-mem": 5}), 5120),
            "kubeshare": (pod("kubeshare", labels={"sharedgpu/gpu_request": "0.25", "sharedgpu/gpu_limit": "0.5",
                                                   "sharedgpu/gpu_mem": "6442450944"},
                              schedulerName="kubeshare-scheduler"), 6144)}
    for manifest, _ in pods.values():
        apply(w, manifest)
        w.wait_placed()
    w.wait_running(*pods)
    for name, (_, mib) in pods.items():
        same(f"memory in {name}", [d["mib"] for d in w.sees(name)["cuda"]], [mib])
    apply(w, pod("late", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000, "nvidia.com/gpucores": 30}))
    wait("no place for a third of the time where a quarter is left", lambda: w.waiting("late"))
    w.delete("hami")
    w.wait_running("late")
    gone(w, way, "late", *(n for n in pods if n != "hami"))


# ---- a node with an A100 of 80 GB and an H200

def kinds(w):
    """UUIDs of the A100 and the H200, as CUDA has them."""
    listed = [line for line in w.sim("list").splitlines() if "GPU-" in line]
    check(len(listed) == 2 and "A100" in listed[0] and "H200" in listed[1],
          f"the test is for --gpus a100-80g,h200, here are {listed}")
    return bare(w.cards[0]), bare(w.cards[1])


def hami_type(w, way):
    """HAMi's example asks for "A100,V100"; and the other way round, and a kind that is not there."""
    a100, h200 = kinds(w)
    begin(w, way)
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    for name, notes, card in (("use", {"nvidia.com/use-gputype": "A100,V100"}, a100),
                              ("use-other", {"nvidia.com/use-gputype": "h200"}, h200),
                              ("nouse", {"nvidia.com/nouse-gputype": "A100,V100"}, h200)):
        apply(w, pod(name, limits, annotations=notes))
        w.wait_running(name)
        placed_by(w, way, name)
        same(f"the card of {name}", cuda_uuids(w.sees(name)), [card])
        words = held_to(w, name, 3000, (30, 30))
    apply(w, pod("none", limits, annotations={"nvidia.com/use-gputype": "V100"}))
    wait("a card of a kind that is not there to be waited for", lambda: w.waiting("none"))
    gone(w, way, "use", "use-other", "nouse", "none")
    return words


def hami_two(w, way):
    return runs(w, way, pod("gpu-pod", {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}),
                3000, (30, 30), gpus=2)


def volcano_two(w, way):
    return runs(w, way, pod("gpu-pod1", {"volcano.sh/vgpu-number": 2, "volcano.sh/vgpu-memory": 3000,
                                         "volcano.sh/vgpu-cores": 50}, schedulerName="volcano"),
                3000, (50, 50), gpus=2)


def hami_percentage_of_two(w, way):
    """Half of each, whatever their size."""
    begin(w, way)
    a100, h200 = kinds(w)
    seen = {}
    for name, kind in (("half-a100", "A100"), ("half-h200", "H200")):
        apply(w, pod(name, {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50},
                     annotations={"nvidia.com/use-gputype": kind}))
        w.wait_running(name)
        seen.update({d["uuid"]: d["mib"] for d in w.sees(name)["cuda"]})
    same("cards and MiB", seen, {a100: 81920 // 2, h200: 143771 // 2})
    gone(w, way, "half-a100", "half-h200")
    return f"{seen[a100]} MiB of the A100, {seen[h200]} of the H200"


def register():
    for way in OVERLAY:
        for name, function in (("hami", hami), ("hami_percentage", hami_percentage), ("volcano", volcano),
                               ("volcano_card", volcano_card), ("gpushare", gpushare), ("kubeshare", kubeshare),
                               ("all_on_one_card", together), ("less_than_asked", less_than_asked)):
            test(f"dialects.{way}.{name}")(lambda w, f=function, way=way: f(w, way))
        for name, function in (("hami_gputype", hami_type), ("hami_two_gpus", hami_two),
                               ("volcano_two_gpus", volcano_two), ("hami_percentage_of_two", hami_percentage_of_two)):
            test(f"dialects.{way}.{name}")(cards(2, "a100-80g,h200")(lambda w, f=function, way=way: f(w, way)))


register()


# ---- the extender alone: resizes, and nodes that pods prefer

def resized(w, name):
    """The controller's word about the last resize."""
    text = w.get_pod(name)["metadata"]["annotations"].get("sluice.io/resized")
    return json.loads(text) if text else None


def resize(w, name, text):
    """By kubectl, as docs/controller.md says; waits for the outcome."""
    w.cluster.kubectl("annotate", "pod", name, f"gpu.sluice.io/resize={text}" if text else "gpu.sluice.io/resize-",
                      *(["--overwrite"] if text else []))
    return wait(lambda: f"the outcome of {text!r}, it is {resized(w, name)}; " + controller_words(w),
                lambda: (resized(w, name) or {}).get("resize") == text and resized(w, name), 30)


def told(w, name, reason, words):
    return wait(lambda: f"event {reason} \"{words}\" on {name}", lambda: [
        e for e in w.events(reason) if e["involvedObject"]["name"] == name and words in e["message"]], 30)


def shares(w, name, mib, share):
    """The limit in the running container, and the lease in the API server."""
    wait(lambda: f"{name} to have {mib} MiB, it has {w.sees(name)['cuda']}",
         lambda: [d["mib"] for d in w.sees(name)["cuda"]] == [mib], 30)
    wait(lambda: f"{name} to have {share}, it has {cores(w, name)}", lambda: cores(w, name) == share, 30)
    lease = json.loads(w.get_pod(name)["metadata"]["annotations"]["sluice.io/lease"])
    same("the lease", [(g["memoryMiB"], g["cores"]) for c in lease["containers"] for g in c["gpus"]], [(mib, share[0])])


@test("extender.resized_by_annotation")
def resized_by_annotation(w):
    begin(w, "extender")
    apply(w, pod("grows", {"nvidia.com/gpumem": "80000", "nvidia.com/gpucores": "50"}))
    w.wait_running("grows")
    shares(w, "grows", 80000, (50, 50))
    started = w.container("grows")
    apply(w, pod("waits", {"nvidia.com/gpumem": "100000", "nvidia.com/gpucores": "40"}))
    wait("no room for the second pod", lambda: "Unschedulable" in str(w.get_pod("waits")["status"]), 30)
    # Smaller, and the books know: the pod that waited has room now.
    outcome = resize(w, "grows", "memory=20000Mi,cores=20")
    check(outcome["done"], outcome)
    shares(w, "grows", 20000, (20, 20))
    told(w, "grows", "SluiceResized", "memory=20000Mi,cores=20")
    w.wait_running("waits")
    # Back to what it was allocated: that has been promised to another pod meanwhile.
    outcome = resize(w, "grows", "")
    check(not outcome["done"] and "does not have that much free" in outcome["message"], outcome)
    told(w, "grows", "SluiceResizeFailed", "does not have that much free")
    shares(w, "grows", 20000, (20, 20))
    w.delete("waits")
    # More than it was allocated, and words that nobody understands.
    outcome = resize(w, "grows", "memory=90000Mi")
    check(not outcome["done"] and "--resize-free" in outcome["message"], outcome)
    outcome = resize(w, "grows", "memory=much")
    check(not outcome["done"] and "memory=12Gi,cores=40" in outcome["message"], outcome)
    outcome = resize(w, "grows", "memory=60000Mi")
    check(outcome["done"], outcome)
    shares(w, "grows", 60000, (50, 50))
    # On the node nobody changes it behind the controller's back.
    tenant = [n for n, t in tenants(w).items() if t["about"].get("pod") == "grows"]
    done = w.cluster.kubectl(*STATUS, "set", tenant[0], "--memory", "1Gi", check=False)
    check(done.returncode == 1 and "annotate pod grows gpu.sluice.io/resize=memory=1024Mi" in done.stderr, done)
    same("its container", w.container("grows"), started)  # nothing started again
    gone(w, "extender", "grows")


def fake_node(w, name, labels):
    """A node without a kubelet: enough for a scheduler."""
    gpus = [{"uuid": f"GPU-{name}", "memoryMiB": 143771, "cores": 100, "model": "NVIDIA H200", "numa": 0, "healthy": True}]
    w.api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {
        "name": name, "labels": {"kubernetes.io/hostname": name, **labels}, "annotations": {"sluice.io/gpus": json.dumps(gpus)}}})
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "100", "nvidia.com/gpu": "10"}
    w.api.patch(f"/api/v1/nodes/{name}/status", {"status": {"capacity": amounts, "allocatable": amounts}})


def near(w, name, affinity):
    apply(w, pod(name, {"nvidia.com/gpumem": "60000", "nvidia.com/gpucores": "40"}, tolerations=[{"operator": "Exists"}],
                 **({"affinity": {"nodeAffinity": affinity}} if affinity else {})))
    return wait(lambda: f"a node for {name}: {w.why(name)}", lambda: w.get_pod(name)["spec"].get("nodeName"), 60)


@test("extender.near_its_data")
def near_its_data(w):
    """Labels and affinity as Fluid writes them (examples/fluid.yaml)."""
    begin(w, "extender")
    own = w.cluster.node()["metadata"]["name"]
    zone = "topology.kubernetes.io/zone"
    fake_node(w, "cache", {"fluid.io/s-default-imagenet": "true", "fluid.io/s-alluxio-default-imagenet": "true",
                           "fluid.io/dataset-num": "1", zone: "zone-a"})
    fake_node(w, "zone", {zone: "zone-a"})
    wanted = {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "preference": {"matchExpressions": [
            {"key": "fluid.io/s-default-imagenet", "operator": "In", "values": ["true"]}]}},
        {"weight": 50, "preference": {"matchExpressions": [{"key": zone, "operator": "In", "values": ["zone-a"]}]}}]}
    away = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "preference": {"matchExpressions": [
        {"key": "fluid.io/dataset-num", "operator": "DoesNotExist"}]}}]}
    try:
        same("the pods with the dataset: two fit beside the cache, then the zone", [near(w, f"data{i}", wanted) for i in range(3)],
             ["cache", "cache", "zone"])
        check(near(w, "other", away) in (own, "zone"), "a pod without a dataset went to the cache")
        w.api.delete(f"{PODS}/data0", 0)
        check(near(w, "other2", away) in (own, "zone"), "a pod without a dataset went to the cache")
        same("the next one with the dataset", near(w, "data3", wanted), "cache")
    finally:
        for p in w.api.get(PODS)["items"]:
            w.api.delete(f"{PODS}/{p['metadata']['name']}", 0)
        for node in ("cache", "zone"):
            w.api.delete(f"/api/v1/nodes/{node}")
    wait("the pods to be gone", lambda: not w.api.get(PODS)["items"], 60)


def advice(w):
    """`sluice simulate --live` with the administrator's kubeconfig."""
    kubectl = w.cluster.programs["kubectl"]
    env = dict(os.environ, PATH=f"{os.path.dirname(kubectl)}:{os.environ['PATH']}")
    got = subprocess.run([os.path.join(images.BUILD, "bin", "sluice"), "simulate", "--live", "--json", "--kubeconfig",
                          w.cluster.kubeconfig], capture_output=True, text=True, check=False, env=env)
    check(got.returncode == 0, f"sluice simulate --live: {got.stderr}")
    return json.loads(got.stdout)


@test("extender.advice_frees_a_card")
def advice_frees_a_card(w):
    """Two nodes, a replica on each. The advice names the one move that frees a card, and nothing is evicted."""
    begin(w, "extender")
    own = w.cluster.node()["metadata"]["name"]
    sets = "/apis/apps/v1/namespaces/default/replicasets"
    for node in ("left", "right"):
        fake_node(w, node, {})
    ready_now = [{"type": "Ready", "status": "True", "lastHeartbeatTime": None}]
    try:
        for node in ("left", "right"):
            template = pod("x", {"nvidia.com/gpumem": "60000", "nvidia.com/gpucores": "40"}, labels={"app": node},
                           tolerations=[{"operator": "Exists"}], affinity={"nodeAffinity": {
                               "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {
                                   "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}}]}})
            w.api.create(sets, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": node}, "spec": {
                "replicas": 1, "selector": {"matchLabels": {"app": node}},
                "template": {"metadata": {"labels": {"app": node}}, "spec": template["spec"]}}})
        pods = wait("both replicas to be placed", lambda: [
            p for p in w.api.get(PODS)["items"] if p["spec"].get("nodeName") in ("left", "right")][1:] and w.api.get(PODS)["items"], 60)
        same("their nodes", sorted(p["spec"]["nodeName"] for p in pods), ["left", "right"])
        for p in pods:
            w.api.patch(f"{PODS}/{p['metadata']['name']}/status", {"status": {"phase": "Running"}})
        for node in ("left", "right"):  # no kubelet says so here
            w.api.patch(f"/api/v1/nodes/{node}/status", {"status": {"conditions": ready_now}})
        got = advice(w)
        same("cards, whole before and after", (got["cards"], got["whole_before"], got["whole_after"], got["best"]),
             (3, 1, 2, True))
        move, = got["moves"]
        check(move["pod"] in [p["metadata"]["name"] for p in pods] and {move["from"]["node"]} <= {"left", "right"}, move)
        same("what it frees", [f["node"] for f in got["freed"]], [move["from"]["node"]])
        names = {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods}
        same("the pods after the advice", {p["metadata"]["name"]: p["metadata"]["uid"] for p in w.api.get(PODS)["items"]}, names)
        return f"one move, {move['from']['node']} to {move['to']['node']} (own node {own}), frees a card; nothing was evicted"
    finally:
        for node in ("left", "right"):
            w.api.delete(f"{sets}/{node}")
        for p in w.api.get(PODS)["items"]:
            w.api.delete(f"{PODS}/{p['metadata']['name']}", 0)
        for node in ("left", "right"):
            w.api.delete(f"/api/v1/nodes/{node}")
        wait("the pods to be gone", lambda: not w.api.get(PODS)["items"], 60)


@test("dialects.nothing_left")
def left(w):
    end(w)
    same("the webhook", w.api.get(WEBHOOK), None)
