/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Charging this process's memory to its tenant. One lock per GPU orders the process's own
 * operations, which the ledger wants; between processes the ledger needs none (shm/account.h).
 * Units are SL_UNIT_BYTES. `gpu` is an index in the lease, or SL_NOT_LEASED, where the limit is 0.
 */
#ifndef SLUICE_PRELOAD_CHARGE_H
#define SLUICE_PRELOAD_CHARGE_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/cuda.h"
#include "preload/attach.h"
#include "preload/hooks.h"

#define SL_NOT_LEASED (-1)

/* The beginning of every wrapper: finds the driver's function, attaches, and passes the call on
 * where there is no tenant. `args` in parentheses. */
#define SL_ENTER(symbol, real, p, args)                                                            \
    SL_REAL_OR_RETURN(symbol, real);                                                               \
    struct sl_process *p = sl_process_get();                                                       \
    if ((p)->mode != SL_MODE_TENANT)                                                               \
    return (p)->mode == SL_MODE_NONE ? real args : CUDA_ERROR_NOT_PERMITTED

/* True if the units were granted. A refusal here is not yet counted as the tenant's. `force`: they are taken already,
 * so they are charged over the limit if need be. */
bool sl_charge(struct sl_process *p, int gpu, uint64_t units, bool force);

/* Moves units of this process into an entry that others can join: the entry, or a negative errno. */
int sl_charge_share(struct sl_process *p, int gpu, uint64_t units, uint64_t id, bool by_descriptor);
/* … and back, if nobody else holds the entry; else false, and all stays as it is. */
bool sl_charge_unshare(struct sl_process *p, int gpu, uint64_t units, int entry);

void sl_charge_return(struct sl_process *p, int gpu, uint64_t units);

/* Counts a refusal; returns what the program is told: CUDA_ERROR_OUT_OF_MEMORY. */
CUresult sl_charge_refused(struct sl_process *p);

/* What the tenant may have, and has, on a GPU. `limited` false: only the card limits. */
struct sl_budget {
    bool limited;
    uint64_t limit_bytes;
    uint64_t used_bytes; /* allocations and overhead, of all the tenant's processes */
};
struct sl_budget sl_charge_budget(struct sl_process *p, int gpu);
bool sl_charge_fits(struct sl_process *p, int gpu); /* what it has is within what it may have */

/* The watch thread puts another ledger or slot in place: what this process holds moves along. */
void sl_charge_move(struct sl_process *p, struct sl_ledger_page *ledger, uint32_t slot);

void sl_charge_forget(void); /* in a forked child */

#endif
