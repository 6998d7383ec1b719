/* SPDX-License-Identifier: Apache-2.0 */
/* The specs the agent writes: the node's, the IMEX channel's, one a claim, one a slot. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/container/cdi_internal.h"
#include "agent/container/errors.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/xalloc.h"

/* The names NVIDIA's plugin gives its files: whoever comes from there finds no second spec of a kind. */
#define NODE_FILE "k8s.device-plugin.nvidia.com-gpu.json"
#define IMEX_FILE "k8s.device-plugin.nvidia.com-imex-channel.json"
#define SUFFIX    ".json"

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

/* A file that is not there is a success. */
static int remove_file(const char *dir, const char *file, struct sl_err *err)
{
    SL_CLEANUP(close) int dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dirfd >= 0 && unlinkat(dirfd, file, 0) == 0)
        return 0;
    return errno == ENOENT ? 0 : sl_err_errno(err, errno, "cannot remove %s/%s", dir, file);
}

/* A spec without devices says nothing, and runtimes complain about it. */
static int write_or_remove(const char *dir, const char *file, json_t *spec, struct sl_err *err)
{
    return json_array_size(json_object_get(spec, "devices")) > 0
               ? sl_cdi_spec_write(dir, file, spec, err)
               : remove_file(dir, file, err);
}

static int write_imex(const char *dir, const struct sl_driver *driver, struct sl_err *err)
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
        rc = write_or_remove(dir, IMEX_FILE, spec, err);
    sl_edits_clear(&channel);
    return rc;
}

int sl_cdi_write_node(const char *dir, const struct sl_driver *driver,
                      const struct sl_inventory *inv, struct sl_err *err)
{
    struct sl_edits all = {0}, common = {0};
    SL_CLEANUP(json) json_t *spec = sl_cdi_spec_new(SL_CDI_NODE_KIND);
    int rc = add_devices(spec, driver, inv, &all, err);
    sl_cdi_common_edits(driver, &common);
    if (rc == 0)
        rc = sl_cdi_spec_common(spec, &common, err);
    if (rc == 0)
        rc = write_or_remove(dir, NODE_FILE, spec, err);
    if (rc == 0)
        rc = write_imex(dir, driver, err);
    sl_edits_clear(&all);
    sl_edits_clear(&common);
    return rc;
}

/* --- specs of which there are many --- */

static const struct {
    const char *kind, *prefix; /* of devices, of files */
    const char *made, *written, *removed;
} kinds[] = {
    [SL_CDI_CLAIM] = {"k8s.gpu.sluice.io/claim", "k8s.gpu.sluice.io-claim_",
                      SL_FAULT_NAME("cdi.claim.made"), SL_FAULT_NAME("cdi.claim.written"),
                      SL_FAULT_NAME("cdi.claim.removed")},
    [SL_CDI_SLOT] = {"k8s.gpu.sluice.io/slot", "k8s.gpu.sluice.io-slot_",
                     SL_FAULT_NAME("cdi.slot.made"), SL_FAULT_NAME("cdi.slot.written"),
                     SL_FAULT_NAME("cdi.slot.removed")},
};

/* The id goes into a file's name: nothing in it may lead elsewhere. */
static int file_name(enum sl_cdi_kind kind, const char *id, char buf[NAME_MAX + 1],
                     struct sl_err *err)
{
    if (!sl_cdi_name_valid(id) || strlen(id) > 128)
        return kind == SL_CDI_CLAIM ? sl_err_set(err, -EINVAL, SL_E_CDI_CLAIM_UID, id)
                                    : sl_err_set(err, -EINVAL, SL_E_CDI_SLOT_NAME, id);
    (void)snprintf(buf, NAME_MAX + 1, "%s%s" SUFFIX, kinds[kind].prefix, id);
    return 0;
}

int sl_cdi_name(enum sl_cdi_kind kind, const char *id, const char *device, char *buf, size_t size,
                struct sl_err *err)
{
    char file[NAME_MAX + 1];
    int rc = file_name(kind, id, file, err);
    if (rc == 0 && (size_t)snprintf(buf, size, "%s=%s%s%s", kinds[kind].kind, id,
                                    *device ? "-" : "", device) >= size)
        rc = sl_err_set(err, -ENAMETOOLONG, SL_E_CDI_NAME_LONG, *device ? device : id);
    return rc;
}

int sl_cdi_write(const char *dir, enum sl_cdi_kind kind, const char *id,
                 const struct sl_cdi_device *devices, size_t count, const struct sl_edits *common,
                 struct sl_err *err)
{
    char file[NAME_MAX + 1], name[SL_CDI_NAME_SIZE];
    int rc = file_name(kind, id, file, err);
    if (rc < 0)
        return rc;
    if (count == 0)
        return sl_err_set(err, -EINVAL, SL_E_CDI_CLAIM_EMPTY, id);
    SL_CLEANUP(json) json_t *spec = sl_cdi_spec_new(kinds[kind].kind);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = sl_cdi_name(kind, id, devices[i].name, name, sizeof(name), err);
        if (rc == 0)
            rc = sl_cdi_spec_device(spec, strchr(name, '=') + 1, &devices[i].edits, err);
    }
    if (rc == 0 && common)
        rc = sl_cdi_spec_common(spec, common, err);
    SL_FAULT(kinds[kind].made);
    if (rc == 0)
        rc = sl_cdi_spec_write(dir, file, spec, err);
    SL_FAULT(kinds[kind].written);
    return rc;
}

int sl_cdi_remove(const char *dir, enum sl_cdi_kind kind, const char *id, struct sl_err *err)
{
    char file[NAME_MAX + 1];
    int rc = file_name(kind, id, file, err);
    if (rc == 0)
        rc = remove_file(dir, file, err);
    SL_FAULT(kinds[kind].removed);
    return rc;
}

static bool is_ours(const char *name, const char *prefix)
{
    size_t n = strlen(name), fixed = strlen(prefix) + strlen(SUFFIX);
    return n > fixed && strncmp(name, prefix, strlen(prefix)) == 0 &&
           strcmp(name + n - strlen(SUFFIX), SUFFIX) == 0;
}

int sl_cdi_list(const char *dir, enum sl_cdi_kind kind, char ***ret, size_t *ret_count,
                struct sl_err *err)
{
    const char *prefix = kinds[kind].prefix;
    struct dirent **found = NULL;
    int count = scandir(dir, &found, NULL, alphasort);
    if (count < 0 && errno != ENOENT)
        return sl_err_errno(err, errno, "cannot list %s", dir);
    size_t n = count < 0 ? 0 : (size_t)count, done = 0;
    char **names = sl_xcalloc(n + 1, sizeof(*names));
    for (size_t i = 0; i < n; i++) {
        const char *name = found[i]->d_name;
        if (is_ours(name, prefix))
            names[done++] =
                sl_xstrndup(name + strlen(prefix), strlen(name) - strlen(prefix) - strlen(SUFFIX));
        free(found[i]);
    }
    free(found);
    *ret = names;
    *ret_count = done;
    return 0;
}

void sl_cdi_list_free(char **ids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(ids[i]);
    free(ids);
}
