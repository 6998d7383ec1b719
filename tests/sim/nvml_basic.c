/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated NVML: devices, memory, processes and load as several processes see them. */
#include "nvml_test.h"

#define GIB (1ULL << 30)

static void test_devices(void **state)
{
    (void)state;
    unsigned int n = 0;
    char text[96];
    assert_nv_ok(nv.nvmlDeviceGetCount_v2(&n));
    assert_int_equal(n, 4);
    nvmlDevice_t d = card(0), same = NULL;
    assert_nv_ok(nv.nvmlDeviceGetName(d, text, sizeof(text)));
    assert_string_equal(text, "NVIDIA H200");
    assert_nv(NVML_ERROR_INSUFFICIENT_SIZE, nv.nvmlDeviceGetName(d, text, 5));
    assert_nv_ok(nv.nvmlDeviceGetUUID(d, text, sizeof(text)));
    assert_string_equal(text, sim->cards[0].desc.uuid_text);
    assert_nv_ok(nv.nvmlDeviceGetHandleByUUID(text, &same));
    assert_ptr_equal(same, d);
    assert_nv(NVML_ERROR_NOT_FOUND, nv.nvmlDeviceGetHandleByUUID("GPU-no", &same));
    assert_nv_ok(nv.nvmlDeviceGetSerial(card(1), text, sizeof(text)));
    assert_nv_ok(nv.nvmlDeviceGetHandleBySerial(text, &same));
    assert_ptr_equal(same, card(1));

    nvmlPciInfo_t pci;
    nvmlPciInfo_v2_t old;
    assert_nv_ok(nv.nvmlDeviceGetPciInfo_v3(card(2), &pci));
    assert_int_equal(pci.pciDeviceId, 0x233510de);
    assert_int_equal(strlen(pci.busId), 16);
    assert_nv_ok(nv.nvmlDeviceGetPciInfo_v2(card(2), &old));
    assert_int_equal(strlen(old.busId), 12);
    assert_nv_ok(nv.nvmlDeviceGetHandleByPciBusId_v2(pci.busId, &same));
    assert_ptr_equal(same, card(2));
    assert_nv_ok(nv.nvmlDeviceGetHandleByPciBusId_v2(old.busId, &same));
    assert_ptr_equal(same, card(2));
    assert_nv(NVML_ERROR_INVALID_ARGUMENT, nv.nvmlDeviceGetHandleByPciBusId_v2("x", &same));

    /* A pointer that is no handle is told apart without being followed. */
    assert_nv(NVML_ERROR_INVALID_ARGUMENT,
              nv.nvmlDeviceGetName((nvmlDevice_t)(uintptr_t)16, text, sizeof(text)));
    assert_nv(NVML_ERROR_INVALID_ARGUMENT, nv.nvmlDeviceGetName(NULL, text, sizeof(text)));
    assert_nv(NVML_ERROR_INVALID_ARGUMENT, nv.nvmlDeviceGetHandleByIndex_v2(4, &same));

    assert_nv_ok(nv.nvmlSystemGetDriverVersion(text, sizeof(text)));
    assert_string_equal(text, "580.159.04");
    int cuda = 0, major = 0, minor = 0;
    assert_nv_ok(nv.nvmlSystemGetCudaDriverVersion_v2(&cuda));
    assert_int_equal(cuda, 13000);
    assert_nv_ok(nv.nvmlDeviceGetCudaComputeCapability(card(3), &major, &minor));
    assert_int_equal(major * 10 + minor, 89);
    const void *table = NULL;
    assert_nv(NVML_ERROR_NOT_SUPPORTED, nv.nvmlInternalGetExportTable(&table, "x"));
}

/* The library exports the ABI table and nothing else (nvml_load finds that it exports all of it). */
static void test_exports(void **state)
{
    (void)state;
    static const char *const names[] = {
#define NVML_FN(name, since, params) #name,
        NVML_FUNCTIONS(NVML_FN)
#undef NVML_FN
            "nvmlErrorString",
    };
    char line[256];
    size_t seen = 0;
    FILE *f = popen("nm -D --defined-only " SIM_NVML_LIBRARY, "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        char *name = strrchr(line, ' ');
        assert_non_null(name);
        name[strcspn(name, "\n")] = '\0';
        size_t i = 0;
        while (i < SL_ARRAY_LEN(names) && strcmp(names[i], name + 1) != 0)
            i++;
        if (i == SL_ARRAY_LEN(names))
            fail_msg("%s is exported and not in the table", name + 1);
        seen++;
    }
    (void)pclose(f);
    assert_int_equal(seen, SL_ARRAY_LEN(names));
}

static void test_links(void **state)
{
    (void)state;
    unsigned int up = 0, level = 0, n = 8;
    nvmlPciInfo_t remote, own;
    nvmlDevice_t near[8];
    for (unsigned int l = 0; l < 18; l++) {
        assert_nv_ok(nv.nvmlDeviceGetNvLinkState(card(0), l, &up));
        assert_int_equal(up, 1);
    }
    assert_nv_ok(nv.nvmlDeviceGetNvLinkRemotePciInfo_v2(card(0), 0, &remote));
    assert_nv_ok(nv.nvmlDeviceGetPciInfo_v3(card(1), &own));
    assert_string_equal(remote.busId, own.busId);
    assert_nv(NVML_ERROR_INVALID_ARGUMENT, nv.nvmlDeviceGetNvLinkState(card(0), 18, &up));
    assert_nv(NVML_ERROR_NOT_SUPPORTED, nv.nvmlDeviceGetNvLinkState(card(3), 0, &up));
    assert_nv_ok(nv.nvmlDeviceGetTopologyCommonAncestor(card(0), card(1), &level));
    assert_int_equal(level, NVML_TOPOLOGY_NODE);
    assert_nv_ok(nv.nvmlDeviceGetTopologyCommonAncestor(card(0), card(2), &level));
    assert_int_equal(level, NVML_TOPOLOGY_SYSTEM);
    assert_nv_ok(nv.nvmlDeviceGetTopologyNearestGpus(card(0), NVML_TOPOLOGY_NODE, &n, near));
    assert_int_equal(n, 1);
    assert_ptr_equal(near[0], card(1));
    unsigned long cpus[16] = {0}, any = 0;
    assert_nv_ok(nv.nvmlDeviceGetCpuAffinity(card(0), 16, cpus));
    for (size_t i = 0; i < SL_ARRAY_LEN(cpus); i++)
        any |= cpus[i];
    assert_true(any != 0);
}

static uint64_t used(unsigned int i)
{
    nvmlMemory_t m;
    assert_nv_ok(nv.nvmlDeviceGetMemoryInfo(card(i), &m));
    assert_int_equal(m.free + m.used, m.total);
    nvmlMemory_v2_t v2 = {.version = NVML_MEMORY_V2};
    assert_nv_ok(nv.nvmlDeviceGetMemoryInfo_v2(card(i), &v2));
    assert_int_equal(v2.used, m.used);
    assert_int_equal(v2.used + v2.free + v2.reserved, v2.total);
    return m.used;
}

static void test_two_processes(void **state)
{
    (void)state;
    assert_int_equal(used(1), 0);
    struct user a = user_start(1, 3 * GIB, 0), b = user_start(1, 5 * GIB, 0);
    assert_int_equal(used(1), 8 * GIB);
    assert_int_equal(used(0), 0);

    nvmlProcessInfo_t list[8];
    nvmlProcessInfo_v1_t old[8];
    unsigned int n = 0;
    assert_nv(NVML_ERROR_INSUFFICIENT_SIZE,
              nv.nvmlDeviceGetComputeRunningProcesses_v3(card(1), &n, NULL));
    assert_int_equal(n, 2);
    n = 1;
    assert_nv(NVML_ERROR_INSUFFICIENT_SIZE,
              nv.nvmlDeviceGetComputeRunningProcesses_v3(card(1), &n, list));
    n = 8;
    assert_nv_ok(nv.nvmlDeviceGetComputeRunningProcesses_v3(card(1), &n, list));
    assert_int_equal(n, 2);
    for (unsigned int i = 0; i < n; i++) {
        assert_true(list[i].pid == (unsigned int)a.pid || list[i].pid == (unsigned int)b.pid);
        assert_int_equal(list[i].usedGpuMemory,
                         list[i].pid == (unsigned int)a.pid ? 3 * GIB : 5 * GIB);
        assert_int_equal(list[i].gpuInstanceId, NVML_NO_INSTANCE);
    }
    /* The oldest layout is smaller: what lies after it stays as it was. */
    memset(old, 0x5a, sizeof(old));
    n = 2;
    assert_nv_ok(nv.nvmlDeviceGetComputeRunningProcesses(card(1), &n, old));
    assert_int_equal(old[0].usedGpuMemory + old[1].usedGpuMemory, 8 * GIB);
    assert_int_equal(((unsigned char *)&old[2])[0], 0x5a);

    nvmlProcessDetail_v1_t detail[4];
    nvmlProcessDetailList_v1_t all = {
        .version = NVML_PROCESS_DETAIL_LIST_V1, .numProcArrayEntries = 4, .procArray = detail};
    assert_nv_ok(nv.nvmlDeviceGetRunningProcessDetailList(card(1), &all));
    assert_int_equal(all.numProcArrayEntries, 2);
    all.version = 7;
    assert_nv(NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
              nv.nvmlDeviceGetRunningProcessDetailList(card(1), &all));

    n = 8;
    assert_nv_ok(nv.nvmlDeviceGetGraphicsRunningProcesses_v3(card(1), &n, list));
    assert_int_equal(n, 0);
    n = 0;
    assert_nv_ok(nv.nvmlDeviceGetComputeRunningProcesses_v3(card(0), &n, NULL));

    /* However a process ends, its memory is back. */
    user_stop(&a, SIGKILL);
    n = 8;
    assert_nv_ok(nv.nvmlDeviceGetComputeRunningProcesses_v3(card(1), &n, list));
    assert_int_equal(n, 1);
    assert_int_equal(used(1), 5 * GIB);
    user_stop(&b, 0);
    n = 0;
    assert_nv_ok(nv.nvmlDeviceGetComputeRunningProcesses_v3(card(1), &n, NULL));
    assert_int_equal(used(1), 0);
}

/* A process is on the list it reads itself, though the other simulated library registered it: file
 * locks do not show a process its own. */
static void test_self(void **state)
{
    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        nvmlProcessInfo_t list[4];
        unsigned int n = 4;
        sl_sim_lock(sim);
        int slot = sl_sim_register(sim);
        sim->procs[slot].card[1].contexts = 1;
        sim->procs[slot].card[1].memory_bytes = GIB;
        sl_sim_unlock(sim);
        nvmlReturn_t r = nv.nvmlDeviceGetComputeRunningProcesses_v3(card(1), &n, list);
        _exit(r == NVML_SUCCESS && n == 1 && list[0].pid == (unsigned int)getpid() &&
                      list[0].usedGpuMemory == GIB && used(1) == GIB
                  ? 0
                  : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(used(1), 0);
}

static void test_load(void **state)
{
    (void)state;
    nvmlUtilization_t u;
    unsigned int idle_mw = 0, busy_mw = 0, n = 0;
    assert_nv_ok(nv.nvmlDeviceGetUtilizationRates(card(2), &u));
    assert_int_equal(u.gpu, 0);
    assert_nv_ok(nv.nvmlDeviceGetPowerUsage(card(2), &idle_mw));
    nvmlProcessUtilizationSample_t samples[8];
    assert_nv(NVML_ERROR_NOT_FOUND, nv.nvmlDeviceGetProcessUtilization(card(2), NULL, &n, 0));

    struct user a = user_start(2, GIB, 60);
    assert_nv_ok(nv.nvmlDeviceGetUtilizationRates(card(2), &u));
    assert_in_range(u.gpu, 50, 72); /* the bucket under way counts as far as it has come */
    assert_nv_ok(nv.nvmlDeviceGetPowerUsage(card(2), &busy_mw));
    assert_true(busy_mw > idle_mw);

    assert_nv(NVML_ERROR_INSUFFICIENT_SIZE,
              nv.nvmlDeviceGetProcessUtilization(card(2), NULL, &n, 0));
    assert_int_equal(n, 1);
    n = 8;
    assert_nv_ok(nv.nvmlDeviceGetProcessUtilization(card(2), samples, &n, 0));
    assert_int_equal(n, 1);
    assert_int_equal(samples[0].pid, a.pid);
    assert_int_equal(samples[0].smUtil, 60);
    assert_true(samples[0].timeStamp > 0);
    n = 8;
    assert_nv(NVML_ERROR_NOT_FOUND, nv.nvmlDeviceGetProcessUtilization(
                                        card(2), samples, &n, samples[0].timeStamp + 10000000));

    nvmlProcessUtilizationInfo_v1_t infos[8];
    nvmlProcessesUtilizationInfo_v1_t all = {.version = NVML_PROCESSES_UTILIZATION_INFO_V1,
                                             .processSamplesCount = 8,
                                             .procUtilArray = infos};
    assert_nv_ok(nv.nvmlDeviceGetProcessesUtilizationInfo(card(2), &all));
    assert_int_equal(all.processSamplesCount, 1);
    assert_int_equal(infos[0].smUtil, 60);

    nvmlSample_t s[64];
    unsigned int type = 99, count = 0;
    assert_nv_ok(
        nv.nvmlDeviceGetSamples(card(2), NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, NULL));
    assert_true(count > 0);
    count = 64;
    assert_nv_ok(
        nv.nvmlDeviceGetSamples(card(2), NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, s));
    assert_int_equal(type, NVML_VALUE_TYPE_UNSIGNED_INT);
    assert_true(count >= 8);
    for (unsigned int i = 0; i < count; i++)
        assert_int_equal(s[i].sampleValue.uiVal, 60);
    for (unsigned int i = 1; i < count; i++)
        assert_true(s[i].timeStamp > s[i - 1].timeStamp);
    user_stop(&a, 0);
}

static void test_modes(void **state)
{
    (void)state;
    unsigned int mode = 9;
    assert_nv_ok(nv.nvmlDeviceGetComputeMode(card(0), &mode));
    assert_int_equal(mode, NVML_COMPUTEMODE_DEFAULT);
    assert_nv_ok(nv.nvmlDeviceSetComputeMode(card(0), NVML_COMPUTEMODE_EXCLUSIVE_PROCESS));
    assert_int_equal(sim->cards[0].compute_mode, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS);
    assert_nv_ok(nv.nvmlDeviceSetComputeMode(card(0), NVML_COMPUTEMODE_DEFAULT));
    assert_nv(NVML_ERROR_INVALID_ARGUMENT, nv.nvmlDeviceSetComputeMode(card(0), 4));
    assert_nv_ok(nv.nvmlDeviceSetPersistenceMode(card(0), 1));
    assert_nv_ok(nv.nvmlDeviceGetPersistenceMode(card(0), &mode));
    assert_int_equal(mode, 1);
}

static void test_lost(void **state)
{
    (void)state;
    nvmlDevice_t d = card(0);
    nvmlMemory_t m;
    sl_sim_lock(sim);
    sim->cards[0].lost = 1;
    sl_sim_unlock(sim);
    assert_nv(NVML_ERROR_GPU_IS_LOST, nv.nvmlDeviceGetMemoryInfo(d, &m));
    assert_nv(NVML_ERROR_GPU_IS_LOST, nv.nvmlDeviceGetHandleByIndex_v2(0, &d));
    assert_nv_ok(nv.nvmlDeviceGetMemoryInfo(card(1), &m));
    sl_sim_lock(sim);
    sim->cards[0].lost = 0;
    sl_sim_unlock(sim);
    assert_nv_ok(nv.nvmlDeviceGetMemoryInfo(d, &m));
}

static void test_init_counts(void **state)
{
    (void)state;
    unsigned int n;
    assert_nv_ok(nv.nvmlInitWithFlags(0));
    assert_nv_ok(nv.nvmlShutdown());
    assert_nv_ok(nv.nvmlDeviceGetCount_v2(&n));
    assert_nv_ok(nv.nvmlShutdown());
    assert_nv(NVML_ERROR_UNINITIALIZED, nv.nvmlDeviceGetCount_v2(&n));
    assert_nv(NVML_ERROR_UNINITIALIZED, nv.nvmlShutdown());
    assert_nv_ok(nv.nvmlInit_v2());
    assert_string_equal(nv.nvmlErrorString(NVML_ERROR_GPU_IS_LOST), "GPU is lost");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices),     cmocka_unit_test(test_exports),
        cmocka_unit_test(test_links),       cmocka_unit_test(test_two_processes),
        cmocka_unit_test(test_self),        cmocka_unit_test(test_load),
        cmocka_unit_test(test_modes),       cmocka_unit_test(test_lost),
        cmocka_unit_test(test_init_counts),
    };
    sim_start("h200x3,l4");
    nvml_load();
    assert_nv_ok(nv.nvmlInit_v2());
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    sim_stop();
    return r;
}
