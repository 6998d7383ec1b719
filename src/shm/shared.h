/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that several processes of one tenant hold counts once. Each such piece has an account of its own in the
 * ledger, a slot from SL_PROCESS_SLOTS on: its units, an id by which the others find it, and the slots of the processes
 * that keep it. The units are returned when the last of those processes leaves.
 *
 * An entry is FREE, MAKING, OPEN or CLOSING. Only the process that moved it to MAKING or CLOSING works on its account,
 * so the account's rule (one writer per slot) holds. The state names that process; when it dies inside, the arbiter
 * finishes its work. A process that joins writes its holder first and reads the state after; a process that closes
 * writes the state first and reads the holders after: one of both sees the other.
 *
 * Each process serialises its own calls. All functions tolerate any content of the page.
 */
#ifndef SLUICE_SHM_SHARED_H
#define SLUICE_SHM_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "sluice/pages.h"

#define SL_SHARED_BY_ARBITER 0xfffeU /* in place of a slot */

/* Does an exported descriptor keep the memory of `id`, which no process holds? Called only for an entry without a
 * holder; NULL: always yes. */
typedef bool sl_shared_kept(uint64_t id);

/*
 * Moves units that `slot` has on `gpu` into a new entry, with the slot as its only holder. Returns the entry (a slot
 * number), or -ENOSPC: then the units stay in the slot. `by_descriptor`: the memory can outlive its holders. The total
 * is too high for a moment: see sl_shared_moving().
 */
int sl_shared_make(struct sl_ledger_page *ledger, uint32_t slot, uint64_t id, uint32_t gpu,
                   uint64_t units, bool by_descriptor) SL_MUST_CHECK;

/* Finds the entry and joins it. Returns the entry, or -ENOENT, or -ENOSPC (too many holders). */
int sl_shared_join(struct sl_ledger_page *ledger, uint32_t slot, uint64_t id, uint32_t *ret_gpu,
                   uint64_t *ret_units) SL_MUST_CHECK;

/*
 * The process holds the entry, but its ledger or its slot is new: it becomes a holder again, and the first such process
 * makes the entry. False: the number belongs to another entry by now.
 */
bool sl_shared_again(struct sl_ledger_page *ledger, uint32_t entry, uint32_t slot, uint64_t id,
                     uint32_t gpu, uint64_t units, bool by_descriptor) SL_MUST_CHECK;

/* The process does not hold the entry any more. */
void sl_shared_leave(struct sl_ledger_page *ledger, uint32_t entry, uint32_t slot,
                     sl_shared_kept *kept);

/*
 * The opposite of sl_shared_make, for an entry that no descriptor keeps: its units become the slot's own, and the entry
 * is free. False: other processes hold it, and nothing changes.
 */
bool sl_shared_take_back(struct sl_ledger_page *ledger, uint32_t entry,
                         uint32_t slot) SL_MUST_CHECK;

/* Closes accounts that no process holds and no descriptor keeps. True if memory was given back. */
bool sl_shared_sweep(struct sl_ledger_page *ledger, uint32_t slot, sl_shared_kept *kept);

/* Is a process moving units into an entry? Then a refusal just now may be wrong. */
bool sl_shared_moving(const struct sl_ledger_page *ledger);

/* Removes dead processes from all entries. Only for the arbiter. False: not all could be returned, as in
 * sl_account_reap(); try again later. */
bool sl_shared_reap(struct sl_ledger_page *ledger, bool (*dead)(uint32_t slot, const void *arg),
                    const void *arg, sl_shared_kept *kept);

/* Units of the entries that the slot's process holds. */
uint64_t sl_shared_held(const struct sl_ledger_page *ledger, uint32_t slot, uint32_t gpu);

/* Forgets all entries; the account is cleared separately. Only when the tenant has no process left. */
void sl_shared_clear(struct sl_ledger_page *ledger);

#endif
