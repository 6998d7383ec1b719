/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vGPUs that Sluice made, remembered in the state directory: only these may be removed. A vGPU is written down before
 * it is made, so that an agent that is killed in between never leaves one that nobody knows. vGPUs do not survive a
 * restart of the machine, and the list is of one boot.
 */
#ifndef SLUICE_AGENT_VM_MADE_H
#define SLUICE_AGENT_VM_MADE_H

#include "agent/vm/tree.h"

struct sl_vgpu_made {
    char (*id)[SL_MDEV_UUID_SIZE];
    unsigned *type; /* the number of its type, on a virtual function; 0: not known */
    size_t count;
    char dir[4096], file[4200];
    char boot[64];
};

/* A missing, damaged or older list is an empty one. */
void sl_vgpu_made_open(const char *state_dir, struct sl_vgpu_made *ret);
void sl_vgpu_made_clear(struct sl_vgpu_made *made);
/* On failure the list is as before. */
int sl_vgpu_made_add(struct sl_vgpu_made *made, const char *id, unsigned type,
                     struct sl_err *err) SL_MUST_CHECK;
void sl_vgpu_made_drop(struct sl_vgpu_made *made, const char *id);
/* Forgets those that are no longer there, and those whose type another program changed: they are not ours any more. */
void sl_vgpu_made_prune(struct sl_vgpu_made *made, const struct sl_vm_tree *tree);

#endif
