#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# smi.sh CTL: the nvidia-smi of a simulated driver root: its table, its list, single fields, and what it refuses.
set -eu
ctl=$1
top=$(mktemp -d "${TMPDIR:-/tmp}/sluice-smi-XXXXXX")
trap 'rm -rf "$top"' EXIT
unset SLUICE_SIM SLUICE_SIM_STATE SLUICE_SIM_DEV CUDA_VISIBLE_DEVICES
"$ctl" make-root "$top/root" h200,l4
smi="$top/root/bin/nvidia-smi"

want() {
    [ "$1" = "$2" ] || { echo "got \"$1\", not \"$2\""; exit 1; }
}
has() {
    printf '%s\n' "$1" | grep -qF -- "$2" || { printf 'no "%s" in\n%s\n' "$2" "$1"; exit 1; }
}
# refuses STATUS WORDS ARGUMENT…
refuses() {
    status=$1 words=$2; shift 2
    rc=0; said=$("$smi" "$@" 2>&1) || rc=$?
    want "$rc" "$status"
    has "$said" "$words"
}

table=$("$smi")
want "$(printf '%s\n' "$table" | sed -n '1s/:.*//p')" "SIMULATED GPUs"
for words in "NVIDIA H200" "NVIDIA L4" "/  143771 MiB" "/   23034 MiB" "Driver Version: 5" "No running processes found"; do
    has "$table" "$words"
done
want "$(printf '%s\n' "$table" | sed 1d | awk '{ print length }' | sort -u)" 78
want "$("$smi" -L | wc -l)" 2
want "$("$smi" --query-gpu=index,name,memory.total --format=csv | sed -n 1p)" "index, name, memory.total [MiB]"
want "$("$smi" --query-gpu=index,name,memory.total --format=csv | sed -n 3p)" "1, NVIDIA L4, 23034 MiB"
want "$("$smi" --query-gpu=memory.total --format=csv,noheader,nounits | tr '\n' ' ')" "143771 23034 "
want "$("$smi" --query-gpu=uuid --format=csv,noheader | sed -n 1p)" "$("$smi" -L | sed -n '1s/.*UUID: \(.*\))/\1/p')"
refuses 2 'field "colour" is not known' --query-gpu=colour --format=csv
refuses 2 'belong together' --query-gpu=name
refuses 2 'belong together' --format=csv
refuses 2 'belongs to simulated GPUs' -q

# MIG devices are in the table; a lost card does not take the others with it; without nodes there is no driver.
SLUICE_SIM_STATE="$top/root/state/machine" "$ctl" mig 0 3g.71gb 1g.18gb
has "$("$smi")" "MIG device  1"
has "$("$smi")" "MIG on"
SLUICE_SIM_STATE="$top/root/state/machine" "$ctl" lost 1
has "$("$smi")" "ERR! the card does not answer"
has "$("$smi")" "NVIDIA H200"
mkdir "$top/none"
rc=0; said=$(SLUICE_SIM_DEV="$top/none" "$smi") || rc=$?
want "$rc" 9
has "$said" "no simulated driver here"
