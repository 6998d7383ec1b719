/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A day of a device plugin in which the n-th of the agent's allocations fails, for every n. What is asked
 * of it may fail, then is asked again; in the end kubelet has the right list, and nothing leaks or crashes.
 * Kubelet has a loop of its own, in which nothing fails.
 */
#include "plugin_world.h"

#include <errno.h>
#include <poll.h>

#include "base/clock.h"
#include "support/nth_malloc.h"

#define GPU "nvidia.com/gpu"

static void settle_one(struct sl_loop *loop, bool agent)
{
    struct pollfd p = {.fd = sl_loop_fd(loop), .events = POLLIN};
    struct sl_err err = SL_ERR_INIT;
    do {
        nth_malloc.idle = !agent;
        int rc = sl_loop_step(loop, 0, &err);
        nth_malloc.idle = true;
        assert_int_equal(rc, 0);
    } while (poll(&p, 1, 0) == 1);
}

/* Both go on, and time passes, until kubelet has so many devices, so many of them healthy. */
static void until(struct world *w, struct sl_loop *kubelet, size_t devices, size_t healthy)
{
    for (int i = 0; i < 3000; i++) {
        struct fake_resource *r = fake_find(&w->kubelet, GPU);
        if (r && r->stream && r->lists && r->devices == devices && r->healthy == healthy &&
            sl_plugins_ready(w->plugins))
            return;
        settle_one(w->loop, true);
        settle_one(kubelet, false);
        world_tick(10);
    }
    fail_msg("allocation %lu: kubelet never got %zu devices", nth_malloc.fail_at, devices);
}

static void apply(struct world *w, size_t gpus, unsigned replicas)
{
    const struct world_resource r = {.name = GPU, .gpus = gpus, .replicas = replicas};
    struct sl_err err = SL_ERR_INIT;
    struct sl_plan *plan = world_plan(w, &r, 1);
    size_t before = sl_plugins_count(w->plugins);
    int rc;
    do {
        nth_malloc.idle = false;
        rc = sl_plugins_apply(w->plugins, plan, &w->inv, &err);
        nth_malloc.idle = true;
        if (rc < 0) {
            assert_int_equal(rc, -ENOMEM);
            assert_int_equal(sl_plugins_count(w->plugins), before);
        }
    } while (rc < 0);
    world_plan_free(plan);
}

static void set_health(struct world *w, bool healthy)
{
    struct sl_err err = SL_ERR_INIT;
    int rc;
    do {
        nth_malloc.idle = false;
        rc = sl_plugins_set_health(w->plugins, w->inv.gpu[0].info.uuid, healthy, &err);
        nth_malloc.idle = true;
    } while (rc == -ENOMEM);
    assert_int_equal(rc, 0);
}

static void allocate(struct world *w, struct sl_loop *kubelet)
{
    struct fake_call c = {.code = SL_RPC_UNKNOWN};
    const char *id = "GPU-00000001-0000-0000-0000-000000000000::0";
    for (int i = 0; i < 3 && c.code != SL_RPC_OK; i++) {
        until(w, kubelet, 4, 2); /* where the failure cost the connection */
        fake_allocate(fake_find(&w->kubelet, GPU), &id, 1, &c);
        for (int k = 0; k < 100 && !c.done; k++) {
            settle_one(kubelet, false);
            settle_one(w->loop, true);
            world_tick(10);
        }
        assert_true(c.done);
        fake_call_free(&c);
    }
    assert_int_equal(c.code, SL_RPC_OK);
}

static void one_day(void)
{
    struct world w;
    struct sl_err err = SL_ERR_INIT;
    struct sl_loop *kubelet;
    world_open_timeless(&w, 2);
    assert_int_equal(sl_loop_create(world_clock, &kubelet, &err), 0);
    sl_plugins_destroy(w.plugins);
    do {
        nth_malloc.idle = false;
        w.plugins = world_plugins_or_null(&w);
        nth_malloc.idle = true;
    } while (!w.plugins);
    fake_start(&w.kubelet, kubelet, w.dir);
    apply(&w, 2, 1);
    until(&w, kubelet, 2, 2);
    apply(&w, 2, 2);
    until(&w, kubelet, 4, 4);
    set_health(&w, false);
    until(&w, kubelet, 4, 2);
    allocate(&w, kubelet);
    set_health(&w, true);
    until(&w, kubelet, 4, 4);
    fake_stop(&w.kubelet, true);
    fake_start(&w.kubelet, kubelet, w.dir);
    until(&w, kubelet, 4, 4);
    fake_stop(&w.kubelet, false);
    settle_one(kubelet, false);
    sl_loop_destroy(kubelet);
    world_close(&w);
}

static void every_allocation_fails_once(void **state)
{
    (void)state;
    unsigned long n = 0;
    nth_malloc.idle = true; /* but while the agent runs */
    do {
        (void)nth_malloc_set(++n);
        one_day();
    } while (nth_malloc.failures);
    print_message("%lu allocations failed, one a day\n", n - 1);
    assert_true(n > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_fails_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
