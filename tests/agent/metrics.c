/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics' text: word for word for a small node, by the format's grammar, and against docs/metrics.md. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "agent/metrics/metrics.h"

static struct sl_metrics_gpu gpus[] = {
    {"GPU-a",
     "NVIDIA H200",
     "00000000:1B:00.0",
     0,
     true,
     {150754820096.0, 4294967296.0, 0.25, 312.5, 41}},
    {"GPU-b", "NVIDIA H200", "00000000:1C:00.0", 1, false, {150754820096.0, NAN, NAN, NAN, NAN}},
};
static struct sl_metrics_mig migs[] = {
    {"GPU-b", "MIG-1", "1g.18gb", 17179869184.0, 0},
};
static struct sl_metrics_compute compute[] = {
    {"GPU-a", false, NULL},
    {"GPU-b", true, "a tenant asked for turns"},
};
static struct sl_metrics_xid xids[] = {{"GPU-b", 79, 1}, {"GPU-b", 31, 12}};
static struct sl_metrics_resource resources[] = {
    {{"nvidia.com/gpu", 4, 2, true, false, {2, 5, 1, 4, 3}}, 3},
    {{"nvidia.com/mig-1g.18gb", 1, 1, false, true, {0, 0, 0, 0, 0}}, NAN},
};
static const struct sl_podres_device device = {"nvidia.com/gpu", "GPU-1::0", "default", "train-0",
                                               "main"};
static struct sl_metrics_allocation held[] = {{&device, "GPU-1"}};
static struct sl_metrics_vm vms[] = {
    {"nvidia.com/GH100_H200_SXM_141GB", "0000:3b:00.0", "passthrough", "0000:3b:00.0", "", "claims",
     true, 1},
    {"nvidia.com/NVIDIA_L40S-8Q", "0000:4e:00.4", "vgpu-vf", "0000:4e:00.0", "NVIDIA L40S-8Q",
     "plugins", false, NAN},
};
static struct sl_metrics_tenant tenants[] = {
    {"t1", "team-a", "train-0", "main", "gpu-claim", "GPU-a", 1073741824.0, 536870912.0, 0.3, 1,
     0.301, 12.25, 1.5, 77, 2, 3},
    {"t1", "team-a", "train-0", "main", "gpu-claim", "GPU-b", 1073741824.0, 0, 0.3, 1, 0, 12.25,
     1.5, 77, 2, 3},
    {"odd \"name\"\\\n", NULL, NULL, NULL, NULL, "GPU-a", NAN, 0, NAN, NAN, 0, 0, 0, 0, 0, 0},
};
static const uint64_t bounds[] = {250000, 1000000000, UINT64_MAX}, taken[] = {4, 1, 1};

static struct sl_metrics everything(void)
{
    return (struct sl_metrics){
        .gpu = gpus,
        .gpu_count = 2,
        .mig = migs,
        .mig_count = 1,
        .compute = compute,
        .compute_count = 2,
        .xid = xids,
        .xid_count = 2,
        .resource = resources,
        .resource_count = 2,
        .allocation = held,
        .allocation_count = 1,
        .vm = vms,
        .vm_count = 2,
        .tenant = tenants,
        .tenant_count = 3,
        .agent = {.version = "0.1.0",
                  .node = "node-1",
                  .start_time_seconds = 1763189402.25,
                  .reloads_ok = 3,
                  .reloads_failed = 1,
                  .reload_error = "a.yaml:3:5: unknown key \"shraing\"",
                  .reload_time_seconds = 1763189500,
                  .allocate = {bounds, taken, 3, 2750000000},
                  .dra = {true, 2, 7, 1, 5, 0, true},
                  .kubelet_connected = true,
                  .ready = true,
                  .labels_current = true,
                  .label_writes = 2,
                  .events_sent = 4,
                  .resident_bytes = 9437184,
                  .cpu_seconds = 0.125,
                  .open_fds = 23,
                  .loop_lag_seconds = 0.000125,
                  .sample_age_seconds = 2.5,
                  .nvml_up = true,
                  .has_arbiter = true,
                  .arbiter_up = true},
    };
}

static char *text_of(const struct sl_metrics *m)
{
    char *text = NULL;
    size_t size = 0;
    text = sl_metrics_text(m, &size);
    assert_int_equal(strlen(text), size);
    return text;
}

static void word_for_word(void **state)
{
    (void)state;
    struct sl_metrics m = everything();
    char *text = text_of(&m);
    FILE *f = fopen(METRICS_GOLDEN, "re");
    assert_non_null(f);
    char golden[16384];
    golden[fread(golden, 1, sizeof(golden) - 1, f)] = '\0';
    (void)fclose(f);
    assert_string_equal(text, golden);
    free(text);
}

/* ---- the format's grammar, strictly ---- */

static const char *name_end(const char *s)
{
    if (!isalpha((unsigned char)*s) && *s != '_')
        return NULL;
    while (isalnum((unsigned char)*s) || *s == '_')
        s++;
    return s;
}

static const char *labels_end(const char *s)
{
    if (*s != '{')
        return s;
    do {
        s = name_end(s + 1);
        if (!s || s[0] != '=' || s[1] != '"')
            return NULL;
        for (s += 2; *s != '"'; s++) {
            if (*s == '\\') {
                s++;
                if (*s != '\\' && *s != '"' && *s != 'n')
                    return NULL;
            } else if (*s == '\0') {
                return NULL;
            }
        }
        s++;
    } while (*s == ',');
    return *s == '}' ? s + 1 : NULL;
}

struct grammar {
    char family[128], type[16];
    char seen[96][128]; /* families that are over */
    size_t seen_count;
    char samples[256][256]; /* name and labels: each once */
    size_t samples_count;
};

static void header_line(struct grammar *g, const char *line)
{
    char name[128], rest[256];
    if (sscanf(line, "# HELP %127s %255[^\n]", name, rest) == 2) {
        for (size_t i = 0; i < g->seen_count; i++)
            assert_string_not_equal(g->seen[i], name);
        (void)strcpy(g->seen[g->seen_count++], name);
        (void)strcpy(g->family, name);
        g->type[0] = '\0';
        assert_int_equal(rest[strlen(rest) - 1], '.');
    } else {
        assert_int_equal(sscanf(line, "# TYPE %127s %15s", name, g->type), 2);
        assert_string_equal(name, g->family);
        size_t n = strlen(name);
        bool total = n > 6 && strcmp(name + n - 6, "_total") == 0;
        assert_int_equal(total, strcmp(g->type, "counter") == 0);
    }
}

/* What may follow the family's name. */
static bool suffix_fits(const struct grammar *g, const char *suffix, size_t n)
{
    static const char *const parts[] = {"_bucket", "_sum", "_count"};
    if (strcmp(g->type, "histogram") != 0)
        return n == 0;
    for (size_t i = 0; i < 3; i++)
        if (strlen(parts[i]) == n && strncmp(parts[i], suffix, n) == 0)
            return true;
    return false;
}

static void sample_line(struct grammar *g, const char *line)
{
    const char *end = name_end(line);
    size_t family = strlen(g->family);
    assert_non_null(end);
    assert_true((size_t)(end - line) >= family);
    assert_memory_equal(line, g->family, family);
    assert_true(suffix_fits(g, line + family, (size_t)(end - line) - family));
    assert_true(g->type[0]);
    end = labels_end(end);
    assert_non_null(end);
    for (size_t i = 0; i < g->samples_count; i++)
        assert_false(strlen(g->samples[i]) == (size_t)(end - line) &&
                     strncmp(g->samples[i], line, (size_t)(end - line)) == 0);
    (void)snprintf(g->samples[g->samples_count++], 256, "%.*s", (int)(end - line), line);
    assert_int_equal(*end, ' ');
    char *rest = NULL;
    double value = strtod(end + 1, &rest);
    assert_true(rest != end + 1 && *rest == '\0' && isfinite(value));
}

static void by_the_grammar(void **state)
{
    (void)state;
    struct sl_metrics m = everything(), nothing = {0};
    m.names = SL_METRICS_SLUICE | SL_METRICS_HAMI | SL_METRICS_DCGM;
    const struct sl_metrics *both[] = {&m, &nothing};
    for (size_t i = 0; i < 2; i++) {
        struct grammar *g = calloc(1, sizeof(*g));
        char *text = text_of(both[i]), *rest = NULL;
        assert_int_equal(text[strlen(text) - 1], '\n');
        for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
            if (*line == '#')
                header_line(g, line);
            else
                sample_line(g, line);
        }
        assert_true(g->samples_count > 10);
        free(text);
        free(g);
    }
}

static void what_is_not_there_is_not_down(void **state)
{
    (void)state;
    struct sl_metrics m = everything();
    m.agent.has_arbiter = m.agent.dra.on = false;
    m.agent.allocate.buckets = 0;
    char *text = text_of(&m);
    assert_null(strstr(text, "source=\"arbiter\""));
    assert_null(strstr(text, "sluice_claim"));
    assert_null(strstr(text, "sluice_resource_slices_current"));
    assert_null(strstr(text, "sluice_allocate_duration_seconds"));
    assert_non_null(strstr(text, "source=\"nvml\""));
    free(text);
}

static void unknown_is_left_out(void **state)
{
    (void)state;
    struct sl_metrics m = everything();
    char *text = text_of(&m);
    assert_null(strstr(text, " nan"));
    assert_non_null(strstr(text, "sluice_gpu_power_watts{gpu=\"GPU-a\"} 312.5\n"));
    assert_null(strstr(text, "sluice_gpu_power_watts{gpu=\"GPU-b\"}"));
    assert_non_null(strstr(text, "tenant=\"odd \\\"name\\\"\\\\\\n\",namespace=\"\""));
    free(text);
    m.gpu_count = 0;
    text = text_of(&m);
    assert_null(strstr(text, "sluice_gpu_power_watts"));
    free(text);
}

static void under_the_names_of_others(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "HostGPUMemoryUsage{deviceidx=\"0\",deviceuuid=\"GPU-a\",devicetype=\"NVIDIA H200\"} "
        "4294967296\n",
        "HostCoreUtilization{deviceidx=\"0\",deviceuuid=\"GPU-a\",devicetype=\"NVIDIA H200\"} 25\n",
        "vGPU_device_memory_limit_in_bytes{podnamespace=\"team-a\",podname=\"train-0\",ctrname="
        "\"main\",vdeviceid=\"1\","
        "deviceuuid=\"GPU-b\"} 1073741824\n",
        "Device_utilization_desc_of_container{podnamespace=\"team-a\",podname=\"train-0\",ctrname="
        "\"main\","
        "vdeviceid=\"0\",deviceuuid=\"GPU-a\"} 30.1\n",
        "DCGM_FI_DEV_FB_USED{gpu=\"0\",UUID=\"GPU-a\",pci_bus_id=\"00000000:1B:00.0\",device="
        "\"nvidia0\",modelName="
        "\"NVIDIA H200\",Hostname=\"node-1\"} 4096\n",
        "DCGM_FI_DEV_FB_FREE{gpu=\"0\"",
        "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\""};
    struct sl_metrics m = everything();
    m.names = SL_METRICS_HAMI | SL_METRICS_DCGM;
    char *text = text_of(&m);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (!strstr(text, lines[i]))
            fail_msg("no %s in:\n%s", lines[i], text);
    assert_null(strstr(text, "sluice_"));
    assert_null(strstr(text, "odd"));                           /* a tenant without a pod */
    assert_null(strstr(text, "DCGM_FI_DEV_FB_FREE{gpu=\"1\"")); /* not known */
    free(text);
}

static void words_for_names(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned names;
    } good[] = {
        {"sluice", 1}, {"hami", 2}, {"dcgm,sluice", 5}, {"sluice,hami,dcgm", 7}, {"hami,hami", 2}};
    static const char *const bad[] = {"",      ",",    "sluice,",     ",hami",
                                      "hamis", "HAMI", "sluice hami", "dcgm,,hami"};
    unsigned names;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(sl_metrics_names_parse(good[i].text, &names), 0);
        assert_int_equal(names, good[i].names);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(sl_metrics_names_parse(bad[i], &names), -EINVAL);
}

/* Every name of others is in the docs, and is written as the format wants it. */
static void others_as_documented(void **state)
{
    (void)state;
    static const char *const names[] = {
#define OTHER(whose, name, type, help, factor, ...) name,
#include "agent/metrics/metrics_others.def"
#undef OTHER
    };
    char page[32768], row[80];
    FILE *f = fopen(METRICS_DOC, "re");
    assert_non_null(f);
    page[fread(page, 1, sizeof(page) - 1, f)] = '\0';
    (void)fclose(f);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(row, sizeof(row), "`%s`", names[i]);
        if (!strstr(page, row))
            fail_msg("docs/metrics.md does not have %s", names[i]);
    }
}

/* Every family is in the docs with its type, and the docs have no other. */
static void as_documented(void **state)
{
    (void)state;
    static const struct {
        const char *name, *type;
    } families[] = {
#define FAMILY(name, type, help, ...) {name, type},
#include "agent/metrics/metrics_families.def"
#undef FAMILY
    };
    FILE *f = fopen(METRICS_DOC, "re");
    assert_non_null(f);
    char line[1024], name[128], type[16];
    size_t rows = 0;
    while (fgets(line, sizeof(line), f)) {
        if (sscanf(line, "* `%127[a-z_]` (%15[a-z]", name, type) != 2)
            continue;
        size_t i = 0;
        while (i < sizeof(families) / sizeof(families[0]) && strcmp(families[i].name, name) != 0)
            i++;
        if (i == sizeof(families) / sizeof(families[0]))
            fail_msg("docs/metrics.md has %s, the code has not", name);
        assert_string_equal(type, families[i].type);
        rows++;
    }
    (void)fclose(f);
    assert_int_equal(rows, sizeof(families) / sizeof(families[0]));
}

int main(int argc, char **argv)
{
    if (argc == 2 &&
        strcmp(argv[1], "--print") == 0) { /* for promtool, and for a new golden file */
        struct sl_metrics m = everything();
        char *text = text_of(&m);
        (void)fputs(text, stdout);
        free(text);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(word_for_word),       cmocka_unit_test(by_the_grammar),
        cmocka_unit_test(unknown_is_left_out), cmocka_unit_test(what_is_not_there_is_not_down),
        cmocka_unit_test(as_documented),       cmocka_unit_test(under_the_names_of_others),
        cmocka_unit_test(words_for_names),     cmocka_unit_test(others_as_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
