/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/charge.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "preload/lock.h"
#include "preload/share.h"
#include "shm/account.h"
#include "shm/shared.h"

#define MOVING_TRIES 1000

/* The charges of this process, by its own count: used when a ledger must be filled again. */
static struct {
    struct sl_lock lock;
    uint64_t held_units;
    _Atomic uint64_t estimated_units; /* at least those of held_units that are estimates */
} books[SL_MAX_GPUS];

static uint64_t limit_units(const struct sl_lease_page *lease, int gpu)
{
    const struct sl_lease_gpu *g = &lease->gpu[gpu];
    uint64_t limit = atomic_load_explicit(&g->memory_limit_bytes, memory_order_relaxed);
    uint64_t overhead = atomic_load_explicit(&g->overhead_bytes, memory_order_relaxed);
    if (limit == SL_NO_LIMIT)
        return UINT64_MAX;
    return limit > overhead ? (limit - overhead) / SL_UNIT_BYTES : 0;
}

bool sl_charge(struct sl_process *p, int gpu, uint64_t units, bool force)
{
    if ((unsigned int)gpu >= SL_MAX_GPUS)
        return units == 0;
    if (units == 0)
        return true;
    uint64_t limit = force ? UINT64_MAX : limit_units(atomic_load(&p->lease), gpu);
    for (int tries = 0;; tries++) {
        sl_lock_take(&books[gpu].lock);
        struct sl_ledger_page *ledger = atomic_load(&p->ledger);
        int rc = sl_account_reserve(ledger, atomic_load(&p->slot), (uint32_t)gpu, units, limit);
        if (rc == 0)
            books[gpu].held_units += units;
        sl_lock_drop(&books[gpu].lock);
        /* Units on their way into an entry count twice for a moment: try again after such a refusal. */
        if (rc == 0 || tries == MOVING_TRIES || !sl_shared_moving(ledger))
            return rc == 0;
        (void)sched_yield();
    }
}

int sl_charge_share(struct sl_process *p, int gpu, uint64_t units, uint64_t id, bool by_descriptor)
{
    if (gpu < 0 || gpu >= SL_MAX_GPUS)
        return -EINVAL;
    sl_lock_take(&books[gpu].lock);
    int entry = sl_shared_make(atomic_load(&p->ledger), atomic_load(&p->slot), id, (uint32_t)gpu,
                               units, by_descriptor);
    if (entry > 0)
        books[gpu].held_units -= units < books[gpu].held_units ? units : books[gpu].held_units;
    sl_lock_drop(&books[gpu].lock);
    return entry;
}

bool sl_charge_unshare(struct sl_process *p, int gpu, uint64_t units, int entry)
{
    if (gpu < 0 || gpu >= SL_MAX_GPUS)
        return false;
    sl_lock_take(&books[gpu].lock);
    bool back =
        sl_shared_take_back(atomic_load(&p->ledger), (uint32_t)entry, atomic_load(&p->slot));
    if (back)
        books[gpu].held_units += units;
    sl_lock_drop(&books[gpu].lock);
    return back;
}

void sl_charge_return(struct sl_process *p, int gpu, uint64_t units)
{
    if (gpu < 0 || gpu >= SL_MAX_GPUS || units == 0)
        return;
    sl_lock_take(&books[gpu].lock);
    if (units > books[gpu].held_units)
        units = books[gpu].held_units;
    books[gpu].held_units -= units;
    sl_account_release(atomic_load(&p->ledger), atomic_load(&p->slot), (uint32_t)gpu, units);
    sl_lock_drop(&books[gpu].lock);
}

bool sl_charge_estimate(struct sl_process *p, int gpu, uint64_t units)
{
    if (gpu < 0 || gpu >= SL_MAX_GPUS)
        return false;
    atomic_fetch_add(&books[gpu].estimated_units, units); /* first: no peak may contain them */
    bool charged = sl_charge(p, gpu, units, false);
    if (!charged)
        atomic_fetch_sub(&books[gpu].estimated_units, units);
    return charged;
}

void sl_charge_estimate_end(struct sl_process *p, int gpu, uint64_t units)
{
    if (gpu < 0 || gpu >= SL_MAX_GPUS || units == 0)
        return;
    sl_charge_return(p, gpu, units);
    atomic_fetch_sub(&books[gpu].estimated_units, units);
    sl_charge_peak(p, gpu);
}

CUresult sl_charge_refused(struct sl_process *p)
{
    atomic_fetch_add_explicit(&sl_process_slot(p)->oom_count, 1, memory_order_relaxed);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

struct sl_budget sl_charge_budget(struct sl_process *p, int gpu)
{
    struct sl_budget b = {.limited = true};
    if (gpu < 0 || gpu >= SL_MAX_GPUS)
        return b;
    const struct sl_lease_gpu *g = &atomic_load(&p->lease)->gpu[gpu];
    b.limit_bytes = atomic_load(&g->memory_limit_bytes);
    b.limited = b.limit_bytes != SL_NO_LIMIT;
    b.used_bytes = sl_account_total(atomic_load(&p->ledger), (uint32_t)gpu) * SL_UNIT_BYTES +
                   atomic_load(&g->overhead_bytes);
    return b;
}

void sl_charge_peak(struct sl_process *p, int gpu)
{
    if (gpu < 0 || gpu >= SL_MAX_GPUS)
        return;
    uint64_t used = sl_charge_budget(p, gpu).used_bytes;
    uint64_t estimated = atomic_load(&books[gpu].estimated_units) * SL_UNIT_BYTES;
    if (used > estimated)
        sl_account_peak_enter(atomic_load(&p->ledger), (uint32_t)gpu, used - estimated);
}

bool sl_charge_fits(struct sl_process *p, int gpu)
{
    struct sl_budget b = sl_charge_budget(p, gpu);
    return !b.limited || b.used_bytes <= b.limit_bytes;
}

void sl_charge_move(struct sl_process *p, struct sl_ledger_page *ledger, uint32_t slot)
{
    for (int gpu = 0; gpu < SL_MAX_GPUS; gpu++)
        sl_lock_take(&books[gpu].lock);
    atomic_store(&p->ledger, ledger);
    atomic_store(&p->slot, slot);
    atomic_store(&ledger->slot[slot % SL_MAX_SLOTS].pid, (uint32_t)getpid());
    for (uint32_t gpu = 0; gpu < SL_MAX_GPUS; gpu++) {
        /* An arbiter that lost the ledger, or thought that we had ended, has booked less than we hold. Also an entry
         * of 0 units: the arbiter sees by it that all is booked. */
        uint64_t booked = sl_account_slot(ledger, slot, gpu), held = books[gpu].held_units;
        if (booked <= held) {
            int ignored = sl_account_reserve(ledger, slot, gpu, held - booked, UINT64_MAX);
            (void)ignored;
        } else {
            sl_account_release(ledger, slot, gpu, booked - held);
        }
    }
    for (int gpu = SL_MAX_GPUS - 1; gpu >= 0; gpu--)
        sl_lock_drop(&books[gpu].lock);
    sl_share_move(p);
}

void sl_charge_forget(void)
{
    for (int gpu = 0; gpu < SL_MAX_GPUS; gpu++) {
        sl_lock_reset(&books[gpu].lock);
        books[gpu].held_units = 0;
        atomic_store(&books[gpu].estimated_units, 0);
    }
}
