/* SPDX-License-Identifier: Apache-2.0 */
/* One table of families (metrics_families.def). HELP and TYPE are written once, before the first sample of a family; a
 * family without samples has none. */
#include "agent/metrics/metrics.h"

#include <errno.h>
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
    size_t offset; /* the field to show, in an item of the list */
    char field;    /* the type of the field: bool, double, unsigned or 64 bits, by its letter */
    double factor;
    enum sl_metrics_names names;
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

#define NO_LABELS (const char *)NULL

static double plain_field(const struct family *family, const void *item)
{
    const void *at = (const char *)item + family->offset;
    switch (family->field) {
    case 'b':
        return *(const bool *)at;
    case 'd':
        return *(const double *)at;
    case 'u':
        return *(const unsigned *)at;
    default:
        return (double)*(const uint64_t *)at;
    }
}

/* The value of the family's field in this item. */
static double field(const struct writer *w, const void *item)
{
    return plain_field(w->family, item) * w->family->factor;
}

static void each_gpu(struct writer *w)
{
    for (size_t i = 0; i < w->m->gpu_count; i++)
        sample(w, field(w, &w->m->gpu[i]), "gpu", w->m->gpu[i].uuid, NO_LABELS);
}

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

static void each_mig(struct writer *w)
{
    for (size_t i = 0; i < w->m->mig_count; i++) {
        const struct sl_metrics_mig *g = &w->m->mig[i];
        sample(w, field(w, g), "gpu", g->gpu, "mig", g->uuid, "profile", g->profile, NO_LABELS);
    }
}

static void each_resource(struct writer *w)
{
    for (size_t i = 0; i < w->m->resource_count; i++)
        sample(w, field(w, &w->m->resource[i]), "resource", w->m->resource[i].of.name, NO_LABELS);
}

static void prestarts(struct writer *w)
{
    for (size_t i = 0; i < w->m->resource_count; i++) {
        const struct sl_plugins_resource *r = &w->m->resource[i].of;
        sample(w, (double)r->counts.prestarts, "resource", r->name, "result", "ok", NO_LABELS);
        sample(w, (double)r->counts.prestart_failures, "resource", r->name, "result", "failed",
               NO_LABELS);
    }
}

static void device_allocated(struct writer *w)
{
    for (size_t i = 0; i < w->m->allocation_count; i++) {
        const struct sl_podres_device *d = w->m->allocation[i].device;
        sample(w, 1, "resource", d->resource, "device", d->id, "gpu", w->m->allocation[i].gpu,
               "namespace", d->pod_namespace, "pod", d->pod, "container", d->container, NO_LABELS);
    }
}

static void each_vm(struct writer *w)
{
    for (size_t i = 0; i < w->m->vm_count; i++) {
        const struct sl_metrics_vm *v = &w->m->vm[i];
        sample(w, field(w, v), "resource", v->resource, "device", v->device, "kind", v->kind,
               "card", v->card, "type", v->type, "by", v->by, NO_LABELS);
    }
}

#define TENANT_LABELS(t)                                                                           \
    "tenant", (t)->tenant, "namespace", (t)->pod_namespace, "pod", (t)->pod, "container",          \
        (t)->container, "claim", (t)->claim
static void each_tenant(struct writer *w)
{
    for (size_t i = 0; i < w->m->tenant_count; i++) {
        const struct sl_metrics_tenant *t = &w->m->tenant[i];
        sample(w, field(w, t), TENANT_LABELS(t), "gpu", t->gpu, NO_LABELS);
    }
}

/* A value of the whole tenant, for any number of GPUs: its first row counts. */
static void whole_tenant(struct writer *w)
{
    const char *before = NULL;
    for (size_t i = 0; i < w->m->tenant_count; i++) {
        const struct sl_metrics_tenant *t = &w->m->tenant[i];
        if (!before || strcmp(t->tenant, before) != 0)
            sample(w, field(w, t), TENANT_LABELS(t), NO_LABELS);
        before = t->tenant;
    }
}

static void each_agent(struct writer *w)
{
    sample(w, field(w, &w->m->agent), NO_LABELS);
}

static void each_dra(struct writer *w)
{
    if (w->m->agent.dra.on)
        sample(w, field(w, &w->m->agent.dra), NO_LABELS);
}

static void build_info(struct writer *w)
{
    sample(w, 1, "version", w->m->agent.version, "node", w->m->agent.node, NO_LABELS);
}

static void ok_and_failed(struct writer *w, uint64_t ok, uint64_t failed)
{
    sample(w, (double)ok, "result", "ok", NO_LABELS);
    sample(w, (double)failed, "result", "failed", NO_LABELS);
}

static void reloads(struct writer *w)
{
    ok_and_failed(w, w->m->agent.reloads_ok, w->m->agent.reloads_failed);
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
    ok_and_failed(w, w->m->agent.label_writes, w->m->agent.label_failures);
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
    for (size_t i = 0; d->on && i < SL_ARRAY_LEN(row); i++)
        sample(w, (double)row[i].count, "call", row[i].call, "result", row[i].result, NO_LABELS);
}

static void sources(struct writer *w)
{
    sample(w, w->m->agent.nvml_up, "source", "nvml", NO_LABELS);
    if (w->m->agent.has_arbiter)
        sample(w, w->m->agent.arbiter_up, "source", "arbiter", NO_LABELS);
    sample(w, w->m->agent.podres_up, "source", "podresources", NO_LABELS);
}

/* ---- the names of others ---- */

static void hami_gpu(struct writer *w)
{
    for (size_t i = 0; i < w->m->gpu_count; i++) {
        const struct sl_metrics_gpu *g = &w->m->gpu[i];
        char index[16];
        (void)snprintf(index, sizeof(index), "%u", g->index);
        sample(w, field(w, g), "deviceidx", index, "deviceuuid", g->uuid, "devicetype", g->name,
               NO_LABELS);
    }
}

/* HAMi knows containers only, and numbers the GPUs of each from 0. */
static void hami_tenant(struct writer *w)
{
    const char *before = NULL;
    unsigned n = 0;
    for (size_t i = 0; i < w->m->tenant_count; i++) {
        const struct sl_metrics_tenant *t = &w->m->tenant[i];
        char index[16];
        n = before && strcmp(t->tenant, before) == 0 ? n + 1 : 0;
        before = t->tenant;
        (void)snprintf(index, sizeof(index), "%u", n);
        if (t->pod && *t->pod)
            sample(w, field(w, t), "podnamespace", t->pod_namespace, "podname", t->pod, "ctrname",
                   t->container, "vdeviceid", index, "deviceuuid", t->gpu, NO_LABELS);
    }
}

static void dcgm_sample(struct writer *w, const struct sl_metrics_gpu *g, double value)
{
    char index[16], device[32];
    (void)snprintf(index, sizeof(index), "%u", g->index);
    (void)snprintf(device, sizeof(device), "nvidia%u", g->index);
    sample(w, value, "gpu", index, "UUID", g->uuid, "pci_bus_id", g->pci_bus_id, "device", device,
           "modelName", g->name, "Hostname", w->m->agent.node, NO_LABELS);
}

static void dcgm_gpu(struct writer *w)
{
    for (size_t i = 0; i < w->m->gpu_count; i++)
        dcgm_sample(w, &w->m->gpu[i], field(w, &w->m->gpu[i]));
}

static void dcgm_free(struct writer *w)
{
    for (size_t i = 0; i < w->m->gpu_count; i++) {
        const struct sl_gpu_numbers *now = &w->m->gpu[i].now;
        dcgm_sample(w, &w->m->gpu[i],
                    (now->memory_total_bytes - now->memory_used_bytes) / (1 << 20));
    }
}

static const struct family families[] = {
#define SHOWN_BY(fn, list, name)                                                                   \
    fn, offsetof(struct sl_metrics_##list, name),                                                  \
        _Generic(((struct sl_metrics_##list *)0)->name,                                            \
        bool: 'b',                                                                                 \
        double: 'd',                                                                               \
        unsigned: 'u',                                                                             \
        uint64_t: '6')
#define OF(list, name)                SHOWN_BY(each_##list, list, name)
#define OF_WHOLE(list, name)          SHOWN_BY(whole_##list, list, name)
#define WRITTEN_BY(fn)                fn, 0, 0
#define FAMILY(name, type, help, ...) {name, type, help, __VA_ARGS__, 1, SL_METRICS_SLUICE},
#include "agent/metrics/metrics_families.def"
#undef FAMILY
#define OTHER(whose, name, type, help, factor, ...)                                                \
    {name, type, help, __VA_ARGS__, factor, SL_METRICS_##whose},
#include "agent/metrics/metrics_others.def"
#undef OTHER
};

int sl_metrics_names_parse(const char *text, unsigned *ret)
{
    static const struct {
        const char *word;
        enum sl_metrics_names names;
    } words[] = {
        {"sluice", SL_METRICS_SLUICE}, {"hami", SL_METRICS_HAMI}, {"dcgm", SL_METRICS_DCGM}};
    *ret = 0;
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ","), i = 0;
        while (i < SL_ARRAY_LEN(words) &&
               (strlen(words[i].word) != n || strncmp(words[i].word, at, n) != 0))
            i++;
        if (i == SL_ARRAY_LEN(words))
            return -EINVAL;
        *ret |= words[i].names;
        at += n;
        if (!*at)
            return 0;
    }
}

char *sl_metrics_text(const struct sl_metrics *metrics, size_t *ret_size)
{
    char *text = NULL;
    struct writer w = {.m = metrics, .out = sl_xmemstream(&text, ret_size)};
    unsigned names = metrics->names ? metrics->names : SL_METRICS_SLUICE;
    for (size_t i = 0; i < SL_ARRAY_LEN(families); i++) {
        w.family = &families[i];
        w.begun = false;
        if (names & families[i].names)
            families[i].write(&w);
    }
    sl_xmemstream_close(w.out);
    return text;
}

void sl_metrics_clear(struct sl_metrics *m)
{
    void *const lists[] = {m->gpu,        m->mig, m->compute, m->resource,
                           m->allocation, m->vm,  m->tenant};
    for (size_t i = 0; i < SL_ARRAY_LEN(lists); i++)
        free(lists[i]);
    *m = (struct sl_metrics){0};
}
