/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin_world.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

static int allocate(void *data, const struct sl_plan_resource *res, const char *const *ids,
                    size_t n, struct sl_edits *edits, struct sl_err *err)
{
    struct world *w = data;
    w->allocated++;
    w->allocated_ids = n;
    if (w->allocate_kills)
        (void)raise(SIGKILL);
    if (w->allocate_fails)
        return sl_err_set(err, -EIO, "the disk is full: make room");
    sl_edits_env(edits, "DEVICES", w->bad_value ? w->bad_value : ids[0]);
    sl_edits_env(edits, "RESOURCE", res->name);
    sl_edits_annotation(edits, "cdi.k8s.io/sluice", "a=b");
    sl_edits_mount(edits, "/host", "/container", true);
    sl_edits_node(edits, "/dev/nvidia0", "/dev/nvidia0");
    sl_edits_cdi(edits, "k8s.device-plugin.nvidia.com/gpu=0");
    return 0;
}

static void prestart(void *data, const struct sl_plan_resource *res, const char *const *ids,
                     size_t n, struct sl_prestart *call)
{
    struct world *w = data;
    assert_true(res->sharing == SL_SHARING_FRACTIONAL && ids[0]);
    w->prestarts++;
    w->prestart_ids = n;
    w->prestart = w->prestart_at_once ? NULL : call;
    if (w->prestart_at_once)
        sl_prestart_answer(call, NULL);
}

static void started(void *data)
{
    ((struct world *)data)->started++;
}

static void notice(void *data, const char *text)
{
    struct world *w = data;
    w->notices++;
    (void)snprintf(w->notice, sizeof(w->notice), "%s", text);
}

struct sl_plugins *world_plugins_or_null(struct world *w)
{
    const struct sl_plugins_options options = {.kubelet_socket = w->socket,
                                               .allocate = allocate,
                                               .prestart = prestart,
                                               .kubelet_started = started,
                                               .notice = notice,
                                               .data = w};
    struct sl_plugins *plugins;
    struct sl_err err = SL_ERR_INIT;
    return sl_plugins_create(w->loop, &options, &plugins, &err) < 0 ? NULL : plugins;
}

struct sl_plugins *world_plugins(struct world *w)
{
    struct sl_plugins *plugins = world_plugins_or_null(w);
    assert_non_null(plugins);
    return plugins;
}

static uint64_t virtual_ns = SL_NS_PER_S;

uint64_t world_clock(void)
{
    return virtual_ns;
}

void world_tick(uint64_t ms)
{
    virtual_ns += ms * SL_NS_PER_MS;
}

static void open_world(struct world *w, size_t gpus, uint64_t (*now_ns)(void))
{
    struct sl_err err = SL_ERR_INIT;
    memset(w, 0, sizeof(*w));
    (void)snprintf(w->dir, sizeof(w->dir), "/tmp/sluice-plugin-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    (void)snprintf(w->socket, sizeof(w->socket), "%s/kubelet.sock", w->dir);
    assert_int_equal(sl_loop_create(now_ns, &w->loop, &err), 0);
    w->inv.gpu_count = gpus;
    w->inv.gpu = calloc(gpus + 1, sizeof(*w->inv.gpu));
    w->inv.nvlinks = calloc(gpus * gpus + 1, 1);
    for (size_t i = 0; i < gpus; i++) {
        (void)snprintf(w->inv.gpu[i].info.uuid, SL_GPU_UUID_SIZE,
                       "GPU-%08zx-0000-0000-0000-000000000000", i);
        w->inv.gpu[i].info.numa_node = i < gpus / 2 ? 0 : 1;
        for (size_t j = 0; j < gpus; j++)
            if (i != j && i / 4 == j / 4)
                w->inv.nvlinks[i * gpus + j] = 4;
    }
    w->plugins = world_plugins(w);
}

void world_open(struct world *w, size_t gpus)
{
    open_world(w, gpus, NULL);
}

void world_open_timeless(struct world *w, size_t gpus)
{
    open_world(w, gpus, world_clock);
}

void world_pass(struct world *w, uint64_t ms)
{
    for (uint64_t i = 0; i < ms; i += 10) {
        world_tick(10);
        world_settle(w);
    }
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

void world_close(struct world *w)
{
    sl_plugins_destroy(w->plugins);
    fake_stop(&w->kubelet, false);
    world_settle(w);
    sl_loop_destroy(w->loop);
    free(w->inv.gpu);
    free(w->inv.nvlinks);
    (void)nftw(w->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

struct sl_plan *world_plan(const struct world *w, const struct world_resource *r, size_t n)
{
    struct sl_plan *plan = calloc(1, sizeof(*plan));
    plan->resource = calloc(n + 1, sizeof(*plan->resource));
    plan->resource_count = n;
    for (size_t i = 0; i < n; i++) {
        struct sl_plan_resource *res = &plan->resource[i];
        (void)snprintf(res->name, sizeof(res->name), "%s", r[i].name);
        (void)snprintf(res->base_name, sizeof(res->base_name), "%s", r[i].name);
        res->sharing = r[i].fractions      ? SL_SHARING_FRACTIONAL
                       : r[i].mps          ? SL_SHARING_MPS
                       : r[i].replicas > 1 ? SL_SHARING_TIME_SLICING
                                           : SL_SHARING_NONE;
        res->fail_requests_greater_than_one = r[i].fail_more_than_one;
        res->device = calloc(r[i].gpus * r[i].replicas + 1, sizeof(*res->device));
        for (size_t g = 0; g < r[i].gpus; g++)
            for (unsigned k = 0; k < r[i].replicas; k++) {
                struct sl_plan_device *d = &res->device[res->device_count++];
                *d = (struct sl_plan_device){.gpu = g,
                                             .mig = SL_NO_MIG,
                                             .replica = k,
                                             .sharing = res->sharing,
                                             .numa_node = w->inv.gpu[g].info.numa_node};
                (void)snprintf(d->id, sizeof(d->id), r[i].replicas > 1 ? "%.40s::%u" : "%.40s",
                               w->inv.gpu[g].info.uuid, k);
            }
    }
    return plan;
}

void world_plan_free(struct sl_plan *plan)
{
    for (size_t i = 0; i < plan->resource_count; i++)
        free(plan->resource[i].device);
    free(plan->resource);
    free(plan);
}

void world_apply(struct world *w, const struct world_resource *r, size_t n)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_plan *plan = world_plan(w, r, n);
    if (sl_plugins_apply(w->plugins, plan, &w->inv, &err) < 0)
        fail_msg("%s", err.msg);
    world_plan_free(plan);
}

void world_apply_one(struct world *w, const char *name, size_t gpus, unsigned replicas)
{
    const struct world_resource r = {.name = name, .gpus = gpus, .replicas = replicas};
    world_apply(w, &r, 1);
}

void world_step(struct world *w, int timeout_ms)
{
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_loop_step(w->loop, timeout_ms, &err), 0);
}

void world_settle(struct world *w)
{
    struct pollfd p = {.fd = sl_loop_fd(w->loop), .events = POLLIN};
    do
        world_step(w, 0);
    while (poll(&p, 1, 0) == 1);
}

struct fake_resource *world_wait(struct world *w, const char *name, size_t devices)
{
    struct fake_resource *r = NULL;
    world_until(w, sl_plugins_ready(w->plugins) && (r = fake_find(&w->kubelet, name)) &&
                       r->stream && r->lists && r->devices == devices && r->healthy == devices);
    return r;
}

void world_call_end(struct world *w, struct fake_call *call)
{
    world_until(w, call->done);
}
