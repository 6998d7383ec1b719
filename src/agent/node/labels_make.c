/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU Feature Discovery's table: one row a label, each a function that says the value or that there is none.
 * Cards that do not answer describe nothing and are not counted.
 */
#include "agent/node/labels.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/node/labels_internal.h"
#include "base/cleanup.h"

enum { VALUE = 128 };

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

typedef bool row_fn(const struct labels_view *v, char *out);

#define ROW(name) static bool row_##name(const struct labels_view *v, char *out)
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
           SAY("%" PRIu64, v->card->info.memory_total_bytes / LABELS_MIB);
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

struct sl_labels sl_labels_make(const struct sl_config *config, const struct sl_inventory *inv,
                                const struct sl_plan *plan, const struct sl_labels_host *host)
{
    struct labels_view v = {.config = config, .inv = inv, .plan = plan, .host = host};
    struct sl_labels out = {0};
    v.card = typical_card(inv, &v.count);
    v.driver_parts =
        sscanf(inv->driver_version, "%31[^.].%31[^.].%31s", v.driver[0], v.driver[1], v.driver[2]);
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++) {
        char value[VALUE];
        bool apt = rows[i].need == ALWAYS || (rows[i].need == DRIVER && inv->gpu_count > 0) ||
                   (rows[i].need == CARD && v.card);
        if (apt && rows[i].row(&v, value))
            sl_labels_put(&out, "", rows[i].key, value, NULL);
    }
    if (v.card)
        sl_labels_resources(&v, &out);
    return out;
}
