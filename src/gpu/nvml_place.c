/* SPDX-License-Identifier: Apache-2.0 */
/* The surroundings of a card (bus, fabric, links to other cards), and its state. */
#include "gpu/nvml_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"

/* A figure this card or driver does not have stays unknown; only a lost card is an error. */
#define FIGURE(value, fn, ...)                                                                     \
    do {                                                                                           \
        int result_ = NVML_CALL(g, err, fn, __VA_ARGS__);                                          \
        if (result_ < 0)                                                                           \
            (value) = SL_GPU_UNKNOWN;                                                              \
        if (result_ == -ENXIO)                                                                     \
            return result_;                                                                        \
    } while (0)

int sl_nvml_sample(struct sl_gpu *gpu, size_t i, struct sl_gpu_sample *ret, struct sl_err *err)
{
    struct nvml_gpu *g = nvml_of(gpu);
    nvmlDevice_t dev = NULL;
    struct sl_gpu_sample s = {0};
    nvmlUtilization_t load = {0};
    int r = sl_nvml_handle(g, i, &dev, err);
    if (r < 0)
        return r;
    FIGURE(s.power_mw, nvmlDeviceGetPowerUsage, dev, &s.power_mw);
    FIGURE(s.power_limit_mw, nvmlDeviceGetEnforcedPowerLimit, dev, &s.power_limit_mw);
    FIGURE(s.temperature_c, nvmlDeviceGetTemperature, dev, NVML_TEMPERATURE_GPU, &s.temperature_c);
    FIGURE(load.gpu, nvmlDeviceGetUtilizationRates, dev, &load);
    FIGURE(s.sm_clock_mhz, nvmlDeviceGetClockInfo, dev, NVML_CLOCK_SM, &s.sm_clock_mhz);
    FIGURE(s.memory_clock_mhz, nvmlDeviceGetClockInfo, dev, NVML_CLOCK_MEM, &s.memory_clock_mhz);
    s.gpu_percent = load.gpu;
    s.memory_percent = load.gpu == SL_GPU_UNKNOWN ? SL_GPU_UNKNOWN : load.memory;
    *ret = s;
    return 0;
}

/* ---- place ---- */

static uint32_t class_from_sysfs(const nvmlPciInfo_t *pci)
{
    char path[96];
    char text[16], *end;
    (void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%04x:%02x:%02x.0/class", pci->domain,
                   pci->bus, pci->device);
    SL_CLEANUP(fclose) FILE *f = fopen(path, "re");
    if (!f || !fgets(text, sizeof(text), f))
        return 0;
    unsigned long class = strtoul(text, &end, 16); /* class, subclass, interface: a byte each */
    return end != text ? (uint32_t)(class >> 8 & 0xffff) : 0;
}

static uint32_t pci_class(struct nvml_gpu *g, nvmlDevice_t dev)
{
    nvmlPciInfoExt_v1_t ext = {.version = NVML_PCI_INFO_EXT_V1};
    nvmlPciInfo_t pci = {0};
    if (NVML_CALL(g, NULL, nvmlDeviceGetPciInfoExt, dev, &ext) == 0)
        return (ext.baseClass & 0xff) << 8 | (ext.subClass & 0xff);
    if (NVML_CALL(g, NULL, nvmlDeviceGetPciInfo_v3, dev, &pci) == 0)
        return class_from_sysfs(&pci);
    return 0;
}

/* Only cards that a fabric manager put into a cluster are in a clique; on a single board the cluster has no name. */
static void clique(struct nvml_gpu *g, nvmlDevice_t dev, char *buf, size_t size)
{
    nvmlGpuFabricInfo_t f = {0};
    static const unsigned char nobody[sizeof(f.clusterUuid)];
    buf[0] = '\0';
    if (NVML_CALL(g, NULL, nvmlDeviceGetGpuFabricInfo, dev, &f) < 0 ||
        f.state != NVML_GPU_FABRIC_STATE_COMPLETED || f.status != NVML_SUCCESS ||
        memcmp(f.clusterUuid, nobody, sizeof(nobody)) == 0)
        return;
    size_t at = 0;
    for (size_t i = 0; i < sizeof(f.clusterUuid) && at + 4 < size; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        at += (size_t)snprintf(buf + at, size - at, "%s%02x", dash ? "-" : "", f.clusterUuid[i]);
    }
    (void)snprintf(buf + at, size - at, ".%u", f.cliqueId);
}

int sl_nvml_place(struct sl_gpu *gpu, size_t i, struct sl_gpu_place *ret, struct sl_err *err)
{
    struct nvml_gpu *g = nvml_of(gpu);
    nvmlDevice_t dev = NULL;
    int r = sl_nvml_handle(g, i, &dev, err);
    if (r < 0)
        return r;
    ret->pci_class = pci_class(g, dev);
    clique(g, dev, ret->clique, sizeof(ret->clique));
    return 0;
}

/* ---- NVLink ---- */

struct linked {
    nvmlDevice_t dev; /* NULL: does not answer */
    nvmlPciInfo_t pci;
    uint32_t beyond; /* active links that end at no card of ours: switches */
};

static bool same_place(const nvmlPciInfo_t *a, const nvmlPciInfo_t *b)
{
    return a->domain == b->domain && a->bus == b->bus && a->device == b->device;
}

/* Counts card i's links to other cards, and its links to anything else. */
static void follow_links(struct nvml_gpu *g, struct linked *cards, size_t n, size_t i,
                         uint8_t *matrix)
{
    for (unsigned int link = 0; link < NVML_MAX_NVLINKS; link++) {
        unsigned int up = 0;
        nvmlPciInfo_t far = {0};
        size_t j = n;
        if (NVML_CALL(g, NULL, nvmlDeviceGetNvLinkState, cards[i].dev, link, &up) < 0 || !up)
            continue;
        if (NVML_CALL(g, NULL, nvmlDeviceGetNvLinkRemotePciInfo_v2, cards[i].dev, link, &far) == 0)
            for (j = 0; j < n; j++)
                if (j != i && cards[j].dev && same_place(&far, &cards[j].pci))
                    break;
        if (j < n)
            matrix[i * n + j]++;
        else
            cards[i].beyond++;
    }
}

/* Two cards with links into a switch reach each other if the driver says so. */
static void through_switches(struct nvml_gpu *g, const struct linked *cards, size_t n, size_t i,
                             size_t j, uint8_t *matrix)
{
    unsigned int status = NVML_P2P_STATUS_UNKNOWN;
    uint32_t links = cards[i].beyond < cards[j].beyond ? cards[i].beyond : cards[j].beyond;
    if (links == 0 || NVML_CALL(g, NULL, nvmlDeviceGetP2PStatus, cards[i].dev, cards[j].dev,
                                NVML_P2P_CAPS_INDEX_NVLINK, &status) < 0)
        return;
    if (status == NVML_P2P_STATUS_OK)
        matrix[i * n + j] = (uint8_t)(matrix[i * n + j] + links);
}

int sl_nvml_nvlinks(struct sl_gpu *gpu, uint8_t *matrix, size_t n, struct sl_err *err)
{
    struct nvml_gpu *g = nvml_of(gpu);
    (void)err;
    memset(matrix, 0, n * n);
    if (n < 2)
        return 0;
    SL_CLEANUP(free) struct linked *cards = sl_xcalloc(n, sizeof(*cards));
    for (size_t i = 0; i < n; i++)
        if (sl_nvml_handle(g, i, &cards[i].dev, NULL) < 0 ||
            NVML_CALL(g, NULL, nvmlDeviceGetPciInfo_v3, cards[i].dev, &cards[i].pci) < 0)
            cards[i].dev = NULL;
    for (size_t i = 0; i < n; i++)
        if (cards[i].dev)
            follow_links(g, cards, n, i, matrix);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            if (i != j && cards[i].dev && cards[j].dev)
                through_switches(g, cards, n, i, j, matrix);
    return 0;
}
