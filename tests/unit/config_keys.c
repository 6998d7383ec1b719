/* SPDX-License-Identifier: Apache-2.0 */
/* Every key, flag and variable of the table; which counts before which; printing and reading back. */
#include "config_case.h"

#include "support/rng.h"

/* Three values that are not the default (where there are so many), as written anywhere. */
static const struct {
    const char *path;
    const char *value[3];
} samples[] = {
    {"flags.migStrategy", {"single", "mixed", "single"}},
    {"flags.failOnInitError", {"false", "true", "false"}},
    {"flags.mpsRoot", {"/a", "/b b", "/c\"d"}},
    {"flags.nvidiaDriverRoot", {"/run/nvidia/driver", "/x", "/y"}},
    {"flags.nvidiaDevRoot", {"/d", "/e", "/f"}},
    {"flags.gdrcopyEnabled", {"true", "false", "true"}},
    {"flags.gdsEnabled", {"true", "false", "true"}},
    {"flags.mofedEnabled", {"true", "false", "true"}},
    {"flags.useNodeFeatureAPI", {"false", "true", "false"}},
    {"flags.deviceDiscoveryStrategy", {"nvml", "auto", "nvml"}},
    {"flags.plugin.passDeviceSpecs", {"true", "false", "true"}},
    {"flags.plugin.deviceListStrategy", {"cdi-cri", "volume-mounts", "cdi-annotations"}},
    {"flags.plugin.deviceIDStrategy", {"index", "uuid", "index"}},
    {"flags.plugin.cdiAnnotationPrefix", {"a.b/", "c/", "d/"}},
    {"flags.plugin.nvidiaCTKPath", {"/1", "/2", "/3"}},
    {"flags.plugin.containerDriverRoot", {"/drv/1", "/2", "/3"}},
    {"flags.plugin.sharedDevicesAllocationPolicy", {"packed", "distributed", "packed"}},
    {"flags.gfd.oneshot", {"true", "false", "true"}},
    {"flags.gfd.noTimestamp", {"true", "false", "true"}},
    {"flags.gfd.sleepInterval", {"infinite", "90s", "1500000ns"}},
    {"flags.gfd.outputFile", {"/o1", "/o2", "yes"}},
    {"flags.gfd.machineTypeFile", {"/m1", "null", "12"}},
    {"sharing.fractional.enabled", {"true", "false", "true"}},
    {"sharing.fractional.slots", {"1", "7", "1024"}},
    {"sharing.fractional.compute", {"slices", "turns", "slices"}},
    {"sharing.fractional.memory.min", {"1Gi", "1", "3Ki"}},
    {"sharing.fractional.memory.step", {"1Ki", "10", "5Mi"}},
    {"sharing.fractional.cores.min", {"5", "100", "1"}},
    {"sharing.fractional.cores.step", {"5", "10", "50"}},
    {"sharing.fractional.allow.priority", {"low", "normal", "high"}},
    {"sharing.fractional.allow.strategies",
     {"libsluice,mps", "timeSlicing", "libsluice,mps,timeSlicing"}},
    {"sharing.fractional.allow.burst", {"0", "50", "100"}},
    {"sharing.fractional.allow.resize", {"never", "allocated", "free"}},
    {"sharing.fractional.allow.resizeTo", {"0", "50", "100"}},
    {"vm.enabled", {"true", "false", "true"}},
    {"vm.by", {"plugins", "claims", "auto"}},
    {"vm.pciIDs", {"/a", "/b b", "/c"}},
    {"imex.channelIDs", {"0", "", "0"}},
    {"imex.required", {"true", "false", "true"}},
    {"health.ignoreXIDs", {"1,2", "all", "48,13"}},
    {"health.watchXIDs", {"13", "48", "all"}},
    {"health.recoverAfter", {"5s", "infinite", "1500000ns"}},
    {"health.recoverAfterReset", {"10m", "infinite", "1s"}},
};
#define SAMPLES (sizeof(samples) / sizeof(samples[0]))

/* A value as the file has it: texts that look like something else in quotes, lists in brackets. */
static void put_in_file(FILE *f, const struct sl_schema_row *row, const char *text)
{
    if (row->type == SL_TYPE_CHANNELS || row->type == SL_TYPE_XIDS ||
        row->type == SL_TYPE_STRATEGIES)
        (void)fprintf(f, "[%s]", text);
    else if (row->type == SL_TYPE_STRING)
        (void)fprintf(f, "'%s'", text);
    else
        (void)fputs(text, f);
}

/* {flags: {plugin: {passDeviceSpecs: true}}} */
static char *file_with(const char *path, const char *value)
{
    char *text = NULL;
    size_t size = 0;
    int depth = 1;
    FILE *f = open_memstream(&text, &size);
    (void)fputc('{', f);
    for (const char *p = path; *p; p++) {
        if (*p == '.') {
            (void)fputs(": {", f);
            depth++;
        } else {
            (void)fputc(*p, f);
        }
    }
    (void)fputs(": ", f);
    put_in_file(f, sl_schema_path(path), value);
    while (depth-- > 0)
        (void)fputc('}', f);
    assert_int_equal(fclose(f), 0);
    return text;
}

static void every_key_has_a_sample(void **state)
{
    (void)state;
    for (size_t i = 0; i < sl_schema_count; i++) {
        const struct sl_schema_row *row = &sl_schema[i];
        bool special = !row->path || row->type == SL_TYPE_SECTION || row->type == SL_TYPE_ITEMS ||
                       row->type == SL_TYPE_VERSION || strncmp(row->path, "sharing.", 8) == 0 ||
                       strstr(row->path, "[]"); /* other tests */
        bool seen = special;
        for (size_t s = 0; s < SAMPLES && !seen; s++)
            seen = strcmp(samples[s].path, row->path) == 0;
        if (!seen)
            fail_msg("%s has no sample", row->path);
    }
}

static void keys_are_read_and_printed(void **state)
{
    (void)state;
    for (size_t s = 0; s < SAMPLES; s++)
        for (size_t v = 0; v < 3; v++) {
            char *text = file_with(samples[s].path, samples[s].value[v]);
            struct sl_config *c = config_of(text);
            check_round_trip(c);
            sl_config_free(c);
            free(text);
        }
}

/* What a value looks like once read, for comparing one way of saying it with another. */
static char *read_back(const char *path, const char *value)
{
    char *text = file_with(path, value);
    struct sl_config *c = config_of(text);
    char *shown = strdup(value_at(c, path));
    sl_config_free(c);
    free(text);
    return shown;
}

static void check_says(const char *text, char *const *env, const struct sl_config_override *flags,
                       size_t count, const char *path, const char *expected_value)
{
    struct sl_config *c = NULL;
    struct sl_err err = SL_ERR_INIT;
    if (sl_config_parse("c.yaml", text, text ? strlen(text) : 0, env, flags, count, &c, &err) < 0)
        fail_msg("%s: %s", path, err.msg);
    char *expected = read_back(path, expected_value);
    assert_string_equal(value_at(c, path), expected);
    free(expected);
    sl_config_free(c);
}

static void command_line_before_environment_before_file(void **state)
{
    (void)state;
    size_t flags_tried = 0, variables_tried = 0;
    for (size_t s = 0; s < SAMPLES; s++) {
        const struct sl_schema_row *row = sl_schema_path(samples[s].path);
        const char *path = samples[s].path;
        char *text = file_with(path, samples[s].value[0]);
        char name[64], variable[200];
        char *env[] = {variable, NULL};
        check_says(text, NULL, NULL, 0, path, samples[s].value[0]);
        for (size_t n = 0; sl_schema_env(row, n, name, sizeof(name)); n++) {
            (void)snprintf(variable, sizeof(variable), "%s=%s", name, samples[s].value[1]);
            /* A variable set to nothing says nothing. */
            const char *counts = samples[s].value[1][0] ? samples[s].value[1] : samples[s].value[0];
            check_says(text, env, NULL, 0, path, counts);
            variables_tried++;
            for (size_t k = 0; sl_schema_name(row->flag, k, name, sizeof(name)); k++) {
                struct sl_config_override flag = {name, samples[s].value[2]};
                check_says(text, env, &flag, 1, path, samples[s].value[2]);
                check_says(NULL, env, &flag, 1, path, samples[s].value[2]);
                flags_tried++;
            }
        }
        free(text);
    }
    assert_true(flags_tried >= 30 && variables_tried >= 27);
}

/* Equality is what the printing is judged by: it has to see every difference. */
static void equality_sees_every_difference(void **state)
{
    (void)state;
    static const char *const different[] = {
        "",
        "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}",
        "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}",
        "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 3}]}}",
        "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, rename: x}]}}",
        "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: 1}]}}",
        "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [1]}]}}",
        "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [2]}]}}",
        "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}, {name: a, replicas: 2}]}}",
        "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}",
        "resources: {gpus: [{pattern: a, name: b}]}",
        "resources: {gpus: [{pattern: c, name: b}]}",
        "resources: {mig: [{pattern: a, name: b}]}",
        "health: {ignoreXIDs: [1]}",
        "health: {ignoreXIDs: [2]}",
        "health: {watchXIDs: [1]}",
    };
    enum { COUNT = sizeof(different) / sizeof(different[0]) };
    struct sl_config *c[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        c[i] = config_of(different[i]);
    for (size_t i = 0; i < COUNT; i++)
        for (size_t j = 0; j < COUNT; j++)
            if (sl_config_equal(c[i], c[j]) != (i == j))
                fail_msg("%s\n%s\nare taken for %s", different[i], different[j],
                         i == j ? "different" : "equal");
    for (size_t s = 0; s < SAMPLES; s++) {
        char *text = file_with(samples[s].path, samples[s].value[0]);
        struct sl_config *other = config_of(text);
        if (sl_config_equal(c[0], other))
            fail_msg("%s is taken for the default", text);
        sl_config_free(other);
        free(text);
    }
    for (size_t i = 0; i < COUNT; i++)
        sl_config_free(c[i]);
}

static void times_as_go_writes_them(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ns;
    } times[] = {{"60s", 60000000000},    {"1m30s", 90000000000},
                 {"1.5h", 5400000000000}, {"1h1.5s", 3601500000000},
                 {"250ms", 250000000},    {"0.000000001s", 1},
                 {"1us", 1000},           {"999999999s", 999999999000000000}};
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        struct sl_config_override flag = {"sleep-interval", times[i].text};
        struct sl_config *c = NULL;
        assert_int_equal(sl_config_parse("", NULL, 0, NULL, &flag, 1, &c, NULL), 0);
        assert_int_equal(c->gfd_sleep_ns, times[i].ns);
        check_round_trip(c);
        sl_config_free(c);
    }
}

static void flags_as_a_command_line_has_them(void **state)
{
    (void)state;
    static const struct sl_config_override flags[] = {
        {"pass-device-specs", "true"},
        {"device-list-strategy", "cdi-cri,envvar"},
        {"device-list-strategy", "volume-mounts"},
        {"mig-strategy", "mixed"},
        {"mig-strategy", "single"},
        {"kubelet-socket", "/k"},
        {"cdi-feature-flags", "x"},
        {"cdi-disable-hooks", "all"},
    };
    struct sl_config *c = NULL;
    assert_int_equal(sl_config_parse("", NULL, 0, NULL, flags, 8, &c, NULL), 0);
    assert_true(c->pass_device_specs);
    assert_int_equal(c->list_strategy, SL_LIST_CDI_CRI | SL_LIST_ENVVAR | SL_LIST_VOLUME_MOUNTS);
    assert_int_equal(c->mig_strategy, SL_MIG_SINGLE);
    assert_string_equal(c->kubelet_socket, "/k");
    assert_string_equal(c->cdi_disable_hooks, "all");
    sl_config_free(c);

    bool takes = false;
    assert_true(sl_config_is_flag("mig-strategy", &takes) && takes);
    assert_true(sl_config_is_flag("pass-device-specs", &takes) && !takes);
    assert_true(sl_config_is_flag("container-driver-root", &takes) && takes);
    assert_false(sl_config_is_flag("container", &takes));
}

static void the_empty_file_is_the_default(void **state)
{
    (void)state;
    static const char *const empty[] = {"",
                                        "\n",
                                        "# nothing\n",
                                        "version: v1",
                                        "{}",
                                        "---\n",
                                        "version:\nflags:",
                                        "~",
                                        "sharing: {timeSlicing: null, mps: ~}"};
    struct sl_config *none = NULL;
    assert_int_equal(sl_config_parse(NULL, NULL, 0, NULL, NULL, 0, &none, NULL), 0);
    for (size_t i = 0; i < sizeof(empty) / sizeof(empty[0]); i++) {
        struct sl_config *c = config_of(empty[i]);
        assert_true(sl_config_equal(none, c));
        sl_config_free(c);
    }
    assert_int_equal(none->mig_strategy, SL_MIG_NONE);
    assert_int_equal(none->list_strategy, SL_LIST_ENVVAR);
    assert_string_equal(none->dev_root, "/");
    assert_string_equal(none->mps_root, "/run/nvidia/mps");
    assert_int_equal(none->gfd_sleep_ns, 60000000000ULL);
    assert_true(none->fail_on_init_error && none->health_checks && !none->fractional.enabled);
    check_round_trip(none);
    sl_config_free(none);
}

static void roots_follow_each_other(void **state)
{
    (void)state;
    struct sl_config *c = config_of("flags: {nvidiaDriverRoot: /run/nvidia/driver, mpsRoot: ''}");
    assert_string_equal(c->dev_root, "/run/nvidia/driver");
    assert_string_equal(c->mps_root, "/run/nvidia/mps");
    sl_config_free(c);
}

static struct sl_config *with_xids(const char *disable, const char *enable)
{
    char a[64], b[64];
    char *env[] = {a, b, NULL};
    struct sl_config *c = NULL;
    (void)snprintf(a, sizeof(a), "DP_DISABLE_HEALTHCHECKS=%s", disable);
    (void)snprintf(b, sizeof(b), "DP_ENABLE_HEALTHCHECKS=%s", enable);
    assert_int_equal(sl_config_parse("", NULL, 0, env, NULL, 0, &c, NULL), 0);
    check_round_trip(c);
    return c;
}

static void xids_are_ignored_as_nvidias(void **state)
{
    (void)state;
    static const struct {
        const char *disable, *enable;
        bool checks;
        bool ignored[3]; /* 13 (the application's), 48, 79 */
    } days[] = {
        {"", "", true, {true, false, false}},      {"48", "", true, {true, true, false}},
        {"48, 79,", "", true, {true, true, true}}, {"all", "", false, {true, true, true}},
        {"XIDS", "", false, {true, true, true}},   {"all", "48", true, {true, false, true}},
        {"", "13", true, {false, false, false}},   {"79", "all", true, {false, false, false}},
    };
    for (size_t i = 0; i < sizeof(days) / sizeof(days[0]); i++) {
        struct sl_config *c = with_xids(days[i].disable, days[i].enable);
        assert_int_equal(c->health_checks, days[i].checks);
        assert_int_equal(sl_config_xid_ignored(c, 13), days[i].ignored[0]);
        assert_int_equal(sl_config_xid_ignored(c, 48), days[i].ignored[1]);
        assert_int_equal(sl_config_xid_ignored(c, 79), days[i].ignored[2]);
        sl_config_free(c);
    }
}

static void shared_entries_in_every_form(void **state)
{
    (void)state;
    struct sl_config *c =
        config_of("sharing:\n"
                  "  mps:\n"
                  "    renameByDefault: yes\n"
                  "    failRequestsGreaterThanOne: off\n"
                  "    resources:\n"
                  "    - {name: gpu, replicas: 1, devices: all, rename: mine}\n"
                  "    - {name: a, replicas: 60, devices: 3}\n"
                  "    - name: nvidia.com/b\n"
                  "      replicas: 7\n"
                  "      devices: [0, '1', \"0:1\", GPU-0123abcd-0123-89ab-CDEF-0123456789ab, "
                  "MIG-GPU-0123abcd-0123-89ab-cdef-0123456789ab/1/0]\n");
    assert_int_equal(c->sharing, SL_SHARING_MPS);
    assert_true(c->rename_by_default && !c->fail_requests_greater_than_one);
    assert_int_equal(c->shared_count, 3);
    const struct sl_config_shared *s = c->shared;
    assert_string_equal(s[0].name, "nvidia.com/gpu");
    assert_string_equal(s[0].rename, "nvidia.com/mine");
    assert_true(s[0].all_devices && s[0].replicas == 1);
    assert_true(!s[1].all_devices && s[1].device_count == 3 && !s[1].rename);
    assert_true(!s[2].all_devices && s[2].devices_count == 5);
    assert_string_equal(s[2].devices[1], "1");
    assert_string_equal(s[2].devices[4], "MIG-GPU-0123abcd-0123-89ab-cdef-0123456789ab/1/0");
    assert_true(s[2].line == 8 && s[2].column == 7);
    check_round_trip(c);
    sl_config_free(c);
}

static void json_is_yaml(void **state)
{
    (void)state;
    struct sl_config *c = config_of("{\"version\": \"v1\", \"sharing\": {\"timeSlicing\": {"
                                    "\"resources\": [{\"name\": \"nvidia.com/gpu\", "
                                    "\"replicas\": 4}]}},\n\"resources\": {\"gpus\": [{\"pattern\":"
                                    "\"*H200*\", \"name\": \"big\"}], \"mig\": []}}");
    assert_int_equal(c->shared[0].replicas, 4);
    assert_false(c->fail_requests_greater_than_one);
    assert_string_equal(((const struct sl_config_pattern *)c->gpus.item)->name, "nvidia.com/big");
    check_round_trip(c);
    sl_config_free(c);
}

/* NVIDIA's documented examples, from disk. */
static void documented_examples_are_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        enum sl_sharing sharing;
        enum sl_mig_strategy mig;
        bool at_most_one;
    } examples[] = {{"time-slicing.yaml", SL_SHARING_TIME_SLICING, SL_MIG_NONE, false},
                    {"mps.yaml", SL_SHARING_MPS, SL_MIG_NONE, true},
                    {"mig-mixed.yaml", SL_SHARING_TIME_SLICING, SL_MIG_MIXED, false},
                    {"time-slicing-renamed.yaml", SL_SHARING_TIME_SLICING, SL_MIG_NONE, false},
                    {"mps-renamed.yaml", SL_SHARING_MPS, SL_MIG_NONE, true},
                    {"operator-any.yaml", SL_SHARING_TIME_SLICING, SL_MIG_NONE, false},
                    {"operator-mixed.yaml", SL_SHARING_TIME_SLICING, SL_MIG_MIXED, false},
                    {"flags.yaml", SL_SHARING_NONE, SL_MIG_NONE, false}};
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        char path[400];
        struct sl_config *c = NULL;
        struct sl_err err = SL_ERR_INIT;
        (void)snprintf(path, sizeof(path), "%s/%s", TEST_DATA, examples[i].file);
        if (sl_config_load(path, NULL, NULL, 0, &c, &err) < 0)
            fail_msg("%s", err.msg);
        assert_int_equal(c->sharing, examples[i].sharing);
        assert_int_equal(c->mig_strategy, examples[i].mig);
        assert_int_equal(c->fail_requests_greater_than_one, examples[i].at_most_one);
        assert_string_equal(c->config_file, path);
        check_round_trip(c);
        sl_config_free(c);
    }
}

/* A block of random entries, each of a resource of its own. */
static void random_block(FILE *f, struct rng *r)
{
    static const char *const devices[] = {"all", "2", "[0, 1]",
                                          "[GPU-0123abcd-0123-89ab-cdef-0123456789ab, '3:1']"};
    (void)fprintf(f, "  %s:\n    renameByDefault: %s\n    resources:\n",
                  rng_below(r, 2) ? "mps" : "timeSlicing", rng_below(r, 2) ? "true" : "false");
    for (uint64_t n = 1 + rng_below(r, 4), i = 0; i < n; i++) {
        (void)fprintf(f, "    - name: r%d\n      replicas: %d\n", (int)i,
                      2 + (int)rng_below(r, 58));
        if (rng_below(r, 2))
            (void)fprintf(f, "      devices: %s\n", devices[rng_below(r, 4)]);
        if (rng_below(r, 3) == 0)
            (void)fprintf(f, "      rename: nvidia.com/x%d.y\n", (int)i);
    }
}

static void random_files_are_printed_as_read(void **state)
{
    (void)state;
    struct rng r = {2026};
    for (int round = 0; round < 1500; round++) {
        char *text = NULL;
        size_t size = 0;
        struct sl_config_override flags[4];
        char names[4][64];
        FILE *f = open_memstream(&text, &size);
        (void)fputs("sharing:\n", f);
        if (rng_below(&r, 2))
            random_block(f, &r);
        for (size_t i = 0; i < 4; i++) {
            const struct sl_schema_row *row;
            size_t s;
            do {
                s = rng_below(&r, SAMPLES);
                row = sl_schema_path(samples[s].path);
            } while (!sl_schema_name(row->flag, 0, names[i], sizeof(names[i])));
            flags[i] = (struct sl_config_override){names[i], samples[s].value[rng_below(&r, 3)]};
            if (strcmp(flags[i].value, "mixed") == 0)
                flags[i].value = "single"; /* does not go with MPS */
        }
        assert_int_equal(fclose(f), 0);
        struct sl_config *c = NULL;
        struct sl_err err = SL_ERR_INIT;
        if (sl_config_parse("c", text, size, NULL, flags, 4, &c, &err) < 0)
            fail_msg("%s\n%s", text, err.msg);
        check_round_trip(c);
        sl_config_free(c);
        free(text);
    }
}

/* What may be asked for: safe where nothing is said, and what any entry for the namespace adds. */
static void who_may_ask_for_what(void **state)
{
    (void)state;
    struct sl_config *c = config_of("{}");
    struct sl_config_allow a = sl_config_allowed(c, "any"), none = sl_config_allowed(NULL, "any");
    assert_memory_equal(&a, &none, sizeof(a));
    assert_int_equal(a.strategies, 1u << SL_SHARE_LIBSLUICE);
    assert_int_equal(a.priority, SL_PRIORITY_NORMAL);
    assert_int_equal(a.resize, SL_ALLOW_ALLOCATED);
    sl_config_free(c);
    c = config_of("sharing: {fractional: {allow: {priority: low, burst: 30, namespaces: ["
                  "{name: 'ml-*', priority: high, strategies: [mps]},"
                  "{name: ml-a, burst: 60, resize: free, resizeTo: 25}, {name: 'ml-?', resize: "
                  "free, resizeTo: 40}]}}}");
    check_round_trip(c);
    a = sl_config_allowed(c, "other");
    assert_true(a.priority == SL_PRIORITY_LOW && a.strategies == 1u << SL_SHARE_LIBSLUICE &&
                a.burst == 30);
    a = sl_config_allowed(c, "ml-long");
    assert_true(a.priority == SL_PRIORITY_HIGH &&
                a.strategies == (1u << SL_SHARE_LIBSLUICE | 1u << SL_SHARE_MPS));
    assert_true(a.resize == SL_ALLOW_ALLOCATED && a.burst == 30);
    a = sl_config_allowed(c, "ml-a");
    assert_true(a.burst == 60 && a.resize == SL_ALLOW_FREE && a.resize_to == 40);
    sl_config_free(c);
}

static void virtual_machines(void **state)
{
    (void)state;
    static const char uuid[] = "GPU-7f3c2a10-5e7b-4a44-9d0c-0f1f4f5a6b7c";
    struct sl_config *c = config_of("{}"), *d;
    assert_false(c->vm.enabled);
    assert_string_equal(c->vm.pci_ids, "");
    check_round_trip(c);
    sl_config_free(c);
    c = config_of("vm: {enabled: true, resources: [{pattern: '10de:2335', name: H200_SXM}]}\n"
                  "sharing: {vgpu: [{name: NVIDIA L40S-8Q, count: 4, devices: ['0000:3b:00.0', "
                  "GPU-7f3c2a10-5e7b-4a44-9d0c-0f1f4f5a6b7c]}, {name: NVIDIA A40-1Q, count: 64}]}");
    const struct sl_config_pattern *p = c->vm.resources.item;
    const struct sl_config_vgpu *v = c->vm.vgpu.item;
    assert_string_equal(p->name, "nvidia.com/H200_SXM");
    assert_int_equal(c->vm.vgpu.count, 2);
    assert_string_equal(v[0].name, "NVIDIA L40S-8Q");
    assert_int_equal(v[0].devices.count, 2);
    assert_string_equal(v[0].devices.text[1], uuid);
    assert_true(v[1].count == 64 && v[1].devices.count == 0);
    check_round_trip(c);
    d = config_of("vm: {enabled: true, resources: [{pattern: '10de:2335', name: H200_SXM}]}\n"
                  "sharing: {vgpu: [{name: NVIDIA L40S-8Q, count: 4, devices: ['0000:3b:00.0', "
                  "'0000:3c:00.0']}, {name: NVIDIA A40-1Q, count: 64}]}");
    assert_false(sl_config_equal(c, d));
    sl_config_free(c);
    sl_config_free(d);
}

/* The page has every key, flag and variable of the table. */
static void the_page_names_everything(void **state)
{
    (void)state;
    static char page[1 << 17];
    FILE *f = fopen(TEST_DATA "/../../../docs/config.md", "r");
    assert_non_null(f);
    size_t n = fread(page, 1, sizeof(page) - 1, f);
    (void)fclose(f);
    assert_true(n > 0 && n < sizeof(page) - 1);
    for (size_t i = 0; i < sl_schema_count; i++) {
        const struct sl_schema_row *row = &sl_schema[i];
        char name[64], word[120];
        bool block = row->path && (strncmp(row->path, "sharing.timeSlicing.", 20) == 0 ||
                                   strncmp(row->path, "sharing.mps.", 12) == 0);
        if (row->path && row->type != SL_TYPE_SECTION && row->type != SL_TYPE_ITEMS) {
            /* Both blocks are one line of the page: sharing.*.resources[].name */
            const char *rest = block ? strchr(row->path + 8, '.') : row->path;
            (void)snprintf(word, sizeof(word), "`%s%s`", block ? "sharing.*" : "", rest);
            if (!strstr(page, word))
                fail_msg("docs/config.md lacks %s", word);
        }
        for (size_t k = 0; sl_schema_name(row->flag, k, name, sizeof(name)); k++) {
            (void)snprintf(word, sizeof(word), "`--%s`", name);
            if (!strstr(page, word))
                fail_msg("docs/config.md lacks %s", word);
        }
        for (size_t k = 0; row->env && sl_schema_env(row, k, name, sizeof(name)); k++)
            if (!strstr(page, name))
                fail_msg("docs/config.md lacks %s", name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_has_a_sample),
        cmocka_unit_test(keys_are_read_and_printed),
        cmocka_unit_test(command_line_before_environment_before_file),
        cmocka_unit_test(equality_sees_every_difference),
        cmocka_unit_test(who_may_ask_for_what),
        cmocka_unit_test(times_as_go_writes_them),
        cmocka_unit_test(flags_as_a_command_line_has_them),
        cmocka_unit_test(the_empty_file_is_the_default),
        cmocka_unit_test(roots_follow_each_other),
        cmocka_unit_test(xids_are_ignored_as_nvidias),
        cmocka_unit_test(shared_entries_in_every_form),
        cmocka_unit_test(virtual_machines),
        cmocka_unit_test(json_is_yaml),
        cmocka_unit_test(documented_examples_are_accepted),
        cmocka_unit_test(random_files_are_printed_as_read),
        cmocka_unit_test(the_page_names_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
