/* SPDX-License-Identifier: Apache-2.0 */
/* Between NVML and the simulation's shared state: nobody else here includes sim/state.h. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sim/engine.h"
#include "sim/mps.h"
#include "sim/nvml_internal.h"
#include "sim/nvml_shared.h"
#include "sim/state.h"
#include "sim/tree.h"

/* Load is reported over this long, as the real one does over up to a second. */
#define WINDOW_BUCKETS 10
/* An event written by somebody who does not know to wake us is seen after this long at worst. */
#define EVENT_POLL_MS  200

static struct sl_sim_state *state;
static uint32_t seen[SL_SIM_MAX_DEVICES], seen_count;

nvmlReturn_t nv_state_attach(void)
{
    struct sl_err err = SL_ERR_INIT;
    if (!sl_sim_sees_node("nvidiactl"))
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (sl_sim_open(&state, &err) == 0) {
        seen_count = 0;
        for (uint32_t i = 0; i < state->card_count; i++)
            if (sl_sim_sees_card(i))
                seen[seen_count++] = i;
        return NVML_SUCCESS;
    }
    /* NVML has no room for a reason, and a mistyped spec must not look like a missing driver. */
    (void)fprintf(stderr, "simulated NVML: %s\n", err.msg);
    return err.code == -EPROTO ? NVML_ERROR_LIB_RM_VERSION_MISMATCH : NVML_ERROR_DRIVER_NOT_LOADED;
}

void nv_state_detach(void)
{
    /* The state stays mapped and its descriptor open: closing one drops the process's locks. */
}

const struct sl_sim_spec *nv_spec(void)
{
    return &state->spec_parsed;
}

uint32_t nv_seen_count(void)
{
    return seen_count;
}

uint32_t nv_seen(uint32_t position)
{
    return seen[position];
}

uint32_t nv_position(uint32_t index)
{
    uint32_t i = 0;
    while (i < seen_count && seen[i] != index)
        i++;
    return i;
}

bool nv_sees(uint32_t index)
{
    return nv_position(index) < seen_count;
}

bool nv_sees_mig(uint32_t index, uint32_t gi_id, uint32_t ci_id)
{
    return sl_sim_sees_mig(index, gi_id, ci_id);
}

bool nv_lost(uint32_t index)
{
    const struct sl_sim_card *c = &state->cards[index];
    uint64_t at = __atomic_load_n(&c->lost_at_ns, __ATOMIC_RELAXED);
    return __atomic_load_n(&c->lost, __ATOMIC_RELAXED) || (at && sl_sim_now_ns() >= at);
}

/* The lock, with the dead cleared away now, not some milliseconds from now: whoever audits by these
 * figures looks right after a process has ended. */
static void lock_fresh(void)
{
    sl_sim_lock(state);
    sl_sim_reap(state, true);
}

uint64_t nv_used_bytes(uint32_t index)
{
    lock_fresh();
    uint64_t used = sl_sim_used_bytes(state, index);
    sl_sim_unlock(state);
    return used;
}

size_t nv_processes(uint32_t index, struct nv_process *out, size_t room)
{
    size_t n = 0;
    lock_fresh();
    for (uint32_t i = 0; i < state->proc_high; i++) {
        const struct sl_sim_proc *p = &state->procs[i];
        if (!p->used || p->card[index].contexts == 0)
            continue;
        pid_t pid = sl_sim_proc_pid(state, i);
        if (pid <= 0)
            continue; /* lives in a PID namespace we cannot see: the real one hides it too */
        if (n < room)
            out[n] = (struct nv_process){
                .pid = (uint32_t)pid,
                .used_bytes = sl_sim_proc_bytes(state, i, index),
                .gpu_instance = p->card[index].mig ? p->card[index].gi : NVML_NO_INSTANCE,
                .compute_instance = p->card[index].mig ? p->card[index].ci : NVML_NO_INSTANCE,
                .mps = p->card[index].mps == SL_SIM_MPS_CLIENT,
            };
        n++;
    }
    sl_sim_unlock(state);
    return n;
}

/* Not from the list above: memory of processes we cannot see counts all the same. */
uint64_t nv_mig_used_bytes(uint32_t index, uint32_t gpu_instance)
{
    lock_fresh();
    uint64_t used = sl_sim_used_bytes_in(state, index, gpu_instance);
    sl_sim_unlock(state);
    return used;
}

bool nv_mig_in_use(uint32_t index, uint32_t gpu_instance, uint32_t compute_instance)
{
    bool found = false;
    lock_fresh();
    for (uint32_t i = 0; i < state->proc_high && !found; i++) {
        const struct sl_sim_proc_card *pc = &state->procs[i].card[index];
        found = state->procs[i].used && pc->contexts && pc->mig && pc->gi == gpu_instance &&
                pc->ci == compute_instance;
    }
    sl_sim_unlock(state);
    return found;
}

uint64_t nv_ecc_errors(uint32_t index, uint32_t type)
{
    return __atomic_load_n(&state->cards[index].nvml_private[SL_SIM_NVML_ECC + type],
                           __ATOMIC_RELAXED);
}

/* ---- load ---- */

struct window {
    uint64_t from_ns, to_ns; /* monotonic */
    uint64_t end_us;         /* wall time of to_ns */
};

static uint64_t wall_us(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000ULL + (uint64_t)ts.tv_nsec / 1000ULL;
}

/* The last second, and it must have been played. Lock held. */
static struct window last_second(void)
{
    uint64_t now = sl_sim_now_ns();
    sl_sim_advance(state, now);
    uint64_t bucket = now / SL_SIM_BUCKET_NS;
    uint64_t first = bucket >= WINDOW_BUCKETS - 1 ? bucket - (WINDOW_BUCKETS - 1) : 0;
    return (struct window){first * SL_SIM_BUCKET_NS, now, wall_us()};
}

static uint32_t percent(const struct sl_sim_usage *u, const struct window *w)
{
    uint64_t span = w->to_ns - w->from_ns;
    uint64_t busy = sl_sim_usage_between(u, w->from_ns, w->to_ns);
    if (span == 0 || busy == 0)
        return 0;
    uint64_t p = (busy * 100 + span / 2) / span;
    return p > 100 ? 100 : (uint32_t)p;
}

uint32_t nv_busy_percent(uint32_t index)
{
    sl_sim_lock(state);
    struct window w = last_second();
    uint32_t p = percent(&state->cards[index].usage, &w);
    sl_sim_unlock(state);
    return p;
}

/* Full buckets that ended after since_us, oldest first, within the last window. Half a bucket of
 * tolerance: wall time of one and the same bucket wanders by microseconds from call to call. */
size_t nv_device_samples(uint32_t index, uint64_t since_us, struct nv_sample *out, size_t room)
{
    size_t n = 0;
    sl_sim_lock(state);
    struct window w = last_second();
    for (uint64_t b = w.from_ns; b + SL_SIM_BUCKET_NS <= w.to_ns; b += SL_SIM_BUCKET_NS) {
        struct window one = {b, b + SL_SIM_BUCKET_NS, 0};
        one.end_us = w.end_us - (w.to_ns - one.to_ns) / 1000;
        if (one.end_us <= since_us + SL_SIM_BUCKET_NS / 2000)
            continue;
        if (n < room)
            out[n] = (struct nv_sample){.timestamp_us = one.end_us,
                                        .sm_percent = percent(&state->cards[index].usage, &one)};
        n++;
    }
    sl_sim_unlock(state);
    return n;
}

/* One sample per process that was on the card, over the full buckets after since_us. */
size_t nv_process_samples(uint32_t index, uint64_t since_us, struct nv_sample *out, size_t room)
{
    size_t n = 0;
    sl_sim_lock(state);
    sl_sim_reap(state, false);
    struct window w = last_second();
    uint64_t end = w.to_ns / SL_SIM_BUCKET_NS * SL_SIM_BUCKET_NS;
    w.end_us -= (w.to_ns - end) / 1000;
    w.to_ns = end;
    uint64_t tolerance_us = SL_SIM_BUCKET_NS / 2000;
    uint64_t oldest_us = w.end_us - (w.to_ns - w.from_ns) / 1000;
    if (since_us + tolerance_us > oldest_us && w.end_us > since_us + tolerance_us) {
        uint64_t buckets = (w.end_us - since_us + tolerance_us) * 1000 / SL_SIM_BUCKET_NS;
        w.from_ns = w.to_ns - buckets * SL_SIM_BUCKET_NS;
    }
    for (uint32_t i = 0; w.end_us > since_us + tolerance_us && i < state->proc_high; i++) {
        const struct sl_sim_proc *p = &state->procs[i];
        uint32_t busy = p->used ? percent(&p->card[index].usage, &w) : 0;
        pid_t pid = busy ? sl_sim_proc_pid(state, i) : 0;
        if (pid <= 0)
            continue;
        if (n < room)
            out[n] = (struct nv_sample){
                .pid = (uint32_t)pid, .timestamp_us = w.end_us, .sm_percent = busy};
        n++;
    }
    sl_sim_unlock(state);
    return n;
}

/* ---- modes ---- */

uint32_t nv_compute_mode(uint32_t index)
{
    return __atomic_load_n(&state->cards[index].compute_mode, __ATOMIC_RELAXED);
}

void nv_set_compute_mode(uint32_t index, uint32_t mode)
{
    sl_sim_lock(state);
    __atomic_store_n(&state->cards[index].compute_mode, mode, __ATOMIC_RELAXED);
    sl_sim_unlock(state);
}

uint32_t nv_persistence(uint32_t index)
{
    return (uint32_t)__atomic_load_n(&state->cards[index].nvml_private[SL_SIM_NVML_PERSISTENCE],
                                     __ATOMIC_RELAXED);
}

void nv_set_persistence(uint32_t index, uint32_t mode)
{
    __atomic_store_n(&state->cards[index].nvml_private[SL_SIM_NVML_PERSISTENCE], mode,
                     __ATOMIC_RELAXED);
}

struct sl_sim_mig_state nv_mig(uint32_t index)
{
    sl_sim_lock(state);
    struct sl_sim_mig_state copy = state->cards[index].mig;
    sl_sim_unlock(state);
    return copy;
}

struct sl_sim_mig_state *nv_mig_lock(uint32_t index)
{
    sl_sim_lock(state);
    return &state->cards[index].mig;
}

void nv_mig_unlock(uint32_t index)
{
    sl_sim_tree_sync(state, index);
    sl_sim_unlock(state);
}

bool nv_in_use(uint32_t index)
{
    bool used = false;
    lock_fresh();
    for (uint32_t i = 0; i < state->proc_high && !used; i++)
        used = state->procs[i].used && state->procs[i].card[index].contexts > 0;
    sl_sim_unlock(state);
    return used;
}

/* ---- events ---- */

uint64_t nv_event_position(uint32_t index)
{
    sl_sim_lock(state);
    uint64_t seq = state->cards[index].event_seq;
    sl_sim_unlock(state);
    return seq;
}

bool nv_event_next(uint32_t index, uint64_t *position, struct nv_event *ret)
{
    const struct sl_sim_card *c = &state->cards[index];
    bool found = false;
    sl_sim_lock(state);
    /* Somebody who did not look for long misses what the ring no longer has. */
    if (c->event_seq > SL_SIM_EVENTS && *position < c->event_seq - SL_SIM_EVENTS)
        *position = c->event_seq - SL_SIM_EVENTS;
    if (*position < c->event_seq) {
        const struct sl_sim_event *e = &c->events[++*position % SL_SIM_EVENTS];
        *ret = (struct nv_event){e->type, e->data, e->gi, e->ci};
        found = true;
    }
    sl_sim_unlock(state);
    return found;
}

uint32_t nv_event_ticket(void)
{
    return __atomic_load_n(sl_sim_nvml_wake_word(state), __ATOMIC_ACQUIRE);
}

void nv_event_sleep(uint32_t ticket, int64_t at_most_ms)
{
    int64_t ms = at_most_ms < EVENT_POLL_MS ? at_most_ms : EVENT_POLL_MS;
    struct timespec ts = {0, (long)(ms * 1000000)};
    (void)syscall(SYS_futex, sl_sim_nvml_wake_word(state), FUTEX_WAIT, ticket, &ts, NULL, 0);
}

uint64_t nv_now_ms(void)
{
    return sl_sim_now_ns() / 1000000;
}
