/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /metrics, /healthz, /readyz. A scrape gathers GPU figures from NVML (on another thread, by callback), pods from
 * kubelet and tenants from the arbiter, all at once and within a time limit. Figures that come too late are replaced by
 * those of the last scrape, with their age. Scrapes at the same time share one gathering.
 */
#ifndef SLUICE_AGENT_METRICS_METRICS_SERVE_H
#define SLUICE_AGENT_METRICS_METRICS_SERVE_H

#include "agent/metrics/metrics.h"
#include "arbiter/dir.h"
#include "base/loop.h"
#include "http/server.h"

struct sl_exporter;

/* Of one card, or of a MIG device (its memory only). */
struct sl_gpu_sampled {
    char uuid[SL_GPU_UUID_SIZE];
    struct sl_gpu_numbers now;
};

/* The pod of a tenant; empty strings: it belongs to no pod. */
struct sl_tenant_owner {
    char pod_namespace[64], pod[254], container[128], claim[254];
};

struct sl_exporter_options {
    /* Fills the figures that the loop's thread knows: GPUs (may stay NAN), MIG, XIDs, resources (in_use NAN: kubelet is
     * asked), agent. The exporter itself adds tenants and the agent's ready, *_up, process, lag and age. The exporter
     * takes over the allocated lists; their texts are read before the next callback. */
    void (*fill)(void *data, struct sl_metrics *metrics);
    /* Starts to read GPU figures elsewhere (sl_gpu_numbers_read() in a job of sl_devices_submit()). Afterwards call
     * sl_exporter_sampled() in the loop's thread, once for each call of this. NULL: no figures. */
    void (*sample)(void *data, struct sl_exporter *exporter);
    /* For tenants without a description in the arbiter. NULL: only their name is shown. map may be NULL. */
    void (*owner)(void *data, const char *tenant, const struct sl_podres_map *map,
                  struct sl_tenant_owner *ret);
    /* Is the agent ready to serve pods? Writes the reason if not. NULL: ready. */
    bool (*ready)(void *data, char *why, size_t size);
    void *data;
    struct sl_podres *podres; /* borrowed; NULL: none */
    unsigned names;           /* enum sl_metrics_names; 0: ours */
    uint64_t timeout_ns;      /* of gathering; 0: 2 s */
    uint64_t sample_age_ns;   /* GPUs are not read more often: reading disturbs them; 0: 10 s */
};

struct sl_exporter *sl_exporter_create(struct sl_loop *loop, const struct sl_exporter_options *opt);
/* Call this before the HTTP server is destroyed. NULL is fine. */
void sl_exporter_destroy(struct sl_exporter *exporter);

/* Asks this arbiter for tenants from now on. May be called again. */
int sl_exporter_arbiter(struct sl_exporter *exporter, const struct sl_arbiter_dir *place,
                        struct sl_err *err) SL_MUST_CHECK;

/* `handle` and `gone` of the HTTP server, whose `data` is the exporter. */
void sl_exporter_handle(void *data, struct sl_http_call *call,
                        const struct sl_http_request *request);
void sl_exporter_gone(void *data, struct sl_http_call *call);

/* The result of `sample`: copied. count 0 with err: it failed. */
void sl_exporter_sampled(struct sl_exporter *exporter, const struct sl_gpu_sampled *numbers,
                         size_t count, const struct sl_err *err);

/* NVML's figures of every card and MIG device, for a thread that may block. The caller frees *ret. */
int sl_gpu_numbers_read(struct sl_gpu *gpu, struct sl_gpu_sampled **ret, size_t *ret_count,
                        struct sl_err *err) SL_MUST_CHECK;

#endif
