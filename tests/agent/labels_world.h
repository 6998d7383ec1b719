/* SPDX-License-Identifier: Apache-2.0 */
/* Inventories and plans put together by hand: a test of labels sets the cards and the resources. */
#ifndef SLUICE_TESTS_AGENT_LABELS_WORLD_H
#define SLUICE_TESTS_AGENT_LABELS_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "agent/node/labels.h"

enum { WORLD_GPUS = 4, WORLD_MIGS = 8, WORLD_DEVICES = 64, WORLD_RESOURCES = 4 };

struct world {
    struct sl_config config;
    struct sl_inventory inv;
    struct sl_inv_gpu gpu[WORLD_GPUS];
    struct sl_inv_mig mig[WORLD_GPUS][WORLD_MIGS];
    struct sl_plan plan;
    struct sl_plan_resource resource[WORLD_RESOURCES];
    struct sl_plan_device device[WORLD_RESOURCES][WORLD_DEVICES];
    struct sl_labels_host host;
};

/* A node with so many H200. */
static inline void world_h200(struct world *w, size_t count)
{
    memset(w, 0, sizeof(*w));
    (void)snprintf(w->inv.driver_version, sizeof(w->inv.driver_version), "580.159.04");
    w->inv.cuda_version = 13000;
    w->inv.gpu = w->gpu;
    w->inv.gpu_count = count;
    for (size_t i = 0; i < count; i++) {
        struct sl_gpu_info *info = &w->gpu[i].info;
        (void)snprintf(info->uuid, sizeof(info->uuid), "GPU-%zu", i);
        (void)snprintf(info->name, sizeof(info->name), "NVIDIA H200");
        (void)snprintf(info->pci_bus_id, sizeof(info->pci_bus_id), "00000000:%02zX:00.0", i + 0x1b);
        info->memory_total_bytes = 150754820096;
        info->sm_count = 132;
        info->cc_major = 9;
        info->mig_capable = true;
        w->gpu[i].pci_class = 0x0302;
        w->gpu[i].mig = w->mig[i];
    }
    (void)snprintf(w->host.machine, sizeof(w->host.machine), "ProLiant DL380a Gen11 (rev. B)");
    w->host.start_s = 1763189402;
    w->host.vgpu = SL_VGPU_NO;
    w->plan.resource = w->resource;
}

static inline void world_mig(struct world *w, size_t gpu, const char *profile, uint32_t slices,
                             uint32_t sms, uint64_t memory_mib)
{
    struct sl_inv_gpu *g = &w->gpu[gpu];
    g->info.mig_enabled = true;
    struct sl_inv_mig *m = &g->mig[g->mig_count++];
    (void)snprintf(m->info.profile, sizeof(m->info.profile), "%s", profile);
    m->info.gpu_slices = m->info.compute_slices = slices;
    m->info.sm_count = sms;
    m->info.memory_total_bytes = memory_mib << 20;
    m->info.copy_engines = m->info.decoders = m->info.jpegs = slices;
}

/* Advertises a card (mig SL_NO_MIG) or MIG device under a name. */
static inline void world_offer(struct world *w, const char *name, bool renamed, size_t gpu,
                               size_t mig, enum sl_sharing sharing, unsigned replicas)
{
    size_t r = 0;
    while (r < w->plan.resource_count && strcmp(w->resource[r].name, name) != 0)
        r++;
    struct sl_plan_resource *res = &w->resource[r];
    if (r == w->plan.resource_count) {
        w->plan.resource_count++;
        (void)snprintf(res->name, sizeof(res->name), "%s", name);
        (void)snprintf(res->base_name, sizeof(res->base_name), "%s",
                       strncmp(name, "nvidia.com/gpu", 14) == 0 ? "nvidia.com/gpu" : name);
        res->sharing = sharing;
        res->renamed = renamed;
        res->device = w->device[r];
    }
    for (unsigned i = 0; i < replicas; i++) {
        assert_true(res->device_count < WORLD_DEVICES);
        res->device[res->device_count++] =
            (struct sl_plan_device){.gpu = gpu, .mig = mig, .replica = i, .sharing = sharing};
    }
}

#endif
