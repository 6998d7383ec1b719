/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of preparing and of unpreparing a claim; the order is in dra_op.c. */
#include "agent/dra/dra_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "container/cdi.h"
#include "agent/dra/errors.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/xalloc.h"

#define TELL_NS  (20 * SL_NS_PER_MS)
#define TELL_MAX 8 /* claims at a time */
/* How often to check an MPS daemon that is starting. Kubelet waits 45 s. */
#define MPS_NS   (100 * SL_NS_PER_MS)
#define MPS_MAX  200

/* A failure after the first step: undoes everything, then reports the reason. */
static void undo(struct op *op, int rc, const struct sl_err *err)
{
    op->rc = rc;
    op->err = *err;
    op->undoing = true;
    struct sl_prepared *p = sl_dra_op_entry(op);
    if (p) {
        sl_dra_tell(op->dra, p, true, "SluicePrepareFailed", err->msg);
        /* A claim that was prepared before stays prepared: its pod may be running. */
        if (p->state == SL_PREPARED) {
            sl_dra_op_end(op);
            return;
        }
    }
    sl_dra_op_unprepare(op);
}

static void go_on(struct op *op);

static void tenants_made(void *data, int rc, const char *text, const struct sl_err *why)
{
    struct op *op = data;
    struct sl_prepared *p = sl_dra_op_entry(op);
    /* Undoing would end the daemon that we wait for, and the next attempt would start it again. */
    if (rc == -EAGAIN && !text && op->waits++ < MPS_MAX) {
        sl_timer_set(op->dra->loop, &op->again, sl_loop_now(op->dra->loop) + MPS_NS);
        return;
    }
    if (rc < 0) {
        undo(op, rc, why);
        return;
    }
    op->step = OP_DONE;
    if (p->state == SL_PREPARED) { /* it was prepared, and all is there again */
        go_on(op);
        return;
    }
    p->state = SL_PREPARED;
    sl_dra_op_commit(op, go_on);
}

/* The checkpoint gets the results before the next step. */
static void mig_done(struct op *op, int rc, const struct sl_err *err)
{
    if (rc < 0) {
        undo(op, rc, err);
        return;
    }
    op->step++;
    sl_dra_op_commit(op, go_on);
}

/* Takes the next step. A step that has to wait comes back through one of the two functions above. */
static void go_on(struct op *op)
{
    struct sl_dra *dra = op->dra;
    struct sl_err err = SL_ERR_INIT;
    struct sl_prepared *p = sl_dra_op_entry(op);
    int rc = 0;
    switch (op->step) {
    case OP_LOOK_AT_MIG:
        rc = sl_dra_mig(dra, op, p, MIG_LOOK, mig_done, &err);
        break;
    case OP_MAKE_MIG:
        SL_FAULT("dra.prepare.planned");
        if (sl_dra_mig_needed(dra, p, MIG_MAKE)) {
            rc = sl_dra_mig(dra, op, p, MIG_MAKE, mig_done, &err);
            break;
        }
        op->step = OP_MAKE_TENANTS;
        __attribute__((fallthrough));
    case OP_MAKE_TENANTS:
        SL_FAULT("dra.prepare.mig");
        rc = sl_dra_op_list_tenants(op, true, &err);
        if (rc == 0)
            sl_leases_tenancy(dra->leases,
                              &(struct sl_tenancy){true, op->item, op->item_count,
                                                   sl_dra_write_spec,
                                                   SL_FAULT_NAME("dra.prepare.leased"),
                                                   SL_FAULT_NAME("dra.prepare.cdi")},
                              tenants_made, op);
        break;
    case OP_DONE:
        SL_FAULT("dra.prepare.done");
        p->untold = true;
        if (!dra->telling.set)
            sl_timer_set(dra->loop, &dra->telling, sl_loop_now(dra->loop) + TELL_NS);
        sl_dra_op_end(op);
    }
    if (rc < 0)
        undo(op, rc, &err);
}

void sl_dra_op_wait_fired(struct sl_timer *t)
{
    go_on(sl_container_of(t, struct op, again));
}

/* For people who wait for their pod: an event on it. Equal events are counted, not repeated. */
static void refuse(struct op *op, int rc, const struct sl_err *err)
{
    struct sl_prepared p = {0};
    (void)snprintf(p.name_space, sizeof(p.name_space), "%s", op->name_space);
    (void)snprintf(p.name, sizeof(p.name), "%s", op->name);
    (void)snprintf(p.uid, sizeof(p.uid), "%s", op->uid);
    (void)snprintf(p.pod, sizeof(p.pod), "%s", op->claim->pod);
    (void)snprintf(p.pod_uid, sizeof(p.pod_uid), "%s", op->claim->pod_uid);
    sl_dra_tell(op->dra, &p, true,
                rc == -EINVAL  ? "SluiceConfigInvalid"
                : rc == -EPERM ? "SluiceNotAllowed"
                               : "SluicePrepareFailed",
                err->msg);
    sl_dra_op_give_up(op, rc, err);
}

/* The claim is known, and which container uses which request. */
static void plan(struct op *op)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_prepared *p = sl_dra_plan(op->dra, op->claim, &err);
    if (!p) {
        refuse(op, err.code, &err);
        return;
    }
    bool look = sl_dra_mig_needed(op->dra, p, MIG_LOOK);
    op->step = look ? OP_LOOK_AT_MIG : OP_MAKE_MIG;
    if (look)
        go_on(op);
    else
        sl_dra_op_commit(op, go_on);
}

/* Does a container hold it as one tenant: a share, or a card by MPS? */
static bool holds_share(const struct sl_prepared_device *d)
{
    return (d->share_id[0] || d->share.strategy == SL_SHARE_MPS) && !d->admin;
}

/* May a container not have both? It has the directory of one tenant, and of one MPS daemon. */
static bool excludes(const struct sl_claim_result *r, const struct sl_prepared_device *d)
{
    bool mps = r->share.strategy == SL_SHARE_MPS && d->share.strategy == SL_SHARE_MPS;
    return !r->admin && !d->admin && (mps || (r->share_id[0] && d->share_id[0]));
}

/* The next claim after `p` (NULL: the first) that the same pod has, and that has a share. */
static const struct sl_prepared *next_of_pod(const struct op *op, const struct sl_prepared *p)
{
    for (p = p ? p->next : op->dra->checkpoint.claims; p; p = p->next) {
        if (strcmp(p->uid, op->uid) == 0 || !op->claim->pod_uid[0] ||
            strcmp(p->pod_uid, op->claim->pod_uid) != 0)
            continue;
        for (size_t i = 0; i < p->device_count; i++)
            if (holds_share(&p->device[i]))
                return p;
    }
    return NULL;
}

/* A container has one tenant's directory: with two claims it would be held to one of them, and charged for both. */
static int check_other_claims(struct op *op, const json_t *pod, struct sl_err *err)
{
    const struct sl_claim *claim = op->claim;
    for (const struct sl_prepared *p = next_of_pod(op, NULL); p; p = next_of_pod(op, p))
        for (size_t i = 0; i < claim->result_count; i++)
            for (size_t k = 0; k < p->device_count; k++) {
                const struct sl_claim_result *r = &claim->result[i];
                if (!excludes(r, &p->device[k]))
                    continue;
                const char *container =
                    sl_claim_meeting(pod, claim->name, r->request, p->name, p->device[k].request);
                if (container)
                    return sl_err_set(err, -EINVAL, SL_E_CLAIM_TWO_SHARES, container, p->name,
                                      claim->name);
            }
    return 0;
}

static void got_pod(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct op *op = data;
    op->get = NULL;
    struct sl_err why = SL_ERR_INIT;
    int rc;
    if (status == 200) {
        sl_claim_join(op->claim, body);
        rc = check_other_claims(op, body, &why);
        if (rc < 0)
            refuse(op, rc, &why);
        else
            plan(op);
        return;
    }
    rc = sl_err_set(&why, -EIO, SL_E_POD_UNREAD, op->name_space, op->claim->pod, err->msg);
    sl_dra_op_give_up(op, rc, &why);
}

static void got_claim(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct op *op = data;
    struct sl_dra *dra = op->dra;
    struct sl_err why = SL_ERR_INIT;
    op->get = NULL;
    if (status != 200) {
        int code = status == 404 ? -ENOENT : -EIO;
        (void)sl_err_set(&why, code, SL_E_CLAIM_UNREAD, op->name_space, op->name, err->msg);
        sl_dra_op_give_up(op, code, &why);
        return;
    }
    struct sl_claim *claim = sl_xcalloc(1, sizeof(*claim));
    op->claim = claim;
    int rc = sl_claim_parse(body, &dra->opt.names, dra->opt.node_name, op->uid, claim, &why);
    if (rc < 0) {
        refuse(op, rc, &why);
        return;
    }
    if ((!sl_claim_several(claim) && !next_of_pod(op, NULL)) || !claim->pod[0]) {
        plan(op);
        return;
    }
    char path[400];
    (void)snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s", claim->name_space,
                   claim->pod);
    rc = sl_kube_request(dra->kube, "GET", path, NULL, NULL, got_pod, op, &op->get, &why);
    if (rc < 0)
        refuse(op, rc, &why);
}

void sl_dra_op_prepare(struct op *op)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_dra *dra = op->dra;
    struct sl_prepared *p = sl_dra_op_entry(op);
    char path[400];
    int rc = 0;
    if (p ? !sl_dra_knows(dra, p) : (!dra->inv || !dra->driver) && !dra->vm)
        rc = sl_err_set(&err, -EAGAIN, SL_E_DRA_READING);
    else if (p && p->state != SL_PREPARED)
        rc = sl_err_set(&err, -EAGAIN, SL_E_DRA_UNDOING);
    else if (!p && !dra->kube)
        rc = sl_err_set(&err, -ENOTCONN, SL_E_DRA_NO_API);
    if (rc < 0) {
        sl_dra_op_give_up(op, rc, &err);
        return;
    }
    if (p) {
        /* A reboot ends intervals of time-slicing. */
        op->step = OP_MAKE_TENANTS;
        for (size_t i = 0; i < p->device_count; i++)
            if (p->device[i].timeslice)
                op->step = OP_MAKE_MIG;
        go_on(op);
        return;
    }
    (void)snprintf(path, sizeof(path), SL_CLAIMS_PATH, op->name_space, op->name);
    rc = sl_kube_request(dra->kube, "GET", path, NULL, NULL, got_claim, op, &op->get, &err);
    if (rc < 0)
        sl_dra_op_give_up(op, rc, &err);
}

/* Writes the status after kubelet has its answers: containers do not wait for it. */
void sl_dra_tell_fired(struct sl_timer *t)
{
    struct sl_dra *dra = sl_container_of(t, struct sl_dra, telling);
    int told = 0;
    for (struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next) {
        if (!p->untold || p->state != SL_PREPARED)
            continue;
        if (told++ == TELL_MAX) {
            sl_timer_set(dra->loop, t, sl_loop_now(dra->loop) + TELL_NS);
            break;
        }
        p->untold = false;
        sl_dra_status_write(dra, p, NULL, true, "");
        sl_dra_resize_watch(dra, p);
    }
    sl_dra_health_send(dra);
}

/* --- unpreparing, and undoing a prepare that failed --- */

static void entry_dropped(struct op *op)
{
    SL_FAULT("dra.unprepare.done");
    sl_dra_op_end(op);
}

static void drop_entry(struct op *op)
{
    struct sl_dra *dra = op->dra;
    struct sl_prepared *p = sl_dra_op_entry(op);
    SL_FAULT("dra.unprepare.mig");
    if (!p) {
        sl_dra_op_end(op);
        return;
    }
    for (size_t i = 0; i < p->device_count && dra->ops.mps_done; i++) {
        bool used = p->device[i].share.strategy != SL_SHARE_MPS;
        for (const struct sl_prepared *o = dra->checkpoint.claims; o && !used; o = o->next)
            for (size_t k = 0; o != p && k < o->device_count; k++)
                used |= o->device[k].share.strategy == SL_SHARE_MPS &&
                        strcmp(o->device[k].share.gpu, p->device[i].share.gpu) == 0;
        if (!used)
            dra->ops.mps_done(dra->data, p->device[i].share.gpu);
    }
    sl_checkpoint_drop(&dra->checkpoint, p);
    sl_dra_op_commit(op, entry_dropped);
}

/* A prepare that is being undone keeps its own reason. */
static void undo_failed(struct op *op, int rc, const struct sl_err *err)
{
    sl_warn("cannot remove claim %s yet: %s", op->uid, err->msg);
    struct sl_prepared *p = sl_dra_op_entry(op);
    if (p)
        p->state = SL_UNPREPARING;
    if (op->undoing) {
        sl_dra_retry_soon(op->dra);
        sl_dra_op_end(op);
        return;
    }
    sl_dra_op_give_up(op, rc, err);
}

static void mig_unmade(struct op *op, int rc, const struct sl_err *err)
{
    if (rc < 0)
        undo_failed(op, rc, err);
    else
        drop_entry(op);
}

static void unmade(void *data, int rc, const char *text, const struct sl_err *err)
{
    struct op *op = data;
    struct sl_err why = SL_ERR_INIT;
    (void)text;
    if (rc < 0)
        undo_failed(op, rc, err);
    else if (!sl_dra_mig_needed(op->dra, sl_dra_op_entry(op), MIG_UNMAKE))
        drop_entry(op);
    else if ((rc = sl_dra_mig(op->dra, op, sl_dra_op_entry(op), MIG_UNMAKE, mig_unmade, &why)) < 0)
        undo_failed(op, rc, &why);
}

static int remove_spec(void *data, struct sl_err *err)
{
    struct op *op = data;
    int rc = sl_cdi_remove(op->dra->opt.cdi_dir, SL_CDI_CLAIM, op->uid, err);
    if (rc == 0) /* the spec mounts it */
        sl_dra_metadata_remove(op->dra, op->uid);
    return rc;
}

static void unmake_tenants(struct op *op)
{
    SL_FAULT("dra.unprepare.begun");
    (void)!sl_dra_op_list_tenants(op, false, NULL);
    sl_leases_tenancy(op->dra->leases,
                      &(struct sl_tenancy){false, op->item, op->item_count, remove_spec, NULL,
                                           SL_FAULT_NAME("dra.unprepare.cdi")},
                      unmade, op);
}

void sl_dra_op_unprepare(struct op *op)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_prepared *p = sl_dra_op_entry(op);
    sl_dra_resize_unwatch(op->dra, op->uid);
    if (!p) { /* unknown, or unprepared already */
        int rc = remove_spec(op, &err);
        if (rc < 0)
            undo_failed(op, rc, &err);
        else
            sl_dra_op_end(op);
        return;
    }
    /* PREPARING on disk is undone at a restart anyway: no write is needed. */
    bool written = p->state != SL_PREPARED;
    p->state = SL_UNPREPARING;
    if (written)
        unmake_tenants(op);
    else
        sl_dra_op_commit(op, unmake_tenants);
}
