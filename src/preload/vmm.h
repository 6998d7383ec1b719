/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management: see vmm.c. The rest is for vmm_multicast.c and for the forked child. */
#ifndef SLUICE_PRELOAD_VMM_H
#define SLUICE_PRELOAD_VMM_H

#include <stdint.h>

#include "abi/cuda.h"
#include "preload/attach.h"

struct physical; /* memory, or a multicast object, with what keeps it alive */

/* One more that keeps the memory of a handle, or of a mapped address; NULL: it is not known. */
struct physical *sl_vmm_hold(CUmemGenericAllocationHandle handle);
struct physical *sl_vmm_hold_at(CUdeviceptr address);
void sl_vmm_let_go(struct sl_process *p, struct physical *m);
int sl_vmm_gpu(const struct physical *m); /* in the lease */

/* A new handle of a multicast object, which costs nothing itself. After sl_track_room. */
bool sl_vmm_add_multicast(CUmemGenericAllocationHandle handle);
/* What its bindings are known by, from now on; 0: the handle is not known. */
uint64_t sl_vmm_multicast_id(CUmemGenericAllocationHandle handle);
/* The object is gone: so are its bindings. */
void sl_multicast_ended(struct sl_process *p, uint64_t id);

void sl_vmm_forget(void);

#endif
