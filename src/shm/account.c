/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/account.h"

#include <errno.h>

#include "base/fault.h"

#define UNITS_BITS 40
#define UNITS_MASK ((1ULL << UNITS_BITS) - 1)
#define TAG_MASK   0xfffULL

/* A busy tenant changes the total while it is summed: the arbiter tries again at its next look. */
#define TRUE_UP_TRIES 8

static uint64_t pack(uint64_t units, uint32_t slot, uint64_t op)
{
    return (units & UNITS_MASK) | ((uint64_t)slot & TAG_MASK) << UNITS_BITS |
           (op & TAG_MASK) << (UNITS_BITS + 12);
}

static uint32_t tag_slot(uint64_t word)
{
    return (uint32_t)((word >> UNITS_BITS) & TAG_MASK);
}

static uint64_t tag_op(uint64_t word)
{
    return word >> (UNITS_BITS + 12);
}

static_assert(SL_MAX_SLOTS == TAG_MASK + 1, "a tag names every slot and nothing else");

/*
 * Step 3 on behalf of the process that wrote the tag. A tag holds only twelve bits of the op number, so a helper that
 * was off the processor for thousands of operations would take an old tag for the owner's next operation. Hence the
 * second look: while the total still shows the tag, `applied` is the tagged number or the number before; and once the
 * total shows another tag, another process has already helped.
 */
static void complete(struct sl_ledger_page *ledger, uint32_t gpu, uint64_t word)
{
    _Atomic uint64_t *applied = &ledger->slot[tag_slot(word)].memory[gpu].applied;
    uint64_t before = atomic_load(applied);
    if (((before + 1) & TAG_MASK) == tag_op(word) && atomic_load(&ledger->total[gpu].word) == word)
        (void)atomic_compare_exchange_strong(applied, &before, before + 1);
}

/* The op number of a slot, including an operation that reached the total but not `applied`. The total is read first:
 * were it second, a helper could complete the slot and replace its tag between the two reads, and the operation would
 * be seen in neither. */
static uint64_t effective_op(const struct sl_ledger_page *ledger, uint32_t slot, uint32_t gpu)
{
    uint64_t word = atomic_load(&ledger->total[gpu].word);
    uint64_t op = atomic_load(&ledger->slot[slot].memory[gpu].applied);
    if (tag_slot(word) == slot && tag_op(word) == ((op + 1) & TAG_MASK))
        op++;
    return op;
}

int sl_account_reserve(struct sl_ledger_page *ledger, uint32_t slot, uint32_t gpu, uint64_t units,
                       uint64_t limit_units)
{
    if (slot >= SL_MAX_SLOTS || gpu >= SL_MAX_GPUS)
        return -EINVAL;
    if (limit_units > UNITS_MASK)
        limit_units = UNITS_MASK;
    struct sl_slot_memory *m = &ledger->slot[slot].memory[gpu];
    _Atomic uint64_t *total = &ledger->total[gpu].word;
    uint64_t before = atomic_load(&m->applied), op = before + 1;

    atomic_store(&m->used[op & 1], atomic_load(&m->used[before & 1]) + units);
    SL_FAULT("account.reserve.prepared");
    uint64_t word = atomic_load(total);
    do {
        uint64_t have = word & UNITS_MASK;
        if (have > limit_units || units > limit_units - have)
            return -ENOMEM;
        if (tag_slot(word) != slot) /* the slot's own tag is complete */
            complete(ledger, gpu, word);
    } while (
        !atomic_compare_exchange_weak(total, &word, pack((word & UNITS_MASK) + units, slot, op)));
    SL_FAULT("account.reserve.moved");
    /* Fails when another process has already done it for us. */
    (void)atomic_compare_exchange_strong(&m->applied, &before, op);
    SL_FAULT("account.reserve.applied");
    return 0;
}

void sl_account_release(struct sl_ledger_page *ledger, uint32_t slot, uint32_t gpu, uint64_t units)
{
    if (slot >= SL_MAX_SLOTS || gpu >= SL_MAX_GPUS)
        return;
    struct sl_slot_memory *m = &ledger->slot[slot].memory[gpu];
    _Atomic uint64_t *total = &ledger->total[gpu].word;
    uint64_t before = atomic_load(&m->applied), op = before + 1;
    uint64_t mine = atomic_load(&m->used[before & 1]);
    if (units > mine)
        units = mine;

    atomic_store(&m->used[op & 1], mine - units);
    SL_FAULT("account.release.prepared");
    uint64_t word = atomic_load(total), have;
    do {
        have = word & UNITS_MASK;
        if (tag_slot(word) != slot)
            complete(ledger, gpu, word);
    } while (!atomic_compare_exchange_weak(total, &word,
                                           pack(have > units ? have - units : 0, slot, op)));
    SL_FAULT("account.release.moved");
    (void)atomic_compare_exchange_strong(&m->applied, &before, op);
    SL_FAULT("account.release.applied");
}

uint64_t sl_account_operations(const struct sl_ledger_page *ledger, uint32_t slot, uint32_t gpu)
{
    return slot < SL_MAX_SLOTS && gpu < SL_MAX_GPUS ? effective_op(ledger, slot, gpu) : 0;
}

uint64_t sl_account_slot(const struct sl_ledger_page *ledger, uint32_t slot, uint32_t gpu)
{
    if (slot >= SL_MAX_SLOTS || gpu >= SL_MAX_GPUS)
        return 0;
    uint64_t op = effective_op(ledger, slot, gpu);
    return atomic_load(&ledger->slot[slot].memory[gpu].used[op & 1]) & UNITS_MASK;
}

uint64_t sl_account_total(const struct sl_ledger_page *ledger, uint32_t gpu)
{
    return gpu < SL_MAX_GPUS ? atomic_load(&ledger->total[gpu].word) & UNITS_MASK : 0;
}

void sl_account_peak_enter(struct sl_ledger_page *ledger, uint32_t gpu, uint64_t bytes)
{
    if (gpu >= SL_MAX_GPUS)
        return;
    _Atomic uint64_t *peak = &ledger->total[gpu].peak_bytes;
    uint64_t before = atomic_load(peak);
    while (before < bytes && !atomic_compare_exchange_weak(peak, &before, bytes))
        ;
}

uint64_t sl_account_peak(const struct sl_ledger_page *ledger, uint32_t gpu)
{
    return gpu < SL_MAX_GPUS ? atomic_load(&ledger->total[gpu].peak_bytes) : 0;
}

/* One GPU of sl_account_reap: a release of everything, done in the dead owner's name. */
static bool reap_gpu(struct sl_ledger_page *ledger, uint32_t slot, uint32_t gpu)
{
    struct sl_slot_memory *m = &ledger->slot[slot].memory[gpu];
    _Atomic uint64_t *total = &ledger->total[gpu].word;

    complete(ledger, gpu, atomic_load(total));
    uint64_t before = effective_op(ledger, slot, gpu), op = before + 1;
    uint64_t mine = atomic_load(&m->used[before & 1]) & UNITS_MASK;
    if (mine == 0)
        return true;
    atomic_store(&m->used[op & 1], 0);
    SL_FAULT("account.reap.prepared");
    uint64_t word = atomic_load(total);
    for (int tries = 0; tries < 10000; tries++) {
        uint64_t have = word & UNITS_MASK;
        complete(ledger, gpu, word);
        if (atomic_compare_exchange_weak(total, &word,
                                         pack(have > mine ? have - mine : 0, slot, op))) {
            SL_FAULT("account.reap.moved");
            atomic_store(&m->applied, op);
            return true;
        }
    }
    return false;
}

bool sl_account_reap(struct sl_ledger_page *ledger, uint32_t slot)
{
    bool done = slot < SL_MAX_SLOTS;
    for (uint32_t gpu = 0; done && gpu < SL_MAX_GPUS; gpu++)
        done = reap_gpu(ledger, slot, gpu);
    return done;
}

/* Every operation changes the tag of the total. So slots that were read between two looks at the same word belong to it;
 * an operation that is prepared meanwhile finds the new total when it moves it. */
void sl_account_true_up(struct sl_ledger_page *ledger, uint32_t gpu)
{
    if (gpu >= SL_MAX_GPUS)
        return;
    for (int tries = 0; tries < TRUE_UP_TRIES; tries++) {
        uint64_t word = atomic_load(&ledger->total[gpu].word), sum = 0;
        for (uint32_t slot = 0; slot < SL_MAX_SLOTS; slot++)
            sum += sl_account_slot(ledger, slot, gpu);
        uint64_t right = (word & ~UNITS_MASK) | (sum < UNITS_MASK ? sum : UNITS_MASK);
        if (atomic_compare_exchange_strong(&ledger->total[gpu].word, &word, right))
            return;
    }
}

void sl_account_clear(struct sl_ledger_page *ledger)
{
    for (uint32_t gpu = 0; gpu < SL_MAX_GPUS; gpu++) {
        for (uint32_t slot = 0; slot < SL_MAX_SLOTS; slot++) {
            struct sl_slot_memory *m = &ledger->slot[slot].memory[gpu];
            /* Reading first keeps untouched pages of the sparse file unallocated. */
            if (atomic_load(&m->used[0]) != 0)
                atomic_store(&m->used[0], 0);
            if (atomic_load(&m->used[1]) != 0)
                atomic_store(&m->used[1], 0);
        }
        uint64_t word = atomic_load(&ledger->total[gpu].word);
        complete(ledger, gpu, word);
        atomic_store(&ledger->total[gpu].word, word & ~UNITS_MASK);
    }
}
