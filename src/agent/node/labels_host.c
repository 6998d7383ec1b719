/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts about the machine for labels: its name from DMI, and whether a card is a virtual GPU. The hypervisor writes
 * that into a vendor-specific capability of the PCI configuration space ("VF", then records).
 */
#include "agent/node/labels_publish.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

enum {
    CONFIG_SPACE = 256,
    STATUS_REGISTER = 0x06,
    STATUS_HAS_CAPABILITIES = 0x10,
    FIRST_CAPABILITY = 0x34,
    VENDOR_CAPABILITY = 0x09,
    RECORDS = 5, /* after id, next, length, 'V', 'F' */
    RECORD_DRIVER = 0,
    DRIVER_FIELD = 10, /* version, then branch */
};

static ssize_t read_whole(const char *path, void *buf, size_t size)
{
    SL_CLEANUP(close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t have = 0;
    while (have < size) {
        ssize_t n = read(fd, (char *)buf + have, size - have);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    return (ssize_t)have;
}

static void copy_field(const uint8_t *field, char *out, size_t size)
{
    size_t n = 0;
    while (n < DRIVER_FIELD && n + 1 < size && isprint(field[n])) {
        out[n] = (char)field[n];
        n++;
    }
    out[n] = '\0';
}

/* Records are an id, a length (of the whole record) and data. */
static void read_records(const uint8_t *cap, size_t size, struct sl_labels_host *host)
{
    size_t at = RECORDS;
    while (at + 2 <= size) {
        size_t length = cap[at + 1];
        if (cap[at] == RECORD_DRIVER && at + 2 + 2 * (size_t)DRIVER_FIELD <= size) {
            copy_field(cap + at + 2, host->vgpu_driver_version, sizeof(host->vgpu_driver_version));
            copy_field(cap + at + 2 + DRIVER_FIELD, host->vgpu_driver_branch,
                       sizeof(host->vgpu_driver_branch));
            return;
        }
        if (length < 2)
            return;
        at += length;
    }
}

static void read_card(const uint8_t *space, size_t size, struct sl_labels_host *host)
{
    /* Without the right to read beyond the header (64 bytes) nothing is known. */
    if (size < CONFIG_SPACE)
        return;
    if (host->vgpu == SL_VGPU_UNKNOWN)
        host->vgpu = SL_VGPU_NO;
    if (!(space[STATUS_REGISTER] & STATUS_HAS_CAPABILITIES))
        return;
    size_t at = space[FIRST_CAPABILITY] & 0xfcU;
    for (unsigned steps = 0; at >= 0x40 && at + RECORDS <= size && steps < 48; steps++) {
        const uint8_t *cap = space + at;
        size_t length = cap[2];
        if (cap[0] == VENDOR_CAPABILITY && cap[3] == 'V' && cap[4] == 'F') {
            host->vgpu = SL_VGPU_YES;
            read_records(cap, length < size - at ? length : size - at, host);
            return;
        }
        at = cap[1] & 0xfcU;
    }
}

/* NVML writes eight digits of domain where sysfs has four, and capitals. */
static bool card_path(const char *sys_root, const char *bus_id, char *path, size_t size)
{
    unsigned domain, bus, device, function;
    if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
        return false;
    int n = snprintf(path, size, "%s/sys/bus/pci/devices/%04x:%02x:%02x.%x/config", sys_root,
                     domain, bus, device, function);
    return n > 0 && (size_t)n < size;
}

void sl_labels_host_read(const char *sys_root, const char *machine_file,
                         const struct sl_inventory *inv, struct sl_labels_host *ret)
{
    char path[512];
    *ret = (struct sl_labels_host){0};
    sys_root = sys_root ? sys_root : "";
    if (machine_file &&
        (size_t)snprintf(path, sizeof(path), "%s%s", sys_root, machine_file) < sizeof(path)) {
        ssize_t n = read_whole(path, ret->machine, sizeof(ret->machine) - 1);
        ret->machine[n > 0 ? n : 0] = '\0';
        ret->machine[strcspn(ret->machine, "\n")] = '\0';
    }
    for (size_t i = 0; i < inv->gpu_count; i++) {
        uint8_t space[CONFIG_SPACE];
        if (inv->gpu[i].lost ||
            !card_path(sys_root, inv->gpu[i].info.pci_bus_id, path, sizeof(path)))
            continue;
        ssize_t n = read_whole(path, space, sizeof(space));
        if (n > 0)
            read_card(space, (size_t)n, ret);
    }
}
