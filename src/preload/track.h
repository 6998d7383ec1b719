/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The charges of this process by object: a hash table by (kind, handle). One lock, held only for the table's own work.
 * An object that was made before we attached is not in the table, and its release passes through.
 */
#ifndef SLUICE_PRELOAD_TRACK_H
#define SLUICE_PRELOAD_TRACK_H

#include <stdbool.h>
#include <stdint.h>

enum sl_kind {
    SL_KIND_FREE = 0, /* an empty place in the table */
    SL_KIND_LINEAR,   /* cuMemAlloc, Pitch, Managed: key is the address */
    SL_KIND_ASYNC,    /* from a pool, which pays for it; owner is the pool's id */
    SL_KIND_ARRAY,
    SL_KIND_MIPMAP,
    SL_KIND_EXTERNAL,
    SL_KIND_PHYSICAL, /* cuMemCreate's handle; object is a struct physical of vmm.c */
    SL_KIND_MAPPING,  /* cuMemMap: key is the address, units its size, object as above */
    SL_KIND_BINDING, /* cuMulticastBind*: key is the offset, units the size, owner the multicast object's id */
    SL_KIND_IPC,     /* cuIpcOpenMemHandle: key is the address */
    SL_KIND_PIECE,   /* cuMemPoolImportPointer: the same */
    SL_KIND_CONTEXT, /* owner is the context's id */
    SL_KIND_EXEC,    /* an instantiated graph with memory nodes: units is its need */
};

struct sl_track {
    uint64_t key;
    uint64_t units;
    uint64_t owner; /* context or pool id; ids are never used twice */
    void *object;
    enum sl_kind kind;
    int gpu;
    int entry;      /* of the ledger, where the units are shared: see share.h */
    uint32_t times; /* how often an IPC handle is open, or a piece imported */
};

/* Reserves room, so that one sl_track_put cannot fail. Every true must be followed by a put or a cancel. */
bool sl_track_room(void);
void sl_track_cancel(void);
void sl_track_put(const struct sl_track *entry);

bool sl_track_take(enum sl_kind kind, uint64_t key, struct sl_track *ret);
bool sl_track_get(enum sl_kind kind, uint64_t key, struct sl_track *ret);

/* Takes one entry for which match is true; false when there is none. Linear: for rare events. */
bool sl_track_take_if(bool (*match)(const struct sl_track *entry, const void *arg), const void *arg,
                      struct sl_track *ret);
bool sl_track_get_if(bool (*match)(const struct sl_track *entry, const void *arg), const void *arg,
                     struct sl_track *ret);

/* The units of all entries for which match is true. */
uint64_t sl_track_sum_if(bool (*match)(const struct sl_track *entry, const void *arg),
                         const void *arg);

uint64_t sl_track_new_id(void);

void sl_track_forget(void); /* in a forked child */

#endif
