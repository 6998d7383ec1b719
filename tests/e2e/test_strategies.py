# SPDX-License-Identifier: Apache-2.0
"""The walk-through of every guide to sharing GPUs: whole, time-sliced, MPS, MIG, on one node."""
import time

from cluster import Api
from world import AGENTS, NODE, bare, cards, check, cuda_uuids, ready, same, test, wait

GPU = "nvidia.com/gpu"


def one_card(w, pod):
    """The pod has exactly the node's card, by CUDA and by NVML."""
    view = w.sees(pod)
    same(f"CUDA's devices in {pod}", cuda_uuids(view), [bare(w.cards[0])])
    same(f"NVML's devices in {pod}", view["nvml"], [{"uuid": w.cards[0], "mig": []}])


def one_mig(w, pod):
    """The pod has exactly one MIG device, the same by CUDA and by NVML; returns it."""
    view = w.sees(pod)
    same(f"number of CUDA devices in {pod}", len(view["cuda"]), 1)
    migs = [m for card in view["nvml"] for m in card["mig"]]
    same(f"MIG devices in {pod}", [bare(m) for m in migs], cuda_uuids(view))
    return view["cuda"][0]


@test("default.one_runs_one_waits")
def default(w):
    w.apply("default")
    w.agent()
    w.wait_allocatable({GPU: 1})
    w.wait_labels(gpu_count="1", gpu_replicas="1", gpu_sharing__strategy="none", gpu_product="NVIDIA-H200",
                  gpu_memory="143771", gpu_family="hopper")
    w.pod("one", GPU)
    w.wait_running("one")
    w.pod("two", GPU)
    wait("the second pod to be found no place", lambda: w.waiting("two"))
    one_card(w, "one")
    same("the second pod", w.get_pod("two")["status"]["phase"], "Pending")


@test("default.a_pod_without_a_request_sees_nothing")
def without(w):
    w.use("default")
    w.pod("bystander", command=("sleep", "1000"))
    w.wait_running("bystander")
    same("the driver in a pod that asked for none", w.sees("bystander"), {"no_driver": True})
    w.delete("bystander")


@test("time-sliced-2.both_run_and_the_agent_stays")
def time_sliced(w):
    w.use("default")
    w.keep_pod("one", GPU)
    w.wait_running("one")
    w.keep_pod("two", GPU)
    agent, before = w.agent(), w.container("one")
    w.apply("time-sliced-2")
    w.wait_allocatable({GPU: 2})
    w.wait_running("one", "two")
    w.wait_labels(gpu_count="1", gpu_replicas="2", gpu_sharing__strategy="time-slicing",
                  gpu_product="NVIDIA-H200-SHARED")
    one_card(w, "one")
    one_card(w, "two")
    same("the first pod's container", w.container("one"), before)
    after = w.agent()
    same("the agent's pod", after["metadata"]["uid"], agent["metadata"]["uid"])
    same("the agent's restarts", after["status"]["containerStatuses"][0]["restartCount"], 0)


@test("time-sliced-4.grows_in_place")
def time_sliced_four(w):
    w.use("time-sliced-2")
    w.keep_pod("one", GPU)
    w.keep_pod("two", GPU)
    w.wait_running("one", "two")
    agent, before = w.agent(), [w.container("one"), w.container("two")]
    w.apply("time-sliced-4")
    w.wait_allocatable({GPU: 4})
    w.pod("three", GPU)
    w.wait_running("three")
    w.wait_labels(gpu_replicas="4", gpu_sharing__strategy="time-slicing")
    same("the pods that ran already", [w.container("one"), w.container("two")], before)
    same("the agent's pod", w.agent()["metadata"]["uid"], agent["metadata"]["uid"])
    w.delete("three")


@test("config.a_bad_one_changes_nothing")
def bad_config(w):
    w.use("time-sliced-4")
    w.wait_allocatable({GPU: 4})
    uid = w.agent()["metadata"]["uid"]
    w.api.patch("/api/v1/namespaces/sluice-system/configmaps/sluice-config", {"data": {
        "config.yaml": "version: v1\nsharing:\n  timeSlicing:\n    resources:\n"
                       "    - {name: nvidia.com/gpu, replicsa: 8}\n"}})
    event = wait("an event about the bad file",
                 lambda: [e for e in w.events("ConfigRefused") if "replicas" in e["message"]])
    check("config.yaml:5" in event[0]["message"], f"the event does not say where: {event[0]['message']}")
    same("allocatable", w.allocatable(), {GPU: 4})
    same("the agent's pod", w.agent()["metadata"]["uid"], uid)


@test("default.back_again")
def back(w):
    w.use("time-sliced-4")
    w.keep_pod("one", GPU)
    w.wait_running("one")
    agent, before = w.agent(), w.container("one")
    w.apply("default")
    w.wait_allocatable({GPU: 1})
    w.wait_labels(gpu_replicas="1", gpu_sharing__strategy="none", gpu_product="NVIDIA-H200")
    same("a pod that runs on", w.container("one"), before)
    same("the agent's pod", w.agent()["metadata"]["uid"], agent["metadata"]["uid"])
    w.delete("one", "two")


@test("config.chosen_by_the_nodes_label")
def by_label(w):
    """NVIDIA's config manager's way: a ConfigMap of several files, of which the Node's label names one."""
    shared = ("version: v1\nflags: {plugin: {deviceListStrategy: cdi-cri}}\nsharing: {timeSlicing: {resources: "
              "[{name: nvidia.com/gpu, replicas: 3}]}}\n")
    w.apply("default", namespace="sluice-system", generatorOptions={"disableNameSuffixHash": True},
            configMapGenerator=[{"name": "sluice-config", "behavior": "merge", "literals": ["shared=" + shared]}],
            components=w.components("config-by-label"))
    uid = w.agent()["metadata"]["uid"]
    w.wait_allocatable({GPU: 1})
    w.cluster.kubectl("label", "node", NODE, "nvidia.com/device-plugin.config=shared")
    w.wait_allocatable({GPU: 3})
    with open("/var/lib/sluice/config-label", encoding="ascii") as f:
        same("the label that is remembered", f.read(), "shared")
    w.cluster.kubectl("label", "node", NODE, "nvidia.com/device-plugin.config=nonsense", "--overwrite")
    wait("an event about the label", lambda: [e for e in w.events("ConfigRefused") if "nonsense" in e["message"]])
    same("allocatable with a label that names nothing", w.allocatable(), {GPU: 3})
    w.cluster.kubectl("label", "node", NODE, "nvidia.com/device-plugin.config-")
    w.wait_allocatable({GPU: 1})
    same("the agent's pod", w.agent()["metadata"]["uid"], uid)


@test("rbac.an_agent_changes_its_own_node_only")
def rbac(w):
    w.apply("default")
    agent = w.agent()["metadata"]["name"]
    token = w.cluster.kubectl("create", "token", "sluiced", "-n", "sluice-system", "--bound-object-kind=Pod",
                              "--bound-object-name=" + agent).strip()
    me = Api(w.api.host, w.cluster.ca, token)
    w.api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}, "spec": {
        "taints": [{"key": "e2e", "effect": "NoSchedule"}]}})  # no agent for it
    patch = {"metadata": {"labels": {"nvidia.com/e2e": "true"}}}
    kind = "application/merge-patch+json"
    wait("the policy to hold", lambda: me.call("PATCH", "/api/v1/nodes/other", patch, kind)[0] in (403, 422), 20)
    same("its own node", me.call("PATCH", "/api/v1/nodes/" + NODE, patch, kind)[0], 200)
    for method, path in (("GET", "/api/v1/secrets"), ("GET", "/api/v1/pods"), ("DELETE", "/api/v1/nodes/other"),
                         ("GET", "/api/v1/namespaces/sluice-system/configmaps")):
        same(f"{method} {path}", me.call(method, path)[0], 403)
    w.api.patch("/api/v1/nodes/" + NODE, {"metadata": {"labels": {"nvidia.com/e2e": None}}})
    w.api.delete("/api/v1/nodes/other")


# What Node Feature Discovery brings: the kind of object, as far as labels go.
NODE_FEATURE = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "nodefeatures.nfd.k8s-sigs.io",
                 "annotations": {"api-approved.kubernetes.io": "https://example.com/a-test"}},
    "spec": {"group": "nfd.k8s-sigs.io", "scope": "Namespaced",
             "names": {"kind": "NodeFeature", "plural": "nodefeatures", "singular": "nodefeature"},
             "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                 "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}


@test("labels.by_a_node_feature")
def node_feature(w):
    """With the component, and with no other rights than its: the object has the labels, and the Node keeps its own."""
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    features = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/sluice-system/nodefeatures"
    w.use("default")
    w.wait_labels(gpu_count="1")
    w.api.create(crds, NODE_FEATURE)
    wait("the kind to be served", lambda: w.api.call("GET", features)[0] == 200, 30)
    w.apply("default", components=w.components("node-feature"))
    w.agent()
    found = wait("the node's object", lambda: w.api.get(f"{features}/sluice-features-for-{NODE}"), 30)
    same("the object's count of GPUs", found["spec"]["labels"].get("nvidia.com/gpu.count"), "1")
    same("the object's node", found["metadata"]["labels"]["nfd.node.kubernetes.io/node-name"], NODE)
    wait("the Node's labels to be given up", lambda: "sluice.io/owned-labels" not in
         w.cluster.node()["metadata"].get("annotations", {}), 30)
    same("the Node's count of GPUs", w.labels().get("nvidia.com/gpu.count"), "1")
    w.apply("default")
    w.agent()
    w.api.delete(f"{crds}/{NODE_FEATURE['metadata']['name']}")


@test("metrics.count_what_is_in_use")
def metrics(w):
    w.use("default")
    w.pod("measured", GPU)
    w.wait_running("measured")
    same("/healthz", w.agent_get("/healthz").strip()[:2], "ok")
    for line in ('sluice_shares_in_use{resource="nvidia.com/gpu"} 1', 'sluice_source_up{source="podresources"} 1',
                 "sluice_node_labels_current 1"):
        wait(lambda l=line: f"{l} in\n{w.agent_get('/metrics')}", lambda l=line: l in w.agent_get("/metrics"), 20,
             every=1)
    w.delete("measured")


@test("mps-4.four_pods_with_a_quarter_each")
def mps(w):
    w.apply("mps-4")
    w.agent()
    w.wait_allocatable({GPU: 4})
    w.wait_labels(gpu_replicas="4", gpu_sharing__strategy="mps", gpu_product="NVIDIA-H200-SHARED", mps_capable="true")
    names = ["mps-1", "mps-2", "mps-3", "mps-4"]
    for name in names:
        w.pod(name, GPU)
    w.wait_running(*names)
    w.pod("mps-5", GPU)
    wait("the fifth pod to be found no place", lambda: w.waiting("mps-5"))
    for name in names:
        one_card(w, name)
    full = w.sees("mps-1", "fill")
    check(0 < full["filled_mib"] <= 143771 // 4, f"a quarter of 143771 MiB is not what it got: {full}")
    pipe = w.exec("mps-1", "sh", "-c", "echo $CUDA_MPS_PIPE_DIRECTORY").strip()
    same("the pipe directory in the pod", pipe, f"/run/nvidia/mps/{w.cards[0]}/pipe")
    w.delete(*names, "mps-5")


@test("mps-2.fewer_shares_in_place")
def mps_two(w):
    w.use("mps-4")
    agent = w.agent()
    w.apply("mps-2")
    w.wait_allocatable({GPU: 2})
    w.wait_labels(gpu_replicas="2", gpu_sharing__strategy="mps")
    w.pod("half", GPU)
    w.wait_running("half")
    one_card(w, "half")
    same("the agent's pod", w.agent()["metadata"]["uid"], agent["metadata"]["uid"])
    w.delete("half")


@test("mps.without_its_component_is_not_ready")
def mps_unserved(w):
    """The file of a node that shared by MPS elsewhere, on manifests that cannot."""
    w.clean()
    w.apply("default")
    w.agent()
    w.wait_allocatable({GPU: 1})
    w.api.patch("/api/v1/namespaces/sluice-system/configmaps/sluice-config", {"data": {
        "config.yaml": "version: v1\nsharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 4}\n"}})
    wait("the agent not to be ready", lambda: not any(map(ready, w.api.get(AGENTS)["items"])))
    event = wait("an event on the Node", lambda: [e for e in w.events("MPSFailed")
                                                  if e["involvedObject"]["kind"] == "Node" and "components/mps" in e["message"]])
    same("allocatable", w.allocatable(), {})
    w.apply("default")
    w.wait_allocatable({GPU: 1})
    w.agent()
    return f"\"{event[0]['message']}\""


@test("mig-single.seven_alike")
def mig_single(w):
    w.apply("default")
    w.agent()
    w.sim("mig", "0", *["1g.18gb"] * 7)
    w.apply("mig-single")
    w.agent()
    w.wait_allocatable({GPU: 7})
    w.wait_labels(gpu_count="7", gpu_product="NVIDIA-H200-MIG-1g.18gb", mig_strategy="single",
                  gpu_slices_gi="1", gpu_replicas="1")
    names = [f"mig-{i}" for i in range(1, 8)]
    for name in names:
        w.pod(name, GPU)
    w.wait_running(*names)
    seen = [one_mig(w, name) for name in names]
    same("different MIG devices", len({d["uuid"] for d in seen}), 7)
    check(all(16000 <= d["mib"] <= 18432 for d in seen), f"their memory: {seen}")
    w.delete(*names)


@test("mig-single.a_card_left_out_is_an_event")
@cards(2, "a100-80g,h200")
def left_out(w):
    """An A100 with instances and an H200 without under `single`: the Node says that the H200 is not offered."""
    w.clean()
    w.sim("mig", "0", *["1g.10gb"] * 2)
    w.apply("mig-single")
    w.agent()
    w.wait_allocatable({GPU: 2})
    event = wait("an event on the Node", lambda: [e for e in w.events("ConfigWarning") if "GPU 1 " in e["message"]])
    w.clean()
    w.apply("default")
    w.agent()
    return f"\"{event[0]['message']}\""


@test("mig-mixed.by_profile")
def mig_mixed(w):
    w.sim("mig", "0", "3g.71gb", "1g.18gb", "1g.18gb")
    w.apply("mig-mixed")
    w.agent()
    w.wait_allocatable({"nvidia.com/mig-3g.71gb": 1, "nvidia.com/mig-1g.18gb": 2})
    w.wait_labels(mig_strategy="mixed", **{"mig__3g.71gb_count": "1", "mig__1g.18gb_count": "2",
                                           "mig__3g.71gb_slices_gi": "3"})
    w.pod("large", "nvidia.com/mig-3g.71gb")
    w.pod("small", "nvidia.com/mig-1g.18gb")
    w.pod("whole", GPU)
    w.wait_running("large", "small")
    large, small = one_mig(w, "large"), one_mig(w, "small")
    check(large["mib"] > 3 * small["mib"], f"the large one is not larger: {large}, {small}")
    wait("a pod that wants a whole card to be found no place", lambda: w.waiting("whole"))
    w.delete("large", "small", "whole")


@test("mig-mixed.instances_come_and_go")
def mig_changes(w):
    w.use("mig-mixed")
    uid = w.agent()["metadata"]["uid"]
    start = time.monotonic()
    w.sim("mig", "0", "1g.18gb")
    w.wait_allocatable({"nvidia.com/mig-1g.18gb": 1})
    seconds = time.monotonic() - start
    same("the agent's pod", w.agent()["metadata"]["uid"], uid)
    w.sim("mig", "0", "off")
    w.wait_allocatable({GPU: 1})
    return f"noticed after {seconds:.1f} s"
