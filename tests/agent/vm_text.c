/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of sysfs and pci.ids, and the names that are made of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "agent/vm/text.h"

static void addresses(void **state)
{
    (void)state;
    static const char *const good[] = {"0000:3b:00.0", "10000:ff:1f.7", "deadbeef:00:00.1"};
    static const char *const bad[] = {"",
                                      "0000:3b:00",
                                      "0000:3b:00.8",
                                      "0000:3B:00.0",
                                      "000:3b:00.0",
                                      "0000:3b:00.0 ",
                                      "123456789:00:00.0",
                                      "../0000:3b:00.0"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(sl_pci_address_valid(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(sl_pci_address_valid(bad[i]));

    char address[SL_PCI_ADDRESS_SIZE];
    assert_true(sl_pci_address_from_nvml("00000000:3B:00.0", address));
    assert_string_equal(address, "0000:3b:00.0");
    assert_true(sl_pci_address_from_nvml("00010000:3B:00.0", address));
    assert_string_equal(address, "10000:3b:00.0");
    assert_true(sl_pci_address_from_nvml("0000:3b:00.0", address));
    assert_string_equal(address, "0000:3b:00.0");
    assert_false(sl_pci_address_from_nvml("", address));
    assert_false(sl_pci_address_from_nvml("GPU-7", address));
    assert_false(sl_pci_address_from_nvml("000000000000000000000000000000000000", address));
}

static void numbers(void **state)
{
    (void)state;
    uint32_t hex = 7;
    int number = 7;
    assert_true(sl_sysfs_hex("0x10de\n", 0xffff, &hex));
    assert_int_equal(hex, 0x10de);
    static const char *const bad_hex[] = {
        "", "10de", "0x", "0x10000\n", "0x10de x", "0xffffffffffffffffff", "0x10de\n\n", "\n"};
    for (size_t i = 0; i < sizeof(bad_hex) / sizeof(bad_hex[0]); i++)
        assert_false(sl_sysfs_hex(bad_hex[i], 0xffff, &hex));
    assert_int_equal(hex, 0x10de);
    assert_true(sl_sysfs_number("-1\n", &number));
    assert_int_equal(number, -1);
    assert_true(sl_sysfs_number("2147483647", &number));
    assert_int_equal(number, INT32_MAX);
    static const char *const bad[] = {"",    "-2\n", "2147483648",
                                      "1 2", "x",    "99999999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(sl_sysfs_number(bad[i], &number));
    assert_true(sl_mdev_uuid_valid("aa618089-8b16-4d01-a136-25a0f3c73123"));
    assert_false(sl_mdev_uuid_valid("AA618089-8b16-4d01-a136-25a0f3c73123"));
    assert_false(sl_mdev_uuid_valid("aa618089-8b16-4d01-a136-25a0f3c7312"));
    assert_false(sl_mdev_uuid_valid("aa618089-8b16-4d01-a136-25a0f3c73123x"));
}

/* All types of a list as "ID=NAME;". */
static const char *types(const char *text)
{
    static char all[400];
    char name[SL_VGPU_NAME_SIZE];
    unsigned id;
    int n = 0;
    all[0] = '\0';
    while ((text = sl_vgpu_type_line(text, &id, name)))
        if (id)
            n += snprintf(all + n, sizeof(all) - (size_t)n, "%u=%s;", id, name);
    return all;
}

static void type_lists(void **state)
{
    (void)state;
    assert_string_equal(types(""), "");
    assert_string_equal(types("ID    : vGPU Name\n"), ""); /* a full card has the heading only */
    assert_string_equal(types("ID : vGPU Name\n1155  : NVIDIA L40S-1B\n 1157: NVIDIA L40S-8Q \n"),
                        "1155=NVIDIA L40S-1B;1157=NVIDIA L40S-8Q;");
    assert_string_equal(types("1155  : NVIDIA L40S-1B"), "1155=NVIDIA L40S-1B;"); /* cut */
    assert_string_equal(types("1155\n:\n0 : zero\n-1 : minus\n7 :\n99999999999999 : many\n"), "");
    assert_string_equal(types("8 : \xc3\xa9\n"), "");
    char name[SL_VGPU_NAME_SIZE];
    assert_true(sl_vgpu_name("NVIDIA A40-48Q\n", name));
    assert_string_equal(name, "NVIDIA A40-48Q");
    assert_false(sl_vgpu_name("\n", name));
    assert_false(sl_vgpu_name("a name of more than sixty-three characters, which no vGPU type has "
                              "ever had",
                              name));
}

static const char ids[] =
    "# 2335  comment\n0001  SafeNet\n\t2335  wrong\n10de  NVIDIA Corporation\n\t2334  GH100\n"
    "\t\t2335 0001  subsystem\n\t2335  GH100 [H200 SXM 141GB]\n10df  Emulex\n\t26b9  wrong\n";

static void pci_ids(void **state)
{
    (void)state;
    char name[96];
    assert_true(sl_pci_ids_find(ids, sizeof(ids) - 1, 0x2335, name, sizeof(name)));
    assert_string_equal(name, "GH100 [H200 SXM 141GB]");
    assert_true(sl_pci_ids_find(ids, sizeof(ids) - 1, 0x2334, name, sizeof(name)));
    assert_string_equal(name, "GH100");
    assert_false(sl_pci_ids_find(ids, sizeof(ids) - 1, 0x26b9, name, sizeof(name)));
    assert_false(sl_pci_ids_find("", 0, 0x2335, name, sizeof(name)));
    assert_false(sl_pci_ids_find(ids, sizeof(ids) - 1, 0x2335, name, 8)); /* too long to keep */
    for (size_t n = 0; n < sizeof(ids); n++) /* a file that is cut anywhere */
        (void)sl_pci_ids_find(ids, n, 0x2335, name, sizeof(name));
}

static void names(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
    } card[] = {
        {"GH100 [H200 SXM 141GB]", "GH100_H200_SXM_141GB"},
        {"GA102 [GeForce RTX 3090 Ti]", "GA102_GEFORCE_RTX_3090_TI"},
        {"TU104GL [Tesla T4]", "TU104GL_TESLA_T4"},
        {"GK20A [Tegra K1 / X1.5]", "GK20A_TEGRA_K1___X1_5"},
        {"GP102GL  [Tesla P40]", "GP102GL_TESLA_P40"},
    };
    char made[SL_RESOURCE_NAME_SIZE];
    for (size_t i = 0; i < sizeof(card) / sizeof(card[0]); i++) {
        assert_true(sl_vm_card_name(card[i].from, made));
        assert_string_equal(made, card[i].to);
    }
    assert_false(sl_vm_card_name("", made));
    assert_false(sl_vm_card_name("[]", made));
    assert_true(sl_vm_card_name("[An adapter with a name that is longer than a resource may be, by "
                                "far and more]",
                                made));
    assert_true(strlen(made) <= 63);
    assert_true(sl_vm_vgpu_name("NVIDIA L40S-8Q", made));
    assert_string_equal(made, "NVIDIA_L40S-8Q");
    assert_true(sl_vm_vgpu_name("GRID  T4-1Q", made));
    assert_string_equal(made, "GRID_T4-1Q");
    assert_false(sl_vm_vgpu_name(" - ", made));

    char variable[200];
    sl_vm_variable("PCI_RESOURCE", "nvidia.com/GH100_H200_SXM_141GB", variable, sizeof(variable));
    assert_string_equal(variable, "PCI_RESOURCE_NVIDIA_COM_GH100_H200_SXM_141GB");
    sl_vm_variable("MDEV_PCI_RESOURCE", "nvidia.com/NVIDIA_L40S-8Q", variable, sizeof(variable));
    assert_string_equal(variable, "MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_L40S-8Q");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses), cmocka_unit_test(numbers), cmocka_unit_test(type_lists),
        cmocka_unit_test(pci_ids),   cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
