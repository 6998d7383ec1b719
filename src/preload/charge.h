/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Charges this process's memory to its tenant. One lock per GPU orders the process's own operations, as the ledger
 * requires; between processes the ledger needs no lock (shm/account.h). Units are SL_UNIT_BYTES. `gpu` is an index in
 * the lease, or SL_NOT_LEASED, where the limit is 0.
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

/* True if the units were granted. A refusal here is not yet counted for the tenant. `force`: the memory is already
 * taken, so it is charged even beyond the limit. */
bool sl_charge(struct sl_process *p, int gpu, uint64_t units, bool force);

/* Moves units of this process into an entry that other processes can join. Returns the entry, or a negative errno. */
int sl_charge_share(struct sl_process *p, int gpu, uint64_t units, uint64_t id, bool by_descriptor);
/* … and back, if no other process holds the entry; else false, and nothing changes. */
bool sl_charge_unshare(struct sl_process *p, int gpu, uint64_t units, int entry);

void sl_charge_return(struct sl_process *p, int gpu, uint64_t units);

/* A charge for something whose cost is not known yet, and its end. */
bool sl_charge_estimate(struct sl_process *p, int gpu, uint64_t units);
void sl_charge_estimate_end(struct sl_process *p, int gpu, uint64_t units);

/* Counts a refusal; returns the program's error: CUDA_ERROR_OUT_OF_MEMORY. */
CUresult sl_charge_refused(struct sl_process *p);

/* The tenant's limit and usage on a GPU. `limited` false: only the card limits. */
struct sl_budget {
    bool limited;
    uint64_t limit_bytes;
    uint64_t used_bytes; /* allocations and overhead of all processes of the tenant */
};
struct sl_budget sl_charge_budget(struct sl_process *p, int gpu);
/* Memory was taken: the usage may be the highest so far. Estimates of this process do not count. */
void sl_charge_peak(struct sl_process *p, int gpu);
bool sl_charge_fits(struct sl_process *p, int gpu); /* the usage is within the limit */

/* The watch thread replaces the ledger or the slot: the charges of this process move along. */
void sl_charge_move(struct sl_process *p, struct sl_ledger_page *ledger, uint32_t slot);

void sl_charge_forget(void); /* in a forked child */

#endif
