/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/shared.h"

#include <errno.h>
#include <sched.h>

#include "base/fault.h"
#include "shm/account.h"

enum kind { FREE, MAKING, OPEN, CLOSING };

#define KIND_MASK     0x3U
#define BY_DESCRIPTOR 0x4U
#define GPU_SHIFT     8
#define WHO_SHIFT     16 /* slot + 1 of the process that works on it */
#define CLOSE_TRIES   100
#define AGAIN_TRIES   1000

static uint32_t state_of(enum kind kind, uint32_t gpu, bool by_descriptor, uint32_t slot)
{
    return (uint32_t)kind | (by_descriptor ? BY_DESCRIPTOR : 0) | (gpu & 0xffU) << GPU_SHIFT |
           ((slot + 1) & 0xffffU) << WHO_SHIFT;
}

static enum kind kind_of(uint32_t state)
{
    return (enum kind)(state & KIND_MASK);
}

static uint32_t gpu_of(uint32_t state)
{
    return (state >> GPU_SHIFT & 0xffU) % SL_MAX_GPUS;
}

static uint32_t who_of(uint32_t state)
{
    return (state >> WHO_SHIFT) - 1;
}

static bool is_entry(uint32_t entry)
{
    return entry >= SL_PROCESS_SLOTS && entry < SL_MAX_SLOTS;
}

/* Does any other slot hold it? */
static bool has_other_holders(const struct sl_shared *s, uint32_t slot)
{
    for (int i = 0; i < SL_SHARED_HOLDERS; i++) {
        uint16_t who = atomic_load(&s->holder[i]);
        if (who != 0 && who != slot + 1)
            return true;
    }
    return false;
}

static bool has_holders(const struct sl_shared *s)
{
    return has_other_holders(s, UINT32_MAX);
}

/* The end of MAKING or CLOSING, by the process that the state names or on its behalf. */
static bool give_up(struct sl_ledger_page *ledger, uint32_t entry)
{
    struct sl_shared *s = &ledger->slot[entry].shared;
    if (!sl_account_reap(ledger, entry)) {
        /* The tenant's own processes changed the total all the time: leave it to the arbiter. */
        atomic_store(&s->state, state_of(CLOSING, 0, false, SL_SHARED_BY_ARBITER));
        return false;
    }
    atomic_store(&s->id, 0);
    SL_FAULT("shared.close.returned");
    atomic_store(&s->state, FREE);
    return true;
}

/* True if it was closed here. */
static bool close_if_unused(struct sl_ledger_page *ledger, uint32_t entry, uint32_t by,
                            sl_shared_kept *kept)
{
    struct sl_shared *s = &ledger->slot[entry].shared;
    for (int i = 0; i < CLOSE_TRIES; i++) {
        uint32_t state = atomic_load(&s->state);
        if (kind_of(state) != OPEN || has_holders(s))
            return false;
        if ((state & BY_DESCRIPTOR) && (!kept || kept(atomic_load(&s->id))))
            return false;
        uint32_t closing = state_of(CLOSING, gpu_of(state), state & BY_DESCRIPTOR, by);
        if (!atomic_compare_exchange_strong(&s->state, &state, closing))
            continue;
        SL_FAULT("shared.close.begun");
        if (!has_holders(s))
            return give_up(ledger, entry);
        atomic_store(&s->state, state); /* a process has joined: look again once it has looked */
    }
    return false;
}

/* Takes a free entry for MAKING, with the units in it. False: it was not free. */
static bool begin_making(struct sl_ledger_page *ledger, uint32_t entry, uint32_t slot, uint64_t id,
                         uint32_t gpu, uint64_t units)
{
    struct sl_shared *s = &ledger->slot[entry].shared;
    uint32_t state = FREE;
    if (!atomic_compare_exchange_strong(&s->state, &state, state_of(MAKING, gpu, false, slot)))
        return false;
    for (int i = 1; i < SL_SHARED_HOLDERS; i++)
        atomic_store(&s->holder[i], 0);
    atomic_store(&s->holder[0], (uint16_t)(slot + 1));
    atomic_store(&s->id, id);
    SL_FAULT("shared.make.named");
    if (sl_account_reserve(ledger, entry, gpu, units, UINT64_MAX) < 0) {
        (void)give_up(ledger, entry);
        return false;
    }
    SL_FAULT("shared.make.reserved");
    return true;
}

int sl_shared_make(struct sl_ledger_page *ledger, uint32_t slot, uint64_t id, uint32_t gpu,
                   uint64_t units, bool by_descriptor)
{
    if (slot >= SL_PROCESS_SLOTS || gpu >= SL_MAX_GPUS || id == 0)
        return -EINVAL;
    for (uint32_t entry = SL_PROCESS_SLOTS; entry < SL_MAX_SLOTS; entry++) {
        if (!begin_making(ledger, entry, slot, id, gpu, units))
            continue;
        sl_account_release(ledger, slot, gpu, units);
        SL_FAULT("shared.make.moved");
        atomic_store(&ledger->slot[entry].shared.state, state_of(OPEN, gpu, by_descriptor, slot));
        return (int)entry;
    }
    return -ENOSPC;
}

static bool take_place(struct sl_shared *s, uint32_t slot)
{
    for (int i = 0; i < SL_SHARED_HOLDERS; i++) {
        uint16_t nobody = 0;
        if (atomic_compare_exchange_strong(&s->holder[i], &nobody, (uint16_t)(slot + 1)))
            return true;
    }
    return false;
}

static void leave_place(struct sl_shared *s, uint32_t slot)
{
    for (int i = 0; i < SL_SHARED_HOLDERS; i++) {
        uint16_t me = (uint16_t)(slot + 1);
        if (atomic_compare_exchange_strong(&s->holder[i], &me, 0))
            return;
    }
}

bool sl_shared_again(struct sl_ledger_page *ledger, uint32_t entry, uint32_t slot, uint64_t id,
                     uint32_t gpu, uint64_t units, bool by_descriptor)
{
    if (!is_entry(entry) || slot >= SL_PROCESS_SLOTS || gpu >= SL_MAX_GPUS || id == 0)
        return false;
    struct sl_shared *s = &ledger->slot[entry].shared;
    for (int i = 0; i < AGAIN_TRIES; i++) {
        enum kind kind = kind_of(atomic_load(&s->state));
        if (kind == OPEN && atomic_load(&s->id) == id) {
            leave_place(s, slot); /* never twice */
            return take_place(s, slot);
        }
        if (kind == OPEN)
            return false;
        if (kind == FREE && begin_making(ledger, entry, slot, id, gpu, units)) {
            atomic_store(&s->state, state_of(OPEN, gpu, by_descriptor, slot));
            return true;
        }
        (void)sched_yield(); /* another holder works on it */
    }
    return false;
}

int sl_shared_join(struct sl_ledger_page *ledger, uint32_t slot, uint64_t id, uint32_t *ret_gpu,
                   uint64_t *ret_units)
{
    if (slot >= SL_PROCESS_SLOTS || id == 0)
        return -EINVAL;
    for (uint32_t entry = SL_PROCESS_SLOTS; entry < SL_MAX_SLOTS; entry++) {
        struct sl_shared *s = &ledger->slot[entry].shared;
        if (kind_of(atomic_load(&s->state)) != OPEN || atomic_load(&s->id) != id)
            continue;
        if (!take_place(s, slot))
            return -ENOSPC;
        SL_FAULT("shared.join.placed");
        uint32_t state = atomic_load(&s->state);
        if (kind_of(state) == OPEN && atomic_load(&s->id) == id) {
            *ret_gpu = gpu_of(state);
            *ret_units = sl_account_slot(ledger, entry, *ret_gpu);
            return (int)entry;
        }
        sl_shared_leave(ledger, entry, slot, NULL);
        return -ENOENT;
    }
    return -ENOENT;
}

void sl_shared_leave(struct sl_ledger_page *ledger, uint32_t entry, uint32_t slot,
                     sl_shared_kept *kept)
{
    if (!is_entry(entry))
        return;
    leave_place(&ledger->slot[entry].shared, slot);
    SL_FAULT("shared.leave.left");
    (void)close_if_unused(ledger, entry, slot, kept);
}

bool sl_shared_take_back(struct sl_ledger_page *ledger, uint32_t entry, uint32_t slot)
{
    if (!is_entry(entry) || slot >= SL_PROCESS_SLOTS)
        return false;
    struct sl_shared *s = &ledger->slot[entry].shared;
    uint32_t state = atomic_load(&s->state), gpu = gpu_of(state);
    /* MAKING again: moving units count twice for a moment, in this direction too. */
    if (kind_of(state) != OPEN || (state & BY_DESCRIPTOR) ||
        !atomic_compare_exchange_strong(&s->state, &state, state_of(MAKING, gpu, false, slot)))
        return false;
    SL_FAULT("shared.back.begun");
    if (has_other_holders(s, slot) ||
        sl_account_reserve(ledger, slot, gpu, sl_account_slot(ledger, entry, gpu), UINT64_MAX) <
            0) {
        atomic_store(&s->state, state);
        return false;
    }
    SL_FAULT("shared.back.reserved");
    leave_place(s, slot);
    (void)give_up(ledger, entry);
    return true;
}

bool sl_shared_sweep(struct sl_ledger_page *ledger, uint32_t slot, sl_shared_kept *kept)
{
    bool any = false;
    for (uint32_t entry = SL_PROCESS_SLOTS; entry < SL_MAX_SLOTS; entry++)
        any |= close_if_unused(ledger, entry, slot, kept);
    return any;
}

bool sl_shared_moving(const struct sl_ledger_page *ledger)
{
    for (uint32_t entry = SL_PROCESS_SLOTS; entry < SL_MAX_SLOTS; entry++)
        if (kind_of(atomic_load(&ledger->slot[entry].shared.state)) == MAKING)
            return true;
    return false;
}

/* Ends MAKING or CLOSING on behalf of a process that died inside. If other processes hold the entry, the dead process
 * had not seen them yet: then the entry is theirs. */
static bool finish(struct sl_ledger_page *ledger, uint32_t entry, sl_shared_kept *kept)
{
    struct sl_shared *s = &ledger->slot[entry].shared;
    uint32_t state = atomic_load(&s->state);
    if (who_of(state) == SL_SHARED_BY_ARBITER || !has_holders(s))
        return give_up(ledger, entry);
    atomic_store(&s->state,
                 state_of(OPEN, gpu_of(state), state & BY_DESCRIPTOR, SL_SHARED_BY_ARBITER));
    (void)close_if_unused(ledger, entry, SL_SHARED_BY_ARBITER, kept);
    return true;
}

bool sl_shared_reap(struct sl_ledger_page *ledger, bool (*dead)(uint32_t slot, const void *arg),
                    const void *arg, sl_shared_kept *kept)
{
    bool done = true;
    for (uint32_t entry = SL_PROCESS_SLOTS; entry < SL_MAX_SLOTS; entry++) {
        struct sl_shared *s = &ledger->slot[entry].shared;
        uint32_t state = atomic_load(&s->state);
        if (kind_of(state) == FREE)
            continue;
        for (int i = 0; i < SL_SHARED_HOLDERS; i++) {
            uint16_t who = atomic_load(&s->holder[i]);
            if (who != 0 && dead(who - 1U, arg))
                atomic_store(&s->holder[i], 0);
        }
        bool begun = kind_of(state) == MAKING || kind_of(state) == CLOSING;
        if (begun && (who_of(state) == SL_SHARED_BY_ARBITER || dead(who_of(state), arg)))
            done = done && finish(ledger, entry, kept); /* after a failure: remove holders only */
        else
            (void)close_if_unused(ledger, entry, SL_SHARED_BY_ARBITER, kept);
    }
    return done;
}

uint64_t sl_shared_held(const struct sl_ledger_page *ledger, uint32_t slot, uint32_t gpu)
{
    uint64_t units = 0;
    for (uint32_t entry = SL_PROCESS_SLOTS; entry < SL_MAX_SLOTS; entry++) {
        const struct sl_shared *s = &ledger->slot[entry].shared;
        uint32_t state = atomic_load(&s->state);
        if (kind_of(state) != OPEN || gpu_of(state) != gpu)
            continue;
        for (int i = 0; i < SL_SHARED_HOLDERS; i++) {
            if (atomic_load(&s->holder[i]) != slot + 1)
                continue;
            units += sl_account_slot(ledger, entry, gpu);
            break;
        }
    }
    return units;
}

void sl_shared_clear(struct sl_ledger_page *ledger)
{
    for (uint32_t entry = SL_PROCESS_SLOTS; entry < SL_MAX_SLOTS; entry++) {
        struct sl_shared *s = &ledger->slot[entry].shared;
        /* Reading first keeps untouched pages of the sparse file unallocated. */
        if (atomic_load(&s->state) == FREE)
            continue;
        atomic_store(&s->id, 0);
        atomic_store(&s->state, FREE);
    }
}
