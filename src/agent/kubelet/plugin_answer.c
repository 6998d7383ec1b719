/* SPDX-License-Identifier: Apache-2.0 */
/* A container's edits as the protocol's message. */
#include "agent/kubelet/errors.h"
#include "agent/kubelet/plugin_internal.h"

#include <errno.h>

#include "base/utf8.h"
#include "base/xalloc.h"
#include "deviceplugin.pb-c.h"
#include "rpc/pb.h"

/* A copy. The first text that is not UTF-8 is the error. */
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

int sl_plugin_answer(const struct sl_edits *e, Dp__ContainerAllocateResponse *a, struct sl_err *err)
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
