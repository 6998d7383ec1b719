/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with a file is said with its line and column, and what was probably meant. */
#include "config_case.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#define TS(entry)  "sharing: {timeSlicing: {resources: [" entry "]}}"
#define MPS(entry) "sharing: {mps: {resources: [" entry "]}}"
#define LONG52     "a23456789012345678901234567890123456789012345678901x" /* 63 with its domain */

static const struct {
    const char *text;
    const char *message; /* how it begins */
} bad[] = {
    /* keys */
    {"flag: {}", "c.yaml:1:1: unknown key \"flag\": did you mean \"flags\"?"},
    {"flags:\n  migStrateyg: none",
     "c.yaml:2:3: unknown key \"migStrateyg\" in flags: did you mean \"migStrategy\"?"},
    {"flags: {mig-strategy: none}",
     "c.yaml:1:9: unknown key \"mig-strategy\" in flags: did you mean \"migStrategy\"?"},
    {"flags: {passDeviceSpecs: true}", "c.yaml:1:9: unknown key \"passDeviceSpecs\" in flags: "
                                       "\"passDeviceSpecs\" belongs in flags.plugin"},
    {"migStrategy: none",
     "c.yaml:1:1: unknown key \"migStrategy\": \"migStrategy\" belongs in flags"},
    {"flags: {plugin: {version: v1}}", "c.yaml:1:18: unknown key \"version\" in flags.plugin: "
                                       "\"version\" belongs at the top of the file"},
    {"sharing: {time-slicing: {}}",
     "c.yaml:1:11: unknown key \"time-slicing\" in sharing: did you mean \"timeSlicing\"?"},
    {"sharing: {mps: {replicas: 2}}", "c.yaml:1:17: unknown key \"replicas\" in sharing.mps: "
                                      "\"replicas\" belongs in sharing.mps.resources[]"},
    {TS("{name: gpu, replica: 2}"),
     "c.yaml:1:49: unknown key \"replica\" in sharing.timeSlicing.resources[]: did you mean "
     "\"replicas\"?"},
    {"zzz: 1", "c.yaml:1:1: unknown key \"zzz\": the keys here are version, flags, resources, "},
    {"flags: {a\x01: 1}", "c.yaml:1:10: this is not YAML: control characters are not allowed"},
    {"flags: {\"a\\e\": 1}", "c.yaml:1:9: unknown key \"a?\" in flags"},
    {"flags: {gdsEnabled: true, gdsEnabled: true}",
     "c.yaml:1:27: key \"gdsEnabled\" is given twice"},
    {"? [a]\n: 1", "c.yaml:1:3: a key must be one word"},
    /* shapes */
    {"[]", "c.yaml:1:1: the file must consist of keys and values"},
    {"flags: 3", "c.yaml:1:8: flags must consist of keys and values"},
    {"flags: {migStrategy: [none]}", "c.yaml:1:22: flags.migStrategy takes one value, not a list"},
    {"flags: {migStrategy: {}}", "c.yaml:1:22: flags.migStrategy takes one value, not keys"},
    {"sharing: {mps: {resources: 3}}", "c.yaml:1:28: sharing.mps.resources must be a list"},
    {"{}\n---\n{}\n", "c.yaml:3:1: a second YAML document begins here"},
    {"a: b: c", "c.yaml:1:5: this is not YAML: mapping values are not allowed"},
    {"flags:\n\tx: 1", "c.yaml:2:1: this is not YAML: found character that cannot start any token"},
    {"flags: \xff", "c.yaml:1:8: this is not YAML: invalid leading UTF-8 octet"},
    {"flags:\n  mpsRoot: a\xff", "c.yaml:2:13: this is not YAML: invalid leading UTF-8 octet"},
    {"flags: *x", "c.yaml:1:8: this is not YAML: found undefined alias"},
    /* values */
    {"version: v2", "c.yaml:1:10: version: \"v2\" is not known: write version: v1"},
    {"flags: {migStrategy: singel}", "c.yaml:1:22: flags.migStrategy: \"singel\" is not known: did "
                                     "you mean \"single\"? Possible values: none, single or mixed"},
    {"flags: {migStrategy: 7}",
     "c.yaml:1:22: flags.migStrategy: \"7\" is not known: possible values: none, "},
    {"flags: {failOnInitError: \"true\"}",
     "c.yaml:1:26: flags.failOnInitError: \"true\" is a text: write true or false without quotes"},
    {"flags: {failOnInitError: maybe}",
     "c.yaml:1:26: flags.failOnInitError: \"maybe\" is not true or false"},
    {"flags: {mpsRoot: \"a\\tb\"}",
     "c.yaml:1:18: flags.mpsRoot: \"a?b\" has characters other than printable ASCII"},
    {"flags: {deviceDiscoveryStrategy: tegra}",
     "c.yaml:1:34: deviceDiscoveryStrategy \"tegra\": this agent finds GPUs by NVML only"},
    {"flags: {plugin: {deviceListStrategy: cdi}}",
     "c.yaml:1:38: flags.plugin.deviceListStrategy: \"cdi\" is not known: "},
    {"flags: {plugin: {deviceListStrategy: [envvar, cdi-crd]}}",
     "c.yaml:1:47: flags.plugin.deviceListStrategy: \"cdi-crd\" is not known: did you mean "
     "\"cdi-cri\"?"},
    {"flags: {plugin: {deviceListStrategy: []}}",
     "c.yaml:1:38: flags.plugin.deviceListStrategy: the list is empty"},
    {"flags: {plugin: {deviceListStrategy: [[envvar]]}}",
     "c.yaml:1:39: flags.plugin.deviceListStrategy: each entry of the list must be one value"},
    {"flags: {gfd: {sleepInterval: 60}}",
     "c.yaml:1:30: flags.gfd.sleepInterval: \"60\" is not a time"},
    {"flags: {gfd: {sleepInterval: 1x}}", "c.yaml:1:30: flags.gfd.sleepInterval: \"1x\" is not"},
    {"flags: {gfd: {sleepInterval: 1.5.5s}}", "c.yaml:1:30: flags.gfd.sleepInterval: "},
    {"flags: {gfd: {sleepInterval: 0s}}", "c.yaml:1:30: flags.gfd.sleepInterval: \"0s\" is not"},
    {"flags: {gfd: {sleepInterval: 999999999h}}", "c.yaml:1:30: flags.gfd.sleepInterval: "},
    {"sharing: {vgpu: [{name: A, count: 1}]}", "c.yaml:1:17: sharing.vgpu has no effect without"},
    {"vm: {enabled: true}\nsharing: {vgpu: [{name: A}]}", "c.yaml:2:18: sharing.vgpu[]: no count"},
    {"vm: {enabled: true}\nsharing: {vgpu: [{count: 1}]}", "c.yaml:2:18: sharing.vgpu[]: no name"},
    {"vm: {enabled: true}\nsharing: {vgpu: [{name: A, count: 65}]}", "c.yaml:2:35: sharing.vgpu[]"},
    {"vm: {enabled: true}\nsharing: {vgpu: [{name: A, count: 1, devices: [3b:00.0]}]}",
     "c.yaml:2:48: sharing.vgpu[].devices: \"3b:00.0\" is not a card"},
    {"vm: {enabled: true}\nsharing: {vgpu: [{name: A, count: 1}, {name: A, count: 2}]}",
     "c.yaml:2:17: sharing.vgpu: A is listed twice"},
    {"vm: {enable: true}", "c.yaml:1:6: unknown key \"enable\" in vm: did you mean \"enabled\"?"},
    {"vm: {by: claim}", "c.yaml:1:10: vm.by: \"claim\" is not known"},
    {"vm: {resources: [{name: x}]}", "c.yaml:1:18: vm.resources[]: no pattern"},
    {"vm: {resources: [{pattern: x}]}", "c.yaml:1:18: vm.resources[]: no name"},
    {"vm: {resources: [{pattern: x, name: \"a b\"}]}",
     "c.yaml:1:37: resource name \"a b\" is not valid"},
    {"vm: {resources: [{pattern: x, name: _a}]}", "c.yaml:1:37: resource name \"_a\" is not valid"},
    {"vm: {resources: [{pattern: x, name: gpu}]}",
     "c.yaml:1:17: vm.resources: nvidia.com/gpu is a resource"},
    {"vm: {resources: [{pattern: x, name: mig-1g.10gb}]}",
     "c.yaml:1:17: vm.resources: nvidia.com/mig-1g.10gb is a"},
    {"resources: {gpus: [{pattern: x, name: a}]}\nvm: {resources: [{pattern: x, name: a}]}",
     "c.yaml:2:17: vm.resources: nvidia.com/a is a resource of containers"},
    {"imex: {channelIDs: [1]}", "c.yaml:1:21: imex.channelIDs: \"1\": only IMEX channel 0"},
    {"imex: {channelIDs: 0}", "c.yaml:1:20: imex.channelIDs must be a list: write [] or [0]"},
    {"health: {ignoreXIDs: [x]}", "c.yaml:1:23: health.ignoreXIDs: \"x\" is not an XID"},
    {"sharing: {fractional: {memory: {min: 10%}}}",
     "c.yaml:1:38: sharing.fractional.memory.min: \"10%\" depends on the size of the card"},
    {"sharing: {fractional: {memory: {min: 10Gb}}}",
     "c.yaml:1:38: sharing.fractional.memory.min: memory \"10Gb\""},
    {"sharing: {fractional: {cores: {step: 101}}}",
     "c.yaml:1:38: sharing.fractional.cores.step: 101 is too high: at most 100"},
    {"sharing: {fractional: {slots: 0}}",
     "c.yaml:1:31: sharing.fractional.slots: 0 is too low: at least 1"},
    {"sharing: {fractional: {slots: many}}",
     "c.yaml:1:31: sharing.fractional.slots: \"many\" is not a whole number"},
    {"sharing: {fractional: {compute: slicse}}",
     "c.yaml:1:33: sharing.fractional.compute: \"slicse\" is not known: did you mean \"slices\"?"},
    {"sharing: {fractional: {compute: 1}}", "c.yaml:1:33: sharing.fractional.compute: "},
    /* sharing: every case NVIDIA's plugin refuses, and what it does not */
    {"sharing: {timeSlicing: {}}", "c.yaml:1:24: sharing.timeSlicing: no resources: "},
    {"sharing: {timeSlicing: {resources: []}}",
     "c.yaml:1:36: sharing.timeSlicing.resources: no resources: "},
    {"sharing: {mps: {resources: null}}", "c.yaml:1:16: sharing.mps: no resources: "},
    {TS("{replicas: 2}"), "c.yaml:1:37: sharing.timeSlicing.resources[]: no name: "},
    {TS("{name: gpu}"), "c.yaml:1:37: sharing.timeSlicing.resources[]: no replicas: "},
    {TS("{name: gpu, replicas: 1}"), "c.yaml:1:59: sharing.timeSlicing.resources[].replicas: 1 is "
                                     "too low: at least 2, because with fewer nothing is shared"},
    {TS("{name: gpu, replicas: 0}"), "c.yaml:1:59: sharing.timeSlicing.resources[].replicas: 0 is"},
    {TS("{name: gpu, replicas: -1}"), "c.yaml:1:59: sharing.timeSlicing.resources[].replicas: -1 "},
    {TS("{name: gpu, replicas: 1000000}"), "c.yaml:1:59: sharing.timeSlicing.resources[].replicas: "
                                           "1000000 is too high: at most 1024, because kubelet"},
    {TS("{name: gpu, replicas: 99999999999999999999}"),
     "c.yaml:1:59: sharing.timeSlicing.resources[].replicas: 99999999999999999999 is too high"},
    {TS("{name: gpu, replicas: \"4\"}"),
     "c.yaml:1:59: sharing.timeSlicing.resources[].replicas: \"4\" is a text"},
    {TS("{name: gpu, replicas: 2.5}"), "c.yaml:1:59: sharing.timeSlicing.resources[].replicas: "
                                       "\"2.5\" is not a whole number"},
    {MPS("{name: gpu, replicas: 0}"), "c.yaml:1:51: sharing.mps.resources[].replicas: 0 is too "
                                      "low: at least 1"},
    {MPS("{name: gpu, replicas: 61}"), "c.yaml:1:51: sharing.mps.resources[].replicas: 61 is too "
                                       "high: at most 60, because an MPS server"},
    {TS("{name: gpu, replicas: 2, devices: some}"),
     "c.yaml:1:71: sharing.timeSlicing.resources[].devices: \"some\" is neither \"all\", nor a "},
    {TS("{name: gpu, replicas: 2, devices: 0}"), "c.yaml:1:71: sharing.timeSlicing.resources[]."},
    {TS("{name: gpu, replicas: 2, devices: []}"), "c.yaml:1:71: sharing.timeSlicing.resources[]."
                                                  "devices: the list is empty"},
    {TS("{name: gpu, replicas: 2, devices: [x]}"), "c.yaml:1:72: sharing.timeSlicing.resources[]."
                                                   "devices: \"x\" is not a device"},
    {TS("{name: gpu, replicas: 2, devices: [1.5]}"),
     "c.yaml:1:72: sharing.timeSlicing.resources[]"},
    /* What NVIDIA's plugin refuses, too. */
    {TS("{name: gpu, replicas: 2, devices: [GPU-UUID]}"),
     "c.yaml:1:72: sharing.timeSlicing.resources[].devices: \"GPU-UUID\" is not a device"},
    {TS("{name: gpu, replicas: 2, devices: [GPU-12ab]}"),
     "c.yaml:1:72: sharing.timeSlicing.resources[].devices: \"GPU-12ab\" is not a device"},
    {TS("{name: gpu, replicas: 2, devices: [GPU-0123abcd-0123-89ab-cdef-0123456789a]}"),
     "c.yaml:1:72: sharing.timeSlicing.resources[].devices: "
     "\"GPU-0123abcd-0123-89ab-cdef-0123456789a\" is not a device"},
    {TS("{name: gpu, replicas: 2, devices: [GPU-0123abcd-0123-89ab-cdef-0123456789abc]}"),
     "c.yaml:1:72: sharing.timeSlicing.resources[].devices: "
     "\"GPU-0123abcd-0123-89ab-cdef-0123456789abc\" is not a device"},
    {TS("{name: gpu, replicas: 2, devices: [GPU-0123abcd0-123-89ab-cdef-0123456789ab]}"),
     "c.yaml:1:72: sharing.timeSlicing.resources[].devices: "
     "\"GPU-0123abcd0-123-89ab-cdef-0123456789ab\" is not a device"},
    {TS("{name: gpu, replicas: 2, devices: [MIG-0123abcd-0123-89ab-cdef-0123456789ab/1/0]}"),
     "c.yaml:1:72: sharing.timeSlicing.resources[].devices: "
     "\"MIG-0123abcd-0123-89ab-cdef-0123456789ab/1/0\" is not a device"},
    {TS("{name: gpu, replicas: 2, devices: [MIG-GPU-0123abcd-0123-89ab-cdef-0123456789ab]}"),
     "c.yaml:1:72: sharing.timeSlicing.resources[].devices: "
     "\"MIG-GPU-0123abcd-0123-89ab-cdef-0123456789ab\" is not a device"},
    {TS("{name: gpu, replicas: 2, devices: [MIG-GPU-0123abcd-0123-89ab-cdef-0123456789ab/1]}"),
     "c.yaml:1:72: sharing.timeSlicing.resources[].devices: "
     "\"MIG-GPU-0123abcd-0123-89ab-cdef-0123456789ab/1\" is not a device"},
    {TS("{name: gpu, replicas: 2, devices: [MIG-GPU-0123abcd-0123-89ab-cdef-0123456789ab/1/]}"),
     "c.yaml:1:72: sharing.timeSlicing.resources[].devices: "
     "\"MIG-GPU-0123abcd-0123-89ab-cdef-0123456789ab/1/\" is not a device"},
    {TS("{name: gpu, replicas: 2, devices: [MIG-GPU-0123abcd-0123-89ab-cdef-0123456789ab/1/0/]}"),
     "c.yaml:1:72: sharing.timeSlicing.resources[].devices: "
     "\"MIG-GPU-0123abcd-0123-89ab-cdef-0123456789ab/1/0/\" is not a device"},
    {TS("{name: gpu, replicas: 2, devices: [CPU-0123abcd-0123-89ab-cdef-0123456789ab]}"),
     "c.yaml:1:72: sharing.timeSlicing.resources[].devices: "
     "\"CPU-0123abcd-0123-89ab-cdef-0123456789ab\" is not a device"},
    {TS("{name: gpu, replicas: 2, devices: [0123abcd-0123-89ab-cdef-0123456789ab]}"),
     "c.yaml:1:72: sharing.timeSlicing.resources[].devices: "
     "\"0123abcd-0123-89ab-cdef-0123456789ab\" is not a device"},
    {TS("{name: gpu, replicas: 2, devices: [1, 1]}"), "c.yaml:1:75: sharing.timeSlicing.resources"
                                                      "[].devices: device 1 is listed twice"},
    {TS("{name: gpu, replicas: 2}, {name: nvidia.com/gpu, replicas: 3}"),
     "c.yaml:1:63: nvidia.com/gpu is shared twice (first on line 1)"},
    {TS("{name: gpu, replicas: 2, devices: [0]}, {name: gpu, replicas: 3, devices: [1, 0]}"),
     "c.yaml:1:77: device 0 of nvidia.com/gpu is shared twice (first on line 1)"},
    {"sharing:\n  mps: {resources: [{name: gpu, replicas: 2}]}\n  timeSlicing:\n    resources:\n"
     "    - {name: gpu, replicas: 2}",
     "c.yaml:3:3: sharing.timeSlicing and sharing.mps (line 2) are two ways to share the same "
     "GPUs"},
    {"sharing: {mps: {resources: [{name: gpu, replicas: 2}]}, fractional: {enabled: true}}",
     "c.yaml:1:57: sharing.fractional and sharing.mps (line 1) are two ways"},
    {"flags: {migStrategy: mixed}\nsharing: {mps: {resources: [{name: gpu, replicas: 2}]}}",
     "c.yaml:1:22: migStrategy mixed and sharing.mps exclude each other, because MPS cannot divide "
     "MIG"},
    /* names */
    {TS("{name: example.com/gpu, replicas: 2}"),
     "c.yaml:1:44: resource name \"example.com/gpu\" is not in nvidia.com/"},
    {TS("{name: GPU, replicas: 2}"), "c.yaml:1:44: resource name \"GPU\" is not valid"},
    {TS("{name: a..b, replicas: 2}"), "c.yaml:1:44: resource name \"a..b\" is not valid"},
    {TS("{name: a-.b, replicas: 2}"), "c.yaml:1:44: resource name \"a-.b\" is not valid"},
    {TS("{name: a-, replicas: 2}"), "c.yaml:1:44: resource name \"a-\" is not valid"},
    {TS("{name: '', replicas: 2}"), "c.yaml:1:44: the resource name is empty"},
    {TS("{name: nvidia.com/, replicas: 2}"), "c.yaml:1:44: the resource name is empty"},
    {TS("{name: " LONG52 "y, replicas: 2}"),
     "c.yaml:1:44: resource name \"nvidia.com/" LONG52 "y\" is 64 characters long: at most 63"},
    {TS("{name: gpu, replicas: 2, rename: " LONG52 "y}"),
     "c.yaml:1:70: resource name \"nvidia.com/" LONG52 "y\" is 64 characters long"},
    {"sharing: {timeSlicing: {renameByDefault: true, resources: [{name: " LONG52
     ", replicas: 2}]}}",
     "c.yaml:1:60: resource name \"nvidia.com/" LONG52
     ".shared\" is 70 characters long: at most 63 are allowed"},
    {"resources: {gpus: [{name: a}]}", "c.yaml:1:20: resources.gpus[]: no pattern: "},
    {"resources: {mig: [{pattern: a}]}", "c.yaml:1:19: resources.mig[]: no name: "},
};

static void check_refused(const char *text, size_t size, char *const *env,
                          const struct sl_config_override *flag, const char *message)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_config *c = NULL;
    if (sl_config_parse("c.yaml", text, size, env, flag, flag != NULL, &c, &err) == 0)
        fail_msg("accepted: %s", text ? text : message);
    assert_null(c);
    assert_true(err.code < 0);
    if (strncmp(err.msg, message, strlen(message)) != 0)
        fail_msg("%s\n  expected: %s\n  got:      %s", text ? text : "", message, err.msg);
}

static void bad_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        check_refused(bad[i].text, strlen(bad[i].text), NULL, NULL, bad[i].message);
}

static void names_of_63_characters_do(void **state)
{
    (void)state;
    struct sl_config *c = config_of(TS("{name: " LONG52 ", replicas: 2, rename: " LONG52 "}"));
    assert_int_equal(strlen(c->shared[0].name), 63);
    sl_config_free(c);
}

static void bad_flags_and_variables(void **state)
{
    (void)state;
    static const struct {
        struct sl_config_override flag;
        const char *message;
    } flags[] = {
        {{"mig-strategy", "x"},
         "--mig-strategy: \"x\" is not known: possible values: none, single or mixed"},
        {{"pass-device-specs", "maybe"}, "--pass-device-specs: \"maybe\" is not true or false"},
        {{"pass-device-specs", ""}, "--pass-device-specs: the value is missing"},
        {{"imex-channel-ids", "0,1"}, "--imex-channel-ids: \"1\": only IMEX channel 0"},
        {{"device-discovery-strategy", "vfio"}, "--device-discovery-strategy: "},
    };
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        check_refused(NULL, 0, NULL, &flags[i].flag, flags[i].message);
    char bad_variable[] = "DP_DISABLE_HEALTHCHECKS=48,fourty";
    char *env[] = {bad_variable, NULL};
    check_refused(NULL, 0, env, NULL, "DP_DISABLE_HEALTHCHECKS: \"fourty\" is not an XID");
    char mixed[] = "MIG_STRATEGY=mixed";
    char *mig[] = {mixed, NULL};
    const char *mps = MPS("{name: gpu, replicas: 2}");
    check_refused(mps, strlen(mps), mig, NULL,
                  "MIG_STRATEGY: migStrategy mixed and sharing.mps exclude each other");
}

/* A document may refer to itself; the table is only so deep. */
static void aliases_end(void **state)
{
    (void)state;
    const char *loop = "&a {flags: *a}";
    check_refused(loop, strlen(loop), NULL, NULL, "c.yaml:1:5: unknown key \"flags\" in flags");
    struct sl_config *c = config_of("flags: {gdsEnabled: &yes true, mofedEnabled: *yes}");
    assert_true(c->gds && c->mofed);
    sl_config_free(c);
}

static void hundreds_of_entries(void **state)
{
    (void)state;
    char text[8000] = "resources: {gpus: [";
    for (int i = 0; i < 257; i++)
        memcpy(text + strlen(text), "{pattern: a, name: b},", 23);
    memcpy(text + strlen(text) - 1, "]}", 3);
    check_refused(text, strlen(text), NULL, NULL,
                  "c.yaml:1:19: resources.gpus has 257 entries: at most 256 are allowed");
}

/* kubelet's paths are long; the end of one says which file it is, and the text stays whole. */
static void long_file_names(void **state)
{
    (void)state;
    char file[600];
    struct sl_config *c = NULL;
    struct sl_err err = SL_ERR_INIT;
    memset(file, 'x', sizeof(file));
    memcpy(file + sizeof(file) - 9, "/cfg.yml", 9);
    assert_true(sl_config_parse(file, "zzz: 1", 6, NULL, NULL, 0, &c, &err) < 0);
    assert_non_null(strstr(err.msg, "x/cfg.yml:1:1: unknown key"));
    assert_non_null(strstr(err.msg, "health"));
    assert_true(strncmp(err.msg, "...x", 4) == 0);
}

static void large_and_missing_files(void **state)
{
    (void)state;
    size_t size = ((size_t)1 << 20) + 1;
    char *text = malloc(size);
    assert_non_null(text);
    memset(text, '\n', size);
    check_refused(text, size, NULL, NULL, "c.yaml is larger than 1 MiB");
    struct sl_config *c = NULL;
    assert_int_equal(sl_config_parse("c", text, size - 1, NULL, NULL, 0, &c, NULL), 0);
    sl_config_free(c);
    free(text);
    c = NULL;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_config_load("/no/such.yaml", NULL, NULL, 0, &c, &err), -ENOENT);
    assert_non_null(strstr(err.msg, "/no/such.yaml"));
    assert_true(sl_config_load("/tmp", NULL, NULL, 0, &c, &err) < 0);
    assert_int_equal(sl_config_load("", NULL, NULL, 0, &c, &err), 0);
    sl_config_free(c);
    sl_config_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_files),
        cmocka_unit_test(names_of_63_characters_do),
        cmocka_unit_test(bad_flags_and_variables),
        cmocka_unit_test(aliases_end),
        cmocka_unit_test(hundreds_of_entries),
        cmocka_unit_test(long_file_names),
        cmocka_unit_test(large_and_missing_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
