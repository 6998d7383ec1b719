/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: the promises to tenants, and the rest for tenants without a promise.
 *
 * A tenant with a limit was promised that much. A tenant without a limit gets the memory that is promised to none: the
 * whole card while there is no promise on it; otherwise the rest, in equal parts when there are several such tenants.
 * Its lease page has that as its limit, so it sees a smaller card and cannot take the memory of others. It keeps the
 * memory that it already uses: a promise that would need this memory is not made.
 */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <string.h>

#include "arbiter/errors.h"
#include "base/log.h"
#include "base/units.h"
#include "shm/account.h"

/* The tenant's own index of a GPU; -1: the tenant does not have this GPU. */
static int place_of(const struct tenant *t, uint32_t gpu)
{
    for (uint32_t i = 0; i < t->gpu_count; i++)
        if (t->gpu[i] == gpu)
            return (int)i;
    return -1;
}

static uint64_t used_bytes(const struct tenant *t, int i)
{
    uint64_t ledger = t->ledger.page ? sl_account_total(t->ledger.page, (uint32_t)i) : 0;
    return ledger * SL_UNIT_BYTES + atomic_load(&t->lease.page->gpu[i].overhead_bytes);
}

/* The state of a GPU for all tenants on it, except one. */
struct standing {
    uint64_t promised_bytes;
    uint32_t open_count;            /* tenants without a limit */
    uint64_t open_bytes;            /* used by them */
    const struct tenant *open_most; /* the tenant of these that uses most */
    const struct tenant *unknown;   /* one whose usage is not known yet after a restart */
};

static struct standing look(const struct arbiter *a, uint32_t gpu, const struct tenant *except)
{
    struct standing s = {0};
    uint64_t most = 0;
    for (const struct tenant *t = a->tenants; t; t = t->next) {
        int i = t == except ? -1 : place_of(t, gpu);
        if (i < 0)
            continue;
        if (t->terms.memory_bytes[i] != SL_NO_LIMIT) {
            s.promised_bytes += t->terms.memory_bytes[i];
            continue;
        }
        uint64_t used = used_bytes(t, i);
        s.open_count++;
        s.open_bytes += used;
        if (used > most) {
            most = used;
            s.open_most = t;
        }
        if (!t->ledger.page || (t->doubt >> i & 1))
            s.unknown = t;
    }
    return s;
}

static int too_early(const struct gpu *g, const struct tenant *t, struct sl_err *err)
{
    return sl_err_set(err, -EAGAIN, SL_E_USE_UNKNOWN, t->name, g->index);
}

/* Does a promise fit beside the other promises, and beside the usage of tenants without a limit? */
static int check_promise(const struct gpu *g, const struct standing *s, uint64_t bytes,
                         struct sl_err *err)
{
    char has[32], want[32], left[32], used[32];
    (void)sl_format_bytes(g->total_bytes, has, sizeof(has));
    (void)sl_format_bytes(bytes, want, sizeof(want));
    if (bytes > g->total_bytes)
        return sl_err_set(err, -ENOSPC, SL_E_GPU_SMALL, g->index, g->name, has, want);
    uint64_t rest = g->total_bytes > s->promised_bytes ? g->total_bytes - s->promised_bytes : 0;
    if (bytes > rest)
        return sl_err_set(err, -ENOSPC, SL_E_GPU_MEMORY_LEFT, g->index, g->name,
                          sl_format_bytes(rest, left, sizeof(left)), has, want);
    if (s->open_bytes <= rest - bytes)
        return 0;
    uint64_t free_bytes = rest > s->open_bytes ? rest - s->open_bytes : 0;
    return sl_err_set(err, -ENOSPC, SL_E_GPU_MEMORY_USED, g->index, g->name,
                      sl_format_bytes(free_bytes, left, sizeof(left)), has, want,
                      sl_format_bytes(s->open_bytes, used, sizeof(used)), s->open_most->name);
}

static int asked_bytes(const struct gpu *g, const struct sl_msg_lease *ask, uint32_t i,
                       uint64_t *ret, struct sl_err *err)
{
    uint64_t own = ask->gpu_memory_bytes[i];
    if (ask->memory_percent > 100 || (!own && !ask->memory_percent && !ask->memory_bytes))
        return sl_err_set(err, -EINVAL, SL_E_TENANT_NEEDS_MEMORY);
    uint64_t bytes = ask->memory_bytes;
    if (own)
        bytes = own;
    else if (ask->memory_percent)
        bytes = (uint64_t)((unsigned __int128)g->total_bytes * ask->memory_percent / 100);
    *ret = bytes & ~(SL_UNIT_BYTES - 1);
    return 0;
}

bool sl_arb_grant_asked(const struct arbiter *a, uint32_t gpu, const struct sl_msg_lease *ask,
                        uint32_t i, uint64_t *ret)
{
    *ret = 0;
    return !(ask->fields & SL_FIELD_MEMORY) || asked_bytes(&a->gpu[gpu], ask, i, ret, NULL) == 0;
}

/* A limit below the present one is always granted, even if the card has changed. */
static bool has_already(const struct tenant *t, uint32_t i, uint64_t bytes)
{
    return t->terms.memory_bytes[i] != SL_NO_LIMIT && bytes <= t->terms.memory_bytes[i];
}

static uint64_t left_of(const struct gpu *g, const struct standing *s)
{
    uint64_t gone = s->promised_bytes + s->open_bytes;
    return g->total_bytes > gone ? g->total_bytes - gone : 0;
}

static int nothing_left(const struct gpu *g, struct sl_err *err)
{
    char has[32];
    return sl_err_set(err, -ENOSPC, SL_E_GPU_MEMORY_GONE, g->index, g->name,
                      sl_format_bytes(g->total_bytes, has, sizeof(has)));
}

uint64_t sl_arb_grant_left(const struct arbiter *a, uint32_t gpu, const struct tenant *except)
{
    struct standing s = look(a, gpu, except);
    return left_of(&a->gpu[gpu], &s);
}

int sl_arb_grant_memory(struct arbiter *a, const struct sl_msg_lease *ask, const struct tenant *t,
                        uint64_t ret_limit[SL_MAX_GPUS], struct sl_err *err)
{
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        const struct gpu *g = &a->gpu[t->gpu[i]];
        struct standing s = look(a, t->gpu[i], t);
        bool promise = ask->fields & SL_FIELD_MEMORY;
        uint64_t bytes = SL_NO_LIMIT;
        int rc = promise ? asked_bytes(g, ask, i, &bytes, err) : 0;
        if (rc < 0)
            return rc;
        ret_limit[i] = bytes;
        if (promise && has_already(t, i, bytes))
            continue;
        if (s.unknown && (promise || s.promised_bytes > 0))
            return too_early(g, s.unknown, err);
        if (!promise && s.promised_bytes > 0 && left_of(g, &s) == 0)
            return nothing_left(g, err);
        if (promise && (rc = check_promise(g, &s, bytes, err)) < 0)
            return rc;
    }
    return 0;
}

/* --- the rest without a promise ------------------------------------------------------------------ */

/*
 * Equal parts of `rest`, except for tenants that use more than that already: they keep their usage, and the others
 * share the remainder. Each round finds more of the former or is the last. `newcomers` use nothing yet, and are not
 * among the tenants.
 */
static uint64_t equal_part(const struct arbiter *a, uint32_t gpu, uint64_t rest, uint32_t count,
                           uint32_t newcomers)
{
    uint64_t part = rest / (count + newcomers);
    for (;;) {
        uint64_t left = rest;
        uint32_t others = newcomers;
        for (const struct tenant *t = a->tenants; t; t = t->next) {
            int i = place_of(t, gpu);
            if (i < 0 || t->terms.memory_bytes[i] != SL_NO_LIMIT)
                continue;
            uint64_t used = used_bytes(t, i);
            if (used <= part)
                others++;
            else
                left -= used < left ? used : left;
        }
        uint64_t next = others ? left / others : 0;
        if (next >= part)
            return part;
        part = next;
    }
}

static void set_share(struct arbiter *a, struct tenant *t, int i, uint64_t bytes)
{
    struct sl_err err = SL_ERR_INIT;
    if (t->share_bytes[i] == bytes)
        return;
    t->share_bytes[i] = bytes;
    sl_arb_tenant_terms(t);
    /* Matters only in the first second after a restart: better an old figure then than no tenant now. */
    if (sl_arb_state_save(a, t, &t->terms, &err) < 0)
        sl_warn("tenant %s: its part of the free memory cannot be saved: %s", t->name, err.msg);
}

static void share_gpu(struct arbiter *a, uint32_t gpu)
{
    struct standing s = look(a, gpu, NULL);
    if (s.open_count == 0 || s.unknown)
        return; /* no such tenant, or no change until their usage is known */
    uint64_t total = a->gpu[gpu].total_bytes;
    uint64_t rest = total > s.promised_bytes ? total - s.promised_bytes : 0;
    uint64_t part = equal_part(a, gpu, rest, s.open_count, 0) & ~(SL_UNIT_BYTES - 1);
    for (struct tenant *t = a->tenants; t; t = t->next) {
        int i = place_of(t, gpu);
        if (i < 0 || t->terms.memory_bytes[i] != SL_NO_LIMIT)
            continue;
        uint64_t used = used_bytes(t, i);
        set_share(a, t, i, s.promised_bytes == 0 ? SL_NO_LIMIT : used > part ? used : part);
    }
}

uint64_t sl_arb_grant_offer(const struct arbiter *a, uint32_t gpu)
{
    struct standing s = look(a, gpu, NULL);
    uint64_t total = a->gpu[gpu].total_bytes;
    return equal_part(a, gpu, total > s.promised_bytes ? total - s.promised_bytes : 0, s.open_count,
                      1);
}

void sl_arb_grant_share(struct arbiter *a, const uint32_t *gpus, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        share_gpu(a, gpus[i]);
}

int sl_arb_grant_holds(const struct arbiter *a, const struct tenant *t, struct sl_err *err)
{
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        const struct gpu *g = &a->gpu[t->gpu[i]];
        struct standing s = look(a, t->gpu[i], t);
        int rc = 0;
        if (t->terms.memory_bytes[i] != SL_NO_LIMIT)
            rc = check_promise(g, &s, t->terms.memory_bytes[i], err);
        else if (t->share_bytes[i] == 0)
            rc = nothing_left(g, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}
