/* SPDX-License-Identifier: Apache-2.0 */
/* Connects the DRA driver with the other parts of the agent. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent_internal.h"
#include "container/cdi.h"
#include "agent/errors.h"
#include "base/log.h"

static int submit(void *data, sl_devices_job_fn *fn, sl_devices_done_fn *done, void *arg,
                  struct sl_err *err)
{
    struct sl_agent *a = data;
    return sl_devices_submit(a->devices, fn, done, arg, err);
}

size_t sl_agent_dra_mps(const struct sl_agent *a, const char *uuid)
{
    size_t i = 0;
    while (i < a->dra_mps_count && strcmp(a->dra_mps[i], uuid) != 0)
        i++;
    return i;
}

static int mps(void *data, const char *uuid, struct sl_edits *edits, struct sl_err *err)
{
    struct sl_agent *a = data;
    if (sl_agent_dra_mps(a, uuid) == a->dra_mps_count) {
        if (a->dra_mps_count == SL_AGENT_MAX_GPUS)
            return sl_err_set(err, -ENOSPC, SL_E_AGENT_MPS_GPUS, SL_AGENT_MAX_GPUS);
        (void)snprintf(a->dra_mps[a->dra_mps_count++], SL_GPU_UUID_SIZE, "%s", uuid);
    }
    int rc = sl_agent_mps_apply(a, err);
    if (rc == 0 && !a->mps)
        rc = sl_err_set(err, -EAGAIN, SL_E_AGENT_NO_CARDS);
    return rc < 0 ? rc : sl_mps_edits(a->mps, uuid, edits, err);
}

static void mps_done(void *data, const char *uuid)
{
    struct sl_agent *a = data;
    struct sl_err err = SL_ERR_INIT;
    size_t i = sl_agent_dra_mps(a, uuid);
    if (i < a->dra_mps_count)
        memmove(a->dra_mps[i], a->dra_mps[--a->dra_mps_count], SL_GPU_UUID_SIZE);
    if (sl_agent_mps_apply(a, &err) < 0)
        sl_warn("MPS: %s", err.msg);
}

static void event(void *data, const struct sl_dra_event *e)
{
    struct sl_agent *a = data;
    enum sl_event_type type = e->warning ? SL_EVENT_WARNING : SL_EVENT_NORMAL;
    sl_log(e->warning ? SL_LOG_WARN : SL_LOG_INFO, "claim %s/%s: %s", e->name_space, e->claim,
           e->message);
    if (a->node && e->pod && *e->pod)
        sl_pod_event(a->node, e->name_space, e->pod, e->pod_uid, type, e->reason, e->message);
}

static void took_over(void *data)
{
    sl_agent_replan(data);
}

static void name_taken(void *data, const char *message)
{
    sl_agent_say(data, SL_EVENT_WARNING, "DRANameTaken", "%s", message);
}

/* The places of an installed tree and of a build tree, relative to the program. */
static int find_libsluice(const struct sl_agent *a, char *path, size_t size, struct sl_err *err)
{
    static const char *const places[] = {"../" SLUICE_LIBDIR "/sluice/libsluice.so",
                                         "../lib/libsluice.so"};
    char self[2048];
    if (a->opt.libsluice) {
        (void)snprintf(path, size, "%s", a->opt.libsluice);
        return 0;
    }
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    for (size_t i = 0; slash && i < sizeof(places) / sizeof(places[0]); i++) {
        (void)snprintf(path, size, "%.*s/%s", (int)(slash - self), self, places[i]);
        if (access(path, R_OK) == 0)
            return 0;
    }
    return sl_err_set(err, -ENOENT, SL_E_AGENT_NO_LIBSLUICE);
}

int sl_agent_install_sluice(struct sl_agent *a, struct sl_err *err)
{
    char libsluice[4096];
    int rc = find_libsluice(a, libsluice, sizeof(libsluice), err);
    return rc < 0 ? rc : sl_cdi_install_sluice(a->opt.state_dir, libsluice, err);
}

int sl_agent_dra_open(struct sl_agent *a, struct sl_err *err)
{
    if (!a->opt.dra)
        return 0;
    if (!a->kube)
        return sl_err_set(err, -EINVAL, SL_E_AGENT_DRA_API);
    int rc = sl_agent_install_sluice(a, err);
    if (rc < 0)
        return rc;
    const struct sl_dra_options options = {.names = a->opt.dra_names,
                                           .node_name = a->node_name,
                                           .instance = a->opt.instance,
                                           .plugin_dir = a->opt.plugin_dir,
                                           .registry_dir = a->opt.registry_dir,
                                           .cdi_dir = a->opt.cdi_dir,
                                           .state_dir = a->opt.state_dir,
                                           .arbiter_dir = a->opt.arbiter_dir,
                                           .arbiter_dir_host = a->opt.arbiter_dir_host,
                                           .sluice_dir_host = a->opt.state_dir_host,
                                           .state_dir_host = a->opt.state_dir_host};
    const struct sl_dra_ops ops = {.submit = submit,
                                   .refresh = sl_agent_refresh,
                                   .mps = mps,
                                   .mps_done = mps_done,
                                   .event = event,
                                   .took_over = took_over,
                                   .name_taken = name_taken};
    return sl_dra_create(a->loop, &options, a->kube, &ops, a, &a->dra, err);
}

void sl_agent_dra_update(struct sl_agent *a)
{
    const struct sl_inventory *inv = sl_devices_inventory(a->devices);
    if (a->dra && inv)
        sl_dra_update(a->dra, inv, a->config, a->driver);
}
