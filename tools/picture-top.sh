#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# picture-top.sh BUILD-DIR: three tenants share a simulated H200 for half a minute, and a command waits in line; draws
# what `sluice top` shows then, on a real terminal (tmux), into docs/img/top.svg.
set -eu
cd "$(dirname "$0")/.."
build=$1
work=$(mktemp -d)
export SLUICE_DIR="$work/arbiter" LC_ALL=C.UTF-8
terminal() { tmux -L "sluice-picture-$$" -f /dev/null "$@"; }
pids=
# shellcheck disable=SC2317 # the trap calls it
cleanup() {
    terminal kill-server 2>/dev/null || true
    for p in $pids; do
        kill "$p" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    # The arbiter writes into its folder until it ends by itself, a moment after the last tenant.
    tries=0
    until rm -rf "$work" 2>/dev/null || [ $tries -ge 50 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
}
trap cleanup EXIT

# tenant NAME MEMORY CORES KERNEL_US
tenant() {
    "$build/bin/sluice" run --sim h200 --name "$1" --memory "$2" --cores "$3" -- \
        "$build/tests/integration/compute_tenant" steady "kernel_us=$4" seconds=60 >/dev/null 2>&1 &
    pids="$pids $!"
}
tenant train 40Gi 50 2000
sleep 8
tenant serve 20Gi 30:100 200
sleep 8
tenant notebook 10Gi 10 500
sleep 3 # behind one that waits, it would be refused
# One that has to wait for memory: it stands in line, with the reason.
"$build/bin/sluice" run --sim h200 --name evaluate --memory 90Gi --wait -- true >/dev/null 2>&1 &
pids="$pids $!"
terminal new-session -d -x 80 -y 20 "'$build/bin/sluice' top --sim h200"
sleep 25
terminal send-keys Down Down Enter
sleep 3
terminal capture-pane -ep >"$work/screen"
grep -q "3 tenants" "$work/screen" || { cat "$work/screen" >&2; echo "picture: not every tenant runs" >&2; exit 1; }
python3 tools/terminal-svg.py "sluice top" <"$work/screen" >docs/img/top.svg
cat "$work/screen"
