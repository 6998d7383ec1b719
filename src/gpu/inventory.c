/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/inventory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"

size_t sl_inventory_find(const struct sl_inventory *inv, const char *uuid)
{
    for (size_t i = 0; inv && i < inv->gpu_count; i++)
        if (strcmp(inv->gpu[i].info.uuid, uuid) == 0)
            return i;
    return SIZE_MAX;
}

void sl_inventory_free(struct sl_inventory *inv)
{
    if (!inv)
        return;
    for (size_t i = 0; inv->gpu && i < inv->gpu_count; i++)
        free(inv->gpu[i].mig);
    free(inv->gpu);
    free(inv->nvlinks);
    free(inv);
}

static void sl_cleanup_inventory(struct sl_inventory **inv)
{
    sl_inventory_free(*inv);
}

/* MIG devices come and go while we read: skip an empty slot, and a device that vanished between two questions. */
static int read_mig(struct sl_gpu *gpu, size_t i, struct sl_inv_gpu *out, struct sl_err *err)
{
    if (out->info.mig_slots == 0)
        return 0;
    out->mig = sl_xcalloc(out->info.mig_slots, sizeof(*out->mig));
    for (uint32_t slot = 0; slot < out->info.mig_slots; slot++) {
        struct sl_gpu_mig_info info;
        int r = sl_gpu_mig_info(gpu, i, slot, &info, err);
        if (r == -ENXIO)
            return r;
        if (r < 0)
            continue;
        out->mig[out->mig_count++].info = info;
    }
    return 0;
}

static int read_gpu(struct sl_gpu *gpu, size_t i, struct sl_inv_gpu *out, struct sl_err *err)
{
    struct sl_err why = SL_ERR_INIT;
    struct sl_gpu_place place = {0};
    out->index = i;
    int r = sl_gpu_info(gpu, i, &out->info, &why);
    if (r == 0) {
        int p = sl_gpu_place(gpu, i, &place, &why);
        if (p == 0) {
            memcpy(out->clique, place.clique, sizeof(out->clique));
            out->pci_class = place.pci_class;
        }
        r = p == -ENXIO ? p : read_mig(gpu, i, out, &why);
    }
    if (r == -ENOMEM)
        return sl_err_set(err, r, "%s", why.msg);
    if (r < 0)
        out->lost = true;
    return 0;
}

int sl_inventory_read(struct sl_gpu *gpu, struct sl_inventory **ret, struct sl_err *err)
{
    SL_CLEANUP(inventory) struct sl_inventory *inv = sl_xcalloc(1, sizeof(*inv));
    size_t n = 0;
    int r = sl_gpu_driver_version(gpu, inv->driver_version, sizeof(inv->driver_version), err);
    if (r == 0)
        r = sl_gpu_count(gpu, &n, err);
    if (r < 0)
        return r;
    if (sl_gpu_cuda_version(gpu, &inv->cuda_version, NULL) < 0)
        inv->cuda_version = 0; /* drivers before 410 do not say */
    inv->gpu = sl_xcalloc(n, sizeof(*inv->gpu));
    inv->nvlinks = sl_xcalloc(n * n, 1);
    inv->gpu_count = n;
    for (size_t i = 0; i < n; i++) {
        r = read_gpu(gpu, i, &inv->gpu[i], err);
        if (r < 0)
            return r;
    }
    (void)!sl_gpu_nvlinks(gpu, inv->nvlinks, n, NULL); /* without an answer: no links */
    *ret = sl_take_ptr(inv);
    return 0;
}

/* ---- comparing: field by field, for structs have padding ---- */

static bool info_equal(const struct sl_gpu_info *a, const struct sl_gpu_info *b)
{
    return strcmp(a->uuid, b->uuid) == 0 && strcmp(a->name, b->name) == 0 &&
           strcmp(a->brand, b->brand) == 0 && strcmp(a->pci_bus_id, b->pci_bus_id) == 0 &&
           a->pci_device_id == b->pci_device_id && a->minor == b->minor &&
           a->memory_total_bytes == b->memory_total_bytes && a->sm_count == b->sm_count &&
           a->cc_major == b->cc_major && a->cc_minor == b->cc_minor &&
           a->numa_node == b->numa_node && a->mig_capable == b->mig_capable &&
           a->mig_enabled == b->mig_enabled && a->mig_slots == b->mig_slots;
}

static bool mig_equal(const struct sl_gpu_mig_info *a, const struct sl_gpu_mig_info *b)
{
    return strcmp(a->uuid, b->uuid) == 0 && strcmp(a->profile, b->profile) == 0 &&
           a->gpu_instance == b->gpu_instance && a->compute_instance == b->compute_instance &&
           a->gpu_slices == b->gpu_slices && a->compute_slices == b->compute_slices &&
           a->sm_count == b->sm_count && a->memory_total_bytes == b->memory_total_bytes &&
           a->placement_start == b->placement_start && a->placement_size == b->placement_size &&
           a->copy_engines == b->copy_engines && a->decoders == b->decoders &&
           a->encoders == b->encoders && a->jpegs == b->jpegs && a->ofas == b->ofas;
}

static bool gpu_equal(const struct sl_inv_gpu *a, const struct sl_inv_gpu *b)
{
    if (!info_equal(&a->info, &b->info) || a->index != b->index || a->lost != b->lost ||
        strcmp(a->clique, b->clique) != 0 || a->pci_class != b->pci_class ||
        a->mig_count != b->mig_count)
        return false;
    for (size_t k = 0; k < a->mig_count; k++)
        if (!mig_equal(&a->mig[k].info, &b->mig[k].info))
            return false;
    return true;
}

bool sl_inventory_equal(const struct sl_inventory *a, const struct sl_inventory *b)
{
    if (!a || !b)
        return a == b;
    if (strcmp(a->driver_version, b->driver_version) != 0 || a->cuda_version != b->cuda_version ||
        a->gpu_count != b->gpu_count ||
        memcmp(a->nvlinks, b->nvlinks, a->gpu_count * a->gpu_count) != 0)
        return false;
    for (size_t i = 0; i < a->gpu_count; i++)
        if (!gpu_equal(&a->gpu[i], &b->gpu[i]))
            return false;
    return true;
}
