/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One claim being prepared or unprepared: a few steps, each of which may have to wait. The order is what
 * makes a restart safe: what is about to be made is in the checkpoint first, and "prepared" is written
 * when all of it is there. An entry in any other state is undone at the next start.
 *
 *   prepare    GET, plan, look at MIG | write PREPARING | make MIG | write | lease | CDI | write PREPARED
 *   unprepare  write UNPREPARING | CDI | lease | MIG | drop, write
 *
 * Writes are shared: all claims that wait for one in a turn of the loop get the same.
 */
#include "agent/dra/dra_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/container/cdi.h"
#include "agent/tenant/tenancy.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/xalloc.h"

#define RETRY_NS (5 * SL_NS_PER_S)
#define TELL_NS  (20 * SL_NS_PER_MS)
#define TELL_MAX 8 /* at a time */
/* An MPS daemon that is being started: looked at again so often. Kubelet waits 45 s. */
#define MPS_NS   (100 * SL_NS_PER_MS)
#define MPS_MAX  200

struct op {
    struct op *next;        /* in dra->running */
    struct op *next_commit; /* in dra->committing */
    struct sl_dra *dra;
    enum op_kind kind;
    void (*run)(struct op *op); /* its first step */
    char name_space[64], name[SL_K8S_NAME], uid[SL_UID_SIZE];
    struct waiter *waiters;
    struct sl_kube_call *get;
    struct sl_claim *claim; /* as the API server has it; NULL: not read */
    void (*after_commit)(struct op *op);
    struct sl_tenancy tenancy;
    struct sl_tenancy_tenant *tenant; /* its list */
    struct sl_msg_lease *lease;       /* what they are asked for */
    struct sl_timer again; /* an MPS daemon is being waited for */
    unsigned waits;
    bool undoing;       /* a prepare that failed */
    int rc;             /* why */
    struct sl_err err;
};

static void unprepare(struct op *op);

static struct sl_prepared *entry(struct op *op)
{
    return sl_checkpoint_find(&op->dra->checkpoint, op->uid);
}

/* --- the end of an operation --- */

static void count(struct op *op)
{
    struct sl_dra_stats *s = &op->dra->stats;
    if (op->kind == OP_PREPARE)
        (void)(op->rc < 0 ? s->prepare_failed++ : s->prepared++);
    else
        (void)(op->rc < 0 ? s->unprepare_failed++ : s->unprepared++);
    s->claims = 0;
    for (const struct sl_prepared *p = op->dra->checkpoint.claims; p; p = p->next)
        s->claims += p->state == SL_PREPARED;
}

static void free_op(struct op *op)
{
    free(op->claim);
    free(op->tenant);
    free(op->lease);
    free(op);
}

static void end(struct op *op)
{
    struct sl_dra *dra = op->dra;
    struct op *after = NULL;
    for (struct op **p = &dra->running; *p; p = &(*p)->next)
        if (*p == op) {
            *p = op->next;
            break;
        }
    count(op);
    struct sl_prepared *p = op->kind == OP_PREPARE && op->rc == 0 ? entry(op) : NULL;
    while (op->waiters) {
        struct waiter *w = op->waiters;
        op->waiters = w->next;
        if (w->done)
            w->done(w->data, op->uid, op->rc, &op->err, p);
        free(w);
    }
    for (struct op *o = dra->running; o && !after; o = o->next)
        if (strcmp(o->uid, op->uid) == 0)
            after = o;
    if (op->kind == OP_UNPREPARE && op->rc < 0 && !dra->retry.set)
        sl_timer_set(dra->loop, &dra->retry, sl_loop_now(dra->loop) + RETRY_NS);
    free_op(op);
    if (after)
        after->run(after);
}

static void give_up(struct op *op, int rc, const struct sl_err *err)
{
    op->rc = rc;
    op->err = *err;
    end(op);
}

/* --- writing the checkpoint --- */

static void commit_fired(struct sl_timer *t)
{
    struct sl_dra *dra =
        sl_container_of(t, struct sl_dra, commit);
    struct sl_err err = SL_ERR_INIT;
    struct op *list = dra->committing;
    dra->committing = NULL;
    int rc = sl_checkpoint_save(dra->state_dir, &dra->checkpoint, &err);
    if (rc < 0)
        sl_error("the checkpoint cannot be written: %s", err.msg);
    while (list) {
        struct op *op = list;
        list = op->next_commit;
        if (rc == 0) {
            op->after_commit(op);
            continue;
        }
        /* What is not written down is not so: it is undone when the disk takes it again. */
        struct sl_prepared *p = entry(op);
        if (op->kind == OP_PREPARE && p)
            p->state = SL_PREPARING;
        if (!dra->retry.set)
            sl_timer_set(dra->loop, &dra->retry, sl_loop_now(dra->loop) + RETRY_NS);
        give_up(op, rc, &err);
    }
}

void sl_dra_mark_dirty(struct sl_dra *dra)
{
    if (!dra->commit.set)
        sl_timer_set(dra->loop, &dra->commit, sl_loop_now(dra->loop));
}

static void commit(struct op *op, void (*then)(struct op *op))
{
    op->after_commit = then;
    op->next_commit = op->dra->committing;
    op->dra->committing = op;
    sl_dra_mark_dirty(op->dra);
}

/* --- prepare --- */

/* Something went wrong after things were begun: all of it goes, then the reason is told. */
static void undo(struct op *op, int rc, const struct sl_err *err)
{
    op->rc = rc;
    op->err = *err;
    op->undoing = true;
    struct sl_prepared *p = entry(op);
    if (p) {
        sl_dra_tell(op->dra, p, true, "SluicePrepareFailed", err->msg);
        /* One that was prepared before stays so: its pod may be running. */
        if (p->state == SL_PREPARED) {
            end(op);
            return;
        }
    }
    unprepare(op);
}

static void prepared(struct op *op)
{
    SL_FAULT("dra.prepare.done");
    struct sl_prepared *p = entry(op);
    if (p) {
        p->untold = true;
        if (!op->dra->telling.set)
            sl_timer_set(op->dra->loop, &op->dra->telling, sl_loop_now(op->dra->loop) + TELL_NS);
    }
    end(op);
}

/* --- its tenants and its spec --- */

/* The tenants of the claim; to be made: with what each is asked for. */
static int list_tenants(struct op *op, bool ask, struct sl_err *err)
{
    const struct sl_prepared *p = entry(op);
    size_t n = 0;
    free(op->tenant);
    free(op->lease);
    op->tenant = sl_xcalloc(p->device_count, sizeof(*op->tenant));
    op->lease = sl_xcalloc(p->device_count, 2 * sizeof(*op->lease));
    for (size_t i = 0; i < p->device_count; i++) {
        const struct sl_claim_resize *r = &p->device[i].resized;
        bool resized = r->memory_bytes || r->cores_permille;
        struct sl_msg_lease *make = &op->lease[2 * n], *set = make + 1;
        if (!sl_dra_first_of_tenant(p, i))
            continue;
        int rc = ask ? sl_dra_compose(op->dra, p, i, false, make, err) : 0;
        if (rc == 0 && ask && resized)
            rc = sl_dra_compose(op->dra, p, i, true, set, err);
        if (rc < 0)
            return rc;
        op->tenant[n++] = (struct sl_tenancy_tenant){p->device[i].tenant, make, resized ? set : NULL};
    }
    op->tenancy.tenant = op->tenant;
    op->tenancy.count = n;
    return 0;
}

static int write_spec(void *data, struct sl_err *err)
{
    struct op *op = data;
    return sl_dra_write_cdi(op->dra, entry(op), err);
}

static int remove_spec(void *data, struct sl_err *err)
{
    const struct op *op = data;
    return sl_cdi_remove_claim(op->dra->cdi_dir, op->uid, err);
}

static const struct sl_tenancy_ops tenancy_ops = {
    .write_spec = write_spec,
    .remove_spec = remove_spec,
    .fault = {.made = SL_FAULT_NAME("dra.prepare.lease"),
              .all_made = SL_FAULT_NAME("dra.prepare.leased"),
              .written = SL_FAULT_NAME("dra.prepare.cdi"),
              .removed = SL_FAULT_NAME("dra.unprepare.cdi"),
              .unmade = SL_FAULT_NAME("dra.unprepare.lease")}};

static void made(void *data, enum sl_tenancy_step step, int rc, const struct sl_err *err)
{
    struct op *op = data;
    struct sl_prepared *p = entry(op);
    /* Undoing would end the daemon that is being waited for, and the next try begin all over. */
    if (step == SL_TENANCY_SPEC && rc == -EAGAIN && op->waits++ < MPS_MAX) {
        sl_timer_set(op->dra->loop, &op->again, sl_loop_now(op->dra->loop) + MPS_NS);
    } else if (rc < 0) {
        undo(op, rc, err);
    } else if (p->state == SL_PREPARED) { /* it was, all is there again */
        prepared(op);
    } else {
        p->state = SL_PREPARED;
        commit(op, prepared);
    }
}

static void make_tenants(struct op *op)
{
    struct sl_err err = SL_ERR_INIT;
    SL_FAULT("dra.prepare.mig");
    int rc = list_tenants(op, true, &err);
    if (rc < 0)
        undo(op, rc, &err);
    else
        sl_tenancy_make(&op->tenancy, made);
}

static void again_fired(struct sl_timer *t)
{
    struct op *op = sl_container_of(t, struct op, again);
    sl_tenancy_make(&op->tenancy, made);
}

static void mig_made(struct op *op, int rc, const struct sl_err *err)
{
    if (rc < 0)
        undo(op, rc, err);
    else
        commit(op, make_tenants);
}

static void make_mig(struct op *op)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_prepared *p = entry(op);
    SL_FAULT("dra.prepare.planned");
    if (!sl_dra_mig_needed(op->dra, p, MIG_MAKE)) {
        make_tenants(op);
        return;
    }
    int rc = sl_dra_mig(op->dra, op, p, MIG_MAKE, mig_made, &err);
    if (rc < 0)
        undo(op, rc, &err);
}

static void looked(struct op *op, int rc, const struct sl_err *err)
{
    if (rc < 0)
        undo(op, rc, err);
    else
        commit(op, make_mig);
}

/* For people who wait for their pod: said on it, once per text by whoever counts events. */
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
    give_up(op, rc, err);
}

/* The claim is known, and who uses what of it. */
static void plan(struct op *op)
{
    struct sl_dra *dra = op->dra;
    struct sl_err why = SL_ERR_INIT;
    int rc = 0;
    struct sl_prepared *p = sl_dra_plan(dra, op->claim, &why);
    if (!p)
        refuse(op, why.code, &why);
    else if (!sl_dra_mig_needed(dra, p, MIG_LOOK))
        commit(op, make_mig);
    else if ((rc = sl_dra_mig(dra, op, p, MIG_LOOK, looked, &why)) < 0)
        undo(op, rc, &why);
}

static void got_pod(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct op *op = data;
    op->get = NULL;
    if (status == 200) {
        sl_claim_join(op->claim, body);
        plan(op);
        return;
    }
    struct sl_err why = SL_ERR_INIT;
    int rc = sl_err_set(&why, -EIO, "pod %s/%.100s cannot be read, to see which container uses what: %s",
                        op->name_space, op->claim->pod, err->msg);
    give_up(op, rc, &why);
}

static void got_claim(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct op *op = data;
    struct sl_dra *dra = op->dra;
    struct sl_err why = SL_ERR_INIT;
    op->get = NULL;
    if (status != 200) {
        int code = status == 404 ? -ENOENT : -EIO;
        (void)sl_err_set(&why, code, "claim %s/%s cannot be read: %s", op->name_space, op->name,
                         err->msg);
        give_up(op, code, &why);
        return;
    }
    struct sl_claim *claim = sl_xcalloc(1, sizeof(*claim));
    op->claim = claim;
    int rc = sl_claim_parse(body, SL_DRA_DRIVER, dra->node_name, op->uid, claim, &why);
    if (rc < 0) {
        refuse(op, rc, &why);
        return;
    }
    if (!sl_claim_several(claim) || !claim->pod[0]) {
        plan(op);
        return;
    }
    char path[400];
    (void)snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s", claim->name_space, claim->pod);
    rc = sl_kube_request(dra->kube, "GET", path, NULL, NULL, got_pod, op, &op->get, &why);
    if (rc < 0)
        refuse(op, rc, &why);
}

static void prepare(struct op *op)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_dra *dra = op->dra;
    struct sl_prepared *p = entry(op);
    char path[400];
    int rc = 0;
    if (!dra->inv || !dra->driver)
        rc = sl_err_set(&err, -EAGAIN, "the node agent is still reading its GPUs");
    else if (p && p->state != SL_PREPARED)
        rc = sl_err_set(&err, -EAGAIN, "what an earlier attempt left is still being undone");
    else if (!p && !dra->kube)
        rc = sl_err_set(&err, -ENOTCONN, "the node agent has no connection to the API server");
    if (rc < 0) {
        give_up(op, rc, &err);
        return;
    }
    if (p) {
        make_tenants(op);
        return;
    }
    (void)snprintf(path, sizeof(path), SL_CLAIMS_PATH, op->name_space, op->name);
    rc = sl_kube_request(dra->kube, "GET", path, NULL, NULL, got_claim, op, &op->get, &err);
    if (rc < 0)
        give_up(op, rc, &err);
}

/* --- unprepare --- */

static void gone(struct op *op)
{
    SL_FAULT("dra.unprepare.done");
    end(op);
}

static void drop(struct op *op)
{
    struct sl_dra *dra = op->dra;
    struct sl_prepared *p = entry(op);
    SL_FAULT("dra.unprepare.mig");
    if (!p) {
        end(op);
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
    commit(op, gone);
}

/* A prepare being undone keeps its own reason. */
static void stuck(struct op *op, int rc, const struct sl_err *err)
{
    sl_warn("claim %s is not gone yet: %s", op->uid, err->msg);
    struct sl_prepared *p = entry(op);
    if (p)
        p->state = SL_UNPREPARING;
    if (op->undoing) {
        if (!op->dra->retry.set)
            sl_timer_set(op->dra->loop, &op->dra->retry, sl_loop_now(op->dra->loop) + RETRY_NS);
        end(op);
        return;
    }
    give_up(op, rc, err);
}

static void mig_unmade(struct op *op, int rc, const struct sl_err *err)
{
    if (rc < 0)
        stuck(op, rc, err);
    else
        drop(op);
}

static void unmade(void *data, enum sl_tenancy_step step, int rc, const struct sl_err *err)
{
    struct op *op = data;
    struct sl_err why = SL_ERR_INIT;
    (void)step;
    if (rc < 0)
        stuck(op, rc, err);
    else if (!sl_dra_mig_needed(op->dra, entry(op), MIG_UNMAKE))
        drop(op);
    else if ((rc = sl_dra_mig(op->dra, op, entry(op), MIG_UNMAKE, mig_unmade, &why)) < 0)
        stuck(op, rc, &why);
}

static void unmake_tenants(struct op *op)
{
    SL_FAULT("dra.unprepare.begun");
    (void)!list_tenants(op, false, NULL);
    sl_tenancy_unmake(&op->tenancy, unmade);
}

static void unprepare(struct op *op)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_prepared *p = entry(op);
    sl_dra_resize_unwatch(op->dra, op->uid);
    if (!p) { /* never heard of it, or long gone */
        int rc = sl_cdi_remove_claim(op->dra->cdi_dir, op->uid, &err);
        if (rc < 0)
            stuck(op, rc, &err);
        else
            end(op);
        return;
    }
    /* PREPARING on disk is undone at a restart as it is. */
    bool written = p->state != SL_PREPARED;
    p->state = SL_UNPREPARING;
    if (written)
        unmake_tenants(op);
    else
        commit(op, unmake_tenants);
}

/* --- beginning --- */

static void retry_fired(struct sl_timer *t);

/* The API server hears of it when kubelet has its answers: containers do not wait for that. */
static void tell_fired(struct sl_timer *t)
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
        sl_dra_status_write(dra, p, "Ready", true, "Prepared", "");
        sl_dra_resize_watch(dra, p);
    }
    sl_dra_health_send(dra);
}

void sl_dra_prepare_init(struct sl_dra *dra)
{
    dra->telling.fire = tell_fired;
    dra->commit.fire = commit_fired;
    dra->retry.fire = retry_fired;
}

void sl_dra_begin(struct sl_dra *dra, enum op_kind kind, const char *name_space, const char *name,
                  const char *uid, sl_dra_op_done *done, void *data)
{
    struct op *last = NULL, **end_of = &dra->running;
    for (; *end_of; end_of = &(*end_of)->next)
        if (strcmp((*end_of)->uid, uid) == 0)
            last = *end_of;
    struct waiter *w = sl_xcalloc(1, sizeof(*w));
    struct op *op =
        last && last->kind == kind && !last->undoing ? last : sl_xcalloc(1, sizeof(*op));
    *w = (struct waiter){.done = done, .data = data, .next = op->waiters};
    op->waiters = w;
    if (op == last)
        return;
    op->dra = dra;
    op->tenancy =
        (struct sl_tenancy){.leases = dra->leases, .ops = &tenancy_ops, .data = op};
    op->again.fire = again_fired;
    op->kind = kind;
    op->run = kind == OP_PREPARE ? prepare : unprepare;
    (void)snprintf(op->name_space, sizeof(op->name_space), "%s", name_space);
    (void)snprintf(op->name, sizeof(op->name), "%s", name);
    (void)snprintf(op->uid, sizeof(op->uid), "%s", uid);
    *end_of = op;
    if (!last)
        op->run(op);
}

/* --- after a restart --- */

static void swept_one(void *data, int rc, const char *text, const struct sl_err *err)
{
    (void)data;
    (void)text;
    if (rc < 0)
        sl_warn("a tenant that was left over stays: %s", err->msg);
}

/* Tenants of claims that are not in the checkpoint. */
static void swept(void *data, struct sl_client_status *status, const struct sl_err *err)
{
    struct sl_dra *dra = data;
    char claim[SL_UID_SIZE];
    if (!status) {
        sl_warn("left-over tenants are not looked for: %s", err->msg);
        return;
    }
    for (size_t i = 0; i < status->tenant_count; i++) {
        const struct sl_msg_tenant *t = &status->tenant[i];
        if ((t->flags & SL_LEASE_KEEP) && sl_client_about(t->about, "uid", claim, sizeof(claim)) &&
            !sl_checkpoint_find(&dra->checkpoint, claim))
            sl_leases_remove(dra->leases, t->name, swept_one, NULL);
    }
    sl_client_status_free(status);
}

static void sweep(struct sl_dra *dra)
{
    char **claims = NULL;
    size_t n = 0;
    struct sl_err err = SL_ERR_INIT;
    /* What a damaged checkpoint does not tell may be in use: only a good one is the whole truth. */
    if (dra->checkpoint.doubtful)
        return;
    if (sl_cdi_list_claims(dra->cdi_dir, &claims, &n, &err) < 0)
        sl_warn("left-over CDI specs are not looked for: %s", err.msg);
    for (size_t i = 0; i < n; i++)
        if (!sl_checkpoint_find(&dra->checkpoint, claims[i]) &&
            sl_cdi_remove_claim(dra->cdi_dir, claims[i], &err) < 0)
            sl_warn("a CDI spec that was left over stays: %s", err.msg);
    sl_cdi_free_claims(claims, n);
    sl_leases_status(dra->leases, swept, dra);
}

static void recover_entries(struct sl_dra *dra, bool prepared_too)
{
    /* Operations change the list: by name, from a copy. */
    size_t n = 0;
    for (const struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next)
        n++;
    char(*uid)[SL_UID_SIZE] = sl_xcalloc(n, sizeof(*uid));
    size_t i = 0;
    for (const struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next)
        memcpy(uid[i++], p->uid, SL_UID_SIZE);
    for (i = 0; i < n; i++) {
        struct sl_prepared *p = sl_checkpoint_find(&dra->checkpoint, uid[i]);
        if (!p || (p->state == SL_PREPARED && !prepared_too))
            continue;
        bool busy = false;
        for (const struct op *o = dra->running; o; o = o->next)
            busy |= strcmp(o->uid, uid[i]) == 0;
        if (!busy)
            sl_dra_begin(dra, p->state == SL_PREPARED ? OP_PREPARE : OP_UNPREPARE, p->name_space,
                         p->name, uid[i], NULL, NULL);
    }
    free(uid);
}

static void retry_fired(struct sl_timer *t)
{
    struct sl_dra *dra = sl_container_of(t, struct sl_dra, retry);
    recover_entries(dra, false);
}

void sl_dra_recover(struct sl_dra *dra)
{
    if (dra->recovered)
        return;
    dra->recovered = true;
    recover_entries(dra, true);
    sweep(dra);
}

void sl_dra_forget_ops(struct sl_dra *dra)
{
    sl_timer_stop(dra->loop, &dra->commit);
    sl_timer_stop(dra->loop, &dra->retry);
    sl_timer_stop(dra->loop, &dra->telling);
    while (dra->running) {
        struct op *op = dra->running;
        dra->running = op->next;
        if (op->get)
            sl_kube_cancel(op->get);
        sl_timer_stop(dra->loop, &op->again);
        while (op->waiters) {
            struct waiter *w = op->waiters;
            op->waiters = w->next;
            struct sl_err err = SL_ERR_INIT;
            int rc = sl_err_set(&err, -ECANCELED, "the node agent is ending");
            if (w->done)
                w->done(w->data, op->uid, rc, &err, NULL);
            free(w);
        }
        free_op(op);
    }
}
