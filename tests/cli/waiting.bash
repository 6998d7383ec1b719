# SPDX-License-Identifier: Apache-2.0
# Commands that hold a simulated GPU, and commands that wait for it. After common.bash.

srun() { "$SLUICE" run --sim h200 "$@"; }

# hold NAME MEMORY [OPTION...]: a tenant that has its memory until `release NAME`.
hold() {
    local name=$1 memory=$2
    touch "$PLACE/$name.holds"
    srun --name "$name" --memory "$memory" "${@:3}" -- bash -c "while [ -e '$PLACE/$name.holds' ]; do sleep 0.02; done" &
    BACKGROUND+=($!)
    eventually tenant_exists "$name"
}
release() { rm "$PLACE/$1.holds"; }

# waiter NAME OPTION...: waits in line; writes its name into `ran` when it runs. Its PID is WAITER. Where order is looked
# at, no two fit at a time: those that run together write in any order.
waiter() {
    "$SLUICE" run --sim "${CARDS:-h200}" --wait "${@:2}" -- sh -c "echo $1 >>'$PLACE/ran'" 2>"$PLACE/$1.err" 8>&- &
    WAITER=$!
    BACKGROUND+=("$WAITER")
    eventually file_has "$PLACE/$1.err" waiting:
}
ran() { [[ $(tr '\n' ' ' <"$PLACE/ran") == "$* " ]]; }
patiently() { eventually "$@" 2>/dev/null || eventually "$@"; } # twenty seconds
nobody_ran() { [[ ! -e $PLACE/ran ]]; }
