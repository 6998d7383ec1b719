/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prices: the worth of a type of node's free capacity to demand that can run nowhere else.
 *
 * Take the demand that would just fill the free capacity, and let it choose among the types of node. Each type has a
 * price for its GPUs and one for its CPU; demand goes to the cheapest type, a type that would be over-full raises its
 * price, a type with room lowers it. At rest these are shadow prices of the relaxed packing problem. Early on nothing
 * is scarce and all prices are near zero; when only as many T4 are left as T4-only pods will want, a T4 becomes
 * expensive for all other pods. The prices follow the cluster: a few steps from the old ones each time enough has
 * changed.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"
#include "policy/place_internal.h"

#define TEMPERATURE 0.04
#define STEP        0.2
#define PRICE_MAX   1.5
#define RATIO_STEPS 2.0 /* buyers are alike when their CPU a GPU is within a factor 2^(1/2) */

static uint32_t types_for(const struct sl_placer *p, const struct sl_place_request *r)
{
    uint32_t types = 0;
    for (unsigned t = 0; t < p->type_count; t++) {
        const struct place_node *n = &p->nodes[p->type_example[t]];
        if (r->cpu_milli > n->cpu_total || r->gpu_count > n->gpu_count)
            continue;
        if (r->gpu_count && r->models && !(r->models >> n->model & 1))
            continue;
        types |= 1u << t;
    }
    return types;
}

/* Classes that can use the same nodes and want CPU and GPU in the same proportion become one buyer. */
void sl_place_price_init(const struct sl_placer *p, const struct place_class *items, size_t count,
                         struct place_demand *d)
{
    double multi = 0;
    d->buyers = sl_xcalloc(count, sizeof(*d->buyers));
    for (size_t i = 0; i < count; i++) {
        const struct place_class *c = &items[i];
        uint32_t types = types_for(p, &c->r);
        int ratio = -1000;
        if (c->milli > 0)
            ratio = (int)floor(RATIO_STEPS * log2((c->r.cpu_milli + 1) / c->milli));
        if (!types || (c->milli <= 0 && !c->r.cpu_milli))
            continue;
        unsigned b = 0;
        while (b < d->buyer_count && (d->buyers[b].types != types || d->buyers[b].ratio != ratio))
            b++;
        if (b == d->buyer_count)
            d->buyers[d->buyer_count++] = (struct place_buyer){.types = types, .ratio = ratio};
        d->buyers[b].gpu += c->weight * c->milli;
        d->buyers[b].cpu += c->weight * c->r.cpu_milli;
        d->buyers_gpu += c->weight * c->milli;
        for (unsigned k = 2; k <= c->r.gpu_count; k++)
            d->slot_share[k] += c->weight * c->milli;
        if (c->r.gpu_count > 1) {
            multi += c->weight * c->r.gpu_count;
            d->slot_cpu += c->weight * c->r.cpu_milli;
        }
    }
    d->slot_cpu = multi > 0 ? d->slot_cpu / multi : 0;
    for (unsigned k = 2; d->buyers_gpu > 0 && k <= SL_PLACE_MAX_GPUS; k++)
        d->slot_share[k] /= d->buyers_gpu;
}

/* How the buyer splits over the types: mostly to the cheapest, smoothly; by room where prices are equal. */
static void buyer_split(const struct sl_placer *p, const struct place_buyer *b, double *share)
{
    const struct place_demand *d = p->demand;
    double unit = b->gpu > 0 ? b->gpu : b->cpu / p->cpu_a_gpu, least = 1e300, sum = 0;
    double cost[PLACE_MAX_TYPES];
    for (unsigned t = 0; t < p->type_count; t++) {
        share[t] = 0;
        cost[t] = (b->gpu * d->price_gpu[t] + b->cpu * d->price_cpu[t]) / unit;
        if ((b->types >> t & 1) && cost[t] < least)
            least = cost[t];
    }
    for (unsigned t = 0; t < p->type_count; t++) {
        if (!(b->types >> t & 1))
            continue;
        double room = b->gpu > 0 ? p->type_gpu[t] : p->type_cpu[t];
        share[t] = (room + 1) * exp(-(cost[t] - least) / TEMPERATURE);
        sum += share[t];
    }
    for (unsigned t = 0; t < p->type_count; t++)
        share[t] /= sum;
}

static double move(double price, double used, double room)
{
    double excess = used / (room + 1) - 1;
    price += STEP * (excess > 1 ? 1 : excess);
    return price < 0 ? 0 : price > PRICE_MAX ? PRICE_MAX : price;
}

void sl_place_price_step(struct sl_placer *p, unsigned rounds)
{
    struct place_demand *d = p->demand;
    double room = 0;
    for (unsigned t = 0; t < p->type_count; t++)
        room += p->type_gpu[t];
    double scale = d->buyers_gpu > 0 ? p->config.tuning.load * room / d->buyers_gpu : 0;
    while (scale > 0 && rounds--) {
        double gpu[PLACE_MAX_TYPES] = {0}, cpu[PLACE_MAX_TYPES] = {0}, share[PLACE_MAX_TYPES];
        for (unsigned i = 0; i < d->buyer_count; i++) {
            const struct place_buyer *b = &d->buyers[i];
            buyer_split(p, b, share);
            for (unsigned t = 0; t < p->type_count; t++) {
                gpu[t] += scale * b->gpu * share[t];
                cpu[t] += scale * b->cpu * share[t];
            }
        }
        for (unsigned t = 0; t < p->type_count; t++) {
            d->price_gpu[t] = move(d->price_gpu[t], gpu[t], p->type_gpu[t]);
            d->price_cpu[t] =
                move(d->price_cpu[t] * p->cpu_a_gpu, cpu[t], p->type_cpu[t]) / p->cpu_a_gpu;
        }
    }
}

/* How many of a node's unused GPUs a multi-GPU pod could have, its CPU counted. */
unsigned sl_place_ready(const struct place_demand *d, unsigned unused, double cpu_free)
{
    double by_cpu = d->slot_cpu > 0 ? cpu_free / d->slot_cpu : unused;
    return by_cpu < unused ? (unsigned)by_cpu : unused;
}

/*
 * The cost, in milli-GPU, when a node's ready GPUs go from u to v: the places for k GPUs that break up, as far as pods
 * wanting k or more will need them. A pod of `count` GPUs pays only for places larger than its own.
 */
void sl_place_slot_costs(const struct sl_placer *p, unsigned count, place_slot_table ret)
{
    const struct place_demand *d = p->demand;
    double room = 0, from = p->config.tuning.slot_from, each[SL_PLACE_MAX_GPUS + 1] = {0};
    for (unsigned t = 0; t < p->type_count; t++)
        room += p->type_gpu[t];
    for (unsigned k = count < 2 ? 2 : count + 1; k <= SL_PLACE_MAX_GPUS; k++) {
        double next = k < SL_PLACE_MAX_GPUS ? d->slot_share[k + 1] : 0;
        if (d->slot_share[k] <= next || !p->slots[k])
            continue; /* no pod wants exactly k, or there is nothing to break */
        /* Arrivals scatter about their mean: the fewer are expected, the larger the margin. */
        double wanted = d->slot_share[k] * room / (1000.0 * k);
        double need = wanted + p->config.tuning.slot_margin * sqrt(wanted);
        double scarce = (need / p->slots[k] - from) / from;
        scarce = scarce < 0 ? 0 : scarce > 1 ? 1 : scarce;
        each[k] = PLACE_SCALE * p->config.tuning.slot * 1000.0 * k * scarce;
    }
    for (unsigned u = 0; u <= SL_PLACE_MAX_GPUS; u++)
        for (unsigned v = 0; v <= u; v++) {
            double cost = 0;
            for (unsigned k = 2; k <= u; k++) {
                unsigned lost = u / k - v / k;
                cost += each[k] > 0 ? each[k] * lost : 0;
            }
            ret[u][v] = (int32_t)lrint(cost);
        }
}
