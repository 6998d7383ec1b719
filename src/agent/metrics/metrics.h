/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's metrics in Prometheus' text format. Pure: takes a snapshot, returns text; docs/metrics.md lists the
 * metrics. Gathering and serving: metrics_serve.h. A NULL string is written as an empty label, which means the same as
 * no label.
 */
#ifndef SLUICE_AGENT_METRICS_METRICS_H
#define SLUICE_AGENT_METRICS_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/kubelet/plugin.h"
#include "agent/kubelet/podres.h"
#include "base/err.h"
#include "gpu/gpu.h"

/* Under whose names figures are written. */
enum sl_metrics_names { SL_METRICS_SLUICE = 1, SL_METRICS_HAMI = 2, SL_METRICS_DCGM = 4 };

#define SL_METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Figures from NVML. A figure that is not known is NAN and left out of the text. */
struct sl_gpu_numbers {
    double memory_total_bytes, memory_used_bytes;
    double utilisation_ratio; /* 0 to 1: part of the last sample in which something ran */
    double power_watts, temperature_celsius;
};
#define SL_GPU_NUMBERS_UNKNOWN                                                                     \
    (struct sl_gpu_numbers)                                                                        \
    {                                                                                              \
        NAN, NAN, NAN, NAN, NAN                                                                    \
    }

struct sl_metrics_gpu {
    const char *uuid, *name, *pci_bus_id;
    unsigned index;
    bool healthy;
    struct sl_gpu_numbers now;
};

struct sl_metrics_mig {
    const char *gpu, *uuid, *profile;
    double memory_total_bytes, memory_used_bytes;
};

struct sl_metrics_compute { /* how the arbiter shares the time of a card or MIG device */
    const char *gpu;
    bool turns;
    const char *why; /* why by turns; NULL with slices */
};

struct sl_metrics_xid { /* one row a GPU and XID seen since the start */
    char gpu[SL_GPU_UUID_SIZE];
    uint64_t xid, count;
};

struct sl_metrics_resource {
    struct sl_plugins_resource of;
    double in_use; /* NAN: kubelet did not say */
};

struct sl_metrics_allocation { /* a device that a container holds, from kubelet */
    const struct sl_podres_device *device;
    const char *gpu;
};

struct sl_metrics_vm { /* a device for virtual machines */
    const char *resource, *device, *kind, *card, *type, *by;
    bool healthy;
    double held; /* NAN: kubelet does not say */
};

struct sl_metrics_tenant { /* a tenant of the arbiter on one GPU */
    const char *tenant, *pod_namespace, *pod, *container, *claim, *gpu;
    double memory_limit_bytes;                     /* NAN: no limit but the card */
    double memory_used_bytes;                      /* contexts and modules included */
    double share_request_ratio, share_limit_ratio; /* of the GPU's time; NAN: none asked */
    double share_ratio;                            /* in the last second */
    double used_seconds;                           /* of the GPU's time, in all */
    /* Of the whole tenant: written once, with the first of its GPUs. */
    double waited_seconds;
    uint64_t launches, oom;
    unsigned processes;
};

struct sl_metrics_duration {          /* a histogram */
    const uint64_t *bound_ns, *count; /* by bucket, not cumulative; the last bound is UINT64_MAX */
    size_t buckets;                   /* 0: none */
    uint64_t sum_ns;
};

struct sl_metrics_dra { /* the DRA driver */
    bool on;
    unsigned claims; /* prepared now */
    uint64_t prepared, prepare_failed, unprepared, unprepare_failed;
    bool slices_current;
};

struct sl_metrics_agent {
    const char *version, *node;
    double start_time_seconds; /* unix */
    uint64_t reloads_ok, reloads_failed;
    const char *reload_error;   /* of the last reload; NULL: it succeeded */
    double reload_time_seconds; /* unix, of the last successful reload; NAN: none yet */
    struct sl_metrics_duration allocate;
    struct sl_metrics_dra dra;
    bool kubelet_connected;
    bool ready;
    double labels_current; /* NAN: the agent writes no labels */
    uint64_t label_writes, label_failures, events_sent, events_dropped;
    double resident_bytes, cpu_seconds, open_fds;
    double loop_lag_seconds;   /* worst since the last scrape; NAN: not known */
    double sample_age_seconds; /* of the GPUs' numbers; NAN: there are none */
    bool has_arbiter;          /* an arbiter is needed */
    bool nvml_up, arbiter_up, podres_up;
};

struct sl_metrics {
    struct sl_metrics_gpu *gpu;
    size_t gpu_count;
    struct sl_metrics_mig *mig;
    size_t mig_count;
    struct sl_metrics_compute *compute;
    size_t compute_count;
    const struct sl_metrics_xid *xid; /* borrowed */
    size_t xid_count;
    struct sl_metrics_resource *resource;
    size_t resource_count;
    struct sl_metrics_allocation *allocation;
    size_t allocation_count;
    struct sl_metrics_vm *vm;
    size_t vm_count;
    struct sl_metrics_tenant *tenant; /* the rows of one tenant are side by side */
    size_t tenant_count;
    struct sl_metrics_agent agent;
    unsigned names; /* enum sl_metrics_names; 0: ours */
};

/* Frees all lists but xid; only for lists that were allocated. */
void sl_metrics_clear(struct sl_metrics *metrics);

/* "sluice,hami": words with commas, each once or more. -EINVAL: another word, or none. */
int sl_metrics_names_parse(const char *text, unsigned *ret) SL_MUST_CHECK;

/* New, NUL-terminated text. */
char *sl_metrics_text(const struct sl_metrics *metrics, size_t *ret_size);

#endif
