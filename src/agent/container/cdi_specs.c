/* SPDX-License-Identifier: Apache-2.0 */
/* The specs the agent writes: the node's, the IMEX channel's, one a claim. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/container/cdi_internal.h"
#include "agent/container/errors.h"
#include "base/cleanup.h"
#include "base/fault.h"

/* The names NVIDIA's plugin gives its files: whoever comes from there finds no second spec of a kind. */
#define NODE_FILE    "k8s.device-plugin.nvidia.com-gpu.json"
#define IMEX_FILE    "k8s.device-plugin.nvidia.com-imex-channel.json"
#define CLAIM_PREFIX "k8s.gpu.sluice.io-claim_"

void sl_cdi_common_edits(const struct sl_driver *driver, struct sl_edits *edits)
{
    sl_edits_add(edits, &driver->nodes);
    sl_edits_add(edits, &driver->files);
    /* "void" tells NVIDIA's runtime, where it is the default one, that there is nothing left to do. */
    sl_edits_env(edits, "NVIDIA_VISIBLE_DEVICES", "void");
}

int sl_cdi_device_edits(const struct sl_driver *driver, const struct sl_inventory *inv, size_t gpu,
                        size_t mig, struct sl_edits *edits, struct sl_err *err)
{
    if (gpu >= inv->gpu_count || (mig != SL_NO_MIG && mig >= inv->gpu[gpu].mig_count))
        return sl_err_set(err, -ENOENT, SL_E_CDI_GPU_GONE);
    const struct sl_inv_gpu *g = &inv->gpu[gpu];
    int rc = sl_driver_gpu_node(driver, g->info.minor, edits, err);
    if (rc == 0 && mig != SL_NO_MIG)
        rc = sl_driver_mig_nodes(driver, g->info.minor, g->mig[mig].info.gpu_instance,
                                 g->mig[mig].info.compute_instance, edits, err);
    return rc;
}

/* One device under its UUID and its index, and into `all`. What has no node (yet) is left out. */
static int add_device(json_t *spec, const struct sl_driver *driver, const struct sl_inventory *inv,
                      size_t gpu, size_t mig, struct sl_edits *all, struct sl_err *err)
{
    struct sl_edits edits = {0};
    struct sl_err cause = SL_ERR_INIT;
    const char *uuid =
        mig == SL_NO_MIG ? inv->gpu[gpu].info.uuid : inv->gpu[gpu].mig[mig].info.uuid;
    char index[64];
    if (mig == SL_NO_MIG)
        (void)snprintf(index, sizeof(index), "%zu", inv->gpu[gpu].index);
    else
        (void)snprintf(index, sizeof(index), "%zu:%zu", inv->gpu[gpu].index, mig);
    int rc = sl_cdi_device_edits(driver, inv, gpu, mig, &edits, &cause);
    if (rc == 0 && sl_cdi_name_valid(uuid)) /* drivers before 470 name MIG devices with slashes */
        rc = sl_cdi_spec_device(spec, uuid, &edits, &cause);
    if (rc == 0)
        rc = sl_cdi_spec_device(spec, index, &edits, &cause);
    if (rc == 0)
        sl_edits_add(all, &edits);
    sl_edits_clear(&edits);
    if (rc == -ENOENT)
        return 0;
    return rc < 0 ? sl_err_set(err, rc, "%s", cause.msg) : 0;
}

static int add_devices(json_t *spec, const struct sl_driver *driver, const struct sl_inventory *inv,
                       struct sl_edits *all, struct sl_err *err)
{
    int rc = 0;
    for (size_t g = 0; rc == 0 && g < inv->gpu_count; g++) {
        if (inv->gpu[g].lost)
            continue;
        rc = add_device(spec, driver, inv, g, SL_NO_MIG, all, err);
        for (size_t m = 0; rc == 0 && m < inv->gpu[g].mig_count; m++)
            rc = add_device(spec, driver, inv, g, m, all, err);
    }
    if (rc == 0 && all->node_count + all->mount_count > 0)
        rc = sl_cdi_spec_device(spec, "all", all, err);
    return rc;
}

/* A spec without devices says nothing, and runtimes complain about it. */
static int write_or_remove(const char *dir, const char *file, json_t *spec, bool *ret_changed,
                           struct sl_err *err)
{
    if (json_array_size(json_object_get(spec, "devices")) > 0)
        return sl_cdi_spec_write(dir, file, spec, ret_changed, err);
    char path[PATH_MAX];
    bool was = (size_t)snprintf(path, sizeof(path), "%s/%s", dir, file) < sizeof(path) &&
               access(path, F_OK) == 0;
    int rc = sl_cdi_remove_file(dir, file, err);
    if (rc == 0)
        *ret_changed = was;
    return rc;
}

static int write_imex(const char *dir, const struct sl_driver *driver, bool *ret_changed,
                      struct sl_err *err)
{
    struct sl_edits channel = {0};
    struct sl_err cause = SL_ERR_INIT;
    SL_CLEANUP(json) json_t *spec = sl_cdi_spec_new(SL_CDI_IMEX_KIND);
    int rc = 0;
    if (sl_driver_imex_node(driver, 0, &channel, &cause) == 0)
        rc = sl_cdi_spec_device(spec, "0", &channel, err);
    else if (cause.code != -ENOENT)
        rc = sl_err_set(err, cause.code, "%s", cause.msg);
    if (rc == 0)
        rc = write_or_remove(dir, IMEX_FILE, spec, ret_changed, err);
    sl_edits_clear(&channel);
    return rc;
}

int sl_cdi_write_node(const char *dir, const struct sl_driver *driver,
                      const struct sl_inventory *inv, bool *ret_changed, struct sl_err *err)
{
    struct sl_edits all = {0}, common = {0};
    bool changed = false, imex_changed = false;
    SL_CLEANUP(json) json_t *spec = sl_cdi_spec_new(SL_CDI_NODE_KIND);
    int rc = add_devices(spec, driver, inv, &all, err);
    sl_cdi_common_edits(driver, &common);
    if (rc == 0)
        rc = sl_cdi_spec_common(spec, &common, err);
    if (rc == 0)
        rc = write_or_remove(dir, NODE_FILE, spec, &changed, err);
    if (rc == 0)
        rc = write_imex(dir, driver, &imex_changed, err);
    if (rc == 0 && ret_changed)
        *ret_changed = changed || imex_changed;
    sl_edits_clear(&all);
    sl_edits_clear(&common);
    return rc;
}

int sl_cdi_node_name(const char *device, char *buf, size_t size, struct sl_err *err)
{
    if ((size_t)snprintf(buf, size, "%s=%s", SL_CDI_NODE_KIND, device) >= size)
        return sl_err_set(err, -ENAMETOOLONG, SL_E_CDI_NAME_LONG, device);
    return 0;
}

/* The UID goes into file names: nothing in it may lead elsewhere. */
static int claim_file(const char *uid, char buf[NAME_MAX + 1], struct sl_err *err)
{
    if (!sl_cdi_name_valid(uid) || strlen(uid) > 128)
        return sl_err_set(err, -EINVAL, SL_E_CDI_CLAIM_UID, uid);
    (void)snprintf(buf, NAME_MAX + 1, CLAIM_PREFIX "%s" CDI_SUFFIX, uid);
    return 0;
}

int sl_cdi_claim_name(const char *claim_uid, const char *name, char *buf, size_t size,
                      struct sl_err *err)
{
    if ((size_t)snprintf(buf, size, "%s=%s-%s", SL_CDI_CLAIM_KIND, claim_uid, name) >= size)
        return sl_err_set(err, -ENAMETOOLONG, SL_E_CDI_NAME_LONG, name);
    return 0;
}

int sl_cdi_write_claim(const char *dir, const char *claim_uid, const struct sl_cdi_device *devices,
                       size_t count, const struct sl_edits *common, struct sl_err *err)
{
    char file[NAME_MAX + 1], name[SL_CDI_NAME_SIZE];
    int rc = claim_file(claim_uid, file, err);
    if (rc < 0)
        return rc;
    if (count == 0)
        return sl_err_set(err, -EINVAL, SL_E_CDI_CLAIM_EMPTY, claim_uid);
    SL_CLEANUP(json) json_t *spec = sl_cdi_spec_new(SL_CDI_CLAIM_KIND);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = sl_cdi_claim_name(claim_uid, devices[i].name, name, sizeof(name), err);
        if (rc == 0)
            rc = sl_cdi_spec_device(spec, strchr(name, '=') + 1, devices[i].edits, err);
    }
    if (rc == 0 && common)
        rc = sl_cdi_spec_common(spec, common, err);
    SL_FAULT("cdi.claim.made");
    if (rc == 0)
        rc = sl_cdi_spec_write(dir, file, spec, NULL, err);
    SL_FAULT("cdi.claim.written");
    return rc;
}

int sl_cdi_remove_claim(const char *dir, const char *claim_uid, struct sl_err *err)
{
    char file[NAME_MAX + 1];
    int rc = claim_file(claim_uid, file, err);
    if (rc == 0)
        rc = sl_cdi_remove_file(dir, file, err);
    SL_FAULT("cdi.claim.removed");
    return rc;
}

int sl_cdi_list_claims(const char *dir, char ***ret, size_t *ret_count, struct sl_err *err)
{
    return sl_cdi_list_files(dir, CLAIM_PREFIX, ret, ret_count, err);
}

void sl_cdi_free_claims(char **claims, size_t count)
{
    for (size_t i = 0; claims && i < count; i++)
        free(claims[i]);
    free(claims);
}
