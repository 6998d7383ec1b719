/* SPDX-License-Identifier: Apache-2.0 */
/* Made machines: what is read of them, what is offered, and what an allocation answers. */
#include "vm_world.h"

#include "base/cleanup.h"

#define TEXT(literal) ((char *)(uintptr_t)(literal))

static struct vm_world world;
static struct sl_vm_offer *offer;

static int set_up(void **state)
{
    (void)state;
    vm_open(&world);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sl_vm_offer_free(offer);
    offer = NULL;
    vm_close(&world);
    return 0;
}

static void look(const struct sl_config_vm *config)
{
    sl_vm_offer_free(offer);
    offer = vm_offer(&world, config);
}

static const struct sl_vm_device *device(const char *id)
{
    for (size_t i = 0; i < offer->device_count; i++)
        if (strcmp(offer->device[i].id, id) == 0)
            return &offer->device[i];
    return NULL;
}

/* Nodes with blanks between, then the variables. */
static const char *allocate(const char *resource, ...)
{
    static char text[2000];
    const char *ids[80];
    size_t n = 0;
    struct sl_edits edits = {0};
    struct sl_err err = SL_ERR_INIT;
    va_list ap;
    va_start(ap, resource);
    while ((ids[n] = va_arg(ap, const char *)))
        n++;
    va_end(ap);
    if (sl_vm_allocate(offer, resource, ids, n, &edits, &err) < 0)
        (void)snprintf(text, sizeof(text), "error: %s", err.msg);
    int at = 0;
    for (size_t i = 0; i < edits.node_count; i++)
        at += snprintf(text + at, sizeof(text) - (size_t)at, "%s ", edits.node[i].host);
    for (size_t i = 0; i < edits.env_count; i++)
        at += snprintf(text + at, sizeof(text) - (size_t)at, "%s=%s ", edits.env[i].name,
                       edits.env[i].value);
    sl_edits_clear(&edits);
    return text;
}

static void nothing(void **state)
{
    (void)state;
    look(NULL);
    assert_int_equal(offer->device_count, 0);
    assert_int_equal(offer->plan.resource_count, 0);
    vm_h200(&world, "0000:1b:00.0", 30, "nvidia"); /* a card for containers */
    vm_h200(&world, "0000:1c:00.0", 31, "");
    vm_file(&world, "0x8086\n", VM_PCI "0000:00:02.0/vendor");
    look(NULL);
    assert_int_equal(offer->device_count, 0);
    assert_false(sl_vm_offer_takes(offer, "0000:1b:00.0"));
    struct sl_vm_tree *tree = NULL;
    struct sl_pci_names names = {0};
    struct sl_err err = SL_ERR_INIT;
    assert_true(sl_vm_tree_read("/nonexistent", &names, &tree, &err) < 0);
    assert_non_null(strstr(err.msg, "/nonexistent/sys/bus/pci/devices"));
}

static void passthrough(void **state)
{
    (void)state;
    vm_h200(&world, "0000:1b:00.0", 30, "vfio-pci");
    vm_h200(&world, "0000:3b:00.0", 41, "vfio-pci");
    vm_h200(&world, "0000:5b:00.0", 52, "nvidia");
    look(NULL);
    assert_int_equal(offer->device_count, 2);
    assert_int_equal(offer->plan.resource_count, 1);
    assert_string_equal(offer->plan.resource[0].name, "nvidia.com/GH100_H200_SXM_141GB");
    const struct sl_vm_device *d = device("0000:3b:00.0");
    assert_true(d->healthy && d->group == 41 && d->numa_node == 1);
    assert_true(sl_vm_offer_takes(offer, "0000:1b:00.0"));
    assert_false(sl_vm_offer_takes(offer, "0000:5b:00.0"));
    const char *name = offer->plan.resource[0].name;
    assert_string_equal(allocate(name, "0000:3b:00.0", NULL),
                        "/dev/vfio/vfio /dev/vfio/41 "
                        "PCI_RESOURCE_NVIDIA_COM_GH100_H200_SXM_141GB=0000:3b:00.0 ");
    assert_string_equal(allocate(name, "0000:3b:00.0", "0000:1b:00.0", NULL),
                        "/dev/vfio/vfio /dev/vfio/41 /dev/vfio/30 "
                        "PCI_RESOURCE_NVIDIA_COM_GH100_H200_SXM_141GB=0000:3b:00.0,0000:1b:00.0 ");
    assert_non_null(strstr(allocate(name, "0000:5b:00.0", NULL), "no longer there"));
    assert_non_null(strstr(allocate("nvidia.com/other", "0000:3b:00.0", NULL), "no longer there"));
    /* A card that is bound to the other driver changes sides. */
    vm_bind(&world, "0000:1b:00.0", "nvidia");
    vm_bind(&world, "0000:5b:00.0", "vfio-pci");
    look(NULL);
    assert_null(device("0000:1b:00.0"));
    assert_true(device("0000:5b:00.0")->healthy);
    assert_false(sl_vm_offer_takes(offer, "0000:1b:00.0"));
}

static const char *held_elsewhere(void *data, const struct sl_vm_device *d)
{
    return strcmp(d->id, data) == 0 ? "a pod has it" : NULL;
}

static void one_way(void **state)
{
    (void)state;
    char held[] = "0000:1b:00.0";
    vm_file(&world, NULL, "sys/devices/pci0000:3a/0000:3b:00.0");
    vm_link(&world, "../../../devices/pci0000:3a/0000:3b:00.0", VM_PCI "0000:3b:00.0");
    vm_h200(&world, "0000:1b:00.0", 30, "vfio-pci");
    vm_h200(&world, "0000:3b:00.0", 41, "vfio-pci");
    look(NULL);
    assert_string_equal(device("0000:3b:00.0")->pcie_root, "pci0000:3a");
    assert_string_equal(device("0000:1b:00.0")->pcie_root, "");
    assert_int_equal(device("0000:3b:00.0")->pci_device, 0x2335);
    assert_ptr_equal(sl_vm_offer_find(offer, held), device(held));
    assert_null(sl_vm_offer_find(offer, "0000:ff:00.0"));
    sl_vm_offer_by(offer, SL_VM_BY_PLUGINS, held_elsewhere, held);
    assert_int_equal(offer->plan.resource_count, 1);
    assert_int_equal(offer->plan.resource[0].device_count, 2);
    assert_true(offer->inv.gpu[0].lost && !offer->inv.gpu[1].lost);
    assert_int_equal(offer->plan.warning_count, 1);
    look(NULL);
    sl_vm_offer_by(offer, SL_VM_BY_CLAIMS, held_elsewhere, held);
    assert_int_equal(offer->plan.resource_count, 0); /* no plugin has one */
    assert_int_equal(offer->device_count, 2);
    assert_true(device(held)->elsewhere && !device("0000:3b:00.0")->elsewhere);
    assert_true(sl_vm_offer_takes(offer, held));
}

static void unknown_device(void **state)
{
    (void)state;
    vm_function(&world, "0000:1b:00.0", 0xbeef, 0x0302, 30, "vfio-pci");
    look(NULL);
    assert_string_equal(offer->device[0].resource, "nvidia.com/beef");
    vm_remove(&world, "usr/share/hwdata/pci.ids");
    vm_h200(&world, "0000:1b:00.0", 30, "vfio-pci");
    look(NULL);
    assert_string_equal(offer->device[0].resource, "nvidia.com/2335");
}

static void other_names(void **state)
{
    (void)state;
    struct sl_config_pattern pattern[] = {{TEXT("0000:3b:*"), TEXT("nvidia.com/left")},
                                          {TEXT("10de:2335"), TEXT("nvidia.com/H200")}};
    struct sl_config_vm config = {.resources = {pattern, 2}};
    vm_h200(&world, "0000:1b:00.0", 30, "vfio-pci");
    vm_h200(&world, "0000:3b:00.0", 41, "vfio-pci");
    look(&config);
    assert_string_equal(device("0000:1b:00.0")->resource, "nvidia.com/H200");
    assert_string_equal(device("0000:3b:00.0")->resource, "nvidia.com/left");
    pattern[1].pattern = TEXT("GH100_*");
    look(&config);
    assert_string_equal(device("0000:1b:00.0")->resource, "nvidia.com/H200");
}

static void iommufd(void **state)
{
    (void)state;
    vm_h200(&world, "0000:1b:00.0", 30, "vfio-pci");
    vm_file(&world, NULL, VM_PCI "0000:1b:00.0/vfio-dev/vfio3");
    look(NULL);
    const char *name = offer->device[0].resource; /* /dev/iommu is not there */
    assert_null(strstr(allocate(name, "0000:1b:00.0", NULL), "iommu"));
    vm_file(&world, "", "dev/iommu");
    look(NULL);
    name = offer->device[0].resource;
    assert_non_null(strstr(allocate(name, "0000:1b:00.0", NULL),
                           "/dev/vfio/vfio /dev/vfio/30 /dev/vfio/devices/vfio3 /dev/iommu PCI_"));
    vm_remove(&world, "dev/vfio/30"); /* a kernel without groups in /dev */
    look(NULL);
    name = offer->device[0].resource;
    assert_true(offer->device[0].healthy);
    assert_memory_equal(allocate(name, "0000:1b:00.0", NULL),
                        "/dev/vfio/devices/vfio3 /dev/iommu PCI_", 36);
}

static void audio(void **state)
{
    (void)state;
    vm_function(&world, "0000:1b:00.0", 0x2203, 0x0300, 30, "vfio-pci");
    vm_function(&world, "0000:1b:00.1", 0x1aef, 0x0403, 30, "snd_hda_intel");
    look(NULL);
    assert_int_equal(offer->device_count, 1);
    assert_false(offer->device[0].healthy);
    assert_non_null(strstr(offer->device[0].why, "snd_hda_intel holds 0000:1b:00.1"));
    assert_non_null(
        strstr(allocate(offer->device[0].resource, "0000:1b:00.0", NULL), "snd_hda_intel"));
    vm_bind(&world, "0000:1b:00.1", "vfio-pci");
    vm_file(&world, NULL, VM_PCI "0000:1b:00.0/vfio-dev/vfio0");
    vm_file(&world, NULL, VM_PCI "0000:1b:00.1/vfio-dev/vfio1");
    vm_file(&world, "", "dev/iommu");
    look(NULL); /* the audio function goes with its card: it is not a device of its own */
    assert_int_equal(offer->device_count, 1);
    assert_true(offer->device[0].healthy);
    assert_string_equal(offer->device[0].resource, "nvidia.com/GA102_GEFORCE_RTX_3090_TI");
    assert_non_null(strstr(allocate(offer->device[0].resource, "0000:1b:00.0", NULL),
                           "/dev/vfio/devices/vfio0 /dev/vfio/devices/vfio1 "));
    /* In a group of its own it can go to another machine than its card. */
    vm_remove(&world, "sys/kernel/iommu_groups/30/devices/0000:1b:00.1");
    vm_function(&world, "0000:1b:00.1", 0x1aef, 0x0403, 31, "vfio-pci");
    look(NULL);
    assert_int_equal(offer->device_count, 2);
    assert_string_equal(device("0000:1b:00.1")->resource,
                        "nvidia.com/GA102_HIGH_DEFINITION_AUDIO_CONTROLLER");
    assert_false(sl_vm_offer_takes(offer, "0000:1b:00.1"));
}

static void shared_group(void **state)
{
    (void)state;
    vm_h200(&world, "0000:1b:00.0", 30, "vfio-pci");
    vm_h200(&world, "0000:1c:00.0", 30, "vfio-pci");
    look(NULL);
    assert_int_equal(offer->device_count, 1);
    assert_true(offer->device[0].healthy);
    assert_int_equal(offer->plan.warning_count, 1);
    assert_non_null(strstr(offer->plan.warning[0], "0000:1b:00.0 and 0000:1c:00.0"));
    assert_true(sl_vm_offer_takes(offer, "0000:1c:00.0")); /* idle, but not for containers */
    vm_bind(&world, "0000:1b:00.0", "nvidia");             /* the other half is useless now */
    look(NULL);
    assert_int_equal(offer->device_count, 1);
    assert_false(device("0000:1c:00.0")->healthy);
    assert_non_null(strstr(device("0000:1c:00.0")->why, "nvidia holds 0000:1b:00.0"));
    assert_false(sl_vm_offer_takes(offer, "0000:1b:00.0"));
}

static void bad_groups(void **state)
{
    (void)state;
    vm_h200(&world, "0000:1b:00.0", -1, "vfio-pci");
    vm_h200(&world, "0000:3b:00.0", 41, "vfio-pci");
    vm_remove(&world, "dev/vfio/41");
    look(NULL);
    assert_int_equal(offer->device_count, 2);
    assert_false(device("0000:1b:00.0")->healthy);
    assert_non_null(strstr(device("0000:1b:00.0")->why, "no IOMMU group"));
    assert_false(device("0000:3b:00.0")->healthy);
    assert_non_null(strstr(device("0000:3b:00.0")->why, "no /dev/vfio/41"));
    assert_true(offer->inv.gpu[0].lost && offer->inv.gpu[1].lost);
    vm_file(&world, "", "dev/vfio/41");
    look(NULL);
    assert_true(device("0000:3b:00.0")->healthy);
}

#define L40S_TYPES "ID    : vGPU Name\n1155  : NVIDIA L40S-1B\n1157  : NVIDIA L40S-8Q\n"

static void sriov(void **state)
{
    (void)state;
    vm_function(&world, "0000:4e:00.0", 0x26b9, 0x0302, 60, "nvidia");
    vm_vf(&world, "0000:4e:00.0", "0000:4e:00.4", 61, 1157, "ID    : vGPU Name\n");
    vm_vf(&world, "0000:4e:00.0", "0000:4e:00.5", 62, 1157, "ID    : vGPU Name\n");
    vm_vf(&world, "0000:4e:00.0", "0000:4e:00.6", 63, 0, L40S_TYPES);
    look(NULL);
    assert_int_equal(offer->device_count, 2);
    const struct sl_vm_device *d = device("0000:4e:00.5");
    assert_int_equal(d->kind, SL_VM_VGPU_VF);
    assert_string_equal(d->resource, "nvidia.com/NVIDIA_L40S-8Q");
    assert_string_equal(d->card, "0000:4e:00.0");
    assert_true(d->healthy && sl_vm_offer_takes(offer, "0000:4e:00.0"));
    assert_string_equal(allocate(d->resource, "0000:4e:00.5", NULL),
                        "/dev/vfio/vfio /dev/vfio/62 "
                        "PCI_RESOURCE_NVIDIA_COM_NVIDIA_L40S-8Q=0000:4e:00.5 ");
    /* A full card lists no types: the name must be remembered, or configured. */
    vm_file(&world, "ID    : vGPU Name\n", VM_PCI "0000:4e:00.6/nvidia/creatable_vgpu_types");
    look(NULL);
    assert_int_equal(offer->device_count, 0);
    assert_int_equal(offer->plan.warning_count, 2);
    assert_non_null(strstr(offer->plan.warning[0], "vgpu:1157"));
    assert_true(sl_vm_offer_takes(offer, "0000:4e:00.0")); /* a virtual machine may still have it */
    struct sl_config_pattern pattern = {TEXT("vgpu:1157"), TEXT("nvidia.com/Mine")};
    struct sl_config_vm config = {.resources = {&pattern, 1}};
    look(&config);
    assert_int_equal(offer->device_count, 2);
    struct sl_vm_tree *tree = vm_read(&world);
    const struct sl_vgpu_type known = {1157, "NVIDIA L40S-8Q"};
    sl_vm_offer_free(offer);
    config.resources.count = 0;
    offer = sl_vm_offer_make(&config, tree, &known, 1, NULL);
    sl_vm_tree_free(tree);
    assert_string_equal(device("0000:4e:00.5")->resource, "nvidia.com/NVIDIA_L40S-8Q");
}

static void mediated(void **state)
{
    (void)state;
    char uuid[SL_MDEV_UUID_SIZE];
    vm_function(&world, "0000:06:00.0", 0x26b9, 0x0302, 60, "nvidia");
    for (int i = 0; i < 64; i++) {
        (void)snprintf(uuid, sizeof(uuid), "aa618089-8b16-4d01-a136-25a0f3c73%03d", i);
        vm_mdev(&world, "0000:06:00.0", uuid, 100 + i,
                i % 2 ? "NVIDIA A40-1Q\n" : "NVIDIA A40-2Q\n");
    }
    vm_mdev(&world, "0000:06:00.0", "bb618089-8b16-4d01-a136-25a0f3c73000", 99, "GRID A40-8Q\n");
    look(NULL);
    assert_int_equal(offer->device_count, 65);
    assert_int_equal(offer->plan.resource_count, 3);
    assert_int_equal(offer->plan.resource[0].device_count, 32);
    assert_string_equal(allocate("nvidia.com/NVIDIA_A40-1Q", "aa618089-8b16-4d01-a136-25a0f3c73001",
                                 "aa618089-8b16-4d01-a136-25a0f3c73003", NULL),
                        "/dev/vfio/vfio /dev/vfio/101 /dev/vfio/103 "
                        "MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A40-1Q="
                        "aa618089-8b16-4d01-a136-25a0f3c73001,"
                        "aa618089-8b16-4d01-a136-25a0f3c73003 ");
    assert_true(sl_vm_offer_takes(offer, "0000:06:00.0"));
    vm_remove(&world, "sys/bus/mdev/devices");
    look(NULL);
    assert_int_equal(offer->device_count, 0);
    assert_false(sl_vm_offer_takes(offer, "0000:06:00.0"));
}

static void damaged(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text;
    } bad[] = {
        {"vendor", "10de"},  {"vendor", ""}, {"device", "0x2335 35"},  {"device", "0x123456789"},
        {"class", "0x03zz"}, {"class", ""},  {"class", "0x030200000"},
    };
    vm_h200(&world, "0000:1b:00.0", 30, "vfio-pci");
    vm_h200(&world, "0000:3b:00.0", 41, "vfio-pci");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        vm_file(&world, bad[i].text, VM_PCI "0000:1b:00.0/%s", bad[i].file);
        struct sl_vm_tree *tree = vm_read(&world);
        assert_int_equal(tree->function_count, 1); /* the other card does not suffer */
        assert_int_equal(tree->unreadable, 1);
        assert_non_null(strstr(tree->first_bad, bad[i].file));
        sl_vm_tree_free(tree);
        vm_h200(&world, "0000:1b:00.0", 30, "vfio-pci");
    }
    char big[9000];
    memset(big, '1', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    vm_file(&world, big, VM_PCI "0000:1b:00.0/numa_node");
    vm_link(&world, "../../../../kernel/iommu_groups/x", VM_PCI "0000:3b:00.0/iommu_group");
    vm_link(&world, "0000:1b:00.0", VM_PCI "not-an-address");
    look(NULL);
    assert_int_equal(offer->device_count, 2);
    assert_int_equal(device("0000:1b:00.0")->numa_node, -1);
    assert_false(device("0000:3b:00.0")->healthy);
    vm_vf(&world, "0000:4e:00.0", "0000:4e:00.4", 61, 1157, L40S_TYPES);
    vm_file(&world, "many\n", VM_PCI "0000:4e:00.4/nvidia/current_vgpu_type");
    vm_mdev(&world, "0000:1b:00.0", "aa618089-8b16-4d01-a136-25a0f3c73001", 99, "\x01\n");
    struct sl_vm_tree *tree = vm_read(&world);
    assert_int_equal(tree->unreadable, 2);
    assert_int_equal(tree->mdev_count, 0);
    sl_vm_tree_free(tree);
    vm_file(&world, "1157\n", VM_PCI "0000:4e:00.4/nvidia/current_vgpu_type");
    vm_file(&world, big, VM_PCI "0000:4e:00.4/nvidia/creatable_vgpu_types");
    look(NULL);
    assert_null(device("0000:4e:00.4")); /* no name */
}

static void equality(void **state)
{
    (void)state;
    vm_h200(&world, "0000:1b:00.0", 30, "vfio-pci");
    vm_vf(&world, "0000:4e:00.0", "0000:4e:00.4", 61, 1157, L40S_TYPES);
    vm_mdev(&world, "0000:1b:00.0", "aa618089-8b16-4d01-a136-25a0f3c73001", 99, "NVIDIA A40-1Q");
    struct sl_vm_tree *a = vm_read(&world), *b = vm_read(&world);
    assert_true(sl_vm_tree_equal(a, b));
    static const struct {
        const char *path, *text;
    } change[] = {
        {VM_PCI "0000:1b:00.0/numa_node", "0\n"},
        {VM_PCI "0000:4e:00.4/nvidia/current_vgpu_type", "0\n"},
        {VM_PCI "0000:4e:00.4/nvidia/creatable_vgpu_types", "1 : x\n"},
        {VM_PCI "0000:1b:00.0/aa618089-8b16-4d01-a136-25a0f3c73001/mdev_type/name", "other"},
        {"dev/iommu", ""},
    };
    for (size_t i = 0; i < sizeof(change) / sizeof(change[0]); i++) {
        vm_file(&world, change[i].text, "%s", change[i].path);
        sl_vm_tree_free(b);
        b = vm_read(&world);
        assert_false(sl_vm_tree_equal(a, b));
        sl_vm_tree_free(a);
        a = vm_read(&world);
        assert_true(sl_vm_tree_equal(a, b));
    }
    sl_vm_tree_free(a);
    sl_vm_tree_free(b);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing),  TEST(passthrough), TEST(unknown_device), TEST(other_names), TEST(one_way),
        TEST(iommufd),  TEST(audio),       TEST(shared_group),   TEST(bad_groups),  TEST(sriov),
        TEST(mediated), TEST(damaged),     TEST(equality),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
