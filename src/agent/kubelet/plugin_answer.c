/* SPDX-License-Identifier: Apache-2.0 */
/* A container's edits as the protocol's message. Strings are borrowed from the edits. */
#include "agent/kubelet/errors.h"
#include "agent/kubelet/plugin_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "base/xalloc.h"
#include "deviceplugin.pb-c.h"

typedef Dp__ContainerAllocateResponse__EnvsEntry env_entry;
typedef Dp__ContainerAllocateResponse__AnnotationsEntry annotation_entry;

struct plugin_answer {
    Dp__ContainerAllocateResponse message;
    env_entry *env;
    annotation_entry *annotation;
    Dp__Mount *mount;
    Dp__DeviceSpec *node;
    Dp__CDIDevice *cdi;
    void *memory[10]; /* all of it */
    size_t memories;
};

static int check(const char *what, const char *text, struct sl_err *err)
{
    if (text && sl_utf8_valid(text))
        return 0;
    return sl_err_set(err, -EILSEQ, SL_E_ANSWER_UTF8, what);
}

static int check_edits(const struct sl_edits *e, struct sl_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < e->env_count; i++)
        if ((rc = check("the name of an environment variable", e->env[i].name, err)) == 0)
            rc = check("the value of an environment variable", e->env[i].value, err);
    for (size_t i = 0; rc == 0 && i < e->annotation_count; i++)
        if ((rc = check("the name of an annotation", e->annotation[i].name, err)) == 0)
            rc = check("the value of an annotation", e->annotation[i].value, err);
    for (size_t i = 0; rc == 0 && i < e->mount_count; i++)
        if ((rc = check("the source of a mount", e->mount[i].host, err)) == 0)
            rc = check("the path of a mount", e->mount[i].container, err);
    for (size_t i = 0; rc == 0 && i < e->node_count; i++)
        if ((rc = check("a device node", e->node[i].host, err)) == 0)
            rc = check("the path of a device node", e->node[i].container, err);
    for (size_t i = 0; rc == 0 && i < e->cdi_count; i++)
        rc = check("a CDI name", e->cdi[i], err);
    return rc;
}

/* Allocates the items and the list of pointers to them that protobuf-c wants. */
#define ITEMS(answer, items, list, n)                                                              \
    do {                                                                                           \
        (answer)->items = sl_xcalloc((n) + 1, sizeof(*(answer)->items));                           \
        (answer)->message.list = sl_xcalloc((n) + 1, sizeof(*(answer)->message.list));             \
        (answer)->memory[(answer)->memories++] = (answer)->items;                                  \
        (answer)->memory[(answer)->memories++] = (answer)->message.list;                           \
    } while (0)

static void fill_pairs(struct plugin_answer *a, const struct sl_edits *e)
{
    for (size_t i = 0; i < e->env_count; i++) {
        a->env[i] = (env_entry)DP__CONTAINER_ALLOCATE_RESPONSE__ENVS_ENTRY__INIT;
        a->env[i].key = e->env[i].name;
        a->env[i].value = e->env[i].value;
        a->message.envs[a->message.n_envs++] = &a->env[i];
    }
    for (size_t i = 0; i < e->annotation_count; i++) {
        a->annotation[i] =
            (annotation_entry)DP__CONTAINER_ALLOCATE_RESPONSE__ANNOTATIONS_ENTRY__INIT;
        a->annotation[i].key = e->annotation[i].name;
        a->annotation[i].value = e->annotation[i].value;
        a->message.annotations[a->message.n_annotations++] = &a->annotation[i];
    }
}

static char rw[] = "rw";

static void fill_files(struct plugin_answer *a, const struct sl_edits *e)
{
    for (size_t i = 0; i < e->mount_count; i++) {
        a->mount[i] = (Dp__Mount)DP__MOUNT__INIT;
        a->mount[i].host_path = e->mount[i].host;
        a->mount[i].container_path = e->mount[i].container;
        a->mount[i].read_only = e->mount[i].read_only;
        a->message.mounts[a->message.n_mounts++] = &a->mount[i];
    }
    for (size_t i = 0; i < e->node_count; i++) {
        a->node[i] = (Dp__DeviceSpec)DP__DEVICE_SPEC__INIT;
        a->node[i].host_path = e->node[i].host;
        a->node[i].container_path = e->node[i].container;
        a->node[i].permissions = rw;
        a->message.devices[a->message.n_devices++] = &a->node[i];
    }
    for (size_t i = 0; i < e->cdi_count; i++) {
        a->cdi[i] = (Dp__CDIDevice)DP__CDIDEVICE__INIT;
        a->cdi[i].name = e->cdi[i];
        a->message.cdi_devices[a->message.n_cdi_devices++] = &a->cdi[i];
    }
}

int sl_plugin_answer_create(const struct sl_edits *edits, struct plugin_answer **ret,
                            struct sl_err *err)
{
    int rc = check_edits(edits, err);
    if (rc < 0)
        return rc;
    struct plugin_answer *a = sl_xcalloc(1, sizeof(*a));
    dp__container_allocate_response__init(&a->message);
    ITEMS(a, env, envs, edits->env_count);
    ITEMS(a, annotation, annotations, edits->annotation_count);
    ITEMS(a, mount, mounts, edits->mount_count);
    ITEMS(a, node, devices, edits->node_count);
    ITEMS(a, cdi, cdi_devices, edits->cdi_count);
    fill_pairs(a, edits);
    fill_files(a, edits);
    *ret = a;
    return 0;
}

struct Dp__ContainerAllocateResponse *sl_plugin_answer_message(struct plugin_answer *answer)
{
    return &answer->message;
}

void sl_plugin_answer_free(struct plugin_answer *answer)
{
    if (!answer)
        return;
    while (answer->memories)
        free(answer->memory[--answer->memories]);
    free(answer);
}
