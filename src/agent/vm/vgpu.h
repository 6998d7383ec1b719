/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which vGPU to make or to remove next, so that the cards have those of the configuration (sharing.vgpu). Pure: takes
 * what is there and who holds it, returns one step. Only vGPUs that Sluice made are removed, and never one that is held.
 */
#ifndef SLUICE_AGENT_VM_VGPU_H
#define SLUICE_AGENT_VM_VGPU_H

#include "agent/vm/tree.h"
#include "config/config.h"

/* A card as the configuration may name it. */
struct sl_vgpu_card {
    char uuid[96], address[SL_PCI_ADDRESS_SIZE];
};

struct sl_vgpu_input {
    const struct sl_config_list *wanted; /* struct sl_config_vgpu */
    const struct sl_vm_tree *tree;
    const struct sl_vgpu_type *types; /* names that were seen before */
    size_t type_count;
    const struct sl_vgpu_card *card; /* the cards of the driver, for their UUIDs */
    size_t card_count;
    char (*made)[SL_MDEV_UUID_SIZE]; /* the ids of vGPUs that Sluice made */
    size_t made_count;
    bool (*held)(void *data, const char *id);      /* does a pod have this vGPU? */
    bool (*busy)(void *data, const char *address); /* does a container have a part of this card? */
    void *data;
    const char *new_uuid; /* for a mediated device */
};

enum sl_vgpu_kind { SL_VGPU_NOTHING, SL_VGPU_MAKE, SL_VGPU_REMOVE };

struct sl_vgpu_step {
    enum sl_vgpu_kind kind;
    char id[SL_MDEV_UUID_SIZE]; /* the vGPU's */
    char card[SL_PCI_ADDRESS_SIZE], type[SL_VGPU_NAME_SIZE];
    char file[160]; /* below the root */
    char text[48];  /* to write there */
    int group;      /* of a vGPU to remove */
    /* What cannot be done now: the first reason. "": everything is as it should be, or will be after this step. */
    char waits[300];
};

void sl_vgpu_next(const struct sl_vgpu_input *in, struct sl_vgpu_step *ret);
/* Is this a vGPU of ours that the configuration no longer has? It must not be given away any more. */
bool sl_vgpu_leaves(const struct sl_vgpu_input *in, const char *id);
/* Does the configuration want vGPUs on this card, and can the card have them? */
bool sl_vgpu_claims(const struct sl_vgpu_input *in, const char *address);

#endif
