/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/kubelet/allocate.h"

#include <errno.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "container/cdi.h"
#include "driver_world.h"

#define WHOLE   "GPU-00000000-0000-0000-0000-000000000000"
#define PARENT  "GPU-00000001-0000-0000-0000-000000000000"
#define MIG     "MIG-00000000-0000-0000-0000-000000000000"
#define VISIBLE "NVIDIA_VISIBLE_DEVICES"

struct world {
    struct driver_world *w;
    struct sl_driver *driver;
    struct sl_inventory *inv;
    struct sl_config config;
    struct sl_plan_resource resource;
    struct sl_edits edits;
    struct sl_err err;
};

static void begin(void **state, struct world *t)
{
    static struct sl_plan_device devices[] = {
        {.id = WHOLE "::0", .gpu = 0, .mig = SL_NO_MIG, .replica = 0},
        {.id = WHOLE "::1", .gpu = 0, .mig = SL_NO_MIG, .replica = 1},
        {.id = PARENT, .gpu = 1, .mig = SL_NO_MIG},
        {.id = MIG, .gpu = 1, .mig = 0},
        {.id = "gone", .gpu = 9, .mig = SL_NO_MIG},
    };
    *t = (struct world){.w = *state};
    world_debian(t->w);
    t->driver = world_find(t->w);
    t->inv = world_inventory();
    (void)snprintf(t->resource.name, sizeof(t->resource.name), "nvidia.com/gpu");
    t->resource.device = devices;
    t->resource.device_count = 5;
}

static void end(struct world *t)
{
    sl_edits_clear(&t->edits);
    world_free_inventory(t->inv);
    sl_driver_free(t->driver);
}

#define ALLOCATE(t, extra, ...)                                                                    \
    allocate(t, extra, (const char *const[]){__VA_ARGS__},                                         \
             sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

static int allocate(struct world *t, const struct sl_edits *extra, const char *const *ids, size_t n)
{
    sl_edits_clear(&t->edits);
    return sl_allocate_edits(&t->config, t->inv, t->driver, &t->resource, ids, n, extra, &t->edits,
                             &t->err);
}

static void environment(void **state)
{
    struct world t;
    begin(state, &t);
    /* Nothing configured is envvar, as NVIDIA's. Two shares of one card are that card, once. */
    assert_int_equal(ALLOCATE(&t, NULL, WHOLE "::1", WHOLE "::0", MIG), 0);
    assert_string_equal(world_env(&t.edits, VISIBLE), WHOLE "," MIG);
    assert_int_equal(t.edits.env_count, 1);
    assert_int_equal(
        t.edits.mount_count + t.edits.node_count + t.edits.cdi_count + t.edits.annotation_count, 0);
    t.config.list_strategy = SL_LIST_ENVVAR;
    t.config.id_strategy = SL_ID_INDEX;
    t.config.gds = t.config.mofed = t.config.gdrcopy = true;
    assert_int_equal(ALLOCATE(&t, NULL, MIG, WHOLE "::0"), 0);
    assert_string_equal(world_env(&t.edits, VISIBLE), "1:0,0");
    assert_string_equal(world_env(&t.edits, "NVIDIA_GDS"), "enabled");
    assert_string_equal(world_env(&t.edits, "NVIDIA_MOFED"), "enabled");
    assert_string_equal(world_env(&t.edits, "NVIDIA_GDRCOPY"), "enabled");
    /* Beside a card that never answered, and so has no place in the inventory: the driver's numbers. */
    t.inv->gpu[0].index = 1;
    t.inv->gpu[1].index = 2;
    assert_int_equal(ALLOCATE(&t, NULL, MIG, WHOLE "::0"), 0);
    assert_string_equal(world_env(&t.edits, VISIBLE), "2:0,1");
    end(&t);
}

static void volume_mounts(void **state)
{
    struct world t;
    begin(state, &t);
    t.config.list_strategy = SL_LIST_VOLUME_MOUNTS;
    assert_int_equal(ALLOCATE(&t, NULL, WHOLE "::0", MIG), 0);
    assert_string_equal(world_env(&t.edits, VISIBLE), "/var/run/nvidia-container-devices");
    const struct sl_edit_mount *m = world_mount(&t.edits, "/var/run/nvidia-container-devices/" MIG);
    assert_non_null(m);
    assert_string_equal(m->host, "/dev/null");
    assert_int_equal(t.edits.mount_count, 2);
    end(&t);
}

static void cdi_names(void **state)
{
    struct world t;
    begin(state, &t);
    t.config.list_strategy = SL_LIST_CDI_CRI | SL_LIST_CDI_ANNOTATIONS;
    t.config.pass_device_specs = true; /* says nothing where the runtime knows CDI */
    t.config.gds = true;
    assert_int_equal(ALLOCATE(&t, NULL, WHOLE "::0", MIG), 0);
    assert_int_equal(t.edits.cdi_count, 2);
    assert_string_equal(t.edits.cdi[0], SL_CDI_NODE_KIND "=" WHOLE);
    assert_string_equal(t.edits.cdi[1], SL_CDI_NODE_KIND "=" MIG);
    assert_int_equal(t.edits.annotation_count, 1);
    assert_string_equal(t.edits.annotation[0].value,
                        SL_CDI_NODE_KIND "=" WHOLE "," SL_CDI_NODE_KIND "=" MIG);
    regex_t re;
    assert_int_equal(regcomp(&re,
                             "^cdi\\.k8s\\.io/nvidia-device-plugin_[0-9a-f]{8}-[0-9a-f]{4}-4"
                             "[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
                             REG_EXTENDED | REG_NOSUB),
                     0);
    assert_int_equal(regexec(&re, t.edits.annotation[0].name, 0, NULL, 0), 0);
    regfree(&re);
    char *first = strdup(t.edits.annotation[0].name);
    assert_int_equal(t.edits.env_count + t.edits.node_count + t.edits.mount_count, 0);
    assert_int_equal(ALLOCATE(&t, NULL, WHOLE "::0"), 0);
    assert_string_not_equal(first, t.edits.annotation[0].name);
    free(first);
    end(&t);
}

static void several_at_once(void **state)
{
    struct world t;
    begin(state, &t);
    t.config.list_strategy = SL_LIST_CDI_CRI | SL_LIST_ENVVAR;
    assert_int_equal(ALLOCATE(&t, NULL, MIG), 0);
    assert_string_equal(world_env(&t.edits, VISIBLE), MIG);
    assert_string_equal(t.edits.cdi[0], SL_CDI_NODE_KIND "=" MIG);
    end(&t);
}

static void device_specs(void **state)
{
    struct world t;
    begin(state, &t);
    t.config.pass_device_specs = true;
    assert_int_equal(ALLOCATE(&t, NULL, MIG), 0);
    static const char *const want[] = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1",
                                       "/dev/nvidia-caps/nvidia-cap12",
                                       "/dev/nvidia-caps/nvidia-cap13"};
    for (size_t i = 0; i < 5; i++)
        assert_non_null(world_has_node(&t.edits, want[i]));
    /* Kubelet would refuse the pod over a node that the host does not have. */
    assert_null(world_has_node(&t.edits, "/dev/nvidia-uvm-tools"));
    assert_int_equal(t.edits.node_count, 5);
    end(&t);
}

static void imex_channels(void **state)
{
    struct world t;
    begin(state, &t);
    t.config.imex_channel0 = true;
    world_proc(t.w, "devices", "Character devices:\n195 nvidia\n"); /* a machine without */
    assert_int_equal(ALLOCATE(&t, NULL, MIG), 0);
    assert_null(world_env(&t.edits, "NVIDIA_IMEX_CHANNELS"));
    t.config.imex_required = true;
    assert_int_equal(ALLOCATE(&t, NULL, MIG), -ENODEV);
    world_node(t.w, "dev/nvidia-caps-imex-channels/channel0");
    t.config.list_strategy = SL_LIST_ENVVAR | SL_LIST_CDI_CRI | SL_LIST_VOLUME_MOUNTS;
    t.config.pass_device_specs = true;
    assert_int_equal(ALLOCATE(&t, NULL, MIG), 0);
    assert_string_equal(world_env(&t.edits, "NVIDIA_IMEX_CHANNELS"), "0");
    assert_string_equal(t.edits.cdi[1], SL_CDI_IMEX_KIND "=0");
    assert_non_null(world_mount(&t.edits, "/var/run/nvidia-container-devices/imex/0"));
    assert_non_null(world_has_node(&t.edits, "/dev/nvidia-caps-imex-channels/channel0"));
    end(&t);
}

static void what_mps_adds(void **state)
{
    struct world t;
    struct sl_edits mps = {0};
    begin(state, &t);
    sl_edits_env(&mps, "CUDA_MPS_PIPE_DIRECTORY", "/mps/pipe");
    sl_edits_mount(&mps, "/run/mps/0", "/mps", false);
    assert_int_equal(ALLOCATE(&t, &mps, WHOLE "::0"), 0);
    assert_string_equal(world_env(&t.edits, "CUDA_MPS_PIPE_DIRECTORY"), "/mps/pipe");
    assert_non_null(world_mount(&t.edits, "/mps"));
    sl_edits_clear(&mps);
    end(&t);
}

static void refused(void **state)
{
    struct world t;
    begin(state, &t);
    assert_int_equal(ALLOCATE(&t, NULL, MIG, "GPU-of-nobody"), -ENOENT);
    assert_non_null(strstr(t.err.msg, "GPU-of-nobody"));
    assert_int_equal(ALLOCATE(&t, NULL, "gone"), -ENOENT); /* planned for another inventory */
    assert_int_equal(allocate(&t, NULL, NULL, 0), -EINVAL);
    t.resource.fail_requests_greater_than_one = true;
    assert_int_equal(ALLOCATE(&t, NULL, WHOLE "::0", WHOLE "::1"), -EINVAL);
    assert_non_null(strstr(t.err.msg, "maximum request size for shared resources is 1; found 2"));
    assert_int_equal(ALLOCATE(&t, NULL, WHOLE "::1"), 0);
    end(&t);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, driver_world_make, driver_world_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(environment),  CASE(volume_mounts), CASE(cdi_names),     CASE(several_at_once),
        CASE(device_specs), CASE(imex_channels), CASE(what_mps_adds), CASE(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
