/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches the devices for virtual machines. sysfs has no events that a container can rely on, so it is read again every
 * two seconds, on a thread of its own; the callbacks run on the loop.
 */
#ifndef SLUICE_AGENT_VM_VM_H
#define SLUICE_AGENT_VM_VM_H

#include "agent/vm/tree.h"
#include "agent/vm/vgpu.h"
#include "base/loop.h"

struct sl_vm;

/* Zero means the default in every field. */
struct sl_vm_options {
    const char *root;      /* has sys/ and dev/: "/" */
    const char *state_dir; /* remembers the names of vGPU types; NULL: not remembered */
    uint64_t poll_ns;      /* 2 s */
    uint64_t stall_ns;     /* a read that takes longer is stalled: 10 s */
};

struct sl_vm_ops {
    /* The first tree, and each one that differs from its predecessor. Borrowed until the next call returns. */
    void (*changed)(void *data, const struct sl_vm_tree *tree);
    /* Each text once, until a read goes well. */
    void (*trouble)(void *data, const struct sl_err *err);
    void (*stalled)(void *data, uint64_t for_ns); /* the last tree stays valid */
    void (*resumed)(void *data, uint64_t after_ns);
};

int sl_vm_create(struct sl_loop *loop, const struct sl_vm_options *options,
                 const struct sl_vm_ops *ops, void *data, struct sl_vm **ret,
                 struct sl_err *err) SL_MUST_CHECK;
/* Not from a callback. NULL is fine. */
void sl_vm_destroy(struct sl_vm *vm);

/* The pci.ids file from now on; NULL or "": where distributions put it. Reads again if it is another file. */
void sl_vm_pci_ids(struct sl_vm *vm, const char *file);
void sl_vm_refresh(struct sl_vm *vm); /* reads now */

/* Takes the step on the thread that reads sysfs, then calls back with the data of sl_vm_create; not after
 * sl_vm_destroy. */
typedef void sl_vm_applied(void *data, const struct sl_vgpu_step *step, int result,
                           const struct sl_err *err);
void sl_vm_apply(struct sl_vm *vm, const struct sl_vgpu_step *step, sl_vm_applied *done);

/* The names of vGPU types seen so far. */
const struct sl_vgpu_type *sl_vm_types(const struct sl_vm *vm, size_t *ret_count);
const struct sl_vm_tree *sl_vm_tree_last(const struct sl_vm *vm); /* NULL before the first */

#endif
