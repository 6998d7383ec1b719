/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a card this process has: all of it, a MIG device, or what its MPS server allows. */
#include "sim/cuda_int.h"

#include "sim/mps.h"

uint32_t sim_sm_count(uint32_t card)
{
    uint32_t all = sim_p.st->cards[card].desc.sm_count;
    if (sim_p.mig.on)
        return sim_p.mig.sm_count;
    if (!sim_p.mps.on)
        return all;
    return all * sim_p.mps.share_permille >= 1000 ? all * sim_p.mps.share_permille / 1000 : 1;
}

uint64_t sim_total_bytes(uint32_t card)
{
    return sim_p.mig.on ? sim_p.mig.memory_bytes : sim_p.st->cards[card].desc.memory_total_bytes;
}

uint64_t sim_used_bytes(uint32_t card)
{
    return sim_p.mig.on ? sl_sim_used_bytes_in(sim_p.st, card, sim_p.mig.gi_id)
                        : sl_sim_used_bytes(sim_p.st, card);
}

bool sim_fits(uint32_t card, uint64_t bytes)
{
    uint64_t total = sim_total_bytes(card);
    /* An MPS server's limit is each client process's, with all that its context takes. */
    uint64_t limit = sim_p.mps.on ? sim_p.mps.limit_bytes[card] : 0;
    uint64_t mine = sim_p.st->procs[sim_p.slot].card[card].memory_bytes;
    if (limit && (mine > limit || bytes > limit - mine))
        return false;
    return bytes <= total && sim_used_bytes(card) <= total - bytes;
}

/* What a context takes is mostly room for each SM's local memory. */
uint64_t sim_context_bytes(uint32_t card)
{
    const struct sl_sim_device *d = &sim_p.st->cards[card].desc;
    if (!sim_p.mig.on || d->sm_count == 0)
        return d->context_overhead_bytes;
    uint64_t bytes = d->context_overhead_bytes * sim_p.mig.sm_count / d->sm_count;
    return (bytes + SIM_BLOCK - 1) / SIM_BLOCK * SIM_BLOCK;
}

struct sl_sim_lane sim_lane(uint32_t card)
{
    const struct sl_sim_device *d = &sim_p.st->cards[card].desc;
    if (sim_p.mig.on)
        return (struct sl_sim_lane){
            .kind = SL_SIM_LANE_MIG,
            .gi = sim_p.mig.gi_id,
            .ci = sim_p.mig.ci_id,
            .share_permille = d->sm_count ? sim_p.mig.sm_count * 1000 / d->sm_count : 1000,
        };
    if (sim_p.mps.on)
        return (struct sl_sim_lane){
            .kind = SL_SIM_LANE_MPS, .gi = sim_p.slot, .share_permille = sim_p.mps.share_permille};
    return (struct sl_sim_lane){.kind = SL_SIM_LANE_CARD, .share_permille = 1000};
}

/* The MIG device this process chose when it started may be another one by now, or none. */
static bool mig_there(void)
{
    const struct sl_sim_mig_state *s = &sim_p.st->cards[sim_p.mig.card].mig;
    for (size_t g = 0; s->enabled && g < SL_SIM_MIG_MAX_GI; g++)
        for (size_t c = 0; s->gi[g].used && c < SL_SIM_MIG_MAX_CI; c++)
            if (s->gi[g].ci[c].used && s->gi[g].ci[c].generation == sim_p.mig.generation)
                return true;
    return false;
}

/* Whether process slot i keeps us from an exclusive device: on MIG, only one on the same device. */
static bool in_our_way(uint32_t i, uint32_t card)
{
    const struct sl_sim_proc_card *pc = &sim_p.st->procs[i].card[card];
    if (!sim_p.st->procs[i].used || i == sim_p.slot || pc->contexts == 0)
        return false;
    if (sim_p.mps.on)
        return pc->mps == SL_SIM_MPS_NOT; /* it is the server that has the card, for all of us */
    return !sim_p.mig.on || (pc->mig && pc->gi == sim_p.mig.gi_id && pc->ci == sim_p.mig.ci_id);
}

CUresult sim_may_use(uint32_t card)
{
    const struct sl_sim_card *c = &sim_p.st->cards[card];
    if (c->lost || c->compute_mode == CU_COMPUTEMODE_PROHIBITED ||
        (sim_p.mig.on ? !mig_there() : c->mig.enabled != 0))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (c->compute_mode != CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
        return CUDA_SUCCESS;
    for (uint32_t i = 0; i < sim_p.st->proc_high; i++)
        if (in_our_way(i, card))
            return CUDA_ERROR_DEVICE_UNAVAILABLE;
    return CUDA_SUCCESS;
}

void sim_part_enter(void)
{
    struct sl_sim_proc *me = &sim_p.st->procs[sim_p.slot];
    if (sim_p.mig.on) {
        struct sl_sim_proc_card *pc = &me->card[sim_p.mig.card];
        pc->mig = 1;
        pc->gi = sim_p.mig.gi_id;
        pc->ci = sim_p.mig.ci_id;
    }
    for (uint32_t i = 0; sim_p.mps.on && i < sim_p.mps.count; i++)
        me->card[sim_p.mps.card[i]].mps = SL_SIM_MPS_CLIENT;
}
