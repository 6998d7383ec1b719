/* SPDX-License-Identifier: Apache-2.0 */
/* src/gpu over the simulated NVML: what it reports, and what it says when things are wrong. */
#include "../sim/nvml_test.h"

#include "gpu/gpu.h"

#define GIB (1ULL << 30)

static struct sl_gpu *gpu;

static void test_info(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    size_t n = 0;
    int cuda = 0;
    char version[80];
    struct sl_gpu_info info = {0};
    assert_int_equal(sl_gpu_count(gpu, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_int_equal(sl_gpu_info(gpu, 0, &info, &err), 0);
    assert_string_equal(info.name, "NVIDIA H200");
    assert_string_equal(info.uuid, sim->cards[0].desc.uuid_text);
    assert_int_equal(info.memory_total_bytes >> 20, 143771);
    assert_int_equal(info.sm_count, 132);
    assert_int_equal(info.cc_major, 9);
    assert_true(info.mig_capable);
    assert_false(info.mig_enabled);
    assert_int_equal(info.mig_slots, 0);
    assert_int_equal(strlen(info.pci_bus_id), 16);
    assert_int_equal(info.numa_node, 0);
    assert_int_equal(sl_gpu_info(gpu, 1, &info, &err), 0);
    assert_string_equal(info.name, "Tesla T4");
    assert_int_equal(info.sm_count, 40);
    assert_int_equal(info.minor, 1);
    assert_int_equal(info.numa_node, 1);
    assert_false(info.mig_capable);
    assert_true(sl_gpu_info(gpu, 2, &info, &err) < 0);
    assert_int_equal(sl_gpu_driver_version(gpu, version, sizeof(version), &err), 0);
    assert_string_equal(version, "580.159.04");
    assert_int_equal(sl_gpu_cuda_version(gpu, &cuda, &err), 0);
    assert_int_equal(cuda, 13000);
}

static void test_memory_and_processes(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    struct sl_gpu_memory m;
    struct sl_gpu_process *list = (void *)&m;
    size_t n = 9;
    assert_int_equal(sl_gpu_processes(gpu, 1, &list, &n, &err), 0);
    assert_int_equal(n, 0);
    assert_null(list);
    /* More than the first guess at the size of the list. */
    struct user users[40];
    for (size_t i = 0; i < SL_ARRAY_LEN(users); i++)
        users[i] = user_start(1, (i + 1) << 20, 0);
    assert_int_equal(sl_gpu_memory(gpu, 1, &m, &err), 0);
    assert_int_equal(m.total_bytes, 15ULL << 30);
    assert_int_equal(m.used_bytes, 820ULL << 20);
    assert_int_equal(m.used_bytes + m.free_bytes + m.reserved_bytes, m.total_bytes);
    assert_int_equal(sl_gpu_processes(gpu, 1, &list, &n, &err), 0);
    assert_int_equal(n, SL_ARRAY_LEN(users));
    for (size_t i = 0; i < n; i++) {
        assert_true(i == 0 || list[i].pid > list[i - 1].pid);
        assert_true(list[i].used_known);
        assert_int_equal(list[i].gpu_instance, SL_GPU_NO_INSTANCE);
        for (size_t k = 0; k < n; k++)
            if ((pid_t)list[i].pid == users[k].pid)
                assert_int_equal(list[i].used_bytes, (k + 1) << 20);
    }
    free(list);
    for (size_t i = 0; i < SL_ARRAY_LEN(users); i++)
        user_stop(&users[i], 0);
}

static void test_mig(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    struct sl_gpu_info info;
    struct sl_gpu_mig_info mig;
    nvmlReturn_t activation;
    nvmlGpuInstance_t gi;
    nvmlComputeInstance_t ci;
    assert_true(sl_gpu_mig_info(gpu, 0, 0, &mig, &err) < 0);
    assert_nv_ok(nv.nvmlDeviceSetMigMode(card(0), 1, &activation));
    assert_nv_ok(nv.nvmlDeviceCreateGpuInstance(card(0), 19, &gi));
    assert_nv_ok(nv.nvmlGpuInstanceCreateComputeInstance(gi, 0, &ci));
    assert_int_equal(sl_gpu_info(gpu, 0, &info, &err), 0);
    assert_true(info.mig_enabled);
    assert_int_equal(info.mig_slots, 7);
    assert_int_equal(sl_gpu_mig_info(gpu, 0, 0, &mig, &err), 0);
    assert_memory_equal(mig.uuid, "MIG-", 4);
    assert_string_equal(mig.profile, "1g.18gb");
    assert_int_equal(mig.sm_count, 16);
    assert_int_equal(mig.memory_total_bytes, 16 * GIB);
    assert_int_equal(mig.memory_used_bytes, 0);
    for (uint32_t slot = 1; slot < info.mig_slots; slot++)
        assert_int_equal(sl_gpu_mig_info(gpu, 0, slot, &mig, &err), -ENOENT);
    assert_nv_ok(nv.nvmlComputeInstanceDestroy(ci));
    assert_nv_ok(nv.nvmlGpuInstanceDestroy(gi));
    assert_nv_ok(nv.nvmlDeviceSetMigMode(card(0), 0, &activation));
}

static void test_events(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    struct sl_gpu_event e;
    assert_int_equal(sl_gpu_wait_event(gpu, 0, &e, &err), -ETIMEDOUT);
    sl_sim_lock(sim);
    sl_sim_event_add(sim, 1, nvmlEventTypeXidCriticalError, 48, SL_SIM_NONE, SL_SIM_NONE);
    sl_sim_unlock(sim);
    assert_int_equal(sl_gpu_wait_event(gpu, 10000, &e, &err), 0);
    assert_true(e.device_known);
    assert_int_equal(e.device, 1);
    assert_int_equal(e.xid, 48);
}

static void test_lost(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    struct sl_gpu_memory m;
    sl_sim_lock(sim);
    sim->cards[1].lost = 1;
    sl_sim_unlock(sim);
    assert_int_equal(sl_gpu_memory(gpu, 1, &m, &err), -ENXIO);
    assert_non_null(strstr(err.msg, "GPU 1"));
    assert_int_equal(sl_gpu_memory(gpu, 0, &m, &err), 0);
    sl_sim_lock(sim);
    sim->cards[1].lost = 0;
    sl_sim_unlock(sim);
}

/* Opening with a fault injected: the code and the cure. A child each, faults are read once. */
static void opens(const char *fault, int code, const char *words)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char number[16];
        (void)snprintf(number, sizeof(number), "%d", code);
        (void)setenv("SLUICE_SIM_FAULT", fault, 1);
        (void)execl("/proc/self/exe", "gpu_nvml", "open", number, words, (char *)NULL);
        _exit(99);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s", fault);
}

static void test_open_errors(void **state)
{
    (void)state;
    opens("nvmlInit_v2:1=9", -ENODEV, "no NVIDIA driver on this machine");
    opens("nvmlInit_v2:1=18", -ELIBBAD, "driver/library version mismatch");
    opens("nvmlInit_v2:1=4", -EPERM, "/dev/nvidiactl");
    opens("nvmlInit_v2:1=999", -EIO, "NVML error 999");
    /* A driver from before memory info _v2 and process lists _v3 still answers. */
    opens("abi=11040", 0, "");
}

static int open_child(int code, const char *words)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_gpu *g = NULL;
    struct sl_gpu_memory m = {0};
    struct sl_gpu_process *list = NULL;
    size_t n = 9;
    int r = sl_gpu_open(SIM_NVML_LIBRARY, &g, &err);
    if (r != code || !strstr(err.msg, words))
        return 1;
    if (r < 0)
        return g != NULL;
    r = sl_gpu_memory(g, 0, &m, &err) || m.total_bytes == 0 ||
        sl_gpu_processes(g, 0, &list, &n, &err) || n != 0;
    sl_gpu_close(g);
    return r;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "open") == 0)
        return open_child(atoi(argv[2]), argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info), cmocka_unit_test(test_memory_and_processes),
        cmocka_unit_test(test_mig),  cmocka_unit_test(test_events),
        cmocka_unit_test(test_lost), cmocka_unit_test(test_open_errors),
    };
    struct sl_err err = SL_ERR_INIT;
    sim_start("h200,t4");
    nvml_load();
    assert_nv_ok(nv.nvmlInit_v2());
    if (sl_gpu_open(SIM_NVML_LIBRARY, &gpu, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    sl_gpu_close(gpu);
    sim_stop();
    return r;
}
