/* SPDX-License-Identifier: Apache-2.0 */
/* Makes or removes one vGPU: writes the file of a step. May block: not for the thread of the loop. */
#ifndef SLUICE_AGENT_VM_APPLY_H
#define SLUICE_AGENT_VM_APPLY_H

#include "agent/vm/vgpu.h"

/* -EBUSY: the vGPU to remove is in use. */
int sl_vgpu_apply(const char *root, const struct sl_vgpu_step *step,
                  struct sl_err *err) SL_MUST_CHECK;

#endif
