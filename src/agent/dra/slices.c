/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/dra/slices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/dra/device_name.h"
#include "base/cleanup.h"
#include "base/quantity.h"

#define MIB  (1ULL << 20)
#define OURS "-" SL_DRA_DRIVER "-" /* in the names of slices */

/* The state while one array of slices is made. */
struct making {
    const struct sl_slices_options *opt;
    json_t *counters; /* counter sets, one a card */
    json_t *devices;
};

static void put(json_t *object, const char *key, json_t *value)
{
    (void)json_object_set_new(object, key, value);
}

/* Quantities in the API server's own form, so that a returned object compares equal. */
static json_t *amount(uint64_t value)
{
    char text[40];
    sl_quantity_decimal(value, text, sizeof(text));
    return json_pack("{s:s}", "value", text);
}

static json_t *memory_amount(uint64_t mib)
{
    char text[40];
    sl_quantity_binary(mib * MIB, text, sizeof(text));
    return json_pack("{s:s}", "value", text);
}

/* What claims may ask for of a capacity. A claim that does not name it takes the default. */
struct range {
    uint64_t min, step, max, unnamed;
};

/* {"default": …, "validRange": {…}}; the step is left out where there is none. */
static json_t *policy(const struct range *r, void (*format)(uint64_t, char *, size_t))
{
    char least[40], one[40], greatest[40], unnamed[40];
    format(r->min, least, sizeof(least));
    format(r->step, one, sizeof(one));
    format(r->max, greatest, sizeof(greatest));
    format(r->unnamed, unnamed, sizeof(unnamed));
    json_t *range = json_pack("{s:s,s:s}", "min", least, "max", greatest);
    if (r->step)
        put(range, "step", json_string(one));
    return json_pack("{s:s,s:o}", "default", unnamed, "validRange", range);
}

static void put_text(json_t *attributes, const char *key, const char *text)
{
    char cut[65];
    (void)snprintf(cut, sizeof(cut), "%.64s", text);
    if (cut[0])
        put(attributes, key, json_pack("{s:s}", "string", cut));
}

static void put_version(json_t *attributes, const char *key, const char *version)
{
    char semantic[40];
    sl_slices_version(version, semantic, sizeof(semantic));
    put(attributes, key, json_pack("{s:s}", "version", semantic));
}

static json_t *attributes_of(struct making *m, size_t i, const char *type)
{
    const struct sl_inv_gpu *g = &m->opt->inv->gpu[i];
    const struct sl_slice_gpu *s = &m->opt->gpu[i];
    json_t *a = json_object();
    char text[64];
    put_text(a, "type", type);
    put_text(a, strcmp(type, "mig") == 0 ? "parentUUID" : "uuid", g->info.uuid);
    put(a, "index", json_pack("{s:I}", "int", (json_int_t)g->index));
    put_text(a, "productName", g->info.name);
    put_text(a, "architecture", sl_slices_architecture(g->info.cc_major, g->info.cc_minor));
    (void)snprintf(text, sizeof(text), "%d.%d", g->info.cc_major, g->info.cc_minor);
    if (g->info.cc_major > 0)
        put_version(a, "cudaComputeCapability", text);
    if (m->opt->inv->driver_version[0])
        put_version(a, "driverVersion", m->opt->inv->driver_version);
    int cuda = m->opt->inv->cuda_version;
    (void)snprintf(text, sizeof(text), "%d.%d", cuda / 1000, cuda % 1000 / 10);
    if (cuda > 0)
        put_version(a, "cudaDriverVersion", text);
    if (s->pcie_root)
        put_text(a, "resource.kubernetes.io/pcieRoot", s->pcie_root);
    sl_slices_bus_id(g->info.pci_bus_id, text, sizeof(text));
    put_text(a, "resource.kubernetes.io/pciBusID", text);
    if (g->info.numa_node >= 0)
        put(a, "numaNode", json_pack("{s:i}", "int", g->info.numa_node));
    put_text(a, "nvlinkClique", g->clique);
    return a;
}

/*
 * Under NVIDIA's name, unqualified attributes are those of gpu.nvidia.com. Sluice's own come beside them with their
 * domain, so that Sluice's classes and selectors go on. "gpu" is what the class gpu.nvidia.com selects: the whole card
 * or, with consumable shares, the device that many claims have together.
 */
static void as_nvidia(struct making *m, size_t i, enum sl_device_kind kind, json_t *attributes)
{
    const char *key;
    json_t *value, *own = json_object();
    char name[80];
    json_object_foreach(attributes, key, value)
    {
        (void)snprintf(name, sizeof(name), SL_DRA_DRIVER "/%s", key);
        if (!strchr(key, '/'))
            (void)json_object_set(own, name, value);
    }
    (void)json_object_update(attributes, own);
    json_decref(own);
    put_text(attributes, "brand", m->opt->inv->gpu[i].info.brand);
    bool consumable = m->opt->names.consumable != SL_CONSUMABLE_DISABLED;
    if (kind == SL_DEVICE_SHARE && consumable)
        put_text(attributes, "type", "gpu");
    if (kind == SL_DEVICE_WHOLE && consumable)
        put_text(attributes, "type", "whole");
}

/* A taint's value is a label's value: the first word is enough, events and health have the sentence. */
static void put_taint(struct making *m, json_t *device, size_t i)
{
    const struct sl_inv_gpu *g = &m->opt->inv->gpu[i];
    if (!g->lost && !m->opt->gpu[i].unhealthy)
        return;
    /* A lost card serves no pod: the pods that have it must move. */
    put(device, "taints",
        json_pack("[{s:s,s:s,s:s}]", "key", SL_SLICE_TAINT, "value", g->lost ? "lost" : "xid",
                  "effect", g->lost ? "NoExecute" : "NoSchedule"));
}

/* --- counters --- */

struct engines {
    uint32_t sm, copy, dec, enc, jpeg, ofa;
};

static void most(uint32_t *a, uint32_t b)
{
    if (b > *a)
        *a = b;
}

/* The engines of the whole card: those of its largest profile, and its own count of multiprocessors. */
static struct engines card_engines(const struct making *m, size_t i)
{
    const struct sl_slice_gpu *s = &m->opt->gpu[i];
    struct engines e = {.sm = m->opt->inv->gpu[i].info.sm_count};
    for (size_t p = 0; p < s->profile_count; p++) {
        const struct sl_gpu_mig_profile *q = &s->profile[p];
        most(&e.sm, q->sm_count);
        most(&e.copy, q->copy_engines);
        most(&e.dec, q->decoders);
        most(&e.enc, q->encoders);
        most(&e.jpeg, q->jpegs);
        most(&e.ofa, q->ofas);
    }
    for (size_t k = 0; k < m->opt->inv->gpu[i].mig_count; k++)
        most(&e.sm, m->opt->inv->gpu[i].mig[k].info.sm_count);
    if (e.sm == 0)
        e.sm = 1;
    return e;
}

/* The number of the card's memory slices: the largest end of any place. */
static uint32_t card_slices(const struct making *m, size_t i)
{
    const struct sl_slice_gpu *s = &m->opt->gpu[i];
    uint32_t n = 0;
    for (size_t p = 0; p < s->profile_count; p++)
        for (uint32_t k = 0; k < s->profile[p].placement_count; k++)
            most(&n, s->profile[p].placements[k].start + s->profile[p].placements[k].size);
    for (size_t k = 0; k < m->opt->inv->gpu[i].mig_count; k++)
        most(&n, m->opt->inv->gpu[i].mig[k].info.placement_start +
                     m->opt->inv->gpu[i].mig[k].info.placement_size);
    return n > 16 ? 16 : n;
}

/* limit: the engines of the whole card; an engine that the card does not have is no counter. */
static json_t *counters(const struct engines *e, const struct engines *limit, uint32_t start,
                        uint32_t size)
{
    json_t *c = json_object();
    char key[32];
    const struct {
        const char *name;
        uint32_t have, of;
    } rows[] = {{"multiprocessors", e->sm, limit->sm},  {"copy-engines", e->copy, limit->copy},
                {"decoders", e->dec, limit->dec},       {"encoders", e->enc, limit->enc},
                {"jpeg-engines", e->jpeg, limit->jpeg}, {"ofa-engines", e->ofa, limit->ofa}};
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++)
        if (rows[i].of && rows[i].have)
            put(c, rows[i].name, amount(rows[i].have));
    for (uint32_t k = start; k < start + size; k++) {
        (void)snprintf(key, sizeof(key), "memory-slice-%u", k);
        put(c, key, amount(1));
    }
    return c;
}

static json_t *consumes(size_t i, json_t *counted)
{
    char set[32];
    (void)snprintf(set, sizeof(set), "gpu-%zu", i);
    return json_pack("[{s:s,s:o}]", "counterSet", set, "counters", counted);
}

static void add_counter_set(struct making *m, size_t i)
{
    struct engines e = card_engines(m, i);
    char set[32];
    (void)snprintf(set, sizeof(set), "gpu-%zu", i);
    (void)json_array_append_new(m->counters, json_pack("{s:s,s:o}", "name", set, "counters",
                                                       counters(&e, &e, 0, card_slices(m, i))));
}

/* --- devices --- */

static void add_device(struct making *m, size_t i, const struct sl_device_name *name,
                       json_t *attributes, json_t *capacity, json_t *consumed, bool shared)
{
    char text[SL_DEVICE_NAME_SIZE];
    sl_device_name_format(name, text);
    if (m->opt->names.nvidia)
        as_nvidia(m, i, name->kind, attributes);
    json_t *d = json_pack("{s:s,s:o,s:o,s:o}", "name", text, "attributes", attributes, "capacity",
                          capacity, "consumesCounters", consumes(i, consumed));
    if (shared)
        put(d, "allowMultipleAllocations", json_true());
    put_taint(m, d, i);
    (void)json_array_append_new(m->devices, d);
}

/* An instance of another program: it is offered as it is, and excludes all places that overlap it. */
static bool foreign(const struct making *m, size_t i, size_t mig)
{
    const struct sl_slice_gpu *s = &m->opt->gpu[i];
    return !s->ours || !s->ours(s->data, m->opt->inv->gpu[i].mig[mig].info.gpu_instance);
}

static bool card_usable_whole(const struct making *m, size_t i)
{
    const struct sl_inv_gpu *g = &m->opt->inv->gpu[i];
    if (g->info.mig_enabled && m->opt->gpu[i].profile_count == 0)
        return false; /* this agent cannot turn MIG off */
    for (size_t k = 0; k < g->mig_count; k++)
        if (foreign(m, i, k))
            return false;
    return true;
}

static uint64_t stepped(uint64_t value, uint64_t min, uint64_t step)
{
    if (value <= min)
        return min;
    return step ? min + (value - min) / step * step : value;
}

/* What a claim gets that names nothing: all memory and the least time, which idle time is added to (claim.h); or, with
 * consumable shares, its part of both, or nothing that is counted. */
static void unnamed_amounts(const struct sl_dra_names *names, struct range *memory,
                            struct range *cores)
{
    memory->unnamed = memory->max;
    cores->unnamed = cores->min;
    if (names->consumable == SL_CONSUMABLE_COUNT) {
        memory->unnamed =
            stepped(memory->max / names->count, memory->min, memory->step ? memory->step : MIB);
        cores->unnamed = stepped(100 / names->count, cores->min, cores->step);
    } else if (names->consumable == SL_CONSUMABLE_UNLIMITED) {
        memory->min = memory->unnamed = cores->min = cores->unnamed = 0;
        memory->max = stepped(memory->max, 0, memory->step);
        cores->max = stepped(cores->max, 0, cores->step);
    }
}

static void add_share(struct making *m, size_t i)
{
    const struct sl_inv_gpu *g = &m->opt->inv->gpu[i];
    struct sl_share_policy_range r =
        sl_slices_range(m->opt->fractional, g->info.memory_total_bytes);
    if (!card_usable_whole(m, i) || r.memory_max_mib == 0)
        return;
    json_t *memory = memory_amount(g->info.memory_total_bytes / MIB);
    json_t *cores = amount(100);
    struct range of_memory = {.min = r.memory_min_mib * MIB,
                              .step = r.memory_step_mib * MIB,
                              .max = r.memory_max_mib * MIB};
    struct range of_cores = {.min = r.cores_min, .step = r.cores_step, .max = r.cores_max};
    unnamed_amounts(&m->opt->names, &of_memory, &of_cores);
    put(memory, "requestPolicy", policy(&of_memory, sl_quantity_binary));
    put(cores, "requestPolicy", policy(&of_cores, sl_quantity_decimal));
    json_t *capacity = json_pack("{s:o,s:o}", "memory", memory, "cores", cores);
    if (m->opt->names.consumable == SL_CONSUMABLE_COUNT) {
        struct range shares = {.min = 1, .step = 1, .max = m->opt->names.count, .unnamed = 1};
        json_t *n = amount(m->opt->names.count);
        if (shares.max == 1) /* the API wants at least one step above the minimum */
            shares.step = 0;
        put(n, "requestPolicy", policy(&shares, sl_quantity_decimal));
        put(capacity, "shares", n);
    }

    struct engines e = card_engines(m, i);
    struct sl_device_name name = {.kind = SL_DEVICE_SHARE, .gpu = (uint32_t)i};
    add_device(m, i, &name, attributes_of(m, i, "share"), capacity,
               counters(&e, &e, 0, card_slices(m, i)), true);
}

static void add_whole(struct making *m, size_t i)
{
    const struct sl_inv_gpu *g = &m->opt->inv->gpu[i];
    if (!card_usable_whole(m, i))
        return;
    struct engines e = card_engines(m, i);
    struct sl_device_name name = {.kind = SL_DEVICE_WHOLE, .gpu = (uint32_t)i};
    json_t *capacity =
        json_pack("{s:o,s:o,s:o}", "memory", memory_amount(g->info.memory_total_bytes / MIB),
                  "cores", amount(100), "multiprocessors", amount(e.sm));
    add_device(m, i, &name, attributes_of(m, i, "gpu"), capacity,
               counters(&e, &e, 0, card_slices(m, i)), false);
}

struct mig_device {
    const char *profile;
    uint64_t memory_bytes;
    struct engines engines;
    struct sl_gpu_mig_place at;
};

/* As NVIDIA's driver names them. */
static void put_engines(json_t *capacity, const struct engines *e)
{
    const struct {
        const char *name;
        uint32_t have;
    } rows[] = {{"copyEngines", e->copy},
                {"decoders", e->dec},
                {"encoders", e->enc},
                {"jpegEngines", e->jpeg},
                {"ofaEngines", e->ofa}};
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++)
        put(capacity, rows[i].name, amount(rows[i].have));
}

static void add_mig(struct making *m, size_t i, const struct mig_device *d)
{
    struct engines all = card_engines(m, i);
    struct sl_device_name name = {.kind = SL_DEVICE_MIG, .gpu = (uint32_t)i, .start = d->at.start};
    sl_device_profile_word(d->profile, name.profile, sizeof(name.profile));
    json_t *a = attributes_of(m, i, "mig");
    put_text(a, "profile", d->profile);
    json_t *capacity = json_pack("{s:o,s:o}", "memory", memory_amount(d->memory_bytes / MIB),
                                 "multiprocessors", amount(d->engines.sm));
    if (m->opt->names.nvidia)
        put_engines(capacity, &d->engines);
    add_device(m, i, &name, a, capacity, counters(&d->engines, &all, d->at.start, d->at.size),
               false);
}

/* May an instance be at this place, beside the instances of other programs? Those are listed as they are. */
static bool place_free(const struct making *m, size_t i, const struct sl_gpu_mig_place *at)
{
    const struct sl_inv_gpu *g = &m->opt->inv->gpu[i];
    for (size_t k = 0; k < g->mig_count; k++) {
        uint32_t start = g->mig[k].info.placement_start, size = g->mig[k].info.placement_size;
        if (foreign(m, i, k) && at->start < start + size && start < at->start + at->size)
            return false;
    }
    return true;
}

static void add_mig_places(struct making *m, size_t i)
{
    const struct sl_slice_gpu *s = &m->opt->gpu[i];
    for (size_t p = 0; p < s->profile_count; p++) {
        const struct sl_gpu_mig_profile *q = &s->profile[p];
        uint32_t order[SL_GPU_MIG_PLACEMENTS];
        sl_slices_mig_order(s->profile, s->profile_count, p, order);
        for (uint32_t k = 0; k < q->placement_count; k++) {
            const struct sl_gpu_mig_place *at = &q->placements[order[k]];
            struct mig_device d = {.profile = q->name,
                                   .memory_bytes = q->memory_bytes,
                                   .at = *at,
                                   .engines = {q->sm_count, q->copy_engines, q->decoders,
                                               q->encoders, q->jpegs, q->ofas}};
            if (place_free(m, i, at))
                add_mig(m, i, &d);
        }
    }
}

/* Lists the instances of other programs; not those with several compute instances. */
static void add_mig_there(struct making *m, size_t i)
{
    const struct sl_inv_gpu *g = &m->opt->inv->gpu[i];
    for (size_t k = 0; k < g->mig_count; k++) {
        const struct sl_inv_mig *x = &g->mig[k];
        if (!foreign(m, i, k) || x->info.placement_size == 0 ||
            x->info.compute_slices != x->info.gpu_slices)
            continue;
        struct mig_device d = {.profile = x->info.profile,
                               .memory_bytes = x->info.memory_total_bytes,
                               .at = {x->info.placement_start, x->info.placement_size},
                               .engines = {x->info.sm_count, x->info.copy_engines, x->info.decoders,
                                           x->info.encoders, x->info.jpegs, x->info.ofas}};
        add_mig(m, i, &d);
    }
}

/* --- slices --- */

static json_t *slice(struct making *m, size_t index, const char *key, json_t *items)
{
    char name[300];
    /* The driver of a slice cannot be changed: another name for each. */
    (void)snprintf(name, sizeof(name), "%02zu%s" OURS "%.220s", index,
                   m->opt->names.nvidia ? "-nvidia" : "", m->opt->node_name);
    json_t *metadata = json_pack("{s:s}", "name", name);
    if (m->opt->node_uid && m->opt->node_uid[0])
        put(metadata, "ownerReferences",
            json_pack("[{s:s,s:s,s:s,s:s,s:b}]", "apiVersion", "v1", "kind", "Node", "name",
                      m->opt->node_name, "uid", m->opt->node_uid, "controller", 1));
    json_t *spec =
        json_pack("{s:s,s:s,s:{s:s},s:o}", "driver", sl_dra_driver(&m->opt->names), "nodeName",
                  m->opt->node_name, "pool", "name", m->opt->node_name, key, items);
    return json_pack("{s:s,s:s,s:o,s:o}", "apiVersion", "resource.k8s.io/v1", "kind",
                     "ResourceSlice", "metadata", metadata, "spec", spec);
}

static void cut(struct making *m, json_t *slices, const char *key, json_t *items, size_t most_items)
{
    for (size_t at = 0; at < json_array_size(items); at += most_items) {
        json_t *part = json_array();
        for (size_t i = at; i < at + most_items && i < json_array_size(items); i++)
            (void)json_array_append(part, json_array_get(items, i));
        (void)json_array_append_new(slices, slice(m, json_array_size(slices), key, part));
    }
}

static void count_slices(json_t *slices)
{
    size_t i;
    json_t *s;
    json_array_foreach(slices, i, s)
    {
        json_t *pool = json_object_get(json_object_get(s, "spec"), "pool");
        put(pool, "resourceSliceCount", json_integer((json_int_t)json_array_size(slices)));
    }
}

bool sl_slices_ours(const char *name)
{
    return strstr(name, OURS) != NULL;
}

/* A card without a UUID could not be prepared; one that virtual machines have is theirs. */
static bool for_containers(const struct making *m, size_t i)
{
    return m->opt->inv->gpu[i].info.uuid[0] && !m->opt->gpu[i].taken;
}

json_t *sl_slices_make(const struct sl_slices_options *opt)
{
    struct making m = {.opt = opt, .counters = json_array(), .devices = json_array()};
    json_t *slices = json_array();
    size_t n = opt->inv ? opt->inv->gpu_count : 0;
    for (size_t i = 0; i < n; i++)
        if (for_containers(&m, i))
            add_counter_set(&m, i);
    for (size_t i = 0; i < n; i++)
        if (for_containers(&m, i))
            add_share(&m, i);
    for (size_t i = 0; i < n; i++)
        if (for_containers(&m, i)) {
            add_mig_there(&m, i);
            add_mig_places(&m, i);
        }
    for (size_t i = n; i-- > 0;)
        if (for_containers(&m, i))
            add_whole(&m, i);
    sl_slices_vm(opt->vm, m.devices);
    cut(&m, slices, "sharedCounters", m.counters, SL_SLICE_COUNTER_SETS);
    cut(&m, slices, "devices", m.devices, SL_SLICE_DEVICES_MIXED);
    count_slices(slices);
    json_decref(m.counters);
    json_decref(m.devices);
    return slices;
}

/* The server sets a taint's time; all other fields are ours. */
static void strip(json_t *spec)
{
    size_t i, k;
    json_t *d, *t;
    (void)json_object_del(json_object_get(spec, "pool"), "generation");
    json_array_foreach(json_object_get(spec, "devices"), i, d)
        json_array_foreach(json_object_get(d, "taints"), k, t)(void)
            json_object_del(t, "timeAdded");
}

bool sl_slices_same(const json_t *have, const json_t *want)
{
    json_t *a = json_deep_copy(json_object_get(have, "spec"));
    json_t *b = json_deep_copy(json_object_get(want, "spec"));
    strip(a);
    strip(b);
    bool same = json_equal(a, b);
    json_decref(a);
    json_decref(b);
    return same;
}
