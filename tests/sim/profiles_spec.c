/* SPDX-License-Identifier: Apache-2.0 */
/* Specs of simulated cards, good and bad, and what follows from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/profiles.h"

static struct sl_sim_spec parsed(const char *text)
{
    struct sl_sim_spec s;
    struct sl_err err = SL_ERR_INIT;
    if (sl_sim_spec_parse(text, &s, &err) != 0)
        fail_msg("%s: %s", text, err.msg);
    return s;
}

static void refused(const char *text, const char *words)
{
    struct sl_sim_spec s;
    struct sl_err err = SL_ERR_INIT;
    if (sl_sim_spec_parse(text, &s, &err) == 0)
        fail_msg("\"%s\" was accepted", text);
    if (!strstr(err.msg, words))
        fail_msg("\"%s\": \"%s\" does not say \"%s\"", text, err.msg, words);
}

static void test_profiles(void **state)
{
    (void)state;
    static const char *const keys[] = {"t4",       "l4",       "a10g", "a100-40g",
                                       "a100-80g", "h100-80g", "h200", "b200"};
    assert_int_equal(sl_sim_profile_count(), SL_ARRAY_LEN(keys));
    for (size_t i = 0; i < SL_ARRAY_LEN(keys); i++) {
        const struct sl_sim_profile *p = sl_sim_profile_find(keys[i]);
        assert_non_null(p);
        assert_true(p->memory_total_bytes > 1ULL << 30 && p->sm_count > 0 && p->cc_major >= 7);
        assert_true(p->memory_bandwidth_bytes_per_s > 0 && p->context_overhead_bytes > 0);
        assert_true(p->context_overhead_bytes < p->memory_total_bytes / 32);
        assert_int_equal(p->pci_device_id & 0xffff, 0x10de);
    }
    assert_null(sl_sim_profile_find("h201"));
    assert_null(sl_sim_profile_at(SL_ARRAY_LEN(keys)));
    const struct sl_sim_profile *h = sl_sim_profile_find("H200");
    assert_string_equal(h->name, "NVIDIA H200");
    assert_int_equal(h->memory_total_bytes >> 20, 143771);
    assert_int_equal(h->sm_count, 132);
}

static void test_good(void **state)
{
    (void)state;
    struct sl_sim_spec s = parsed("a100-80gx2,l4");
    assert_int_equal(s.count, 3);
    assert_string_equal(s.devices[0].name, "NVIDIA A100-SXM4-80GB");
    assert_string_equal(s.devices[2].name, "NVIDIA L4");
    assert_int_equal(strlen(s.devices[0].uuid_text), 40);
    assert_memory_equal(s.devices[0].uuid_text, "GPU-", 4);
    assert_int_equal(parsed("h200").count, 1);
    assert_int_equal(parsed("H200X16").count, 16);

    /* The same spec names the same cards, always; another seed names others. */
    struct sl_sim_spec again = parsed("a100-80gx2,l4"), other = parsed("a100-80gx2,l4@node-b");
    assert_memory_equal(&s, &again, sizeof(s));
    for (size_t i = 0; i < s.count; i++)
        assert_string_not_equal(s.devices[i].uuid_text, other.devices[i].uuid_text);

    s = parsed("b200x16");
    for (size_t i = 0; i < s.count; i++)
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(s.devices[i].uuid_text, s.devices[j].uuid_text);
            assert_true(s.devices[i].pci_bus != s.devices[j].pci_bus);
        }
    assert_true(s.devices[15].pci_bus <= 0xff);
    assert_int_equal(s.devices[0].numa_node, 0);
    assert_int_equal(s.devices[15].numa_node, 1);
}

static void test_bad(void **state)
{
    (void)state;
    refused("", "t4, l4, a10g, a100-40g, a100-80g, h100-80g, h200, b200");
    refused("h300", "no simulated card \"h300\"");
    refused("h200x", "h200x4");
    refused("h200x0", "from 1 to 16");
    refused("h200x17", "from 1 to 16");
    refused("h200x99999999999999999999", "from 1 to 16");
    refused("h200x8,b200x9", "more than 16");
    refused("h200,,l4", "no simulated card");
    refused("h200x2y", "no simulated card");
    refused("h200@", "seed");
    refused("/nonexistent/spec", "cannot open");
}

static void test_nvlink(void **state)
{
    (void)state;
    struct sl_sim_spec s = parsed("h200x4");
    assert_int_equal(sl_sim_nvlink_count(&s, 0, 1), 6);
    assert_int_equal(sl_sim_nvlink_count(&s, 3, 0), 6);
    assert_int_equal(sl_sim_nvlink_count(&s, 0, 0), 0);
    /* Each link has two ends. */
    for (size_t i = 0; i < s.count; i++) {
        size_t seen[4] = {0};
        for (uint32_t l = 0; l < 18; l++) {
            int peer = sl_sim_nvlink_peer(&s, i, l);
            assert_true(peer >= 0 && peer < 4 && (size_t)peer != i);
            seen[peer]++;
        }
        for (size_t j = 0; j < 4; j++)
            assert_int_equal(seen[j], i == j ? 0 : 6);
    }
    assert_int_equal(sl_sim_nvlink_peer(&s, 0, 18), SL_SIM_LINK_NONE);
    s = parsed("h200x8");
    assert_int_equal(sl_sim_nvlink_peer(&s, 0, 0), SL_SIM_LINK_SWITCH);
    assert_int_equal(sl_sim_nvlink_count(&s, 0, 7), 18);
    s = parsed("h200,l4x2,b200");
    for (size_t i = 0; i < s.count; i++)
        assert_int_equal(sl_sim_nvlink_peer(&s, i, 0), SL_SIM_LINK_NONE);
    s = parsed("l4x2");
    assert_int_equal(sl_sim_nvlink_count(&s, 0, 1), 0);
}

static int from_text(const char *text, struct sl_sim_spec *s, struct sl_err *err)
{
    return sl_sim_spec_parse_text(text, "spec", s, err);
}

static void test_file(void **state)
{
    (void)state;
    struct sl_sim_spec s;
    struct sl_err err = SL_ERR_INIT;
    const char *good = "# a small box\n"
                       "driver = 535.104.05\n"
                       "cuda = 12.2   # what that driver runs\n"
                       "\n"
                       "device = h200x2\n"
                       "  memory = 8Gi\n"
                       "  sms = 16\n"
                       "device = l4\n"
                       "  uuid = GPU-01234567-89ab-cdef-0123-456789abcdef\n"
                       "  pci = 0001:c1:00.0\n"
                       "  numa = -1\n"
                       "  name = NVIDIA Something\n"
                       "  context = 64Mi\n"
                       "  bandwidth = 100G\n";
    if (from_text(good, &s, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(s.count, 3);
    assert_string_equal(s.driver_version, "535.104.05");
    assert_int_equal(s.cuda_version, 12020);
    assert_int_equal(s.devices[1].memory_total_bytes, 8ULL << 30);
    assert_int_equal(s.devices[1].sm_count, 16);
    assert_string_equal(s.devices[2].uuid_text, "GPU-01234567-89ab-cdef-0123-456789abcdef");
    assert_int_equal(s.devices[2].uuid[15], 0xef);
    assert_int_equal(s.devices[2].pci_bus, 0xc1);
    assert_int_equal(s.devices[2].pci_domain, 1);
    assert_int_equal(s.devices[2].numa_node, -1);
    assert_string_equal(s.devices[2].name, "NVIDIA Something");
    assert_int_equal(s.devices[2].context_overhead_bytes, 64 << 20);
    assert_int_equal(s.devices[2].memory_bandwidth_bytes_per_s, 100000000000ULL);

    char path[] = "/tmp/sluice-spec-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, good, strlen(good)), (ssize_t)strlen(good));
    (void)close(fd);
    struct sl_sim_spec same = parsed(path);
    assert_memory_equal(&same, &s, sizeof(s));
    assert_int_equal(unlink(path), 0);
}

static void test_bad_file(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } bad[] = {
        {"", "no card is named"},
        {"h200\n", "spec:1: \"h200\" is not a \"key = value\" line"},
        {"device = h300\n", "spec:1: there is no simulated card"},
        {"\nmemory = 8Gi\n", "spec:2: \"memory\" comes before"},
        {"device = h200\ncolour = red\n", "spec:2: the key \"colour\" is not known"},
        {"device = h200\nmemory = 8GB\n", "spec:2: memory"},
        {"device = h200\nmemory = 50%\n", "80Gi"},
        {"device = h200\nsms = 0\n", "at least one"},
        {"device = h200\nsms = many\n", "a whole number"},
        {"device = h200\nsms = -3\n", "a whole number"},
        {"device = h200\nuuid = GPU-1\n", "a UUID such as"},
        {"device = h200\nuuid = GPU-01234567-89ab-cdef-0123-456789abcdeg\n", "a UUID such as"},
        {"device = h200\npci = 1b\n", "a PCI address"},
        {"device = h200\npci = 0000:-1:00.0\n", "a PCI address"},
        {"device = h200\ndriver = 5-1.1\n", "a driver version"},
        {"device = h200x2\npci = 0000:1b:00.0\n", "belongs to one card"},
        {"device = h200\npci = 0:1:0.0\ndevice = l4\npci = 0:1:0.0\n", "same pci address"},
        {"device = h200\nnuma = 64\n", "a whole number"},
        {"device = h200\ndriver = latest\n", "a driver version"},
        {"device = h200\ncuda = 13\n", "a CUDA version"},
        {"device = h200\nnvlinks = 19\n", "up to 18"},
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        struct sl_sim_spec s;
        struct sl_err err = SL_ERR_INIT;
        if (from_text(bad[i].text, &s, &err) == 0)
            fail_msg("accepted: %s", bad[i].text);
        if (!strstr(err.msg, bad[i].words))
            fail_msg("\"%s\": \"%s\" does not say \"%s\"", bad[i].text, err.msg, bad[i].words);
    }
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Whatever is done to a good file: it is read or refused with a sentence, and what is read holds. */
static void test_mutations(void **state)
{
    (void)state;
    static const char good[] = "driver = 535.1\ncuda = 12.2\nseed = a\ndevice = h200x2\n"
                               "memory = 8Gi\ndevice = l4\npci = 0001:c1:00.0\nnuma = -1\n"
                               "uuid = GPU-01234567-89ab-cdef-0123-456789abcdef\nsms = 3\n";
    static const char letters[] = "=\n #,x@-0189afGPU.:/%\x80";
    uint32_t seed = 1;
    unsigned read_ok = 0, refused_ok = 0;
    for (int round = 0; round < 20000; round++) {
        char text[sizeof(good)];
        memcpy(text, good, sizeof(good));
        for (uint32_t k = next_random(&seed) % 3 + 1; k > 0; k--) {
            uint32_t at = next_random(&seed) % (sizeof(good) - 1);
            text[at] = letters[next_random(&seed) % (sizeof(letters) - 1)];
        }
        if (next_random(&seed) % 8 == 0)
            text[next_random(&seed) % sizeof(good)] = '\0';
        struct sl_sim_spec s;
        struct sl_err err = SL_ERR_INIT;
        if (from_text(text, &s, &err) != 0) {
            assert_true(err.code < 0 && err.msg[0] != '\0');
            refused_ok++;
            continue;
        }
        read_ok++;
        assert_in_range(s.count, 1, SL_SIM_MAX_DEVICES);
        for (size_t i = 0; i < s.count; i++) {
            assert_non_null(sl_sim_profile_at(s.devices[i].profile));
            assert_true(s.devices[i].sm_count > 0 && s.devices[i].memory_total_bytes > 0);
            assert_int_equal(strlen(s.devices[i].uuid_text), 40);
            assert_true(s.devices[i].pci_bus <= 0xff && s.devices[i].pci_device <= 31);
        }
    }
    assert_true(read_ok > 100 && refused_ok > 100); /* both happen, or this tests nothing */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profiles),  cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),       cmocka_unit_test(test_nvlink),
        cmocka_unit_test(test_file),      cmocka_unit_test(test_bad_file),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
