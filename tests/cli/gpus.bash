# SPDX-License-Identifier: Apache-2.0
# Several simulated GPUs, and what is on them. After waiting.bash; CARDS names them.

srun() { "$SLUICE" run --sim "$CARDS" "$@"; }

# gpus_of NAME: the indices of its GPUs, "0" or "1,3".
gpus_of() { field ".tenants[] | select(.name == \"$1\") | [.gpus[].index] | join(\",\")"; }
tenants_on() { field '[.gpus[].tenants] | join(" ")'; }
in_line() { [[ $(field '[.waiting[] | .name] | join(" ")') == "$*" ]]; }
# Nothing is promised twice: in memory, in time.
within_cards() {
    [[ $(field '[.gpus[] | .memory_promised_bytes <= .memory_total_bytes and .cores_promised_percent <= 100] | all') == true ]]
}

# at_once COUNT OPTION...: so many commands, started together. Each that runs holds its share until `release crowd`;
# crowd.ran has their names, crowd.err what the others were told.
at_once() {
    local count=$1 i
    touch "$PLACE/crowd.holds"
    for ((i = 0; i < count; i++)); do
        srun --name "c$i" "${@:2}" -- bash -c \
            "echo c$i >>'$PLACE/crowd.ran'; while [ -e '$PLACE/crowd.holds' ]; do sleep 0.05; done" 2>>"$PLACE/crowd.err" 8>&- &
        BACKGROUND+=($!)
    done
}
lines() { [[ $( (cat "$1" 2>/dev/null || true) | wc -l) -eq $2 ]]; }
