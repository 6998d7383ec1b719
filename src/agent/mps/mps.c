/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mps/mps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/mps/errors.h"
#include "agent/mps/mps_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/xalloc.h"

#define MIB (1024ULL * 1024)

static uint64_t or_default(uint64_t value, uint64_t otherwise)
{
    return value ? value : otherwise;
}

/* ---- life ---- */

/* A driver in a root of its own brings its libraries and its server along. */
static char **make_env(const struct sl_mps *mps)
{
    char path[2048], libraries[2048];
    const char *root = mps->driver_root;
    if (!root[0])
        return sl_mps_env(environ, NULL, 0);
    (void)snprintf(path, sizeof(path),
                   "PATH=%s/usr/bin:%s/bin:%s/usr/local/nvidia/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                   root, root, root);
    (void)snprintf(libraries, sizeof(libraries),
                   "LD_LIBRARY_PATH=%s/usr/lib/x86_64-linux-gnu:%s/usr/lib/aarch64-linux-gnu:"
                   "%s/usr/lib64:%s/usr/local/nvidia/lib64:%s/lib",
                   root, root, root, root, root);
    const char *set[] = {path, libraries};
    return sl_mps_env(environ, set, SL_ARRAY_LEN(set));
}

int sl_mps_create(struct sl_loop *loop, const struct sl_mps_options *o, struct sl_mps **ret,
                  struct sl_err *err)
{
    if (!o->root || o->root[0] != '/' || strlen(o->root) > MPS_PATH_SIZE - 160)
        return sl_err_set(err, -EINVAL, SL_E_MPS_NO_ROOT);
    struct sl_mps *mps = sl_xcalloc(1, sizeof(*mps));
    const char *driver_root =
        o->driver_root && strcmp(o->driver_root, "/") != 0 ? o->driver_root : "";
    mps->loop = loop;
    mps->root = sl_xstrdup(o->root);
    mps->control = sl_xstrdup(o->control);
    mps->driver_root = sl_xstrdup(driver_root);
    mps->options = *o;
    mps->options.command_ns = or_default(o->command_ns, 5 * SL_NS_PER_S);
    mps->options.start_ns = or_default(o->start_ns, 15 * SL_NS_PER_S);
    mps->options.watch_ns = or_default(o->watch_ns, 60 * SL_NS_PER_S);
    mps->options.backoff_ns = or_default(o->backoff_ns, SL_NS_PER_S);
    mps->options.heal_ns = or_default(o->heal_ns, 20 * SL_NS_PER_S);
    mps->options.quit_ns = or_default(o->quit_ns, 5 * SL_NS_PER_S);
    mps->env = make_env(mps);
    *ret = mps;
    return 0;
}

void sl_mps_destroy(struct sl_mps *mps)
{
    if (!mps)
        return;
    while (mps->daemons)
        sl_mps_daemon_free(mps->daemons);
    sl_mps_commands_end(&mps->commands);
    sl_mps_env_free(mps->env);
    free(mps->root);
    free(mps->control);
    free(mps->driver_root);
    free(mps);
}

/* ---- which cards ---- */

static struct daemon *find(const struct sl_mps *mps, const char *uuid, bool removed)
{
    for (struct daemon *d = mps->daemons; d; d = d->next)
        if (d->removed == removed && strcmp(d->uuid, uuid) == 0)
            return d;
    return NULL;
}

/* Takes back a daemon that is being ended: a card never has two daemons. */
static struct daemon *call_back(const struct sl_mps *mps, const char *uuid)
{
    struct daemon *d = find(mps, uuid, true);
    if (!d)
        return NULL;
    d->removed = d->told = d->was_bad = false;
    d->state = SL_MPS_STARTING;
    (void)snprintf(d->reason, sizeof(d->reason), "the MPS daemon of GPU %u is starting", d->index);
    d->backoff_ns = 0;
    return d;
}

static uint64_t limit_mib(const struct sl_mps_gpu *g)
{
    return g->memory_bytes / g->replicas / MIB;
}

static unsigned limit_percent(const struct sl_mps_gpu *g)
{
    return g->replicas < 100 ? 100 / g->replicas : 1;
}

static int check(const struct sl_mps_gpu *g, struct sl_err *err)
{
    if (!g->uuid[0] || strchr(g->uuid, '/') || strlen(g->uuid) >= SL_GPU_UUID_SIZE)
        return sl_err_set(err, -EINVAL, SL_E_MPS_NO_UUID, g->index);
    if (limit_mib(g) == 0)
        return sl_err_set(err, -EINVAL, SL_E_MPS_SMALL, g->index, g->replicas);
    return 0;
}

static char **daemon_env(const struct daemon *d)
{
    char log[MPS_PATH_SIZE + 32], visible[SL_GPU_UUID_SIZE + 32];
    (void)snprintf(log, sizeof(log), "CUDA_MPS_LOG_DIRECTORY=%s", d->log_dir);
    (void)snprintf(visible, sizeof(visible), "CUDA_VISIBLE_DEVICES=%s", d->uuid);
    const char *set[] = {d->variable, log, visible};
    return sl_mps_env(d->mps->env, set, SL_ARRAY_LEN(set));
}

static void add(struct sl_mps *mps, const struct sl_mps_gpu *g)
{
    struct daemon *d = sl_xcalloc(1, sizeof(*d));
    d->mps = mps;
    d->exit.fd = -1;
    d->index = g->index;
    d->limit_mib = limit_mib(g);
    d->percent = limit_percent(g);
    (void)snprintf(d->uuid, sizeof(d->uuid), "%s", g->uuid);
    (void)snprintf(d->dir, sizeof(d->dir), "%.300s/%s", mps->root, g->uuid);
    (void)snprintf(d->pipe, sizeof(d->pipe), "%.400s/pipe", d->dir);
    (void)snprintf(d->variable, sizeof(d->variable), "CUDA_MPS_PIPE_DIRECTORY=%s", d->pipe);
    (void)snprintf(d->log_dir, sizeof(d->log_dir), "%.400s/log", d->dir);
    (void)snprintf(d->shm, sizeof(d->shm), "%.400s/shm", d->dir);
    d->env = daemon_env(d);
    d->next = mps->daemons;
    mps->daemons = d;
    sl_mps_daemon_init(d);
}

static bool named(const struct sl_mps_gpu *gpus, size_t count, const char *uuid)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(gpus[i].uuid, uuid) == 0)
            return true;
    return false;
}

int sl_mps_apply(struct sl_mps *mps, const struct sl_mps_gpu *gpus, size_t count,
                 struct sl_err *err)
{
    for (size_t i = 0; i < count; i++) {
        int rc = check(&gpus[i], err);
        if (rc < 0)
            return rc;
    }
    for (struct daemon *d = mps->daemons, *next; d; d = next) {
        next = d->next;
        if (!d->removed && !named(gpus, count, d->uuid))
            sl_mps_daemon_remove(d);
    }
    for (size_t i = 0; i < count; i++) {
        struct daemon *d = find(mps, gpus[i].uuid, false);
        if (!d)
            d = call_back(mps, gpus[i].uuid);
        if (!d) {
            add(mps, &gpus[i]);
            continue;
        }
        bool changed = d->limit_mib != limit_mib(&gpus[i]) || d->percent != limit_percent(&gpus[i]);
        d->limit_mib = limit_mib(&gpus[i]);
        d->percent = limit_percent(&gpus[i]);
        d->index = gpus[i].index;
        if (changed)
            sl_mps_daemon_relimit(d);
    }
    return 0;
}

/* ---- for tenants ---- */

bool sl_mps_ready(const struct sl_mps *mps, const char *uuid)
{
    const struct daemon *d = find(mps, uuid, false);
    return !d || d->state == SL_MPS_READY;
}

const char *sl_mps_trouble(const struct sl_mps *mps)
{
    const char *reason = NULL;
    for (const struct daemon *d = mps->daemons; d; d = d->next) {
        if (d->removed)
            continue;
        if (d->state != SL_MPS_FAILED)
            return NULL;
        reason = d->reason;
    }
    return reason;
}

int sl_mps_edits(const struct sl_mps *mps, const char *uuid, struct sl_edits *edits,
                 struct sl_err *err)
{
    const struct daemon *d = find(mps, uuid, false);
    if (!d)
        return sl_err_set(err, -ENOENT, SL_E_MPS_NOT_SHARED, uuid);
    if (d->state != SL_MPS_READY)
        return sl_err_set(err, -EAGAIN, "%s", d->reason);
    /* The same path inside the container: the daemon's messages name it, and no image has such a path. */
    sl_edits_env(edits, "CUDA_MPS_PIPE_DIRECTORY", d->pipe);
    sl_edits_mount(edits, d->pipe, d->pipe, false);
    if (!mps->options.no_own_shm)
        sl_edits_mount(edits, d->shm, "/dev/shm", false);
    return 0;
}
