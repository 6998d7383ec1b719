/* SPDX-License-Identifier: Apache-2.0 */
/* Labels of what is advertised: whole cards and MIG devices, with their replicas. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/node/labels_internal.h"
#include "base/cleanup.h"

/* How a card or a MIG device is advertised. */
struct advert {
    unsigned replicas;
    enum sl_sharing sharing;
    bool renamed;
};

static struct advert advert_of(const struct sl_plan *plan, size_t gpu, size_t mig)
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
    return a;
}

/* Of several, the one cut into most replicas: a node has one such label. */
static void advert_merge(struct advert *into, struct advert other)
{
    if (other.replicas > into->replicas)
        *into = other;
}

void sl_labels_put(struct sl_labels *out, const char *resource, const char *key, const char *value,
                   const char *suffix)
{
    char name[192], clean[SL_LABEL_VALUE_MAX + 1];
    (void)snprintf(name, sizeof(name), LABELS_DOMAIN "%s%s%s", resource, *resource ? "." : "", key);
    sl_label_value(value, suffix, clean);
    sl_labels_set(out, name, clean);
}

static void set_number(struct sl_labels *out, const char *resource, const char *key, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%" PRIu64, value);
    sl_labels_put(out, resource, key, text, NULL);
}

static void set_advert(struct sl_labels *out, const char *resource, struct advert a)
{
    set_number(out, resource, "replicas", a.replicas);
    sl_labels_put(out, resource, "sharing-strategy", sl_config_sharing_name(a.sharing), NULL);
}

static void set_product(struct sl_labels *out, const char *resource, const char *name,
                        const char *profile, struct advert a)
{
    char suffix[64] = "";
    bool shared = a.sharing != SL_SHARING_NONE && !a.renamed;
    if (profile || shared)
        (void)snprintf(suffix, sizeof(suffix), "%s%s%s", profile ? "-MIG-" : "",
                       profile ? profile : "", shared ? "-SHARED" : "");
    sl_labels_put(out, resource, "product", name, suffix);
}

/* As resource names have them: a label's key knows no '+'. */
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
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {
        {"count", count},
        {"memory", m->info.memory_total_bytes / LABELS_MIB},
        {"multiprocessors", m->info.sm_count},
        {"slices.gi", m->info.gpu_slices},
        {"slices.ci", m->info.compute_slices},
        {"engines.copy", m->info.copy_engines},
        {"engines.decoder", m->info.decoders},
        {"engines.encoder", m->info.encoders},
        {"engines.jpeg", m->info.jpegs},
        {"engines.ofa", m->info.ofas},
    };
    set_product(out, resource, card_name, profile, a);
    set_advert(out, resource, a);
    for (size_t i = 0; i < SL_ARRAY_LEN(numbers); i++)
        set_number(out, resource, numbers[i].key, numbers[i].value);
}

static void whole_gpus(const struct labels_view *v, struct sl_labels *out)
{
    struct advert a = {0};
    for (size_t i = 0; i < v->inv->gpu_count; i++) {
        if (!v->inv->gpu[i].lost)
            advert_merge(&a, advert_of(v->plan, i, SL_NO_MIG));
    }
    set_product(out, "gpu", v->card->info.name, NULL, a);
    set_advert(out, "gpu", a);
}

/* A compute instance smaller than its GPU instance has no resource name. */
static bool has_resource(const struct sl_inv_mig *m)
{
    return m->info.gpu_slices == m->info.compute_slices;
}

/* All devices of m's profile, told once: by the first of them. */
static void profile_rows(const struct labels_view *v, size_t gpu, size_t mig, struct sl_labels *out)
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
            advert_merge(&a, advert_of(v->plan, i, j));
            count++;
        }
    }
    char profile[40], resource[48];
    profile_name(m->info.profile, profile, sizeof(profile));
    (void)snprintf(resource, sizeof(resource), "mig-%s", profile);
    set_mig(out, resource, v->inv->gpu[gpu].info.name, m, count, a);
}

/* Is it `nvidia.com/gpu` that the device is advertised as, before any renaming? */
static bool offered_as_gpu(const struct sl_plan *plan, size_t gpu, size_t mig)
{
    for (size_t r = 0; plan && r < plan->resource_count; r++) {
        const struct sl_plan_resource *res = &plan->resource[r];
        for (size_t d = 0; d < res->device_count; d++) {
            if (res->device[d].gpu == gpu && res->device[d].mig == mig)
                return strcmp(res->base_name, LABELS_DOMAIN "gpu") == 0;
        }
    }
    return false;
}

static void single_invalid(const struct labels_view *v, struct sl_labels *out)
{
    sl_labels_put(out, "gpu", "product", v->card->info.name, "-MIG-INVALID");
    set_number(out, "gpu", "count", 0);
    set_number(out, "gpu", "memory", 0);
    set_advert(out, "gpu", (struct advert){0});
}

/*
 * With the single strategy a `gpu` is a MIG device. Should a node have several kinds all the same, the plan
 * makes one of them `gpu` and leaves the others their own names, and so do the labels; none at all is what
 * NVIDIA's calls invalid.
 */
static void single(const struct labels_view *v, struct sl_labels *out)
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
                advert_merge(&a, advert_of(v->plan, i, m));
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

static void mixed(const struct labels_view *v, struct sl_labels *out)
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

void sl_labels_resources(const struct labels_view *v, struct sl_labels *out)
{
    switch (v->config->mig_strategy) {
    case SL_MIG_SINGLE:
        single(v, out);
        break;
    case SL_MIG_MIXED:
        mixed(v, out);
        break;
    case SL_MIG_NONE:
    default:
        whole_gpus(v, out);
    }
}
