/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that this process shares with other processes of its tenant: counted once, as long as one of them holds it
 * (shm/shared.h). Two processes know that they mean the same memory by the handle that went from one to the other. A
 * descriptor gets a tag (shm/tag.h); other handles are compared by their bytes.
 */
#ifndef SLUICE_PRELOAD_SHARE_H
#define SLUICE_PRELOAD_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/attach.h"
#include "preload/track.h"

/* The charge of a piece of memory: units of this process, or a part of an entry. */
struct sl_cost {
    int gpu;
    uint64_t units;
    int entry; /* a slot of the ledger, or SL_NOT_SHARED: then the units are this process's own */
};
#define SL_NOT_SHARED 0

/* Gives the piece an id, if it has none: its units move into an entry. False: nothing changes. */
bool sl_share_begin(struct sl_process *p, struct sl_cost *cost, uint64_t id, bool by_descriptor);
uint64_t sl_share_id(const struct sl_cost *cost); /* 0: not shared */
/* Joins the entry of that id. False: the tenant has no such entry. */
bool sl_share_join(struct sl_process *p, uint64_t id, struct sl_cost *ret);
/* The piece returns to a pool of this process: true if its units are the process's own again. False: another process
 * still holds it, and this process has left it. */
bool sl_share_take_back(struct sl_process *p, const struct sl_cost *cost);
/* The memory is gone: returns its charge. */
void sl_share_end(struct sl_process *p, const struct sl_cost *cost);

/* The same for an entry of the table. */
static inline void sl_share_end_of(struct sl_process *p, const struct sl_track *t)
{
    struct sl_cost cost = {t->gpu, t->units, t->entry};
    sl_share_end(p, &cost);
}

uint64_t sl_share_new_id(void);
uint64_t sl_share_id_of(const void *handle, size_t size);

/* Frees entries that only a descriptor kept, once the descriptor is closed. True if units were returned. */
bool sl_share_sweep(struct sl_process *p);

void sl_share_move(struct sl_process *p); /* the ledger or the slot was replaced: see charge.c */
void sl_share_forget(void);               /* in a forked child */

#endif
