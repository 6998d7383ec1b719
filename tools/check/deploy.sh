#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deploy.sh SLUICE: the configurations that deploy/ brings are good ones, and mean something on a node; where there is a
# kubectl, every overlay can be built.
set -eu
cd "$(dirname "$0")/../.."
sluice=$1
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
bad=0
n=0
kubectl=$(PATH="${SLUICE_K8S_BIN:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/sluice/k8s}:$PATH" command -v kubectl || true)

for dir in deploy/controller/dra deploy/controller/extender deploy/controller/second-scheduler deploy/cleanup deploy/monitoring; do
    [ -z "$kubectl" ] || "$kubectl" kustomize "$dir" >"$state/out" || bad=1
done
for dir in deploy/overlays/*/; do
    n=$((n + 1))
    if ! SLUICE_SIM_STATE="$state/machine" "$sluice" config check --sim h200 "$dir/config.yaml" >"$state/out"; then
        bad=1
    fi
    if [ -n "$kubectl" ] && ! "$kubectl" kustomize "$dir" >"$state/out"; then
        bad=1
    fi
done
mkdir "$state/overlay"
for dir in deploy/components/*/; do
    printf 'resources: [%s]\ncomponents: [%s]\n' "$(realpath --relative-to="$state/overlay" deploy/overlays/default)" \
        "$(realpath --relative-to="$state/overlay" "$dir")" >"$state/overlay/kustomization.yaml"
    [ -z "$kubectl" ] || "$kubectl" kustomize "$state/overlay" >"$state/out" || { echo "with $dir"; bad=1; }
done
[ "$n" -ge 8 ] || { echo "only $n overlays in deploy/overlays"; bad=1; }
echo "$n overlays examined${kubectl:+, built with $kubectl}"
exit $bad
