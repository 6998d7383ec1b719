/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the simulated cards are: a table of real models, and the parser that turns "h200x4" or a
 * file into device descriptions. Knows nothing of CUDA, NVML or shared state: the simulated
 * libcuda and libnvidia-ml both stand on it.
 */
#ifndef SLUICE_SIM_PROFILES_H
#define SLUICE_SIM_PROFILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define SL_SIM_MAX_DEVICES 16
#define SL_SIM_MIG_SLICES  8 /* memory slices; compute has seven */

/* One row of a card's MIG table. Placements start at every bit of `starts` and take `size` memory
 * slices. */
struct sl_sim_mig_profile {
    uint32_t nvml_profile; /* the NVML enumeration value (1_SLICE, 1_SLICE_REV1, …) */
    uint32_t id;           /* what the driver calls it: 19 is 1g, 0 is the whole card */
    uint32_t gpu_slices;   /* the "3" in 3g */
    uint32_t size;         /* memory slices */
    uint8_t starts;        /* bit n: may start at memory slice n */
    uint32_t max_instances;
    uint32_t sm_count;
    uint32_t memory_mib;
    uint32_t copy_engines, decoders, jpegs, ofas;
    const char *suffix; /* "+me" or "" */
};

/* A model of card. Strings and tables live as long as the program. */
struct sl_sim_profile {
    const char *key;  /* "h200": what a spec names */
    const char *name; /* what NVML and CUDA answer */
    uint64_t memory_total_bytes;
    uint32_t sm_count;
    uint32_t cc_major, cc_minor;
    uint64_t memory_bandwidth_bytes_per_s;
    uint64_t context_overhead_bytes; /* device memory one process's context costs */
    uint64_t bar1_bytes;
    uint32_t memory_bus_bits;
    uint32_t l2_cache_bytes;
    uint32_t pci_device_id;    /* device << 16 | vendor, as NVML has it */
    uint32_t pci_subsystem_id; /* same order */
    uint32_t pcie_generation;
    uint32_t nvlinks; /* per card; 0 = none */
    uint32_t nvlink_version;
    uint32_t sm_clock_max_mhz, memory_clock_max_mhz;
    uint32_t power_limit_mw, power_idle_mw;
    uint32_t architecture; /* NVML_DEVICE_ARCH_* */
    uint32_t brand;        /* NVML_BRAND_* */
    uint32_t copy_engines;
    const struct sl_sim_mig_profile *mig; /* NULL: the card cannot do MIG */
    size_t mig_count;
};

/* Words of the spec: no vGPU, one with a licence, one without, one whose driver does not tell. */
enum sl_sim_vgpu {
    SL_SIM_VGPU_NO,
    SL_SIM_VGPU_LICENSED,
    SL_SIM_VGPU_UNLICENSED,
    SL_SIM_VGPU_UNTOLD
};

/* One simulated card. Flat (no pointers), so it may be copied into memory shared by processes that
 * map their libraries elsewhere. What a spec file may override is here; the rest is in the profile. */
struct sl_sim_device {
    uint32_t profile; /* index for sl_sim_profile_at() */
    uint32_t sm_count;
    uint64_t memory_total_bytes;
    uint64_t memory_bandwidth_bytes_per_s;
    uint64_t context_overhead_bytes;
    uint32_t nvlinks;
    uint32_t nvlink_fabric; /* cards with the same non-zero number are linked */
    int32_t numa_node;      /* -1: unknown */
    uint32_t pci_domain, pci_bus, pci_device;
    uint8_t cluster[16]; /* NVLink cluster; all zero: none */
    uint32_t clique;     /* in the cluster */
    uint32_t vgpu;       /* enum sl_sim_vgpu: the card is a vGPU of this virtual machine */
    uint8_t uuid[16];
    char uuid_text[48]; /* "GPU-xxxxxxxx-…" */
    char name[64];
    char serial[24];
};

struct sl_sim_spec {
    size_t count;
    struct sl_sim_device devices[SL_SIM_MAX_DEVICES];
    char driver_version[32]; /* "580.159.04" */
    uint32_t cuda_version;   /* 13000 = 13.0, as cuDriverGetVersion */
};

size_t sl_sim_profile_count(void);

/* NULL past the end. */
const struct sl_sim_profile *sl_sim_profile_at(size_t index);

/* By key, in any case; NULL if there is none. */
const struct sl_sim_profile *sl_sim_profile_find(const char *key);

/*
 * Reads a spec: "h200", "h200x4", "a100-80gx2,l4", each optionally followed by "@seed" at the very
 * end ("h200x4@node-b": the same cards with other UUIDs), or the path of a file (anything with a
 * '/'). docs/simulated-gpu.md has the file format. The same text gives the same UUIDs everywhere.
 */
int sl_sim_spec_parse(const char *spec, struct sl_sim_spec *ret, struct sl_err *err) SL_MUST_CHECK;

/* The same from the text of a file; `where` names it in errors. */
int sl_sim_spec_parse_text(const char *text, const char *where, struct sl_sim_spec *ret,
                           struct sl_err *err) SL_MUST_CHECK;

enum {
    SL_SIM_LINK_NONE = -1,  /* no such link, or nothing at its end */
    SL_SIM_LINK_SWITCH = -2 /* ends in an NVSwitch: reaches every card of the fabric */
};

/* What is at the end of a card's NVLink: a device index or one of the above. Up to four linked
 * cards are wired directly, more go through switches, as the 4- and 8-card boards are. */
int sl_sim_nvlink_peer(const struct sl_sim_spec *spec, size_t device, uint32_t link);

/* How many links two cards have between them (through switches: all of them). 0: none. */
uint32_t sl_sim_nvlink_count(const struct sl_sim_spec *spec, size_t a, size_t b);

/* "0000:1b:00.0", "00000000:1B:00.0", "1b:00.0": the three ways to write an address. */
bool sl_sim_pci_parse(const char *text, uint32_t *domain, uint32_t *bus, uint32_t *device);

/* 128 bits that depend on every input and on nothing else: UUIDs are made of it. */
void sl_sim_hash128(const char *text, uint64_t a, uint64_t b, uint8_t out[16]);

/* "GPU-" or "MIG-" and the 36 characters. */
void sl_sim_uuid_format(const char *prefix, const uint8_t uuid[16], char *buf, size_t size);

#endif
