/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fragmentation: the part of a node's free GPU that the expected demand cannot use.
 *
 * published: a GPU's rest is lost to a class when one task of the class does not fit there, and all of the node is lost
 * when the node cannot take one at all.
 * capacity-aware: fill the node with tasks of the class, CPU counted; the rest is lost.
 */
#include "policy/place_internal.h"

static unsigned shape_tasks(const struct place_shape *s, const struct place_gpu *g)
{
    if (s->mig) {
        if (!g->mig || (g->tenants && !g->mig_used))
            return 0;
        unsigned tasks = 0;
        struct place_gpu copy = *g;
        const struct sl_place_request r = {.gpu_count = 1, .mig = s->mig};
        for (int at; (at = sl_place_mig_start(copy.mig_used, s->mig)) >= 0; tasks++)
            sl_place_gpu_move(&copy, &r, (uint8_t)at, true);
        return tasks;
    }
    if (g->mig_used)
        return 0;
    if (s->cores >= SL_PLACE_WHOLE)
        return g->tenants == 0;
    unsigned tasks = s->tasks[g->cores_free];
    if (s->mem_mib) {
        unsigned by_memory = g->mem_free_mib / s->mem_mib;
        tasks = by_memory < tasks ? by_memory : tasks;
    } else if (s->mem_permille) {
        unsigned by_memory = g->mem_free_permille / s->mem_permille;
        tasks = by_memory < tasks ? by_memory : tasks;
    }
    return tasks;
}

void sl_place_view_fill(const struct place_demand *d, struct place_node *n)
{
    struct place_view *v = &n->view;
    v->free = 0;
    for (unsigned i = 0; i < n->gpu_count; i++)
        v->free += n->gpus[i].free;
    if (!d)
        return;
    for (uint32_t s = 0; s < d->shape_count; s++) {
        unsigned fits = 0, tasks = 0, unfit = 0;
        for (unsigned i = 0; i < n->gpu_count; i++) {
            unsigned t = shape_tasks(&d->shapes[s], &n->gpus[i]);
            fits += t > 0;
            tasks += t;
            unfit += t ? 0 : n->gpus[i].free;
        }
        v->fits[s] = (uint8_t)fits;
        v->tasks[s] = (uint16_t)tasks;
        v->unfit[s] = (uint16_t)unfit;
    }
}

void sl_place_view_replace(const struct place_demand *d, struct place_view *v,
                           const struct place_gpu *before, const struct place_gpu *after)
{
    v->free = v->free - before->free + after->free;
    for (uint32_t s = 0; s < d->shape_count; s++) {
        unsigned old = shape_tasks(&d->shapes[s], before), new = shape_tasks(&d->shapes[s], after);
        v->fits[s] = (uint8_t)(v->fits[s] - (old > 0) + (new > 0));
        v->tasks[s] = (uint16_t)(v->tasks[s] - old + new);
        v->unfit[s] = (uint16_t)(v->unfit[s] - (old ? 0 : before->free) + (new ? 0 : after->free));
    }
}

double sl_place_frag_published(const struct place_demand *d, unsigned model,
                               const struct place_view *v, uint32_t cpu_free)
{
    const struct place_classes *c = d->models[model];
    double lost = (double)c->other * v->free;
    for (uint32_t i = 0; i < c->count; i++) {
        unsigned s = c->shape[i];
        bool fits = (float)cpu_free >= c->cpu[i] && v->fits[s] >= c->num[i];
        lost += (double)c->weight[i] * (fits ? v->unfit[s] : v->free);
    }
    return lost / d->total_weight;
}

double sl_place_frag_capacity(const struct place_demand *d, unsigned model,
                              const struct place_view *v, uint32_t cpu_free)
{
    const struct place_classes *c = d->models[model];
    float cpu = (float)cpu_free + 0.5f, used = 0, weight = c->other;
    for (uint32_t i = 0; i < c->count; i++) {
        unsigned s = c->shape[i];
        unsigned tasks = c->num[i] == 1 ? v->tasks[s] : v->fits[s] / c->num[i];
        unsigned by_cpu = (unsigned)(cpu * c->cpu_inverse[i]);
        used += c->weight[i] * c->size[i] * (float)(tasks < by_cpu ? tasks : by_cpu);
        weight += c->weight[i];
    }
    return ((double)weight * v->free - (double)used) / d->total_weight;
}

double sl_place_usable(const struct place_demand *d, const struct place_node *n)
{
    const struct place_classes *c = d->models[n->model];
    double lost = sl_place_frag_published(d, n->model, &n->view, n->cpu_free) * d->total_weight;
    double weight = d->total_weight - (double)c->other;
    return weight > 0 ? n->view.free - (lost - (double)c->other * n->view.free) / weight : 0;
}
