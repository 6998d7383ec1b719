/* SPDX-License-Identifier: Apache-2.0 */
/* The driver under NVIDIA's name: its parameters in claims, its attributes in slices, a checkpoint from before. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/dra/checkpoint.h"
#include "agent/dra/claim.h"
#include "agent/dra/slices.h"
#include "base/hash.h"

#define MIB (1ULL << 20)
#define GIB (1ULL << 30)
#define UID "0c6a9f4e-0000-4000-8000-000000000001"

static const struct sl_dra_names own = {.nvidia = false};
static const struct sl_dra_names nvidia = {.nvidia = true};

static struct sl_claim claim;
static struct sl_err err;

/* A claim with one result for each device of the list, of requests r0, r1, … . */
static int parse(const struct sl_dra_names *names, const char *devices, const char *config)
{
    json_t *results = json_array(), *o;
    char list[256], request[16];
    int n = 0;
    (void)snprintf(list, sizeof(list), "%s", devices);
    for (char *rest = NULL, *d = strtok_r(list, " ", &rest); d; d = strtok_r(NULL, " ", &rest)) {
        (void)snprintf(request, sizeof(request), "r%d", n++);
        json_t *r = json_pack("{s:s,s:s,s:s,s:s}", "request", request, "driver",
                              sl_dra_driver(names), "pool", "n1", "device", d);
        if (strstr(d, "share"))
            (void)json_object_update_new(r, json_pack("{s:s,s:{s:s,s:s}}", "shareID", "s",
                                                      "consumedCapacity", "memory", "4Gi", "cores",
                                                      "1"));
        (void)json_array_append_new(results, r);
    }
    json_error_t e;
    json_t *configs = json_loads(config, 0, &e);
    if (!configs)
        fail_msg("%s: %s", e.text, config);
    o = json_pack("{s:{s:s,s:s,s:s},s:{s:{s:{s:o,s:o}}}}", "metadata", "name", "c", "namespace",
                  "default", "uid", UID, "status", "allocation", "devices", "results", results,
                  "config", configs);
    assert_non_null(o);
    err = (struct sl_err)SL_ERR_INIT;
    int rc = sl_claim_parse(o, names, "n1", UID, &claim, &err);
    json_decref(o);
    return rc;
}

#define FOR(requests, kind, more)                                                                  \
    "{\"source\":\"FromClaim\",\"requests\":[" requests                                            \
    "],\"opaque\":{\"driver\":\"gpu.nvidia.com\",\"parameters\":{\"apiVersion\":"                  \
    "\"resource.nvidia.com/v1beta1\",\"kind\":\"" kind "\"" more "}}}"
#define GPU(sharing)   "[" FOR("\"r0\"", "GpuConfig", ",\"sharing\":" sharing) "]"
#define MIG(sharing)   "[" FOR("\"r0\"", "MigDeviceConfig", ",\"sharing\":" sharing) "]"
#define MPS_WITH(what) "{\"strategy\":\"MPS\",\"mpsConfig\":{" what "}}"

static void test_gpu_config(void **state)
{
    const struct sl_claim_result *r = claim.result;
    (void)state;
    assert_int_equal(parse(&nvidia, "gpu-0", "[]"), 0);
    assert_int_equal(r->timeslice, 0);
    static const char *const words[] = {"Default", "Short", "Medium", "Long"};
    for (uint32_t i = 0; i < 4; i++) {
        char config[400];
        (void)snprintf(config, sizeof(config),
                       GPU("{\"strategy\":\"TimeSlicing\",\"timeSlicingConfig\":{\"interval\":"
                           "\"%s\"}}"),
                       words[i]);
        assert_int_equal(parse(&nvidia, "gpu-0", config), 0);
        assert_int_equal(r->timeslice, i);
        assert_int_equal(r->share.strategy, SL_SHARE_TIME_SLICING);
    }
    assert_int_equal(parse(&nvidia, "gpu-0",
                           GPU(MPS_WITH("\"defaultActiveThreadPercentage\":50,"
                                        "\"defaultPinnedDeviceMemoryLimit\":\"10Gi\""))),
                     0);
    assert_int_equal(r->share.strategy, SL_SHARE_MPS);
    assert_int_equal(r->share.limit_permille, 500);
    assert_int_equal(r->share.memory_bytes, 10 * GIB);
    /* The claim's replaces the class's as a whole. */
    assert_int_equal(
        parse(&nvidia, "gpu-0",
              "[" FOR(
                  "", "GpuConfig",
                  ",\"sharing\":" MPS_WITH(
                      "\"defaultActiveThreadPercentage\":50")) "," FOR("\"r0\"", "GpuConfig",
                                                                       ",\"sharing\":{\"strategy\":"
                                                                       "\"TimeSlicing\"}") "]"),
        0);
    assert_int_equal(r->share.strategy, SL_SHARE_TIME_SLICING);
    assert_int_equal(r->share.limit_permille, 0);
}

static void test_limits_by_device(void **state)
{
    (void)state;
    /* Numbers are the places among the devices that the config is for. */
    assert_int_equal(
        parse(&nvidia, "gpu-3 gpu-4 gpu-5",
              "[" FOR("\"r1\",\"r2\"", "GpuConfig",
                      ",\"sharing\":" MPS_WITH("\"defaultPinnedDeviceMemoryLimit\":\"10Gi\","
                                               "\"defaultPerDevicePinnedMemoryLimit\":{\"1\":"
                                               "\"8Gi\"}")) "]"),
        0);
    assert_int_equal(claim.result[0].share.strategy, SL_SHARE_LIBSLUICE);
    assert_int_equal(claim.result[1].share.memory_bytes, 10 * GIB);
    assert_int_equal(claim.result[2].share.memory_bytes, 8 * GIB);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *device, *config, *words;
    } bad[] = {
        {"gpu-0", "[" FOR("\"r0\"", "VfioDeviceConfig", "") "]", "VfioDeviceConfig"},
        {"gpu-0", "[" FOR("\"r0\"", "gpuconfig", "") "]", "gpuconfig"},
        {"gpu-0", "[" FOR("\"r0\"", "GpuConfig", ",\"shared\":{}") "]", "shared"},
        {"gpu-0", GPU("7"), "must be a mapping"},
        {"gpu-0", GPU("{}"), "TimeSlicing or MPS"},
        {"gpu-0", GPU("{\"strategy\":\"mps\"}"), "TimeSlicing or MPS"},
        {"gpu-0", GPU("{\"strategy\":3}"), "TimeSlicing or MPS"},
        {"gpu-0", GPU("{\"strategy\":\"TimeSlicing\",\"interval\":\"Long\"}"), "interval"},
        {"gpu-0",
         GPU("{\"strategy\":\"TimeSlicing\",\"timeSlicingConfig\":{\"interval\":\"long\"}}"),
         "Default, Short"},
        {"gpu-0", GPU("{\"strategy\":\"TimeSlicing\",\"mpsConfig\":{}}"), "does not go with"},
        {"gpu-0", GPU("{\"strategy\":\"MPS\",\"timeSlicingConfig\":{}}"), "does not go with"},
        {"gpu-0", GPU(MPS_WITH("\"defaultActiveThreadPercentage\":0")), "from 1 to 100"},
        {"gpu-0", GPU(MPS_WITH("\"defaultActiveThreadPercentage\":\"50\"")), "from 1 to 100"},
        {"gpu-0", GPU(MPS_WITH("\"defaultPinnedDeviceMemoryLimit\":\"512Ki\"")), "at least 1Mi"},
        {"gpu-0", GPU(MPS_WITH("\"defaultPinnedDeviceMemoryLimit\":\"-1\"")), "at least 1Mi"},
        {"gpu-0", GPU(MPS_WITH("\"defaultPerDevicePinnedMemoryLimit\":{\"GPU-1\":\"1Gi\"}")),
         "UUIDs"},
        {"gpu-0", MIG("{\"strategy\":\"TimeSlicing\"}"), "MigDeviceConfig"},
        {"gpu-0-mig-1g18gb-0", GPU("{\"strategy\":\"TimeSlicing\"}"), "whole GPUs"},
        {"gpu-0-mig-1g18gb-0", MIG("{\"strategy\":\"MPS\"}"), "is not served"},
        {"gpu-0-mig-1g18gb-0", MIG("{\"strategy\":\"TimeSlicing\",\"timeSlicingConfig\":{}}"),
         "timeSlicingConfig"},
        {"gpu-0-share", GPU("{\"strategy\":\"MPS\"}"), "shared with other claims"},
        {"gpu-0-share",
         GPU("{\"strategy\":\"TimeSlicing\",\"timeSlicingConfig\":{\"interval\":\"Long\"}}"),
         "An interval"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (parse(&nvidia, bad[i].device, bad[i].config) != -EINVAL ||
            !strstr(err.msg, bad[i].words))
            fail_msg("%s: \"%s\"", bad[i].config, err.msg);
    }
    /* A config for all requests may be for the others. */
    assert_int_equal(parse(&nvidia, "gpu-0 gpu-1-mig-1g18gb-0",
                           "[" FOR("", "GpuConfig", ",\"sharing\":{\"strategy\":\"MPS\"}") "]"),
                     0);
    assert_int_equal(claim.result[0].share.strategy, SL_SHARE_MPS);
    assert_int_equal(claim.result[1].share.strategy, SL_SHARE_LIBSLUICE);
    assert_int_equal(parse(&nvidia, "gpu-0-mig-1g18gb-0", MIG("{\"strategy\":\"TimeSlicing\"}")),
                     0);
    assert_int_equal(parse(&nvidia, "gpu-0-share", GPU("{\"strategy\":\"TimeSlicing\"}")), 0);
}

/* Under our own name its parameters have no effect: that is said, unless they may be another driver's. */
static void test_forgotten(void **state)
{
    (void)state;
    assert_int_equal(parse(&own, "gpu-0", GPU("{\"strategy\":\"MPS\"}")), -EINVAL);
    assert_non_null(strstr(err.msg, "nvidia-claims"));
    assert_int_equal(parse(&own, "gpu-0", "[" FOR("", "GpuConfig", "") "]"), -EINVAL);
    assert_int_equal(parse(&own, "gpu-0", "[" FOR("\"r1\"", "GpuConfig", "") "]"), 0);
}

static void test_consumable_words(void **state)
{
    (void)state;
    struct sl_dra_names n = nvidia;
    assert_int_equal(sl_dra_consumable_parse("memory", &n, &err), 0);
    assert_int_equal(n.consumable, SL_CONSUMABLE_MEMORY);
    assert_int_equal(sl_dra_consumable_parse("100", &n, &err), 0);
    assert_int_equal(n.count, 100);
    static const char *const bad[] = {"", "0", "101", "-1", "4x", " 4", "Memory", "unlimited "};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(sl_dra_consumable_parse(bad[i], &n, &err), -EINVAL);
}

/* --- slices --- */

static json_t *device(const json_t *slices, const char *name)
{
    size_t i, k;
    json_t *s, *d;
    json_array_foreach(slices, i, s) json_array_foreach(
        json_object_get(json_object_get(s, "spec"), "devices"), k,
        d) if (strcmp(json_string_value(json_object_get(d, "name")), name) == 0) return d;
    fail_msg("no device %s", name);
    return NULL;
}

static const char *text(const json_t *d, const char *attribute)
{
    const json_t *a = json_object_get(json_object_get(d, "attributes"), attribute);
    const char *t = json_string_value(json_object_get(a, "string"));
    return t ? t : "";
}

static const char *unnamed(const json_t *d, const char *capacity)
{
    const json_t *c = json_object_get(json_object_get(d, "capacity"), capacity);
    const char *t =
        json_string_value(json_object_get(json_object_get(c, "requestPolicy"), "default"));
    return t ? t : "";
}

static json_t *slices_of(struct sl_dra_names names)
{
    static const struct sl_gpu_mig_profile profiles[] = {{.id = 1,
                                                          .name = "1g.18gb",
                                                          .memory_bytes = 16384 * MIB,
                                                          .sm_count = 16,
                                                          .copy_engines = 1,
                                                          .decoders = 1,
                                                          .jpegs = 1,
                                                          .ofas = 1,
                                                          .encoders = 1,
                                                          .placement_count = 1,
                                                          .placements = {{0, 1}}}};
    static struct sl_inv_gpu gpu = {.info = {.uuid = "GPU-1",
                                             .name = "NVIDIA H200",
                                             .brand = "Nvidia",
                                             .pci_bus_id = "00000000:1B:00.0",
                                             .memory_total_bytes = 143771 * MIB,
                                             .sm_count = 132,
                                             .cc_major = 9,
                                             .mig_capable = true},
                                    .clique = "c.7"};
    static struct sl_inventory inv = {
        .gpu = &gpu, .gpu_count = 1, .cuda_version = 13000, .driver_version = "580.159.04"};
    const struct sl_slice_gpu extra = {
        .profile = profiles, .profile_count = 1, .pcie_root = "pci0000:15"};
    const struct sl_slices_options opt = {
        .node_name = "node-1", .inv = &inv, .gpu = &extra, .names = names};
    return sl_slices_make(&opt);
}

static void test_slices(void **state)
{
    (void)state;
    json_t *s = slices_of(nvidia);
    const json_t *first = json_array_get(s, 0);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(first, "spec"), "driver")),
        "gpu.nvidia.com");
    static const char *const names[] = {"gpu-0", "gpu-0-share", "gpu-0-mig-1g18gb-0"};
    static const char *const types[] = {"gpu", "share", "mig"};
    for (size_t i = 0; i < 3; i++) {
        const json_t *d = device(s, names[i]);
        assert_string_equal(text(d, "type"), types[i]);
        assert_string_equal(text(d, "gpu.sluice.io/type"), types[i]);
        assert_string_equal(text(d, "brand"), "Nvidia");
        assert_string_equal(text(d, "gpu.sluice.io/productName"), "NVIDIA H200");
        /* A limit of the API, for both together. */
        assert_true(json_object_size(json_object_get(d, "attributes")) +
                        json_object_size(json_object_get(d, "capacity")) <=
                    32);
    }
    json_decref(s);
    /* Our own name: nothing of it, and other names for the slices. */
    s = slices_of(own);
    assert_string_equal(text(device(s, "gpu-0"), "gpu.sluice.io/type"), "");
    assert_string_equal(text(device(s, "gpu-0"), "brand"), "");
    json_decref(s);
    assert_true(sl_slices_ours("00-gpu.sluice.io-node-1"));
    assert_true(sl_slices_ours("00-nvidia-gpu.sluice.io-node-1"));
    assert_false(sl_slices_ours("node-1-gpu.nvidia.com-x2f9c"));
}

static void test_consumable_slices(void **state)
{
    (void)state;
    static const struct {
        enum sl_consumable how;
        const char *memory, *cores, *shares;
    } cases[] = {{SL_CONSUMABLE_MEMORY, "143771Mi", "1", ""},
                 {SL_CONSUMABLE_UNLIMITED, "0", "0", ""},
                 {SL_CONSUMABLE_COUNT, "35942Mi", "25", "1"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *s = slices_of((struct sl_dra_names){true, cases[i].how, 4});
        const json_t *d = device(s, "gpu-0-share");
        /* The class gpu.nvidia.com selects the shared device then, and not the whole one. */
        assert_string_equal(text(d, "type"), "gpu");
        assert_string_equal(text(d, "gpu.sluice.io/type"), "share");
        assert_string_equal(text(device(s, "gpu-0"), "type"), "whole");
        assert_string_equal(text(device(s, "gpu-0"), "gpu.sluice.io/type"), "gpu");
        assert_string_equal(unnamed(d, "memory"), cases[i].memory);
        assert_string_equal(unnamed(d, "cores"), cases[i].cores);
        assert_string_equal(unnamed(d, "shares"), cases[i].shares);
        json_decref(s);
    }
}

/* --- the checkpoint --- */

static void test_checkpoint(void **state)
{
    (void)state;
    char dir[] = "/tmp/sluice-dra-nvidia-XXXXXX", path[80];
    struct sl_checkpoint c = {0}, back = {0};
    assert_non_null(mkdtemp(dir));
    struct sl_prepared *p = sl_checkpoint_add(&c, UID, 1);
    p->device[0].share = (struct sl_share)SL_SHARE_INIT;
    (void)snprintf(p->device[0].share.gpu, sizeof(p->device[0].share.gpu), "GPU-1");
    p->device[0].timeslice = 3;
    assert_int_equal(sl_checkpoint_save(dir, &c, &err), 0);
    assert_int_equal(sl_checkpoint_load(dir, &back, &err), 0);
    assert_int_equal(back.claims->device[0].timeslice, 3);
    sl_checkpoint_clear(&c);
    sl_checkpoint_clear(&back);
    /* One of an earlier agent, which did not know of intervals. */
    (void)snprintf(path, sizeof(path), "%s/" SL_CHECKPOINT_FILE, dir);
    json_t *file = json_load_file(path, 0, NULL);
    json_t *data = json_object_get(file, "data");
    json_t *entry = json_array_get(json_object_get(data, "claims"), 0);
    assert_int_equal(
        json_object_del(json_array_get(json_object_get(entry, "devices"), 0), "timeslice"), 0);
    char *body = json_dumps(data, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENSURE_ASCII), sum[24];
    (void)snprintf(sum, sizeof(sum), "%016llx", (unsigned long long)sl_hash_text(body));
    (void)json_object_set_new(file, "checksum", json_string(sum));
    assert_int_equal(json_dump_file(file, path, 0), 0);
    free(body);
    json_decref(file);
    assert_int_equal(sl_checkpoint_load(dir, &back, &err), 0);
    assert_false(back.doubtful);
    assert_int_equal(back.claims->device[0].timeslice, 0);
    sl_checkpoint_clear(&back);
    (void)snprintf(path, sizeof(path), "rm -rf %s", dir);
    assert_int_equal(system(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpu_config),        cmocka_unit_test(test_limits_by_device),
        cmocka_unit_test(test_refusals),          cmocka_unit_test(test_forgotten),
        cmocka_unit_test(test_consumable_words),  cmocka_unit_test(test_slices),
        cmocka_unit_test(test_consumable_slices), cmocka_unit_test(test_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
