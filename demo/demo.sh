#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# demo.sh BUILD-DIR: three tenants share one GPU through `sluice run`. The real GPU where there is one,
# else a simulated H200; the headline says which.
set -eu
build=$1
sluice=$build/bin/sluice
tenant=$build/demo/demo_tenant
seconds=${DEMO_SECONDS:-8}

work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-demo.XXXXXX")
pids=
cleanup() {
    # Only what we started; each `sluice run` takes its own command along.
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
trap 'exit 130' INT TERM

bold='' dim='' good='' bad='' off=''
if { [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; } || [ -n "${CLICOLOR_FORCE:-}" ]; then
    bold=$(printf '\033[1m') dim=$(printf '\033[2m') off=$(printf '\033[0m')
    good=$(printf '\033[32m') bad=$(printf '\033[33m')
fi

# Which GPU. DEMO_SIM=CARDS asks for a simulated one where there is a real one too.
sim=${DEMO_SIM:-}
kind=real
why="DEMO_SIM is set"
# A real driver hands small pieces out of blocks of 2 MiB, so what is left can move by one of them.
slack=2097152
if [ -z "$sim" ]; then
    if found=$("$tenant" --probe 2>/dev/null); then
        card_bytes=${found%% *}
        card=${found#* }
    else
        sim=h200
        why="no usable NVIDIA driver here"
    fi
fi
set --
tag=-$$ # two demos may share the arbiter of a real GPU; a simulated one has an arbiter of its own
if [ -n "$sim" ]; then
    kind=simulated
    tag=
    slack=0
    card_bytes=
    card="$sim"
    set -- --sim "$sim" --dir "$work/arbiter"
fi

# name memory cores; on a card too small for 35 GiB, parts of it instead.
tenants="train:10Gi:30 serve:20Gi:50 notebook:5Gi:20"
if [ -n "$card_bytes" ] && [ "$card_bytes" -lt 42949672960 ]; then
    tenants="train:25%:30 serve:50%:50 notebook:12%:20"
fi

for t in $tenants; do
    name=${t%%:*}
    rest=${t#*:}
    "$sluice" run "$@" --memory "${rest%%:*}" --cores "${rest#*:}" --name "demo$tag-$name" -- \
        "$tenant" "$work" "$name" "$seconds" 2>"$work/$name.err" &
    pids="$pids $!"
done

# Everybody has tried the memory; now all compute at once.
for t in $tenants; do
    name=${t%%:*}
    i=0
    while [ ! -e "$work/$name.ready" ] && [ $i -lt 1200 ]; do
        if [ -s "$work/$name.err" ]; then
            sleep 0.2
            cat "$work/$name.err" >&2
            echo "demo: tenant $name did not start" >&2
            exit 1
        fi
        sleep 0.05
        i=$((i + 1))
    done
done
: >"$work/go"
sleep $((seconds / 2))
"$sluice" status ${sim:+--sim "$sim" --dir "$work/arbiter"} >"$work/status" 2>&1 || true
failed=0
for p in $pids; do
    wait "$p" || failed=1
done
pids=
if [ $failed = 1 ]; then
    cat "$work"/*.err >&2
    echo "demo: a tenant failed" >&2
    exit 1
fi

value() { # FILE KEY
    sed -n "s/^$2=//p" "$work/$1"
}
gib() {
    awk -v b="$1" 'BEGIN { printf "%.2f GiB", b / 1073741824 }'
}
all=0
for t in $tenants; do
    card=$(value "${t%%:*}" device)
    all=$((all + $(value "${t%%:*}" kernels)))
done

if [ $kind = simulated ]; then
    printf '\n%sThree tenants on one simulated GPU: %s%s\n' "$bold" "$card" "$off"
    printf '%s(%s: all figures below come from the simulated driver)%s\n\n' "$dim" "$why" "$off"
else
    printf '\n%sThree tenants on one real GPU: %s%s\n\n' "$bold" "$card" "$off"
fi
row='%-9s  %-6s  %-5s  %-10s  %-10s  %-17s  %s  %s\n'
# shellcheck disable=SC2059 # the row is the format
printf "$dim$row$off" tenant memory cores 'CUDA shows' 'of it free' 'could take' 'one byte more           ' 'of the work done'
verdict=0
worst=0
for t in $tenants; do
    name=${t%%:*}
    rest=${t#*:}
    got=$(value "$name" got)
    free=$(value "$name" free)
    more=$(value "$name" more)
    share=$(awk -v k="$(value "$name" kernels)" -v a="$all" 'BEGIN { printf "%.1f %%", a ? 100 * k / a : 0 }')
    worst=$(awk -v s="${share% %}" -v c="${rest#*:}" -v w="$worst" \
        'BEGIN { d = s > c ? s - c : c - s; print (d > w ? d : w) }')
    colour=$good
    off_by=$((got > free ? got - free : free - got))
    if [ "$more" != CUDA_ERROR_OUT_OF_MEMORY ] || [ $off_by -gt $slack ]; then
        colour=$bad
        verdict=1
    fi
    # shellcheck disable=SC2059
    printf "$row" "$name" "${rest%%:*}" "${rest#*:} %" "$(gib "$(value "$name" total)")" "$(gib "$free")" \
        "$got bytes" "$colour$more$off" "$share"
done
if [ $verdict = 0 ]; then
    printf '\n%sEach tenant sees only its own share of the card, can take exactly what is free, and is refused one byte more.%s\n' "$dim" "$off"
else
    printf '\n%sNot as it should be: a tenant got more or less than was free, or was not refused.%s\n' "$bad" "$off"
fi
# The simulated GPU runs on this computer's processors: what others take of them is missing here.
load=$(cut -d ' ' -f 1 /proc/loadavg)
if awk -v w="$worst" -v l="$load" -v n="$(nproc)" 'BEGIN { exit !(w > 2 && l > n) }'; then
    printf '\n%sThe work done is %s points off the cores that were asked for. This computer was too busy for exact figures\n' \
        "$bad" "$worst"
    printf '(load %s on %s processors): run the demo again when it is idle.%s\n' "$load" "$(nproc)" "$off"
fi
if grep -q "demo$tag-" "$work/status"; then
    printf '\n%ssluice status%s, half way:\n\n' "$bold" "$off"
    cat "$work/status"
fi
exit $verdict
