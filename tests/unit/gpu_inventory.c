/* SPDX-License-Identifier: Apache-2.0 */
/* The inventory over the simulated NVML: what is read, what differs, and cards that do not
 * answer. */
#include "../sim/nvml_test.h"

#include "gpu/inventory.h"

#define CLUSTER "01234567-89ab-cdef-0123-456789abcdef"

static struct sl_gpu *gpu;

static struct sl_inventory *read_all(void)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_inventory *inv = NULL;
    if (sl_inventory_read(gpu, &inv, &err) != 0)
        fail_msg("%s", err.msg);
    return inv;
}

static void set_lost(uint32_t index, uint32_t lost)
{
    sl_sim_lock(sim);
    sim->cards[index].lost = lost;
    sl_sim_unlock(sim);
}

static void test_read(void **state)
{
    (void)state;
    struct sl_inventory *inv = read_all();
    assert_string_equal(inv->driver_version, "580.159.04");
    assert_int_equal(inv->cuda_version, 13000);
    assert_int_equal(inv->gpu_count, 3);
    assert_string_equal(inv->gpu[0].info.name, "NVIDIA H200");
    assert_string_equal(inv->gpu[2].info.name, "NVIDIA L4");
    assert_string_equal(inv->gpu[0].clique, CLUSTER ".7");
    assert_string_equal(inv->gpu[2].clique, "");
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(inv->gpu[i].pci_class, 0x0302);
        assert_false(inv->gpu[i].lost);
        assert_int_equal(inv->gpu[i].mig_count, 0);
        assert_int_equal(inv->nvlinks[i * 3 + i], 0);
    }
    /* Two cards wired directly: all 18 links; the L4 has none. */
    assert_int_equal(inv->nvlinks[0 * 3 + 1], 18);
    assert_int_equal(inv->nvlinks[1 * 3 + 0], 18);
    assert_int_equal(inv->nvlinks[0 * 3 + 2], 0);
    struct sl_inventory *again = read_all();
    assert_true(sl_inventory_equal(inv, again));
    assert_false(sl_inventory_equal(inv, NULL));
    assert_true(sl_inventory_equal(NULL, NULL));
    sl_inventory_free(again);
    sl_inventory_free(inv);
    sl_inventory_free(NULL);
}

static void test_memory_in_use_is_no_difference(void **state)
{
    (void)state;
    struct sl_inventory *before = read_all();
    struct user u = user_start(0, 1ULL << 30, 0);
    struct sl_inventory *after = read_all();
    assert_true(sl_inventory_equal(before, after));
    user_stop(&u, 0);
    sl_inventory_free(before);
    sl_inventory_free(after);
}

static void test_mig(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    struct sl_gpu_mig_info made[2];
    bool pending = true;
    struct sl_inventory *before = read_all();
    assert_int_equal(sl_gpu_mig_set_mode(gpu, 1, true, &pending, &err), 0);
    assert_false(pending);
    struct sl_inventory *on = read_all();
    assert_false(sl_inventory_equal(before, on));
    assert_true(on->gpu[1].info.mig_enabled);
    assert_int_equal(on->gpu[1].mig_count, 0);

    assert_int_equal(sl_gpu_mig_create(gpu, 1, 9, 0, &made[0], &err), 0);
    assert_int_equal(sl_gpu_mig_create(gpu, 1, 20, 6, &made[1], &err), 0);
    struct sl_inventory *two = read_all();
    assert_false(sl_inventory_equal(on, two));
    assert_int_equal(two->gpu[1].mig_count, 2);
    for (size_t k = 0; k < 2; k++) {
        const struct sl_inv_mig *m = &two->gpu[1].mig[k];
        size_t which = strcmp(m->info.uuid, made[0].uuid) == 0 ? 0 : 1;
        assert_string_equal(m->info.uuid, made[which].uuid);
        assert_string_equal(m->info.profile, which == 0 ? "3g.71gb" : "1g.18gb+me");
        assert_int_equal(m->info.placement_start, which == 0 ? 0 : 6);
        assert_int_equal(m->info.placement_size, which == 0 ? 4 : 1);
        assert_true(m->info.copy_engines > 0);
        assert_int_equal(m->info.copy_engines, made[which].copy_engines);
    }
    for (size_t k = 0; k < 2; k++)
        assert_int_equal(
            sl_gpu_mig_destroy(gpu, 1, made[k].gpu_instance, made[k].compute_instance, &err), 0);
    assert_int_equal(sl_gpu_mig_set_mode(gpu, 1, false, &pending, &err), 0);
    struct sl_inventory *after = read_all();
    assert_true(sl_inventory_equal(before, after));
    sl_inventory_free(before);
    sl_inventory_free(on);
    sl_inventory_free(two);
    sl_inventory_free(after);
}

static void test_lost(void **state)
{
    (void)state;
    struct sl_inventory *before = read_all();
    set_lost(0, 1);
    struct sl_inventory *now = read_all();
    assert_int_equal(now->gpu_count, 3);
    assert_true(now->gpu[0].lost);
    assert_false(now->gpu[1].lost);
    assert_string_equal(now->gpu[0].info.uuid, "");
    assert_int_equal(now->nvlinks[0 * 3 + 1], 0);
    assert_int_equal(now->nvlinks[1 * 3 + 0], 0);
    assert_false(sl_inventory_equal(before, now));
    set_lost(0, 0);
    struct sl_inventory *back = read_all();
    assert_true(sl_inventory_equal(before, back));
    sl_inventory_free(before);
    sl_inventory_free(now);
    sl_inventory_free(back);
}

static void test_sample(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    struct sl_gpu_sample idle, busy;
    assert_int_equal(sl_gpu_sample(gpu, 2, &idle, &err), 0);
    assert_int_equal(idle.gpu_percent, 0);
    assert_true(idle.temperature_c > 0 && idle.temperature_c < 120);
    assert_true(idle.power_mw > 0 && idle.power_mw < idle.power_limit_mw);
    struct user u = user_start(2, 1ULL << 30, 40);
    assert_int_equal(sl_gpu_sample(gpu, 2, &busy, &err), 0);
    /* The bucket that has just begun counts whole in this made-up past. */
    assert_in_range(busy.gpu_percent, 36, 48);
    assert_true(busy.power_mw > idle.power_mw);
    user_stop(&u, 0);
    set_lost(2, 1);
    assert_int_equal(sl_gpu_sample(gpu, 2, &idle, &err), -ENXIO);
    set_lost(2, 0);
}

/* Read in a child, for faults are read once: an old driver, and one that refuses a figure. */
static void test_old_driver(void **state)
{
    (void)state;
    static const char *const faults[] = {
        "abi=11040", "nvmlDeviceGetPowerUsage:0=3,nvmlDeviceGetUtilizationRates:0=3"};
    for (size_t i = 0; i < SL_ARRAY_LEN(faults); i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            (void)setenv("SLUICE_SIM_FAULT", faults[i], 1);
            (void)execl("/proc/self/exe", "gpu_inventory", i ? "unknown" : "old", (char *)NULL);
            _exit(99);
        }
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

static int child(const char *what)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_inventory *inv = NULL;
    struct sl_gpu_sample s;
    if (sl_gpu_open(SIM_NVML_LIBRARY, &gpu, &err) < 0)
        return 1;
    if (strcmp(what, "old") == 0) {
        if (sl_inventory_read(gpu, &inv, &err) < 0 || inv->gpu_count != 3 || inv->gpu[0].lost ||
            inv->gpu[0].clique[0] != '\0' || inv->nvlinks[1] != 18)
            return 2;
        sl_inventory_free(inv);
    } else if (sl_gpu_sample(gpu, 0, &s, &err) < 0 || s.power_mw != SL_GPU_UNKNOWN ||
               s.gpu_percent != SL_GPU_UNKNOWN || s.memory_percent != SL_GPU_UNKNOWN ||
               s.temperature_c == SL_GPU_UNKNOWN) {
        return 3;
    }
    sl_gpu_close(gpu);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return child(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),   cmocka_unit_test(test_memory_in_use_is_no_difference),
        cmocka_unit_test(test_mig),    cmocka_unit_test(test_lost),
        cmocka_unit_test(test_sample), cmocka_unit_test(test_old_driver),
    };
    static const char spec[] = "device = h200x2\nclique = " CLUSTER ".7\ndevice = l4\n";
    char path[] = "/tmp/sluice-inventory-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, spec, sizeof(spec) - 1) != (ssize_t)sizeof(spec) - 1)
        return 1;
    (void)close(fd);
    struct sl_err err = SL_ERR_INIT;
    sim_start(path);
    nvml_load();
    assert_nv_ok(nv.nvmlInit_v2());
    if (sl_gpu_open(SIM_NVML_LIBRARY, &gpu, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    sl_gpu_close(gpu);
    sim_stop();
    (void)unlink(path);
    return r;
}
