/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table of families; each row has a function that writes its samples. HELP and TYPE come once, before
 * the first sample, and not at all where there is none.
 */
#include "agent/metrics/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"

struct family;

struct writer {
    FILE *out;
    const struct sl_metrics *m;
    const struct family *family;
    const char *suffix; /* of the family's name; NULL: none */
    bool begun;
};

struct family {
    const char *name, *type, *help;
    void (*write)(struct writer *w);
};

/* Label pairs: name, value, …, NULL. */
static void write_label_value(FILE *out, const char *value)
{
    for (; value && *value; value++) {
        if (*value == '\n')
            (void)fputs("\\n", out);
        else if (*value == '\\' || *value == '"')
            (void)fprintf(out, "\\%c", *value);
        else
            (void)fputc(*value, out);
    }
}

static void sample(struct writer *w, double value, ...)
{
    if (isnan(value))
        return;
    if (!w->begun)
        (void)fprintf(w->out, "# HELP %s %s\n# TYPE %s %s\n", w->family->name, w->family->help,
                      w->family->name, w->family->type);
    w->begun = true;
    (void)fprintf(w->out, "%s%s", w->family->name, w->suffix ? w->suffix : "");
    va_list ap;
    va_start(ap, value);
    const char *between = "{";
    for (const char *name = va_arg(ap, const char *); name; name = va_arg(ap, const char *)) {
        (void)fprintf(w->out, "%s%s=\"", between, name);
        write_label_value(w->out, va_arg(ap, const char *));
        (void)fputc('"', w->out);
        between = ",";
    }
    va_end(ap);
    /* Whole numbers in full: 17 digits are exact, and easier to read than an exponent. */
    (void)fprintf(w->out, fabs(value) < 1e15 && floor(value) == value ? "%s %.0f\n" : "%s %.10g\n",
                  *between == ',' ? "}" : "", value);
}

#define NO_LABELS     (const char *)NULL
#define GPU_LABELS(g) "gpu", (g)->uuid, NO_LABELS

#define GPU_FAMILY(name, value)                                                                    \
    static void name(struct writer *w)                                                             \
    {                                                                                              \
        for (size_t i = 0; i < w->m->gpu_count; i++) {                                             \
            const struct sl_metrics_gpu *g = &w->m->gpu[i];                                        \
            sample(w, value, GPU_LABELS(g));                                                       \
        }                                                                                          \
    }
GPU_FAMILY(gpu_healthy, g->healthy)
GPU_FAMILY(gpu_memory_total, g->memory_total_bytes)
GPU_FAMILY(gpu_memory_used, g->memory_used_bytes)
GPU_FAMILY(gpu_utilisation, g->utilisation_ratio)
GPU_FAMILY(gpu_power, g->power_watts)
GPU_FAMILY(gpu_temperature, g->temperature_celsius)

static void gpu_info(struct writer *w)
{
    for (size_t i = 0; i < w->m->gpu_count; i++) {
        const struct sl_metrics_gpu *g = &w->m->gpu[i];
        char index[16];
        (void)snprintf(index, sizeof(index), "%u", g->index);
        sample(w, 1, "gpu", g->uuid, "index", index, "name", g->name, "pci_bus_id", g->pci_bus_id,
               NO_LABELS);
    }
}

static void gpu_compute_mode(struct writer *w)
{
    for (size_t i = 0; i < w->m->compute_count; i++) {
        const struct sl_metrics_compute *c = &w->m->compute[i];
        sample(w, 1, "gpu", c->gpu, "mode", c->turns ? "turns" : "slices", "reason", c->why,
               NO_LABELS);
    }
}

static void gpu_xids(struct writer *w)
{
    for (size_t i = 0; i < w->m->xid_count; i++) {
        const struct sl_metrics_xid *x = &w->m->xid[i];
        char xid[24];
        (void)snprintf(xid, sizeof(xid), "%" PRIu64, x->xid);
        sample(w, (double)x->count, "gpu", x->gpu, "xid", xid, NO_LABELS);
    }
}

#define MIG_FAMILY(name, value)                                                                    \
    static void name(struct writer *w)                                                             \
    {                                                                                              \
        for (size_t i = 0; i < w->m->mig_count; i++) {                                             \
            const struct sl_metrics_mig *g = &w->m->mig[i];                                        \
            sample(w, value, "gpu", g->gpu, "mig", g->uuid, "profile", g->profile, NO_LABELS);     \
        }                                                                                          \
    }
MIG_FAMILY(mig_memory_total, g->memory_total_bytes)
MIG_FAMILY(mig_memory_used, g->memory_used_bytes)

#define RESOURCE_FAMILY(fn, value)                                                                 \
    static void fn(struct writer *w)                                                               \
    {                                                                                              \
        for (size_t i = 0; i < w->m->resource_count; i++) {                                        \
            const struct sl_metrics_resource *r = &w->m->resource[i];                              \
            sample(w, value, "resource", r->name, NO_LABELS);                                      \
        }                                                                                          \
    }
RESOURCE_FAMILY(shares_advertised, (double)r->advertised)
RESOURCE_FAMILY(shares_healthy, (double)r->healthy)
RESOURCE_FAMILY(shares_in_use, r->in_use)
RESOURCE_FAMILY(resource_registered, r->registered)
RESOURCE_FAMILY(resource_contested, r->contested)
RESOURCE_FAMILY(registrations, (double)r->registrations)
RESOURCE_FAMILY(allocations, (double)r->allocations)
RESOURCE_FAMILY(allocations_failed, (double)r->allocations_failed)

static void prestarts(struct writer *w)
{
    for (size_t i = 0; i < w->m->resource_count; i++) {
        const struct sl_metrics_resource *r = &w->m->resource[i];
        sample(w, (double)r->prestarts, "resource", r->name, "result", "ok", NO_LABELS);
        sample(w, (double)r->prestarts_failed, "resource", r->name, "result", "failed", NO_LABELS);
    }
}

static void device_allocated(struct writer *w)
{
    for (size_t i = 0; i < w->m->allocation_count; i++) {
        const struct sl_metrics_allocation *a = &w->m->allocation[i];
        sample(w, 1, "resource", a->resource, "device", a->device, "gpu", a->gpu, "namespace",
               a->pod_namespace, "pod", a->pod, "container", a->container, NO_LABELS);
    }
}

#define TENANT_LABELS(t)                                                                           \
    "tenant", (t)->tenant, "namespace", (t)->pod_namespace, "pod", (t)->pod, "container",          \
        (t)->container, "claim", (t)->claim
#define TENANT_FAMILY(name, value)                                                                 \
    static void name(struct writer *w)                                                             \
    {                                                                                              \
        for (size_t i = 0; i < w->m->tenant_count; i++) {                                          \
            const struct sl_metrics_tenant *t = &w->m->tenant[i];                                  \
            sample(w, value, TENANT_LABELS(t), "gpu", t->gpu, NO_LABELS);                          \
        }                                                                                          \
    }
TENANT_FAMILY(tenant_memory_limit, t->memory_limit_bytes)
TENANT_FAMILY(tenant_memory_used, t->memory_used_bytes)
TENANT_FAMILY(tenant_share_request, t->share_request_ratio)
TENANT_FAMILY(tenant_share_limit, t->share_limit_ratio)
TENANT_FAMILY(tenant_share, t->share_ratio)

/* Of the tenant, whatever its number of GPUs: its first row counts. */
static bool first_row(const struct sl_metrics *m, size_t i)
{
    const char *name = m->tenant[i].tenant, *before = i ? m->tenant[i - 1].tenant : NULL;
    return !before || !name || strcmp(name, before) != 0;
}

#define TENANT_WHOLE(name, value)                                                                  \
    static void name(struct writer *w)                                                             \
    {                                                                                              \
        for (size_t i = 0; i < w->m->tenant_count; i++) {                                          \
            const struct sl_metrics_tenant *t = &w->m->tenant[i];                                  \
            if (first_row(w->m, i))                                                                \
                sample(w, value, TENANT_LABELS(t), NO_LABELS);                                     \
        }                                                                                          \
    }
TENANT_WHOLE(tenant_waited, t->waited_seconds)
TENANT_WHOLE(tenant_launches, (double)t->launches)
TENANT_WHOLE(tenant_oom, (double)t->oom)
TENANT_WHOLE(tenant_processes, t->processes)

#define AGENT_FAMILY(name, value)                                                                  \
    static void name(struct writer *w)                                                             \
    {                                                                                              \
        const struct sl_metrics_agent *a = &w->m->agent;                                           \
        sample(w, value, NO_LABELS);                                                               \
    }
AGENT_FAMILY(start_time, a->start_time_seconds)
AGENT_FAMILY(ready, a->ready)
AGENT_FAMILY(reload_time, a->reload_time_seconds)
AGENT_FAMILY(kubelet_connected, a->kubelet_connected)
AGENT_FAMILY(labels_current, a->labels_current)
AGENT_FAMILY(events_sent, (double)a->events_sent)
AGENT_FAMILY(events_dropped, (double)a->events_dropped)
AGENT_FAMILY(resident, a->resident_bytes)
AGENT_FAMILY(cpu, a->cpu_seconds)
AGENT_FAMILY(fds, a->open_fds)
AGENT_FAMILY(loop_lag, a->loop_lag_seconds)
AGENT_FAMILY(sample_age, a->sample_age_seconds)

static void build_info(struct writer *w)
{
    sample(w, 1, "version", w->m->agent.version, "node", w->m->agent.node, NO_LABELS);
}

static void reloads(struct writer *w)
{
    sample(w, (double)w->m->agent.reloads_ok, "result", "ok", NO_LABELS);
    sample(w, (double)w->m->agent.reloads_failed, "result", "failed", NO_LABELS);
}

static void reload_ok(struct writer *w)
{
    sample(w, !w->m->agent.reload_error, NO_LABELS);
}

static void reload_error(struct writer *w)
{
    if (w->m->agent.reload_error)
        sample(w, 1, "error", w->m->agent.reload_error, NO_LABELS);
}

static void label_writes(struct writer *w)
{
    sample(w, (double)w->m->agent.label_writes, "result", "ok", NO_LABELS);
    sample(w, (double)w->m->agent.label_failures, "result", "failed", NO_LABELS);
}

static void allocate_duration(struct writer *w)
{
    const struct sl_metrics_duration *d = &w->m->agent.allocate;
    uint64_t below = 0;
    w->suffix = "_bucket";
    for (size_t i = 0; i < d->buckets; i++) {
        char bound[32] = "+Inf";
        if (d->bound_ns[i] != UINT64_MAX)
            (void)snprintf(bound, sizeof(bound), "%g", (double)d->bound_ns[i] / 1e9);
        below += d->count[i];
        sample(w, (double)below, "le", bound, NO_LABELS);
    }
    w->suffix = "_sum";
    sample(w, d->buckets ? (double)d->sum_ns / 1e9 : (double)NAN, NO_LABELS);
    w->suffix = "_count";
    sample(w, d->buckets ? (double)below : (double)NAN, NO_LABELS);
    w->suffix = NULL;
}

static double of_dra(const struct writer *w, double value)
{
    return w->m->agent.dra.on ? value : (double)NAN;
}

static void claims(struct writer *w)
{
    sample(w, of_dra(w, w->m->agent.dra.claims), NO_LABELS);
}

static void claim_calls(struct writer *w)
{
    const struct sl_metrics_dra *d = &w->m->agent.dra;
    const struct {
        const char *call, *result;
        uint64_t count;
    } row[] = {{"prepare", "ok", d->prepared},
               {"prepare", "failed", d->prepare_failed},
               {"unprepare", "ok", d->unprepared},
               {"unprepare", "failed", d->unprepare_failed}};
    for (size_t i = 0; i < SL_ARRAY_LEN(row); i++)
        sample(w, of_dra(w, (double)row[i].count), "call", row[i].call, "result", row[i].result,
               NO_LABELS);
}

static void slices_current(struct writer *w)
{
    sample(w, of_dra(w, w->m->agent.dra.slices_current), NO_LABELS);
}

static void sources(struct writer *w)
{
    sample(w, w->m->agent.nvml_up, "source", "nvml", NO_LABELS);
    if (w->m->agent.has_arbiter)
        sample(w, w->m->agent.arbiter_up, "source", "arbiter", NO_LABELS);
    sample(w, w->m->agent.podres_up, "source", "podresources", NO_LABELS);
}

static const struct family families[] = {
#define FAMILY(name, type, help, fn) {name, type, help, fn},
#include "agent/metrics/metrics_families.def"
#undef FAMILY
};

char *sl_metrics_text(const struct sl_metrics *metrics, size_t *ret_size)
{
    char *text = NULL;
    struct writer w = {.m = metrics, .out = sl_xmemstream(&text, ret_size)};
    for (size_t i = 0; i < SL_ARRAY_LEN(families); i++) {
        w.family = &families[i];
        w.begun = false;
        families[i].write(&w);
    }
    sl_xmemstream_close(w.out);
    return text;
}

void sl_metrics_clear(struct sl_metrics *m)
{
    void *const lists[] = {m->gpu,      m->mig,        m->compute, m->xid,
                           m->resource, m->allocation, m->tenant};
    for (size_t i = 0; i < SL_ARRAY_LEN(lists); i++)
        free(lists[i]);
    *m = (struct sl_metrics){0};
}
