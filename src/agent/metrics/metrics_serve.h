/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /metrics, /healthz, /readyz. A scrape gathers: GPU numbers from NVML (another thread's, by callback),
 * pods from kubelet, tenants from the arbiter, all at once and within a bounded time; what does not come in
 * time is served from the last scrape's, with its age. Several scrapes at once share one gathering.
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
    /* Fills what the loop's thread knows: GPUs (numbers may stay NAN), MIG, XIDs, resources (in_use NAN: asked of
     * kubelet), agent. The exporter itself adds tenants and the agent's ready, *_up, process, lag and age. The
     * lists are allocated and become the exporter's; their texts are read before the next callback. */
    void (*fill)(void *data, struct sl_metrics *metrics);
    /* Starts to read GPU numbers elsewhere (sl_gpu_numbers_read() in a job of sl_devices_submit()); whoever does
     * calls sl_exporter_sampled() in the loop's thread, once for each call of this. NULL: no numbers. */
    void (*sample)(void *data, struct sl_exporter *exporter);
    /* For tenants the arbiter has no description of. NULL: they have their name only. map may be NULL. */
    void (*owner)(void *data, const char *tenant, const struct sl_podres_map *map,
                  struct sl_tenant_owner *ret);
    /* Is the agent ready to serve pods? Writes why not. NULL: ready. */
    bool (*ready)(void *data, char *why, size_t size);
    void *data;
    struct sl_podres *podres; /* borrowed; NULL: none */
    uint64_t timeout_ns;      /* of gathering; 0: 2 s */
    uint64_t sample_age_ns;   /* GPUs are not asked more often: asking disturbs them; 0: 10 s */
};

struct sl_exporter *sl_exporter_create(struct sl_loop *loop, const struct sl_exporter_options *opt);
/* Before the HTTP server it answers for. NULL is fine. */
void sl_exporter_destroy(struct sl_exporter *exporter);

/* There is to be an arbiter from now on: tenants are asked of it. Again is fine. */
int sl_exporter_arbiter(struct sl_exporter *exporter, const struct sl_arbiter_dir *place,
                        struct sl_err *err) SL_MUST_CHECK;

/* `handle` and `gone` of the HTTP server, whose `data` is the exporter. */
void sl_exporter_handle(void *data, struct sl_http_call *call,
                        const struct sl_http_request *request);
void sl_exporter_gone(void *data, struct sl_http_call *call);

/* The answer to `sample`: copied. count 0 with err: it failed. */
void sl_exporter_sampled(struct sl_exporter *exporter, const struct sl_gpu_sampled *numbers,
                         size_t count, const struct sl_err *err);

/* NVML's numbers of every card and MIG device, in whatever thread may block. *ret is the caller's to free. */
int sl_gpu_numbers_read(struct sl_gpu *gpu, struct sl_gpu_sampled **ret, size_t *ret_count,
                        struct sl_err *err) SL_MUST_CHECK;

#endif
