/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes kubelet forget the options of an earlier plugin (sl_plugins_vacate() says why). Kubelet's own checkpoint,
 * beside the sockets, lists the resources it remembers. A kubelet that restarted since remembers devices but no
 * options; then the registration does no harm.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "agent/kubelet/errors.h"
#include "agent/kubelet/plugin_internal.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"

static const char CHECKPOINT[] = "kubelet_internal_checkpoint";
/* How long kubelet remembers a plugin; an earlier agent that is stopping may serve the name for a part of this time. */
static const uint64_t REMEMBERS_NS = 300 * SL_NS_PER_S;

/* An agent that is stopping is gone by then; a process that is still there will stay. */
static const uint64_t LEAVES_NS = 60 * SL_NS_PER_S;

bool sl_plugin_vacate_ends(struct plugin *p)
{
    if (!p->vacated && sl_loop_now(p->owner->loop) < p->vacate_ns)
        return false;
    sl_list_drop(&p->owner->vacating, p);
    p->next = NULL;
    if (!p->vacated) {
        sl_warn("%s: kubelet could not be told that claims serve this resource now; kubelet "
                "forgets it after some minutes",
                p->devices.res.name);
        sl_plugin_free(p);
        return true;
    }
    sl_info("%s: claims serve it now, and kubelet has been told", p->devices.res.name);
    p->vacate_ns = 0;
    sl_plugin_retire(p);
    return true;
}

void sl_plugin_vacate_waits(struct plugin *p, const char *who)
{
    if (p->vacate_told || p->vacate_ns - sl_loop_now(p->owner->loop) > REMEMBERS_NS - LEAVES_NS)
        return;
    p->vacate_told = true;
    sl_plugin_notice(p->owner, SL_E_BESIDE_CLAIMS_LOG, p->devices.res.name, who, p->path);
}

static void vacate(struct sl_plugins *plugins, const char *name)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_plan_resource none = {.sharing = SL_SHARING_NONE};
    struct plugin *p;
    (void)snprintf(none.name, sizeof(none.name), "%s", name);
    if (sl_plugin_make(plugins, &none, &plugins->cards, &p, &err) < 0) {
        sl_warn("%s: cannot tell kubelet that claims serve this resource now: %s", name, err.msg);
        return;
    }
    p->vacate_ns = sl_loop_now(plugins->loop) + REMEMBERS_NS;
    p->next = plugins->vacating;
    plugins->vacating = p;
    sl_plugin_register(p);
}

/* The checkpoint's list of registered resources; NULL: none, which is no error on a new node. */
static json_t *registered(const struct sl_plugins *plugins, json_t **ret_file)
{
    char path[512];
    json_error_t bad;
    (void)snprintf(path, sizeof(path), "%s/%s", sl_kubelet_watch_dir(plugins->watch), CHECKPOINT);
    *ret_file = json_load_file(path, 0, &bad);
    if (!*ret_file && json_error_code(&bad) != json_error_cannot_open_file)
        sl_warn("%s: %s: what kubelet remembers of this resource is not known", path, bad.text);
    return json_object_get(json_object_get(*ret_file, "Data"), "RegisteredDevices");
}

void sl_plugins_vacate(struct sl_plugins *plugins, const struct sl_plan *plan)
{
    json_t *file;
    json_t *names = registered(plugins, &file);
    for (size_t i = 0; names && i < plan->resource_count; i++)
        if (json_object_get(names, plan->resource[i].name))
            vacate(plugins, plan->resource[i].name);
    json_decref(file);
}
