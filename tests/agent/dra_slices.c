/* SPDX-License-Identifier: Apache-2.0 */
/* ResourceSlices against the API's rules, as k8s validates them, for cards of every sort. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/dra/device_name.h"
#include "agent/dra/slices.h"
#include "base/quantity.h"

#define GIB (1ULL << 30)
#define MIB (1ULL << 20)

/* An H200's table, as its driver tells it. */
static const struct sl_gpu_mig_profile h200[] = {
    {.id = 19,
     .name = "1g.18gb",
     .gpu_slices = 1,
     .max_instances = 7,
     .sm_count = 16,
     .memory_bytes = 16384 * MIB,
     .copy_engines = 1,
     .decoders = 1,
     .jpegs = 1,
     .placements = {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}},
     .placement_count = 7},
    {.id = 20,
     .name = "1g.18gb+me",
     .gpu_slices = 1,
     .max_instances = 1,
     .sm_count = 16,
     .memory_bytes = 16384 * MIB,
     .copy_engines = 1,
     .decoders = 1,
     .jpegs = 1,
     .ofas = 1,
     .placements = {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}},
     .placement_count = 7},
    {.id = 15,
     .name = "1g.35gb",
     .gpu_slices = 1,
     .max_instances = 4,
     .sm_count = 26,
     .memory_bytes = 33280 * MIB,
     .copy_engines = 1,
     .decoders = 1,
     .jpegs = 1,
     .placements = {{0, 2}, {2, 2}, {4, 2}, {6, 2}},
     .placement_count = 4},
    {.id = 14,
     .name = "2g.35gb",
     .gpu_slices = 2,
     .max_instances = 3,
     .sm_count = 32,
     .memory_bytes = 33280 * MIB,
     .copy_engines = 2,
     .decoders = 2,
     .jpegs = 2,
     .placements = {{0, 2}, {2, 2}, {4, 2}},
     .placement_count = 3},
    {.id = 9,
     .name = "3g.71gb",
     .gpu_slices = 3,
     .max_instances = 2,
     .sm_count = 60,
     .memory_bytes = 71424 * MIB,
     .copy_engines = 3,
     .decoders = 3,
     .jpegs = 3,
     .placements = {{0, 4}, {4, 4}},
     .placement_count = 2},
    {.id = 5,
     .name = "4g.71gb",
     .gpu_slices = 4,
     .max_instances = 1,
     .sm_count = 64,
     .memory_bytes = 71424 * MIB,
     .copy_engines = 4,
     .decoders = 4,
     .jpegs = 4,
     .placements = {{0, 4}},
     .placement_count = 1},
    {.id = 0,
     .name = "7g.141gb",
     .gpu_slices = 7,
     .max_instances = 1,
     .sm_count = 132,
     .memory_bytes = 143771 * MIB,
     .copy_engines = 8,
     .decoders = 7,
     .jpegs = 7,
     .ofas = 1,
     .placements = {{0, 8}},
     .placement_count = 1},
};
#define PROFILES (sizeof(h200) / sizeof(h200[0]))

struct node {
    struct sl_inventory inv;
    struct sl_inv_gpu gpu[16];
    struct sl_slice_gpu extra[16];
    struct sl_config_fractional fractional;
    struct sl_slices_options opt;
};

static void node_init(struct node *n, size_t gpus, bool mig)
{
    memset(n, 0, sizeof(*n));
    n->inv.gpu = n->gpu;
    n->inv.gpu_count = gpus;
    n->inv.cuda_version = 13000;
    (void)snprintf(n->inv.driver_version, sizeof(n->inv.driver_version), "580.159.04");
    for (size_t i = 0; i < gpus; i++) {
        struct sl_gpu_info *g = &n->gpu[i].info;
        (void)snprintf(g->uuid, sizeof(g->uuid), "GPU-00000000-0000-0000-0000-%012zu", i);
        (void)snprintf(g->name, sizeof(g->name), "NVIDIA H200");
        (void)snprintf(g->pci_bus_id, sizeof(g->pci_bus_id), "00000000:%02zX:00.0", 0x1B + i);
        g->memory_total_bytes = 143771 * MIB;
        g->sm_count = 132;
        g->cc_major = 9;
        g->numa_node = (int)(i / 4);
        g->mig_capable = mig;
        n->extra[i].profile = mig ? h200 : NULL;
        n->extra[i].profile_count = mig ? PROFILES : 0;
        n->extra[i].pcie_root = "pci0000:15";
        (void)snprintf(n->gpu[i].clique, sizeof(n->gpu[i].clique),
                       "11111111-2222-3333-4444-555555555555.7");
    }
    n->opt = (struct sl_slices_options){.node_name = "node-1",
                                        .node_uid = "u-1",
                                        .inv = &n->inv,
                                        .gpu = n->extra,
                                        .fractional = &n->fractional};
}

static json_t *make(struct node *n)
{
    return sl_slices_make(&n->opt);
}

static uint64_t quantity(const json_t *object, const char *key)
{
    uint64_t v = 0;
    struct sl_err err = SL_ERR_INIT;
    const char *text = json_string_value(json_object_get(object, key));
    assert_non_null(text);
    assert_int_equal(sl_quantity_read(text, 0, &v, &err), 0);
    return v;
}

static bool dns_label(const char *s)
{
    size_t n = strlen(s);
    return n >= 1 && n <= 63 && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == n &&
           s[0] != '-' && s[n - 1] != '-';
}

static void check_policy(const json_t *capacity)
{
    const json_t *policy = json_object_get(capacity, "requestPolicy");
    if (!policy)
        return;
    const json_t *range = json_object_get(policy, "validRange");
    uint64_t value = quantity(capacity, "value"), def = quantity(policy, "default");
    uint64_t min = quantity(range, "min"), max = quantity(range, "max");
    assert_true(min <= def && def <= max && max <= value);
    if (json_object_get(range, "step")) {
        uint64_t step = quantity(range, "step");
        assert_true(step > 0 && min + step <= value);
        assert_int_equal((max - min) % step, 0);
        assert_int_equal((def - min) % step, 0);
    }
}

static void check_attribute(const json_t *value)
{
    assert_int_equal(json_object_size(value), 1);
    const char *text = json_string_value(json_object_get(value, "string"));
    const char *version = json_string_value(json_object_get(value, "version"));
    assert_true(!text || (text[0] && strlen(text) <= 64));
    if (version) {
        unsigned a, b, c;
        char again[64], rest;
        assert_int_equal(sscanf(version, "%u.%u.%u%c", &a, &b, &c, &rest), 3);
        (void)snprintf(again, sizeof(again), "%u.%u.%u", a, b, c);
        assert_string_equal(again, version); /* no leading zeros */
    }
}

/* Counters of a device exist in its set and are no more than the set has. */
static void check_counters(const json_t *device, const json_t *sets)
{
    const json_t *list = json_object_get(device, "consumesCounters");
    assert_true(json_array_size(list) <= 2);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *use = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(use, "counterSet")), *key;
        const json_t *set = json_object_get(sets, name);
        json_t *value, *counters = json_object_get(use, "counters");
        assert_non_null(set);
        assert_true(json_object_size(counters) >= 1 && json_object_size(counters) <= 32);
        json_object_foreach(counters, key, value)
            assert_true(quantity(value, "value") <= quantity(json_object_get(set, key), "value"));
    }
}

static void check_device(json_t *d, const json_t *sets, json_t *names)
{
    const char *name = json_string_value(json_object_get(d, "name")), *key;
    json_t *value;
    struct sl_device_name parsed;
    struct sl_err err = SL_ERR_INIT;
    char again[SL_DEVICE_NAME_SIZE];
    assert_true(dns_label(name));
    assert_null(json_object_get(names, name));
    assert_int_equal(json_object_set_new(names, name, json_true()), 0);
    assert_int_equal(sl_device_name_parse(name, &parsed, &err), 0);
    if (parsed.kind != SL_DEVICE_VM) { /* its id is in the offer */
        sl_device_name_format(&parsed, again);
        assert_string_equal(again, name);
    }
    assert_true(json_object_size(json_object_get(d, "attributes")) +
                    json_object_size(json_object_get(d, "capacity")) <=
                32);
    json_object_foreach(json_object_get(d, "attributes"), key, value) check_attribute(value);
    json_object_foreach(json_object_get(d, "capacity"), key, value)
    {
        assert_true(strlen(key) <= 32);
        check_policy(value);
    }
    check_counters(d, sets);
}

/* Everything the API server checks, and the limits of k8s.md. Returns the devices' names in order. */
static json_t *check_slices(const json_t *slices)
{
    json_t *sets = json_object(), *names = json_object(), *order = json_array();
    size_t n = json_array_size(slices);
    for (size_t i = 0; i < n; i++) {
        const json_t *spec = json_object_get(json_array_get(slices, i), "spec");
        const json_t *pool = json_object_get(spec, "pool");
        const json_t *counters = json_object_get(spec, "sharedCounters");
        const json_t *devices = json_object_get(spec, "devices");
        assert_int_equal(json_integer_value(json_object_get(pool, "resourceSliceCount")), n);
        assert_true(!counters != !devices);
        assert_true(json_array_size(counters) <= 8);
        assert_true(json_array_size(devices) <= 64);
        for (size_t k = 0; k < json_array_size(counters); k++) {
            const json_t *set = json_array_get(counters, k);
            const char *name = json_string_value(json_object_get(set, "name"));
            assert_true(dns_label(name));
            assert_true(json_object_size(json_object_get(set, "counters")) <= 32);
            assert_int_equal(json_object_set(sets, name, json_object_get(set, "counters")), 0);
        }
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *devices =
            json_object_get(json_object_get(json_array_get(slices, i), "spec"), "devices");
        for (size_t k = 0; k < json_array_size(devices); k++) {
            json_t *d = json_array_get(devices, k);
            check_device(d, sets, names);
            assert_int_equal(json_array_append(order, json_object_get(d, "name")), 0);
        }
    }
    json_decref(sets);
    json_decref(names);
    return order;
}

static size_t position(const json_t *order, const char *name)
{
    for (size_t i = 0; i < json_array_size(order); i++)
        if (strcmp(json_string_value(json_array_get(order, i)), name) == 0)
            return i;
    return SIZE_MAX;
}

static const json_t *device(const json_t *slices, const char *name)
{
    for (size_t i = 0; i < json_array_size(slices); i++) {
        const json_t *devices =
            json_object_get(json_object_get(json_array_get(slices, i), "spec"), "devices");
        for (size_t k = 0; k < json_array_size(devices); k++)
            if (strcmp(json_string_value(json_object_get(json_array_get(devices, k), "name")),
                       name) == 0)
                return json_array_get(devices, k);
    }
    return NULL;
}

static void test_eight_with_mig(void **state)
{
    (void)state;
    struct node n;
    node_init(&n, 8, true);
    json_t *slices = make(&n);
    json_t *order = check_slices(slices);
    assert_int_equal(json_array_size(order), 8 * (2 + 7 + 7 + 4 + 3 + 2 + 1 + 1));
    /* Shares fill the first card first, whole cards go from the other end. */
    assert_true(position(order, "gpu-0-share") < position(order, "gpu-1-share"));
    assert_true(position(order, "gpu-7") < position(order, "gpu-0"));
    /* Small instances keep out of the way of the large: 4g only fits at 0. */
    assert_true(position(order, "gpu-0-mig-1g18gb-6") < position(order, "gpu-0-mig-1g18gb-0"));
    assert_true(position(order, "gpu-0-mig-3g71gb-4") < position(order, "gpu-0-mig-3g71gb-0"));
    assert_true(position(order, "gpu-0-mig-2g35gb-4") < position(order, "gpu-0-mig-2g35gb-0"));
    assert_true(position(order, "gpu-3-mig-1g18gb-me-2") != SIZE_MAX);
    json_decref(order);
    json_decref(slices);
}

static void test_a_share(void **state)
{
    (void)state;
    struct node n;
    node_init(&n, 1, false);
    n.fractional = (struct sl_config_fractional){
        .memory_min_bytes = GIB, .memory_step_bytes = GIB, .cores_min = 5, .cores_step = 10};
    json_t *slices = make(&n);
    json_decref(check_slices(slices));
    const json_t *d = device(slices, "gpu-0-share");
    assert_true(json_is_true(json_object_get(d, "allowMultipleAllocations")));
    const json_t *memory = json_object_get(json_object_get(d, "capacity"), "memory");
    assert_int_equal(quantity(memory, "value"), 143771 * MIB);
    assert_int_equal(quantity(json_object_get(memory, "requestPolicy"), "default"), 140 * GIB);
    const json_t *cores = json_object_get(json_object_get(d, "capacity"), "cores");
    assert_int_equal(quantity(json_object_get(cores, "requestPolicy"), "default"), 5);
    assert_int_equal(
        quantity(json_object_get(json_object_get(cores, "requestPolicy"), "validRange"), "max"),
        95);
    const json_t *a = json_object_get(d, "attributes");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(a, "driverVersion"), "version")),
        "580.159.4");
    assert_string_equal(json_string_value(json_object_get(
                            json_object_get(a, "resource.kubernetes.io/pciBusID"), "string")),
                        "0000:1b:00.0");
    assert_string_equal(json_string_value(json_object_get(
                            json_object_get(a, "resource.kubernetes.io/pcieRoot"), "string")),
                        "pci0000:15");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(a, "architecture"), "string")), "Hopper");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(a, "numaNode"), "int")), 0);
    json_decref(slices);
}

static void test_ranges_of_odd_configs(void **state)
{
    (void)state;
    const struct sl_config_fractional odd[] = {
        {0},
        {.memory_min_bytes = 500 * GIB},
        {.memory_min_bytes = 140 * GIB, .memory_step_bytes = 100 * GIB},
        {.memory_min_bytes = 1, .memory_step_bytes = 1},
        {.memory_step_bytes = 7 * MIB, .cores_min = 100, .cores_step = 50},
        {.cores_min = 99, .cores_step = 7},
        {.cores_min = 250},
    };
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        struct node n;
        node_init(&n, 2, true);
        n.fractional = odd[i];
        json_t *slices = make(&n);
        json_decref(check_slices(slices));
        json_decref(slices);
    }
}

static void test_unhealthy_is_tainted(void **state)
{
    (void)state;
    struct node n;
    node_init(&n, 2, true);
    n.extra[0].unhealthy = "XID 79: the card fell off the bus";
    n.gpu[1].lost = true;
    json_t *slices = make(&n);
    json_decref(check_slices(slices));
    const json_t *t = json_array_get(json_object_get(device(slices, "gpu-0-share"), "taints"), 0);
    assert_string_equal(json_string_value(json_object_get(t, "effect")), "NoSchedule");
    t = json_array_get(json_object_get(device(slices, "gpu-1-mig-1g18gb-3"), "taints"), 0);
    assert_string_equal(json_string_value(json_object_get(t, "effect")), "NoExecute");
    json_decref(slices);
}

static void vm_device(struct sl_vm_device *d, enum sl_vm_kind kind, const char *id)
{
    *d = (struct sl_vm_device){.kind = kind, .group = 7, .numa_node = -1, .healthy = true};
    (void)snprintf(d->id, sizeof(d->id), "%s", id);
    (void)snprintf(d->card, sizeof(d->card), "0000:1b:00.0");
    memset(d->resource, 'R', 70); /* longer than an attribute may be */
}

static void test_virtual_machines(void **state)
{
    (void)state;
    struct node n;
    struct sl_vm_device d[70] = {0};
    struct sl_vm_offer offer = {.way = SL_VM_BY_CLAIMS, .device = d, .device_count = 70};
    char text[SL_DEVICE_NAME_SIZE];
    node_init(&n, 2, true);
    n.extra[0].taken = true;
    n.opt.vm = &offer;
    vm_device(&d[0], SL_VM_PASSTHROUGH, "0000:1b:00.0");
    vm_device(&d[1], SL_VM_VGPU_VF, "0000:4e:00.4");
    d[1].healthy = false;
    vm_device(&d[2], SL_VM_PASSTHROUGH, "00000001:1c:00.0");
    d[2].elsewhere = true;
    for (unsigned i = 3; i < 70; i++) {
        char uuid[SL_DEVICE_ID_SIZE];
        (void)snprintf(uuid, sizeof(uuid), "aa618089-8b16-4d01-a136-25a0f3c73%03u", i);
        vm_device(&d[i], SL_VM_VGPU_MDEV, uuid);
    }
    json_t *slices = make(&n), *order = check_slices(slices);
    assert_null(device(slices, "gpu-0")); /* virtual machines have it */
    assert_null(device(slices, "gpu-0-share"));
    assert_null(device(slices, "gpu-0-mig-1g18gb-0"));
    assert_non_null(device(slices, "gpu-1"));
    assert_null(device(slices, "vm-00000001-1c-00-0"));
    const json_t *a = json_object_get(device(slices, "vm-0000-1b-00-0"), "attributes");
    assert_string_equal(json_string_value(json_object_get(
                            json_object_get(a, "resource.kubernetes.io/pciBusID"), "string")),
                        "0000:1b:00.0");
    assert_null(json_object_get(a, "numaNode"));
    assert_null(json_object_get(device(slices, "vm-0000-1b-00-0"), "taints"));
    const json_t *t =
        json_array_get(json_object_get(device(slices, "vm-0000-4e-00-4"), "taints"), 0);
    assert_string_equal(json_string_value(json_object_get(t, "effect")), "NoSchedule");
    sl_device_vm_name(d[69].id, text);
    a = json_object_get(device(slices, text), "attributes");
    assert_non_null(json_object_get(a, "mdevUUID"));
    assert_null(json_object_get(a, "resource.kubernetes.io/pciBusID"));
    json_decref(order);
    json_decref(slices);

    offer.way = SL_VM_BY_PLUGINS; /* the cards are still taken */
    slices = make(&n);
    assert_null(device(slices, "gpu-0"));
    assert_null(device(slices, "vm-0000-1b-00-0"));
    json_decref(slices);

    offer.way = SL_VM_BY_CLAIMS;
    n.opt.inv = NULL; /* no driver for containers */
    slices = make(&n);
    order = check_slices(slices);
    assert_int_equal(json_array_size(order), 69);
    json_decref(order);
    json_decref(slices);
}

/* The attribute says the driver's number, not the place among those that answered. */
static void test_index_is_the_drivers(void **state)
{
    (void)state;
    struct node n;
    node_init(&n, 2, false);
    n.gpu[0].index = 1;
    n.gpu[1].index = 5;
    json_t *slices = make(&n);
    for (int i = 0; i < 2; i++) {
        const json_t *a =
            json_object_get(device(slices, i ? "gpu-1-share" : "gpu-0-share"), "attributes");
        assert_int_equal(json_integer_value(json_object_get(json_object_get(a, "index"), "int")),
                         i ? 5 : 1);
    }
    json_decref(slices);
}

static bool ours_is_five(void *data, uint32_t gpu_instance)
{
    (void)data;
    return gpu_instance == 5;
}

static void test_foreign_instances_stay(void **state)
{
    (void)state;
    struct node n;
    node_init(&n, 1, true);
    struct sl_inv_mig mig[2] = {{.info = {.profile = "2g.35gb",
                                          .gpu_instance = 3,
                                          .gpu_slices = 2,
                                          .compute_slices = 2,
                                          .sm_count = 32,
                                          .memory_total_bytes = 33280 * MIB,
                                          .placement_start = 2,
                                          .placement_size = 2}},
                                {.info = {.profile = "1g.18gb",
                                          .gpu_instance = 5,
                                          .gpu_slices = 1,
                                          .compute_slices = 1,
                                          .sm_count = 16,
                                          .memory_total_bytes = 16384 * MIB,
                                          .placement_start = 6,
                                          .placement_size = 1}}};
    n.gpu[0].mig = mig;
    n.gpu[0].mig_count = 2;
    n.gpu[0].info.mig_enabled = true;
    n.extra[0].ours = ours_is_five;
    json_t *slices = make(&n);
    json_t *order = check_slices(slices);
    assert_true(position(order, "gpu-0") == SIZE_MAX);
    assert_true(position(order, "gpu-0-share") == SIZE_MAX);
    assert_true(position(order, "gpu-0-mig-2g35gb-2") != SIZE_MAX); /* as it is */
    assert_true(position(order, "gpu-0-mig-1g18gb-2") == SIZE_MAX); /* in its place */
    assert_true(position(order, "gpu-0-mig-4g71gb-0") == SIZE_MAX);
    assert_true(position(order, "gpu-0-mig-1g18gb-6") != SIZE_MAX); /* ours: the scheduler's */
    assert_true(position(order, "gpu-0-mig-3g71gb-4") != SIZE_MAX);
    json_decref(order);
    json_decref(slices);

    /* Nobody's but ours: the whole card is on offer, the counters keep it from being taken. */
    n.gpu[0].mig = &mig[1];
    n.gpu[0].mig_count = 1;
    slices = make(&n);
    order = check_slices(slices);
    assert_true(position(order, "gpu-0") != SIZE_MAX);
    assert_true(position(order, "gpu-0-share") != SIZE_MAX);
    json_decref(order);
    json_decref(slices);
}

/* MIG is on and we may not change it: only what is there is on offer. */
static void test_static_mig(void **state)
{
    (void)state;
    struct node n;
    node_init(&n, 1, false);
    n.gpu[0].info.mig_enabled = true;
    json_t *slices = make(&n);
    json_t *order = check_slices(slices);
    assert_int_equal(json_array_size(order), 0);
    json_decref(order);
    json_decref(slices);
}

static void test_same(void **state)
{
    (void)state;
    struct node n;
    node_init(&n, 1, true);
    n.gpu[0].lost = true;
    json_t *a = make(&n);
    json_t *b = make(&n);
    /* As the server gives it back: a time in the taint, fields of its own. */
    json_t *s = json_array_get(b, 1);
    assert_int_equal(json_object_set_new(json_object_get(json_object_get(s, "spec"), "pool"),
                                         "generation", json_integer(9)),
                     0);
    json_t *taint = json_array_get(
        json_object_get(json_array_get(json_object_get(json_object_get(s, "spec"), "devices"), 0),
                        "taints"),
        0);
    assert_int_equal(json_object_set_new(taint, "timeAdded", json_string("2026-01-01T00:00:00Z")),
                     0);
    assert_true(sl_slices_same(s, json_array_get(a, 1)));
    n.gpu[0].lost = false;
    json_t *c = make(&n);
    assert_false(sl_slices_same(s, json_array_get(c, 1)));
    json_decref(a);
    json_decref(b);
    json_decref(c);
}

static void test_names(void **state)
{
    (void)state;
    struct sl_device_name d;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_device_name_parse("gpu-12-mig-1g18gb-me-6", &d, &err), 0);
    assert_int_equal(d.kind, SL_DEVICE_MIG);
    assert_int_equal(d.gpu, 12);
    assert_int_equal(d.start, 6);
    assert_string_equal(d.profile, "1g18gb-me");
    static const char *const bad[] = {"",           "gpu-",         "gpu-x",
                                      "gpu-01",     "gpu-0-",       "gpu-0-shared",
                                      "gpu-0-mig-", "gpu-0-mig--1", "gpu-0-mig-1g18gb",
                                      "GPU-0",      "gpu--1",       "gpu-99999999",
                                      "vm-",        "vm-xyz",       "vm-0000:1b:00.0",
                                      "vm-0000-",   "VM-0000"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_true(sl_device_name_parse(bad[i], &d, &err) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eight_with_mig),
        cmocka_unit_test(test_a_share),
        cmocka_unit_test(test_ranges_of_odd_configs),
        cmocka_unit_test(test_unhealthy_is_tainted),
        cmocka_unit_test(test_virtual_machines),
        cmocka_unit_test(test_foreign_instances_stay),
        cmocka_unit_test(test_static_mig),
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_index_is_the_drivers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
