/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of sysfs and pci.ids: any text is refused, or makes values within their bounds and names that Kubernetes takes. */
#include <ctype.h>
#include <string.h>

#include "agent/vm/text.h"
#include "fuzz.h"

static void resource_name(const char *name)
{
    size_t n = strlen(name);
    FUZZ_CHECK(n > 0 && n <= 63);
    FUZZ_CHECK(isalnum((unsigned char)name[0]) && isalnum((unsigned char)name[n - 1]));
    for (size_t i = 0; i < n; i++)
        FUZZ_CHECK(isalnum((unsigned char)name[i]) || strchr("-_.", name[i]));
}

static void names(const char *text)
{
    char name[SL_RESOURCE_NAME_SIZE], variable[SL_RESOURCE_NAME_SIZE + 32];
    if (sl_vm_card_name(text, name))
        resource_name(name);
    if (sl_vm_vgpu_name(text, name))
        resource_name(name);
    sl_vm_variable("PCI_RESOURCE", text, variable, sizeof(variable));
    FUZZ_CHECK(!strchr(variable, '/') && !strchr(variable, '.'));
}

static void types(const char *text)
{
    const char *end = text + strlen(text);
    char name[SL_VGPU_NAME_SIZE];
    unsigned id = 0;
    for (const char *at = text; at;) {
        const char *next = sl_vgpu_type_line(at, &id, name);
        FUZZ_CHECK(!next || (next > at && next <= end)); /* it ends */
        if (next && id)
            FUZZ_CHECK(name[0] && strlen(name) < sizeof(name));
        at = next;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), name[96], address[SL_PCI_ADDRESS_SIZE];
    uint32_t hex = 0;
    int number = 0;
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (sl_pci_ids_find(text, size, 0x2335, name, sizeof(name)))
        FUZZ_CHECK(name[0] && strlen(name) < sizeof(name));
    if (sl_sysfs_hex(text, 0xffff, &hex))
        FUZZ_CHECK(hex <= 0xffff);
    if (sl_sysfs_number(text, &number))
        FUZZ_CHECK(number >= -1);
    if (sl_pci_address_from_nvml(text, address))
        FUZZ_CHECK(sl_pci_address_valid(address) && strlen(address) >= 12);
    if (sl_pci_address_valid(text))
        FUZZ_CHECK(strlen(text) < SL_PCI_ADDRESS_SIZE);
    if (sl_mdev_uuid_valid(text))
        FUZZ_CHECK(strlen(text) + 1 == SL_MDEV_UUID_SIZE);
    names(text);
    types(text);
    free(text);
    return 0;
}
