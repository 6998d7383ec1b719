/* SPDX-License-Identifier: Apache-2.0 */
/* The choice among the cards of one machine, by the figures of the books that the caller keeps. */
#include <errno.h>

#include "policy/errors.h"
#include "policy/place_internal.h"

/* Of the cards so far, those that the policy likes best: a node of the engine has no room for more. */
struct shortlist {
    struct place_node node;
    size_t at[SL_PLACE_MAX_GPUS]; /* in the caller's list */
};

/* The smaller of both parts, as everywhere in the engine. Cards of different size count by the largest: ten GiB are as
 * much on a small card as on a large one. */
static uint16_t value_of(const struct sl_place_card *card, uint64_t largest)
{
    uint64_t memory = 0;
    if (largest)
        memory = (uint64_t)((unsigned __int128)card->memory_bytes * 1000 / largest);
    uint64_t value = memory < card->cores_permille ? memory : card->cores_permille;
    return (uint16_t)(value < 1000 ? value : 1000);
}

/* Makes room for one more, unless that one is no better than the worst. Of equals, the first in the list stay. */
static bool make_room(struct shortlist *s, uint16_t value, bool loosest)
{
    unsigned n = s->node.gpu_count, worst = 0;
    if (n < SL_PLACE_MAX_GPUS)
        return true;
    for (unsigned i = 1; i < n; i++)
        if (loosest ? s->node.gpus[i].free <= s->node.gpus[worst].free
                    : s->node.gpus[i].free >= s->node.gpus[worst].free)
            worst = i;
    if (loosest ? value <= s->node.gpus[worst].free : value >= s->node.gpus[worst].free)
        return false;
    for (unsigned i = worst; i + 1 < n; i++) {
        s->node.gpus[i] = s->node.gpus[i + 1];
        s->at[i] = s->at[i + 1];
    }
    s->node.gpu_count--;
    return true;
}

int sl_place_cards(enum sl_place_policy policy, const struct sl_place_card *cards, size_t count,
                   uint64_t largest_bytes, unsigned wanted, size_t *ret, struct sl_err *err)
{
    struct shortlist s = {.node = {.open = true}};
    struct sl_place_request r = {.gpu_count = (uint8_t)wanted,
                                 .prefer = SL_PLACE_PREFER_NUMA | SL_PLACE_PREFER_LINK};
    bool loosest = policy == SL_PLACE_SPREAD;
    if (wanted == 0 || wanted > SL_PLACE_MAX_GPUS || wanted > count)
        return sl_err_set(err, -ENOSPC, SL_E_PLACE_CARDS, wanted, count);
    for (size_t i = 0; i < count; i++) {
        uint16_t value = value_of(&cards[i], largest_bytes);
        if (!make_room(&s, value, loosest))
            continue;
        s.at[s.node.gpu_count] = i;
        s.node.gpus[s.node.gpu_count++] = (struct place_gpu){
            .free = value, .numa = cards[i].numa, .link_group = cards[i].link_group};
    }
    uint16_t chosen = sl_place_pick_tightest(&s.node, &r, loosest);
    for (unsigned i = 0, n = 0; i < s.node.gpu_count; i++)
        if (chosen >> i & 1)
            ret[n++] = s.at[i];
    return 0;
}
