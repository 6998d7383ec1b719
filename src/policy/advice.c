/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/advice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/xalloc.h"
#include "policy/errors.h"

#define NO_STATE   UINT32_MAX
#define SMALL_WORK 512 /* movable pods times cards, at most, for the search */
#define PASSES     3   /* over the cards of a large cluster */

/* Where a pod is. */
struct seat {
    uint32_t node;
    uint16_t gpus[SL_ADVICE_PARTS];
};

struct advisor {
    const struct sl_advice_node *nodes;
    size_t node_count;
    const struct sl_advice_pod *pods;
    size_t pod_count;
    size_t most; /* moves */
    struct sl_placer *placer;
    struct seat *seat;  /* by pod, as the engine has it now */
    struct seat *first; /* … as it was at the beginning */
    bool *fixed;        /* by pod */
    uint32_t *cpu;      /* by pod: what the engine took */
    uint32_t *users;    /* by card: pods */
    uint32_t *holders;  /* by card: pods that do not move */
    uint16_t *blocked;  /* by node: cards that are never used */
    size_t *head;       /* by node: its first pod, and 1 */
    size_t *next;       /* by pod: the next one of the node, and 1 */
    size_t whole;       /* cards without a pod, of those that count */
    struct sl_advice *to;
};

static size_t card(uint32_t node, unsigned gpu)
{
    return (size_t)node * SL_PLACE_MAX_GPUS + gpu;
}

static uint16_t gpus_of(const struct sl_advice_pod *pod, const struct seat *s)
{
    uint16_t gpus = 0;
    for (unsigned i = 0; i < pod->part_count; i++)
        gpus = (uint16_t)(gpus | s->gpus[i]);
    return gpus;
}

/* Does the card count when nobody uses it? */
static bool counts(const struct advisor *a, uint32_t node, unsigned gpu)
{
    return a->nodes[node].open && !((a->blocked[node] | a->nodes[node].blocked) >> gpu & 1);
}

/* by: 1, the pod comes; -1, it leaves. */
static void count(struct advisor *a, size_t pod, const struct seat *s, int by)
{
    uint16_t gpus = gpus_of(&a->pods[pod], s);
    for (unsigned g = 0; g < SL_PLACE_MAX_GPUS; g++) {
        uint32_t *users = &a->users[card(s->node, g)];
        if (!(gpus >> g & 1))
            continue;
        a->whole -= *users == 0 && counts(a, s->node, g);
        *users += (uint32_t)by;
        a->whole += *users == 0 && counts(a, s->node, g);
        a->holders[card(s->node, g)] += a->fixed[pod] ? (uint32_t)by : 0;
    }
    size_t *at = &a->head[s->node];
    if (by > 0) {
        a->next[pod] = *at;
        *at = pod + 1;
        return;
    }
    while (*at != pod + 1)
        at = &a->next[*at - 1];
    *at = a->next[pod];
}

static struct sl_place_request request_of(const struct advisor *a, size_t pod, unsigned part)
{
    struct sl_place_request r = a->pods[pod].part[part].request;
    if (part == 0)
        r.cpu_milli = a->cpu[pod];
    return r;
}

/* --- the engine's books --- */

static void leave(struct advisor *a, size_t pod)
{
    const struct seat *s = &a->seat[pod];
    for (unsigned i = 0; i < a->pods[pod].part_count; i++) {
        struct sl_place_request r = request_of(a, pod, i);
        struct sl_place_decision d = {.node = s->node, .gpus = s->gpus[i]};
        (void)!sl_place_release(a->placer, &r, &d, NULL);
    }
    count(a, pod, s, -1);
}

/* Takes the seat, or nothing. */
static int enter(struct advisor *a, size_t pod, const struct seat *s)
{
    unsigned n = a->pods[pod].part_count, i = 0;
    int rc = 0;
    for (; rc == 0 && i < n; i++) {
        struct sl_place_request r = request_of(a, pod, i);
        struct sl_place_decision d = {.node = s->node, .gpus = s->gpus[i]};
        rc = sl_place_commit(a->placer, &r, &d, NULL);
    }
    if (rc) {
        for (i--; i-- > 0;) {
            struct sl_place_request r = request_of(a, pod, i);
            struct sl_place_decision d = {.node = s->node, .gpus = s->gpus[i]};
            (void)!sl_place_release(a->placer, &r, &d, NULL);
        }
        return rc;
    }
    a->seat[pod] = *s;
    count(a, pod, s, 1);
    return 0;
}

static void block(struct advisor *a, uint32_t node, unsigned gpu, bool yes)
{
    sl_place_block_gpu(a->placer, node, gpu, yes || (a->blocked[node] >> gpu & 1));
}

/* A pod that does not fit where it is stays there, and its cards are left alone. */
static void misfit(struct advisor *a, size_t pod)
{
    const struct seat *s = &a->seat[pod];
    uint16_t gpus = gpus_of(&a->pods[pod], s);
    a->blocked[s->node] = (uint16_t)(a->blocked[s->node] | gpus);
    a->fixed[pod] = true;
    count(a, pod, s, 1);
    a->to->misfits++;
}

static size_t whole(const struct advisor *a)
{
    size_t n = 0;
    for (uint32_t i = 0; i < a->node_count; i++)
        for (unsigned g = 0; g < a->nodes[i].node.gpu_count; g++)
            n += counts(a, i, g) && a->users[card(i, g)] == 0;
    return n;
}

static int open_books(struct advisor *a, struct sl_err *err)
{
    struct sl_place_config config;
    struct sl_place_node *nodes SL_CLEANUP(free) = sl_xcalloc(a->node_count + 1, sizeof(*nodes));
    sl_place_config_init(&config, SL_PLACE_BEST_FIT);
    for (size_t i = 0; i < a->node_count; i++)
        nodes[i] = a->nodes[i].node;
    int rc = sl_place_create(&config, nodes, a->node_count, &a->placer, err);
    for (size_t i = 0; rc == 0 && i < a->pod_count; i++) {
        const struct sl_advice_pod *pod = &a->pods[i];
        struct seat s = {.node = pod->node};
        if (pod->node >= a->node_count || pod->part_count > SL_ADVICE_PARTS)
            return sl_err_set(err, -EINVAL, SL_E_ADVICE_POD, i);
        for (unsigned k = 0; k < pod->part_count; k++)
            s.gpus[k] = pod->part[k].gpus;
        a->seat[i] = s;
        a->fixed[i] = pod->fixed || pod->part_count == 0;
        uint32_t left = sl_place_cpu_free(a->placer, pod->node);
        a->cpu[i] = pod->part_count ? pod->part[0].request.cpu_milli : 0;
        a->cpu[i] = a->cpu[i] > left ? left : a->cpu[i]; /* it runs: the scheduler knew better */
        if (enter(a, i, &s) != 0)
            misfit(a, i);
    }
    for (uint32_t n = 0; rc == 0 && n < a->node_count; n++) {
        a->blocked[n] = (uint16_t)(a->blocked[n] | a->nodes[n].blocked);
        sl_place_open_node(a->placer, n, a->nodes[n].open);
        for (unsigned g = 0; g < a->nodes[n].node.gpu_count; g++)
            block(a, n, g, false);
    }
    for (size_t i = 0; rc == 0 && i < a->pod_count; i++) {
        uint32_t n = a->seat[i].node;
        if (a->fixed[i] ||
            (a->nodes[n].open && !(a->blocked[n] & gpus_of(&a->pods[i], &a->seat[i]))))
            continue;
        count(a, i, &a->seat[i], -1); /* it could not come back */
        a->fixed[i] = true;
        count(a, i, &a->seat[i], 1);
    }
    a->whole = rc ? 0 : whole(a);
    return rc;
}

static bool may_be(const struct sl_advice_pod *pod, uint32_t node)
{
    return !pod->allow || (pod->allow[node / 64] >> (node % 64) & 1);
}

/* --- moves --- */

static void add_move(struct sl_advice *to, const struct sl_advice_pod *pod, size_t number,
                     const struct seat *from, const struct seat *now)
{
    to->move = sl_xreallocarray(to->move, to->move_count + 1, sizeof(*to->move));
    to->move[to->move_count++] = (struct sl_advice_move){.pod = number,
                                                         .from = from->node,
                                                         .to = now->node,
                                                         .gpus_from = gpus_of(pod, from),
                                                         .gpus_to = gpus_of(pod, now)};
}

/* The seats before the first move. */
static void go_back(struct advisor *a)
{
    for (int step = 0; step < 2; step++)
        for (size_t i = 0; i < a->pod_count; i++) {
            bool moved = memcmp(&a->seat[i], &a->first[i], sizeof(a->seat[i])) != 0;
            if (step == 0 && moved)
                leave(a, i);
            else if (step == 1 && moved)
                (void)!enter(a, i, &a->first[i]);
        }
}

/* --- a small cluster: every arrangement that moves can reach, nearest first --- */

struct state {
    uint32_t parent;
    uint16_t moved, depth; /* the move that made it: which pod; its new card is in `at` */
};

struct search {
    struct advisor *a;
    size_t *pod; /* the pods that may move */
    size_t pods;
    uint32_t *node; /* by card of the search */
    uint8_t *gpu;
    size_t cards;
    struct state *state;
    uint16_t *at; /* by state, then by pod: its card */
    uint32_t *table;
    size_t table_size, states;
    bool all; /* nothing was left out */
};

static struct seat seat_at(const struct search *s, uint16_t at)
{
    return (struct seat){.node = s->node[at], .gpus = {(uint16_t)(1u << s->gpu[at])}};
}

/* The place of an arrangement in the table. */
static uint32_t *slot_of(const struct search *s, const uint16_t *at)
{
    size_t size = s->pods * sizeof(*at);
    size_t i = (size_t)sl_hash_bytes(SL_HASH_START, at, size) % s->table_size;
    while (s->table[i] != NO_STATE && memcmp(s->at + s->table[i] * s->pods, at, size) != 0)
        i = (i + 1) % s->table_size;
    return &s->table[i];
}

static void add_state(struct search *s, const uint16_t *at, uint32_t parent, uint16_t moved)
{
    uint32_t *slot = slot_of(s, at);
    if (*slot != NO_STATE)
        return;
    if (s->states == SL_ADVICE_STATES) {
        s->all = false;
        return;
    }
    memmove(s->at + s->states * s->pods, at, s->pods * sizeof(*at));
    uint16_t depth = parent == NO_STATE ? 0 : (uint16_t)(s->state[parent].depth + 1);
    s->state[s->states] = (struct state){parent, moved, depth};
    *slot = (uint32_t)s->states++;
}

/* Puts all pods where the arrangement has them. */
static void arrange(struct search *s, const uint16_t *at)
{
    struct advisor *a = s->a;
    for (int step = 0; step < 2; step++)
        for (size_t i = 0; i < s->pods; i++) {
            struct seat want = seat_at(s, at[i]);
            bool moved = memcmp(&a->first[s->pod[i]], &want, sizeof(want)) != 0;
            if (moved && step == 0)
                leave(a, s->pod[i]);
            else if (moved)
                (void)!enter(a, s->pod[i], &want);
        }
}

static bool fits(const struct advisor *a, size_t pod, uint32_t node, unsigned gpu)
{
    struct sl_place_request r = request_of(a, pod, 0);
    struct sl_place_decision d;
    return counts(a, node, gpu) && may_be(&a->pods[pod], node) &&
           sl_place_pick(a->placer, &r, node, (uint16_t)(1u << gpu), &d, NULL) == 0;
}

static void expand(struct search *s, uint32_t number)
{
    uint16_t *next SL_CLEANUP(free) = sl_xcalloc(s->pods + 1, sizeof(*next));
    struct advisor *a = s->a;
    for (size_t i = 0; i < s->pods; i++) {
        memcpy(next, s->at + number * s->pods, s->pods * sizeof(*next));
        uint16_t from = next[i];
        struct seat back = seat_at(s, from);
        leave(a, s->pod[i]);
        for (size_t to = 0; to < s->cards; to++)
            if (to != from && fits(a, s->pod[i], s->node[to], s->gpu[to])) {
                next[i] = (uint16_t)to;
                add_state(s, next, number, (uint16_t)i);
            }
        (void)!enter(a, s->pod[i], &back);
    }
}

/* The moves that lead to an arrangement. */
static void take_path(const struct search *s, uint32_t number, struct sl_advice *to)
{
    uint32_t path[UINT8_MAX + 1];
    unsigned n = 0;
    for (uint32_t i = number; s->state[i].parent != NO_STATE && n < UINT8_MAX;
         i = s->state[i].parent)
        path[n++] = i;
    while (n-- > 0) {
        const struct state *st = &s->state[path[n]];
        struct seat from = seat_at(s, s->at[st->parent * s->pods + st->moved]);
        struct seat now = seat_at(s, s->at[path[n] * s->pods + st->moved]);
        add_move(to, &s->a->pods[s->pod[st->moved]], s->pod[st->moved], &from, &now);
    }
}

/* False: the cluster is too large, or has pods that the search does not know how to move. */
static bool search_begin(struct search *s, struct advisor *a)
{
    bool simple = true;
    s->a = a;
    s->pod = sl_xcalloc(a->pod_count + 1, sizeof(*s->pod));
    for (size_t i = 0; i < a->pod_count; i++) {
        const struct sl_advice_pod *pod = &a->pods[i];
        if (a->fixed[i] || !a->nodes[pod->node].open)
            continue;
        if (pod->part_count != 1 || pod->part[0].request.gpu_count != 1 || pod->part[0].request.mig)
            return false;
        s->pod[s->pods++] = i;
    }
    size_t all = 0;
    for (size_t i = 0; i < a->node_count; i++)
        all += a->nodes[i].node.gpu_count;
    if (!simple || s->pods == 0 || s->pods > UINT8_MAX || all * s->pods > SMALL_WORK)
        return false;
    s->node = sl_xcalloc(all + 1, sizeof(*s->node));
    s->gpu = sl_xcalloc(all + 1, sizeof(*s->gpu));
    for (uint32_t i = 0; i < a->node_count; i++)
        for (unsigned g = 0; g < a->nodes[i].node.gpu_count; g++) {
            s->node[s->cards] = i;
            s->gpu[s->cards++] = (uint8_t)g;
        }
    s->state = sl_xcalloc(SL_ADVICE_STATES, sizeof(*s->state));
    s->at = sl_xcalloc(SL_ADVICE_STATES * s->pods, sizeof(*s->at));
    s->table_size = SL_ADVICE_STATES * 2 + 1;
    s->table = sl_xmalloc(s->table_size * sizeof(*s->table));
    memset(s->table, 0xff, s->table_size * sizeof(*s->table));
    s->all = true;
    return true;
}

static void search_end(struct search *s)
{
    free(s->pod);
    free(s->node);
    free(s->gpu);
    free(s->state);
    free(s->at);
    free(s->table);
}

static uint16_t card_number(const struct search *s, const struct seat *seat)
{
    uint16_t i = 0;
    while (s->node[i] != seat->node || !(seat->gpus[0] >> s->gpu[i] & 1))
        i++;
    return i;
}

/* States come by their number of moves: the first of the best is the nearest. */
static bool search(struct advisor *a, struct sl_advice *to)
{
    struct search s = {0};
    uint32_t best = 0;
    size_t most = a->to->whole_before;
    bool able = search_begin(&s, a);
    to->best = able || s.pods == 0; /* nothing can be moved, or all of it is looked at below */
    if (able) {
        uint16_t *at SL_CLEANUP(free) = sl_xcalloc(s.pods, sizeof(*at));
        for (size_t i = 0; i < s.pods; i++)
            at[i] = card_number(&s, &a->seat[s.pod[i]]);
        add_state(&s, at, NO_STATE, 0);
        for (uint32_t i = 0; i < s.states; i++) {
            arrange(&s, s.at + i * s.pods);
            size_t now = a->whole;
            if (now > most) {
                most = now;
                best = i;
            }
            if (!a->most || s.state[i].depth < a->most)
                expand(&s, i);
            go_back(a);
        }
        take_path(&s, best, to);
        to->whole_after = most;
        to->best = s.all;
    }
    search_end(&s);
    return able;
}

/* --- a large cluster: one card after the other --- */

struct candidate {
    uint32_t node;
    uint8_t gpu;
    uint32_t pods;
    uint64_t used_mib;
};

static int by_cost(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->pods != y->pods)
        return x->pods < y->pods ? -1 : 1;
    if (x->used_mib != y->used_mib)
        return x->used_mib < y->used_mib ? -1 : 1;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    return x->gpu < y->gpu ? -1 : x->gpu > y->gpu;
}

/* The cards that could be emptied, those with the fewest pods first. kept: bit per GPU, by node. */
static struct candidate *candidates(const struct advisor *a, const uint16_t *kept, size_t *ret)
{
    size_t n = 0;
    struct candidate *list = sl_xcalloc(a->node_count * SL_PLACE_MAX_GPUS + 1, sizeof(*list));
    for (uint32_t i = 0; i < a->node_count; i++)
        for (unsigned g = 0; g < a->nodes[i].node.gpu_count; g++) {
            size_t c = card(i, g);
            uint32_t cores, memory;
            if (!counts(a, i, g) || !a->users[c] || a->holders[c] || (kept[i] >> g & 1))
                continue;
            sl_place_gpu_free(a->placer, i, g, &cores, &memory);
            list[n++] = (struct candidate){i, (uint8_t)g, a->users[c],
                                           a->nodes[i].node.gpus[g].memory_mib - memory};
        }
    qsort(list, n, sizeof(*list), by_cost);
    *ret = n;
    return list;
}

/* Chooses GPUs for all parts on one node. The parts are in the books afterwards, or none is. */
static int seat_on(struct advisor *a, size_t pod, uint32_t node)
{
    struct seat s = {.node = node};
    unsigned i = 0, n = a->pods[pod].part_count;
    int rc = 0;
    for (; rc == 0 && i < n; i++) {
        struct sl_place_request r = request_of(a, pod, i);
        struct sl_place_decision d = {.gpus = 0};
        rc = sl_place_pick(a->placer, &r, node, UINT16_MAX, &d, NULL);
        s.gpus[i] = d.gpus;
        if (rc == 0)
            rc = sl_place_commit(a->placer, &r, &d, NULL);
    }
    for (unsigned k = rc ? i - 1 : i; k-- > 0;) { /* enter() does it all at once */
        struct sl_place_request r = request_of(a, pod, k);
        struct sl_place_decision d = {.node = node, .gpus = s.gpus[k]};
        (void)!sl_place_release(a->placer, &r, &d, NULL);
    }
    return rc ? rc : enter(a, pod, &s);
}

/* Seats a pod that has left: the engine's choice, or another node for pods with several parts. */
static int seat_anywhere(struct advisor *a, size_t pod)
{
    const struct sl_advice_pod *p = &a->pods[pod];
    struct sl_place_request r = request_of(a, pod, 0);
    struct sl_place_decision d;
    int rc = sl_place_decide(a->placer, &r, p->allow, &d, NULL);
    if (rc)
        return rc;
    rc = seat_on(a, pod, d.node);
    if (rc == 0 || p->part_count == 1)
        return rc;
    for (uint32_t n = 0; rc && n < a->node_count; n++)
        if (a->nodes[n].open && may_be(p, n))
            rc = seat_on(a, pod, n);
    return rc;
}

/* The pods of a card, the largest first: they are the hardest to place. */
static size_t pods_on(const struct advisor *a, const struct candidate *c, size_t *list)
{
    size_t n = 0;
    for (size_t k = a->head[c->node]; k; k = a->next[k - 1]) {
        size_t i = k - 1, at = n;
        uint32_t mib = a->pods[i].part[0].request.gpu_memory_mib;
        if (!(gpus_of(&a->pods[i], &a->seat[i]) >> c->gpu & 1))
            continue;
        for (n++; at && a->pods[list[at - 1]].part[0].request.gpu_memory_mib < mib; at--)
            list[at] = list[at - 1];
        list[at] = i;
    }
    return n;
}

/* Moves all pods off a card onto cards that are in use already, or none. */
static bool empty_card(struct advisor *a, const struct candidate *c, uint16_t *kept, size_t *list,
                       struct sl_advice *to)
{
    size_t n = pods_on(a, c, list), done = 0, moves = to->move_count, before = a->whole;
    struct seat *was SL_CLEANUP(free) = sl_xcalloc(n + 1, sizeof(*was));
    if (a->most && to->move_count + n > a->most)
        return false;
    block(a, c->node, c->gpu, true);
    for (; done < n; done++) {
        was[done] = a->seat[list[done]];
        leave(a, list[done]);
        if (seat_anywhere(a, list[done]) != 0)
            break;
        add_move(to, &a->pods[list[done]], list[done], &was[done], &a->seat[list[done]]);
    }
    if (done == n && a->whole > before) {
        for (size_t i = 0; i < n; i++) {
            const struct seat *now = &a->seat[list[i]];
            kept[now->node] = (uint16_t)(kept[now->node] | gpus_of(&a->pods[list[i]], now));
        }
        return true;
    }
    block(a, c->node, c->gpu, false);
    for (size_t i = 0; i < done; i++)
        leave(a, list[i]);
    for (size_t i = 0; i < done + (done < n); i++)
        (void)!enter(a, list[i], &was[i]);
    to->move_count = moves;
    return false;
}

static void empty_cards(struct advisor *a, struct sl_advice *to)
{
    uint16_t *kept SL_CLEANUP(free) = sl_xcalloc(a->node_count + 1, sizeof(*kept));
    size_t *list SL_CLEANUP(free) = sl_xcalloc(a->pod_count + 1, sizeof(*list));
    bool more = true;
    for (uint32_t i = 0; i < a->node_count; i++) /* whole cards stay whole */
        for (unsigned g = 0; g < a->nodes[i].node.gpu_count; g++)
            if (!a->users[card(i, g)])
                block(a, i, g, true);
    for (int pass = 0; more && pass < PASSES; pass++) {
        size_t n;
        struct candidate *order SL_CLEANUP(free) = candidates(a, kept, &n);
        more = false;
        for (size_t i = 0; i < n; i++)
            if (!(kept[order[i].node] >> order[i].gpu & 1) &&
                a->users[card(order[i].node, order[i].gpu)])
                more |= empty_card(a, &order[i], kept, list, to);
    }
    to->whole_after = a->whole;
    for (uint32_t i = 0; i < a->node_count; i++)
        for (unsigned g = 0; g < a->nodes[i].node.gpu_count; g++)
            block(a, i, g, false);
}

/* --- the whole --- */

static int by_after(const void *a, const void *b)
{
    const struct sl_advice_card *x = a, *y = b;
    if (x->after != y->after)
        return x->after < y->after ? -1 : 1;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    return x->gpu < y->gpu ? -1 : x->gpu > y->gpu;
}

/* Counts the moves once more, from the beginning: which card is whole after which of them? */
static void find_freed(struct advisor *a)
{
    struct sl_advice *to = a->to;
    to->freed = sl_xcalloc(a->node_count * SL_PLACE_MAX_GPUS + 1, sizeof(*to->freed));
    for (uint32_t n = 0; n < a->node_count; n++)
        for (unsigned g = 0; g < a->nodes[n].node.gpu_count; g++) {
            size_t users = a->users[card(n, g)], after = 0;
            bool used = users > 0;
            for (size_t m = 0; m < to->move_count; m++) {
                const struct sl_advice_move *v = &to->move[m];
                bool left = v->from == n && (v->gpus_from >> g & 1);
                bool came = v->to == n && (v->gpus_to >> g & 1);
                users += (size_t)came - (size_t)left;
                if (left && users == 0)
                    after = m + 1;
            }
            if (used && users == 0 && counts(a, n, g))
                to->freed[to->freed_count++] = (struct sl_advice_card){n, (uint8_t)g, after};
        }
    qsort(to->freed, to->freed_count, sizeof(*to->freed), by_after);
}

static void advisor_free(struct advisor *a)
{
    sl_place_destroy(a->placer);
    free(a->seat);
    free(a->first);
    free(a->fixed);
    free(a->cpu);
    free(a->users);
    free(a->holders);
    free(a->blocked);
    free(a->head);
    free(a->next);
}

int sl_advice_make(const struct sl_advice_node *nodes, size_t node_count,
                   const struct sl_advice_pod *pods, size_t pod_count,
                   const struct sl_advice_limits *limits, struct sl_advice *ret, struct sl_err *err)
{
    size_t cards = node_count * SL_PLACE_MAX_GPUS + 1;
    struct advisor a = {.nodes = nodes,
                        .node_count = node_count,
                        .pods = pods,
                        .pod_count = pod_count,
                        .most = limits ? limits->moves : 0,
                        .to = ret};
    *ret = (struct sl_advice){0};
    a.seat = sl_xcalloc(pod_count + 1, sizeof(*a.seat));
    a.first = sl_xcalloc(pod_count + 1, sizeof(*a.first));
    a.fixed = sl_xcalloc(pod_count + 1, sizeof(*a.fixed));
    a.cpu = sl_xcalloc(pod_count + 1, sizeof(*a.cpu));
    a.users = sl_xcalloc(cards, sizeof(*a.users));
    a.holders = sl_xcalloc(cards, sizeof(*a.holders));
    a.blocked = sl_xcalloc(node_count + 1, sizeof(*a.blocked));
    a.head = sl_xcalloc(node_count + 1, sizeof(*a.head));
    a.next = sl_xcalloc(pod_count + 1, sizeof(*a.next));
    int rc = open_books(&a, err);
    if (rc == 0) {
        memcpy(a.first, a.seat, pod_count * sizeof(*a.seat));
        ret->whole_before = ret->whole_after = a.whole;
        struct sl_advice stepwise = {0};
        bool searched = search(&a, ret);
        if (!searched ||
            !ret->best) { /* the search saw only a part: the other way may go further */
            empty_cards(&a, &stepwise);
            go_back(&a);
            if (stepwise.whole_after > ret->whole_after) {
                free(ret->move);
                ret->move = sl_take_ptr(stepwise.move);
                ret->move_count = stepwise.move_count;
                ret->whole_after = stepwise.whole_after;
            }
        }
        free(stepwise.move);
        find_freed(&a);
    }
    advisor_free(&a);
    if (rc)
        sl_advice_free(ret);
    return rc;
}

void sl_advice_free(struct sl_advice *advice)
{
    free(advice->move);
    free(advice->freed);
    *advice = (struct sl_advice){0};
}
