/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes: the parts of a card that run side by side, and how fast each of them does. */
#include <errno.h>
#include <string.h>

#include "sim/engine.h"

static const struct sl_sim_lane whole_card = {.kind = SL_SIM_LANE_CARD,
                                              .share_permille = 1000,
                                              .rate_permille = 1000,
                                              .running = SL_SIM_NONE};

void sl_sim_lanes_init(struct sl_sim_card *c)
{
    memset(c->lanes, 0, sizeof(c->lanes));
    c->lanes[0] = whole_card;
    c->lanes_used = 1;
}

void sl_sim_lanes_repair(struct sl_sim_state *st, uint32_t card)
{
    struct sl_sim_card *c = &st->cards[card];
    c->lanes_used = 1;
    for (uint32_t i = 0; i < st->queue_high; i++)
        if (st->queues[i].used && st->queues[i].card == card)
            c->lanes_used |= 1ULL << (st->queues[i].lane % SL_SIM_LANES);
    for (uint32_t l = 0; l < SL_SIM_LANES; l = sl_sim_lane_next(c, l)) {
        uint32_t run = c->lanes[l].running;
        if (run != SL_SIM_NONE && (run >= SL_SIM_MAX_QUEUES || !st->queues[run].used ||
                                   st->queues[run].card != card || st->queues[run].lane != l))
            c->lanes[l].running = SL_SIM_NONE;
    }
}

int sl_sim_lane_find(struct sl_sim_state *st, uint32_t card, const struct sl_sim_lane *like)
{
    struct sl_sim_card *c = &st->cards[card];
    if (like->kind == SL_SIM_LANE_CARD)
        return 0;
    for (uint32_t l = 1; l < SL_SIM_LANES; l++)
        if ((c->lanes_used >> l & 1) && c->lanes[l].kind == like->kind &&
            c->lanes[l].gi == like->gi && c->lanes[l].ci == like->ci)
            return (int)l;
    for (uint32_t l = 1; l < SL_SIM_LANES; l++)
        if (!(c->lanes_used >> l & 1)) {
            c->lanes[l] = *like;
            c->lanes[l].running = SL_SIM_NONE;
            c->lanes[l].rate_permille = like->share_permille;
            c->lanes_used |= 1ULL << l;
            return (int)l;
        }
    return -ENOSPC;
}

bool sl_sim_lane_plays(const struct sl_sim_state *st, const struct sl_sim_lane *lane, uint64_t t)
{
    if (lane->running == SL_SIM_NONE || lane->switch_until_ns > t)
        return false;
    const struct sl_sim_queue *q = &st->queues[lane->running];
    return (q->run_count || q->spinning) && sl_sim_queue_runs(q);
}

/*
 * A MIG device has its own SMs. MPS clients run side by side, each on at most its share; when they
 * want more than there is, in proportion. A process that is not an MPS client takes turns with them
 * all.
 */
void sl_sim_lanes_rate(struct sl_sim_state *st, uint32_t card, uint64_t t)
{
    struct sl_sim_card *c = &st->cards[card];
    uint32_t wanted = 0;
    bool beside = sl_sim_lane_plays(st, &c->lanes[0], t);
    for (uint32_t l = sl_sim_lane_next(c, 0); l < SL_SIM_LANES; l = sl_sim_lane_next(c, l))
        if (c->lanes[l].kind == SL_SIM_LANE_MPS && sl_sim_lane_plays(st, &c->lanes[l], t))
            wanted += c->lanes[l].share_permille;
    c->lanes[0].rate_permille = wanted ? 500 : 1000;
    for (uint32_t l = sl_sim_lane_next(c, 0); l < SL_SIM_LANES; l = sl_sim_lane_next(c, l)) {
        struct sl_sim_lane *lane = &c->lanes[l];
        uint32_t rate = lane->share_permille;
        if (lane->kind == SL_SIM_LANE_MPS) {
            if (wanted > 1000)
                rate = rate * 1000 / wanted;
            if (beside)
                rate /= 2;
        }
        lane->rate_permille = rate ? rate : 1;
    }
}
