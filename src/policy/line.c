/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/line.h"

#include <stddef.h>
#include <string.h>

#include "base/list.h"

#define WORDS (SL_LINE_GPUS / 64)

void sl_line_gpus_add(struct sl_line_gpus *set, uint32_t gpu)
{
    set->word[gpu / 64] |= 1ULL << gpu % 64;
}

bool sl_line_gpus_has(const struct sl_line_gpus *set, uint32_t gpu)
{
    return set->word[gpu / 64] >> gpu % 64 & 1;
}

static bool goes_before(const struct sl_line_place *a, const struct sl_line_place *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->number < b->number;
}

static bool insert(struct sl_line *line, struct sl_line_place *place)
{
    if (line->count >= SL_LINE_MAX)
        return false;
    struct sl_line_place **at = &line->first;
    while (*at && goes_before(*at, place))
        at = &(*at)->next;
    place->next = *at;
    *at = place;
    line->count++;
    return true;
}

bool sl_line_join(struct sl_line *line, struct sl_line_place *place)
{
    place->number = ++line->last_number;
    place->state = SL_LINE_WAITING;
    return insert(line, place);
}

bool sl_line_keep(struct sl_line *line, struct sl_line_place *place, uint64_t now_ns)
{
    if (place->number > line->last_number)
        line->last_number = place->number;
    place->state = SL_LINE_ABSENT;
    place->until_ns = now_ns + SL_LINE_RETURN_NS;
    return insert(line, place);
}

void sl_line_leave(struct sl_line *line, struct sl_line_place *place)
{
    sl_list_drop(&line->first, place);
    line->count--;
}

/* What a place holds up for those behind it. */
static void claim(struct sl_line_gpus *claimed, const struct sl_line_place *p)
{
    if (p->state == SL_LINE_ASLEEP || (p->state == SL_LINE_WAITING && p->held))
        return;
    for (size_t i = 0; i < WORDS; i++)
        claimed->word[i] |= p->state == SL_LINE_ABSENT ? UINT64_MAX : p->wants.word[i];
}

struct sl_line_gpus sl_line_before(const struct sl_line *line, const struct sl_line_place *place,
                                   uint32_t priority)
{
    struct sl_line_gpus claimed = {{0}};
    for (const struct sl_line_place *p = line->first; p && p != place; p = p->next)
        if (place || p->priority >= priority)
            claim(&claimed, p);
    return claimed;
}

/* Do those before it leave as many of its GPUs as it needs? */
static bool may_go(const struct sl_line_place *p, const struct sl_line_gpus *claimed)
{
    uint32_t left = 0;
    for (size_t i = 0; i < WORDS; i++)
        left += (uint32_t)__builtin_popcountll(p->wants.word[i] & ~claimed->word[i]);
    return left >= p->need;
}

struct sl_line_place *sl_line_call(struct sl_line *line, uint64_t now_ns, sl_line_fits fits,
                                   void *arg)
{
    struct sl_line_gpus claimed = {{0}};
    for (struct sl_line_place *p = line->first; p; p = p->next) {
        if (p->state == SL_LINE_WAITING && !p->held && may_go(p, &claimed) &&
            fits(arg, p, &claimed)) {
            p->state = SL_LINE_CALLED;
            p->until_ns = now_ns + SL_LINE_ANSWER_NS;
            return p;
        }
        claim(&claimed, p);
    }
    return NULL;
}

struct sl_line_place *sl_line_expire(struct sl_line *line, uint64_t now_ns)
{
    for (struct sl_line_place *p = line->first; p; p = p->next) {
        if (p->state == SL_LINE_ABSENT && now_ns >= p->until_ns)
            return p;
        if (p->state == SL_LINE_CALLED && now_ns >= p->until_ns)
            p->state = SL_LINE_ASLEEP;
    }
    return NULL;
}

uint64_t sl_line_due(const struct sl_line *line)
{
    uint64_t due = UINT64_MAX;
    for (const struct sl_line_place *p = line->first; p; p = p->next)
        if ((p->state == SL_LINE_ABSENT || p->state == SL_LINE_CALLED) && p->until_ns < due)
            due = p->until_ns;
    return due;
}

uint32_t sl_line_position(const struct sl_line *line, const struct sl_line_place *place,
                          uint32_t *ret_count)
{
    uint32_t at = 0, count = 0;
    for (const struct sl_line_place *p = line->first; p; p = p->next) {
        count += p == place || p->state != SL_LINE_ASLEEP;
        if (p == place)
            at = count;
    }
    *ret_count = count;
    return at;
}
