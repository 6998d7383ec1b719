/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPU of the lease a device, a context or a stream belongs to. */
#ifndef SLUICE_PRELOAD_DEVICE_H
#define SLUICE_PRELOAD_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/cuda.h"
#include "preload/attach.h"

/* Index in the lease, or SL_NOT_LEASED. Told by UUID, so CUDA_VISIBLE_DEVICES may reorder. */
int sl_device_gpu(struct sl_process *p, CUdevice device);

/* The same by UUID, with or without its prefix. */
int sl_device_gpu_by_uuid(const struct sl_process *p, const char *uuid);

/* Where an allocation made now would go. */
struct sl_site {
    CUcontext context;
    CUdevice device;
    uint64_t context_id; /* owner of what is allocated in it */
    int gpu;
};

/* context NULL: none is current, as the driver will say itself. A driver that cannot tell is an
 * error to pass on: memory of an unknown place is not handed out. */
CUresult sl_site_current(struct sl_process *p, struct sl_site *ret);
/* The place of a stream's work; of the current context for the NULL and default streams. */
CUresult sl_site_stream(struct sl_process *p, CUstream stream, struct sl_site *ret);

/* A context begins and ends. Leaving takes it out, so that a new one under the same handle is
 * another; ended is called once the driver has destroyed it and returns what was charged in it. */
void sl_context_enter(struct sl_process *p, CUcontext context, CUdevice device);
bool sl_context_leave(CUcontext context, struct sl_site *ret);
void sl_context_back(const struct sl_site *place); /* the driver refused to destroy it */
void sl_context_ended(struct sl_process *p, const struct sl_site *place);
bool sl_context_known(CUcontext context);

void sl_device_forget(void);  /* in a forked child, and when a lease is replaced */
void sl_context_forget(void); /* in a forked child: context.c */

#endif
