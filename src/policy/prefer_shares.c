/* SPDX-License-Identifier: Apache-2.0 */
/* Shares and MIG devices: one replica at a time, each time the best one. */
#include "policy/errors.h"
#include "policy/prefer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/xalloc.h"

struct card {
    uint64_t used;   /* before this call */
    uint64_t picked; /* in this call */
};

struct state {
    const struct sl_prefer_unit *units;
    const unsigned *taken; /* by unit, in this call */
    const struct card *cards;
};

/* The numbers that decide between units, the first number first; the least wins. */
static void rank(const struct state *s, bool packed, size_t at, uint64_t ret[4])
{
    const struct sl_prefer_unit *u = &s->units[at];
    const struct card *c = &s->cards[u->gpu];
    uint64_t taken = s->taken[at];
    ret[0] = packed ? UINT64_MAX - (c->used + c->picked) : c->picked;
    ret[1] = packed ? c->picked : taken;
    ret[2] = packed ? UINT64_MAX - (u->used + taken) : c->used;
    ret[3] = packed ? taken : u->used;
}

static bool better(const struct state *s, bool packed, size_t a, size_t b)
{
    uint64_t of_a[4], of_b[4];
    rank(s, packed, a, of_a);
    rank(s, packed, b, of_b);
    for (size_t i = 0; i < 4; i++)
        if (of_a[i] != of_b[i])
            return of_a[i] < of_b[i];
    return false;
}

static int check(const struct sl_prefer_unit *units, size_t count, size_t gpu_count, size_t size,
                 struct sl_err *err)
{
    uint64_t must = 0, can = 0;
    for (size_t i = 0; i < count; i++) {
        if (units[i].gpu >= gpu_count || units[i].must > units[i].free)
            return sl_err_set(err, -EINVAL, SL_E_PREFER_SHARE, i);
        must += units[i].must;
        can += units[i].free;
    }
    if (size < must || size > can)
        return sl_err_set(err, -ERANGE, SL_E_PREFER_SHARES, size, (unsigned long long)must,
                          (unsigned long long)can);
    return 0;
}

int sl_prefer_shares(enum sl_prefer_share how, const struct sl_prefer_unit *units, size_t count,
                     size_t gpu_count, size_t size, unsigned *ret, struct sl_err *err)
{
    int rc = check(units, count, gpu_count, size, err);
    if (rc < 0)
        return rc;
    SL_CLEANUP(free) struct card *cards = sl_xcalloc(gpu_count + 1, sizeof(*cards));
    for (size_t i = 0; i < count; i++) {
        ret[i] = units[i].must;
        cards[units[i].gpu].used += units[i].used;
        cards[units[i].gpu].picked += units[i].must;
        size -= units[i].must;
    }
    struct state s = {.units = units, .taken = ret, .cards = cards};
    for (; size > 0; size--) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < count; i++) {
            if (ret[i] == units[i].free)
                continue;
            if (best == SIZE_MAX || better(&s, how == SL_PREFER_PACKED, i, best))
                best = i;
        }
        ret[best]++;
        cards[units[best].gpu].picked++;
    }
    return 0;
}

bool sl_prefer_together(enum sl_prefer_share how, const struct sl_prefer_unit *units, size_t count,
                        size_t size, unsigned *ret)
{
    size_t best = SIZE_MAX, must = 0;
    for (size_t i = 0; i < count; i++)
        must += units[i].must;
    for (size_t i = 0; i < count; i++) {
        if (units[i].free < size || units[i].must != must || size < must)
            continue;
        if (best == SIZE_MAX || (how == SL_PREFER_PACKED ? units[i].used > units[best].used
                                                         : units[i].used < units[best].used))
            best = i;
    }
    if (best == SIZE_MAX)
        return false;
    for (size_t i = 0; i < count; i++)
        ret[i] = i == best ? (unsigned)size : 0;
    return true;
}
