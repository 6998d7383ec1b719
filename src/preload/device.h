/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPU of the lease a device, a context or a stream belongs to. */
#ifndef SLUICE_PRELOAD_DEVICE_H
#define SLUICE_PRELOAD_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/cuda.h"
#include "preload/attach.h"

/* Index in the lease, or SL_NOT_LEASED. Found by UUID, so CUDA_VISIBLE_DEVICES may reorder. */
int sl_device_gpu(struct sl_process *p, CUdevice device);

/* The same by UUID, with or without the prefix. */
int sl_device_gpu_by_uuid(const struct sl_process *p, const char *uuid);

/* The place of an allocation that is made now. */
struct sl_site {
    CUcontext context;
    CUdevice device;
    uint64_t context_id; /* owner of the allocations in it */
    int gpu;
};

/* context NULL: none is current; the driver will return the error. If the driver cannot tell the context, its error is
 * passed on: memory of an unknown place is not given out. */
CUresult sl_site_current(struct sl_process *p, struct sl_site *ret);
/* The place of a stream's work; of the current context for the NULL and default streams. */
CUresult sl_site_stream(struct sl_process *p, CUstream stream, struct sl_site *ret);

/* A context begins and ends. Leaving removes it, so that a new context with the same handle is another one. Call ended
 * once the driver has destroyed it: this returns its charges. */
void sl_context_enter(struct sl_process *p, CUcontext context, CUdevice device);
bool sl_context_leave(CUcontext context, struct sl_site *ret);
void sl_context_back(const struct sl_site *place); /* the driver refused to destroy it */
void sl_context_ended(struct sl_process *p, const struct sl_site *place);
bool sl_context_known(CUcontext context);

void sl_device_forget(void);  /* in a forked child, and when a lease is replaced */
void sl_context_forget(void); /* in a forked child: context.c */

#endif
