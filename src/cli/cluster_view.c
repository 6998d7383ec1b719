/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster_view.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/xalloc.h"
#include "cli/table.h"

/* Memory of GPUs in GiB; "-" where nothing is known of it. */
static void put_gib(struct sl_table *t, uint64_t mib)
{
    if (mib)
        sl_table_cell(t, "%.1fGi", (double)mib / 1024);
    else
        sl_table_cell(t, "-");
}

static const char *state_of(const struct sl_node_has *has)
{
    return !has->ready ? "down" : has->cordoned ? "cordoned" : "ready";
}

/* What is left of the memory; 0: nothing is known of it. */
static uint64_t memory_left(const struct sl_holding_node *n)
{
    return n->has.memory_mib > n->promised.memory_mib ? n->has.memory_mib - n->promised.memory_mib
                                                      : 0;
}

static void put_node(struct sl_table *t, const struct sl_holding_node *n)
{
    sl_table_cell(t, "%s", n->name);
    sl_table_cell(t, "%s", state_of(&n->has));
    sl_table_cell(t, "%llu", (unsigned long long)n->has.cards);
    put_gib(t, n->has.memory_mib);
    put_gib(t, n->promised.memory_mib);
    put_gib(t, memory_left(n));
    sl_table_cell(t, "%llu%%", (unsigned long long)n->promised.cores);
    sl_table_cell(t, "%llu/%llu", (unsigned long long)n->promised.devices,
                  (unsigned long long)n->has.gpus);
    sl_table_cell(t, "%u", n->pods);
}

void sl_cluster_nodes(const struct sl_holdings *h, FILE *out)
{
    static const struct sl_table_column columns[] = {
        {"NODE", SL_TABLE_NAME},    {"STATE", SL_TABLE_LEFT},     {"CARDS", SL_TABLE_RIGHT},
        {"MEMORY", SL_TABLE_RIGHT}, {"PROMISED", SL_TABLE_RIGHT}, {"LEFT", SL_TABLE_RIGHT},
        {"CORES", SL_TABLE_RIGHT},  {"SLOTS", SL_TABLE_RIGHT},    {"PODS", SL_TABLE_RIGHT}};
    struct sl_table t;
    sl_table_init(&t, columns, SL_ARRAY_LEN(columns));
    t.max_width = SL_TABLE_WIDTH;
    for (size_t i = 0; i < h->node_count; i++)
        put_node(&t, &h->node[i]);
    (void)sl_table_print(&t, out, false);
    if (h->node_count == 0)
        (void)fputs("No node offers GPUs, as far as you may see.\n", out);
}

/* The code of what is wrong with a pod; "-": nothing. */
static const char *wrong_with(const struct sl_cluster_objects *o, const json_t *pod)
{
    struct sl_explain_facts facts = sl_cluster_facts(o);
    struct sl_explanation e;
    facts.pod = pod;
    facts.claims = facts.templates = facts.classes = facts.events =
        NULL; /* of one namespace, or not read */
    sl_explain_pod(&facts, &e);
    return e.well ? "-" : e.code;
}

static void put_pod(struct sl_table *t, const struct sl_holding_pod *p)
{
    sl_table_cell(t, "%s", p->name_space);
    sl_table_cell(t, "%s", p->name);
    sl_table_cell(t, "%s", *p->node ? p->node : "-");
    sl_table_cell(t, "%llu", (unsigned long long)(*p->node ? p->holds.devices : p->asks.gpus));
    put_gib(t, *p->node ? p->holds.memory_mib : p->asks.memory_mib);
    if (p->holds.cores)
        sl_table_cell(t, "%llu%%", (unsigned long long)p->holds.cores);
    else
        sl_table_cell(t, "-");
}

void sl_cluster_pods(const struct sl_cluster_objects *o, const struct sl_holdings *h, FILE *out)
{
    static const struct sl_table_column columns[] = {
        {"NAMESPACE", SL_TABLE_NAME}, {"POD", SL_TABLE_NAME},     {"NODE", SL_TABLE_NAME},
        {"GPUS", SL_TABLE_RIGHT},     {"MEMORY", SL_TABLE_RIGHT}, {"CORES", SL_TABLE_RIGHT},
        {"WRONG", SL_TABLE_LEFT}};
    struct sl_table t;
    sl_table_init(&t, columns, SL_ARRAY_LEN(columns));
    t.max_width = SL_TABLE_WIDTH;
    for (size_t i = 0; i < h->pod_count; i++) {
        put_pod(&t, &h->pod[i]);
        sl_table_cell(&t, "%s", wrong_with(o, h->pod[i].pod));
    }
    (void)sl_table_print(&t, out, false);
    if (h->pod_count == 0)
        (void)fputs("No pod has or wants GPUs, as far as you may see.\n", out);
}

/* Thousandths of a node that are promised, the scarcer of memory, cores and slots. */
static uint64_t fullness(const struct sl_holding_node *n)
{
    const uint64_t parts[][2] = {{n->promised.memory_mib, n->has.memory_mib},
                                 {n->promised.cores, n->has.cards * 100},
                                 {n->promised.devices, n->has.gpus}};
    uint64_t most = 0;
    for (size_t i = 0; i < SL_ARRAY_LEN(parts); i++) {
        uint64_t part = parts[i][1] ? parts[i][0] * 1000 / parts[i][1] : 0;
        most = part > most ? part : most;
    }
    return most;
}

static int fullest_first(const void *a, const void *b)
{
    uint64_t x = fullness(*(const struct sl_holding_node *const *)a);
    uint64_t y = fullness(*(const struct sl_holding_node *const *)b);
    return x == y ? 0 : x > y ? -1 : 1;
}

void sl_cluster_top(const struct sl_holdings *h, FILE *out)
{
    static const struct sl_table_column columns[] = {
        {"FULL", SL_TABLE_RIGHT}, {"NODE", SL_TABLE_NAME},  {"NAMESPACE", SL_TABLE_NAME},
        {"POD", SL_TABLE_NAME},   {"GPUS", SL_TABLE_RIGHT}, {"MEMORY", SL_TABLE_RIGHT},
        {"CORES", SL_TABLE_RIGHT}};
    SL_CLEANUP(free)
    const struct sl_holding_node **order = sl_xcalloc(h->node_count + 1, sizeof(*order));
    struct sl_table t;
    sl_table_init(&t, columns, SL_ARRAY_LEN(columns));
    t.max_width = SL_TABLE_WIDTH;
    for (size_t i = 0; i < h->node_count; i++)
        order[i] = &h->node[i];
    qsort(order, h->node_count, sizeof(*order), fullest_first);
    for (size_t i = 0; i < h->node_count; i++) {
        const struct sl_holding_node *n = order[i];
        sl_table_cell(&t, "%llu%%", (unsigned long long)fullness(n) / 10);
        sl_table_cell(&t, "%s", n->name);
        sl_table_cell(&t, "-");
        sl_table_cell(&t, "%u pod%s", n->pods, n->pods == 1 ? "" : "s");
        sl_table_cell(&t, "%llu", (unsigned long long)n->promised.devices);
        put_gib(&t, n->promised.memory_mib);
        sl_table_cell(&t, "%llu%%", (unsigned long long)n->promised.cores);
        for (size_t k = 0; k < h->pod_count; k++) {
            const struct sl_holding_pod *p = &h->pod[k];
            if (strcmp(p->node, n->name) != 0)
                continue;
            sl_table_cell(&t, " ");
            sl_table_cell(&t, " ");
            sl_table_cell(&t, "%s", p->name_space);
            sl_table_cell(&t, "%s", p->name);
            sl_table_cell(&t, "%llu", (unsigned long long)p->holds.devices);
            put_gib(&t, p->holds.memory_mib);
            sl_table_cell(&t, "%llu%%", (unsigned long long)p->holds.cores);
        }
    }
    (void)sl_table_print(&t, out, false);
    if (h->node_count == 0)
        (void)fputs("No node offers GPUs, as far as you may see.\n", out);
}

static void json_holds(struct sl_json *j, const struct sl_pod_holds *holds)
{
    sl_json_uint(j, "devices", holds->devices);
    sl_json_uint(j, "memory_mib", holds->memory_mib);
    sl_json_uint(j, "cores_percent", holds->cores);
}

void sl_cluster_json(const struct sl_cluster_objects *o, const struct sl_holdings *h, FILE *out)
{
    struct sl_json j;
    sl_json_init(&j, out);
    sl_json_begin(&j, NULL, '{');
    sl_json_begin(&j, "nodes", '[');
    for (size_t i = 0; i < h->node_count; i++) {
        const struct sl_holding_node *n = &h->node[i];
        sl_json_begin(&j, NULL, '{');
        sl_json_string(&j, "name", n->name);
        sl_json_string(&j, "state", state_of(&n->has));
        sl_json_uint(&j, "cards", n->has.cards);
        sl_json_uint(&j, "slots", n->has.gpus);
        sl_json_uint(&j, "memory_mib", n->has.memory_mib);
        sl_json_uint(&j, "pods", n->pods);
        sl_json_begin(&j, "promised", '{');
        json_holds(&j, &n->promised);
        sl_json_end(&j, '}');
        sl_json_end(&j, '}');
    }
    sl_json_end(&j, ']');
    sl_json_begin(&j, "pods", '[');
    for (size_t i = 0; i < h->pod_count; i++) {
        const struct sl_holding_pod *p = &h->pod[i];
        const char *wrong = wrong_with(o, p->pod);
        sl_json_begin(&j, NULL, '{');
        sl_json_string(&j, "namespace", p->name_space);
        sl_json_string(&j, "name", p->name);
        sl_json_string(&j, "node", *p->node ? p->node : NULL);
        sl_json_uint(&j, "asks_devices", p->asks.gpus);
        sl_json_uint(&j, "asks_memory_mib", p->asks.memory_mib);
        sl_json_begin(&j, "promised", '{');
        json_holds(&j, &p->holds);
        sl_json_end(&j, '}');
        sl_json_string(&j, "wrong", strcmp(wrong, "-") == 0 ? NULL : wrong);
        sl_json_end(&j, '}');
    }
    sl_json_end(&j, ']');
    sl_json_string(&j, "not_read", *o->unread ? o->unread : NULL);
    sl_json_end(&j, '}');
    (void)fputc('\n', out);
}
