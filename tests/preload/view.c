/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NVML shows a tenant, in front of a library whose lists the test makes up: own processes only, in
 * every ABI version, by the library's own buffer protocol, and its own complaints where it has any.
 */
#include "world.h"

#include <unistd.h>

#define DEVICE ((nvmlDevice_t)(uintptr_t)0x10)

static char uuid_answer[80];
static unsigned int listed;  /* entries the library has: ours, a stranger's, ours, … */
static unsigned int growing; /* each answer has so many more than the one before */
static int complaints;       /* calls with arguments the library refuses */

static nvmlReturn_t fake_uuid(nvmlDevice_t device, char *uuid, unsigned int length)
{
    (void)device;
    (void)snprintf(uuid, length, "%s", uuid_answer);
    return NVML_SUCCESS;
}

static uint32_t pid_at(unsigned int i)
{
    static const uint32_t others[] = {4000001, 4242, 4000002};
    return i % 4 == 0 ? (uint32_t)getpid() : others[i % 4 - 1];
}

/* One protocol for all lists. */
static nvmlReturn_t fill(unsigned int *count, void *entries, size_t size, size_t pid_offset)
{
    unsigned int room = *count;
    *count = listed;
    listed += growing;
    if (room < *count || (*count && !entries))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < *count; i++) {
        uint32_t pid = pid_at(i);
        memcpy((char *)entries + i * size + pid_offset, &pid, sizeof(pid));
    }
    return NVML_SUCCESS;
}

#define RUNNING(symbol, type)                                                                      \
    static nvmlReturn_t fake_##symbol(nvmlDevice_t device, unsigned int *count, type *infos)       \
    {                                                                                              \
        (void)device;                                                                              \
        if (!count || (*count && !infos)) {                                                        \
            complaints++;                                                                          \
            return NVML_ERROR_INVALID_ARGUMENT;                                                    \
        }                                                                                          \
        return fill(count, infos, sizeof(type), offsetof(type, pid));                              \
    }                                                                                              \
    static void check_##symbol(void)                                                               \
    {                                                                                              \
        type e[64];                                                                                \
        unsigned int n = 0;                                                                        \
        complaints = 0;                                                                            \
        assert_int_equal(symbol(DEVICE, &n, NULL), NVML_ERROR_INSUFFICIENT_SIZE);                  \
        assert_int_equal(n, 4); /* of eight, this process twice and 4242 twice */                  \
        n = 3;                                                                                     \
        assert_int_equal(symbol(DEVICE, &n, e), NVML_ERROR_INSUFFICIENT_SIZE);                     \
        assert_int_equal(n, 4);                                                                    \
        n = 64;                                                                                    \
        assert_int_equal(symbol(DEVICE, &n, e), NVML_SUCCESS);                                     \
        assert_int_equal(n, 4);                                                                    \
        assert_int_equal(e[0].pid, getpid());                                                      \
        assert_int_equal(e[1].pid, 4242);                                                          \
        assert_int_equal(symbol(DEVICE, NULL, e), NVML_ERROR_INVALID_ARGUMENT);                    \
        n = 5;                                                                                     \
        assert_int_equal(symbol(DEVICE, &n, NULL), NVML_ERROR_INVALID_ARGUMENT);                   \
        assert_int_equal(complaints, 2);                                                           \
    }

#define EACH_RUNNING(F)                                                                            \
    F(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)                                  \
    F(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)                               \
    F(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t)                                  \
    F(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)                                 \
    F(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)                              \
    F(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)                                 \
    F(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)                               \
    F(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)                            \
    F(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)
EACH_RUNNING(RUNNING)

static nvmlReturn_t fake_details(nvmlDevice_t device, nvmlProcessDetailList_v1_t *list)
{
    (void)device;
    if (!list || list->version != NVML_PROCESS_DETAIL_LIST_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return fill(&list->numProcArrayEntries, list->procArray, sizeof(nvmlProcessDetail_v1_t),
                offsetof(nvmlProcessDetail_v1_t, pid));
}

static nvmlReturn_t fake_samples(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                 unsigned int *count, unsigned long long since)
{
    (void)device;
    (void)since;
    return count ? fill(count, samples, sizeof(*samples),
                        offsetof(nvmlProcessUtilizationSample_t, pid))
                 : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t fake_infos(nvmlDevice_t device, nvmlProcessesUtilizationInfo_v1_t *info)
{
    (void)device;
    if (!info || info->version != NVML_PROCESSES_UTILIZATION_INFO_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return fill(&info->processSamplesCount, info->procUtilArray,
                sizeof(nvmlProcessUtilizationInfo_v1_t),
                offsetof(nvmlProcessUtilizationInfo_v1_t, pid));
}

static nvmlReturn_t fake_memory(nvmlDevice_t device, nvmlMemory_t *memory)
{
    (void)device;
    *memory = (nvmlMemory_t){.total = 100 * GIB, .free = 60 * GIB, .used = 40 * GIB};
    return NVML_SUCCESS;
}

static nvmlReturn_t fake_memory_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    (void)device;
    memory->total = 100 * GIB;
    memory->reserved = GIB;
    memory->free = 60 * GIB;
    memory->used = 39 * GIB;
    return NVML_SUCCESS;
}

static void library(void)
{
    world_restore();
    world_process.mode = SL_MODE_TENANT;
    listed = 8;
    growing = 0;
    (void)snprintf(uuid_answer, sizeof(uuid_answer), "%s", world_lease.gpu[0].uuid);
    WORLD_ANSWER(nvmlDeviceGetUUID, fake_uuid);
    WORLD_ANSWER(nvmlDeviceGetMemoryInfo, fake_memory);
    WORLD_ANSWER(nvmlDeviceGetMemoryInfo_v2, fake_memory_v2);
#define ANSWER_RUNNING(symbol, type) WORLD_ANSWER(symbol, fake_##symbol);
    EACH_RUNNING(ANSWER_RUNNING)
    WORLD_ANSWER(nvmlDeviceGetRunningProcessDetailList, fake_details);
    WORLD_ANSWER(nvmlDeviceGetProcessUtilization, fake_samples);
    WORLD_ANSWER(nvmlDeviceGetProcessesUtilizationInfo, fake_infos);
}

static void test_running(void **state)
{
    (void)state;
    library();
#define CHECK_RUNNING(symbol, type) check_##symbol();
    EACH_RUNNING(CHECK_RUNNING)
    listed = 0;
    unsigned int n = 64;
    nvmlProcessInfo_t e[64];
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(DEVICE, &n, e), NVML_SUCCESS);
    assert_int_equal(n, 0);
}

static void test_other_lists(void **state)
{
    (void)state;
    nvmlProcessDetail_v1_t detail[64];
    nvmlProcessUtilizationSample_t sample[64];
    nvmlProcessUtilizationInfo_v1_t info[64];
    library();
    nvmlProcessDetailList_v1_t list = {
        .version = NVML_PROCESS_DETAIL_LIST_V1, .numProcArrayEntries = 64, .procArray = detail};
    assert_int_equal(nvmlDeviceGetRunningProcessDetailList(DEVICE, &list), NVML_SUCCESS);
    assert_int_equal(list.numProcArrayEntries, 4);
    assert_int_equal(detail[3].pid, 4242);
    list.version = 77;
    assert_int_equal(nvmlDeviceGetRunningProcessDetailList(DEVICE, &list),
                     NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    assert_int_equal(nvmlDeviceGetRunningProcessDetailList(DEVICE, NULL),
                     NVML_ERROR_ARGUMENT_VERSION_MISMATCH);

    unsigned int n = 64;
    assert_int_equal(nvmlDeviceGetProcessUtilization(DEVICE, sample, &n, 0), NVML_SUCCESS);
    assert_int_equal(n, 4);
    assert_int_equal(nvmlDeviceGetProcessUtilization(DEVICE, sample, NULL, 0),
                     NVML_ERROR_INVALID_ARGUMENT);
    nvmlProcessesUtilizationInfo_v1_t infos = {.version = NVML_PROCESSES_UTILIZATION_INFO_V1,
                                               .processSamplesCount = 64,
                                               .procUtilArray = info};
    assert_int_equal(nvmlDeviceGetProcessesUtilizationInfo(DEVICE, &infos), NVML_SUCCESS);
    assert_int_equal(infos.processSamplesCount, 4);
    infos.version = 77;
    assert_int_equal(nvmlDeviceGetProcessesUtilizationInfo(DEVICE, &infos),
                     NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    assert_int_equal(nvmlDeviceGetProcessesUtilizationInfo(DEVICE, NULL),
                     NVML_ERROR_ARGUMENT_VERSION_MISMATCH);

    /* A card of somebody else's: no process of ours is on it, so no sample is found. */
    (void)snprintf(uuid_answer, sizeof(uuid_answer), "GPU-00000000-0000-0000-0000-000000000000");
    n = 64;
    assert_int_equal(nvmlDeviceGetProcessUtilization(DEVICE, sample, &n, 0), NVML_ERROR_NOT_FOUND);
    infos.version = NVML_PROCESSES_UTILIZATION_INFO_V1;
    infos.processSamplesCount = 64;
    assert_int_equal(nvmlDeviceGetProcessesUtilizationInfo(DEVICE, &infos), NVML_ERROR_NOT_FOUND);
}

static void test_list_that_grows(void **state)
{
    (void)state;
    nvmlProcessInfo_t e[64];
    unsigned int n = 64;
    library();
    growing = 17; /* always more than the room made for it */
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(DEVICE, &n, e),
                     NVML_ERROR_INSUFFICIENT_SIZE);
    library();
    (void)nth_malloc_set(1);
    n = 64;
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(DEVICE, &n, e), NVML_ERROR_MEMORY);
    /* Without memory for the members' list only the process itself is surely ours. */
    (void)nth_malloc_set(2);
    n = 64;
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(DEVICE, &n, e), NVML_SUCCESS);
    assert_int_equal(n, 2);
    (void)nth_malloc_set(0);
}

static void test_memory(void **state)
{
    (void)state;
    nvmlMemory_t m;
    nvmlMemory_v2_t m2 = {.version = NVML_MEMORY_V2};
    library();
    world_limit(4 * GIB);
    assert_int_equal(nvmlDeviceGetMemoryInfo(DEVICE, &m), NVML_SUCCESS);
    assert_int_equal(m.total, 4 * GIB);
    assert_int_equal(m.used + m.free, 4 * GIB);
    assert_int_equal(nvmlDeviceGetMemoryInfo_v2(DEVICE, &m2), NVML_SUCCESS);
    assert_int_equal(m2.total, 4 * GIB);
    assert_int_equal(m2.reserved, 0);
    atomic_store(&world_lease.gpu[0].overhead_bytes, 5 * GIB); /* more than it may have */
    assert_int_equal(nvmlDeviceGetMemoryInfo(DEVICE, &m), NVML_SUCCESS);
    assert_int_equal(m.used, 4 * GIB);
    assert_int_equal(m.free, 0);
    atomic_store(&world_lease.gpu[0].overhead_bytes, 0);
    world_limit(SL_NO_LIMIT);
    assert_int_equal(nvmlDeviceGetMemoryInfo(DEVICE, &m), NVML_SUCCESS);
    assert_int_equal(m.total, 100 * GIB);
    assert_int_equal(nvmlDeviceGetMemoryInfo_v2(DEVICE, &m2), NVML_SUCCESS);
    assert_int_equal(m2.total, 100 * GIB);
    (void)snprintf(uuid_answer, sizeof(uuid_answer), "GPU-0");
    assert_int_equal(nvmlDeviceGetMemoryInfo(DEVICE, &m), NVML_ERROR_NO_PERMISSION);
    assert_int_equal(nvmlDeviceGetMemoryInfo_v2(DEVICE, &m2), NVML_ERROR_NO_PERMISSION);
}

/* Calls every hook of NVML once; returns how many answered `rc`. */
static unsigned int ask_all(nvmlReturn_t rc)
{
    union {
        nvmlProcessInfo_v1_t v1[64];
        nvmlProcessInfo_v2_t v2[64];
        nvmlProcessInfo_t v3[64];
        nvmlProcessDetail_v1_t detail[64];
        nvmlProcessUtilizationSample_t sample[64];
        nvmlProcessUtilizationInfo_v1_t info[64];
    } e;
    nvmlMemory_t m;
    nvmlMemory_v2_t m2 = {.version = NVML_MEMORY_V2};
    unsigned int same = 0, n;
    nvmlProcessDetailList_v1_t list = {
        .version = NVML_PROCESS_DETAIL_LIST_V1, .numProcArrayEntries = 64, .procArray = e.detail};
    nvmlProcessesUtilizationInfo_v1_t infos = {.version = NVML_PROCESSES_UTILIZATION_INFO_V1,
                                               .processSamplesCount = 64,
                                               .procUtilArray = e.info};
    same += nvmlDeviceGetMemoryInfo(DEVICE, &m) == rc;
    same += nvmlDeviceGetMemoryInfo_v2(DEVICE, &m2) == rc;
#define ASK_RUNNING(symbol, type)                                                                  \
    n = 64;                                                                                        \
    same += symbol(DEVICE, &n, (type *)(void *)&e) == rc;
    EACH_RUNNING(ASK_RUNNING)
    same += nvmlDeviceGetRunningProcessDetailList(DEVICE, &list) == rc;
    n = 64;
    same += nvmlDeviceGetProcessUtilization(DEVICE, e.sample, &n, 0) == rc;
    same += nvmlDeviceGetProcessesUtilizationInfo(DEVICE, &infos) == rc;
    return same;
}

#define NVML_HOOKS 14U

static void test_modes_and_faults(void **state)
{
    (void)state;
    library();
    world_limit(4 * GIB);
    assert_int_equal(ask_all(NVML_SUCCESS), NVML_HOOKS);
    world_process.mode = SL_MODE_NONE;
    assert_int_equal(ask_all(NVML_SUCCESS), NVML_HOOKS);
    world_process.mode = SL_MODE_REFUSED;
    assert_int_equal(ask_all(NVML_ERROR_NO_PERMISSION), NVML_HOOKS);
    world_process.mode = SL_MODE_TENANT;
    for (int s = 0; s < SL_HOOK_COUNT; s++) {
        if (sl_hooks[s].library != SL_LIBRARY_NVML)
            continue;
        library();
        world_missing((enum sl_symbol)s);
        assert_int_equal(ask_all(NVML_ERROR_FUNCTION_NOT_FOUND), 1);
        library();
        world_failing((enum sl_symbol)s);
        assert_int_equal(ask_all((nvmlReturn_t)999), 1);
    }
    /* Which card it is cannot be found out: then nothing is told about it. */
    library();
    world_missing(SL_SYMBOL_nvmlDeviceGetUUID);
    assert_int_equal(ask_all(NVML_ERROR_FUNCTION_NOT_FOUND), NVML_HOOKS);
    library();
    world_failing(SL_SYMBOL_nvmlDeviceGetUUID);
    assert_int_equal(ask_all((nvmlReturn_t)999), NVML_HOOKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_running),          cmocka_unit_test(test_other_lists),
        cmocka_unit_test(test_list_that_grows),  cmocka_unit_test(test_memory),
        cmocka_unit_test(test_modes_and_faults),
    };
    world_open("h200", 4 * GIB);
    atomic_store(&world_ledger.slot[9].pid, 4242);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    world_close();
    return rc;
}
