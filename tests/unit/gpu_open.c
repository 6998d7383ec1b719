/* SPDX-License-Identifier: Apache-2.0 */
/* Opening NVML where it is missing or wrong, and a backend that is not NVML. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu_fake.h"

static void test_no_driver(void **state)
{
    (void)state;
    struct sl_gpu *gpu = NULL;
    struct sl_err err = SL_ERR_INIT;
    char root[] = "/tmp/sluice-gpu-XXXXXX";
    assert_non_null(mkdtemp(root));
    assert_int_equal(sl_gpu_open_at("libsluice-no-such-nvml.so", root, &gpu, &err), -ENODEV);
    assert_null(gpu);
    assert_non_null(strstr(err.msg, "no NVIDIA driver on this machine"));
    assert_non_null(strstr(err.msg, "install the driver"));
    assert_int_equal(rmdir(root), 0);
}

static void test_driver_without_nvml(void **state)
{
    (void)state;
    struct sl_gpu *gpu = NULL;
    struct sl_err err = SL_ERR_INIT;
    char root[] = "/tmp/sluice-gpu-XXXXXX", dev[64], node[96];
    assert_non_null(mkdtemp(root));
    (void)snprintf(dev, sizeof(dev), "%s/dev", root);
    (void)snprintf(node, sizeof(node), "%s/nvidiactl", dev);
    assert_int_equal(mkdir(dev, 0700), 0);
    int fd = open(node, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(sl_gpu_open_at("libsluice-no-such-nvml.so", root, &gpu, &err), -ELIBACC);
    assert_null(gpu);
    assert_non_null(strstr(err.msg, "libnvidia-ml package"));
    assert_int_equal(unlink(node), 0);
    assert_int_equal(rmdir(dev), 0);
    assert_int_equal(rmdir(root), 0);
}

static void test_not_nvml(void **state)
{
    (void)state;
    struct sl_gpu *gpu = NULL;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_gpu_open("libc.so.6", &gpu, &err), -ELIBBAD);
    assert_null(gpu);
    assert_non_null(strstr(err.msg, "not an NVML library"));
}

static void test_fake(void **state)
{
    (void)state;
    struct gpu_fake fake = {.base = {&gpu_fake_ops}, .count = 2};
    fake.devices[0].memory = (struct sl_gpu_memory){100, 30, 0, 70};
    fake.devices[0].processes[0] = (struct sl_gpu_process){.pid = 7, .used_bytes = 30};
    fake.devices[0].process_count = 1;
    fake.devices[1].lost = true;

    struct sl_gpu *gpu = &fake.base;
    struct sl_err err = SL_ERR_INIT;
    size_t n = 0;
    assert_int_equal(sl_gpu_count(gpu, &n, &err), 0);
    assert_int_equal(n, 2);
    struct sl_gpu_memory m = {0};
    assert_int_equal(sl_gpu_memory(gpu, 0, &m, &err), 0);
    assert_int_equal(m.free_bytes, 70);
    assert_int_equal(sl_gpu_memory(gpu, 1, &m, &err), -ENXIO);
    struct sl_gpu_process *p = NULL;
    assert_int_equal(sl_gpu_processes(gpu, 0, &p, &n, &err), 0);
    assert_int_equal(n, 1);
    assert_int_equal(p[0].pid, 7);
    free(p);
    /* What a backend does not have is an answer, not a crash. */
    struct sl_gpu_mig_info mig;
    assert_int_equal(sl_gpu_mig_info(gpu, 0, 0, &mig, &err), -ENOSYS);
    sl_gpu_close(gpu);
    assert_true(fake.closed);
    sl_gpu_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_driver),
        cmocka_unit_test(test_driver_without_nvml),
        cmocka_unit_test(test_not_nvml),
        cmocka_unit_test(test_fake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
