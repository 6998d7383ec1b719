/* SPDX-License-Identifier: Apache-2.0 */
/* MIG through NVML: what hardware allows fits, what it refuses is refused, handles go stale. */
#include "nvml_test.h"

enum { G7 = 0, G4 = 5, G3 = 9, G2 = 14, G1X2 = 15, G1 = 19, G1ME = 20 };

static nvmlGpuInstance_t made[8];
static unsigned int made_count;

static nvmlReturn_t make(unsigned int id)
{
    nvmlReturn_t r = nv.nvmlDeviceCreateGpuInstance(card(0), id, &made[made_count]);
    if (r == NVML_SUCCESS)
        made_count++;
    return r;
}

static void clear(void)
{
    while (made_count > 0)
        assert_nv_ok(nv.nvmlGpuInstanceDestroy(made[--made_count]));
}

static unsigned int room(unsigned int id)
{
    unsigned int n = 99;
    assert_nv_ok(nv.nvmlDeviceGetGpuInstanceRemainingCapacity(card(0), id, &n));
    return n;
}

static void enable(unsigned int mode)
{
    nvmlReturn_t activation = NVML_ERROR_UNKNOWN;
    unsigned int now = 9, pending = 9;
    assert_nv_ok(nv.nvmlDeviceSetMigMode(card(0), mode, &activation));
    assert_int_equal(activation, NVML_SUCCESS);
    assert_nv_ok(nv.nvmlDeviceGetMigMode(card(0), &now, &pending));
    assert_int_equal(now, mode);
    assert_int_equal(pending, mode);
}

static void test_mode(void **state)
{
    (void)state;
    nvmlReturn_t activation;
    unsigned int a, b;
    nvmlGpuInstance_t gi;
    assert_nv(NVML_ERROR_NOT_SUPPORTED, nv.nvmlDeviceGetMigMode(card(1), &a, &b)); /* L4 */
    assert_nv(NVML_ERROR_NOT_SUPPORTED, nv.nvmlDeviceCreateGpuInstance(card(0), G1, &gi));
    enable(1);
    assert_nv_ok(make(G7));
    assert_nv(NVML_ERROR_IN_USE, nv.nvmlDeviceSetMigMode(card(0), 0, &activation));
    clear();
    enable(0);
    struct user u = user_start(0, 1 << 20, 0);
    assert_nv(NVML_ERROR_IN_USE, nv.nvmlDeviceSetMigMode(card(0), 1, &activation));
    user_stop(&u, 0);
}

static void test_profiles(void **state)
{
    (void)state;
    static const struct {
        unsigned int profile, id, slices, count, sms, placements, size;
        const char *name;
    } want[] = {
        {NVML_GPU_INSTANCE_PROFILE_1_SLICE, G1, 1, 7, 16, 7, 1, "MIG 1g.18gb"},
        {NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1, G1ME, 1, 1, 16, 7, 1, "MIG 1g.18gb+me"},
        {NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2, G1X2, 1, 4, 26, 4, 2, "MIG 1g.35gb"},
        {NVML_GPU_INSTANCE_PROFILE_2_SLICE, G2, 2, 3, 32, 3, 2, "MIG 2g.35gb"},
        {NVML_GPU_INSTANCE_PROFILE_3_SLICE, G3, 3, 2, 60, 2, 4, "MIG 3g.71gb"},
        {NVML_GPU_INSTANCE_PROFILE_4_SLICE, G4, 4, 1, 64, 1, 4, "MIG 4g.71gb"},
        {NVML_GPU_INSTANCE_PROFILE_7_SLICE, G7, 7, 1, 132, 1, 8, "MIG 7g.141gb"},
    };
    /* All of this answers with MIG off. */
    for (size_t i = 0; i < SL_ARRAY_LEN(want); i++) {
        nvmlGpuInstanceProfileInfo_t v1;
        assert_nv_ok(nv.nvmlDeviceGetGpuInstanceProfileInfo(card(0), want[i].profile, &v1));
        assert_int_equal(v1.id, want[i].id);
        assert_int_equal(v1.sliceCount, want[i].slices);
        assert_int_equal(v1.instanceCount, want[i].count);
        assert_int_equal(v1.multiprocessorCount, want[i].sms);
        nvmlGpuInstanceProfileInfo_v2_t v2 = {.version = NVML_GPU_INSTANCE_PROFILE_INFO_V2};
        assert_nv_ok(nv.nvmlDeviceGetGpuInstanceProfileInfoV(card(0), want[i].profile, &v2));
        assert_string_equal(v2.name, want[i].name);
        assert_int_equal(v2.memorySizeMB, v1.memorySizeMB);
        nvmlGpuInstanceProfileInfo_v3_t v3 = {.version = NVML_GPU_INSTANCE_PROFILE_INFO_V3};
        assert_nv_ok(nv.nvmlDeviceGetGpuInstanceProfileInfoV(
            card(0), want[i].profile, (nvmlGpuInstanceProfileInfo_v2_t *)(void *)&v3));
        assert_string_equal(v3.name, want[i].name);
        assert_int_equal(v3.sliceCount, want[i].slices);
        assert_int_equal(v3.memorySizeMB, v1.memorySizeMB);

        nvmlGpuInstancePlacement_t at[8];
        unsigned int n = 0;
        assert_nv_ok(
            nv.nvmlDeviceGetGpuInstancePossiblePlacements_v2(card(0), want[i].id, NULL, &n));
        assert_int_equal(n, want[i].placements);
        assert_nv_ok(nv.nvmlDeviceGetGpuInstancePossiblePlacements_v2(card(0), want[i].id, at, &n));
        for (unsigned int k = 0; k < n; k++)
            assert_int_equal(at[k].size, want[i].size);
    }
    nvmlGpuInstanceProfileInfo_v2_t v2 = {.version = 1};
    assert_nv(NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
              nv.nvmlDeviceGetGpuInstanceProfileInfoV(card(0), 0, &v2));
    nvmlGpuInstanceProfileInfo_t v1;
    assert_nv(NVML_ERROR_NOT_SUPPORTED, nv.nvmlDeviceGetGpuInstanceProfileInfo(
                                            card(0), NVML_GPU_INSTANCE_PROFILE_6_SLICE, &v1));
    assert_nv(NVML_ERROR_INVALID_ARGUMENT, nv.nvmlDeviceGetGpuInstanceProfileInfo(
                                               card(0), NVML_GPU_INSTANCE_PROFILE_COUNT, &v1));
}

static void test_fill(void **state)
{
    (void)state;
    nvmlGpuInstance_t list[8];
    nvmlGpuInstanceInfo_t info;
    unsigned int n = 0;
    enable(1);
    for (unsigned int i = 0; i < 7; i++) {
        assert_int_equal(room(G1), 7 - i);
        assert_nv_ok(make(G1));
    }
    assert_nv(NVML_ERROR_INSUFFICIENT_RESOURCES, make(G1));
    assert_nv_ok(nv.nvmlDeviceGetGpuInstances(card(0), G1, list, &n));
    assert_int_equal(n, 7);
    assert_nv_ok(nv.nvmlGpuInstanceGetInfo(list[0], &info));
    assert_ptr_equal(info.device, card(0));
    assert_int_equal(info.profileId, G1);
    nvmlGpuInstance_t same = NULL;
    assert_nv_ok(nv.nvmlDeviceGetGpuInstanceById(card(0), info.id, &same));
    assert_ptr_equal(same, list[0]);
    clear();

    assert_nv_ok(make(G3));
    assert_nv_ok(make(G4));
    assert_nv(NVML_ERROR_INSUFFICIENT_RESOURCES, make(G1));
    clear();

    /* A chosen place: free, taken, overlapping, none of the profile's. */
    nvmlGpuInstancePlacement_t at = {0, 4};
    assert_nv_ok(
        nv.nvmlDeviceCreateGpuInstanceWithPlacement(card(0), G3, &at, &made[made_count++]));
    nvmlGpuInstance_t no;
    assert_nv(NVML_ERROR_INSUFFICIENT_RESOURCES,
              nv.nvmlDeviceCreateGpuInstanceWithPlacement(card(0), G3, &at, &no));
    at = (nvmlGpuInstancePlacement_t){2, 2};
    assert_nv(NVML_ERROR_INSUFFICIENT_RESOURCES,
              nv.nvmlDeviceCreateGpuInstanceWithPlacement(card(0), G2, &at, &no));
    at = (nvmlGpuInstancePlacement_t){1, 2};
    assert_nv(NVML_ERROR_INVALID_ARGUMENT,
              nv.nvmlDeviceCreateGpuInstanceWithPlacement(card(0), G2, &at, &no));
    assert_nv(NVML_ERROR_INVALID_ARGUMENT, make(3));
    clear();
    enable(0);
}

static void test_devices(void **state)
{
    (void)state;
    nvmlComputeInstance_t ci[2], no;
    nvmlComputeInstanceProfileInfo_t profile;
    nvmlDevice_t mig = NULL, same = NULL;
    char uuid[96], name[96];
    unsigned int n = 9, id = 99;
    enable(1);
    assert_nv(NVML_ERROR_NOT_FOUND, nv.nvmlDeviceGetMigDeviceHandleByIndex(card(0), 0, &mig));
    assert_nv_ok(make(G3));
    assert_nv(NVML_ERROR_NOT_FOUND, nv.nvmlDeviceGetMigDeviceHandleByIndex(card(0), 0, &mig));
    assert_nv_ok(nv.nvmlGpuInstanceGetComputeInstanceProfileInfo(
        made[0], NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE, 0, &profile));
    assert_int_equal(profile.instanceCount, 3);
    assert_int_equal(profile.multiprocessorCount, 20);
    assert_nv(NVML_ERROR_NOT_SUPPORTED,
              nv.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                  made[0], NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE, 0, &profile));
    assert_nv_ok(nv.nvmlGpuInstanceCreateComputeInstance(
        made[0], NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE, &ci[0]));
    assert_nv_ok(nv.nvmlGpuInstanceCreateComputeInstance(
        made[0], NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE, &ci[1]));
    assert_nv(NVML_ERROR_INSUFFICIENT_RESOURCES,
              nv.nvmlGpuInstanceCreateComputeInstance(made[0],
                                                      NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE, &no));
    assert_nv(NVML_ERROR_IN_USE, nv.nvmlGpuInstanceDestroy(made[0]));

    assert_nv_ok(nv.nvmlDeviceGetMaxMigDeviceCount(card(0), &n));
    assert_int_equal(n, 7);
    assert_nv_ok(nv.nvmlDeviceGetMigDeviceHandleByIndex(card(0), 0, &mig));
    assert_nv_ok(nv.nvmlDeviceIsMigDeviceHandle(mig, &n));
    assert_int_equal(n, 1);
    assert_nv_ok(nv.nvmlDeviceGetUUID(mig, uuid, sizeof(uuid)));
    assert_memory_equal(uuid, "MIG-", 4);
    assert_nv_ok(nv.nvmlDeviceGetHandleByUUID(uuid, &same));
    assert_ptr_equal(same, mig);
    assert_nv_ok(nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig, &same));
    assert_ptr_equal(same, card(0));
    assert_nv_ok(nv.nvmlDeviceGetName(mig, name, sizeof(name)));
    assert_string_equal(name, "NVIDIA H200 MIG 2c.3g.71gb");
    assert_nv_ok(nv.nvmlDeviceGetGpuInstanceId(mig, &id));
    assert_int_equal(id, 1);
    nvmlDeviceAttributes_t a;
    assert_nv_ok(nv.nvmlDeviceGetAttributes_v2(mig, &a));
    assert_int_equal(a.gpuInstanceSliceCount, 3);
    assert_int_equal(a.computeInstanceSliceCount, 2);
    assert_int_equal(a.multiprocessorCount, 40);
    nvmlMemory_t m;
    assert_nv_ok(nv.nvmlDeviceGetMemoryInfo(mig, &m));
    assert_int_equal(m.total >> 20, a.memorySizeMB);
    assert_nv(NVML_ERROR_INVALID_ARGUMENT, nv.nvmlDeviceGetSerial(mig, name, sizeof(name)));

    /* The old layout ends early: nothing past it is touched. */
    nvmlComputeInstanceInfo_t info;
    memset(&info, 0x5a, sizeof(info));
    assert_nv_ok(nv.nvmlComputeInstanceGetInfo(ci[1], &info));
    assert_int_equal(info.placement.start, 0x5a5a5a5a);
    assert_nv_ok(nv.nvmlComputeInstanceGetInfo_v2(ci[1], &info));
    assert_int_equal(info.placement.start, 2);
    assert_ptr_equal(info.gpuInstance, made[0]);

    /* A destroyed instance's handle does not come to mean its successor. */
    assert_nv_ok(nv.nvmlComputeInstanceDestroy(ci[0]));
    assert_nv(NVML_ERROR_NOT_FOUND, nv.nvmlDeviceGetUUID(mig, uuid, sizeof(uuid)));
    nvmlComputeInstance_t again;
    assert_nv_ok(nv.nvmlGpuInstanceCreateComputeInstance(
        made[0], NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE, &again));
    assert_nv(NVML_ERROR_NOT_FOUND, nv.nvmlDeviceGetName(mig, name, sizeof(name)));
    assert_nv_ok(nv.nvmlDeviceGetHandleByUUID(uuid, &mig));
    assert_nv_ok(nv.nvmlComputeInstanceDestroy(again));
    assert_nv_ok(nv.nvmlComputeInstanceDestroy(ci[1]));
    clear();
    enable(0);
}

/* MIG is the machine's: what one process makes another one sees. */
static void test_shared(void **state)
{
    (void)state;
    enable(1);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        nvmlGpuInstance_t gi;
        nvmlComputeInstance_t ci;
        _exit(nv.nvmlDeviceCreateGpuInstance(card(0), G2, &gi) == NVML_SUCCESS &&
                      nv.nvmlGpuInstanceCreateComputeInstance(
                          gi, NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE, &ci) == NVML_SUCCESS
                  ? 0
                  : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    nvmlDevice_t mig;
    nvmlGpuInstance_t list[8];
    nvmlComputeInstance_t cis[8];
    unsigned int n = 0;
    assert_nv_ok(nv.nvmlDeviceGetMigDeviceHandleByIndex(card(0), 0, &mig));
    assert_nv_ok(nv.nvmlDeviceGetGpuInstances(card(0), G2, list, &n));
    assert_int_equal(n, 1);
    assert_nv_ok(nv.nvmlGpuInstanceGetComputeInstances(
        list[0], NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE, cis, &n));
    assert_int_equal(n, 1);
    assert_nv_ok(nv.nvmlComputeInstanceDestroy(cis[0]));
    assert_nv_ok(nv.nvmlGpuInstanceDestroy(list[0]));
    enable(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mode),   cmocka_unit_test(test_profiles),
        cmocka_unit_test(test_fill),   cmocka_unit_test(test_devices),
        cmocka_unit_test(test_shared),
    };
    sim_start("h200,l4");
    nvml_load();
    assert_nv_ok(nv.nvmlInit_v2());
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    sim_stop();
    return r;
}
