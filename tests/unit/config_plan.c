/* SPDX-License-Identifier: Apache-2.0 */
/* What a node advertises: every strategy, every form of `devices`, every machine that is odd. */
#include "config_case.h"

#include "config/plan.h"

#define MAX_GPUS 4
#define MAX_MIGS 8

/* A machine: cards by name, MIG profiles by spaces ("" in MIG mode without any, NULL: not in it). */
struct card {
    const char *name, *migs;
};
struct machine {
    struct sl_inventory inv;
    struct sl_inv_gpu gpu[MAX_GPUS];
    struct sl_inv_mig mig[MAX_GPUS][MAX_MIGS];
};

/* Cards are GPU-0, GPU-1 … in what is compared; configurations want the whole UUID. */
#define ZEROES  "-0000-0000-0000-000000000000"
#define CARD(n) "GPU-0000000" #n ZEROES

static void print_id(FILE *f, const char *id)
{
    const char *zeroes = strncmp(id, "GPU-0000000", 11) == 0 ? strstr(id, ZEROES) : NULL;
    if (zeroes)
        (void)fprintf(f, ",GPU-%c%s", zeroes[-1], zeroes + strlen(ZEROES));
    else
        (void)fprintf(f, ",%s", id);
}

static void add_migs(struct machine *m, size_t g, const char *profiles)
{
    struct sl_inv_gpu *gpu = &m->gpu[g];
    char profile[32];
    gpu->mig = m->mig[g];
    gpu->info.mig_capable = gpu->info.mig_enabled = true;
    for (size_t n = 0; sl_schema_name(profiles, n, profile, sizeof(profile)); n++) {
        struct sl_gpu_mig_info *info = &m->mig[g][n].info;
        memcpy(info->profile, profile, sizeof(profile));
        (void)snprintf(info->uuid, sizeof(info->uuid), "MIG-%zu-%zu", g, n);
        gpu->mig_count = n + 1;
    }
}

static const struct sl_inventory *machine(struct machine *m, const struct card *cards, size_t count)
{
    *m = (struct machine){.inv = {.cuda_version = 13000, .gpu = m->gpu, .gpu_count = count}};
    for (size_t g = 0; g < count; g++) {
        struct sl_gpu_info *info = &m->gpu[g].info;
        (void)snprintf(info->name, sizeof(info->name), "%s", cards[g].name);
        (void)snprintf(info->uuid, sizeof(info->uuid), "GPU-%08zx" ZEROES, g);
        m->gpu[g].index = g;
        info->numa_node = g < 2 ? 0 : 1;
        info->cc_major = 9;
        if (cards[g].migs)
            add_migs(m, g, cards[g].migs);
    }
    return &m->inv;
}
#define MACHINE(m, ...)                                                                            \
    machine(m, (const struct card[]){__VA_ARGS__},                                                 \
            sizeof((const struct card[]){__VA_ARGS__}) / sizeof(struct card))
#define H200      {"NVIDIA H200", NULL}
#define SEVEN     "1g.18gb 1g.18gb 1g.18gb 1g.18gb 1g.18gb 1g.18gb 1g.18gb"
#define MIG(what) {"NVIDIA H200", what}

/* "name=count[sharing]: ids…" of every resource, then "!" and the warnings, for comparing. */
static char *describe(const struct sl_plan *plan, bool ids)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    for (size_t i = 0; i < plan->resource_count; i++) {
        const struct sl_plan_resource *r = &plan->resource[i];
        (void)fprintf(f, "%s%s=%zu", i ? " " : "", r->name + strlen("nvidia.com/"),
                      r->device_count);
        if (r->sharing != SL_SHARING_NONE)
            (void)fprintf(f, "/%s%s", sl_config_sharing_name(r->sharing),
                          r->fail_requests_greater_than_one ? "/one" : "");
        for (size_t d = 0; ids && d < r->device_count; d++)
            print_id(f, r->device[d].id);
    }
    (void)fprintf(f, " !%zu", plan->warning_count);
    assert_int_equal(fclose(f), 0);
    return text;
}

static struct sl_plan *plan_of(const char *yaml, const struct sl_inventory *inv)
{
    struct sl_config *c = config_of(yaml);
    struct sl_plan *plan = NULL;
    struct sl_err err = SL_ERR_INIT;
    if (sl_plan_make(c, inv, &plan, &err) < 0)
        fail_msg("%s\nmakes no plan: %s", yaml, err.msg);
    sl_config_free(c);
    return plan;
}

static void check(const char *yaml, const struct sl_inventory *inv, bool ids, const char *expected,
                  const char *warning)
{
    struct sl_plan *plan = plan_of(yaml, inv);
    char *text = describe(plan, ids);
    if (strcmp(text, expected) != 0)
        fail_msg("%s\n  expected: %s\n  got:      %s %s", yaml, expected, text,
                 plan->warning_count ? plan->warning[0] : "");
    bool found = !warning;
    for (size_t i = 0; i < plan->warning_count && !found; i++)
        found = strstr(plan->warning[i], warning) != NULL;
    if (!found)
        fail_msg("%s\n  no warning with: %s\n  but: %s", yaml, warning,
                 plan->warning_count ? plan->warning[0] : "none at all");
    free(text);
    sl_plan_free(plan);
}

static void check_refused(const char *yaml, const struct sl_inventory *inv, const char *message)
{
    struct sl_config *c = config_of(yaml);
    struct sl_plan *plan = NULL;
    struct sl_err err = SL_ERR_INIT;
    if (sl_plan_make(c, inv, &plan, &err) == 0)
        fail_msg("a plan is made of %s", yaml);
    assert_null(plan);
    if (!strstr(err.msg, message))
        fail_msg("%s\n  expected: %s\n  got:      %s", yaml, message, err.msg);
    sl_config_free(c);
}

#define TS(entries)  "sharing: {timeSlicing: {resources: [" entries "]}}"
#define MPS(entries) "sharing: {mps: {resources: [" entries "]}}"

static void whole_cards_and_copies(void **state)
{
    (void)state;
    struct machine m;
    const struct sl_inventory *two = MACHINE(&m, H200, H200);
    check("", two, true, "gpu=2,GPU-0,GPU-1 !0", NULL);
    check(TS("{name: gpu, replicas: 2}"), two, true,
          "gpu=4/time-slicing,GPU-0::0,GPU-0::1,GPU-1::0,GPU-1::1 !0", NULL);
    check(MPS("{name: gpu, replicas: 3}"), two, false, "gpu=6/mps/one !0", NULL);
    check(MPS("{name: gpu, replicas: 1}"), two, true, "gpu=2/mps/one,GPU-0::0,GPU-1::0 !0", NULL);
    check("sharing: {timeSlicing: {renameByDefault: true, failRequestsGreaterThanOne: true, "
          "resources: [{name: gpu, replicas: 2}]}}",
          two, false, "gpu.shared=4/time-slicing/one !0", NULL);
    check(TS("{name: gpu, replicas: 2, rename: slice}"), two, false, "slice=4/time-slicing !0",
          NULL);
    check("sharing: {fractional: {enabled: true, slots: 3}}", two, true,
          "gpu=6/fractional,GPU-0::0,GPU-0::1,GPU-0::2,GPU-1::0,GPU-1::1,GPU-1::2 !0", NULL);
    check(TS("{name: other, replicas: 2}"), two, false, "gpu=2 !1",
          "nvidia.com/other should be shared, but this node has no such device");
    struct sl_inventory empty = {.gpu_count = 0};
    check(TS("{name: gpu, replicas: 2}"), &empty, false, " !1", NULL);
}

static void some_devices_only(void **state)
{
    (void)state;
    struct machine m;
    const struct sl_inventory *four = MACHINE(&m, H200, H200, H200, H200);
    check(TS("{name: gpu, replicas: 2, devices: all}"), four, false, "gpu=8/time-slicing !0", NULL);
    check(TS("{name: gpu, replicas: 2, devices: [0, " CARD(3) "], rename: half}"), four, true,
          "half=4/time-slicing,GPU-0::0,GPU-0::1,GPU-3::0,GPU-3::1 gpu=2,GPU-1,GPU-2 !0", NULL);
    check(TS("{name: gpu, replicas: 2, devices: 3, rename: half}"), four, true,
          "half=6/time-slicing,GPU-0::0,GPU-0::1,GPU-1::0,GPU-1::1,GPU-2::0,GPU-2::1 gpu=1,GPU-3 "
          "!0",
          NULL);
    /* A number of its own for each card. */
    check(TS("{name: gpu, replicas: 2, devices: [0]}, {name: gpu, replicas: 3, devices: [1]}, "
             "{name: gpu, replicas: 4, devices: [2, 3]}"),
          four, false, "gpu=13/time-slicing !0", NULL);
    /* One name for both is allowed, and said. */
    check(TS("{name: gpu, replicas: 2, devices: [1]}"), four, true,
          "gpu=5/time-slicing,GPU-0,GPU-1::0,GPU-1::1,GPU-2,GPU-3 !1",
          "3 whole devices and 2 shares");
    check(TS("{name: gpu, replicas: 2, devices: 9}"), four, false, "gpu=8/time-slicing !1",
          "9 devices of nvidia.com/gpu should be shared, but this node has 4");
    check(TS("{name: gpu, replicas: 2, devices: [" CARD(9) "]}"), four, false, "gpu=4 !1",
          "device " CARD(9) " should be shared as nvidia.com/gpu, but this node has no such");
    /* Numbers are the driver's: beside a card 0 that never answered these are 1 and 2. */
    static struct machine without_first;
    const struct sl_inventory *two_left = MACHINE(&without_first, H200, H200);
    without_first.gpu[0].index = 1;
    without_first.gpu[1].index = 2;
    check(TS("{name: gpu, replicas: 2, devices: [2]}"), two_left, true,
          "gpu=3/time-slicing,GPU-0,GPU-1::0,GPU-1::1 !1", NULL);
    check_refused(TS("{name: gpu, replicas: 2, devices: [0]}"), two_left,
                  "there is no GPU 0: this node has 2");
    check_refused(TS("{name: gpu, replicas: 2, devices: [7]}"), four,
                  "c.yaml:1:37: devices: there is no GPU 7: this node has 4");
    check_refused(TS("{name: gpu, replicas: 2, devices: ['0:0']}"), four,
                  "there is no MIG device 0:0: GPU 0 has 0 MIG devices");
    check_refused(TS("{name: gpu, replicas: 2, devices: [0]}, "
                     "{name: gpu, replicas: 2, devices: [" CARD(0) "]}"),
                  four, "c.yaml:1:77: device " CARD(0) " is shared twice (first on line 1)");
}

static void replicas_of_a_device(void **state)
{
    (void)state;
    struct machine m;
    struct sl_plan *plan =
        plan_of(TS("{name: gpu, replicas: 5, devices: [1]}"), MACHINE(&m, H200, H200, H200));
    assert_int_equal(sl_plan_replicas(plan, 0, SL_NO_MIG), 1);
    assert_int_equal(sl_plan_replicas(plan, 1, SL_NO_MIG), 5);
    assert_int_equal(sl_plan_replicas(plan, 1, 0), 0);
    assert_int_equal(sl_plan_replicas(plan, 9, SL_NO_MIG), 0);
    const struct sl_plan_resource *r = &plan->resource[0];
    assert_int_equal(r->device[0].sharing, SL_SHARING_NONE);
    assert_int_equal(r->device[1].sharing, SL_SHARING_TIME_SLICING);
    assert_int_equal(r->device[5].replica, 4);
    assert_int_equal(r->device[6].numa_node, 1);
    sl_plan_free(plan);
    sl_plan_free(NULL);
}

static void names_by_pattern(void **state)
{
    (void)state;
    struct machine m;
    const struct sl_inventory *zoo =
        MACHINE(&m, H200, {"NVIDIA L4", NULL}, {"Tesla T4", NULL}, MIG("1g.18gb 3g.71gb"));
    check(
        "resources: {gpus: [{pattern: '*H200*', name: big}, {pattern: 'NVIDIA ?4', name: small}]}",
        zoo, true, "big=2,GPU-0,GPU-3 small=1,GPU-1 gpu=1,GPU-2 !1", NULL);
    check("resources: {gpus: [{pattern: '*', name: any}, {pattern: '*H200*', name: big}]}", zoo,
          false, "any=4 !1", NULL);
    check("{flags: {migStrategy: mixed}, resources: {gpus: [{pattern: '*4', name: old}], mig: "
          "[{pattern: 1g.*, name: mig-small}]}}",
          zoo, false, "gpu=1 old=2 mig-small=1 mig-3g.71gb=1 !0", NULL);
    /* Shared by the name they were given. */
    check("{resources: {gpus: [{pattern: '*H200', name: big}]}, sharing: {timeSlicing: "
          "{renameByDefault: true, resources: [{name: big, replicas: 2}]}}}",
          zoo, false, "big.shared=4/time-slicing gpu=2 !1", NULL);
    check_refused("{resources: {gpus: [{pattern: '*H200', name: big}]}, sharing: {timeSlicing: "
                  "{resources: [{name: big, replicas: 2, rename: gpu}]}}}",
                  zoo,
                  "nvidia.com/big and nvidia.com/gpu would both be advertised as nvidia.com/gpu");
}

static void mig_none_and_mixed(void **state)
{
    (void)state;
    struct machine m;
    const struct sl_inventory *inv =
        MACHINE(&m, H200, MIG("1g.18gb 1g.18gb+me 3g.71gb"), MIG(""), MIG("1c.3g.71gb 3g.71gb"));
    check("", inv, true, "gpu=4,GPU-0,GPU-1,GPU-2,GPU-3 !3", "migStrategy is none");
    check("flags: {migStrategy: mixed}", inv, true,
          "gpu=1,GPU-0 mig-1g.18gb=1,MIG-1-0 mig-1g.18gb.me=1,MIG-1-1 "
          "mig-3g.71gb=2,MIG-1-2,MIG-3-1 !2",
          "MIG device 0 is a 1c.3g.71gb, a part of a GPU instance");
    check("flags: {migStrategy: mixed}", inv, false,
          "gpu=1 mig-1g.18gb=1 mig-1g.18gb.me=1 mig-3g.71gb=2 !2",
          "GPU 2 is in MIG mode and has no MIG devices");
    check("{flags: {migStrategy: mixed}, resources: {mig: [{pattern: 1c.*, name: mig-part}]}}", inv,
          false, "gpu=1 mig-1g.18gb=1 mig-1g.18gb.me=1 mig-3g.71gb=2 mig-part=1 !1", NULL);
    check("{flags: {migStrategy: mixed}, sharing: {timeSlicing: {renameByDefault: true, resources: "
          "[{name: mig-3g.71gb, replicas: 2, devices: ['3:1']}]}}}",
          inv, true,
          "gpu=1,GPU-0 mig-1g.18gb=1,MIG-1-0 mig-1g.18gb.me=1,MIG-1-1 mig-3g.71gb=1,MIG-1-2 "
          "mig-3g.71gb.shared=2/time-slicing,MIG-3-1::0,MIG-3-1::1 !2",
          NULL);
    /* A card stands for its MIG devices, by index and by UUID. */
    check("{flags: {migStrategy: mixed}, sharing: {timeSlicing: {resources: "
          "[{name: mig-3g.71gb, replicas: 2, devices: [" CARD(1) ", 3]}]}}}",
          inv, false, "gpu=1 mig-1g.18gb=1 mig-1g.18gb.me=1 mig-3g.71gb=4/time-slicing !2", NULL);
    check("{flags: {migStrategy: mixed}, sharing: {fractional: {enabled: true, slots: 4}}}", inv,
          false, "gpu=4/fractional mig-1g.18gb=1 mig-1g.18gb.me=1 mig-3g.71gb=2 !2", NULL);
    check_refused("{flags: {migStrategy: mixed}, sharing: {timeSlicing: {resources: [{name: "
                  "mig-3g.71gb, replicas: 2, devices: ['1:3']}]}}}",
                  inv, "there is no MIG device 1:3: GPU 1 has 3 MIG devices");
}

static void mig_single(void **state)
{
    (void)state;
    static const char single[] = "flags: {migStrategy: single}";
    struct machine m;
    check(single, MACHINE(&m, H200, H200), false, "gpu=2 !0", NULL);
    check(single, MACHINE(&m, MIG(SEVEN), MIG(SEVEN)), false, "gpu=14 !0", NULL);
    /* More than one type: the one there is most of, the others by their own names. */
    check(single, MACHINE(&m, MIG("3g.71gb 3g.71gb"), MIG(SEVEN)), false, "mig-3g.71gb=2 gpu=7 !1",
          "nvidia.com/gpu means a 1g.18gb here");
    check(single, MACHINE(&m, MIG("3g.71gb 1c.3g.71gb 1g.18gb 3g.71gb")), false,
          "gpu=2 mig-1g.18gb=1 !2", "is not advertised");
    check(single, MACHINE(&m, MIG("4g.71gb 3g.71gb")), false, "gpu=1 mig-3g.71gb=1 !1",
          "nvidia.com/gpu means a 4g.71gb here");
    /* A card that is not in MIG mode. */
    check(single, MACHINE(&m, H200, MIG(SEVEN)), false, "gpu=7 !1", "GPU 0 is not in MIG mode");
    check("{flags: {migStrategy: single}, resources: {gpus: [{pattern: '*', name: whole}]}}",
          MACHINE(&m, H200, MIG(SEVEN)), false, "whole=1 gpu=7 !0", NULL);
    /* Devices with a name by pattern are not counted among the types. */
    check("{flags: {migStrategy: single}, resources: {mig: [{pattern: '1g*', name: mig-s}]}}",
          MACHINE(&m, MIG("3g.71gb"), MIG(SEVEN)), false, "gpu=1 mig-s=7 !0", NULL);
    check(single, MACHINE(&m, H200, MIG("")), false, "gpu=1 !1", "has no MIG devices");
    check("{flags: {migStrategy: single}, sharing: {timeSlicing: {resources: [{name: gpu, "
          "replicas: 2}]}}}",
          MACHINE(&m, MIG("3g.71gb 3g.71gb")), true,
          "gpu=4/time-slicing,MIG-0-0::0,MIG-0-0::1,MIG-0-1::0,MIG-0-1::1 !0", NULL);
    check("{flags: {migStrategy: single}, sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}}",
          MACHINE(&m, MIG("3g.71gb 3g.71gb")), true, "gpu=2,MIG-0-0,MIG-0-1 !1",
          "nvidia.com/gpu are MIG devices, which MPS cannot divide");
}

static void cards_that_are_lost(void **state)
{
    (void)state;
    struct machine m;
    (void)MACHINE(&m, H200, H200, H200);
    m.gpu[1].lost = true;
    check("", &m.inv, false, "gpu=3 !0", NULL);
    m.gpu[1].info.uuid[0] = '\0';
    check("", &m.inv, true, "gpu=2,GPU-0,GPU-2 !1", "GPU 1 does not answer and never did");
    memset(m.gpu[0].info.uuid, 'x', 60);
    check("", &m.inv, true, "gpu=1,GPU-2 !2", "too long for kubelet");
}

static void ids_fit_kubelet(void **state)
{
    (void)state;
    struct machine m;
    (void)MACHINE(&m, MIG("1g.18gb"));
    (void)snprintf(m.mig[0][0].info.uuid, SL_GPU_UUID_SIZE,
                   "MIG-GPU-01234567-89ab-cdef-0123-456789abcdef/13/0");
    struct sl_plan *plan = plan_of("{flags: {migStrategy: mixed}, sharing: {timeSlicing: "
                                   "{resources: [{name: mig-1g.18gb, replicas: 1024}]}}}",
                                   &m.inv);
    assert_int_equal(plan->resource[0].device_count, 1024);
    assert_string_equal(plan->resource[0].device[1023].id,
                        "MIG-GPU-01234567-89ab-cdef-0123-456789abcdef/13/0::1023");
    sl_plan_free(plan);
}

static void no_more_than_kubelet_can_be_told(void **state)
{
    (void)state;
    static struct sl_inv_gpu gpu[65];
    struct sl_inventory inv = {.gpu = gpu, .gpu_count = 64};
    for (size_t g = 0; g < 65; g++)
        (void)snprintf(gpu[g].info.uuid, sizeof(gpu[g].info.uuid), "GPU-%zu", g);
    check(TS("{name: gpu, replicas: 1024}"), &inv, false, "gpu=65536/time-slicing !0", NULL);
    inv.gpu_count = 65;
    check_refused(TS("{name: gpu, replicas: 1024}"), &inv, "would have more than 65536 devices");
}

static void mps_servers_take_only_so_many(void **state)
{
    (void)state;
    struct machine m;
    (void)MACHINE(&m, H200, H200);
    check(MPS("{name: gpu, replicas: 48}"), &m.inv, false, "gpu=96/mps/one !0", NULL);
    check_refused(MPS("{name: gpu, replicas: 49}"), &m.inv,
                  "c.yaml:1:29: 49 replicas of GPU 0 are too many: an MPS server takes at most 48 "
                  "clients there");
    m.inv.cuda_version = 13010;
    check(MPS("{name: gpu, replicas: 60}"), &m.inv, false, "gpu=120/mps/one !0", NULL);
    m.gpu[1].info.cc_major = 6;
    check_refused(MPS("{name: gpu, replicas: 17}"), &m.inv,
                  "GPU 1 are too many: an MPS server takes at most 16");
    m.gpu[1].info.cc_major = 7; /* a V100 is none of those */
    check(MPS("{name: gpu, replicas: 17}"), &m.inv, false, "gpu=34/mps/one !0", NULL);
    m.gpu[1].info.cc_major = 6;
    check(MPS("{name: gpu, replicas: 17, devices: [0], rename: x}"), &m.inv, false,
          "x=17/mps/one gpu=1 !0", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_cards_and_copies),
        cmocka_unit_test(some_devices_only),
        cmocka_unit_test(replicas_of_a_device),
        cmocka_unit_test(names_by_pattern),
        cmocka_unit_test(mig_none_and_mixed),
        cmocka_unit_test(mig_single),
        cmocka_unit_test(cards_that_are_lost),
        cmocka_unit_test(ids_fit_kubelet),
        cmocka_unit_test(no_more_than_kubelet_can_be_told),
        cmocka_unit_test(mps_servers_take_only_so_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
