/* SPDX-License-Identifier: Apache-2.0 */
/* What a card is: names, addresses, links, its place in the machine. */
#include "sim/nvml_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

static const struct sl_sim_device *desc(uint32_t index)
{
    return &nv_spec()->devices[index];
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    ENTER(nvmlDeviceGetName);
    struct nv_target t;
    TRY(nv_target(device, &t));
    if (!t.is_mig)
        return nv_copy_text(name, length, desc(t.index)->name);
    char text[128], profile[40];
    struct sl_sim_mig_state s = nv_mig(t.index);
    sl_sim_mig_ci_name(nv_profile(desc(t.index)), s.gi[t.gi].profile, s.gi[t.gi].ci[t.ci].slices,
                       profile, sizeof(profile));
    (void)snprintf(text, sizeof(text), "%s MIG %s", desc(t.index)->name, profile);
    return nv_copy_text(name, length, text);
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    ENTER(nvmlDeviceGetUUID);
    struct nv_target t;
    TRY(nv_target(device, &t));
    if (!t.is_mig)
        return nv_copy_text(uuid, length, desc(t.index)->uuid_text);
    uint8_t bytes[16];
    char text[48];
    struct sl_sim_mig_state s = nv_mig(t.index);
    sl_sim_mig_uuid(desc(t.index), &s.gi[t.gi], &s.gi[t.gi].ci[t.ci], bytes);
    sl_sim_uuid_format("MIG-", bytes, text, sizeof(text));
    return nv_copy_text(uuid, length, text);
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
    ENTER(nvmlDeviceGetSerial);
    uint32_t i;
    TRY(nv_card(device, &i));
    return nv_copy_text(serial, length, desc(i)->serial);
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version,
                                                 unsigned int length)
{
    ENTER(nvmlDeviceGetVbiosVersion);
    uint32_t i;
    TRY(nv_card(device, &i));
    return nv_copy_text(version, length, "96.00.00.00.01");
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    ENTER(nvmlDeviceGetIndex);
    struct nv_target t;
    REQUIRE(index);
    TRY(nv_target(device, &t));
    *index = t.is_mig ? t.gi * SL_SIM_MIG_MAX_CI + t.ci : nv_position(t.index);
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    ENTER(nvmlDeviceGetMinorNumber);
    uint32_t i;
    REQUIRE(minor);
    TRY(nv_card(device, &i));
    *minor = i;
    return NVML_SUCCESS;
}

/* ---- PCI ---- */

void nv_fill_pci(const struct sl_sim_device *dev, nvmlPciInfo_t *out)
{
    *out = (nvmlPciInfo_t){
        .domain = dev->pci_domain,
        .bus = dev->pci_bus,
        .device = dev->pci_device,
        .pciDeviceId = nv_profile(dev)->pci_device_id,
        .pciSubSystemId = nv_profile(dev)->pci_subsystem_id,
    };
    /* The legacy form has room for 16 bits of domain only. */
    (void)snprintf(out->busIdLegacy, sizeof(out->busIdLegacy), "%04X:%02X:%02X.0",
                   dev->pci_domain & 0xffff, dev->pci_bus & 0xff, dev->pci_device & 0xff);
    (void)snprintf(out->busId, sizeof(out->busId), "%08X:%02X:%02X.0", dev->pci_domain,
                   dev->pci_bus, dev->pci_device);
}

static void narrow_pci(const nvmlPciInfo_t *in, nvmlPciInfo_v2_t *out)
{
    *out = (nvmlPciInfo_v2_t){
        .domain = in->domain,
        .bus = in->bus,
        .device = in->device,
        .pciDeviceId = in->pciDeviceId,
        .pciSubSystemId = in->pciSubSystemId,
    };
    memcpy(out->busId, in->busIdLegacy, sizeof(out->busId));
}

static nvmlReturn_t pci_of(nvmlDevice_t device, nvmlPciInfo_t *out)
{
    struct nv_target t;
    TRY(nv_target(device, &t));
    nv_fill_pci(desc(t.index), out);
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v2_t *pci)
{
    ENTER(nvmlDeviceGetPciInfo);
    nvmlPciInfo_t full;
    REQUIRE(pci);
    TRY(pci_of(device, &full));
    narrow_pci(&full, pci);
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *pci)
{
    ENTER(nvmlDeviceGetPciInfo_v2);
    nvmlPciInfo_t full;
    REQUIRE(pci);
    TRY(pci_of(device, &full));
    narrow_pci(&full, pci);
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    ENTER(nvmlDeviceGetPciInfo_v3);
    REQUIRE(pci);
    return pci_of(device, pci);
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_v1_t *pci)
{
    ENTER(nvmlDeviceGetPciInfoExt);
    nvmlPciInfo_t full;
    REQUIRE(pci);
    if (pci->version != NVML_PCI_INFO_EXT_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    TRY(pci_of(device, &full));
    *pci = (nvmlPciInfoExt_v1_t){
        .version = NVML_PCI_INFO_EXT_V1,
        .domain = full.domain,
        .bus = full.bus,
        .device = full.device,
        .pciDeviceId = full.pciDeviceId,
        .pciSubSystemId = full.pciSubSystemId,
        .baseClass = 0x03, /* every card here is a 3D controller: no display */
        .subClass = 0x02,
    };
    memcpy(pci->busId, full.busId, sizeof(pci->busId));
    return NVML_SUCCESS;
}

/* Cards behind switches are registered with their fabric; only a spec gives the cluster a name. */
NV_EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
    ENTER(nvmlDeviceGetGpuFabricInfo);
    uint32_t i;
    REQUIRE(info);
    TRY(nv_card(device, &i));
    static const uint8_t nobody[16];
    bool named = memcmp(desc(i)->cluster, nobody, sizeof(nobody)) != 0;
    if (!named && sl_sim_nvlink_peer(nv_spec(), i, 0) != SL_SIM_LINK_SWITCH)
        return NVML_ERROR_NOT_SUPPORTED;
    *info = (nvmlGpuFabricInfo_t){.status = NVML_SUCCESS,
                                  .cliqueId = desc(i)->clique,
                                  .state = NVML_GPU_FABRIC_STATE_COMPLETED};
    memcpy(info->clusterUuid, desc(i)->cluster, sizeof(info->clusterUuid));
    return NVML_SUCCESS;
}

/* ---- figures of the model: one shape, one macro ---- */

#define CARD_FIGURE(function, value)                                                               \
    NV_EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int *out)                        \
    {                                                                                              \
        ENTER(function);                                                                           \
        struct nv_target t;                                                                        \
        REQUIRE(out);                                                                              \
        TRY(nv_target(device, &t));                                                                \
        const struct sl_sim_device *d = desc(t.index);                                             \
        const struct sl_sim_profile *p = nv_profile(d);                                            \
        (void)d;                                                                                   \
        (void)p;                                                                                   \
        *out = (value);                                                                            \
        return NVML_SUCCESS;                                                                       \
    }

/* 64 cores on GP100, Volta, Turing and GA100; 128 on the others. */
static unsigned int cores_per_sm(const struct sl_sim_profile *p)
{
    return p->cc_major == 7 || (p->cc_major == 8 && p->cc_minor == 0) ? 64 : 128;
}

CARD_FIGURE(nvmlDeviceGetBrand, p->brand)
CARD_FIGURE(nvmlDeviceGetArchitecture, p->architecture)
CARD_FIGURE(nvmlDeviceGetNumGpuCores, d->sm_count *cores_per_sm(p))
CARD_FIGURE(nvmlDeviceGetMemoryBusWidth, p->memory_bus_bits)
CARD_FIGURE(nvmlDeviceGetDisplayMode, NVML_FEATURE_DISABLED)
CARD_FIGURE(nvmlDeviceGetDisplayActive, NVML_FEATURE_DISABLED)
CARD_FIGURE(nvmlDeviceGetVirtualizationMode, d->vgpu ? NVML_GPU_VIRTUALIZATION_MODE_VGPU : 0)
CARD_FIGURE(nvmlDeviceGetMaxPcieLinkGeneration, p->pcie_generation)
CARD_FIGURE(nvmlDeviceGetCurrPcieLinkGeneration, p->pcie_generation)
CARD_FIGURE(nvmlDeviceGetMaxPcieLinkWidth, 16)
CARD_FIGURE(nvmlDeviceGetCurrPcieLinkWidth, 16)

NV_EXPORT nvmlReturn_t
nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, nvmlGridLicensableFeatures_t *features)
{
    ENTER(nvmlDeviceGetGridLicensableFeatures_v4);
    uint32_t i;
    REQUIRE(features);
    TRY(nv_card(device, &i));
    uint32_t vgpu = desc(i)->vgpu;
    if (vgpu != SL_SIM_VGPU_LICENSED && vgpu != SL_SIM_VGPU_UNLICENSED)
        return NVML_ERROR_NOT_SUPPORTED;
    *features =
        (nvmlGridLicensableFeatures_t){.isGridLicenseSupported = 1, .licensableFeaturesCount = 1};
    nvmlGridLicensableFeature_t *f = &features->gridLicensableFeatures[0];
    f->featureEnabled = 1;
    (void)snprintf(f->productName, sizeof(f->productName), "Simulated Compute Server");
    if (vgpu == SL_SIM_VGPU_UNLICENSED)
        return NVML_SUCCESS;
    f->featureState = 1;
    f->licenseExpiry = (nvmlGridLicenseExpiry_t){
        .year = 2031, .month = 1, .day = 31, .status = NVML_GRID_LICENSE_EXPIRY_VALID};
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major,
                                                          int *minor)
{
    ENTER(nvmlDeviceGetCudaComputeCapability);
    struct nv_target t;
    REQUIRE(major && minor);
    TRY(nv_target(device, &t));
    *major = (int)nv_profile(desc(t.index))->cc_major;
    *minor = (int)nv_profile(desc(t.index))->cc_minor;
    return NVML_SUCCESS;
}

/* A Windows notion. */
NV_EXPORT nvmlReturn_t nvmlDeviceGetDriverModel(nvmlDevice_t device, unsigned int *current,
                                                unsigned int *pending)
{
    ENTER(nvmlDeviceGetDriverModel);
    (void)device, (void)current, (void)pending;
    return NVML_ERROR_NOT_SUPPORTED;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetDriverModel_v2(nvmlDevice_t device, unsigned int *current,
                                                   unsigned int *pending)
{
    ENTER(nvmlDeviceGetDriverModel_v2);
    (void)device, (void)current, (void)pending;
    return NVML_ERROR_NOT_SUPPORTED;
}

/* ---- NVLink ---- */

/* The card and what is at the end of one of its links. */
static nvmlReturn_t link_of(nvmlDevice_t device, unsigned int link, uint32_t *index, int *peer)
{
    TRY(nv_card(device, index));
    if (desc(*index)->nvlinks == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    REQUIRE(link < desc(*index)->nvlinks);
    *peer = sl_sim_nvlink_peer(nv_spec(), *index, link);
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                                unsigned int *up)
{
    ENTER(nvmlDeviceGetNvLinkState);
    uint32_t i;
    int peer;
    REQUIRE(up);
    TRY(link_of(device, link, &i, &peer));
    *up = peer != SL_SIM_LINK_NONE;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link,
                                                  unsigned int *version)
{
    ENTER(nvmlDeviceGetNvLinkVersion);
    uint32_t i;
    int peer;
    REQUIRE(version);
    TRY(link_of(device, link, &i, &peer));
    *version = nv_profile(desc(i))->nvlink_version;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link,
                                                     unsigned int capability, unsigned int *result)
{
    ENTER(nvmlDeviceGetNvLinkCapability);
    uint32_t i;
    int peer;
    REQUIRE(result && capability <= NVML_NVLINK_CAP_VALID);
    TRY(link_of(device, link, &i, &peer));
    *result = peer != SL_SIM_LINK_NONE &&
              (capability == NVML_NVLINK_CAP_P2P_SUPPORTED ||
               capability == NVML_NVLINK_CAP_P2P_ATOMICS || capability == NVML_NVLINK_CAP_VALID);
    return NVML_SUCCESS;
}

static nvmlReturn_t remote_pci(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *out)
{
    uint32_t i;
    int peer;
    TRY(link_of(device, link, &i, &peer));
    if (peer >= 0) {
        nv_fill_pci(desc((uint32_t)peer), out);
        return NVML_SUCCESS;
    }
    if (peer != SL_SIM_LINK_SWITCH)
        return NVML_ERROR_NOT_SUPPORTED;
    /* Four switches behind a bridge of their own; links are spread over them. */
    *out = (nvmlPciInfo_t){.bus = 5 + link % 4, .pciDeviceId = 0x22A310DE};
    (void)snprintf(out->busIdLegacy, sizeof(out->busIdLegacy), "0000:%02X:00.0", out->bus & 0xff);
    (void)snprintf(out->busId, sizeof(out->busId), "00000000:%02X:00.0", out->bus);
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link,
                                                        nvmlPciInfo_v2_t *pci)
{
    ENTER(nvmlDeviceGetNvLinkRemotePciInfo);
    nvmlPciInfo_t full;
    REQUIRE(pci);
    TRY(remote_pci(device, link, &full));
    narrow_pci(&full, pci);
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                           nvmlPciInfo_t *pci)
{
    ENTER(nvmlDeviceGetNvLinkRemotePciInfo_v2);
    REQUIRE(pci);
    return remote_pci(device, link, pci);
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                           unsigned int *type)
{
    ENTER(nvmlDeviceGetNvLinkRemoteDeviceType);
    uint32_t i;
    int peer;
    REQUIRE(type);
    TRY(link_of(device, link, &i, &peer));
    *type = peer >= 0                    ? NVML_NVLINK_DEVICE_TYPE_GPU
            : peer == SL_SIM_LINK_SWITCH ? NVML_NVLINK_DEVICE_TYPE_SWITCH
                                         : NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    return NVML_SUCCESS;
}

/* ---- topology ---- */

static unsigned int level_between(uint32_t a, uint32_t b)
{
    if (a == b)
        return NVML_TOPOLOGY_INTERNAL;
    return desc(a)->numa_node == desc(b)->numa_node ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b,
                                                           unsigned int *level)
{
    ENTER(nvmlDeviceGetTopologyCommonAncestor);
    uint32_t i, j;
    REQUIRE(level);
    TRY(nv_card(a, &i));
    TRY(nv_card(b, &j));
    *level = level_between(i, j);
    return NVML_SUCCESS;
}

/* Without an array: how many. With one: at most *count of them. */
NV_EXPORT nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, unsigned int level,
                                                        unsigned int *count, nvmlDevice_t *devices)
{
    ENTER(nvmlDeviceGetTopologyNearestGpus);
    uint32_t i;
    unsigned int n = 0;
    REQUIRE(count);
    TRY(nv_card(device, &i));
    unsigned int room = devices ? *count : 0;
    for (uint32_t j = 0; j < nv_spec()->count; j++) {
        if (j == i || !nv_sees(j) || level_between(i, j) > level)
            continue;
        if (n < room)
            devices[n] = nv_card_handle(j);
        n++;
    }
    *count = devices && n > room ? room : n;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, unsigned int index,
                                              unsigned int *status)
{
    ENTER(nvmlDeviceGetP2PStatus);
    uint32_t i, j;
    REQUIRE(status && index <= NVML_P2P_CAPS_INDEX_PCI);
    TRY(nv_card(a, &i));
    TRY(nv_card(b, &j));
    bool linked = sl_sim_nvlink_count(nv_spec(), i, j) > 0;
    bool ok = index == NVML_P2P_CAPS_INDEX_PCI ? true : linked;
    *status = ok ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

/* Sets the bits of a kernel list such as "0-3,8"; false when it cannot be read. */
static bool read_cpulist(const char *path, unsigned int words, unsigned long *set)
{
    SL_CLEANUP(fclose) FILE *f = fopen(path, "re");
    char text[4096], *p = text, *end;
    unsigned long bits = sizeof(long) * CHAR_BIT;
    if (!f || !fgets(text, sizeof(text), f))
        return false;
    for (;; p = end + 1) {
        unsigned long first = strtoul(p, &end, 10), last = first;
        if (end == p)
            return false;
        if (*end == '-') {
            p = end + 1;
            last = strtoul(p, &end, 10);
            if (end == p)
                return false;
        }
        for (; first <= last && first / bits < words; first++)
            set[first / bits] |= 1UL << (first % bits);
        if (*end != ',')
            return true;
    }
}

/* CPUs of the card's NUMA node if this machine has such a node, else all of them. */
static nvmlReturn_t cpu_affinity(nvmlDevice_t device, unsigned int words, unsigned long *set)
{
    uint32_t i;
    char path[80];
    REQUIRE(words > 0 && set);
    TRY(nv_card(device, &i));
    memset(set, 0, words * sizeof(*set));
    (void)snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist",
                   desc(i)->numa_node);
    if (read_cpulist(path, words, set) ||
        read_cpulist("/sys/devices/system/cpu/online", words, set))
        return NVML_SUCCESS;
    /* No /sys in this container: every processor there is. */
    unsigned long cpus = (unsigned long)sysconf(_SC_NPROCESSORS_ONLN);
    for (unsigned long c = 0; c < cpus && c < words * sizeof(*set) * 8; c++)
        set[c / (sizeof(*set) * 8)] |= 1UL << (c % (sizeof(*set) * 8));
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int set_size,
                                                unsigned long *set)
{
    ENTER(nvmlDeviceGetCpuAffinity);
    return cpu_affinity(device, set_size, set);
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device,
                                                           unsigned int set_size,
                                                           unsigned long *set, unsigned int scope)
{
    ENTER(nvmlDeviceGetCpuAffinityWithinScope);
    REQUIRE(scope <= NVML_AFFINITY_SCOPE_SOCKET);
    return cpu_affinity(device, set_size, set);
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int set_size,
                                                   unsigned long *set, unsigned int scope)
{
    ENTER(nvmlDeviceGetMemoryAffinity);
    uint32_t i;
    REQUIRE(set_size > 0 && set && scope <= NVML_AFFINITY_SCOPE_SOCKET);
    TRY(nv_card(device, &i));
    if (desc(i)->numa_node < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(set, 0, set_size * sizeof(*set));
    set[0] = 1UL << desc(i)->numa_node;
    return NVML_SUCCESS;
}

/* For cards that are NUMA nodes themselves; none of ours is. */
NV_EXPORT nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node)
{
    ENTER(nvmlDeviceGetNumaNodeId);
    uint32_t i;
    REQUIRE(node);
    TRY(nv_card(device, &i));
    return NVML_ERROR_NOT_SUPPORTED;
}
