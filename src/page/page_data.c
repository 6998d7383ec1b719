/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON that the page reads: totals of all cards, and the few cards that are looked at. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/version.h"
#include "base/xalloc.h"
#include "page/page.h"

#define WHOLE        1000
#define TENANTS_MOST 64 /* of one card */
#define WALL_STEPS   9

/* How full, in permille: by what is scarcer. */
static uint32_t fullness(const struct sl_page_card *c)
{
    uint64_t taken = c->memory_mib > c->free_mib ? c->memory_mib - c->free_mib : 0;
    uint64_t memory = c->memory_mib ? taken * WHOLE / c->memory_mib : 0;
    uint32_t time = c->free_permille < WHOLE ? WHOLE - c->free_permille : 0;
    return memory > time ? (uint32_t)memory : time;
}

/* --- which cards, in which order --- */

/* Names are many: this is what takes the time of a search. find has no capitals. */
static bool contains(const char *text, const char *find)
{
    for (; *text; text++) {
        size_t n = 0;
        while (find[n] && (text[n] >= 'A' && text[n] <= 'Z' ? text[n] | 32 : text[n]) == find[n])
            n++;
        if (!find[n])
            return true;
    }
    return false;
}

struct finding {
    const char *find;
    bool found;
};

static void find_tenant(void *to, const struct sl_page_tenant *t)
{
    struct finding *f = to;
    f->found = f->found || contains(t->name, f->find) || (t->space && contains(t->space, f->find));
}

static bool matches(const struct sl_page_source *s, const struct sl_page_card *c, const char *find)
{
    struct finding f = {.find = find};
    if (!*find || contains(c->node, find) || contains(c->uuid, find) || contains(c->model, find))
        return true;
    s->each_tenant(s, c, find_tenant, &f);
    return f.found;
}

/* The cards that match, as numbers, in the order asked for. Equals stay in the order of their names. */
static uint32_t *choose(const struct sl_page_source *s, const struct sl_page_ask *ask,
                        size_t *ret_count)
{
    uint32_t *found = sl_xmalloc((s->card_count + 1) * sizeof(*found));
    uint32_t start[WHOLE + 2] = {0};
    size_t n = 0;
    char find[SL_PAGE_FIND_MAX + 1];
    for (size_t i = 0; i < sizeof(find); i++)
        find[i] =
            ask->find[i] >= 'A' && ask->find[i] <= 'Z' ? (char)(ask->find[i] | 32) : ask->find[i];
    for (size_t i = 0; i < s->card_count; i++)
        if (matches(s, &s->cards[i], find))
            found[n++] = (uint32_t)i;
    *ret_count = n;
    if (ask->sort == SL_PAGE_BY_NAME)
        return found;
    bool full_first = ask->sort == SL_PAGE_FULL_FIRST;
    uint32_t *sorted = sl_xmalloc((n + 1) * sizeof(*sorted));
    for (int put = 0; put < 2; put++) {
        for (size_t i = 0; i < n; i++) {
            uint32_t full = fullness(&s->cards[found[i]]);
            uint32_t key = full > WHOLE ? WHOLE : full;
            key = full_first ? WHOLE - key : key;
            if (put)
                sorted[start[key]++] = found[i];
            else
                start[key + 1]++;
        }
        for (size_t k = 1; !put && k < SL_ARRAY_LEN(start); k++)
            start[k] += start[k - 1];
    }
    free(found);
    return sorted;
}

/* --- writing --- */

static void put_maybe(struct sl_json *j, const char *key, int64_t value)
{
    if (value < 0)
        sl_json_string(j, key, NULL);
    else
        sl_json_int(j, key, value);
}

struct tenants {
    struct sl_json *j;
    size_t count;
};

static void put_tenant(void *to, const struct sl_page_tenant *t)
{
    struct tenants *list = to;
    struct sl_json *j = list->j;
    if (list->count++ >= TENANTS_MOST)
        return;
    sl_json_begin(j, NULL, '{');
    sl_json_string(j, "name", t->name);
    sl_json_string(j, "space", t->space);
    sl_json_string(j, "state", t->state);
    sl_json_string(j, "priority", t->priority);
    put_maybe(j, "memory_mib", t->no_limit ? -1 : (int64_t)t->memory_mib);
    put_maybe(j, "used_mib", t->used_mib);
    sl_json_uint(j, "cores", t->cores_permille);
    sl_json_uint(j, "limit", t->limit_permille);
    put_maybe(j, "got", t->got_permille);
    sl_json_uint(j, "processes", t->processes);
    sl_json_end(j, '}');
}

static void put_card(struct sl_json *j, const struct sl_page_source *s,
                     const struct sl_page_card *c)
{
    struct tenants list = {.j = j};
    sl_json_begin(j, NULL, '{');
    sl_json_string(j, "node", c->node);
    sl_json_uint(j, "index", c->index);
    sl_json_string(j, "uuid", c->uuid);
    sl_json_string(j, "model", c->model);
    sl_json_string(j, "bad", c->bad);
    sl_json_uint(j, "memory_mib", c->memory_mib);
    sl_json_uint(j, "free_mib", c->free_mib);
    put_maybe(j, "used_mib", c->used_mib);
    sl_json_uint(j, "free_cores", c->free_permille);
    put_maybe(j, "got", c->got_permille);
    sl_json_begin(j, "tenants", '[');
    s->each_tenant(s, c, put_tenant, &list);
    sl_json_end(j, ']');
    sl_json_uint(j, "more", list.count > TENANTS_MOST ? list.count - TENANTS_MOST : 0);
    sl_json_end(j, '}');
}

static void put_waiter(void *to, const struct sl_page_waiter *w)
{
    struct sl_json *j = to;
    sl_json_begin(j, NULL, '{');
    sl_json_string(j, "name", w->name);
    sl_json_string(j, "space", w->space);
    sl_json_string(j, "why", w->why);
    sl_json_string(j, "said", w->said);
    sl_json_string(j, "claim", w->claim);
    sl_json_string(j, "since", w->since);
    sl_json_uint(j, "waited_s", w->waited_ns / 1000000000);
    sl_json_uint(j, "memory_mib", w->memory_mib);
    sl_json_uint(j, "memory_percent", w->memory_percent);
    sl_json_uint(j, "cores", w->cores_permille);
    sl_json_uint(j, "limit", w->limit_permille);
    sl_json_uint(j, "gpus", w->gpus);
    sl_json_end(j, '}');
}

static void put_totals(struct sl_json *j, const struct sl_page_source *s)
{
    uint64_t memory = 0, memory_free = 0, cores_free = 0, empty = 0, bad = 0;
    for (size_t i = 0; i < s->card_count; i++) {
        memory += s->cards[i].memory_mib;
        memory_free += s->cards[i].free_mib;
        cores_free += s->cards[i].free_permille;
        bad += s->cards[i].bad != NULL;
        empty += fullness(&s->cards[i]) == 0;
    }
    sl_json_begin(j, "totals", '{');
    sl_json_uint(j, "nodes", s->nodes);
    sl_json_uint(j, "cards", s->card_count);
    sl_json_uint(j, "empty", empty);
    sl_json_uint(j, "bad", bad);
    sl_json_uint(j, "tenants", s->tenants);
    sl_json_uint(j, "waiting", s->waiting);
    sl_json_uint(j, "memory_mib", memory);
    sl_json_uint(j, "free_mib", memory_free);
    sl_json_uint(j, "free_cores", cores_free);
    sl_json_end(j, '}');
}

/* All cards that match, a character each: 0 empty, 9 full, x takes nobody. */
static void put_wall(struct sl_json *j, const struct sl_page_source *s, const uint32_t *chosen,
                     size_t count)
{
    char *wall SL_CLEANUP(free) = sl_xmalloc(count + 1);
    for (size_t i = 0; i < count; i++) {
        const struct sl_page_card *c = &s->cards[chosen[i]];
        uint32_t full = fullness(c);
        uint32_t step = (full * WALL_STEPS + WHOLE - 1) / WHOLE;
        wall[i] = c->bad ? 'x' : (char)('0' + (step > WALL_STEPS ? WALL_STEPS : step));
    }
    wall[count] = '\0';
    sl_json_string(j, "wall", wall);
}

static FILE *begin(struct sl_json *j, char **ret_text, size_t *ret_size)
{
    FILE *out = sl_xmemstream(ret_text, ret_size);
    sl_json_init(j, out);
    sl_json_begin(j, NULL, '{');
    return out;
}

static void end(struct sl_json *j, FILE *out)
{
    sl_json_end(j, '}');
    sl_xmemstream_close(out);
}

char *sl_page_data(const struct sl_page_source *s, const struct sl_page_ask *ask, size_t *ret_size)
{
    struct sl_json j;
    char *text;
    size_t count, room = ask->count;
    uint32_t *chosen SL_CLEANUP(free) = choose(s, ask, &count);
    FILE *out = begin(&j, &text, ret_size);
    size_t from = ask->from < count ? ask->from : count;
    sl_json_string(&j, "kind", s->kind);
    sl_json_string(&j, "title", s->title);
    sl_json_string(&j, "version", SLUICE_VERSION);
    sl_json_string(&j, "note", s->note);
    sl_json_string(&j, "simulated", s->simulated);
    put_totals(&j, s);
    sl_json_uint(&j, "match", count);
    sl_json_uint(&j, "from", from);
    put_wall(&j, s, chosen, count);
    sl_json_begin(&j, "cards", '[');
    for (size_t i = from; i < count && room; i++, room--)
        put_card(&j, s, &s->cards[chosen[i]]);
    sl_json_end(&j, ']');
    sl_json_uint(&j, "wait_from", ask->wait_from);
    sl_json_begin(&j, "waiting", '[');
    s->each_waiter(s, ask->wait_from, SL_PAGE_WAIT_MAX, put_waiter, &j);
    sl_json_end(&j, ']');
    end(&j, out);
    return text;
}

bool sl_page_card_fits(const struct sl_page_card *c, const struct sl_page_want *w)
{
    uint64_t mib = w->memory_percent ? (c->memory_mib * w->memory_percent + 99) / 100
                                     : (w->memory_bytes + (1u << 20) - 1) >> 20;
    return !c->bad && c->free_mib >= mib && c->free_permille >= w->cores_permille;
}

char *sl_page_fit(const struct sl_page_want *want, const struct sl_page_place *p, size_t *ret_size)
{
    struct sl_json j;
    char *text;
    FILE *out = begin(&j, &text, ret_size);
    sl_json_bool(&j, "fits", p->node);
    sl_json_string(&j, "node", p->node);
    sl_json_string(&j, "by", p->by);
    sl_json_string(&j, "why", p->why);
    sl_json_uint(&j, "gpus", want->gpus);
    sl_json_uint(&j, "fitting", p->fitting);
    sl_json_uint(&j, "of", p->cards);
    sl_json_begin(&j, "cards", '[');
    for (size_t i = 0; i < p->card_count; i++) {
        sl_json_begin(&j, NULL, '{');
        sl_json_uint(&j, "index", p->card[i].index);
        sl_json_string(&j, "uuid", p->card[i].uuid);
        sl_json_string(&j, "model", p->card[i].model);
        sl_json_end(&j, '}');
    }
    sl_json_end(&j, ']');
    end(&j, out);
    return text;
}

char *sl_page_error(const char *message, size_t *ret_size)
{
    struct sl_json j;
    char *text;
    FILE *out = begin(&j, &text, ret_size);
    sl_json_string(&j, "error", message);
    end(&j, out);
    return text;
}
