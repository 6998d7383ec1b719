/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices and health over the simulated driver, found under a driver root as on a node: XIDs, a card
 * that falls off the bus and comes back, a MIG device made by a job.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/cards/devices.h"
#include "agent/cards/health.h"
#include "agent/mps/mps_internal.h"
#include "base/clock.h"

static const char *ctl;
static char parent[] = "/tmp/sluice-devices-XXXXXX";
static char root[128];

struct world {
    struct sl_loop *loop;
    struct sl_devices *devices;
    struct sl_health *health;
    unsigned inventories, changes;
    char reason[400];
};

static void on_polled(void *data, const struct sl_inventory *inv, uint64_t asked_ns)
{
    sl_health_polled(((struct world *)data)->health, inv, asked_ns);
}
static void on_inventory(void *data, const struct sl_inventory *inv)
{
    (void)inv;
    ((struct world *)data)->inventories++;
}
static void on_xid(void *data, const char *uuid, const struct sl_gpu_event *event)
{
    sl_health_xid(((struct world *)data)->health, uuid, event);
}
static void on_changed(void *data, const char *uuid, bool healthy, const char *reason)
{
    struct world *w = data;
    (void)uuid;
    w->changes++;
    if (!healthy)
        (void)snprintf(w->reason, sizeof(w->reason), "%s", reason);
}
static bool on_ignored(void *data, uint64_t xid)
{
    (void)data;
    return xid == 31; /* a program's fault */
}
static void on_refresh(void *data)
{
    sl_devices_refresh(((struct world *)data)->devices);
}

static void sim(const char *what)
{
    char command[512];
    (void)snprintf(command, sizeof(command),
                   ". %s/sluice-sim; export SLUICE_SIM; "
                   "SLUICE_SIM_STATE=%s/state/machine %s %s >/dev/null",
                   root, root, ctl, what);
    assert_int_equal(system(command), 0);
}

static int setup(void **state)
{
    char command[512];
    static int roots;
    (void)snprintf(root, sizeof(root), "%s/%d", parent, ++roots);
    (void)snprintf(command, sizeof(command), "%s make-root %s h200x2 >/dev/null", ctl, root);
    assert_int_equal(system(command), 0);
    static const struct sl_devices_ops device_ops = {
        .polled = on_polled, .inventory = on_inventory, .xid = on_xid};
    struct world *w = calloc(1, sizeof(*w));
    struct sl_health_options health = {.ignored = on_ignored,
                                       .quiet_ns = 1,
                                       .reset_quiet_ns = 1,
                                       .changed = on_changed,
                                       .refresh = on_refresh,
                                       .data = w};
    struct sl_devices_options options = {.driver_root = root, .poll_ns = 100 * SL_NS_PER_MS};
    assert_int_equal(sl_loop_create(NULL, &w->loop, NULL), 0);
    w->health = sl_health_create(w->loop, &health);
    assert_int_equal(sl_devices_create(w->loop, &options, &device_ops, w, &w->devices, NULL), 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    sl_devices_destroy(w->devices);
    sl_health_destroy(w->health);
    sl_loop_destroy(w->loop);
    free(w);
    return 0;
}

#define until(w, condition)                                                                        \
    while (!(condition))                                                                           \
    assert_int_equal(sl_loop_step((w)->loop, 100, NULL), 0)

static int make_instance(struct sl_gpu *gpu, void *arg, struct sl_err *err)
{
    size_t i = 0;
    bool pending;
    struct sl_gpu_mig_info made;
    int rc = sl_devices_find(gpu, arg, &i, err);
    if (rc == 0)
        rc = sl_gpu_mig_set_mode(gpu, i, true, &pending, err);
    if (rc == 0)
        rc = sl_gpu_mig_create(gpu, i, 19, SL_GPU_MIG_ANYWHERE, &made, err);
    return rc;
}

static int job_result = 1;
static void made_instance(void *arg, int result, const struct sl_err *err)
{
    (void)arg;
    job_result = result;
    if (result < 0)
        print_error("%s\n", err->msg);
}

static void test_life(void **state)
{
    struct world *w = *state;
    until(w, w->inventories == 1);
    const struct sl_inventory *inv = sl_devices_inventory(w->devices);
    assert_int_equal(inv->gpu_count, 2);
    char one[SL_GPU_UUID_SIZE], two[SL_GPU_UUID_SIZE];
    strcpy(one, inv->gpu[0].info.uuid);
    strcpy(two, inv->gpu[1].info.uuid);
    assert_true(sl_health_ok(w->health, one));

    sim("xid 1 31"); /* an application's: nothing happens before the next, which is the card's */
    while (w->changes == 0) { /* the driver keeps none for who does not listen yet */
        sim("xid 1 74");
        assert_int_equal(sl_loop_step(w->loop, 100, NULL), 0);
    }
    assert_non_null(strstr(w->reason, "XID 74 (NVLink error)"));
    until(w, sl_health_ok(w->health, two));
    assert_true(sl_health_ok(w->health, one));

    sim("lost 0");
    until(w, sl_devices_inventory(w->devices)->gpu[0].lost);
    assert_false(sl_health_ok(w->health, one));
    assert_true(sl_health_ok(w->health, two));
    assert_string_equal(sl_devices_inventory(w->devices)->gpu[0].info.uuid, one);
    sim("back 0");
    until(w, sl_health_ok(w->health, one));
    assert_false(sl_devices_inventory(w->devices)->gpu[0].lost);

    until(w, sl_devices_submit(w->devices, make_instance, made_instance, two, NULL) == 0);
    until(w, job_result <= 0);
    assert_int_equal(job_result, 0);
    sl_devices_refresh(w->devices);
    until(w, sl_devices_inventory(w->devices)->gpu[1].mig_count == 1);
    const char *mig = sl_devices_inventory(w->devices)->gpu[1].mig[0].info.uuid;
    assert_true(sl_health_ok(w->health, mig));
}

static char mps_log[400];
static void on_mps(void *data, const char *uuid, enum sl_mps_state state, bool restarted,
                   const char *reason)
{
    (void)data;
    (void)uuid;
    (void)snprintf(mps_log, sizeof(mps_log), "%d%s %.300s", (int)state, restarted ? "!" : "",
                   reason);
}

/* The simulated driver's own MPS daemon, under the same root. */
static void test_mps(void **state)
{
    struct world *w = *state;
    char mps_root[160];
    struct sl_mps *mps = NULL;
    until(w, w->inventories == 1);
    const struct sl_gpu_info *info = &sl_devices_inventory(w->devices)->gpu[1].info;
    struct sl_mps_gpu gpu = {
        .uuid = info->uuid, .index = 1, .memory_bytes = info->memory_total_bytes, .replicas = 4};
    (void)snprintf(mps_root, sizeof(mps_root), "%s/mps", root);
    struct sl_mps_options options = {
        .root = mps_root, .driver_root = root, .no_own_shm = true, .state = on_mps};
    assert_int_equal(sl_mps_create(w->loop, &options, &mps, NULL), 0);
    assert_int_equal(sl_mps_apply(mps, &gpu, 1, NULL), 0);
    until(w, mps_log[0] && mps_log[0] != '0' + SL_MPS_STARTING);
    if (mps_log[0] != '0' + SL_MPS_READY)
        fail_msg("%s", mps_log);
    print_message("%s\n", mps_log);
    assert_int_equal(sl_mps_apply(mps, NULL, 0, NULL), 0);
    until(w, !mps->daemons);
    sl_mps_destroy(mps);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    ctl = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_life, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mps, setup, teardown),
    };
    if (!mkdtemp(parent))
        return 2;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    /* At the very end: the simulated driver, once loaded, goes on using the root it came from. */
    char command[64];
    (void)snprintf(command, sizeof(command), "rm -rf %s", parent);
    return system(command) == 0 ? failed : 2;
}
