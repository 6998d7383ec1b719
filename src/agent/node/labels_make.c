/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU Feature Discovery's labels: about the node, then about its resources (whole cards and MIG devices, with their
 * replicas). Cards that do not answer have no labels and are not counted.
 */
#include "agent/node/labels.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

#define DOMAIN "nvidia.com/"
#define MIB    ((uint64_t)1024 * 1024)

/* The input of all labels. */
struct view {
    const struct sl_config *config;
    const struct sl_inventory *inv;
    const struct sl_plan *plan;
    const struct sl_labels_host *host;
    const struct sl_inv_gpu *card; /* the typical card, see typical_card(); NULL: none */
    size_t count;                  /* cards that answer */
};

/* `<domain><resource>.<key>`, or `<domain><key>` where resource is empty; the value is made valid. */
static void put(struct sl_labels *out, const char *resource, const char *key, const char *value,
                const char *suffix)
{
    char name[192], clean[SL_LABEL_VALUE_MAX + 1];
    (void)snprintf(name, sizeof(name), DOMAIN "%s%s%s", resource, *resource ? "." : "", key);
    sl_label_value(value, suffix, clean);
    sl_labels_set(out, name, clean);
}

/* ---- the node ---- */

static void SL_PRINTF(4, 5)
    say(struct sl_labels *out, const char *key, bool known, const char *fmt, ...)
{
    char value[128];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(value, sizeof(value), fmt, ap);
    va_end(ap);
    if (known)
        put(out, "", key, value, NULL);
}

/* The most frequent model; of equals, the first. */
static const struct sl_inv_gpu *typical_card(const struct sl_inventory *inv, size_t *ret_count)
{
    const struct sl_inv_gpu *best = NULL;
    size_t most = 0;
    *ret_count = 0;
    for (size_t i = 0; i < inv->gpu_count; i++) {
        if (inv->gpu[i].lost)
            continue;
        (*ret_count)++;
        size_t same = 0;
        for (size_t j = 0; j < inv->gpu_count; j++)
            same += !inv->gpu[j].lost && strcmp(inv->gpu[i].info.name, inv->gpu[j].info.name) == 0;
        if (same > most) {
            most = same;
            best = &inv->gpu[i];
        }
    }
    return best;
}

static const char *family(const struct sl_gpu_info *info)
{
    static const struct {
        int major, minor_from;
        const char *family;
    } families[] = {
        {1, 0, "tesla"},      {2, 0, "fermi"},  {3, 0, "kepler"},     {5, 0, "maxwell"},
        {6, 0, "pascal"},     {7, 5, "turing"}, {7, 0, "volta"},      {8, 9, "ada-lovelace"},
        {8, 0, "ampere"},     {9, 0, "hopper"}, {10, 0, "blackwell"}, {11, 0, "blackwell"},
        {12, 0, "blackwell"}, {13, 0, "rubin"},
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(families); i++)
        if (info->cc_major == families[i].major && info->cc_minor >= families[i].minor_from)
            return families[i].family;
    return "undefined";
}

/* "" where the cards are in no clique, or in different ones. */
static const char *clique(const struct sl_inventory *inv)
{
    const char *clique = NULL;
    for (size_t i = 0; i < inv->gpu_count; i++) {
        if (inv->gpu[i].lost)
            continue;
        if (clique && strcmp(clique, inv->gpu[i].clique) != 0)
            return "";
        clique = inv->gpu[i].clique;
    }
    return clique ? clique : "";
}

static bool mig_capable(const struct sl_inventory *inv)
{
    for (size_t i = 0; i < inv->gpu_count; i++)
        if (!inv->gpu[i].lost && inv->gpu[i].info.mig_capable)
            return true;
    return false;
}

static void driver_labels(const struct view *v, struct sl_labels *out)
{
    char part[3][32] = {"", "", ""}, machine[SL_LABEL_VALUE_MAX + 1];
    int n = sscanf(v->inv->driver_version, "%31[^.].%31[^.].%31s", part[0], part[1], part[2]);
    int cuda = v->inv->cuda_version;
    enum sl_mig_strategy mig = v->config->mig_strategy;
    sl_label_value(v->host->machine, NULL, machine);
    say(out, "cuda.driver.major", n > 0, "%s", part[0]);
    say(out, "cuda.driver.minor", n > 1, "%s", part[1]);
    /* The only label that may be empty: drivers of two parts have no revision. */
    say(out, "cuda.driver.rev", n > 1, "%s", part[2]);
    say(out, "cuda.driver-version.full", n > 0, "%s", v->inv->driver_version);
    say(out, "cuda.driver-version.major", n > 0, "%s", part[0]);
    say(out, "cuda.driver-version.minor", n > 1, "%s", part[1]);
    say(out, "cuda.driver-version.revision", n > 1, "%s", part[2]);
    say(out, "cuda.runtime.major", cuda > 0, "%d", cuda / 1000);
    say(out, "cuda.runtime.minor", cuda > 0, "%d", cuda % 1000 / 10);
    say(out, "cuda.runtime-version.full", cuda > 0, "%d.%d", cuda / 1000, cuda % 1000 / 10);
    say(out, "cuda.runtime-version.major", cuda > 0, "%d", cuda / 1000);
    say(out, "cuda.runtime-version.minor", cuda > 0, "%d", cuda % 1000 / 10);
    say(out, "gpu.machine", true, "%s", machine[0] ? machine : "unknown");
    say(out, "gpu.count", true, "%zu", v->count);
    say(out, "mig.capable", true, "%s", mig_capable(v->inv) ? "true" : "false");
    say(out, "mig.strategy", mig != SL_MIG_NONE, "%s", mig == SL_MIG_SINGLE ? "single" : "mixed");
    say(out, "mps.capable", true, "%s", v->config->sharing == SL_SHARING_MPS ? "true" : "false");
}

static void card_labels(const struct view *v, struct sl_labels *out)
{
    const struct sl_gpu_info *info = &v->card->info;
    const struct sl_labels_host *host = v->host;
    uint32_t class = v->card->pci_class;
    bool vgpu = host->vgpu == SL_VGPU_YES;
    say(out, "gpu.memory", info->memory_total_bytes, "%" PRIu64, info->memory_total_bytes / MIB);
    say(out, "gpu.family", info->cc_major > 0, "%s", family(info));
    say(out, "gpu.compute.major", info->cc_major > 0, "%d", info->cc_major);
    say(out, "gpu.compute.minor", info->cc_major > 0, "%d", info->cc_minor);
    say(out, "gpu.mode", true, "%s",
        class == 0x0302   ? "compute"
        : class == 0x0300 ? "graphics"
                          : "unknown");
    say(out, "gpu.clique", *clique(v->inv), "%s", clique(v->inv));
    say(out, "vgpu.present", host->vgpu != SL_VGPU_UNKNOWN, "%s", vgpu ? "true" : "false");
    say(out, "vgpu.host-driver-version", vgpu && *host->vgpu_driver_version, "%s",
        host->vgpu_driver_version);
    say(out, "vgpu.host-driver-branch", vgpu && *host->vgpu_driver_branch, "%s",
        host->vgpu_driver_branch);
}

/* ---- the resources ---- */

/* How a card or a MIG device is advertised. */
struct advert {
    unsigned replicas;
    enum sl_sharing sharing;
    bool renamed;
};

/* Of several devices the one with most replicas counts: a node has only one such label. */
static void advert_add(struct advert *into, const struct sl_plan *plan, size_t gpu, size_t mig)
{
    struct advert a = {0};
    for (size_t r = 0; plan && r < plan->resource_count; r++) {
        const struct sl_plan_resource *res = &plan->resource[r];
        for (size_t d = 0; d < res->device_count; d++) {
            if (res->device[d].gpu != gpu || res->device[d].mig != mig)
                continue;
            a.replicas++;
            a.sharing = res->device[d].sharing;
            a.renamed = res->renamed;
        }
    }
    if (a.replicas > into->replicas)
        *into = a;
}

static void set_number(struct sl_labels *out, const char *resource, const char *key, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%" PRIu64, value);
    put(out, resource, key, text, NULL);
}

static void set_advert(struct sl_labels *out, const char *resource, struct advert a)
{
    set_number(out, resource, "replicas", a.replicas);
    put(out, resource, "sharing-strategy", sl_config_sharing_name(a.sharing), NULL);
}

static void set_product(struct sl_labels *out, const char *resource, const char *name,
                        const char *profile, struct advert a)
{
    char suffix[64] = "";
    bool shared = a.sharing != SL_SHARING_NONE && !a.renamed;
    if (profile || shared)
        (void)snprintf(suffix, sizeof(suffix), "%s%s%s", profile ? "-MIG-" : "",
                       profile ? profile : "", shared ? "-SHARED" : "");
    put(out, resource, "product", name, suffix);
}

/* As in resource names: a label's key may not contain '+'. */
static void profile_name(const char *profile, char *ret, size_t size)
{
    (void)snprintf(ret, size, "%s", profile);
    for (char *c = ret; *c; c++)
        *c = *c == '+' ? '.' : *c;
}

static void set_mig(struct sl_labels *out, const char *resource, const char *card_name,
                    const struct sl_inv_mig *m, size_t count, struct advert a)
{
    char profile[40];
    profile_name(m->info.profile, profile, sizeof(profile));
    set_product(out, resource, card_name, profile, a);
    set_advert(out, resource, a);
    set_number(out, resource, "count", count);
    set_number(out, resource, "memory", m->info.memory_total_bytes / MIB);
    set_number(out, resource, "multiprocessors", m->info.sm_count);
    set_number(out, resource, "slices.gi", m->info.gpu_slices);
    set_number(out, resource, "slices.ci", m->info.compute_slices);
    set_number(out, resource, "engines.copy", m->info.copy_engines);
    set_number(out, resource, "engines.decoder", m->info.decoders);
    set_number(out, resource, "engines.encoder", m->info.encoders);
    set_number(out, resource, "engines.jpeg", m->info.jpegs);
    set_number(out, resource, "engines.ofa", m->info.ofas);
}

static void whole_gpus(const struct view *v, struct sl_labels *out)
{
    struct advert a = {0};
    for (size_t i = 0; i < v->inv->gpu_count; i++)
        if (!v->inv->gpu[i].lost)
            advert_add(&a, v->plan, i, SL_NO_MIG);
    set_product(out, "gpu", v->card->info.name, NULL, a);
    set_advert(out, "gpu", a);
}

/* A compute instance smaller than its GPU instance has no resource name. */
static bool has_resource(const struct sl_inv_mig *m)
{
    return m->info.gpu_slices == m->info.compute_slices;
}

/* All devices of m's profile, written once: for the first of them. */
static void profile_rows(const struct view *v, size_t gpu, size_t mig, struct sl_labels *out)
{
    const struct sl_inv_mig *m = &v->inv->gpu[gpu].mig[mig];
    struct advert a = {0};
    size_t count = 0;
    for (size_t i = 0; i < v->inv->gpu_count; i++) {
        const struct sl_inv_gpu *g = &v->inv->gpu[i];
        for (size_t j = 0; !g->lost && g->info.mig_enabled && j < g->mig_count; j++) {
            if (strcmp(g->mig[j].info.profile, m->info.profile) != 0 || !has_resource(&g->mig[j]))
                continue;
            if (i < gpu || (i == gpu && j < mig))
                return;
            advert_add(&a, v->plan, i, j);
            count++;
        }
    }
    char profile[40], resource[48];
    profile_name(m->info.profile, profile, sizeof(profile));
    (void)snprintf(resource, sizeof(resource), "mig-%s", profile);
    set_mig(out, resource, v->inv->gpu[gpu].info.name, m, count, a);
}

/* Is the device advertised as `nvidia.com/gpu`, before any renaming? */
static bool offered_as_gpu(const struct sl_plan *plan, size_t gpu, size_t mig)
{
    for (size_t r = 0; plan && r < plan->resource_count; r++) {
        const struct sl_plan_resource *res = &plan->resource[r];
        for (size_t d = 0; d < res->device_count; d++) {
            if (res->device[d].gpu == gpu && res->device[d].mig == mig)
                return strcmp(res->base_name, DOMAIN "gpu") == 0;
        }
    }
    return false;
}

static void single_invalid(const struct view *v, struct sl_labels *out)
{
    put(out, "gpu", "product", v->card->info.name, "-MIG-INVALID");
    set_number(out, "gpu", "count", 0);
    set_number(out, "gpu", "memory", 0);
    set_advert(out, "gpu", (struct advert){0});
}

/*
 * With the single strategy a `gpu` is a MIG device. If a node has several kinds all the same, the plan makes one of
 * them `gpu` and leaves the others their own names; the labels do the same. No MIG device at all is "invalid" in
 * NVIDIA's words.
 */
static void single(const struct view *v, struct sl_labels *out)
{
    const struct sl_inv_mig *first = NULL;
    struct advert a = {0};
    size_t count = 0, enabled = 0;
    for (size_t i = 0; i < v->inv->gpu_count; i++) {
        const struct sl_inv_gpu *g = &v->inv->gpu[i];
        if (g->lost || !g->info.mig_enabled)
            continue;
        enabled++;
        for (size_t m = 0; m < g->mig_count; m++) {
            if (offered_as_gpu(v->plan, i, m)) {
                first = first ? first : &g->mig[m];
                advert_add(&a, v->plan, i, m);
                count++;
            } else if (has_resource(&g->mig[m])) {
                profile_rows(v, i, m, out);
            }
        }
    }
    if (enabled == 0)
        whole_gpus(v, out);
    else if (first)
        set_mig(out, "gpu", v->card->info.name, first, count, a);
    else
        single_invalid(v, out);
}

static void mixed(const struct view *v, struct sl_labels *out)
{
    whole_gpus(v, out);
    for (size_t i = 0; i < v->inv->gpu_count; i++) {
        const struct sl_inv_gpu *g = &v->inv->gpu[i];
        for (size_t j = 0; !g->lost && g->info.mig_enabled && j < g->mig_count; j++) {
            if (has_resource(&g->mig[j]))
                profile_rows(v, i, j, out);
        }
    }
}

struct sl_labels sl_labels_make(const struct sl_config *config, const struct sl_inventory *inv,
                                const struct sl_plan *plan, const struct sl_labels_host *host)
{
    struct view v = {.config = config, .inv = inv, .plan = plan, .host = host};
    struct sl_labels out = {0};
    v.card = typical_card(inv, &v.count);
    say(&out, "gfd.timestamp", !config->gfd_no_timestamp, "%" PRIu64, host->start_s);
    if (inv->gpu_count > 0)
        driver_labels(&v, &out);
    if (!v.card)
        return out;
    card_labels(&v, &out);
    if (config->mig_strategy == SL_MIG_SINGLE)
        single(&v, &out);
    else if (config->mig_strategy == SL_MIG_MIXED)
        mixed(&v, &out);
    else
        whole_gpus(&v, &out);
    return out;
}
