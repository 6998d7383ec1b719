/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of cards. Figures are what nvidia-smi shows on the hardware where we know it; the
 * context overhead is a round figure per architecture (an H200 was measured at about 500 MiB).
 */
#include "sim/profiles.h"

#include <strings.h>

#include "base/cleanup.h"

#define MIB(n)  ((uint64_t)(n) << 20)
#define GBPS(n) ((uint64_t)(n) * 1000000000ULL)

/*
 * MIG geometry is one of two shapes: Ampere's and Hopper's (engines differ). The fractions of
 * memory are the same on all cards; starts are the hardware's:
 *   1g 0–6, 1g with double memory 0,2,4,6, 2g 0,2,4, 3g 0,4, 4g 0, 7g 0.
 */
#define MIG_A100(m1, m2, m4, m8)                                                                   \
    {                                                                                              \
        {4, 0, 7, 8, 0x01, 1, 98, m8, 7, 5, 1, 1, ""},                                             \
        {3, 5, 4, 4, 0x01, 1, 56, m4, 4, 2, 0, 0, ""},                                             \
        {2, 9, 3, 4, 0x11, 2, 42, m4, 3, 2, 0, 0, ""},                                             \
        {1, 14, 2, 2, 0x15, 3, 28, m2, 2, 1, 0, 0, ""},                                            \
        {9, 15, 1, 2, 0x55, 4, 14, m2, 1, 1, 0, 0, ""},                                            \
        {0, 19, 1, 1, 0x7f, 7, 14, m1, 1, 0, 0, 0, ""},                                            \
        {7, 20, 1, 1, 0x7f, 1, 14, m1, 1, 1, 1, 1, "+me"},                                         \
    }
#define MIG_HOPPER(s1, s1x2, s2, s3, s4, s7, m1, m2, m4, m8)                                       \
    {                                                                                              \
        {4, 0, 7, 8, 0x01, 1, s7, m8, 8, 7, 7, 1, ""},                                             \
        {3, 5, 4, 4, 0x01, 1, s4, m4, 4, 4, 4, 0, ""},                                             \
        {2, 9, 3, 4, 0x11, 2, s3, m4, 3, 3, 3, 0, ""},                                             \
        {1, 14, 2, 2, 0x15, 3, s2, m2, 2, 2, 2, 0, ""},                                            \
        {9, 15, 1, 2, 0x55, 4, s1x2, m2, 1, 1, 1, 0, ""},                                          \
        {0, 19, 1, 1, 0x7f, 7, s1, m1, 1, 1, 1, 0, ""},                                            \
        {7, 20, 1, 1, 0x7f, 1, s1, m1, 1, 1, 1, 1, "+me"},                                         \
    }

static const struct sl_sim_mig_profile mig_a100_40[] = MIG_A100(4864, 9856, 19968, 40192);
static const struct sl_sim_mig_profile mig_a100_80[] = MIG_A100(9728, 19968, 40192, 80384);
static const struct sl_sim_mig_profile mig_h100[] =
    MIG_HOPPER(16, 26, 32, 60, 64, 132, 9984, 20096, 40448, 81152);
static const struct sl_sim_mig_profile mig_h200[] =
    MIG_HOPPER(16, 26, 32, 60, 64, 132, 16384, 33280, 71424, 143360);
static const struct sl_sim_mig_profile mig_b200[] =
    MIG_HOPPER(18, 30, 36, 70, 74, 148, 22144, 45056, 90624, 182272);

static const struct sl_sim_profile profiles[] = {
    {
        .key = "t4",
        .name = "Tesla T4",
        .memory_total_bytes = MIB(15360),
        .sm_count = 40,
        .cc_major = 7,
        .cc_minor = 5,
        .memory_bandwidth_bytes_per_s = GBPS(320),
        .context_overhead_bytes = MIB(120),
        .bar1_bytes = MIB(256),
        .memory_bus_bits = 256,
        .l2_cache_bytes = 4 << 20,
        .pci_device_id = 0x1EB810DE,
        .pci_subsystem_id = 0x12A210DE,
        .pcie_generation = 3,
        .sm_clock_max_mhz = 1590,
        .memory_clock_max_mhz = 5001,
        .power_limit_mw = 70000,
        .power_idle_mw = 9000,
        .architecture = 6,
        .brand = 2,
        .copy_engines = 3,
    },
    {
        .key = "l4",
        .name = "NVIDIA L4",
        .memory_total_bytes = MIB(23034),
        .sm_count = 58,
        .cc_major = 8,
        .cc_minor = 9,
        .memory_bandwidth_bytes_per_s = GBPS(300),
        .context_overhead_bytes = MIB(180),
        .bar1_bytes = MIB(32768),
        .memory_bus_bits = 192,
        .l2_cache_bytes = 48 << 20,
        .pci_device_id = 0x27B810DE,
        .pci_subsystem_id = 0x16CA10DE,
        .pcie_generation = 4,
        .sm_clock_max_mhz = 2040,
        .memory_clock_max_mhz = 6251,
        .power_limit_mw = 72000,
        .power_idle_mw = 12000,
        .architecture = 8,
        .brand = 14,
        .copy_engines = 2,
    },
    {
        .key = "a10g",
        .name = "NVIDIA A10G",
        .memory_total_bytes = MIB(23028),
        .sm_count = 80,
        .cc_major = 8,
        .cc_minor = 6,
        .memory_bandwidth_bytes_per_s = GBPS(600),
        .context_overhead_bytes = MIB(250),
        .bar1_bytes = MIB(32768),
        .memory_bus_bits = 384,
        .l2_cache_bytes = 6 << 20,
        .pci_device_id = 0x223710DE,
        .pci_subsystem_id = 0x152F10DE,
        .pcie_generation = 4,
        .sm_clock_max_mhz = 1710,
        .memory_clock_max_mhz = 6251,
        .power_limit_mw = 300000,
        .power_idle_mw = 16000,
        .architecture = 7,
        .brand = 14,
        .copy_engines = 2,
    },
    {
        .key = "a100-40g",
        .name = "NVIDIA A100-SXM4-40GB",
        .memory_total_bytes = MIB(40960),
        .sm_count = 108,
        .cc_major = 8,
        .cc_minor = 0,
        .memory_bandwidth_bytes_per_s = GBPS(1555),
        .context_overhead_bytes = MIB(410),
        .bar1_bytes = MIB(65536),
        .memory_bus_bits = 5120,
        .l2_cache_bytes = 40 << 20,
        .pci_device_id = 0x20B010DE,
        .pci_subsystem_id = 0x144E10DE,
        .pcie_generation = 4,
        .nvlinks = 12,
        .nvlink_version = 3,
        .sm_clock_max_mhz = 1410,
        .memory_clock_max_mhz = 1215,
        .power_limit_mw = 400000,
        .power_idle_mw = 48000,
        .architecture = 7,
        .brand = 14,
        .copy_engines = 3,
        .mig = mig_a100_40,
        .mig_count = SL_ARRAY_LEN(mig_a100_40),
    },
    {
        .key = "a100-80g",
        .name = "NVIDIA A100-SXM4-80GB",
        .memory_total_bytes = MIB(81920),
        .sm_count = 108,
        .cc_major = 8,
        .cc_minor = 0,
        .memory_bandwidth_bytes_per_s = GBPS(2039),
        .context_overhead_bytes = MIB(420),
        .bar1_bytes = MIB(131072),
        .memory_bus_bits = 5120,
        .l2_cache_bytes = 40 << 20,
        .pci_device_id = 0x20B210DE,
        .pci_subsystem_id = 0x146310DE,
        .pcie_generation = 4,
        .nvlinks = 12,
        .nvlink_version = 3,
        .sm_clock_max_mhz = 1410,
        .memory_clock_max_mhz = 1593,
        .power_limit_mw = 400000,
        .power_idle_mw = 60000,
        .architecture = 7,
        .brand = 14,
        .copy_engines = 3,
        .mig = mig_a100_80,
        .mig_count = SL_ARRAY_LEN(mig_a100_80),
    },
    {
        .key = "h100-80g",
        .name = "NVIDIA H100 80GB HBM3",
        .memory_total_bytes = MIB(81559),
        .sm_count = 132,
        .cc_major = 9,
        .cc_minor = 0,
        .memory_bandwidth_bytes_per_s = GBPS(3352),
        .context_overhead_bytes = MIB(520),
        .bar1_bytes = MIB(131072),
        .memory_bus_bits = 5120,
        .l2_cache_bytes = 50 << 20,
        .pci_device_id = 0x233010DE,
        .pci_subsystem_id = 0x16C110DE,
        .pcie_generation = 5,
        .nvlinks = 18,
        .nvlink_version = 4,
        .sm_clock_max_mhz = 1980,
        .memory_clock_max_mhz = 2619,
        .power_limit_mw = 700000,
        .power_idle_mw = 70000,
        .architecture = 9,
        .brand = 14,
        .copy_engines = 3,
        .mig = mig_h100,
        .mig_count = SL_ARRAY_LEN(mig_h100),
    },
    {
        .key = "h200",
        .name = "NVIDIA H200",
        .memory_total_bytes = MIB(143771),
        .sm_count = 132,
        .cc_major = 9,
        .cc_minor = 0,
        .memory_bandwidth_bytes_per_s = GBPS(4800),
        .context_overhead_bytes = MIB(500),
        .bar1_bytes = MIB(262144),
        .memory_bus_bits = 6144,
        .l2_cache_bytes = 60 << 20,
        .pci_device_id = 0x233510DE,
        .pci_subsystem_id = 0x18BE10DE,
        .pcie_generation = 5,
        .nvlinks = 18,
        .nvlink_version = 4,
        .sm_clock_max_mhz = 1980,
        .memory_clock_max_mhz = 3201,
        .power_limit_mw = 700000,
        .power_idle_mw = 75000,
        .architecture = 9,
        .brand = 14,
        .copy_engines = 3,
        .mig = mig_h200,
        .mig_count = SL_ARRAY_LEN(mig_h200),
    },
    {
        .key = "b200",
        .name = "NVIDIA B200",
        .memory_total_bytes = MIB(183359),
        .sm_count = 148,
        .cc_major = 10,
        .cc_minor = 0,
        .memory_bandwidth_bytes_per_s = GBPS(7700),
        .context_overhead_bytes = MIB(600),
        .bar1_bytes = MIB(262144),
        .memory_bus_bits = 8192,
        .l2_cache_bytes = 126 << 20,
        .pci_device_id = 0x290110DE,
        .pci_subsystem_id = 0x199910DE,
        .pcie_generation = 5,
        .nvlinks = 18,
        .nvlink_version = 5,
        .sm_clock_max_mhz = 1965,
        .memory_clock_max_mhz = 3996,
        .power_limit_mw = 1000000,
        .power_idle_mw = 140000,
        .architecture = 10,
        .brand = 14,
        .copy_engines = 4,
        .mig = mig_b200,
        .mig_count = SL_ARRAY_LEN(mig_b200),
    },
};

size_t sl_sim_profile_count(void)
{
    return SL_ARRAY_LEN(profiles);
}

const struct sl_sim_profile *sl_sim_profile_at(size_t index)
{
    return index < SL_ARRAY_LEN(profiles) ? &profiles[index] : NULL;
}

const struct sl_sim_profile *sl_sim_profile_find(const char *key)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(profiles); i++)
        if (strcasecmp(key, profiles[i].key) == 0)
            return &profiles[i];
    return NULL;
}
