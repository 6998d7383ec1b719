/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPUs of this machine, for the node side. One table of operations with two makers: sl_gpu_open() (NVML, real or
 * simulated) and the tests. Callers use the sl_gpu_* functions below, never the table.
 *
 * Devices are numbered 0..count-1 as NVML numbers them. "Not known" is a flag or a documented value, never an invented
 * zero. Calls may be made from several threads.
 */
#ifndef SLUICE_GPU_GPU_H
#define SLUICE_GPU_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define SL_GPU_UUID_SIZE 96
#define SL_GPU_NAME_SIZE 96
#define SL_GPU_PCI_SIZE  32

struct sl_gpu_info {
    char uuid[SL_GPU_UUID_SIZE]; /* "GPU-…" */
    char name[SL_GPU_NAME_SIZE];
    char brand[16];                   /* "Nvidia", "Tesla", "GeForce"; "": not known */
    char pci_bus_id[SL_GPU_PCI_SIZE]; /* "00000000:1B:00.0" */
    uint32_t pci_device_id;           /* device << 16 | vendor */
    uint32_t minor;                   /* /dev/nvidia<minor> */
    uint64_t memory_total_bytes;
    uint32_t sm_count; /* 0: not known */
    int cc_major, cc_minor;
    int numa_node; /* -1: not known */
    bool mig_capable, mig_enabled;
    uint32_t mig_slots; /* slots to ask sl_gpu_mig_info() about; 0 with MIG off */
};

struct sl_gpu_memory {
    uint64_t total_bytes;
    uint64_t used_bytes;     /* by processes, and memory that the driver cannot tell apart */
    uint64_t reserved_bytes; /* by the driver and firmware; 0 where it is part of used */
    uint64_t free_bytes;
};

enum sl_gpu_licence { SL_GPU_LICENCE_UNKNOWN, SL_GPU_LICENCE_NONE, SL_GPU_LICENCE_VALID };

struct sl_gpu_vgpu {
    bool guest; /* the card is a vGPU; else nothing below is set */
    enum sl_gpu_licence licence;
    char product[128]; /* that is licensed, or would have to be; "": not known */
    char until[24];    /* "2027-01-31"; "": for ever, or not known */
};

#define SL_GPU_NO_INSTANCE UINT32_MAX

struct sl_gpu_process {
    uint32_t pid; /* in NVML's PID namespace: the host's */
    bool used_known;
    uint64_t used_bytes;
    uint32_t gpu_instance, compute_instance; /* SL_GPU_NO_INSTANCE without MIG */
};

struct sl_gpu_mig_info {
    char uuid[SL_GPU_UUID_SIZE]; /* "MIG-…" */
    char profile[32];            /* "1g.18gb", "1c.3g.71gb" */
    uint32_t gpu_instance, compute_instance;
    uint32_t gpu_slices, compute_slices;
    uint32_t sm_count;
    uint64_t memory_total_bytes;
    uint64_t memory_used_bytes;
    uint32_t placement_start, placement_size; /* memory slices; size 0: not known */
    uint32_t copy_engines, decoders, encoders, jpegs, ofas;
};

/* The state of a card, for monitoring. */
#define SL_GPU_UNKNOWN UINT32_MAX /* in any of the figures below */

struct sl_gpu_sample {
    uint32_t power_mw, power_limit_mw;
    uint32_t temperature_c;
    uint32_t gpu_percent, memory_percent; /* of the last sampling period; unknown with MIG on */
    uint32_t sm_clock_mhz, memory_clock_mhz;
};

/* Properties of a card besides its figures; read once, for the inventory. */
struct sl_gpu_place {
    char clique[96];    /* "<cluster uuid>.<clique id>"; empty where there is no fabric */
    uint32_t pci_class; /* 0x0302 compute, 0x0300 graphics, 0: not known */
};

#define SL_GPU_MIG_PLACEMENTS 16

struct sl_gpu_mig_place {
    uint32_t start, size; /* memory slices */
};

/* A kind of GPU instance a card can carry. Known with MIG off too. */
struct sl_gpu_mig_profile {
    uint32_t id;   /* for sl_gpu_mig_create() */
    char name[32]; /* "1g.18gb", "1g.18gb+me" */
    uint32_t gpu_slices;
    uint32_t max_instances; /* on an empty card */
    uint32_t sm_count;
    uint64_t memory_bytes;
    uint32_t copy_engines, decoders, encoders, jpegs, ofas;
    struct sl_gpu_mig_place placements[SL_GPU_MIG_PLACEMENTS];
    uint32_t placement_count; /* 0: the driver does not tell (it may want privilege) */
};

/* A GPU instance that exists, whether or not a MIG device is on it. */
struct sl_gpu_mig_instance {
    uint32_t id, profile_id;
    struct sl_gpu_mig_place place;
};

/* An XID (or another critical event) on a device. */
struct sl_gpu_event {
    size_t device;
    bool device_known; /* false: the driver named a card we do not have */
    uint64_t xid;
    uint32_t gpu_instance, compute_instance;
};

struct sl_gpu;

struct sl_gpu_ops {
    void (*close)(struct sl_gpu *gpu);
#define OP(name, params, args) int(*name) params;
#include "gpu/ops.def"
#undef OP
};

/* The beginning of every implementation. An operation left NULL returns -ENOSYS. */
struct sl_gpu {
    const struct sl_gpu_ops *ops;
};

/*
 * Loads NVML (`library`, or libnvidia-ml.so.1 when NULL) and starts it. Errors say what is missing:
 *   -ENODEV   no NVIDIA driver on this machine
 *   -ELIBACC  the driver is there, its NVML library is not
 *   -ELIBBAD  the library and the loaded kernel module are of different versions
 *   -EPERM    the device files may not be opened
 */
int sl_gpu_open(const char *library, struct sl_gpu **ret, struct sl_err *err) SL_MUST_CHECK;

/* As sl_gpu_open, with the root under which /proc/driver/nvidia and /dev/nvidiactl are looked for
 * when the library is missing ("" is the machine's own). */
int sl_gpu_open_at(const char *library, const char *root, struct sl_gpu **ret,
                   struct sl_err *err) SL_MUST_CHECK;

/* NULL is fine. */
void sl_gpu_close(struct sl_gpu *gpu);

/* For sl_gpu_mig_create(): the driver chooses the place. */
#define SL_GPU_MIG_ANYWHERE UINT32_MAX

/* ops.def says what each function does. */
#define OP(name, params, args) int sl_gpu_##name params SL_MUST_CHECK;
#include "gpu/ops.def"
#undef OP

#endif
