/* SPDX-License-Identifier: Apache-2.0 */
/* What a container with a named lease is given: the driver, its GPUs, libsluice, and the way to its tenant. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "cli/errors.h"
#include "cli/lease_named.h"
#include "container/cdi.h"
#include "gpu/gpu.h"

struct sl_named_gear {
    struct sl_inventory *inv; /* both NULL: simulated GPUs, which have neither */
    struct sl_driver *driver;
};

int sl_named_gear_find(const struct sl_world *world, struct sl_named_gear **ret, struct sl_err *err)
{
    struct sl_named_gear *g = sl_xcalloc(1, sizeof(*g));
    struct sl_gpu *gpu = NULL;
    int rc = 0;
    if (!world->sim_lib[0]) {
        rc = sl_world_gpus(world, &gpu, err);
        if (rc == 0)
            rc = sl_inventory_read(gpu, &g->inv, err);
        sl_gpu_close(gpu);
        if (rc == 0) {
            struct sl_driver_options options = {.version = g->inv->driver_version};
            rc = sl_driver_find(&options, &g->driver, err);
        }
    }
    if (rc < 0) {
        sl_named_gear_free(g);
        return rc;
    }
    *ret = g;
    return 0;
}

void sl_named_gear_free(struct sl_named_gear *g)
{
    if (!g)
        return;
    sl_inventory_free(g->inv);
    sl_driver_free(g->driver);
    free(g);
}

/* The card or the MIG device with this UUID. */
static int gpu_edits(const struct sl_named_gear *g, const char *uuid, struct sl_edits *edits,
                     struct sl_err *err)
{
    size_t card = sl_inventory_find(g->inv, uuid), mig = SL_NO_MIG;
    for (size_t i = 0; card == SIZE_MAX && i < g->inv->gpu_count; i++)
        for (size_t m = 0; m < g->inv->gpu[i].mig_count; m++)
            if (strcmp(g->inv->gpu[i].mig[m].info.uuid, uuid) == 0) {
                card = i;
                mig = m;
            }
    return sl_cdi_device_edits(g->driver, g->inv, card, mig, edits, err);
}

static int simulated_edits(const struct sl_world *world, struct sl_edits *edits, struct sl_err *err)
{
    static const char *const libraries[] = {"libcuda.so.1", "libnvidia-ml.so.1"};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < SL_ARRAY_LEN(libraries); i++) {
        char host[PATH_MAX + 32];
        (void)snprintf(host, sizeof(host), "%s/%s", world->sim_lib, libraries[i]);
        rc = sl_driver_mount_library(edits, host, libraries[i], err);
    }
    sl_driver_sim_variable(edits, SL_SIM_ENV, world->place.sim);
    sl_driver_sim_variable(edits, SL_SIM_STATE_ENV, world->place.sim_state);
    return rc;
}

int sl_named_edits(const struct sl_named_gear *g, const struct sl_world *world,
                   const struct sl_msg_created *tenant, const char *folder, struct sl_edits *edits,
                   struct sl_err *err)
{
    char visible[SL_VISIBLE_MAX], attach[sizeof(tenant->attach_path)];
    int rc = 0;
    if (!g->driver) {
        rc = simulated_edits(world, edits, err);
    } else {
        sl_cdi_common_edits(g->driver, edits);
        for (uint32_t i = 0; rc == 0 && i < tenant->gpu_count; i++)
            rc = gpu_edits(g, tenant->gpu[i], edits, err);
    }
    sl_edits_env(edits, "CUDA_VISIBLE_DEVICES", sl_world_visible_text(tenant, visible));
    memcpy(attach, tenant->attach_path, sizeof(attach));
    *strrchr(attach, '/') = '\0'; /* the directory: a later arbiter makes a new socket in it */
    return rc < 0 ? rc : sl_cdi_sluice_edits(folder, attach, edits, err);
}
