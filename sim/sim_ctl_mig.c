/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-sim-ctl list, mig: the MIG devices there are, and those somebody wants there to be. */
#include "sim/sim_ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/nvml_shared.h"
#include "sim/tree.h"

bool sl_sim_ctl_next_mig(const struct sl_sim_card *c, size_t *at, struct sl_sim_ctl_mig *ret)
{
    const struct sl_sim_profile *p = sl_sim_profile_at(c->desc.profile);
    for (; c->mig.enabled && *at < (size_t)SL_SIM_MIG_MAX_GI * SL_SIM_MIG_MAX_CI; ++*at) {
        const struct sl_sim_mig_gi *gi = &c->mig.gi[*at / SL_SIM_MIG_MAX_CI];
        const struct sl_sim_mig_ci *ci = &gi->ci[*at % SL_SIM_MIG_MAX_CI];
        uint8_t bytes[16];
        if (!gi->used || !ci->used)
            continue;
        sl_sim_mig_uuid(&c->desc, gi, ci, bytes);
        sl_sim_uuid_format("MIG-", bytes, ret->uuid, sizeof(ret->uuid));
        sl_sim_mig_ci_name(p, gi->profile, ci->slices, ret->name, sizeof(ret->name));
        ret->gi_id = gi->id;
        ret->ci_id = ci->id;
        ++*at;
        return true;
    }
    return false;
}

int sl_sim_ctl_list(struct sl_sim_state *st)
{
    unsigned int index = 0;
    sl_sim_lock(st);
    for (uint32_t i = 0; i < st->card_count; i++) {
        const struct sl_sim_card *c = &st->cards[i];
        struct sl_sim_ctl_mig m;
        unsigned int device = 0;
        if (!sl_sim_sees_card(i))
            continue;
        if (c->lost) {
            (void)printf("Unable to determine the device handle for gpu %u: GPU is lost\n",
                         index++);
            continue;
        }
        (void)printf("GPU %u: %s (UUID: %s)\n", index++, c->desc.name, c->desc.uuid_text);
        for (size_t at = 0; sl_sim_ctl_next_mig(c, &at, &m);)
            if (sl_sim_sees_mig(i, m.gi_id, m.ci_id))
                (void)printf("  MIG %-15s Device %2u: (UUID: %s)\n", m.name, device++, m.uuid);
    }
    sl_sim_unlock(st);
    if (index == 0)
        (void)puts("No devices found.");
    return 0;
}

/* "1g.18gb", "3g.71gb@4": makes one instance, whole. */
static int make_one(const struct sl_sim_profile *p, struct sl_sim_mig_state *s, const char *text)
{
    char want[40], name[40];
    const char *place = strchr(text, '@');
    size_t n = place ? (size_t)(place - text) : strlen(text);
    if (n >= sizeof(want))
        return -EINVAL;
    memcpy(want, text, n);
    want[n] = '\0';
    char *end = NULL;
    long start = place ? strtol(place + 1, &end, 10) : -1;
    if (place && (end == place + 1 || *end != '\0' || start < 0))
        return -EINVAL;
    for (size_t row = 0; row < p->mig_count; row++) {
        sl_sim_mig_name(p, row, name, sizeof(name));
        if (strcmp(name, want) != 0)
            continue;
        int slot = sl_sim_mig_create_gi(p, s, row, (int)start);
        for (uint32_t ci = 0; slot >= 0 && ci < SL_SIM_MIG_CI_PROFILES; ci++)
            if (sl_sim_mig_ci_slices(ci) == p->mig[row].gpu_slices)
                return sl_sim_mig_create_ci(p, s, (size_t)slot, ci, -1);
        return slot < 0 ? slot : -EINVAL;
    }
    return -ENOENT;
}

/* All of the new geometry, or the old one untouched. */
int sl_sim_ctl_mig(struct sl_sim_state *st, uint32_t card, int count, char **profiles)
{
    struct sl_sim_card *c = &st->cards[card];
    const struct sl_sim_profile *p = sl_sim_profile_at(c->desc.profile);
    bool off = count == 1 && strcmp(profiles[0], "off") == 0;
    if (!p->mig)
        return sl_sim_ctl_bad("there is no MIG on", c->desc.name);
    sl_sim_lock(st);
    sl_sim_reap(st, true);
    /* Generations go on counting: handles of what was there before stay stale. */
    struct sl_sim_mig_state next = {.enabled = !off, .generation = c->mig.generation};
    const char *culprit = NULL;
    int r = 0;
    for (uint32_t i = 0; i < st->proc_high && r == 0; i++)
        if (st->procs[i].used && st->procs[i].card[card].contexts)
            r = -EBUSY;
    for (int i = 0; i < count && r >= 0 && !off; i++) {
        culprit = profiles[i];
        r = make_one(p, &next, culprit);
    }
    if (r >= 0) {
        c->mig = next;
        sl_sim_tree_sync(st, card);
    }
    sl_sim_unlock(st);
    if (r >= 0) {
        sl_sim_nvml_wake(st);
        return 0;
    }
    if (r == -EBUSY)
        return sl_sim_ctl_bad("processes are on", c->desc.uuid_text);
    return sl_sim_ctl_bad(r == -ENOSPC ? "there is no room for" : "the card has no profile",
                          culprit);
}
