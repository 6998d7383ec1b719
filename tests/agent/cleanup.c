/* SPDX-License-Identifier: Apache-2.0 */
/* What `sluiced --cleanup` takes away, and what it leaves. */
#include "agent/node/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[] = "/tmp/sluice-cleanup-XXXXXX";

static const char *at(const char *path)
{
    static char text[512];
    (void)snprintf(text, sizeof(text), "%s/%s", root, path);
    return text;
}

static void make(const char *path)
{
    char text[512];
    (void)snprintf(text, sizeof(text), "%s", at(path));
    for (char *p = text + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        (void)mkdir(text, 0700);
        *p = '/';
    }
    FILE *f = fopen(text, "w");
    assert_non_null(f);
    (void)fclose(f);
}

static bool is_there(const char *path)
{
    struct stat st;
    return lstat(at(path), &st) == 0;
}

static void test_files(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    static const char *const ours[] = {"var/lib/sluice/dra/checkpoint.json",
                                       "run/sluice/k/a/attach.sock",
                                       "run/cdi/k8s.gpu.sluice.io-claim_1.json",
                                       "run/cdi/k8s.device-plugin.nvidia.com-gpu.json",
                                       "run/nvidia/mps/GPU-1/daemon.pid",
                                       "var/lib/kubelet/plugins/gpu.sluice.io/dra.sock",
                                       "var/lib/kubelet/plugins_registry/gpu.sluice.io-reg.sock"};
    static const char *const others[] = {"var/lib/other/file", "run/cdi/nvidia.yaml",
                                         "var/lib/kubelet/plugins/csi/csi.sock", "kept/file"};
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        make(ours[i]);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        make(others[i]);
    /* A tenant's folder was writable to its container. */
    char kept[512];
    (void)snprintf(kept, sizeof(kept), "%s", at("kept"));
    assert_int_equal(symlink(kept, at("run/sluice/k/a/out")), 0);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(sl_cleanup_files(root, &err), 0);
        for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
            if (is_there(ours[i]))
                fail_msg("%s is there", ours[i]);
        assert_false(is_there("var/lib/sluice") || is_there("run/sluice") ||
                     is_there("run/nvidia"));
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
            if (!is_there(others[i]))
                fail_msg("%s is gone", others[i]);
    }
    assert_true(sl_cleanup_files(at("nowhere"), &err) < 0);
}

static void test_patch(void **state)
{
    (void)state;
    json_t *node = json_loads(
        "{\"metadata\":{\"labels\":{\"nvidia.com/gpu.count\":\"1\",\"nvidia.com/mine\":\"x\","
        "\"sluice.io/room\":\"7\",\"kubernetes.io/os\":\"linux\"},\"annotations\":{"
        "\"sluice.io/owned-labels\":\"nvidia.com/gpu.count,nvidia.com/gone\","
        "\"sluice.io/gpus\":\"[]\",\"hami.io/node-nvidia-register\":\"y\",\"other\":\"z\"}}}",
        0, NULL);
    json_t *wanted = json_loads(
        "{\"metadata\":{\"labels\":{\"nvidia.com/gpu.count\":null,\"sluice.io/room\":null},"
        "\"annotations\":{\"sluice.io/owned-labels\":null,\"sluice.io/gpus\":null,"
        "\"hami.io/node-nvidia-register\":null}}}",
        0, NULL);
    json_t *patch = sl_cleanup_patch(node);
    assert_true(json_equal(patch, wanted));
    json_decref(patch);
    json_decref(wanted);
    json_decref(node);
    /* HAMi's own, on a node that never had ours. */
    node = json_loads("{\"metadata\":{\"annotations\":{\"hami.io/node-nvidia-register\":\"y\"}}}",
                      0, NULL);
    assert_null(sl_cleanup_patch(node));
    json_decref(node);
    assert_null(sl_cleanup_patch(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_files), cmocka_unit_test(test_patch)};
    if (!mkdtemp(root))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[64];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command) != 0 || failed;
}
