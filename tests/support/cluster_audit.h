/* SPDX-License-Identifier: Apache-2.0 */
/* Do the books of the cluster agree with each other and with the engine? */
#ifndef SLUICE_TESTS_SUPPORT_CLUSTER_AUDIT_H
#define SLUICE_TESTS_SUPPORT_CLUSTER_AUDIT_H

#include <errno.h>

#include "controller/cluster_internal.h"

/* Compares the sum of the grants on a GPU with the engine's free figures. */
static inline int audit_gpu(struct sl_cluster *c, const struct cluster_node *n, unsigned gpu,
                            struct sl_err *err)
{
    uint64_t memory = 0, cores = 0;
    unsigned whole = 0, holders = 0;
    uint32_t free_cores, free_memory, total = n->gpu[gpu].info.memory_mib;
    for (const struct cluster_pod *p = n->pods; p; p = p->next)
        for (unsigned i = 0; i < p->grant_count; i++) {
            const struct cluster_grant *g = &p->grant[i];
            if (!(g->gpus >> gpu & 1))
                continue;
            holders++;
            whole += g->request.cores_permille == SL_PLACE_WHOLE;
            cores += g->request.cores_permille;
            memory += g->request.gpu_memory_mib
                          ? g->request.gpu_memory_mib
                          : (uint64_t)total * g->request.gpu_memory_permille / 1000;
        }
    sl_place_gpu_free(c->placer, n->place, gpu, &free_cores, &free_memory);
    if (cores > 1000 || memory > total || (whole && holders > 1))
        return sl_err_set(err, -EIO, "node %s: GPU %u is promised twice", n->name, gpu);
    if (!whole && (free_cores != 1000 - cores || free_memory != total - memory))
        return sl_err_set(err, -EIO, "node %s: GPU %u: the sums of the account do not agree",
                          n->name, gpu);
    return 0;
}

/* Compares every book of the cluster with the others. */
static inline int cluster_audit(struct sl_cluster *c, struct sl_err *err)
{
    struct sl_map_walk walk = {.bucket = 0};
    const struct cluster_node *n;
    int rc = sl_place_audit(c->placer, err);
    while (!rc && (n = sl_map_next(&c->nodes, &walk)))
        for (unsigned i = 0; !rc && n->place != CLUSTER_NO_PLACE && i < n->gpu_count; i++)
            rc = audit_gpu(c, n, i, err);
    return rc;
}

#endif
