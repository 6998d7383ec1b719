/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tenant used so far, for its entry in the history. GPU time and time with work are summed up here; the highest
 * memory is in the ledger, and is taken over from it before the ledger goes. All of it is saved beside the lease, so
 * that the next arbiter goes on from there: in the form of the entry that the tenant would have if it ended now.
 */
#include "arbiter/arbiter_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "arbiter/client.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fsutil.h"
#include "base/hash.h"
#include "base/log.h"
#include "shm/account.h"

/* How much of it a killed arbiter may lose. */
#define SAVE_NS      (10 * SL_NS_PER_S)
#define SAVE_LEFT_NS SL_NS_PER_S

static uint64_t wall_ms(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / SL_NS_PER_MS;
}

static void file_name(const struct tenant *t, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%s.use", t->name);
}

/* --- memory --- */

/* For processes with a library that does not enter the highest usage: what it is now, without estimates. */
static uint64_t present_bytes(const struct tenant *t, uint32_t i)
{
    uint64_t used = sl_account_total(t->ledger.page, i) * SL_UNIT_BYTES;
    for (const struct member *m = t->members; m; m = m->next)
        used -= least(used, m->put_by_bytes[i]);
    return used ? used + atomic_load(&t->lease.page->gpu[i].overhead_bytes) : 0;
}

bool sl_arb_use_peak(struct tenant *t)
{
    bool rose = false;
    for (uint32_t i = 0; t->ledger.page && i < t->gpu_count; i++) {
        uint64_t peak = sl_account_peak(t->ledger.page, i);
        if (peak == 0)
            peak = present_bytes(t, i);
        peak = least(peak, t->lease.page->gpu[i].card_bytes); /* the tenant writes its ledger */
        rose |= peak > t->use.peak_bytes[i];
        t->use.peak_bytes[i] = peak > t->use.peak_bytes[i] ? peak : t->use.peak_bytes[i];
    }
    return rose;
}

/* --- time --- */

void sl_arb_use_look(struct arbiter *a, struct tenant *t)
{
    struct use *u = &t->use;
    uint64_t span = u->looked_ns ? a->now_ns - u->looked_ns : 0;
    if (u->had_work) {
        u->work_ns += span;
        u->measured_ns += u->measured ? span : 0;
    }
    u->looked_ns = a->now_ns;
    u->had_work = u->has_work && !t->terms.paused;
    u->measured = t->by_turns || atomic_load(&t->lease.page->meter);
    if (u->work_ns != u->saved_work_ns && a->now_ns - u->saved_ns >= SAVE_NS)
        sl_arb_use_save(a, t);
}

void sl_arb_use_left(struct arbiter *a, struct tenant *t)
{
    bool rose = sl_arb_use_peak(t);
    if (rose || a->now_ns - t->use.saved_ns >= SAVE_LEFT_NS)
        sl_arb_use_save(a, t);
}

/* --- the entry --- */

void sl_arb_use_entry(struct arbiter *a, struct tenant *t, struct sl_history_entry *ret)
{
    const struct use *u = &t->use;
    (void)sl_arb_use_peak(t);
    *ret = (struct sl_history_entry){
        .id = sl_hash_bytes(SL_HASH_START, t->cookie, sizeof(t->cookie)),
        .uid = u->uid,
        .started_ms = u->started_ms,
        .ended_ms = wall_ms(),
        .waited_ms = u->waited_ns / SL_NS_PER_MS,
        .cores_request_permille = t->terms.cores_request_permille,
        .cores_limit_permille = t->terms.cores_limit_permille,
        .work_ms = u->work_ns / SL_NS_PER_MS,
        .measured_ms = u->measured_ns / SL_NS_PER_MS,
        .used_ms = (u->used_ns + sl_arb_compute_used(a, t)) / SL_NS_PER_MS,
        .end = u->end,
        .code = u->code,
        .gpu_count = t->gpu_count,
    };
    memcpy(ret->name, t->name, sizeof(ret->name));
    memcpy(ret->command, u->command, sizeof(ret->command));
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        memcpy(ret->gpu[i].uuid, t->lease.page->gpu[i].uuid, sizeof(ret->gpu[i].uuid));
        ret->gpu[i].index = a->gpu[t->gpu[i]].index;
        ret->gpu[i].asked_bytes = t->terms.memory_bytes[i];
        ret->gpu[i].peak_bytes = u->peak_bytes[i];
    }
}

void sl_arb_use_save(struct arbiter *a, struct tenant *t)
{
    struct sl_history_entry e;
    struct sl_err err = SL_ERR_INIT;
    char line[SL_HISTORY_LINE_MAX], file[SL_NAME_MAX + 16];
    sl_arb_use_entry(a, t, &e);
    size_t size = sl_history_format(&e, line);
    t->use.saved_ns = a->now_ns;
    t->use.saved_work_ns = t->use.work_ns;
    file_name(t, file, sizeof(file));
    /* Without this file the entry of the tenant begins with the next arbiter. */
    if (sl_fs_replace(a->tenants_fd, file, line, size, 0600, &err) < 0)
        sl_debug("tenant %s: its use cannot be saved: %s", t->name, err.msg);
}

void sl_arb_use_begin(struct arbiter *a, struct tenant *t, uid_t uid)
{
    if (t->use.known)
        return;
    t->use.known = t->use.counts = true;
    t->use.uid = uid;
    (void)sl_client_about(t->about, "command", t->use.command, sizeof(t->use.command));
    if (!t->use.started_ms)
        t->use.started_ms = wall_ms();
    sl_arb_use_save(a, t);
}

void sl_arb_use_load(struct arbiter *a, struct tenant *t)
{
    char file[SL_NAME_MAX + 16];
    SL_CLEANUP(free) char *text = NULL;
    size_t size = 0;
    struct sl_history_entry e = {.uid = (uint32_t)t->owner};
    file_name(t, file, sizeof(file));
    t->use.known = sl_fs_read(a->tenants_fd, file, SL_HISTORY_LINE_MAX, &text, &size, NULL) == 0 &&
                   sl_history_parse(text, size, &e) &&
                   e.id == sl_hash_bytes(SL_HASH_START, t->cookie, sizeof(t->cookie));
    t->use.counts = true;
    t->use.uid = e.uid;
    t->use.started_ms = t->use.known ? e.started_ms : wall_ms();
    if (!t->use.known)
        return;
    memcpy(t->use.command, e.command, sizeof(t->use.command));
    t->use.waited_ns = e.waited_ms * SL_NS_PER_MS;
    t->use.work_ns = e.work_ms * SL_NS_PER_MS;
    t->use.measured_ns = e.measured_ms * SL_NS_PER_MS;
    t->use.used_ns = e.used_ms * SL_NS_PER_MS;
    t->use.end = e.end;
    t->use.code = e.code;
    for (uint32_t i = 0; i < e.gpu_count && i < t->gpu_count; i++)
        t->use.peak_bytes[i] = e.gpu[i].peak_bytes;
}

void sl_arb_use_remove(struct arbiter *a, const struct tenant *t)
{
    char file[SL_NAME_MAX + 16];
    file_name(t, file, sizeof(file));
    (void)unlinkat(a->tenants_fd, file, 0);
}
