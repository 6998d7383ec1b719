/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's own metrics, in Prometheus' text format. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "controller/controller_internal.h"

char *sl_controller_metrics(struct sl_controller *c)
{
    struct sl_cluster_stats s;
    char *text;
    size_t size;
    FILE *t = sl_xmemstream(&text, &size);
    const struct counters *n = &c->count;
    sl_cluster_stats(c->cluster, &s);
    /* A row without help belongs to the family above it. */
    const struct {
        const char *name, *labels, *type, *help;
        uint64_t v;
    } rows[] = {
        {"admission_reviews_total", "{result=\"untouched\"}", "counter",
         "Admission reviews by what became of them.", n->reviews_untouched},
        {"admission_reviews_total", "{result=\"patched\"}", "", NULL, n->reviews_patched},
        {"admission_reviews_total", "{result=\"denied\"}", "", NULL, n->reviews_denied},
        {"admission_reviews_total", "{result=\"unreadable\"}", "", NULL, n->reviews_bad},
        {"extender_calls_total", "{verb=\"filter\"}", "counter", "Calls of the scheduler.",
         n->filters},
        {"extender_calls_total", "{verb=\"prioritize\"}", "", NULL, n->prioritizes},
        {"binds_total", "{result=\"bound\"}", "counter", "Binds by outcome.", n->binds},
        {"binds_total", "{result=\"failed\"}", "", NULL, n->binds_failed},
        {"decisions_total", "", "counter", "Placements decided.", s.decisions},
        {"refusals_total", "", "counter", "Pods that fitted nowhere.", s.refusals},
        {"watch_troubles_total", "", "counter", "Watches that failed and were started again.",
         n->watch_troubles},
        {"claim_templates_created_total", "", "counter", "ResourceClaimTemplates created.",
         n->templates_made},
        {"claim_templates_deleted_total", "", "counter",
         "ResourceClaimTemplates deleted as unused.", n->templates_dropped},
        {"leading", "", "gauge", "1 while this replica places pods.", sl_controller_leads(c)},
        {"ready", "", "gauge", "1 when the cluster is known.", sl_controller_ready(c)},
        {"nodes", "", "gauge", "Nodes known.", s.nodes},
        {"gpu_nodes", "", "gauge", "Nodes with GPUs told by their agent.", s.nodes_with_gpus},
        {"gpus", "", "gauge", "GPUs known.", s.gpus},
        {"gpu_capacity_milli", "", "gauge", "Thousandths of GPUs there are.", s.gpu_milli},
        {"gpu_free_milli", "", "gauge",
         "Thousandths of GPUs not promised, the scarcer of memory and cores.", s.gpu_free_milli},
        {"pods", "", "gauge", "Pods in the books.", s.pods},
        {"pods_reserved", "", "gauge", "Pods decided and not yet seen bound.", s.reserved},
        {"pods_misfit", "", "gauge",
         "Promises the books could not take; their GPUs take nothing new.", s.misfits},
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++) {
        if (rows[i].help)
            (void)fprintf(t, "# HELP sluice_controller_%s %s\n# TYPE sluice_controller_%s %s\n",
                          rows[i].name, rows[i].help, rows[i].name, rows[i].type);
        (void)fprintf(t, "sluice_controller_%s%s %llu\n", rows[i].name, rows[i].labels,
                      (unsigned long long)rows[i].v);
    }
    sl_xmemstream_close(t);
    return text;
}
