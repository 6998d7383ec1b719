/* SPDX-License-Identifier: Apache-2.0 */
/* Managing MIG over the simulated NVML: profiles, making and destroying, and what is refused. */
#include "../sim/nvml_test.h"

#include "gpu/gpu.h"

#define GIB (1ULL << 30)

static struct sl_gpu *gpu;
static struct sl_err err = SL_ERR_INIT;

static void mode(bool on)
{
    bool pending = true, now = !on, later = !on;
    assert_int_equal(sl_gpu_mig_set_mode(gpu, 0, on, &pending, &err), 0);
    assert_false(pending);
    assert_int_equal(sl_gpu_mig_mode(gpu, 0, &now, &later, &err), 0);
    assert_int_equal(now, on);
    assert_int_equal(later, on);
}

static void test_profiles(void **state)
{
    (void)state;
    struct sl_gpu_mig_profile *list = NULL;
    size_t n = 0;
    bool seen_1g = false, seen_me = false, seen_7g = false;
    assert_int_equal(sl_gpu_mig_profiles(gpu, 0, &list, &n, &err), 0); /* MIG is off */
    assert_int_equal(n, 7);
    for (size_t i = 0; i < n; i++) {
        const struct sl_gpu_mig_profile *p = &list[i];
        if (strcmp(p->name, "1g.18gb") == 0) {
            seen_1g = true;
            assert_int_equal(p->id, 19);
            assert_int_equal(p->max_instances, 7);
            assert_int_equal(p->placement_count, 7);
            assert_int_equal(p->placements[6].start, 6);
            assert_int_equal(p->placements[6].size, 1);
            assert_int_equal(p->memory_bytes, 16 * GIB);
        } else if (strcmp(p->name, "1g.18gb+me") == 0) {
            seen_me = true;
            assert_int_equal(p->max_instances, 1);
        } else if (strcmp(p->name, "7g.141gb") == 0) {
            seen_7g = true;
            assert_int_equal(p->placement_count, 1);
            assert_int_equal(p->sm_count, 132);
        }
    }
    assert_true(seen_1g && seen_me && seen_7g);
    free(list);
    list = (void *)&n;
    assert_int_equal(sl_gpu_mig_profiles(gpu, 1, &list, &n, &err), 0); /* a T4 */
    assert_int_equal(n, 0);
    assert_null(list);
}

static void test_create(void **state)
{
    (void)state;
    struct sl_gpu_mig_info a, b, no;
    struct sl_gpu_mig_instance *list = NULL;
    size_t n = 9;
    assert_true(sl_gpu_mig_create(gpu, 0, 19, 0, &no, &err) < 0); /* MIG is off */
    assert_int_equal(sl_gpu_mig_instances(gpu, 0, &list, &n, &err), 0);
    assert_int_equal(n, 0);
    mode(true);
    assert_int_equal(sl_gpu_mig_create(gpu, 0, 9, 4, &a, &err), 0);
    assert_memory_equal(a.uuid, "MIG-", 4);
    assert_string_equal(a.profile, "3g.71gb");
    assert_int_equal(a.compute_slices, 3);
    assert_int_equal(a.placement_start, 4);
    assert_int_equal(a.placement_size, 4);
    assert_int_equal(sl_gpu_mig_create(gpu, 0, 9, 4, &no, &err), -ENOSPC);
    assert_int_equal(sl_gpu_mig_create(gpu, 0, 9, 1, &no, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "memory slice 1"));
    assert_int_equal(sl_gpu_mig_create(gpu, 0, 15, SL_GPU_MIG_ANYWHERE, &b, &err), 0);
    assert_string_equal(b.profile, "1g.35gb");
    assert_int_equal(b.placement_size, 2);

    assert_int_equal(sl_gpu_mig_instances(gpu, 0, &list, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_true(list[0].id < list[1].id);
    assert_int_equal(list[0].id, a.gpu_instance);
    assert_int_equal(list[0].profile_id, 9);
    assert_int_equal(list[0].place.start, 4);
    free(list);

    assert_int_equal(sl_gpu_mig_destroy(gpu, 0, 99, 0, &err), -ENOENT);
    assert_int_equal(sl_gpu_mig_destroy(gpu, 0, a.gpu_instance, 5, &err), -ENOENT);
    assert_int_equal(sl_gpu_mig_destroy(gpu, 0, a.gpu_instance, a.compute_instance, &err), 0);
    assert_int_equal(sl_gpu_mig_destroy(gpu, 0, a.gpu_instance, a.compute_instance, &err), -ENOENT);
    assert_int_equal(sl_gpu_mig_destroy(gpu, 0, b.gpu_instance, b.compute_instance, &err), 0);
    mode(false);
}

/* A GPU instance whose maker died before its compute instance, and one with two of them. */
static void test_leftovers(void **state)
{
    (void)state;
    nvmlGpuInstance_t gi;
    nvmlComputeInstance_t ci;
    nvmlGpuInstanceInfo_t info;
    struct sl_gpu_mig_instance *list = NULL;
    size_t n = 0;
    mode(true);
    assert_nv_ok(nv.nvmlDeviceCreateGpuInstance(card(0), 14, &gi));
    assert_int_equal(sl_gpu_mig_instances(gpu, 0, &list, &n, &err), 0);
    assert_int_equal(n, 1);
    assert_int_equal(sl_gpu_mig_destroy(gpu, 0, list[0].id, SL_GPU_NO_INSTANCE, &err), 0);
    free(list);

    assert_nv_ok(nv.nvmlDeviceCreateGpuInstance(card(0), 14, &gi));
    assert_nv_ok(nv.nvmlGpuInstanceGetInfo(gi, &info));
    for (int i = 0; i < 2; i++)
        assert_nv_ok(nv.nvmlGpuInstanceCreateComputeInstance(
            gi, NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE, &ci));
    assert_int_equal(sl_gpu_mig_destroy(gpu, 0, info.id, SL_GPU_NO_INSTANCE, &err), -EBUSY);
    assert_int_equal(sl_gpu_mig_destroy(gpu, 0, info.id, 0, &err), 0); /* the other one stays */
    assert_int_equal(sl_gpu_mig_instances(gpu, 0, &list, &n, &err), 0);
    assert_int_equal(n, 1);
    free(list);
    assert_int_equal(sl_gpu_mig_destroy(gpu, 0, info.id, 1, &err), 0);
    assert_int_equal(sl_gpu_mig_instances(gpu, 0, &list, &n, &err), 0);
    assert_int_equal(n, 0);
    mode(false);
}

static void test_refused(void **state)
{
    (void)state;
    bool pending, on;
    struct user u = user_start(0, GIB, 0);
    assert_int_equal(sl_gpu_mig_set_mode(gpu, 0, true, &pending, &err), -EBUSY);
    user_stop(&u, 0);
    assert_int_equal(sl_gpu_mig_mode(gpu, 1, &on, &pending, &err), -EOPNOTSUPP);
    assert_int_equal(sl_gpu_mig_set_mode(gpu, 1, true, &pending, &err), -EOPNOTSUPP);
}

/* When the compute instance cannot be made, the GPU instance goes again. */
static void test_rollback(void **state)
{
    (void)state;
    mode(true);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)setenv("SLUICE_SIM_FAULT", "nvmlGpuInstanceCreateComputeInstance:1=23", 1);
        (void)execl("/proc/self/exe", "gpu_mig", "rollback", (char *)NULL);
        _exit(99);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    mode(false);
}

static int rollback_child(void)
{
    struct sl_gpu_mig_info info;
    struct sl_gpu_mig_instance *list = NULL;
    size_t n = 9;
    if (sl_gpu_open(SIM_NVML_LIBRARY, &gpu, &err) < 0)
        return 1;
    if (sl_gpu_mig_create(gpu, 0, 19, 0, &info, &err) != -ENOSPC)
        return 2;
    if (sl_gpu_mig_instances(gpu, 0, &list, &n, &err) < 0 || n != 0)
        return 3;
    sl_gpu_close(gpu);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "rollback") == 0)
        return rollback_child();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profiles),  cmocka_unit_test(test_create),
        cmocka_unit_test(test_leftovers), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_rollback),
    };
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
