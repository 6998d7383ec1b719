/* SPDX-License-Identifier: Apache-2.0 */
/* Labels of whole and shared cards, against the tables of docs/labels.md; each node's labels in full. */
#include "labels_world.h"

#define DRIVER                                                                                     \
    "nvidia.com/cuda.driver-version.full=580.159.04\n"                                             \
    "nvidia.com/cuda.driver-version.major=580\n"                                                   \
    "nvidia.com/cuda.driver-version.minor=159\n"                                                   \
    "nvidia.com/cuda.driver-version.revision=04\n"                                                 \
    "nvidia.com/cuda.driver.major=580\n"                                                           \
    "nvidia.com/cuda.driver.minor=159\n"                                                           \
    "nvidia.com/cuda.driver.rev=04\n"                                                              \
    "nvidia.com/cuda.runtime-version.full=13.0\n"                                                  \
    "nvidia.com/cuda.runtime-version.major=13\n"                                                   \
    "nvidia.com/cuda.runtime-version.minor=0\n"                                                    \
    "nvidia.com/cuda.runtime.major=13\n"                                                           \
    "nvidia.com/cuda.runtime.minor=0\n"                                                            \
    "nvidia.com/gfd.timestamp=1763189402\n"
#define HOPPER                                                                                     \
    "nvidia.com/gpu.compute.major=9\n"                                                             \
    "nvidia.com/gpu.compute.minor=0\n"
#define MACHINE "nvidia.com/gpu.machine=ProLiant-DL380a-Gen11-rev.-B\n"
#define REST(mig, mps, vgpu)                                                                       \
    "nvidia.com/mig.capable=true\n" mig "nvidia.com/mps.capable=" mps "\n"                         \
    "nvidia.com/vgpu.present=" vgpu "\n"
#define CARD(count, product, replicas, sharing)                                                    \
    DRIVER HOPPER "nvidia.com/gpu.count=" count "\nnvidia.com/gpu.family=hopper\n" MACHINE         \
                  "nvidia.com/gpu.memory=143771\nnvidia.com/gpu.mode=compute\n"                    \
                  "nvidia.com/gpu.product=" product "\nnvidia.com/gpu.replicas=" replicas "\n"     \
                  "nvidia.com/gpu.sharing-strategy=" sharing "\n"

static char *text_of(const struct sl_labels *labels)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    for (size_t i = 0; i < labels->count; i++)
        (void)fprintf(out, "%s=%s\n", labels->label[i].key, labels->label[i].value);
    (void)fclose(out);
    return text;
}

static void valid(const char *value)
{
    static const char ends[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    size_t n = strlen(value);
    assert_true(n <= 63);
    if (n == 0)
        return;
    assert_non_null(strchr(ends, value[0]));
    assert_non_null(strchr(ends, value[n - 1]));
    for (size_t i = 0; i < n; i++)
        assert_true(strchr(ends, value[i]) || strchr("-_.", value[i]));
}

static void expect(const struct world *w, const char *table)
{
    struct sl_labels labels = sl_labels_make(&w->config, &w->inv, &w->plan, &w->host);
    for (size_t i = 0; i < labels.count; i++)
        valid(labels.label[i].value);
    char *text = text_of(&labels);
    assert_string_equal(text, table);
    free(text);
    sl_labels_clear(&labels);
}

static void exclusive(void **state)
{
    (void)state;
    struct world w;
    world_h200(&w, 1);
    world_offer(&w, "nvidia.com/gpu", false, 0, SL_NO_MIG, SL_SHARING_NONE, 1);
    expect(&w, CARD("1", "NVIDIA-H200", "1", "none") REST("", "false", "false"));
}

static void time_sliced(void **state)
{
    (void)state;
    static const struct {
        unsigned replicas;
        bool renamed;
        const char *table;
    } cases[] = {
        {2, false, CARD("1", "NVIDIA-H200-SHARED", "2", "time-slicing") REST("", "false", "false")},
        {4, false, CARD("1", "NVIDIA-H200-SHARED", "4", "time-slicing") REST("", "false", "false")},
        {2, true, CARD("1", "NVIDIA-H200", "2", "time-slicing") REST("", "false", "false")},
        {4, true, CARD("1", "NVIDIA-H200", "4", "time-slicing") REST("", "false", "false")},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world w;
        world_h200(&w, 1);
        w.config.sharing = SL_SHARING_TIME_SLICING;
        world_offer(&w, cases[i].renamed ? "nvidia.com/gpu.shared" : "nvidia.com/gpu",
                    cases[i].renamed, 0, SL_NO_MIG, SL_SHARING_TIME_SLICING, cases[i].replicas);
        expect(&w, cases[i].table);
    }
}

static void mps(void **state)
{
    (void)state;
    struct world w;
    world_h200(&w, 1);
    w.config.sharing = SL_SHARING_MPS;
    world_offer(&w, "nvidia.com/gpu", false, 0, SL_NO_MIG, SL_SHARING_MPS, 4);
    expect(&w, CARD("1", "NVIDIA-H200-SHARED", "4", "mps") REST("", "true", "false"));
}

static void fractional(void **state)
{
    (void)state;
    struct world w;
    world_h200(&w, 1);
    world_offer(&w, "nvidia.com/gpu", false, 0, SL_NO_MIG, SL_SHARING_FRACTIONAL, 10);
    expect(&w, CARD("1", "NVIDIA-H200-SHARED", "10", "fractional") REST("", "false", "false"));
}

/* Replicas differ between cards: the label has room for one number, the larger. */
static void some_cards_shared(void **state)
{
    (void)state;
    struct world w;
    world_h200(&w, 2);
    w.config.sharing = SL_SHARING_TIME_SLICING;
    world_offer(&w, "nvidia.com/gpu", false, 0, SL_NO_MIG, SL_SHARING_NONE, 1);
    world_offer(&w, "nvidia.com/gpu", false, 1, SL_NO_MIG, SL_SHARING_TIME_SLICING, 3);
    expect(&w, CARD("2", "NVIDIA-H200-SHARED", "3", "time-slicing") REST("", "false", "false"));
}

static void one_lost(void **state)
{
    (void)state;
    struct world w;
    world_h200(&w, 2);
    w.gpu[0].lost = true;
    world_offer(&w, "nvidia.com/gpu", false, 0, SL_NO_MIG, SL_SHARING_NONE, 1);
    world_offer(&w, "nvidia.com/gpu", false, 1, SL_NO_MIG, SL_SHARING_NONE, 1);
    expect(&w, CARD("1", "NVIDIA-H200", "1", "none") REST("", "false", "false"));
}

static void all_lost(void **state)
{
    (void)state;
    struct world w;
    world_h200(&w, 1);
    w.gpu[0].lost = true;
    expect(&w, DRIVER "nvidia.com/gpu.count=0\n" MACHINE
                      "nvidia.com/mig.capable=false\nnvidia.com/mps.capable=false\n");
}

static void no_gpu(void **state)
{
    (void)state;
    struct world w;
    world_h200(&w, 0);
    expect(&w, "nvidia.com/gfd.timestamp=1763189402\n");
    w.config.gfd_no_timestamp = true;
    expect(&w, "");
}

static void vgpu_clique_and_others(void **state)
{
    (void)state;
    struct world w;
    struct sl_labels labels;
    world_h200(&w, 3);
    (void)snprintf(w.inv.driver_version, sizeof(w.inv.driver_version), "470.82");
    (void)snprintf(w.gpu[0].info.name, sizeof(w.gpu[0].info.name), "NVIDIA L40S");
    w.host.vgpu = SL_VGPU_YES;
    (void)strcpy(w.host.vgpu_driver_version, "550.90.05");
    (void)strcpy(w.host.vgpu_driver_branch, "r550_00");
    w.host.machine[0] = '\0';
    w.gpu[1].pci_class = 0x0300;
    for (size_t i = 0; i < 3; i++)
        (void)strcpy(w.gpu[i].clique, "0c0ffee0-0000-4000-8000-00000000cafe.7");
    labels = sl_labels_make(&w.config, &w.inv, NULL, &w.host);
    static const struct {
        const char *key, *value;
    } want[] = {
        {"nvidia.com/gpu.product", "NVIDIA-H200"}, /* two of three */
        {"nvidia.com/gpu.count", "3"},
        {"nvidia.com/gpu.replicas", "0"}, /* no plan: nothing is advertised */
        {"nvidia.com/gpu.mode", "graphics"},
        {"nvidia.com/gpu.machine", "unknown"},
        {"nvidia.com/vgpu.present", "true"},
        {"nvidia.com/vgpu.host-driver-version", "550.90.05"},
        {"nvidia.com/vgpu.host-driver-branch", "r550_00"},
        {"nvidia.com/cuda.driver.rev", ""},
        {"nvidia.com/cuda.driver-version.full", "470.82"},
        {"nvidia.com/gpu.clique", "0c0ffee0-0000-4000-8000-00000000cafe.7"},
    };
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        const char *value = sl_labels_get(&labels, want[i].key);
        assert_non_null(value);
        assert_string_equal(value, want[i].value);
    }
    sl_labels_clear(&labels);

    (void)strcpy(w.gpu[2].clique, "0c0ffee0-0000-4000-8000-00000000cafe.8");
    labels = sl_labels_make(&w.config, &w.inv, NULL, &w.host);
    assert_null(sl_labels_get(&labels, "nvidia.com/gpu.clique"));
    sl_labels_clear(&labels);
}

static void families(void **state)
{
    (void)state;
    static const struct {
        int major, minor;
        const char *family;
    } cases[] = {
        {7, 0, "volta"},        {7, 5, "turing"},     {8, 0, "ampere"},     {8, 6, "ampere"},
        {8, 9, "ada-lovelace"}, {9, 0, "hopper"},     {10, 0, "blackwell"}, {12, 0, "blackwell"},
        {13, 0, "rubin"},       {99, 0, "undefined"}, {0, 0, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world w;
        struct sl_labels labels;
        world_h200(&w, 1);
        w.gpu[0].info.cc_major = cases[i].major;
        w.gpu[0].info.cc_minor = cases[i].minor;
        labels = sl_labels_make(&w.config, &w.inv, NULL, &w.host);
        const char *family = sl_labels_get(&labels, "nvidia.com/gpu.family");
        if (cases[i].family)
            assert_string_equal(family, cases[i].family);
        else
            assert_null(family);
        sl_labels_clear(&labels);
    }
}

#define MIG(res, mib, product, count, replicas, sharing, sms, slices)                              \
    MIG_ENGINES(res, slices)                                                                       \
    "nvidia.com/" res ".memory=" mib "\nnvidia.com/" res ".multiprocessors=" sms                   \
    "\nnvidia.com/" res ".product=" product "\nnvidia.com/" res ".replicas=" replicas              \
    "\nnvidia.com/" res ".sharing-strategy=" sharing "\nnvidia.com/" res ".slices.ci=" slices      \
    "\nnvidia.com/" res ".slices.gi=" slices "\n"
#define MIG_ENGINES(res, slices)                                                                   \
    "nvidia.com/" res ".engines.copy=" slices "\nnvidia.com/" res ".engines.decoder=" slices       \
    "\nnvidia.com/" res ".engines.encoder=0\nnvidia.com/" res ".engines.jpeg=" slices              \
    "\nnvidia.com/" res ".engines.ofa=0\n"

static void mig_single(void **state)
{
    (void)state;
    struct world w;
    world_h200(&w, 2);
    w.config.mig_strategy = SL_MIG_SINGLE;
    for (size_t g = 0; g < 2; g++) {
        for (size_t m = 0; m < 7; m++) {
            world_mig(&w, g, "1g.18gb", 1, 16, 16384);
            world_offer(&w, "nvidia.com/gpu", false, g, m, SL_SHARING_NONE, 1);
        }
    }
    expect(&w, DRIVER HOPPER "nvidia.com/gpu.count=14\n" MIG_ENGINES(
                   "gpu", "1") "nvidia.com/gpu.family=hopper\n" MACHINE
                               "nvidia.com/gpu.memory=16384\nnvidia.com/gpu.mode=compute\n"
                               "nvidia.com/gpu.multiprocessors=16\nnvidia.com/"
                               "gpu.product=NVIDIA-H200-MIG-1g.18gb\n"
                               "nvidia.com/gpu.replicas=1\nnvidia.com/gpu.sharing-strategy=none\n"
                               "nvidia.com/gpu.slices.ci=1\nnvidia.com/gpu.slices.gi=1\n" REST(
                                   "nvidia.com/mig.strategy=single\n", "false", "false"));
}

/* Several kinds: one is `gpu`, the other has its own name; the card without MIG is not offered. */
static void mig_single_several(void **state)
{
    (void)state;
    struct world w;
    world_h200(&w, 2);
    w.config.mig_strategy = SL_MIG_SINGLE;
    world_mig(&w, 0, "1g.18gb", 1, 16, 16384);
    world_mig(&w, 0, "1g.18gb", 1, 16, 16384);
    world_mig(&w, 0, "2g.35gb", 2, 32, 33280);
    world_offer(&w, "nvidia.com/gpu", false, 0, 0, SL_SHARING_NONE, 1);
    world_offer(&w, "nvidia.com/gpu", false, 0, 1, SL_SHARING_NONE, 1);
    world_offer(&w, "nvidia.com/mig-2g.35gb", false, 0, 2, SL_SHARING_NONE, 1);
    expect(&w, DRIVER HOPPER "nvidia.com/gpu.count=2\n" MIG_ENGINES(
                   "gpu", "1") "nvidia.com/gpu.family=hopper\n" MACHINE
                               "nvidia.com/gpu.memory=16384\nnvidia.com/gpu.mode=compute\n"
                               "nvidia.com/gpu.multiprocessors=16\nnvidia.com/"
                               "gpu.product=NVIDIA-H200-MIG-1g.18gb\n"
                               "nvidia.com/gpu.replicas=1\nnvidia.com/gpu.sharing-strategy=none\n"
                               "nvidia.com/gpu.slices.ci=1\nnvidia.com/gpu.slices.gi=1\n"
                               "nvidia.com/mig-2g.35gb.count=1\n" MIG("mig-2g.35gb", "33280",
                                                                      "NVIDIA-H200-MIG-2g.35gb",
                                                                      "1", "1", "none", "32", "2")
                                   REST("nvidia.com/mig.strategy=single\n", "false", "false"));
}

static void mig_single_nothing(void **state)
{
    (void)state;
    struct world w;
    world_h200(&w, 1); /* MIG on, not divided */
    w.config.mig_strategy = SL_MIG_SINGLE;
    w.gpu[0].info.mig_enabled = true;
    expect(&w, DRIVER HOPPER
           "nvidia.com/gpu.count=0\nnvidia.com/gpu.family=hopper\n" MACHINE
           "nvidia.com/gpu.memory=0\nnvidia.com/gpu.mode=compute\n"
           "nvidia.com/gpu.product=NVIDIA-H200-MIG-INVALID\nnvidia.com/gpu.replicas=0\n"
           "nvidia.com/gpu.sharing-strategy=none\n" REST("nvidia.com/mig.strategy=single\n",
                                                         "false", "false"));

    world_h200(&w, 1); /* no card with MIG: whole cards */
    w.config.mig_strategy = SL_MIG_SINGLE;
    world_offer(&w, "nvidia.com/gpu", false, 0, SL_NO_MIG, SL_SHARING_NONE, 1);
    expect(&w, CARD("1", "NVIDIA-H200", "1", "none")
                   REST("nvidia.com/mig.strategy=single\n", "false", "false"));
}

static void mig_mixed(void **state)
{
    (void)state;
    struct world w;
    world_h200(&w, 2);
    w.config.mig_strategy = SL_MIG_MIXED;
    world_mig(&w, 0, "1g.18gb", 1, 16, 16384);
    world_mig(&w, 0, "1g.18gb", 1, 16, 16384);
    world_mig(&w, 0, "1g.35gb+me", 1, 16, 33280);
    world_mig(&w, 1, "1g.18gb", 1, 16, 16384);
    world_mig(&w, 1, "1c.3g.71gb", 3, 16, 71040);
    w.mig[1][1].info.compute_slices = 1; /* no resource can name it */
    world_offer(&w, "nvidia.com/mig-1g.18gb", false, 0, 0, SL_SHARING_TIME_SLICING, 2);
    world_offer(&w, "nvidia.com/mig-1g.18gb", false, 0, 1, SL_SHARING_TIME_SLICING, 2);
    world_offer(&w, "nvidia.com/mig-1g.35gb.me", false, 0, 2, SL_SHARING_NONE, 1);
    expect(&w,
           CARD("2", "NVIDIA-H200", "0", "none") "nvidia.com/mig-1g.18gb.count=3\n" MIG(
               "mig-1g.18gb", "16384", "NVIDIA-H200-MIG-1g.18gb-SHARED", "3", "2", "time-slicing",
               "16", "1") "nvidia.com/mig-1g.35gb.me.count=1\n" MIG("mig-1g.35gb.me", "33280",
                                                                    "NVIDIA-H200-MIG-1g.35gb.me",
                                                                    "1", "1", "none", "16", "1")
               REST("nvidia.com/mig.strategy=mixed\n", "false", "false"));
}

static void values(void **state)
{
    (void)state;
    static const struct {
        const char *text, *suffix, *value;
    } cases[] = {
        {"NVIDIA H200", NULL, "NVIDIA-H200"},
        {"  Tesla   V100\tSXM2 ", NULL, "Tesla-V100-SXM2"},
        {"(a) b/c", NULL, "a-bc"},
        {"--x--", NULL, "x"},
        {"\xc3\xa9t\xc3\xa9", NULL, "t"},
        {"", NULL, ""},
        {"***", "-SHARED", "SHARED"},
        {"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggg", NULL,
         "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffggg"},
        {"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggg",
         "-MIG-1g.18gb-SHARED", "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeee-MIG-1g.18gb-SHARED"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char value[SL_LABEL_VALUE_MAX + 1];
        sl_label_value(cases[i].text, cases[i].suffix, value);
        assert_string_equal(value, cases[i].value);
        valid(value);
    }
}

static void lists(void **state)
{
    (void)state;
    struct sl_labels a = {0}, b = {0};
    sl_labels_set(&a, "b", "2");
    sl_labels_set(&a, "a", "1");
    sl_labels_set(&a, "c", "3");
    sl_labels_set(&a, "b", "4");
    assert_int_equal(a.count, 3);
    assert_string_equal(sl_labels_get(&a, "b"), "4");
    assert_null(sl_labels_get(&a, "d"));
    sl_labels_copy(&b, &a);
    assert_true(sl_labels_equal(&a, &b));
    sl_labels_set(&b, "c", "9");
    assert_false(sl_labels_equal(&a, &b));
    sl_labels_clear(&a);
    sl_labels_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exclusive),
        cmocka_unit_test(time_sliced),
        cmocka_unit_test(mps),
        cmocka_unit_test(fractional),
        cmocka_unit_test(some_cards_shared),
        cmocka_unit_test(one_lost),
        cmocka_unit_test(all_lost),
        cmocka_unit_test(no_gpu),
        cmocka_unit_test(vgpu_clique_and_others),
        cmocka_unit_test(families),
        cmocka_unit_test(mig_single),
        cmocka_unit_test(mig_single_several),
        cmocka_unit_test(mig_single_nothing),
        cmocka_unit_test(mig_mixed),
        cmocka_unit_test(values),
        cmocka_unit_test(lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
