/* SPDX-License-Identifier: Apache-2.0 */
/* What the controller says of itself, in Prometheus' text form. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "controller/controller_internal.h"

static void family(FILE *t, const char *name, const char *type, const char *help)
{
    (void)fprintf(t, "# HELP sluice_controller_%s %s\n# TYPE sluice_controller_%s %s\n", name, help,
                  name, type);
}

static void value(FILE *t, const char *name, const char *labels, uint64_t v)
{
    (void)fprintf(t, "sluice_controller_%s%s %llu\n", name, labels, (unsigned long long)v);
}

char *sl_controller_metrics(struct sl_controller *c)
{
    struct sl_cluster_stats s;
    char *text;
    size_t size;
    FILE *t = sl_xmemstream(&text, &size);
    const struct counters *n = &c->count;
    sl_cluster_stats(c->cluster, &s);
    family(t, "admission_reviews_total", "counter", "Admission reviews by what became of them.");
    value(t, "admission_reviews_total", "{result=\"untouched\"}", n->reviews_untouched);
    value(t, "admission_reviews_total", "{result=\"patched\"}", n->reviews_patched);
    value(t, "admission_reviews_total", "{result=\"denied\"}", n->reviews_denied);
    value(t, "admission_reviews_total", "{result=\"unreadable\"}", n->reviews_bad);
    family(t, "extender_calls_total", "counter", "Calls of the scheduler.");
    value(t, "extender_calls_total", "{verb=\"filter\"}", n->filters);
    value(t, "extender_calls_total", "{verb=\"prioritize\"}", n->prioritizes);
    family(t, "binds_total", "counter", "Binds by outcome.");
    value(t, "binds_total", "{result=\"bound\"}", n->binds);
    value(t, "binds_total", "{result=\"failed\"}", n->binds_failed);
    const struct {
        const char *name, *type, *help;
        uint64_t v;
    } rows[] = {
        {"decisions_total", "counter", "Placements decided.", s.decisions},
        {"refusals_total", "counter", "Pods that fitted nowhere.", s.refusals},
        {"watch_troubles_total", "counter", "Watches that failed and were started again.",
         n->watch_troubles},
        {"claim_templates_created_total", "counter", "ResourceClaimTemplates created.",
         n->templates_made},
        {"claim_templates_deleted_total", "counter", "ResourceClaimTemplates deleted as unused.",
         n->templates_dropped},
        {"leading", "gauge", "1 while this replica places pods.", sl_controller_leads(c)},
        {"ready", "gauge", "1 when the cluster is known.", sl_controller_ready(c)},
        {"nodes", "gauge", "Nodes known.", s.nodes},
        {"gpu_nodes", "gauge", "Nodes with GPUs told by their agent.", s.nodes_with_gpus},
        {"gpus", "gauge", "GPUs known.", s.gpus},
        {"gpu_capacity_milli", "gauge", "Thousandths of GPUs there are.", s.gpu_milli},
        {"gpu_free_milli", "gauge",
         "Thousandths of GPUs not promised, the scarcer of memory and cores.", s.gpu_free_milli},
        {"pods", "gauge", "Pods in the books.", s.pods},
        {"pods_reserved", "gauge", "Pods decided and not yet seen bound.", s.reserved},
        {"pods_misfit", "gauge", "Promises the books could not take; their GPUs take nothing new.",
         s.misfits},
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++) {
        family(t, rows[i].name, rows[i].type, rows[i].help);
        value(t, rows[i].name, "", rows[i].v);
    }
    sl_xmemstream_close(t);
    return text;
}
