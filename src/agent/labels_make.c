/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU Feature Discovery's table: one row a label, each a function that says the value or that there is none.
 * Cards that do not answer describe nothing and are not counted.
 */
#include "agent/labels.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define DOMAIN "nvidia.com/"
#define MIB    ((uint64_t)1024 * 1024)

enum { VALUE = 128 };

/* What the rows look at. */
struct view {
    const struct sl_config *config;
    const struct sl_inventory *inv;
    const struct sl_plan *plan;
    const struct sl_labels_host *host;
    const struct sl_inv_gpu *card; /* the one that stands for all: see typical_card(); NULL: none */
    size_t count;                  /* cards that answer */
    char driver[3][32];            /* the driver's version, split at its dots */
    int driver_parts;
};

/* How a card or a MIG device is advertised. */
struct advert {
    unsigned replicas;
    enum sl_sharing sharing;
    bool renamed;
};

static const char *const sharing_words[] = {
    [SL_SHARING_NONE] = "none",
    [SL_SHARING_TIME_SLICING] = "time-slicing",
    [SL_SHARING_MPS] = "mps",
    [SL_SHARING_FRACTIONAL] = "fractional",
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

/* The most frequent model; of equals the first. */
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

/* ---- rows: false leaves the label out; *out is sanitised afterwards ---- */

typedef bool row_fn(const struct view *v, char *out);

#define ROW(name) static bool row_##name(const struct view *v, char *out)
#define SAY(...)  ((void)snprintf(out, VALUE, __VA_ARGS__), true)

ROW(timestamp)
{
    return !v->config->gfd_no_timestamp && SAY("%" PRIu64, v->host->start_s);
}

ROW(driver_full)
{
    return v->driver_parts > 0 && SAY("%s", v->inv->driver_version);
}

ROW(driver_major)
{
    return v->driver_parts > 0 && SAY("%s", v->driver[0]);
}

ROW(driver_minor)
{
    return v->driver_parts > 1 && SAY("%s", v->driver[1]);
}

/* The only label that may be empty: drivers of two parts have no revision. */
ROW(driver_rev)
{
    return v->driver_parts > 1 && SAY("%s", v->driver[2]);
}

ROW(runtime_full)
{
    int c = v->inv->cuda_version;
    return c > 0 && SAY("%d.%d", c / 1000, c % 1000 / 10);
}

ROW(runtime_major)
{
    return v->inv->cuda_version > 0 && SAY("%d", v->inv->cuda_version / 1000);
}

ROW(runtime_minor)
{
    return v->inv->cuda_version > 0 && SAY("%d", v->inv->cuda_version % 1000 / 10);
}

ROW(machine)
{
    char clean[SL_LABEL_VALUE_MAX + 1];
    sl_label_value(v->host->machine, NULL, clean);
    return SAY("%s", clean[0] ? clean : "unknown");
}

ROW(count)
{
    return SAY("%zu", v->count);
}

ROW(memory)
{
    return v->card->info.memory_total_bytes &&
           SAY("%" PRIu64, v->card->info.memory_total_bytes / MIB);
}

ROW(family)
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
    for (size_t i = 0; i < SL_ARRAY_LEN(families); i++) {
        if (v->card->info.cc_major == families[i].major &&
            v->card->info.cc_minor >= families[i].minor_from)
            return SAY("%s", families[i].family);
    }
    return v->card->info.cc_major > 0 && SAY("undefined");
}

ROW(compute_major)
{
    return v->card->info.cc_major > 0 && SAY("%d", v->card->info.cc_major);
}

ROW(compute_minor)
{
    return v->card->info.cc_major > 0 && SAY("%d", v->card->info.cc_minor);
}

ROW(mode)
{
    uint32_t class = v->card->pci_class;
    return SAY("%s", class == 0x0302 ? "compute" : class == 0x0300 ? "graphics" : "unknown");
}

ROW(clique)
{
    const char *clique = NULL;
    for (size_t i = 0; i < v->inv->gpu_count; i++) {
        if (v->inv->gpu[i].lost)
            continue;
        if (clique && strcmp(clique, v->inv->gpu[i].clique) != 0)
            return false;
        clique = v->inv->gpu[i].clique;
    }
    return clique && clique[0] && SAY("%s", clique);
}

ROW(mig_capable)
{
    bool any = false;
    for (size_t i = 0; i < v->inv->gpu_count; i++)
        any = any || (!v->inv->gpu[i].lost && v->inv->gpu[i].info.mig_capable);
    return SAY("%s", any ? "true" : "false");
}

ROW(mig_strategy)
{
    return v->config->mig_strategy != SL_MIG_NONE &&
           SAY("%s", v->config->mig_strategy == SL_MIG_SINGLE ? "single" : "mixed");
}

ROW(mps_capable)
{
    return SAY("%s", v->config->sharing == SL_SHARING_MPS ? "true" : "false");
}

ROW(vgpu_present)
{
    return v->host->vgpu != SL_VGPU_UNKNOWN &&
           SAY("%s", v->host->vgpu == SL_VGPU_YES ? "true" : "false");
}

ROW(vgpu_version)
{
    return v->host->vgpu == SL_VGPU_YES && v->host->vgpu_driver_version[0] &&
           SAY("%s", v->host->vgpu_driver_version);
}

ROW(vgpu_branch)
{
    return v->host->vgpu == SL_VGPU_YES && v->host->vgpu_driver_branch[0] &&
           SAY("%s", v->host->vgpu_driver_branch);
}

enum need { ALWAYS, DRIVER, CARD };

static const struct {
    const char *key; /* after the domain */
    enum need need;
    row_fn *row;
} rows[] = {
    {"gfd.timestamp", ALWAYS, row_timestamp},
    {"cuda.driver.major", DRIVER, row_driver_major},
    {"cuda.driver.minor", DRIVER, row_driver_minor},
    {"cuda.driver.rev", DRIVER, row_driver_rev},
    {"cuda.driver-version.full", DRIVER, row_driver_full},
    {"cuda.driver-version.major", DRIVER, row_driver_major},
    {"cuda.driver-version.minor", DRIVER, row_driver_minor},
    {"cuda.driver-version.revision", DRIVER, row_driver_rev},
    {"cuda.runtime.major", DRIVER, row_runtime_major},
    {"cuda.runtime.minor", DRIVER, row_runtime_minor},
    {"cuda.runtime-version.full", DRIVER, row_runtime_full},
    {"cuda.runtime-version.major", DRIVER, row_runtime_major},
    {"cuda.runtime-version.minor", DRIVER, row_runtime_minor},
    {"gpu.machine", DRIVER, row_machine},
    {"gpu.count", DRIVER, row_count},
    {"mig.capable", DRIVER, row_mig_capable},
    {"mig.strategy", DRIVER, row_mig_strategy},
    {"mps.capable", DRIVER, row_mps_capable},
    {"gpu.memory", CARD, row_memory},
    {"gpu.family", CARD, row_family},
    {"gpu.compute.major", CARD, row_compute_major},
    {"gpu.compute.minor", CARD, row_compute_minor},
    {"gpu.mode", CARD, row_mode},
    {"gpu.clique", CARD, row_clique},
    {"vgpu.present", CARD, row_vgpu_present},
    {"vgpu.host-driver-version", CARD, row_vgpu_version},
    {"vgpu.host-driver-branch", CARD, row_vgpu_branch},
};

/* ---- resources: `gpu`, and `mig-…` of their own with the mixed strategy ---- */

static int set(struct sl_labels *out, const char *resource, const char *key, const char *value,
               const char *suffix, struct sl_err *err)
{
    char name[192], clean[SL_LABEL_VALUE_MAX + 1];
    (void)snprintf(name, sizeof(name), DOMAIN "%s%s%s", resource, *resource ? "." : "", key);
    sl_label_value(value, suffix, clean);
    return sl_labels_set(out, name, clean, err);
}

static int set_number(struct sl_labels *out, const char *resource, const char *key, uint64_t value,
                      struct sl_err *err)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%" PRIu64, value);
    return set(out, resource, key, text, NULL, err);
}

static int set_advert(struct sl_labels *out, const char *resource, struct advert a,
                      struct sl_err *err)
{
    int rc = set_number(out, resource, "replicas", a.replicas, err);
    return rc < 0 ? rc
                  : set(out, resource, "sharing-strategy", sharing_words[a.sharing], NULL, err);
}

static int set_product(struct sl_labels *out, const char *resource, const char *name,
                       const char *profile, struct advert a, struct sl_err *err)
{
    char suffix[64] = "";
    bool shared = a.sharing != SL_SHARING_NONE && !a.renamed;
    if (profile || shared)
        (void)snprintf(suffix, sizeof(suffix), "%s%s%s", profile ? "-MIG-" : "",
                       profile ? profile : "", shared ? "-SHARED" : "");
    return set(out, resource, "product", name, suffix, err);
}

/* As resource names have them: a label's key knows no '+'. */
static void profile_name(const char *profile, char *ret, size_t size)
{
    (void)snprintf(ret, size, "%s", profile);
    for (char *c = ret; *c; c++)
        *c = *c == '+' ? '.' : *c;
}

static int set_mig(struct sl_labels *out, const char *resource, const char *card_name,
                   const struct sl_inv_mig *m, size_t count, struct advert a, struct sl_err *err)
{
    char profile[40];
    profile_name(m->info.profile, profile, sizeof(profile));
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {
        {"count", count},
        {"memory", m->info.memory_total_bytes / MIB},
        {"multiprocessors", m->info.sm_count},
        {"slices.gi", m->info.gpu_slices},
        {"slices.ci", m->info.compute_slices},
        {"engines.copy", m->copy_engines},
        {"engines.decoder", m->decoders},
        {"engines.encoder", m->encoders},
        {"engines.jpeg", m->jpegs},
        {"engines.ofa", m->ofas},
    };
    int rc = set_product(out, resource, card_name, profile, a, err);
    if (rc == 0)
        rc = set_advert(out, resource, a, err);
    for (size_t i = 0; rc == 0 && i < SL_ARRAY_LEN(numbers); i++)
        rc = set_number(out, resource, numbers[i].key, numbers[i].value, err);
    return rc;
}

static int whole_gpus(const struct view *v, struct sl_labels *out, struct sl_err *err)
{
    struct advert a = {0};
    for (size_t i = 0; i < v->inv->gpu_count; i++) {
        if (!v->inv->gpu[i].lost)
            advert_merge(&a, advert_of(v->plan, i, SL_NO_MIG));
    }
    int rc = set_product(out, "gpu", v->card->info.name, NULL, a, err);
    return rc < 0 ? rc : set_advert(out, "gpu", a, err);
}

/* A compute instance smaller than its GPU instance has no resource name. */
static bool has_resource(const struct sl_inv_mig *m)
{
    return m->info.gpu_slices == m->info.compute_slices;
}

/* All devices of m's profile, told once: by the first of them. */
static int profile_rows(const struct view *v, size_t gpu, size_t mig, struct sl_labels *out,
                        struct sl_err *err)
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
                return 0;
            advert_merge(&a, advert_of(v->plan, i, j));
            count++;
        }
    }
    char profile[40], resource[48];
    profile_name(m->info.profile, profile, sizeof(profile));
    (void)snprintf(resource, sizeof(resource), "mig-%s", profile);
    return set_mig(out, resource, v->inv->gpu[gpu].info.name, m, count, a, err);
}

/* Is it `nvidia.com/gpu` that the device is advertised as, before any renaming? */
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

static int single_invalid(const struct view *v, struct sl_labels *out, struct sl_err *err)
{
    int rc = set(out, "gpu", "product", v->card->info.name, "-MIG-INVALID", err);
    if (rc == 0)
        rc = set_number(out, "gpu", "count", 0, err);
    if (rc == 0)
        rc = set_number(out, "gpu", "memory", 0, err);
    return rc < 0 ? rc : set_advert(out, "gpu", (struct advert){0}, err);
}

/*
 * With the single strategy a `gpu` is a MIG device. Should a node have several kinds all the same, the plan
 * makes one of them `gpu` and leaves the others their own names, and so do the labels; none at all is what
 * NVIDIA's calls invalid.
 */
static int single(const struct view *v, struct sl_labels *out, struct sl_err *err)
{
    const struct sl_inv_mig *first = NULL;
    struct advert a = {0};
    size_t count = 0, enabled = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < v->inv->gpu_count; i++) {
        const struct sl_inv_gpu *g = &v->inv->gpu[i];
        if (g->lost || !g->info.mig_enabled)
            continue;
        enabled++;
        for (size_t m = 0; rc == 0 && m < g->mig_count; m++) {
            if (offered_as_gpu(v->plan, i, m)) {
                first = first ? first : &g->mig[m];
                advert_merge(&a, advert_of(v->plan, i, m));
                count++;
            } else if (has_resource(&g->mig[m])) {
                rc = profile_rows(v, i, m, out, err);
            }
        }
    }
    if (rc < 0)
        return rc;
    if (enabled == 0)
        return whole_gpus(v, out, err);
    return first ? set_mig(out, "gpu", v->card->info.name, first, count, a, err)
                 : single_invalid(v, out, err);
}

static int mixed(const struct view *v, struct sl_labels *out, struct sl_err *err)
{
    int rc = whole_gpus(v, out, err);
    for (size_t i = 0; rc == 0 && i < v->inv->gpu_count; i++) {
        const struct sl_inv_gpu *g = &v->inv->gpu[i];
        for (size_t j = 0; rc == 0 && !g->lost && g->info.mig_enabled && j < g->mig_count; j++) {
            if (has_resource(&g->mig[j]))
                rc = profile_rows(v, i, j, out, err);
        }
    }
    return rc;
}

static int resources(const struct view *v, struct sl_labels *out, struct sl_err *err)
{
    switch (v->config->mig_strategy) {
    case SL_MIG_SINGLE:
        return single(v, out, err);
    case SL_MIG_MIXED:
        return mixed(v, out, err);
    case SL_MIG_NONE:
    default:
        return whole_gpus(v, out, err);
    }
}

int sl_labels_make(const struct sl_config *config, const struct sl_inventory *inv,
                   const struct sl_plan *plan, const struct sl_labels_host *host,
                   struct sl_labels *ret, struct sl_err *err)
{
    struct view v = {.config = config, .inv = inv, .plan = plan, .host = host};
    struct sl_labels out = {0};
    v.card = typical_card(inv, &v.count);
    v.driver_parts =
        sscanf(inv->driver_version, "%31[^.].%31[^.].%31s", v.driver[0], v.driver[1], v.driver[2]);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < SL_ARRAY_LEN(rows); i++) {
        char value[VALUE];
        bool apt = rows[i].need == ALWAYS || (rows[i].need == DRIVER && inv->gpu_count > 0) ||
                   (rows[i].need == CARD && v.card);
        if (apt && rows[i].row(&v, value))
            rc = set(&out, "", rows[i].key, value, NULL, err);
    }
    if (rc == 0 && v.card)
        rc = resources(&v, &out, err);
    if (rc < 0)
        sl_labels_clear(&out);
    else
        *ret = out;
    return rc;
}
