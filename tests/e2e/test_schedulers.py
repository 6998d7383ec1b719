# SPDX-License-Identifier: Apache-2.0
"""A second kube-scheduler beside the cluster's own, as on managed control planes (deploy/controller/second-scheduler).

The manifests are applied as they are. The cluster has no kube-proxy, so the address of the extender in the scheduler's ConfigMap
is then replaced by that of the leading pod. The image of kube-scheduler is made from the program that the cluster itself runs.
Most nodes of the large tests are Node objects alone, with what an agent writes on them: pods are placed and bound there, and
never started. What holds is judged by an auditor that reads the API server and nothing else."""
import json
import time

import images
from test_dialects import (CONTROLLERS, admits, apply, controller_words, controllers, deploy_folder, gone, held_to, leader, pod,
                           scheduler_config)
from test_dialects import end as end_dialects
from world import PODS, check, ready, same, test, wait

GPU = "nvidia.com/gpu"
NAME = "sluice-scheduler"
SYSTEM = "/api/v1/namespaces/sluice-system"
SCHEDULERS = f"{SYSTEM}/pods?labelSelector=app.kubernetes.io%2Fname%3D{NAME}"
DEPLOYMENT = f"/apis/apps/v1/namespaces/sluice-system/deployments/{NAME}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/sluice-system/leases/{NAME}"
ACCOUNT = f"system:serviceaccount:sluice-system:{NAME}"
PAST = "past-the-webhook"
CARD_MIB = 81920
TAINT = {"key": "sluice.io/e2e", "value": "objects-only", "effect": "NoSchedule"}


# ---- the second scheduler

def replicas(w):
    """The Deployment's two pods, once both are ready and no older one is left."""
    status = w.api.get(DEPLOYMENT)
    pods = w.api.get(SCHEDULERS)["items"]
    rolled = status["status"].get("observedGeneration") == status["metadata"]["generation"]
    current = status["status"].get("updatedReplicas") == 2
    return pods if rolled and current and len(pods) == 2 and all(ready(p) for p in pods) else None


def words(w):
    done = w.cluster.kubectl("-n", "sluice-system", "logs", f"deployment/{NAME}", "--tail=5", check=False)
    return (done.stdout or done.stderr).strip()


def point_to_leader(w):
    """No kube-proxy: the extender's name in the ConfigMap becomes the leading pod's address, and the schedulers start again."""
    wait(lambda: "a leader: " + controller_words(w), lambda: leader(w), 60, every=0.3)
    path = f"{SYSTEM}/configmaps/{NAME}"
    text = w.api.get(path)["data"]["config.yaml"]
    url = f"https://{leader(w)['status']['podIP']}:8443"
    line = [x for x in text.splitlines() if "urlPrefix:" in x][0]
    w.api.patch(path, {"data": {"config.yaml": text.replace(line, f"- urlPrefix: {url}")}})
    w.cluster.kubectl("-n", "sluice-system", "rollout", "restart", f"deployment/{NAME}")
    wait(lambda: "two replicas of the second scheduler: " + words(w), lambda: replicas(w), 120, every=0.5)
    wait("a leader among the schedulers", lambda: holder(w), 60)


def holder(w):
    """The pod that holds the schedulers' Lease."""
    lease = w.api.get(LEASE)
    who = lease and lease["spec"].get("holderIdentity", "").split("_")[0]
    return who if any(p["metadata"]["name"] == who for p in w.api.get(SCHEDULERS)["items"]) else None


def begin(w):
    if getattr(w, "second", False) and w.overlay == "fractional":
        return
    end_dialects(w)
    w.begun = None
    w.clean()
    w.cluster.import_image(images.scheduler(w.cluster.work, w.cluster.programs["kube-scheduler"]))
    w.apply("fractional")
    w.agent()
    w.wait_allocatable({GPU: 10})
    w.second = True
    w.cluster.kubectl("apply", "-k", deploy_folder("second-scheduler"))
    wait(lambda: "the controller's two replicas: " + controller_words(w), lambda: controllers(w), 90, every=0.3)
    wait(lambda: "pods to go through the webhook: " + controller_words(w), lambda: admits(w), 60, every=0.5)
    point_to_leader(w)


def rights(w):
    """{(verb, group/resource)} that its roles give, and {...: answers} of what it did, by the API server's audit log."""
    given, done = set(), {}
    base = "/apis/rbac.authorization.k8s.io/v1"
    for path in (f"{base}/clusterroles/{NAME}", f"{base}/namespaces/sluice-system/roles/{NAME}"):
        for rule in w.api.get(path)["rules"]:
            given |= {(v, f"{g}/{r}") for v in rule["verbs"] for g in rule["apiGroups"] for r in rule["resources"]}
    with open(w.cluster.audit_log, encoding="utf-8") as f:
        for event in map(json.loads, f):
            what = event.get("objectRef") or {}
            if event["user"]["username"] == ACCOUNT and "resource" in what:
                name = "/".join(filter(None, (what["resource"], what.get("subresource"))))
                done.setdefault((event["verb"], f"{what.get('apiGroup', '')}/{name}"), set()).add(
                    event.get("responseStatus", {}).get("code"))
    return given, done


@test("schedulers.marked_pods_go_to_the_second")
def marked(w):
    """A pod that asks for a share goes to the second scheduler, whatever its dialect; a pod that asks for none to the first."""
    begin(w)
    apply(w, pod("share", {GPU: 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}),
          pod("volcano", {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 4000}, schedulerName="volcano"), pod("plain"))
    w.wait_running("share", "volcano", "plain")
    by = {n: w.get_pod(n)["spec"]["schedulerName"] for n in ("share", "volcano", "plain")}
    same("schedulers", by, {"share": NAME, "volcano": NAME, "plain": "default-scheduler"})
    said = {e["involvedObject"]["name"]: e.get("reportingComponent") or e["source"].get("component") for e in w.events("Scheduled")}
    same("who says that it placed them", {n: said.get(n) for n in by}, by)
    note = held_to(w, "share", 3000, (30, 30))
    w.delete("plain")
    gone(w, "extender", "share", "volcano")
    return note


@test("schedulers.the_second_has_the_rights_it_uses")
def enough(w):
    """Nothing is refused to it, it cannot bind, and what it never used here is what pods with volumes and priorities need."""
    begin(w)
    given, done = rights(w)
    check(done, "the audit log has nothing of the second scheduler")
    refused = sorted(r for r, codes in done.items() if 403 in codes)
    same("what it was refused", refused, [])
    check(("create", "/pods/binding") not in given, "it may bind pods by itself")
    rare = {("delete", "/pods"), ("update", "/persistentvolumeclaims"), ("update", "/persistentvolumes"),
            ("patch", "/events"), ("update", "/events"), ("create", "/events")}
    spare = sorted(x for x in given - set(done) - rare if x[0] not in ("get", "patch", "update"))
    same("rights that nothing used", spare, [])
    return f"{len(given)} rights, {len(done)} used"


@test("schedulers.another_leads_when_the_leader_dies")
def another(w):
    begin(w)
    first = wait("a leader", lambda: holder(w), 30)
    w.cluster.kubectl("-n", "sluice-system", "delete", "pod", first, "--grace-period=0", "--force")
    second = wait("another leader", lambda: (holder(w) or first) != first and holder(w), 60)
    apply(w, pod("after", {GPU: 1, "nvidia.com/gpumem": 2000}))
    w.wait_running("after")
    same("its scheduler", w.get_pod("after")["spec"]["schedulerName"], NAME)
    gone(w, "extender", "after")
    return f"{first}, then {second}"


@test("schedulers.a_new_authority_starts_it_again")
def authority(w):
    """The extender gets a certificate of another authority: the second scheduler reads it without anybody's help."""
    begin(w)

    def told():
        return w.api.get(DEPLOYMENT)["spec"]["template"]["metadata"].get("annotations", {}).get("sluice.io/authority")
    before = wait("the scheduler's pods to name the authority", told, 30)
    old = w.api.get(f"{SYSTEM}/secrets/sluice-controller-tls")["data"]["ca.crt"]
    w.cluster.kubectl("-n", "sluice-system", "scale", "deployment/sluice-controller", "--replicas=0")
    wait("no controller", lambda: not w.api.get(CONTROLLERS)["items"], 60)
    w.api.delete(f"{SYSTEM}/secrets/sluice-controller-tls")
    w.cluster.kubectl("-n", "sluice-system", "scale", "deployment/sluice-controller", "--replicas=2")
    wait(lambda: "the controller's two replicas: " + controller_words(w), lambda: controllers(w), 90, every=0.3)
    check(w.api.get(f"{SYSTEM}/secrets/sluice-controller-tls")["data"]["ca.crt"] != old, "the authority is the old one")
    wait("another authority in the scheduler's pods", lambda: told() != before, 60)
    wait("pods to go through the webhook", lambda: admits(w), 60, every=0.5)
    point_to_leader(w)
    apply(w, pod("after", {GPU: 1, "nvidia.com/gpumem": 2000}))
    w.wait_running("after")
    gone(w, "extender", "after")


# ---- many pods, on nodes that are objects

def make_node(w, name, cards, shares):
    """As an agent leaves a Node with so many cards: with shares, or with whole cards."""
    gpus = [{"uuid": f"GPU-{name}-{i}", "memoryMiB": CARD_MIB, "cores": 100, "model": "NVIDIA H100 80GB HBM3", "numa": i // 8,
             "healthy": True} for i in range(cards)]
    w.api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "spec": {"taints": [TAINT]}, "metadata": {
        "name": name, "labels": {"kubernetes.io/hostname": name, "e2e-cards": "shared" if shares else "whole"},
        "annotations": {"sluice.io/gpus": json.dumps(gpus)} if shares else {}}})
    room = {"cpu": "400", "memory": "2000Gi", "pods": "2000", GPU: str(cards * (10 if shares else 1))}
    status, answer = w.api.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"capacity": room, "allocatable": room}},
                                "application/merge-patch+json")
    check(status == 200, f"{name}: {answer.get('message')}")


def load(name, limits=None, where="shared", **spec):
    made = pod(name, limits, labels={"e2e": "many"}, nodeSelector={"e2e-cards": where},
               tolerations=[{"operator": "Exists"}], **spec)
    made["spec"]["containers"][0]["resources"].setdefault("requests", {})["cpu"] = "10m"
    return made


def share_of(i):
    """Ten of them fill a card's memory, whatever their share of the time."""
    return {GPU: 1, "nvidia.com/gpumem": CARD_MIB // 10, "nvidia.com/gpucores": (10, 5, 0)[i % 3]}


def many(w):
    return w.api.get("/api/v1/pods?labelSelector=e2e%3Dmany")["items"]


def slots(p):
    return sum(int(c["resources"].get("limits", {}).get(GPU, 0)) for c in p["spec"]["containers"])


def audit(w):
    """Reads the API server alone. Every card: no more memory and time promised than it has. Every node: no more devices than its
    device plugin has. A pod without a promise is on no node with shared cards. Returns how many pods have a node."""
    nodes = {n["metadata"]["name"]: n for n in w.api.get("/api/v1/nodes")["items"]}
    memory, cores, devices, placed = {}, {}, {}, 0
    for p in many(w):
        name, on = p["metadata"]["name"], p["spec"].get("nodeName")
        if not on:
            continue
        placed += 1
        devices[on] = devices.get(on, 0) + slots(p)
        cards = json.loads(nodes[on]["metadata"].get("annotations", {}).get("sluice.io/gpus", "[]"))
        promise = p["metadata"].get("annotations", {}).get("sluice.io/lease")
        if not promise:
            check(not slots(p) or not cards, f"{name} has {slots(p)} devices of {on}, whose cards are shared, and no promise")
            continue
        lease = json.loads(promise)
        same(f"the node of {name}", lease["node"], on)
        given = [g for c in lease["containers"] for g in c["gpus"]]
        same(f"GPUs of {name}", len(given), slots(p))
        for g in given:
            check(g["uuid"] in {c["uuid"] for c in cards}, f"{name} on {on} has {g['uuid']}, which is not there")
            memory[g["uuid"]] = memory.get(g["uuid"], 0) + g["memoryMiB"]
            cores[g["uuid"]] = cores.get(g["uuid"], 0) + g["cores"]
    over = {u: m for u, m in memory.items() if m > CARD_MIB} | {u: c for u, c in cores.items() if c > 100}
    over |= {n: d for n, d in devices.items() if d > int(nodes[n]["status"]["allocatable"].get(GPU, 0))}
    check(not over, f"over-committed: {over}")
    return placed, sum(m == CARD_MIB for m in memory.values())


def place(w, first, second, total):
    """Creates pods of both schedulers in turn, and audits while they are placed; what the auditor saw."""
    audits = 0
    try:
        for i in range(max(len(first), len(second))):
            for space, some in ((PAST, first), ("default", second)):
                if i < len(some):
                    w.api.create(f"/api/v1/namespaces/{space}/pods", some[i])
            if i % 25 == 0:
                audit(w)
                audits += 1
        end = time.monotonic() + 240
        while audit(w)[0] < total:
            audits += 1
            check(time.monotonic() < end, f"{audit(w)[0]} of {total} pods are placed; one that waits: " + json.dumps(
                [p["status"].get("conditions") for p in many(w) if not p["spec"].get("nodeName")][:1]) + words(w))
            time.sleep(0.3)
        by = {}
        for p in many(w):
            by[p["spec"]["schedulerName"]] = by.get(p["spec"]["schedulerName"], 0) + 1
        return by, audits, audit(w)[1]
    finally:
        for space in (PAST, "default"):
            w.cluster.kubectl("-n", space, "delete", "pods", "-l", "e2e=many", "--grace-period=0", "--force", check=False)
        wait("the pods to be gone", lambda: not many(w), 60)


def with_nodes(w, nodes, function):
    """function() with these Node objects and a namespace that the webhook leaves alone, and without them after it."""
    w.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": PAST, "labels": {"hami.io/webhook": "ignore"}}})
    try:
        for name, cards, shares in nodes:
            make_node(w, name, cards, shares)
        wait("the namespace's service account", lambda: w.api.get(f"/api/v1/namespaces/{PAST}/serviceaccounts/default"))
        return function()
    finally:
        for name, _, _ in nodes:
            w.api.delete(f"/api/v1/nodes/{name}")
        w.cluster.kubectl("delete", "namespace", PAST, "--wait=true", check=False)


@test("schedulers.first_beside_second_500_pods")
def beside(w):
    """A managed control plane: the first scheduler knows no extender. It places pods without a GPU on the nodes with shares, and
    whole cards on others, while the second one fills 40 cards with 400 shares to the last MiB."""
    begin(w)
    nodes = [(f"shared-{i}", 8, True) for i in range(5)] + [(f"whole-{i}", 8, False) for i in range(5)]
    first = [load(f"cpu-{i}") if i % 5 < 3 else load(f"whole-{i}", {GPU: 1}, "whole") for i in range(100)]
    second = [load(f"share-{i}", share_of(i)) for i in range(400)]
    by, audits, full = with_nodes(w, nodes, lambda: place(w, first, second, 500))
    same("pods by scheduler", by, {"default-scheduler": 100, NAME: 400})
    same("full cards", full, 40)
    return f"{by}; {full} cards full, none over; {audits} audits on the way"


@test("schedulers.both_with_the_extender_500_pods")
def both(w):
    """Where the first scheduler has the extender too: both give shares of the same 50 cards, out of one book."""
    begin(w)
    w.cluster.start_scheduler(scheduler_config(w))
    try:
        nodes = [(f"shared-{i}", 10, True) for i in range(5)]
        first = [load(f"past-{i}", share_of(i)) for i in range(250)]
        second = [load(f"share-{i}", share_of(i)) for i in range(250)]
        by, audits, full = with_nodes(w, nodes, lambda: place(w, first, second, 500))
    finally:
        w.cluster.start_scheduler()
    same("pods by scheduler", by, {"default-scheduler": 250, NAME: 250})
    same("full cards", full, 50)
    return f"{by}; {full} cards full, none over; {audits} audits on the way"


@test("schedulers.nothing_left")
def left(w):
    """The overlay goes as it came."""
    if not getattr(w, "second", False):
        return
    w.clean()
    w.cluster.kubectl("delete", "-k", deploy_folder("second-scheduler"), "--wait=true")
    w.second = False
    wait("no scheduler", lambda: not w.api.get(SCHEDULERS)["items"], 60)
    wait("no controller", lambda: not w.api.get(CONTROLLERS)["items"], 60)
    same("its role", w.api.get(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}"), None)
