/* SPDX-License-Identifier: Apache-2.0 */
/* The devices of each entry of sharing.*.resources, on this very node. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "config/errors.h"
#include "config/plan_internal.h"
#include "config/schema.h"

#define MPS_CLIENTS_BEFORE_13_1 48
#define MPS_CLIENTS_PRE_VOLTA   16

static int SL_PRINTF(3, 4)
    located(const struct sl_planning *p, const struct sl_config_shared *e, const char *fmt, ...)
{
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    struct sl_origin at = {.line = e->line, .column = e->column};
    return sl_config_locate(p->config->config_file, &at, text, p->err, -EINVAL);
}

/* An MPS server takes only so many clients on one card. */
static int check_mps_clients(const struct sl_planning *p, const struct sl_config_shared *e,
                             size_t gpu)
{
    const struct sl_gpu_info *info = &p->inv->gpu[gpu].info;
    unsigned most = p->inv->cuda_version >= 13010 ? SL_MAX_MPS_CLIENTS : MPS_CLIENTS_BEFORE_13_1;
    if (info->cc_major > 0 && info->cc_major < 7)
        most = MPS_CLIENTS_PRE_VOLTA;
    if (p->config->sharing != SL_SHARING_MPS || e->replicas <= most)
        return 0;
    return located(p, e, SL_E_MPS_CLIENTS, e->replicas, gpu, most,
                   most == MPS_CLIENTS_PRE_VOLTA ? "the card is older than Volta"
                                                 : "60 from CUDA 13.1 on");
}

static int assign(struct sl_planning *p, const struct sl_config_shared *e, struct sl_found *f)
{
    if (f->mig != SL_NO_MIG && p->config->sharing == SL_SHARING_MPS)
        return 0; /* the caller warns once for the whole entry */
    if (f->entry && f->entry != e)
        return located(p, e, SL_E_DEVICE_SHARED_AGAIN, sl_plan_uuid(p->inv, f->gpu, f->mig),
                       f->entry->line);
    f->entry = e;
    return check_mps_clients(p, e, f->gpu);
}

/* "0", "0:1", "GPU-…", "MIG-…". Refuses an index that this node does not have. Accepts an unknown UUID: the same file
 * often serves many nodes, and the UUID may belong to another node. */
static int parse_device(const struct sl_planning *p, const struct sl_config_shared *e,
                        const char *text, size_t *ret_gpu, size_t *ret_mig)
{
    *ret_gpu = *ret_mig = SL_NO_MIG;
    if (text[0] < '0' || text[0] > '9')
        return 0;
    char *end;
    size_t index = strtoul(text, &end, 10), gpu = 0;
    /* A lost card keeps its index, and a new card may have the same index: the new card is meant. */
    while (gpu < p->inv->gpu_count && (p->inv->gpu[gpu].index != index || p->inv->gpu[gpu].lost))
        gpu++;
    for (size_t i = 0; i < p->inv->gpu_count && gpu == p->inv->gpu_count; i++)
        gpu = p->inv->gpu[i].index == index ? i : gpu;
    if (gpu == p->inv->gpu_count)
        return located(p, e, SL_E_NO_SUCH_GPU_INDEX, index, p->inv->gpu_count);
    *ret_gpu = gpu;
    if (*end != ':')
        return 0;
    size_t mig = strtoul(end + 1, NULL, 10);
    if (mig >= p->inv->gpu[gpu].mig_count)
        return located(p, e, SL_E_NO_SUCH_MIG_INDEX, text, index, p->inv->gpu[gpu].mig_count);
    *ret_mig = mig;
    return 0;
}

/* A card's index or UUID also stands for all its MIG devices that the resource has. */
static bool is_meant(const struct sl_planning *p, const struct sl_found *f, const char *text,
                     size_t gpu, size_t mig)
{
    if (gpu != SL_NO_MIG)
        return f->gpu == gpu && (mig == SL_NO_MIG || f->mig == mig);
    return strcmp(p->inv->gpu[f->gpu].info.uuid, text) == 0 ||
           strcmp(sl_plan_uuid(p->inv, f->gpu, f->mig), text) == 0;
}

static int share_listed(struct sl_planning *p, const struct sl_config_shared *e)
{
    for (size_t d = 0; d < e->devices_count; d++) {
        size_t gpu, mig, hits = 0;
        int rc = parse_device(p, e, e->devices[d], &gpu, &mig);
        for (size_t i = 0; i < p->found_count && rc == 0; i++) {
            struct sl_found *f = &p->found[i];
            if (strcmp(f->name, e->name) != 0 || !is_meant(p, f, e->devices[d], gpu, mig))
                continue;
            hits++;
            rc = assign(p, e, f);
        }
        if (rc < 0)
            return rc;
        if (hits == 0)
            sl_plan_warn(p, SL_E_WARN_SHARED_DEVICE, e->devices[d], e->name, e->name);
    }
    return 0;
}

static int share_counted(struct sl_planning *p, const struct sl_config_shared *e)
{
    size_t most = e->device_count > 0 ? e->device_count : SIZE_MAX, n = 0;
    int rc = 0;
    for (size_t i = 0; i < p->found_count && n < most && rc == 0; i++) {
        if (strcmp(p->found[i].name, e->name) != 0)
            continue;
        n++;
        rc = assign(p, e, &p->found[i]);
    }
    if (rc == 0 && e->device_count > n && n > 0)
        sl_plan_warn(p, SL_E_WARN_SHARED_FEWER, e->device_count, e->name, n);
    if (rc == 0 && n == 0)
        sl_plan_warn(p, SL_E_WARN_SHARED_NONE, e->name);
    return rc;
}

static void warn_mps_on_mig(struct sl_planning *p, const struct sl_config_shared *e)
{
    bool any = false;
    for (size_t i = 0; i < p->found_count && p->config->sharing == SL_SHARING_MPS; i++)
        any = any || (p->found[i].mig != SL_NO_MIG && strcmp(p->found[i].name, e->name) == 0);
    if (any)
        sl_plan_warn(p, SL_E_WARN_MPS_MIG, e->name);
}

int sl_plan_share(struct sl_planning *p)
{
    int rc = 0;
    for (size_t i = 0; i < p->config->shared_count && rc == 0; i++) {
        const struct sl_config_shared *e = &p->config->shared[i];
        warn_mps_on_mig(p, e);
        rc = e->devices_count > 0 ? share_listed(p, e) : share_counted(p, e);
    }
    return rc;
}
