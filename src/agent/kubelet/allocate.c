/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/kubelet/allocate.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "container/cdi.h"
#include "agent/kubelet/errors.h"
#include "base/cleanup.h"
#include "base/xalloc.h"

#define VOLUME_DIR   "/var/run/nvidia-container-devices" /* NVIDIA's runtime lists this directory */
#define CDI_ANY      (SL_LIST_CDI_ANNOTATIONS | SL_LIST_CDI_CRI)
#define IMEX_CHANNEL "0" /* the configuration can name no other channel */

struct answer {
    const struct sl_config *config;
    const struct sl_inventory *inv;
    const struct sl_driver *driver;
    const struct sl_plan_device **device; /* each card or MIG device once, in order */
    size_t device_count;
    bool imex;
    struct sl_edits *edits;
};

static const struct sl_plan_device *find_device(const struct sl_plan_resource *r, const char *id)
{
    for (size_t i = 0; i < r->device_count; i++) {
        if (strcmp(r->device[i].id, id) == 0)
            return &r->device[i];
    }
    return NULL;
}

/* Ids to devices: replicas of one device are one device. */
static int choose(struct answer *a, const struct sl_plan_resource *resource, const char *const *ids,
                  size_t id_count, struct sl_err *err)
{
    if (id_count == 0)
        return sl_err_set(err, -EINVAL, SL_E_ALLOCATE_EMPTY, resource->name);
    if (resource->fail_requests_greater_than_one && id_count > 1)
        return sl_err_set(err, -EINVAL, SL_E_ALLOCATE_SHARES, resource->name, id_count);
    a->device = sl_xcalloc(id_count, sizeof(const struct sl_plan_device *));
    for (size_t i = 0; i < id_count; i++) {
        const struct sl_plan_device *d = find_device(resource, ids[i]);
        if (!d || d->gpu >= a->inv->gpu_count ||
            (d->mig != SL_NO_MIG && d->mig >= a->inv->gpu[d->gpu].mig_count))
            return sl_err_set(err, -ENOENT, SL_E_ALLOCATE_NO_DEVICE, resource->name, ids[i]);
        bool again = false;
        for (size_t k = 0; k < a->device_count; k++)
            again |= a->device[k]->gpu == d->gpu && a->device[k]->mig == d->mig;
        if (!again)
            a->device[a->device_count++] = d;
    }
    return 0;
}

/* The device's name: its UUID, or "0", "0:1". */
static void device_name(const struct answer *a, size_t i, char buf[SL_GPU_UUID_SIZE])
{
    const struct sl_plan_device *d = a->device[i];
    const struct sl_inv_gpu *g = &a->inv->gpu[d->gpu];
    if (a->config->id_strategy == SL_ID_UUID)
        (void)snprintf(buf, SL_GPU_UUID_SIZE, "%s",
                       d->mig == SL_NO_MIG ? g->info.uuid : g->mig[d->mig].info.uuid);
    else if (d->mig == SL_NO_MIG)
        (void)snprintf(buf, SL_GPU_UUID_SIZE, "%zu", g->index);
    else
        (void)snprintf(buf, SL_GPU_UUID_SIZE, "%zu:%zu", g->index, d->mig);
}

/* All names, each after `prefix`, with commas between; the caller frees the text. */
static char *names(const struct answer *a, const char *prefix)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = sl_xmemstream(&text, &size);
    for (size_t i = 0; i < a->device_count; i++) {
        char name[SL_GPU_UUID_SIZE];
        device_name(a, i, name);
        (void)fprintf(out, "%s%s%s", i ? "," : "", prefix, name);
    }
    if (a->imex && *prefix)
        (void)fprintf(out, ",%s=%s", SL_CDI_IMEX_KIND, IMEX_CHANNEL);
    sl_xmemstream_close(out);
    return text;
}

static void by_envvar(const struct answer *a)
{
    SL_CLEANUP(free) char *list = names(a, "");
    sl_edits_env(a->edits, "NVIDIA_VISIBLE_DEVICES", list);
    if (a->imex)
        sl_edits_env(a->edits, "NVIDIA_IMEX_CHANNELS", IMEX_CHANNEL);
}

/* The mounted devices decide, not the environment: a pod cannot write this list. */
static void by_volume_mounts(const struct answer *a)
{
    sl_edits_env(a->edits, "NVIDIA_VISIBLE_DEVICES", VOLUME_DIR);
    for (size_t i = 0; i < a->device_count; i++) {
        char name[SL_GPU_UUID_SIZE], path[sizeof(VOLUME_DIR) + SL_GPU_UUID_SIZE];
        device_name(a, i, name);
        (void)snprintf(path, sizeof(path), VOLUME_DIR "/%s", name);
        sl_edits_mount(a->edits, "/dev/null", path, false);
    }
    if (a->imex)
        sl_edits_mount(a->edits, "/dev/null", VOLUME_DIR "/imex/" IMEX_CHANNEL, false);
}

/* A random (version 4) UUID: annotations of a pod's containers are merged, so each needs a key of its own. */
static int random_uuid(char buf[37], struct sl_err *err)
{
    unsigned char b[16];
    if (getrandom(b, sizeof(b), 0) != (ssize_t)sizeof(b))
        return sl_err_errno(err, errno, "cannot get random bytes");
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    (void)snprintf(buf, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                   b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
                   b[13], b[14], b[15]);
    return 0;
}

static int by_cdi_annotation(const struct answer *a, struct sl_err *err)
{
    char uuid[37];
    int rc = random_uuid(uuid, err);
    if (rc < 0)
        return rc;
    const char *prefix = a->config->cdi_annotation_prefix;
    SL_CLEANUP(free) char *list = names(a, SL_CDI_NODE_KIND "=");
    SL_CLEANUP(free)
    char *key = sl_xasprintf("%snvidia-device-plugin_%s", prefix ? prefix : "cdi.k8s.io/", uuid);
    sl_edits_annotation(a->edits, key, list);
    return 0;
}

static void by_cdi_cri(const struct answer *a)
{
    for (size_t i = 0; i < a->device_count; i++) {
        char name[SL_GPU_UUID_SIZE], qualified[SL_CDI_NAME_SIZE];
        device_name(a, i, name);
        (void)snprintf(qualified, sizeof(qualified), "%s=%s", SL_CDI_NODE_KIND, name);
        sl_edits_cdi(a->edits, qualified);
    }
    if (a->imex)
        sl_edits_cdi(a->edits, SL_CDI_IMEX_KIND "=" IMEX_CHANNEL);
}

/* The device nodes themselves, for runtimes that ignore the names. Kubelet cannot make a node from a number: a node
 * that is missing on the host cannot be passed. */
static int by_device_specs(const struct answer *a, struct sl_err *err)
{
    struct sl_edits all = {0};
    int rc = 0;
    sl_edits_add(&all, &a->driver->nodes);
    for (size_t i = 0; rc == 0 && i < a->device_count; i++)
        rc =
            sl_cdi_device_edits(a->driver, a->inv, a->device[i]->gpu, a->device[i]->mig, &all, err);
    if (rc == 0 && a->imex)
        rc = sl_driver_imex_node(a->driver, 0, &all, err);
    for (size_t i = 0; rc == 0 && i < all.node_count; i++) {
        if (!all.node[i].numbered)
            sl_edits_node(a->edits, all.node[i].host, all.node[i].container);
    }
    for (size_t i = 0; rc == 0 && i < all.mount_count; i++) /* a simulated driver's */
        sl_edits_mount(a->edits, all.mount[i].host, all.mount[i].container, all.mount[i].read_only);
    sl_edits_clear(&all);
    return rc;
}

/* Variables by which NVIDIA's runtime adds the companions of the driver. */
static void companions(const struct answer *a)
{
    const struct {
        bool enabled;
        const char *name;
    } env[] = {
        {a->config->gdrcopy, "NVIDIA_GDRCOPY"},
        {a->config->gds, "NVIDIA_GDS"},
        {a->config->mofed, "NVIDIA_MOFED"},
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(env); i++) {
        if (env[i].enabled)
            sl_edits_env(a->edits, env[i].name, "enabled");
    }
}

static int find_imex(struct answer *a, struct sl_err *err)
{
    struct sl_edits channel = {0};
    struct sl_err cause = SL_ERR_INIT;
    if (!a->config->imex_channel0)
        return 0;
    a->imex = sl_driver_imex_node(a->driver, 0, &channel, &cause) == 0;
    sl_edits_clear(&channel);
    if (!a->imex && a->config->imex_required)
        return sl_err_set(err, -ENODEV, SL_E_ALLOCATE_IMEX, cause.msg);
    return 0;
}

int sl_allocate_edits(const struct sl_config *config, const struct sl_inventory *inv,
                      const struct sl_driver *driver, const struct sl_plan_resource *resource,
                      const char *const *ids, size_t id_count, const struct sl_edits *extra,
                      struct sl_edits *edits, struct sl_err *err)
{
    struct answer a = {.config = config, .inv = inv, .driver = driver, .edits = edits};
    unsigned list = config->list_strategy ? config->list_strategy : SL_LIST_ENVVAR;
    int rc = choose(&a, resource, ids, id_count, err);
    if (rc == 0)
        rc = find_imex(&a, err);
    if (rc == 0 && (list & SL_LIST_ENVVAR))
        by_envvar(&a);
    if (rc == 0 && (list & SL_LIST_VOLUME_MOUNTS))
        by_volume_mounts(&a);
    if (rc == 0 && (list & SL_LIST_CDI_ANNOTATIONS))
        rc = by_cdi_annotation(&a, err);
    if (rc == 0 && (list & SL_LIST_CDI_CRI))
        by_cdi_cri(&a);
    if (rc == 0 && (list & ~(unsigned)CDI_ANY)) {
        companions(&a); /* the CDI spec has their nodes */
        if (config->pass_device_specs)
            rc = by_device_specs(&a, err);
    }
    if (rc == 0 && extra)
        sl_edits_add(edits, extra);
    free(a.device);
    return rc;
}
