/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cluster and its pods without any data at hand. The proportions are those of a large production
 * cluster that shares GPUs, as summary figures: how many pods are CPU-only, shared, whole or on
 * several GPUs, how large shares are, how much CPU comes with them.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/quantity.h"
#include "base/xalloc.h"
#include "cli/errors.h"
#include "cli/simulate.h"

/* Nodes in ten thousand. */
static const struct {
    const char *model;
    unsigned gpus, cpu_milli, memory_mib, gpu_memory_mib, per_10000;
} node_kinds[] = {
    {"G2", 8, 96000, 393216, 24576, 4526},   {"T4", 2, 104000, 524288, 16384, 3190},
    {"P100", 2, 16000, 122880, 16384, 882},  {"G3", 8, 128000, 786432, 40960, 322},
    {"V100", 4, 32000, 131072, 16384, 231},  {"P100", 2, 64000, 262144, 16384, 181},
    {"V100L", 8, 96000, 786432, 32768, 173}, {"V100", 1, 8000, 32768, 16384, 157},
    {"T4", 4, 96000, 393216, 16384, 140},    {"V100L", 4, 48000, 376832, 32768, 74},
    {"V100", 8, 64000, 262144, 16384, 66},   {"P100", 1, 8000, 61440, 16384, 41},
    {"A10", 1, 128000, 1048576, 24576, 17},
};

/* Kinds of pod in ten thousand, and their CPU: ten equally likely values, in half cores. */
static const struct {
    unsigned per_10000, gpus;
    bool shared;
    uint16_t half_cores[10];
} pod_kinds[] = {
    {1335, 0, false, {16, 16, 25, 25, 25, 31, 33, 64, 64, 64}},
    {3776, 1, true, {6, 6, 6, 6, 8, 8, 16, 16, 24, 24}},
    {4797, 1, false, {6, 8, 20, 23, 23, 23, 23, 24, 31, 37}},
    {20, 2, false, {12, 28, 28, 32, 32, 32, 35, 48, 64, 64}},
    {18, 4, false, {32, 48, 64, 64, 64, 64, 64, 80, 96, 96}},
    {54, 8, false, {96, 120, 128, 128, 128, 128, 176, 176, 176, 176}},
};

/* Share sizes in permille of a GPU, and how many of a thousand shared pods have them. */
static const struct {
    uint16_t milli, per_1000;
} share_sizes[] = {{810, 350}, {470, 244}, {320, 107}, {650, 82}, {230, 46}, {460, 42},
                   {590, 24},  {160, 24},  {550, 23},  {220, 20}, {370, 15}, {110, 8},
                   {480, 6},   {50, 3},    {330, 3},   {350, 3}};

#define GENERATED_PODS   8000
/* Run times: log-normal with this median, and the 99th percentile at about 32 hours. */
#define RUNTIME_MEDIAN_S 616.0
#define RUNTIME_SIGMA    2.25

static void add_nodes(struct sim_cluster *c, const struct sl_place_node *like, size_t count)
{
    c->nodes = sl_xreallocarray(c->nodes, c->count + count + 1, sizeof(*c->nodes));
    for (size_t i = 0; i < count; i++)
        c->nodes[c->count++] = *like;
    c->gpu_milli += 1000ULL * like->gpu_count * count;
}

static struct sl_place_node make_node(unsigned model, unsigned gpus, unsigned cpu_milli,
                                      unsigned memory_mib, unsigned gpu_memory_mib)
{
    struct sl_place_node n = {.cpu_milli = cpu_milli,
                              .memory_mib = memory_mib,
                              .model = (uint8_t)model,
                              .gpu_count = (uint8_t)gpus};
    for (unsigned g = 0; g < gpus; g++)
        n.gpus[g] =
            (struct sl_place_gpu){.memory_mib = gpu_memory_mib, .numa = (uint8_t)(2 * g / gpus)};
    return n;
}

void sl_sim_cluster_generate(size_t nodes, struct sim_cluster *ret)
{
    *ret = (struct sim_cluster){0};
    size_t made = 0, parts = 0;
    for (size_t k = 0; k < SL_ARRAY_LEN(node_kinds); k++) {
        /* Cumulative rounding: the kinds add up to exactly the nodes asked for. */
        parts += node_kinds[k].per_10000;
        size_t until = (nodes * parts + 5000) / 10000;
        const char *name = node_kinds[k].model;
        int model = sl_sim_model_number(&ret->models, name, strlen(name));
        struct sl_place_node n =
            make_node((unsigned)model, node_kinds[k].gpus, node_kinds[k].cpu_milli,
                      node_kinds[k].memory_mib, node_kinds[k].gpu_memory_mib);
        add_nodes(ret, &n, until - made);
        made = until;
    }
}

static double normal(uint64_t *rng)
{
    double u = ((double)(sl_random(rng) >> 11) + 0.5) / 9007199254740992.0;
    double v = (double)(sl_random(rng) >> 11) / 9007199254740992.0;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static uint16_t draw_share(uint64_t *rng)
{
    unsigned at = (unsigned)(sl_random(rng) % 1000);
    for (size_t i = 0; i < SL_ARRAY_LEN(share_sizes); i++) {
        if (at < share_sizes[i].per_1000)
            return share_sizes[i].milli;
        at -= share_sizes[i].per_1000;
    }
    return share_sizes[0].milli;
}

/* `at`, in ten thousandths, says which kind it is: the kinds come in exact proportions. */
static void draw_pod(uint64_t *rng, unsigned at, struct sim_pod *pod)
{
    size_t k = 0;
    while (k + 1 < SL_ARRAY_LEN(pod_kinds) && at >= pod_kinds[k].per_10000)
        at -= pod_kinds[k++].per_10000;
    unsigned cpu = 500u * pod_kinds[k].half_cores[sl_random(rng) % 10];
    struct sl_place_request *r = &pod->request;
    r->cpu_milli = cpu;
    r->memory_mib = cpu / 1000 * 3584 + 1024;
    r->gpu_count = (uint8_t)pod_kinds[k].gpus;
    if (r->gpu_count)
        r->cores_permille = pod_kinds[k].shared ? draw_share(rng) : SL_PLACE_WHOLE;
    pod->worth_milli = (uint32_t)r->gpu_count * r->cores_permille;
    double seconds = RUNTIME_MEDIAN_S * exp(RUNTIME_SIGMA * normal(rng));
    pod->runtime_s = seconds < 1 ? 1 : seconds > 1e7 ? 10000000 : (uint32_t)seconds;
}

void sl_sim_pods_generate(uint64_t seed, struct sim_pods *ret)
{
    *ret = (struct sim_pods){.count = GENERATED_PODS};
    ret->pods = sl_xcalloc(ret->count, sizeof(*ret->pods));
    uint64_t rng = seed * 0xd1342543de82ef95ULL + 1;
    for (size_t i = 0; i < ret->count; i++) {
        draw_pod(&rng, (unsigned)(i * 10000 / ret->count), &ret->pods[i]);
        ret->gpu_milli += ret->pods[i].worth_milli;
    }
}

/* COUNTxMODEL:GPUS:CPU_MILLI:MEMORY_MIB[:GPU_MEMORY_MIB]. Returns the rest of the text, or NULL. */
static const char *mix_part(const char *s, struct sim_models *models, struct sl_place_node *ret,
                            uint64_t *ret_count)
{
    uint64_t v[4] = {0};
    unsigned fields = 0;
    s = sl_number_read(s, 1000000, ret_count);
    if (!s || *s != 'x')
        return NULL;
    s++;
    size_t n = strcspn(s, ":,");
    int model = sl_sim_model_number(models, s, n);
    for (s += n; *s == ':' && fields < 4; fields++) {
        s = sl_number_read(s + 1, fields ? UINT32_MAX : SL_PLACE_MAX_GPUS, &v[fields]);
        if (!s)
            return NULL;
    }
    if (model < 0 || fields < 3 || !v[0] || (*s && *s != ','))
        return NULL;
    *ret =
        make_node((unsigned)model, (unsigned)v[0], (unsigned)v[1], (unsigned)v[2], (unsigned)v[3]);
    return s;
}

int sl_sim_cluster_parse_mix(const char *text, struct sim_cluster *ret, struct sl_err *err)
{
    *ret = (struct sim_cluster){0};
    int rc = 0;
    for (const char *s = text; !rc && (*s || s == text);) {
        struct sl_place_node n;
        uint64_t count;
        const char *next = mix_part(s, &ret->models, &n, &count);
        if (!next)
            rc = sl_err_set(err, -EINVAL, SL_E_SIM_MIX_BAD, s);
        else
            add_nodes(ret, &n, count);
        s = next ? next + (*next == ',') : s;
    }
    if (!rc && ret->count == 0)
        rc = sl_err_set(err, -EINVAL, SL_E_SIM_MIX_EMPTY);
    if (rc)
        sl_sim_cluster_fini(ret);
    return rc;
}
