/* SPDX-License-Identifier: Apache-2.0 */
/* All resources together: changes of the plan, health, figures. */
#include "agent/kubelet/plugin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/kubelet/errors.h"
#include "agent/kubelet/plugin_internal.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/xalloc.h"

#define DEFAULT_SOCKET "/var/lib/kubelet/device-plugins/kubelet.sock"

const uint64_t sl_plugins_bucket_ns[SL_PLUGINS_BUCKETS] = {
    100 * SL_NS_PER_US, 250 * SL_NS_PER_US, 500 * SL_NS_PER_US, SL_NS_PER_MS, 2 * SL_NS_PER_MS,
    5 * SL_NS_PER_MS,   20 * SL_NS_PER_MS,  100 * SL_NS_PER_MS, SL_NS_PER_S,  UINT64_MAX,
};

void sl_plugin_notice(const struct sl_plugins *plugins, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    sl_warn("%s", text);
    if (plugins->options.notice)
        plugins->options.notice(plugins->options.data, text);
}

/* --- events of kubelet_watch --------------------------------------------------------------------- */

static void kubelet_there(void *data)
{
    struct sl_plugins *plugins = data;
    plugins->stats.kubelet_starts++;
    sl_info("kubelet has started: the agent registers %zu resources", sl_plugins_count(plugins));
    for (struct plugin *p = plugins->plugins; p; p = p->next)
        sl_plugin_kubelet_started(p);
    if (plugins->options.kubelet_started)
        plugins->options.kubelet_started(plugins->options.data);
}

static void file_touched(const char *name, void *data)
{
    struct sl_plugins *plugins = data;
    for (struct plugin *p = plugins->plugins; p; p = p->next)
        if (!name || strcmp(name, p->endpoint) == 0)
            sl_plugin_check_file(p);
}

/* --- life ---------------------------------------------------------------------------------------- */

int sl_plugins_create(struct sl_loop *loop, const struct sl_plugins_options *options,
                      struct sl_plugins **ret, struct sl_err *err)
{
    static const struct sl_kubelet_watch_ops ops = {.kubelet = kubelet_there,
                                                    .touched = file_touched};
    struct sl_plugins *plugins = sl_xcalloc(1, sizeof(*plugins));
    plugins->loop = loop;
    plugins->options = *options;
    const char *path = options->kubelet_socket ? options->kubelet_socket : DEFAULT_SOCKET;
    plugins->kubelet_socket = sl_xstrdup(path);
    plugins->options.kubelet_socket = plugins->kubelet_socket;
    int rc = sl_kubelet_watch_create(loop, path, &ops, plugins, &plugins->watch, err);
    if (rc < 0) {
        sl_plugins_destroy(plugins);
        return rc;
    }
    *ret = plugins;
    return 0;
}

static void free_all(struct plugin **list)
{
    while (*list) {
        struct plugin *p = *list;
        *list = p->next;
        sl_plugin_free(p);
    }
}

void sl_plugins_destroy(struct sl_plugins *plugins)
{
    if (!plugins)
        return;
    sl_kubelet_watch_destroy(plugins->watch);
    sl_plugin_prestarts_forget(plugins);
    free_all(&plugins->plugins);
    free_all(&plugins->retiring);
    free_all(&plugins->vacating);
    sl_plugin_cards_free(&plugins->cards);
    free(plugins->unhealthy);
    free(plugins->kubelet_socket);
    free(plugins);
}

/* --- plans --------------------------------------------------------------------------------------- */

/* NVIDIA's socket name for NVIDIA's resources. Other resources have their domain in it: both may have a "gpu". */
static int name_socket(struct plugin *p, struct sl_err *err)
{
    const char *dir = sl_kubelet_watch_dir(p->owner->watch), *name = p->devices.res.name;
    const char *slash = strchr(name, '/');
    const char *last = slash ? slash + 1 : name;
    size_t domain = slash ? (size_t)(slash - name) : 0;
    bool plain = domain == 0 || (domain == 10 && memcmp(name, "nvidia.com", 10) == 0);
    int n = plain ? snprintf(p->path, sizeof(p->path), "%s/nvidia-%s.sock", dir, last)
                  : snprintf(p->path, sizeof(p->path), "%s/nvidia-%.*s_%s.sock", dir, (int)domain,
                             name, last);
    if (n >= (int)sizeof(p->path))
        n = snprintf(p->path, sizeof(p->path), "%s/nvidia-%016llx.sock", dir,
                     (unsigned long long)sl_hash_text(name));
    if (n >= (int)sizeof(p->path))
        return sl_err_set(err, -ENAMETOOLONG, SL_E_SOCKET_DIR_LONG, dir,
                          sizeof(p->path) - sizeof("/nvidia-0123456789abcdef.sock"));
    p->endpoint = strrchr(p->path, '/') + 1;
    return 0;
}

int sl_plugin_make(struct sl_plugins *plugins, const struct sl_plan_resource *res,
                   const struct plugin_cards *cards, struct plugin **ret, struct sl_err *err)
{
    struct plugin *p = sl_xcalloc(1, sizeof(*p));
    p->owner = plugins;
    sl_plugin_serve_init(p);
    sl_plugin_register_init(p);
    int rc = sl_plugin_devices_copy(res, cards, &p->devices, err);
    if (rc == 0) {
        (void)sl_plugin_devices_judge(plugins, cards, &p->devices);
        rc = name_socket(p, err);
    }
    /* Pack the list here: a list that is too long is an error of the plan, not of a later time. */
    if (rc == 0)
        rc = sl_plugin_devices_pack(&p->devices, false, &p->list, &p->list_size, err);
    if (rc < 0) {
        sl_plugin_free(p);
        return rc;
    }
    *ret = p;
    return 0;
}

static struct plugin *take(struct plugin **list, const char *name)
{
    for (; *list; list = &(*list)->next)
        if (strcmp((*list)->devices.res.name, name) == 0) {
            struct plugin *p = *list;
            *list = p->next;
            p->next = NULL;
            return p;
        }
    return NULL;
}

static int make_plugins(struct sl_plugins *plugins, const struct sl_plan *plan,
                        const struct plugin_cards *cards, struct plugin **ret, struct sl_err *err)
{
    struct plugin *first = NULL, **last = &first;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < plan->resource_count; i++) {
        for (struct plugin *p = first; rc == 0 && p; p = p->next)
            if (strcmp(p->devices.res.name, plan->resource[i].name) == 0)
                rc = sl_err_set(err, -EEXIST, SL_E_PLAN_TWICE, plan->resource[i].name);
        if (rc == 0)
            rc = sl_plugin_make(plugins, &plan->resource[i], cards, last, err);
        if (rc == 0)
            last = &(*last)->next;
    }
    if (rc < 0)
        free_all(&first);
    else
        *ret = first;
    return rc;
}

/* The running plugin goes on, with the devices of the new one. */
static void update(struct plugin *running, struct plugin *fresh)
{
    bool changed = !sl_plugin_devices_equal(&running->devices, &fresh->devices);
    bool told_otherwise = running->devices.fractions != fresh->devices.fractions;
    struct plugin_devices devices = running->devices;
    running->devices = fresh->devices;
    fresh->devices = devices;
    if (changed) {
        sl_info("%s: %zu devices, %zu healthy (before: %zu, %zu)", running->devices.res.name,
                running->devices.res.device_count, running->devices.healthy_count,
                devices.res.device_count, devices.healthy_count);
        sl_plugin_changed(running);
    }
    sl_plugin_free(fresh);
    /* Kubelet learns the options of a resource only from its registration. */
    if (told_otherwise && running->owner->options.prestart && running->state != PLUGIN_NEW &&
        running->state != PLUGIN_CONTESTED)
        sl_plugin_register(running);
}

int sl_plugins_apply(struct sl_plugins *plugins, const struct sl_plan *plan,
                     const struct sl_inventory *inv, struct sl_err *err)
{
    struct plugin_cards cards;
    struct plugin *fresh = NULL;
    sl_plugin_cards_copy(inv, &cards);
    int rc = make_plugins(plugins, plan, &cards, &fresh, err);
    if (rc < 0) {
        sl_plugin_cards_free(&cards);
        return rc;
    }
    sl_plugin_cards_free(&plugins->cards);
    plugins->cards = cards;

    struct plugin *old = plugins->plugins, **last = &plugins->plugins;
    plugins->plugins = NULL;
    for (size_t i = 0; i < plan->resource_count; i++) {
        const char *name = plan->resource[i].name;
        struct plugin *p = take(&old, name), *now = take(&fresh, name);
        if (p)
            update(p, now);
        *last = p ? p : now;
        last = &(*last)->next;
    }
    while (old) {
        struct plugin *p = old;
        old = p->next;
        sl_info("%s: no longer advertised", p->devices.res.name);
        sl_plugin_retire(p);
    }
    for (struct plugin *p = plugins->plugins; p; p = p->next) {
        if (p->state != PLUGIN_NEW)
            continue;
        /* The end of an old plugin's stream would end the new registration: see sl_plugin_serve(). */
        sl_plugin_free(take(&plugins->retiring, p->devices.res.name));
        sl_plugin_free(take(&plugins->vacating, p->devices.res.name));
        sl_plugin_register(p);
    }
    return 0;
}

void sl_plugins_set_policy(struct sl_plugins *plugins, enum sl_share_policy policy)
{
    plugins->options.share_policy = policy;
}

/* --- health -------------------------------------------------------------------------------------- */

int sl_plugins_set_health(struct sl_plugins *plugins, const char *uuid, bool healthy,
                          struct sl_err *err)
{
    size_t at = 0, size = sizeof(plugins->unhealthy[0]);
    while (at < plugins->unhealthy_count && strcmp(plugins->unhealthy[at], uuid) != 0)
        at++;
    if (healthy == (at == plugins->unhealthy_count))
        return 0;
    if (healthy) {
        memmove(plugins->unhealthy[at], plugins->unhealthy[at + 1],
                (plugins->unhealthy_count - at - 1) * size);
        plugins->unhealthy_count--;
    } else {
        if (strlen(uuid) >= size)
            return sl_err_set(err, -EINVAL, SL_E_DEVICE_ID, uuid);
        plugins->unhealthy = sl_xreallocarray(plugins->unhealthy, at + 1, size);
        (void)snprintf(plugins->unhealthy[at], size, "%s", uuid);
        plugins->unhealthy_count++;
    }
    for (struct plugin *p = plugins->plugins; p; p = p->next)
        if (sl_plugin_devices_judge(plugins, &plugins->cards, &p->devices)) {
            sl_info("%s: %zu of %zu devices healthy after a change of %s", p->devices.res.name,
                    p->devices.healthy_count, p->devices.res.device_count, uuid);
            sl_plugin_changed(p);
        }
    return 0;
}

/* --- figures ------------------------------------------------------------------------------------- */

void sl_plugins_stats(const struct sl_plugins *plugins, struct sl_plugins_stats *ret)
{
    *ret = plugins->stats;
}

size_t sl_plugins_count(const struct sl_plugins *plugins)
{
    size_t n = 0;
    for (const struct plugin *p = plugins->plugins; p; p = p->next)
        n++;
    return n;
}

void sl_plugins_resource(const struct sl_plugins *plugins, size_t i,
                         struct sl_plugins_resource *ret)
{
    const struct plugin *p = plugins->plugins;
    while (i-- > 0)
        p = p->next;
    *ret = (struct sl_plugins_resource){.name = p->devices.res.name,
                                        .advertised = p->devices.res.device_count,
                                        .healthy = p->devices.healthy_count,
                                        .registered = p->state == PLUGIN_REGISTERED && p->streams,
                                        .contested = p->state == PLUGIN_CONTESTED,
                                        .counts = p->counts};
}

bool sl_plugins_ready(const struct sl_plugins *plugins)
{
    for (const struct plugin *p = plugins->plugins; p; p = p->next)
        if (p->state != PLUGIN_REGISTERED || !p->streams)
            return false;
    return true;
}
