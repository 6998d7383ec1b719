#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2030,SC2031 # each test has its own PATH
# `sluice explain`, `sluice cluster` and kubectl's plugin, over a kubectl that answers from files.
load common

# kubectl get --raw PATH prints the file answers/PATH with / as _; a file that begins with "Error" goes to stderr.
setup() {
    common_setup
    mkdir "$PLACE/bin" "$PLACE/answers"
    cat >"$PLACE/bin/kubectl" <<'SCRIPT'
#!/bin/sh
place=$(dirname "$(dirname "$0")")
echo "$*" >>"$place/asked"
while :; do case $1 in --kubeconfig | --context) shift 2 ;; *) break ;; esac; done
if [ "$1" = config ]; then cat "$place/namespace" 2>/dev/null; exit 0; fi
file="$place/answers/$(printf %s "$3" | tr / _)"
[ -e "$file" ] || { echo 'Error from server (NotFound): not found' >&2; exit 1; }
case $(head -c 5 "$file") in Error) cat "$file" >&2; exit 1 ;; esac
cat "$file"
SCRIPT
    chmod +x "$PLACE/bin/kubectl"
    export PATH=$PLACE/bin:$PATH
    PLUGIN=$(dirname "$SLUICE")/kubectl-sluice
}
teardown() { common_teardown; }

answer() { cat >"$PLACE/answers/$(printf %s "$1" | tr / _)"; }

# A cluster with one node of two cards, a pod that has a part, and one that waits.
cluster() {
    answer /api/v1/nodes <<'JSON'
{"items":[{"metadata":{"name":"node-1","annotations":{"sluice.io/gpus":"[{\"uuid\":\"GPU-a\",\"memoryMiB\":143771,\"cores\":100,\"model\":\"NVIDIA H200\",\"numa\":0,\"healthy\":true},{\"uuid\":\"GPU-b\",\"memoryMiB\":143771,\"cores\":100,\"model\":\"NVIDIA H200\",\"numa\":0,\"healthy\":true}]"}},
 "status":{"allocatable":{"nvidia.com/gpu":"20"},"conditions":[{"type":"Ready","status":"True"}]}}]}
JSON
    answer /api/v1/pods <<'JSON'
{"items":[{"metadata":{"name":"serve-0","namespace":"team","uid":"u1","annotations":{"sluice.io/lease":"{\"version\":1,\"node\":\"node-1\",\"containers\":[{\"name\":\"main\",\"gpus\":[{\"uuid\":\"GPU-a\",\"memoryMiB\":20480,\"cores\":30}]}]}"}},
  "spec":{"nodeName":"node-1","containers":[{"name":"main","resources":{"limits":{"nvidia.com/gpu":"1"}}}]},"status":{"phase":"Running"}},
 {"metadata":{"name":"train-0","namespace":"team","uid":"u2"},
  "spec":{"schedulerName":"volcano","containers":[{"name":"main","resources":{"limits":{"nvidia.com/gpu":"1"}}}]},"status":{"phase":"Pending"}}]}
JSON
    answer /api/v1/namespaces/team/pods/train-0 <<'JSON'
{"metadata":{"name":"train-0","namespace":"team"},"spec":{"schedulerName":"volcano","containers":[{"name":"main","resources":{"limits":{"nvidia.com/gpu":"1"}}}]},"status":{"phase":"Pending"}}
JSON
    answer '/api/v1/namespaces/team/events?fieldSelector=involvedObject.name%3Dtrain-0' <<<'{"items":[]}'
}

@test "explain says what, why and what to do, within 80 columns; exit code 1" {
    cluster
    run -1 "$SLUICE" explain pod train-0 --namespace team
    [ "${lines[0]}" = "Pod train-0 waits: no node has been chosen." ]
    has 'Why: It asks for the scheduler "volcano"'
    has "Do:  Correct spec.schedulerName"
    for line in "${lines[@]}"; do [ ${#line} -le 80 ]; done
}

@test "the plugin is the same: its own words, -n, and the namespace of the context" {
    cluster
    run -1 "$PLUGIN" explain train-0 -n team
    has 'the scheduler "volcano"'
    printf team >"$PLACE/namespace"
    run -1 "$PLUGIN" explain train-0 --context blue --kubeconfig "$PLACE/k"
    has 'the scheduler "volcano"'
    grep -q -- "--kubeconfig $PLACE/k --context blue get --raw /api/v1/namespaces/team/pods/train-0" "$PLACE/asked"
    run -0 "$PLUGIN" nodes -n team
    has node-1
}

@test "explain --json is JSON with the code" {
    cluster
    run -1 "$SLUICE" explain train-0 --namespace team --json
    [ "$(jq -r .code <<<"$output")" = no-scheduler ]
    [ "$(jq -r .well <<<"$output")" = false ]
    [ "$(jq -r .not_read <<<"$output")" = null ]
}

@test "what may not be read is said, and not judged by" {
    cluster
    answer /api/v1/nodes <<<'Error from server (Forbidden): nodes is forbidden: User "u" cannot list resource "nodes"'
    answer /api/v1/namespaces/team/pods <"$PLACE/answers/_api_v1_pods"
    answer /api/v1/pods <<<'Error from server (Forbidden): pods is forbidden'
    run -1 "$SLUICE" explain train-0 --namespace team
    has "You may not read nodes, pods of other namespaces: this was said without them."
    has 'the scheduler "volcano"'
}

@test "a pod that is not there, a server that is not there, no kubectl: a sentence, exit code 3" {
    run -3 "$SLUICE" explain nobody --namespace team
    has "there is no /api/v1/namespaces/team/pods/nobody in the cluster"
    answer /api/v1/namespaces/team/pods/train-0 <<<'Error: The connection to the server localhost:8080 was refused'
    run -3 "$SLUICE" explain train-0 --namespace team
    has "kubectl says: Error: The connection to the server localhost:8080 was refused"
    answer /api/v1/namespaces/team/pods/train-0 <<<'<html>'
    run -3 "$SLUICE" explain train-0 --namespace team
    has "is no JSON"
    PATH=$PLACE/empty run -3 "$SLUICE" explain train-0 --namespace team
    has "kubectl is not installed"
}

@test "names that are none are refused before anything is asked" {
    for bad in ../secrets 'a b' 'x?watch=1' A "$(printf 'a%.0s' {1..300})" -- ''; do
        run -2 "$SLUICE" explain --namespace team -- "$bad"
    done
    run -2 "$SLUICE" explain train-0 --namespace 'team/pods/x'
    has "is not a name of Kubernetes"
    run -2 "$SLUICE" explain
    run -2 "$SLUICE" explain pod a b
    run -2 "$SLUICE" cluster
    run -2 "$SLUICE" cluster bogus
    run -2 "$SLUICE" cluster nodes more
    [ ! -e "$PLACE/asked" ]
}

@test "nodes, pods and top: what is promised and what is left, within 80 columns" {
    cluster
    run -0 "$PLUGIN" nodes
    [[ ${lines[1]} =~ node-1\ +ready\ +2\ +280.8Gi\ +20.0Gi\ +260.8Gi\ +30%\ +1/20\ +1 ]]
    for line in "${lines[@]}"; do [ ${#line} -le 80 ]; done
    run -0 "$PLUGIN" pods
    [[ $output =~ team\ +serve-0\ +node-1\ +1\ +20.0Gi\ +30%\ +- ]]
    [[ $output =~ team\ +train-0\ +-\ +1\ +-\ +-\ +no-scheduler ]]
    run -0 "$PLUGIN" top
    [[ $output =~ 15%\ +node-1\ +-\ +1\ pod ]]
    run -0 "$PLUGIN" top --json
    [ "$(jq -r '.nodes[0].promised.memory_mib, .pods[1].name' <<<"$output" | paste -sd' ')" = "20480 serve-0" ]
}

@test "hostile names cannot write to the terminal" {
    cluster
    sed -i 's/"name":"serve-0"/"name":"a\\u001b[2Jb"/' "$PLACE/answers/_api_v1_pods"
    run -0 "$PLUGIN" pods
    [[ $output != *$'\e'* ]]
    has 'a?[2Jb'
}
