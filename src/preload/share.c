/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/share.h"

#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "preload/charge.h"
#include "preload/lock.h"
#include "shm/shared.h"
#include "shm/tag.h"

#define ENTRIES (SL_MAX_SLOTS - SL_PROCESS_SLOTS)

/* The entries that this process holds; a process is one holder, however often it holds an entry. */
static struct {
    uint64_t id;
    uint64_t units;
    int gpu;
    uint32_t times;
    bool by_descriptor;
    bool own; /* the entry was lost: this process pays alone */
} mine[ENTRIES];
static struct sl_lock lock;

static uint32_t index_of(int entry)
{
    return (uint32_t)(entry - SL_PROCESS_SLOTS) % ENTRIES;
}

/* ---- ids ---- */

uint64_t sl_share_new_id(void)
{
    uint64_t id = 0;
    if (getrandom(&id, sizeof(id), GRND_NONBLOCK) != (ssize_t)sizeof(id))
        id = (uint64_t)sl_now_ns() ^ (uint64_t)(unsigned int)getpid() << 40;
    return sl_tag_id(id);
}

uint64_t sl_share_id_of(const void *handle, size_t size)
{
    uint64_t h = sl_hash_bytes(SL_HASH_START, handle, size);
    h = (h ^ h >> 29) * 0x9e3779b97f4a7c15ULL;
    return sl_tag_id(h ^ h >> 32);
}

/* ---- entries ---- */

/* False: the number still stands for a lost entry of this process. */
static bool remember(int entry, uint64_t id, const struct sl_cost *cost, bool by_descriptor)
{
    uint32_t i = index_of(entry);
    if (mine[i].times > 0)
        return false;
    mine[i].id = id;
    mine[i].units = cost->units;
    mine[i].gpu = cost->gpu;
    mine[i].by_descriptor = by_descriptor;
    mine[i].own = false;
    mine[i].times = 1;
    return true;
}

static void leave(struct sl_process *p, int entry)
{
    sl_shared_leave(atomic_load(&p->ledger), (uint32_t)entry, atomic_load(&p->slot), sl_tag_exists);
}

bool sl_share_begin(struct sl_process *p, struct sl_cost *cost, uint64_t id, bool by_descriptor)
{
    if (cost->entry != SL_NOT_SHARED || cost->gpu < 0 || cost->units == 0)
        return cost->entry != SL_NOT_SHARED;
    sl_lock_take(&lock);
    int entry = sl_charge_share(p, cost->gpu, cost->units, id, by_descriptor);
    bool shared = entry > 0 && remember(entry, id, cost, by_descriptor);
    if (shared) {
        cost->entry = entry;
    } else if (entry > 0) {
        (void)sl_charge(p, cost->gpu, cost->units, true);
        leave(p, entry);
    }
    sl_lock_drop(&lock);
    return shared;
}

uint64_t sl_share_id(const struct sl_cost *cost)
{
    return cost->entry == SL_NOT_SHARED ? 0 : mine[index_of(cost->entry)].id;
}

bool sl_share_join(struct sl_process *p, uint64_t id, struct sl_cost *ret)
{
    bool joined = false;
    sl_lock_take(&lock);
    for (uint32_t i = 0; i < ENTRIES && !joined; i++) {
        if (mine[i].times == 0 || mine[i].id != id)
            continue;
        mine[i].times++;
        *ret = (struct sl_cost){mine[i].gpu, mine[i].units, (int)(i + SL_PROCESS_SLOTS)};
        joined = true;
    }
    uint32_t gpu = 0;
    uint64_t units = 0;
    int entry =
        joined ? 0
               : sl_shared_join(atomic_load(&p->ledger), atomic_load(&p->slot), id, &gpu, &units);
    if (entry > 0) {
        *ret = (struct sl_cost){(int)gpu, units, entry};
        joined = remember(entry, id, ret, true);
        if (!joined)
            leave(p, entry);
    }
    sl_lock_drop(&lock);
    return joined;
}

void sl_share_end(struct sl_process *p, const struct sl_cost *cost)
{
    if (cost->entry == SL_NOT_SHARED) {
        sl_charge_return(p, cost->gpu, cost->units);
        return;
    }
    sl_lock_take(&lock);
    uint32_t i = index_of(cost->entry);
    if (mine[i].times > 0 && --mine[i].times == 0) {
        if (mine[i].own)
            sl_charge_return(p, mine[i].gpu, mine[i].units);
        else
            leave(p, cost->entry);
    }
    sl_lock_drop(&lock);
}

bool sl_share_take_back(struct sl_process *p, const struct sl_cost *cost)
{
    bool mine_again = false;
    sl_lock_take(&lock);
    uint32_t i = index_of(cost->entry);
    if (mine[i].times > 0 && --mine[i].times == 0) {
        mine_again = mine[i].own || sl_charge_unshare(p, mine[i].gpu, mine[i].units, cost->entry);
        if (!mine_again)
            leave(p, cost->entry);
    }
    sl_lock_drop(&lock);
    return mine_again;
}

bool sl_share_sweep(struct sl_process *p)
{
    sl_lock_take(&lock);
    bool any = sl_shared_sweep(atomic_load(&p->ledger), atomic_load(&p->slot), sl_tag_exists);
    sl_lock_drop(&lock);
    return any;
}

/*
 * In a new ledger the entry may not exist yet. All holders know it by its number, so it is made under the same number.
 * If that number is taken by now, the process goes on with units of its own.
 */
void sl_share_move(struct sl_process *p)
{
    sl_lock_take(&lock);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        if (mine[i].times == 0 || mine[i].own ||
            sl_shared_again(atomic_load(&p->ledger), i + SL_PROCESS_SLOTS, atomic_load(&p->slot),
                            mine[i].id, (uint32_t)mine[i].gpu, mine[i].units,
                            mine[i].by_descriptor))
            continue;
        mine[i].own = true;
        (void)sl_charge(p, mine[i].gpu, mine[i].units, true);
    }
    sl_lock_drop(&lock);
}

void sl_share_forget(void)
{
    sl_lock_reset(&lock);
    memset(mine, 0, sizeof(mine));
}
