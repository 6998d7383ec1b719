/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which devices CUDA has in this process. The cards it has nodes for; but when a card of them is in
 * MIG mode and the process may use one of its MIG devices, exactly that one: a CUDA process is on
 * one MIG device, and then on nothing else. CUDA_VISIBLE_DEVICES chooses among them.
 */
#include "sim/cuda_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim/mps.h"
#include "sim/tree.h"

static struct sim_mig mig_at(uint32_t card, const struct sl_sim_mig_gi *gi,
                             const struct sl_sim_mig_ci *ci)
{
    const struct sl_sim_device *d = &sim_p.st->cards[card].desc;
    const struct sl_sim_profile *p = sl_sim_profile_at(d->profile);
    struct sim_mig m = {
        .on = true,
        .card = card,
        .gi_id = gi->id,
        .ci_id = ci->id,
        .generation = ci->generation,
        .sm_count = sl_sim_mig_ci_sms(p, gi->profile, ci->slices),
        .memory_bytes = (uint64_t)p->mig[gi->profile].memory_mib << 20,
    };
    sl_sim_mig_uuid(d, gi, ci, m.uuid);
    sl_sim_mig_ci_name(p, gi->profile, ci->slices, m.name, sizeof(m.name));
    return m;
}

/* "MIG-<uuid>" or its beginning, or the old "MIG-GPU-<uuid>/<gi>/<ci>". */
static bool named(const struct sim_mig *m, const char *text)
{
    char uuid[48], old[80];
    sl_sim_uuid_format("MIG-", m->uuid, uuid, sizeof(uuid));
    (void)snprintf(old, sizeof(old), "MIG-%s/%u/%u", sim_p.st->cards[m->card].desc.uuid_text,
                   m->gi_id, m->ci_id);
    return strncasecmp(uuid, text, strlen(text)) == 0 || strcasecmp(old, text) == 0;
}

/* The first MIG device this process sees, of that name if there is one. State locked. */
static bool find_mig(const char *name, struct sim_mig *ret)
{
    for (uint32_t card = 0; card < sim_p.st->card_count; card++) {
        const struct sl_sim_mig_state *s = &sim_p.st->cards[card].mig;
        for (size_t g = 0; s->enabled && g < SL_SIM_MIG_MAX_GI; g++)
            for (size_t c = 0; s->gi[g].used && c < SL_SIM_MIG_MAX_CI; c++) {
                if (!s->gi[g].ci[c].used || !sl_sim_sees_mig(card, s->gi[g].id, s->gi[g].ci[c].id))
                    continue;
                *ret = mig_at(card, &s->gi[g], &s->gi[g].ci[c]);
                if (!name || named(ret, name))
                    return true;
            }
    }
    ret->on = false;
    return false;
}

/* Cards that are whole: one in MIG mode is no device itself, even with no instance on it. */
static uint32_t whole_cards(uint32_t *out)
{
    uint32_t n = 0, all = sim_p.mps.on ? sim_p.mps.count : sim_p.st->card_count;
    for (uint32_t i = 0; i < all; i++) {
        uint32_t card = sim_p.mps.on ? sim_p.mps.card[i] : i; /* an MPS server has its own order */
        if (sl_sim_sees_card(card) && !sim_p.st->cards[card].mig.enabled)
            out[n++] = card;
    }
    return n;
}

static void use_mig(const struct sim_mig *m)
{
    sim_p.mig = *m;
    sim_p.card[0] = m->card;
    sim_p.count = 1;
}

static void choose(void)
{
    const char *env = getenv("CUDA_VISIBLE_DEVICES");
    uint32_t cards[SL_SIM_MAX_DEVICES] = {0}, count = whole_cards(cards);
    struct sim_mig m;
    char first[96] = "";
    if (env)
        (void)sscanf(env, " %95[^, ]", first);
    sim_p.count = 0;
    if (strncasecmp(first, "MIG-", 4) == 0) {
        if (!sim_p.mps.on && find_mig(first, &m))
            use_mig(&m);
        return;
    }
    if (!sim_p.mps.on && strncasecmp(first, "GPU-", 4) != 0 && find_mig(NULL, &m)) {
        if (!env || strcmp(first, "0") == 0)
            use_mig(&m);
        return;
    }
    sim_p.count = (int)sl_sim_choose_cards(sim_p.st, env, cards, count, sim_p.card);
}

void sim_choose_devices(void)
{
    sl_sim_lock(sim_p.st);
    choose();
    sim_part_enter();
    sl_sim_unlock(sim_p.st);
}
