/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the expected demand into the tables that the fragmentation measures read. */
#include <math.h>
#include <stdlib.h>

#include "base/xalloc.h"
#include "policy/place_internal.h"

/* The published policy looks only at the most frequent classes that cover this much. */
#define FGD_COVER_PERCENT 95

static int by_weight(const void *a, const void *b)
{
    const struct place_class *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* 0: the same class. */
static int class_order(const struct place_class *x, const struct place_class *y)
{
#define ORDER(field)                                                                               \
    if (x->r.field != y->r.field)                                                                  \
    return x->r.field < y->r.field ? -1 : 1
    ORDER(cpu_milli);
    ORDER(models);
    ORDER(gpu_count);
    ORDER(cores_permille);
    ORDER(gpu_memory_mib);
    ORDER(gpu_memory_permille);
    ORDER(mig);
#undef ORDER
    return 0;
}

static int by_class(const void *a, const void *b)
{
    const struct place_class *x = a, *y = b;
    int order = class_order(x, y);
    return order ? order : x->at < y->at ? -1 : 1;
}

/* Host memory and preferences do not make a class: merges classes that differ only in them. */
static size_t merge(struct place_class *items, size_t count)
{
    size_t kept = 0;
    qsort(items, count, sizeof(*items), by_class);
    for (size_t i = 0; i < count; i++) {
        if (kept && class_order(&items[kept - 1], &items[i]) == 0)
            items[kept - 1].weight += items[i].weight;
        else
            items[kept++] = items[i];
    }
    qsort(items, kept, sizeof(*items), by_weight);
    return kept;
}

static int shape_index(struct place_demand *d, const struct sl_place_request *r)
{
    for (uint32_t s = 0; s < d->shape_count; s++) {
        const struct place_shape *x = &d->shapes[s];
        if (x->cores == r->cores_permille && x->mem_mib == r->gpu_memory_mib &&
            x->mem_permille == r->gpu_memory_permille && x->mig == r->mig)
            return (int)s;
    }
    if (d->shape_count == PLACE_MAX_SHAPES)
        return -1;
    struct place_shape *x = &d->shapes[d->shape_count];
    *x = (struct place_shape){.cores = r->cores_permille,
                              .mem_mib = r->gpu_memory_mib,
                              .mem_permille = r->gpu_memory_permille,
                              .mig = r->mig};
    for (unsigned free = 0; free <= 1000; free++)
        x->tasks[free] =
            (uint8_t)(r->cores_permille
                          ? (free / r->cores_permille > 255 ? 255 : free / r->cores_permille)
                          : 255);
    return (int)d->shape_count++;
}

static void add_class(const struct sl_placer *p, struct place_demand *d,
                      const struct place_class *it)
{
    int s = it->r.gpu_count ? shape_index(d, &it->r) : -1;
    double weight = it->weight;
    if (p->config.policy == SL_PLACE_SLUICE && s >= 0)
        weight *= pow(it->r.gpu_count, p->config.tuning.size_power);
    if (it->r.gpu_count && s < 0)
        return; /* more shapes than the tables hold: the rarest are left out */
    d->total_weight += weight;
    for (unsigned m = 0; m < SL_PLACE_MAX_MODELS; m++) {
        struct place_classes *c = d->models[m];
        if (!c)
            continue;
        if (s < 0 || (it->r.models && !(it->r.models >> m & 1)) || c->count == PLACE_MAX_CLASSES) {
            c->other += (float)weight;
            continue;
        }
        uint32_t i = c->count++;
        c->weight[i] = (float)weight;
        c->cpu[i] = (float)it->r.cpu_milli;
        c->cpu_inverse[i] = it->r.cpu_milli ? 1.0f / (float)it->r.cpu_milli : 1.0f;
        c->size[i] = (float)it->milli;
        c->shape[i] = (uint16_t)s;
        c->num[i] = it->r.gpu_count;
    }
}

static struct place_demand *demand_create(const struct sl_placer *p)
{
    struct place_demand *d = sl_xcalloc(1, sizeof(*d));
    for (unsigned m = 0; m < SL_PLACE_MAX_MODELS; m++)
        if (p->models >> m & 1)
            d->models[m] = sl_xcalloc(1, sizeof(*d->models[m]));
    return d;
}

void sl_place_demand_destroy(struct place_demand *d)
{
    if (!d)
        return;
    for (unsigned m = 0; m < SL_PLACE_MAX_MODELS; m++)
        free(d->models[m]);
    free(d->buyers);
    free(d);
}

struct place_class *sl_place_demand_classes(const struct sl_place_demand *demand, size_t count,
                                            size_t *ret_count)
{
    struct place_class *items = sl_xcalloc(count, sizeof(*items));
    for (size_t i = 0; i < count; i++)
        items[i] = (struct place_class){.r = demand[i].request,
                                        .weight = demand[i].weight,
                                        .milli = sl_place_request_milli(&demand[i].request),
                                        .at = i};
    *ret_count = merge(items, count);
    return items;
}

struct place_demand *sl_place_demand_build(const struct sl_placer *p,
                                           const struct place_class *items, size_t count)
{
    struct place_demand *d = demand_create(p);
    double total = 0, covered = 0;
    for (size_t i = 0; i < count; i++)
        total += items[i].weight;
    for (size_t i = 0; i < count; i++) {
        if (p->config.policy == SL_PLACE_FGD && covered * 100 >= total * FGD_COVER_PERCENT)
            break;
        covered += items[i].weight;
        add_class(p, d, &items[i]);
    }
    if (d->total_weight <= 0) {
        sl_place_demand_destroy(d);
        return NULL;
    }
    if (p->config.policy == SL_PLACE_SLUICE)
        sl_place_price_init(p, items, count, d);
    return d;
}
