/* SPDX-License-Identifier: Apache-2.0 */
/* Kubelet's calls to a plugin, except ListAndWatch. */
#include "agent/kubelet/errors.h"
#include "agent/kubelet/plugin_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include "base/xalloc.h"
#include "deviceplugin.pb-c.h"
#include "rpc/pb.h"

void sl_plugin_options(const struct plugin *p, Dp__DevicePluginOptions *ret)
{
    dp__device_plugin_options__init(ret);
    ret->get_preferred_allocation_available = true;
    ret->pre_start_required = sl_plugin_wants_prestart(p);
}

void sl_plugin_call_options(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)msg, (void)size;
    Dp__DevicePluginOptions answer;
    sl_plugin_options(data, &answer);
    sl_rpc_pb_reply(call, &answer.base);
}

static void refuse(struct sl_rpc_call *call, const struct plugin *p, const char *what,
                   const struct sl_err *err)
{
    char text[sizeof(err->msg) + SL_RESOURCE_NAME_SIZE + 4];
    (void)snprintf(text, sizeof(text), "%s: %s", p->devices.res.name, err->msg);
    sl_warn("%s refused: %s", what, text);
    sl_rpc_call_finish(call, sl_rpc_code_from_errno(err->code), text);
}

/* --- GetPreferredAllocation ------------------------------------------------------------------ */

static int prefer_one(struct plugin *p, const Dp__ContainerPreferredAllocationRequest *request,
                      Dp__ContainerPreferredAllocationResponse *answer, struct sl_err *err)
{
    if (request->allocation_size < 0 ||
        (size_t)request->allocation_size > p->devices.res.device_count)
        return sl_err_set(err, -ERANGE, SL_E_PREFER_MANY, request->allocation_size,
                          p->devices.res.device_count);
    size_t size = (size_t)request->allocation_size;
    answer->deviceids = sl_xcalloc(size + 1, sizeof(*answer->deviceids));
    int rc = sl_plugin_prefer(p, request->available_deviceids, request->n_available_deviceids,
                              request->must_include_deviceids, request->n_must_include_deviceids,
                              size, answer->deviceids, err);
    for (; rc == 0 && answer->n_deviceids < size; answer->n_deviceids++)
        answer->deviceids[answer->n_deviceids] = sl_xstrdup(answer->deviceids[answer->n_deviceids]);
    return rc;
}

void sl_plugin_call_prefer(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    struct plugin *p = data;
    struct sl_err err = SL_ERR_INIT;
    ProtobufCMessage *m;
    if (sl_rpc_pb_request(call, &dp__preferred_allocation_request__descriptor, msg, size, &m) < 0)
        return;
    const Dp__PreferredAllocationRequest *request = (const void *)m;
    Dp__PreferredAllocationResponse *answer =
        sl_rpc_pb_new(&dp__preferred_allocation_response__descriptor);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < request->n_container_requests; i++)
        rc = prefer_one(p, request->container_requests[i],
                        sl_rpc_pb_add(&answer->container_responses, &answer->n_container_responses,
                                      &dp__container_preferred_allocation_response__descriptor),
                        &err);
    if (rc == 0) {
        p->owner->stats.preferred++;
        sl_rpc_pb_reply(call, &answer->base);
    } else {
        p->owner->stats.preferred_failures++;
        refuse(call, p, "GetPreferredAllocation", &err);
    }
    sl_rpc_pb_free(&answer->base);
    sl_rpc_pb_free(m);
}

/* --- Allocate ------------------------------------------------------------------------------------ */

static int check_ids(const struct plugin_devices *d, char *const *ids, size_t n, struct sl_err *err)
{
    if (n == 0)
        return sl_err_set(err, -EINVAL, SL_E_ALLOCATE_NOTHING);
    if (d->res.fail_requests_greater_than_one && d->res.sharing != SL_SHARING_NONE && n > 1)
        return sl_err_set(err, -EINVAL, SL_E_ALLOCATE_SHARES_HINT, n);
    SL_CLEANUP(free) bool *seen = sl_xcalloc(d->res.device_count + 1, sizeof(*seen));
    for (size_t i = 0; i < n; i++) {
        size_t at = sl_plugin_devices_find(d, ids[i]);
        if (at == SIZE_MAX)
            return sl_err_set(err, -ENOENT, SL_E_DEVICE_GONE, ids[i]);
        if (seen[at])
            return sl_err_set(err, -EINVAL, SL_E_ALLOCATE_TWICE, ids[i]);
        if (!d->healthy[at])
            return sl_err_set(err, -ENODEV, SL_E_DEVICE_UNHEALTHY, ids[i]);
        seen[at] = true;
    }
    return 0;
}

/* Copies the text; an error where it is not UTF-8. */
static char *copy(const char *what, const char *text, struct sl_err *err)
{
    if (!err->code && (!text || !sl_utf8_valid(text)))
        (void)sl_err_set(err, -EILSEQ, SL_E_ANSWER_UTF8, what);
    return sl_xstrdup(text);
}

static void fill_pairs(Dp__ContainerAllocateResponse *a, const struct sl_edits *e,
                       struct sl_err *err)
{
    for (size_t i = 0; i < e->env_count; i++) {
        Dp__ContainerAllocateResponse__EnvsEntry *x = sl_rpc_pb_add(
            &a->envs, &a->n_envs, &dp__container_allocate_response__envs_entry__descriptor);
        x->key = copy("the name of an environment variable", e->env[i].name, err);
        x->value = copy("the value of an environment variable", e->env[i].value, err);
    }
    for (size_t i = 0; i < e->annotation_count; i++) {
        Dp__ContainerAllocateResponse__AnnotationsEntry *x =
            sl_rpc_pb_add(&a->annotations, &a->n_annotations,
                          &dp__container_allocate_response__annotations_entry__descriptor);
        x->key = copy("the name of an annotation", e->annotation[i].name, err);
        x->value = copy("the value of an annotation", e->annotation[i].value, err);
    }
}

/* A container's edits as the protocol's message. */
static int put_edits(const struct sl_edits *e, Dp__ContainerAllocateResponse *a, struct sl_err *err)
{
    struct sl_err bad = SL_ERR_INIT;
    fill_pairs(a, e, &bad);
    for (size_t i = 0; i < e->mount_count; i++) {
        Dp__Mount *m = sl_rpc_pb_add(&a->mounts, &a->n_mounts, &dp__mount__descriptor);
        m->host_path = copy("the source of a mount", e->mount[i].host, &bad);
        m->container_path = copy("the path of a mount", e->mount[i].container, &bad);
        m->read_only = e->mount[i].read_only;
    }
    for (size_t i = 0; i < e->node_count; i++) {
        Dp__DeviceSpec *d = sl_rpc_pb_add(&a->devices, &a->n_devices, &dp__device_spec__descriptor);
        d->host_path = copy("a device node", e->node[i].host, &bad);
        d->container_path = copy("the path of a device node", e->node[i].container, &bad);
        d->permissions = sl_xstrdup("rw");
    }
    for (size_t i = 0; i < e->cdi_count; i++) {
        Dp__CDIDevice *d =
            sl_rpc_pb_add(&a->cdi_devices, &a->n_cdi_devices, &dp__cdidevice__descriptor);
        d->name = copy("a CDI name", e->cdi[i], &bad);
    }
    return bad.code ? sl_err_set(err, bad.code, "%s", bad.msg) : 0;
}

static int allocate_one(struct plugin *p, const Dp__ContainerAllocateRequest *request,
                        Dp__ContainerAllocateResponse *answer, struct sl_err *err)
{
    const struct sl_plugins_options *o = &p->owner->options;
    struct sl_edits edits = {0};
    int rc = check_ids(&p->devices, request->devices_ids, request->n_devices_ids, err);
    if (rc == 0)
        rc = o->allocate(o->data, &p->devices.res, (const char *const *)request->devices_ids,
                         request->n_devices_ids, &edits, err);
    if (rc == 0)
        rc = put_edits(&edits, answer, err);
    sl_edits_clear(&edits);
    return rc;
}

static void count_allocate(struct plugin *p, uint64_t took_ns, bool failed)
{
    struct sl_plugins_stats *stats = &p->owner->stats;
    size_t bucket = 0;
    while (took_ns > sl_plugins_bucket_ns[bucket])
        bucket++;
    stats->allocate_bucket[bucket]++;
    stats->allocate_ns_sum += took_ns;
    stats->allocations += !failed;
    stats->allocation_failures += failed;
    p->counts.allocations += !failed;
    p->counts.allocation_failures += failed;
}

void sl_plugin_call_allocate(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    struct plugin *p = data;
    uint64_t start = sl_now_ns();
    struct sl_err err = SL_ERR_INIT;
    ProtobufCMessage *m;
    if (sl_rpc_pb_request(call, &dp__allocate_request__descriptor, msg, size, &m) < 0) {
        count_allocate(p, sl_now_ns() - start, true);
        return;
    }
    const Dp__AllocateRequest *request = (const void *)m;
    Dp__AllocateResponse *answer = sl_rpc_pb_new(&dp__allocate_response__descriptor);
    int rc = 0;
    /* Kubelet sends one container per call; the protocol allows several. */
    for (size_t i = 0; rc == 0 && i < request->n_container_requests; i++)
        rc =
            allocate_one(p, request->container_requests[i],
                         sl_rpc_pb_add(&answer->container_responses, &answer->n_container_responses,
                                       &dp__container_allocate_response__descriptor),
                         &err);
    if (rc == 0)
        sl_rpc_pb_reply(call, &answer->base);
    else
        refuse(call, p, "Allocate", &err);
    sl_rpc_pb_free(&answer->base);
    sl_rpc_pb_free(m);
    count_allocate(p, sl_now_ns() - start, rc != 0);
}
