/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/simulate_live.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/quantity.h"
#include "cli/cluster_read.h"
#include "cli/errors.h"
#include "cli/live_world.h"
#include "cli/table.h"

#define MOVES_MAX 1000000

/* What belongs to made-up arrivals only. */
static const char *const others[] = {
    "nodes", "mix",       "generate",  "pods",     "policy",     "seeds", "until", "at", "churn",
    "load",  "turnovers", "lifetimes", "strategy", "gpu-memory", "learn", "tune",  "svg"};

static int check_words(const struct sl_cli_args *args, struct sl_advice_limits *limits,
                       struct sl_err *err)
{
    const char *moves = sl_cli_value(args, "moves");
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (sl_cli_value(args, others[i]))
            return sl_err_set(err, -EINVAL, SL_E_SIM_LIVE_WITH, others[i]);
    if (args->rest_count)
        return sl_err_set(err, -EINVAL, SL_E_SIM_LIVE_FILE, args->rest[0]);
    const char *rest = moves ? sl_number_read(moves, MOVES_MAX, &n) : "";
    if (!rest || *rest || (moves && n == 0))
        return sl_err_set(err, -EINVAL, SL_E_SIM_LIVE_MOVES, moves, MOVES_MAX);
    limits->moves = (size_t)n;
    return 0;
}

/* Advice from half of the pods would fill cards that are not free. */
static int check_read(const struct sl_cluster_objects *o, struct sl_err *err)
{
    if (!o->nodes || !o->pods || o->own_pods || (o->slices && !o->claims))
        return sl_err_set(err, -EACCES, SL_E_SIM_LIVE_RIGHTS, o->unread);
    return 0;
}

/* --- what is said --- */

static void put_cards(uint16_t gpus, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = '\0';
    for (unsigned g = 0; g < SL_PLACE_MAX_GPUS; g++)
        if ((gpus >> g & 1) && used < size)
            used += (size_t)snprintf(buf + used, size - used, "%s%u", used ? "+" : "", g);
}

static size_t cards_in_all(const struct live_world *w)
{
    size_t n = 0;
    for (size_t i = 0; i < w->node_count; i++)
        n += w->advice_node[i].node.gpu_count;
    return n;
}

static void print_moves(const struct live_world *w, const struct sl_advice *a)
{
    static const struct sl_table_column columns[] = {
        {"MOVE", SL_TABLE_RIGHT}, {"NAMESPACE", SL_TABLE_NAME}, {"POD", SL_TABLE_NAME},
        {"FROM", SL_TABLE_NAME},  {"GPU", SL_TABLE_LEFT},       {"TO", SL_TABLE_NAME},
        {"GPU", SL_TABLE_LEFT},   {"FREES", SL_TABLE_RIGHT}};
    struct sl_table t;
    sl_table_init(&t, columns, sizeof(columns) / sizeof(columns[0]));
    t.max_width = SL_TABLE_WIDTH;
    for (size_t i = 0, freed = 0; i < a->move_count; i++) {
        const struct sl_advice_move *m = &a->move[i];
        char from[64], to[64];
        size_t now = 0;
        for (; freed < a->freed_count && a->freed[freed].after == i + 1; freed++)
            now++;
        put_cards(m->gpus_from, from, sizeof(from));
        put_cards(m->gpus_to, to, sizeof(to));
        sl_table_cell(&t, "%zu", i + 1);
        sl_table_cell(&t, "%s", w->pod[m->pod].name_space);
        sl_table_cell(&t, "%s", w->pod[m->pod].name);
        sl_table_cell(&t, "%s", w->node[m->from].name);
        sl_table_cell(&t, "%s", from);
        sl_table_cell(&t, "%s", w->node[m->to].name);
        sl_table_cell(&t, "%s", to);
        if (now)
            sl_table_cell(&t, "%zu", now);
        else
            sl_table_cell(&t, "-");
    }
    (void)sl_table_print(&t, stdout, false);
}

static void print_advice(const struct live_world *w, const struct sl_advice *a, bool bounded)
{
    (void)printf("%zu of %zu cards are whole: no pod has a share of them.\n", a->whole_before,
                 cards_in_all(w));
    if (a->move_count == 0)
        (void)printf("No move of a pod would free another one%s.\n",
                     a->best ? "" : ", as far as was looked");
    else {
        (void)printf("With these moves, in this order, %zu would be:\n\n", a->whole_after);
        print_moves(w, a);
        (void)printf("\nNothing was moved. A pod moves when it is deleted and made again; then "
                     "the\nscheduler chooses its place. Look again after each.\n");
        if (!a->best)
            (void)printf(
                "The cluster is too large to try everything: there may be better moves.\n");
        else if (bounded)
            (void)printf("Nothing better exists with so few moves.\n");
    }
    if (w->fixed)
        (void)printf("Left where they are, for nothing makes them again or they must stay: "
                     "%zu %s.\n",
                     w->fixed, w->fixed == 1 ? "pod" : "pods");
    if (a->misfits)
        (void)printf("Left alone, because more is promised than their card has: %zu %s.\n",
                     a->misfits, a->misfits == 1 ? "pod" : "pods");
}

static void put_place(struct sl_json *j, const char *key, const struct live_node *n, uint16_t gpus)
{
    sl_json_begin(j, key, '{');
    sl_json_string(j, "node", n->name);
    sl_json_begin(j, "gpus", '[');
    for (unsigned g = 0; g < SL_PLACE_MAX_GPUS; g++)
        if (gpus >> g & 1)
            sl_json_string(j, NULL, n->uuid[g]);
    sl_json_end(j, ']');
    sl_json_end(j, '}');
}

static void print_json(const struct live_world *w, const struct sl_advice *a)
{
    struct sl_json j;
    sl_json_init(&j, stdout);
    sl_json_begin(&j, NULL, '{');
    sl_json_uint(&j, "cards", cards_in_all(w));
    sl_json_uint(&j, "whole_before", a->whole_before);
    sl_json_uint(&j, "whole_after", a->whole_after);
    sl_json_bool(&j, "best", a->best);
    sl_json_uint(&j, "pods", w->pod_count);
    sl_json_uint(&j, "pods_that_stay", w->fixed);
    sl_json_uint(&j, "pods_that_do_not_fit", a->misfits);
    sl_json_begin(&j, "moves", '[');
    for (size_t i = 0; i < a->move_count; i++) {
        const struct sl_advice_move *m = &a->move[i];
        sl_json_begin(&j, NULL, '{');
        sl_json_string(&j, "namespace", w->pod[m->pod].name_space);
        sl_json_string(&j, "pod", w->pod[m->pod].name);
        put_place(&j, "from", &w->node[m->from], m->gpus_from);
        put_place(&j, "to", &w->node[m->to], m->gpus_to);
        sl_json_end(&j, '}');
    }
    sl_json_end(&j, ']');
    sl_json_begin(&j, "freed", '[');
    for (size_t i = 0; i < a->freed_count; i++) {
        const struct sl_advice_card *c = &a->freed[i];
        sl_json_begin(&j, NULL, '{');
        sl_json_string(&j, "node", w->node[c->node].name);
        sl_json_string(&j, "gpu", w->node[c->node].uuid[c->gpu]);
        sl_json_uint(&j, "after_move", c->after);
        sl_json_end(&j, '}');
    }
    sl_json_end(&j, ']');
    sl_json_end(&j, '}');
    (void)putchar('\n');
}

int sl_sim_live(const struct sl_cli_args *args)
{
    struct sl_advice_limits limits = {0};
    struct sl_cluster_objects objects = {0};
    struct live_world world = {0};
    struct sl_advice advice = {0};
    struct sl_err err = SL_ERR_INIT;
    int code = SL_EXIT_OK, rc = check_words(args, &limits, &err);
    if (rc == 0)
        rc = sl_cluster_read_all(args, &objects, &err);
    if (rc == 0)
        rc = check_read(&objects, &err);
    if (rc == 0) {
        sl_live_make(objects.nodes, objects.pods, objects.claims, objects.slices, &world);
        rc = sl_advice_make(world.advice_node, world.node_count, world.advice_pod, world.pod_count,
                            &limits, &advice, &err);
    }
    if (rc < 0) {
        sl_cli_complain("simulate: %s", err.msg);
        code = rc == -EINVAL ? SL_EXIT_USAGE : SL_EXIT_FAILED;
    } else if (sl_cli_value(args, "json")) {
        print_json(&world, &advice);
    } else {
        print_advice(&world, &advice, limits.moves > 0);
    }
    sl_advice_free(&advice);
    sl_live_free(&world);
    sl_cluster_objects_free(&objects);
    return sl_cli_finish(code);
}
