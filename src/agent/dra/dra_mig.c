/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MIG instances of claims, on the thread that may wait for the driver. A job works on a copy of its input; its results
 * go into the checkpoint on the loop. Instances that are not ours are never touched. An instance is ours if the
 * checkpoint says that we were about to make it while its place was empty.
 */
#include "agent/dra/dra_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/dra/errors.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/xalloc.h"

struct mig_job {
    struct dra_link *link;
    struct op *op;
    sl_dra_mig_done *done;
    enum mig_work work;
    char uid[SL_UID_SIZE];
    bool whole_cards; /* cards wanted whole or shared have MIG on: turn it off */
    bool changed;
    char driver_root[PATH_MAX]; /* to set intervals of time-slicing */
    size_t count;
    struct sl_prepared_device device[];
};

void sl_dra_link_put(struct dra_link *link)
{
    if (--link->refs == 0)
        free(link);
}

/* The driver of a finished job; NULL: it is gone. */
static struct sl_dra *come_back(struct dra_link *link)
{
    struct sl_dra *dra = link->dra;
    sl_dra_link_put(link);
    return dra;
}

/* On success the job's link is set; on failure the job is freed. */
static int submit(struct sl_dra *dra, sl_devices_job_fn *fn, sl_devices_done_fn *done, void *job,
                  struct dra_link **link, struct sl_err *err)
{
    int rc = dra->ops.submit(dra->data, fn, done, job, err);
    if (rc < 0) {
        free(job);
        return rc;
    }
    *link = dra->link;
    dra->link->refs++;
    return 0;
}

static bool wants_card(const struct sl_dra *dra, const struct sl_prepared_device *d)
{
    size_t i = sl_inventory_find(dra->inv, d->share.gpu);
    return i != SIZE_MAX && !d->mig_size && !d->admin && dra->inv->gpu[i].info.mig_enabled;
}

bool sl_dra_mig_needed(struct sl_dra *dra, const struct sl_prepared *p, enum mig_work work)
{
    for (size_t i = 0; i < p->device_count; i++) {
        const struct sl_prepared_device *d = &p->device[i];
        if (work != MIG_LOOK && d->timeslice)
            return true;
        if (work == MIG_LOOK && d->mig_size && d->mig == SL_MIG_NO)
            return true;
        if (work == MIG_MAKE && (d->mig == SL_MIG_PLANNED || wants_card(dra, d)))
            return true;
        if (work == MIG_UNMAKE && (d->mig == SL_MIG_PLANNED || d->mig == SL_MIG_MADE))
            return true;
    }
    return false;
}

/* The instance at a place, read from NVML now; its compute instance is NO_INSTANCE where it has none (its maker died
 * between the two). Places do not overlap, so there is at most one. -ENOENT: none. */
static int find_at(struct sl_gpu *gpu, size_t card, const struct sl_prepared_device *d,
                   struct sl_gpu_mig_info *ret, bool *ret_same, struct sl_err *err)
{
    SL_CLEANUP(free) struct sl_gpu_mig_instance *list = NULL;
    size_t n = 0, at = 0;
    struct sl_gpu_info info = {0};
    int rc = sl_gpu_mig_instances(gpu, card, &list, &n, err);
    if (rc == 0)
        rc = sl_gpu_info(gpu, card, &info, err);
    if (rc < 0)
        return rc;
    while (at < n && (list[at].place.start != d->mig_start || list[at].place.size != d->mig_size))
        at++;
    if (at == n)
        return -ENOENT;
    *ret = (struct sl_gpu_mig_info){.gpu_instance = list[at].id,
                                    .compute_instance = SL_GPU_NO_INSTANCE};
    *ret_same = d->mig_profile_id == UINT32_MAX || list[at].profile_id == d->mig_profile_id;
    for (uint32_t slot = 0; slot < info.mig_slots; slot++) {
        struct sl_gpu_mig_info m;
        if (sl_gpu_mig_info(gpu, card, slot, &m, NULL) == 0 && m.gpu_instance == list[at].id) {
            *ret = m;
            break;
        }
    }
    return 0;
}

static void take(struct sl_prepared_device *d, const struct sl_gpu_mig_info *m)
{
    (void)snprintf(d->mig_uuid, sizeof(d->mig_uuid), "%s", m->uuid);
    d->mig_gpu_instance = m->gpu_instance;
    d->mig_compute_instance = m->compute_instance;
}

static int look(struct sl_gpu *gpu, struct sl_prepared_device *d, struct sl_err *err)
{
    size_t card;
    struct sl_gpu_mig_info m;
    if (!d->mig_size || d->mig != SL_MIG_NO)
        return 0;
    int rc = sl_devices_find(gpu, d->share.gpu, &card, err);
    if (rc < 0)
        return rc;
    bool same = false;
    rc = find_at(gpu, card, d, &m, &same, err);
    if (rc == 0 && (!same || m.compute_instance == SL_GPU_NO_INSTANCE))
        return sl_err_set(err, -EBUSY, SL_E_MIG_IN_THE_WAY, d->device, m.gpu_instance);
    if (rc == 0) {
        take(d, &m);
        d->mig = SL_MIG_FOUND;
        return 0;
    }
    if (rc != -ENOENT)
        return rc;
    if (d->admin) /* admin access makes nothing, and must not undo what others make there later */
        return sl_err_set(err, -ENOENT, SL_E_MIG_ADMIN, d->device);
    if (d->mig_profile_id == UINT32_MAX)
        return sl_err_set(err, -ENOENT, SL_E_CLAIM_MIG_GONE, d->device);
    d->mig = SL_MIG_PLANNED;
    return 0;
}

/* Turns MIG on or off on an unused card. */
static int set_mode(struct sl_gpu *gpu, size_t card, bool on, bool *changed, struct sl_err *err)
{
    bool is = false, will = false, pending = false;
    int rc = sl_gpu_mig_mode(gpu, card, &is, &will, err);
    if (rc == -EOPNOTSUPP && !on)
        return 0;
    if (rc < 0 || is == on)
        return rc;
    rc = sl_gpu_mig_set_mode(gpu, card, on, &pending, err);
    if (rc == 0 && pending)
        rc = sl_err_set(err, -EBUSY, SL_E_MIG_NEEDS_RESET, card, on);
    *changed |= rc == 0;
    return rc;
}

static int make(struct mig_job *j, struct sl_gpu *gpu, struct sl_prepared_device *d,
                struct sl_err *err)
{
    size_t card;
    struct sl_gpu_mig_info m;
    if (d->admin || sl_dra_is_vm(d) || (d->mig != SL_MIG_PLANNED && d->mig_size))
        return 0;
    int rc = sl_devices_find(gpu, d->share.gpu, &card, err);
    if (rc < 0)
        return rc;
    if (d->mig != SL_MIG_PLANNED) {
        rc = j->whole_cards ? set_mode(gpu, card, false, &j->changed, err) : 0;
        if (rc == 0 && d->timeslice)
            rc = sl_dra_timeslice(j->driver_root, d->share.gpu, d->timeslice, err);
        return rc;
    }
    rc = set_mode(gpu, card, true, &j->changed, err);
    if (rc < 0)
        return sl_err_wrap(err, "cannot turn MIG on for %s", d->device);
    SL_FAULT("dra.mig.before");
    rc = sl_gpu_mig_create(gpu, card, d->mig_profile_id, d->mig_start, &m, err);
    if (rc < 0)
        return sl_err_wrap(err, "making %s", d->device);
    SL_FAULT("dra.mig.made");
    take(d, &m);
    d->mig = SL_MIG_MADE;
    j->changed = true;
    return 0;
}

static int unmake(struct mig_job *j, struct sl_gpu *gpu, struct sl_prepared_device *d,
                  struct sl_err *err)
{
    size_t card;
    struct sl_gpu_mig_info m;
    struct sl_err why = SL_ERR_INIT;
    /* A card that is gone or hangs must not keep the claim. */
    if (d->timeslice && sl_dra_timeslice(j->driver_root, d->share.gpu, 0, &why) < 0)
        sl_warn("%s keeps its interval of time-slicing: %s", d->device, why.msg);
    if (d->mig != SL_MIG_PLANNED && d->mig != SL_MIG_MADE)
        return 0;
    int rc = sl_devices_find(gpu, d->share.gpu, &card, err);
    if (rc == -ENOENT) /* the card is gone, and its instances with it */
        return 0;
    bool same = false;
    if (rc == 0)
        rc = find_at(gpu, card, d, &m, &same, err);
    /* Another kind, or another uuid: another program made it after ours was gone, for example by a reset. */
    if (rc == 0 &&
        (!same || (d->mig == SL_MIG_MADE && m.uuid[0] && strcmp(d->mig_uuid, m.uuid) != 0)))
        rc = -ENOENT;
    if (rc == 0) {
        rc = sl_gpu_mig_destroy(gpu, card, m.gpu_instance, m.compute_instance, err);
        j->changed |= rc == 0;
        SL_FAULT("dra.mig.unmade");
    }
    if (rc < 0 && rc != -ENOENT)
        return sl_err_wrap(err, "destroying %s", d->device);
    return 0;
}

static int run(struct sl_gpu *gpu, void *arg, struct sl_err *err)
{
    struct mig_job *j = arg;
    int rc = 0;
    for (size_t i = 0; i < j->count && rc == 0; i++)
        rc = j->work == MIG_LOOK   ? look(gpu, &j->device[i], err)
             : j->work == MIG_MAKE ? make(j, gpu, &j->device[i], err)
                                   : unmake(j, gpu, &j->device[i], err);
    return rc;
}

static void back(void *arg, int result, const struct sl_err *err)
{
    struct mig_job *j = arg;
    struct sl_dra *dra = come_back(j->link);
    if (!dra) { /* the checkpoint has it as planned: the next start handles it */
        free(j);
        return;
    }
    struct sl_prepared *p = sl_checkpoint_find(&dra->checkpoint, j->uid);
    /* Record the instances that were made before a failure too: they must be undone. */
    for (size_t i = 0; p && i < j->count && i < p->device_count; i++)
        p->device[i] = j->device[i];
    if (j->changed && dra->ops.refresh)
        dra->ops.refresh(dra->data);
    j->done(j->op, result, err);
    free(j);
}

int sl_dra_mig(struct sl_dra *dra, struct op *op, struct sl_prepared *p, enum mig_work work,
               sl_dra_mig_done *done, struct sl_err *err)
{
    if (!dra->ops.submit)
        return sl_err_set(err, -EOPNOTSUPP, SL_E_MIG_NOT_MADE);
    struct mig_job *j = sl_xcalloc(1, sizeof(*j) + p->device_count * sizeof(j->device[0]));
    j->op = op;
    j->done = done;
    j->work = work;
    j->count = p->device_count;
    (void)snprintf(j->driver_root, sizeof(j->driver_root), "%s",
                   dra->driver ? dra->driver->root : "/");
    memcpy(j->uid, p->uid, sizeof(j->uid));
    memcpy(j->device, p->device, p->device_count * sizeof(j->device[0]));
    for (size_t i = 0; i < p->device_count; i++)
        j->whole_cards |= wants_card(dra, &p->device[i]);
    return submit(dra, run, back, j, &j->link, err);
}

/* --- profiles: read once for each card, they do not change --- */

struct profiles_job {
    struct dra_link *link;
    char uuid[SL_GPU_UUID_SIZE];
    struct sl_gpu_mig_profile *profile;
    size_t count;
};

static int read_profiles(struct sl_gpu *gpu, void *arg, struct sl_err *err)
{
    struct profiles_job *j = arg;
    size_t card;
    int rc = sl_devices_find(gpu, j->uuid, &card, err);
    return rc < 0 ? rc : sl_gpu_mig_profiles(gpu, card, &j->profile, &j->count, err);
}

static void got_profiles(void *arg, int result, const struct sl_err *err)
{
    struct profiles_job *j = arg;
    struct sl_dra *dra = come_back(j->link);
    struct card *c = dra ? sl_dra_card(dra, j->uuid) : NULL;
    if (c && result == 0 && !c->profile) {
        c->profile = j->profile;
        c->profile_count = j->count;
        j->profile = NULL;
    } else if (dra && result < 0) {
        sl_warn("MIG devices of %s are not offered: %s", j->uuid, err->msg);
    }
    if (dra) {
        dra->owed--;
        sl_dra_republish(dra);
    }
    free(j->profile);
    free(j);
}

void sl_dra_ask_profiles(struct sl_dra *dra)
{
    for (size_t i = 0; i < dra->card_count && dra->ops.submit; i++) {
        struct card *c = &dra->card[i];
        if (c->asked_profiles || !dra->inv->gpu[i].info.mig_capable || dra->inv->gpu[i].lost)
            continue;
        struct profiles_job *j = sl_xcalloc(1, sizeof(*j));
        memcpy(j->uuid, c->uuid, sizeof(j->uuid));
        c->asked_profiles = submit(dra, read_profiles, got_profiles, j, &j->link, NULL) == 0;
        dra->owed += c->asked_profiles;
    }
}
