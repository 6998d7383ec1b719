/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory accounts in the ledger page: exact between processes, without a lock, and right after a SIGKILL at any
 * instruction.
 *
 * The shared total is the only word the limit is checked against. It carries the tag (slot, op) of the operation that
 * wrote it last. An operation n of a slot
 *   1. writes used[n & 1] (the slot's usage after the operation; not valid yet),
 *   2. moves the total by compare-and-swap, tagging it (slot, n): from here it has happened,
 *   3. sets the slot's `applied` to n, which makes used[n & 1] the valid figure.
 * A process that is about to overwrite a tag first does step 3 for the tag's owner, so an operation that reached step 2
 * is never half done, whichever process dies. The owner of a slot serialises its operations (a lock inside the
 * process); operations of different slots are not serialised.
 *
 * All functions tolerate any content of the page; they index only by checked values.
 */
#ifndef SLUICE_SHM_ACCOUNT_H
#define SLUICE_SHM_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "sluice/pages.h"

static inline uint64_t sl_units_of_bytes(uint64_t bytes)
{
    return bytes / SL_UNIT_BYTES + (bytes % SL_UNIT_BYTES != 0);
}

/* Reserves units for a slot if the total stays within limit_units. -ENOMEM: it would not. */
int sl_account_reserve(struct sl_ledger_page *ledger, uint32_t slot, uint32_t gpu, uint64_t units,
                       uint64_t limit_units) SL_MUST_CHECK;

/* Returns units of a slot; never more than the slot has. */
void sl_account_release(struct sl_ledger_page *ledger, uint32_t slot, uint32_t gpu, uint64_t units);

/* Usage of one slot and of the whole tenant, in units. */
uint64_t sl_account_slot(const struct sl_ledger_page *ledger, uint32_t slot, uint32_t gpu);
uint64_t sl_account_total(const struct sl_ledger_page *ledger, uint32_t gpu);
/* The tenant has this much now, with overhead: keeps the most that was ever entered. */
void sl_account_peak_enter(struct sl_ledger_page *ledger, uint32_t gpu, uint64_t bytes);
uint64_t sl_account_peak(const struct sl_ledger_page *ledger, uint32_t gpu); /* 0: none entered */
/* Counts a slot's operations: the same number at two moments means that none happened in between. */
uint64_t sl_account_operations(const struct sl_ledger_page *ledger, uint32_t slot, uint32_t gpu);

/*
 * Returns all units of a dead process's slot, on every GPU. Only for the arbiter, once the process is gone. Limited
 * work: false when the tenant's other processes (or a hostile page) kept it from finishing; try again later. Harmless
 * to repeat.
 */
bool sl_account_reap(struct sl_ledger_page *ledger, uint32_t slot);

/*
 * Sets the total to the sum of all slots, in the middle of the tenant's work. Only for the arbiter, where it has reaped
 * the slot of a process that turned out to live: an operation that this process had prepared before may reach the total
 * after the reaping, and not the slot. The process's return makes its slot right, this the total.
 */
void sl_account_true_up(struct sl_ledger_page *ledger, uint32_t gpu);

/* Sets the books to zero. Only when the tenant has no process left. */
void sl_account_clear(struct sl_ledger_page *ledger);

#endif
