#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2030,SC2031 # each test has its own PATH
# `sluice simulate --live`, over a kubectl that answers from files.
load common

setup() {
    common_setup
    mkdir "$PLACE/bin" "$PLACE/answers"
    cat >"$PLACE/bin/kubectl" <<'SCRIPT'
#!/bin/sh
place=$(dirname "$(dirname "$0")")
echo "$*" >>"$place/asked"
while :; do case $1 in --kubeconfig | --context) shift 2 ;; *) break ;; esac; done
if [ "$1" = config ]; then exit 0; fi
file="$place/answers/$(printf %s "$3" | tr / _)"
[ -e "$file" ] || { echo 'Error from server (NotFound): not found' >&2; exit 1; }
case $(head -c 5 "$file") in Error) cat "$file" >&2; exit 1 ;; esac
cat "$file"
SCRIPT
    chmod +x "$PLACE/bin/kubectl"
    export PATH=$PLACE/bin:$PATH
}
teardown() { common_teardown; }

# cluster PROGRAM: Python that changes `nodes` and `pods` of two nodes with two H200 each, one pod on three of the cards.
cluster() {
    python3 - "$PLACE/answers" "${1:-}" <<'PYTHON'
import json, sys
folder, change = sys.argv[1:]
def node(name):
    gpus = [{"uuid": f"GPU-{name}-{i}", "memoryMiB": 143771, "cores": 100, "model": "NVIDIA H200", "numa": 0,
             "healthy": True} for i in range(2)]
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name},
                         "annotations": {"sluice.io/gpus": json.dumps(gpus)}}, "spec": {},
            "status": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"},
                       "conditions": [{"type": "Ready", "status": "True"}]}}
def pod(name, node, gpu, mib, cores, kind="ReplicaSet", cpu="1"):
    lease = {"version": 1, "node": node, "containers": [{"name": "main", "gpus": [
        {"uuid": f"GPU-{node}-{gpu}", "memoryMiB": mib, "cores": cores}]}]}
    owner = [{"kind": kind, "name": "o", "controller": True}] if kind else []
    return {"metadata": {"name": name, "namespace": "team", "uid": name, "ownerReferences": owner,
                         "annotations": {"sluice.io/lease": json.dumps(lease)}},
            "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": "Running"}}
nodes = {n: node(n) for n in ("a", "b")}
pods = {"p1": pod("p1", "a", 0, 50000, 30), "p2": pod("p2", "a", 1, 40000, 20), "p3": pod("p3", "b", 0, 30000, 40)}
exec(change)
for path, items in (("_api_v1_nodes", nodes), ("_api_v1_pods", pods)):
    with open(f"{folder}/{path}", "w", encoding="utf-8") as f:
        json.dump({"items": list(items.values())}, f)
PYTHON
}

moves() { "$SLUICE" simulate --live --json | python3 -c 'import json,sys; a=json.load(sys.stdin); print(a["whole_before"], a["whole_after"], len(a["moves"]), a["pods_that_stay"])'; }

@test "moves that free whole cards, in order, within 80 columns; nothing is changed" {
    cluster
    run -0 "$SLUICE" simulate --live
    [ "${lines[0]}" = "1 of 4 cards are whole: no pod has a share of them." ]
    has "With these moves, in this order, 3 would be:"
    has "Nothing was moved."
    [ "$(grep -c ' team ' <<<"$output")" = 2 ]
    for line in "${lines[@]}"; do [ ${#line} -le 80 ]; done
    run -1 grep -vE '^(get --raw /ap|config )' "$PLACE/asked" # it only reads
    run -0 "$SLUICE" simulate --live --moves 1
    has "2 would be"
    has "Nothing better exists with so few moves."
}

@test "as JSON: the pod, its card, the new card, and what is free after which move" {
    cluster 'del pods["p2"]'
    run -0 "$SLUICE" simulate --live --json
    python3 - "$output" <<'PYTHON'
import json, sys
a = json.loads(sys.argv[1])
assert (a["cards"], a["whole_before"], a["whole_after"], a["best"]) == (4, 2, 3, True), a
move, = a["moves"]
freed, = a["freed"]
assert move["namespace"] == "team" and move["pod"] in ("p1", "p3"), move
assert move["from"]["gpus"] == [freed["gpu"]] and freed["after_move"] == 1, a
assert move["to"]["node"] != move["from"]["node"], move
PYTHON
}

@test "what forbids a move: each alone" {
    cluster && [ "$(moves)" = "1 3 2 0" ]
    # two pods are enough to see it
    cluster 'del pods["p2"]' && [ "$(moves)" = "2 3 1 0" ]
    stay='del pods["p2"]; p = list(pods.values())'
    cluster "$stay"'
for x in p: x["metadata"]["ownerReferences"] = []' && [ "$(moves)" = "2 2 0 2" ]
    cluster "$stay"'
for x in p: x["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"' && [ "$(moves)" = "2 2 0 2" ]
    cluster "$stay"'
for x in p: x["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] = "false"' && [ "$(moves)" = "2 2 0 2" ]
    cluster "$stay"'
for x in p: x["spec"]["priority"] = 2000001000' && [ "$(moves)" = "2 2 0 2" ]
    cluster "$stay"'
for x in p: x["spec"]["nodeSelector"] = {"kubernetes.io/hostname": x["spec"]["nodeName"]}' && [ "$(moves)" = "2 2 0 0" ]
    cluster "$stay"'
for x in p: x["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [x["spec"]["nodeName"]]}]}]}}}' &&
        [ "$(moves)" = "2 2 0 0" ]
    cluster "$stay"'
for x in p: x["spec"]["topologySpreadConstraints"] = [{"whenUnsatisfiable": "DoNotSchedule"}]' && [ "$(moves)" = "2 2 0 0" ]
    cluster "$stay"'
for n in nodes.values(): n["spec"]["taints"] = [{"key": "x", "effect": "NoSchedule"}]' && [ "$(moves)" = "2 2 0 0" ]
    cluster "$stay"'
for x in p: x["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "5"' && [ "$(moves)" = "2 2 0 0" ]
    cluster "$stay"'
for x in p: x["spec"]["containers"][0]["resources"]["requests"]["memory"] = "40Gi"' && [ "$(moves)" = "2 2 0 0" ]
    cluster "$stay"'
nodes["a"]["spec"]["unschedulable"] = True' && [ "$(moves)" = "1 1 0 0" ]
}

@test "a rule that one pod has: the other one moves" {
    cluster 'del pods["p2"]; pods["p1"]["metadata"]["ownerReferences"] = []'
    run -0 "$SLUICE" simulate --live
    has "p3"
    [[ $output != *" p1 "* ]]
    has "must stay: 1 pod."
    # CPU of pods without a GPU counts, too
    cluster 'del pods["p2"]
x = pod("plain", "a", 0, 1, 1, cpu="7"); x["metadata"]["annotations"] = {}; pods["plain"] = x'
    run -0 "$SLUICE" simulate --live
    has "p1"
}

@test "by DRA: shares of claims move, a MIG instance keeps its card" {
    cluster 'pods.clear()
for n in nodes.values(): n["metadata"]["annotations"] = {}
for i, n in enumerate("ab"):
    x = pod(f"d{i}", n, 0, 1, 1); x["metadata"]["annotations"] = {}; x["spec"]["resourceClaims"] = [{"name": "c"}]
    pods[f"d{i}"] = x
def device(n, i, **more):
    return {"name": f"gpu-{i}", "attributes": {"uuid": {"string": f"GPU-{n}-{i}"}, "productName": {"string": "NVIDIA H200"}},
            "allowMultipleAllocations": True, "capacity": {"memory": {"value": "140Gi"}, "cores": {"value": "100"}}, **more}
slices = [{"spec": {"driver": "gpu.sluice.io", "nodeName": n, "pool": {"name": n}, "devices": [device(n, 0), device(n, 1),
    {"name": "mig-1", "attributes": {"parentUUID": {"string": f"GPU-{n}-1"}}}]}} for n in "ab"]
def claim(uid, n, dev, **more):
    return {"status": {"reservedFor": [{"uid": uid}], "allocation": {"devices": {"results": [
        {"driver": "gpu.sluice.io", "pool": n, "device": dev, **more}]}}}}
claims = [claim("d0", "a", "gpu-0", consumedCapacity={"memory": "50Gi", "cores": "30"}),
          claim("d1", "b", "gpu-0", consumedCapacity={"memory": "50Gi", "cores": "30"})]
if 1:
    x = pod("m", "b", 0, 1, 1); x["metadata"]["annotations"] = {}; x["spec"]["resourceClaims"] = [{"name": "c"}]
    pods["m"] = x
    claims.append(claim("m", "b", "mig-1"))
for name, items in (("claims", claims), ("slices", slices)):
    with open(f"{folder}/_apis_resource.k8s.io_v1_resource{name}", "w") as f: json.dump({"items": items}, f)'
    run -0 moves
    [ "$output" = "1 2 1 0" ]
}

@test "without the right to see all pods there is no advice" {
    cluster
    echo 'Error from server (Forbidden): pods is forbidden' >"$PLACE/answers/_api_v1_pods"
    run -1 "$SLUICE" simulate --live
    has "you may not read all that advice needs"
    has "pods of other namespaces"
}

@test "bad words and broken objects" {
    run -2 "$SLUICE" simulate --live --nodes x.csv
    has "--nodes has no meaning"
    run -2 "$SLUICE" simulate --live pods.csv
    has 'omit "pods.csv"'
    for n in 0 -1 x 1.5 99999999999999999999 ""; do
        run -2 "$SLUICE" simulate --live --moves "$n"
        has "whole number"
    done
    run -2 "$SLUICE" simulate --moves 3
    has "works with --live only"
    run -2 "$SLUICE" simulate --kubeconfig x
    has "works with --live only"
    cluster 'nodes["a"]["metadata"]["annotations"]["sluice.io/gpus"] = "{"
pods["p3"]["metadata"]["annotations"]["sluice.io/lease"] = "["
pods["odd"] = {"metadata": 7, "spec": {"nodeName": "b", "containers": "x"}, "status": []}
pods["big"] = pod("big", "b", 1, 900000, 50)
pods["<script>"] = pod("\u001b[31m", "b", 0, 100, 1)'
    run -0 "$SLUICE" simulate --live
    [[ $output != *$'\033'* ]]
    has "more is promised than their card has: 1 pod."
    echo 'nonsense' >"$PLACE/answers/_api_v1_nodes"
    run -1 "$SLUICE" simulate --live
    has "simulate:"
    cluster 'nodes.clear(); pods.clear()'
    run -0 "$SLUICE" simulate --live
    has "0 of 0 cards are whole"
}
