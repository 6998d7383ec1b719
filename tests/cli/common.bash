# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154 # bats sets output and stderr
# Shared by the tests of the command line. The build tells where things are: SLUICE (the binary),
# ALLOC (a CUDA program of ours), SLUICE_SOURCE (the tree), RUNTIME (what an instrumented build preloads
# before everything else, with a colon; empty in an ordinary one).
bats_require_minimum_version 1.5.0

# A test that is skipped before common_setup has nothing to clean up. What is in the environment is somebody else's.
PLACE=

# Each test has a directory of its own, hence an arbiter of its own. Short: it holds unix sockets.
common_setup() {
    PLACE=$(mktemp -d /tmp/slc.XXXXXX)
    export SLUICE_DIR=$PLACE/d
    unset SLUICE_SIM SLUICE_SIM_STATE SLUICE_ATTACH LD_PRELOAD CUDA_VISIBLE_DEVICES NO_COLOR
    BACKGROUND=()
    HOLDS=()
}

common_teardown() {
    local pid i
    [ -n "$PLACE" ] || return 0
    for pid in "${BACKGROUND[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
    # Again and again: a `sluice run` that still lives starts another arbiter when its own is killed.
    for ((i = 0; i < 100; i++)); do
        no_processes && break
        for pid in $(processes_here); do kill -KILL "$pid" 2>/dev/null || true; done
    done
    rm -rf "$PLACE"
}

# Arbiters of our directory: they name it on their command line. (The pattern goes through a file, or
# grep would find itself.)
arbiters_here() {
    grep -lzxF -f <(echo "$SLUICE_DIR") /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3
}

# Those, the commands of our tenants, and the `sluice run`s around them.
processes_here() {
    local pid
    {
        arbiters_here
        grep -lzF -f <(echo "SLUICE_ATTACH=$SLUICE_DIR/") /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3
        for pid in $(grep -lzxF -f <(echo "SLUICE_DIR=$SLUICE_DIR") /proc/[0-9]*/environ 2>/dev/null |
            cut -d/ -f3); do
            [[ $(readlink "/proc/$pid/exe" 2>/dev/null) != "$SLUICE" ]] || echo "$pid"
        done
    } | sort -un
}

# eventually COMMAND...: true within ten seconds.
eventually() {
    local i
    for ((i = 0; i < 500; i++)); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.02
    done
    echo "never came true: $*" >&2
    return 1
}

no_processes() { [[ -z $(processes_here) ]]; }
no_sockets() { [[ -z $(find "$PLACE" -type s 2>/dev/null) ]]; }
no_tenants() { [[ -z $(find "$PLACE" -name '*.lease' 2>/dev/null) ]]; }

only_arbiter() { [[ $(processes_here) == "$(arbiters_here)" ]] && no_tenants; }

# After a failed or finished command: no process, no socket, no tenant of ours remains. The arbiter
# would leave by itself two seconds later (start.bats sees to that); asked to, it leaves at once.
nothing_left() {
    eventually only_arbiter || { processes_here; find "$PLACE" -name '*.lease'; return 1; }
    local pid
    for pid in $(arbiters_here); do kill -TERM "$pid" 2>/dev/null || true; done
    eventually no_processes || { processes_here; return 1; }
    no_sockets || { find "$PLACE" -type s; return 1; }
    no_tenants || { find "$PLACE" -name '*.lease'; return 1; }
}

# has TEXT: the output of the last `run` contains it.
has() {
    [[ $output == *"$1"* ]] && return 0
    printf 'expected to see: %s\nbut got: %s\n' "$1" "$output" >&2
    return 1
}

field() { "$SLUICE" status --json "${@:2}" | jq -r "$1"; }
tenant_exists() { [[ $(field "[.tenants[].name] | index(\"$1\") != null") == true ]]; }
file_has() { grep -q -- "$2" "$1"; }
