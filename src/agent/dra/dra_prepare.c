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
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"

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
    char name_space[64], name[SL_K8S_NAME], uid[SL_UID_SIZE];
    struct waiter *waiters;
    struct sl_kube_call *get;
    struct sl_claim *claim; /* while its pod is being read */
    void (*after_commit)(struct op *op);
    size_t at;          /* the device whose tenant is next */
    struct sl_timer again; /* an MPS daemon is being waited for */
    unsigned waits;
    bool undoing;       /* a prepare that failed */
    int rc;             /* why */
    struct sl_err err;
};

static void start(struct op *op);
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
    free(op);
    if (after)
        start(after);
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
        (struct sl_dra *)(void *)((char *)t - offsetof(struct sl_dra, commit));
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

static void write_cdi(struct op *op)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_prepared *p = entry(op);
    SL_FAULT("dra.prepare.leased");
    int rc = sl_dra_write_cdi(op->dra, p, &err);
    /* Undoing would end the daemon that is being waited for, and the next try begin all over. */
    if (rc == -EAGAIN && op->waits++ < MPS_MAX) {
        sl_timer_set(op->dra->loop, &op->again, sl_loop_now(op->dra->loop) + MPS_NS);
        return;
    }
    if (rc < 0) {
        undo(op, rc, &err);
        return;
    }
    SL_FAULT("dra.prepare.cdi");
    if (p->state == SL_PREPARED) { /* it was, all is there again */
        prepared(op);
        return;
    }
    p->state = SL_PREPARED;
    commit(op, prepared);
}

static void again_fired(struct sl_timer *t)
{
    write_cdi((struct op *)(void *)((char *)t - offsetof(struct op, again)));
}

static void lease_next(struct op *op);

static void resized_again(void *data, int rc, const char *text, const struct sl_err *err)
{
    struct op *op = data;
    (void)text;
    if (rc < 0)
        undo(op, rc, err);
    else
        lease_next(op);
}

static void leased(void *data, int rc, const char *text, const struct sl_err *err)
{
    struct op *op = data;
    (void)text;
    if (rc < 0) {
        undo(op, rc, err);
        return;
    }
    SL_FAULT("dra.prepare.lease");
    struct sl_prepared *p = entry(op);
    struct sl_prepared_device *d = &p->device[op->at];
    op->at++;
    if (!d->resized_memory_bytes && !d->resized_cores_permille) {
        lease_next(op);
        return;
    }
    /* The arbiter may have lost what was changed since (a reboot): said again. */
    struct sl_msg_lease set;
    sl_dra_lease_now(p, op->at - 1, &set);
    sl_leases_set(op->dra->leases, &set, resized_again, op);
}

static void lease_next(struct op *op)
{
    struct sl_prepared *p = entry(op);
    struct sl_msg_lease ask;
    while (op->at < p->device_count && !sl_dra_first_of_tenant(p, op->at))
        op->at++;
    if (op->at == p->device_count) {
        write_cdi(op);
        return;
    }
    (void)sl_dra_lease(p, op->at, &ask);
    ask.flags |= sl_dra_compute(op->dra);
    sl_leases_make(op->dra->leases, &ask, leased, op);
}

static void begin_leases(struct op *op)
{
    SL_FAULT("dra.prepare.mig");
    op->at = 0;
    lease_next(op);
}

static void mig_made(struct op *op, int rc, const struct sl_err *err)
{
    if (rc < 0)
        undo(op, rc, err);
    else
        commit(op, begin_leases);
}

static void make_mig(struct op *op)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_prepared *p = entry(op);
    SL_FAULT("dra.prepare.planned");
    if (!sl_dra_mig_needed(op->dra, p, MIG_MAKE)) {
        begin_leases(op);
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
static void refuse(struct op *op, const struct sl_claim *c, int rc, const struct sl_err *err)
{
    struct sl_prepared p = {0};
    (void)snprintf(p.name_space, sizeof(p.name_space), "%s", op->name_space);
    (void)snprintf(p.name, sizeof(p.name), "%s", op->name);
    (void)snprintf(p.uid, sizeof(p.uid), "%s", op->uid);
    (void)snprintf(p.pod, sizeof(p.pod), "%s", c->pod);
    (void)snprintf(p.pod_uid, sizeof(p.pod_uid), "%s", c->pod_uid);
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
    struct sl_claim *claim = op->claim;
    op->claim = NULL;
    int rc = 0;
    struct sl_prepared *p = sl_dra_plan(dra, claim, &why);
    if (!p)
        refuse(op, claim, why.code, &why);
    else if (!sl_dra_mig_needed(dra, p, MIG_LOOK))
        commit(op, make_mig);
    else if ((rc = sl_dra_mig(dra, op, p, MIG_LOOK, looked, &why)) < 0)
        undo(op, rc, &why);
    free(claim);
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
    free(op->claim);
    op->claim = NULL;
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
    struct sl_claim *claim = calloc(1, sizeof(*claim));
    int rc = claim ? sl_claim_parse(body, SL_DRA_DRIVER, dra->node_name, op->uid, claim, &why)
                   : sl_err_set(&why, -ENOMEM, "out of memory");
    if (rc < 0) {
        refuse(op, claim ? claim : &(struct sl_claim){0}, rc, &why);
        free(claim);
        return;
    }
    op->claim = claim;
    if (!sl_claim_several(claim) || !claim->pod[0]) {
        plan(op);
        return;
    }
    char path[400];
    (void)snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s", claim->name_space, claim->pod);
    rc = sl_kube_request(dra->kube, "GET", path, NULL, NULL, got_pod, op, &op->get, &why);
    if (rc < 0) {
        refuse(op, claim, rc, &why);
        free(claim);
    }
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
        begin_leases(op);
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
        bool used = p->device[i].config.strategy != SL_SHARE_MPS;
        for (const struct sl_prepared *o = dra->checkpoint.claims; o && !used; o = o->next)
            for (size_t k = 0; o != p && k < o->device_count; k++)
                used |= o->device[k].config.strategy == SL_SHARE_MPS &&
                        strcmp(o->device[k].gpu_uuid, p->device[i].gpu_uuid) == 0;
        if (!used)
            dra->ops.mps_done(dra->data, p->device[i].gpu_uuid);
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

static void unlease_next(struct op *op);

static void unleased(void *data, int rc, const char *text, const struct sl_err *err)
{
    struct op *op = data;
    (void)text;
    if (rc < 0) {
        stuck(op, rc, err);
        return;
    }
    SL_FAULT("dra.unprepare.lease");
    op->at++;
    unlease_next(op);
}

static void unlease_next(struct op *op)
{
    struct sl_prepared *p = entry(op);
    struct sl_err err = SL_ERR_INIT;
    while (op->at < p->device_count && !sl_dra_first_of_tenant(p, op->at))
        op->at++;
    if (op->at < p->device_count) {
        sl_leases_remove(op->dra->leases, p->device[op->at].tenant, unleased, op);
        return;
    }
    if (!sl_dra_mig_needed(op->dra, p, MIG_UNMAKE)) {
        drop(op);
        return;
    }
    int rc = sl_dra_mig(op->dra, op, p, MIG_UNMAKE, mig_unmade, &err);
    if (rc < 0)
        stuck(op, rc, &err);
}

static void take_down(struct op *op)
{
    struct sl_err err = SL_ERR_INIT;
    SL_FAULT("dra.unprepare.begun");
    int rc = sl_cdi_remove_claim(op->dra->cdi_dir, op->uid, &err);
    if (rc < 0) {
        stuck(op, rc, &err);
        return;
    }
    SL_FAULT("dra.unprepare.cdi");
    op->at = 0;
    unlease_next(op);
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
        take_down(op);
    else
        commit(op, take_down);
}

/* --- beginning --- */

static void start(struct op *op)
{
    if (op->kind == OP_PREPARE)
        prepare(op);
    else
        unprepare(op);
}

static void retry_fired(struct sl_timer *t);

/* The API server hears of it when kubelet has its answers: containers do not wait for that. */
static void tell_fired(struct sl_timer *t)
{
    struct sl_dra *dra = (struct sl_dra *)(void *)((char *)t - offsetof(struct sl_dra, telling));
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
    struct waiter *w = calloc(1, sizeof(*w));
    struct op *op = last && last->kind == kind && !last->undoing ? last : calloc(1, sizeof(*op));
    if (!w || !op) {
        struct sl_err err = SL_ERR_INIT;
        int rc = sl_err_set(&err, -ENOMEM, "out of memory");
        if (op != last)
            free(op);
        free(w);
        if (done)
            done(data, uid, rc, &err, NULL);
        return;
    }
    *w = (struct waiter){.done = done, .data = data, .next = op->waiters};
    op->waiters = w;
    if (op == last)
        return;
    op->dra = dra;
    op->again.fire = again_fired;
    op->kind = kind;
    (void)snprintf(op->name_space, sizeof(op->name_space), "%s", name_space);
    (void)snprintf(op->name, sizeof(op->name), "%s", name);
    (void)snprintf(op->uid, sizeof(op->uid), "%s", uid);
    *end_of = op;
    if (!last)
        start(op);
}

/* --- after a restart --- */

/* Tenants of claims that are not in the checkpoint. */
struct sweep {
    struct sl_dra *dra;
    char (*name)[SL_NAME_MAX];
    size_t count;
};

static void sweep_tenant(void *data, const struct sl_msg_tenant *t)
{
    struct sweep *s = data;
    const char *uid = strstr(t->about, " uid=");
    char claim[SL_UID_SIZE];
    if (!(t->flags & SL_LEASE_KEEP) || !uid)
        return;
    (void)snprintf(claim, sizeof(claim), "%.*s", (int)strcspn(uid + 5, " "), uid + 5);
    if (sl_checkpoint_find(&s->dra->checkpoint, claim))
        return;
    void *grown = realloc(s->name, (s->count + 1) * sizeof(*s->name));
    if (!grown)
        return;
    s->name = grown;
    memcpy(s->name[s->count++], t->name, SL_NAME_MAX);
}

static void swept_one(void *data, int rc, const char *text, const struct sl_err *err)
{
    (void)data;
    (void)text;
    if (rc < 0)
        sl_warn("a tenant that was left over stays: %s", err->msg);
}

static void swept(void *data, int rc, const char *text, const struct sl_err *err)
{
    struct sweep *s = data;
    (void)text;
    if (rc < 0)
        sl_warn("left-over tenants are not looked for: %s", err->msg);
    for (size_t i = 0; i < s->count; i++)
        sl_leases_remove(s->dra->leases, s->name[i], swept_one, NULL);
    s->dra->sweep = NULL;
    free(s->name);
    free(s);
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
    struct sweep *s = calloc(1, sizeof(*s));
    if (!s)
        return;
    s->dra = dra;
    dra->sweep = s;
    sl_leases_list(dra->leases, sweep_tenant, swept, s);
}

static void recover_entries(struct sl_dra *dra, bool prepared_too)
{
    /* Operations change the list: by name, from a copy. */
    size_t n = 0;
    for (const struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next)
        n++;
    char(*uid)[SL_UID_SIZE] = calloc(n ? n : 1, sizeof(*uid));
    size_t i = 0;
    for (const struct sl_prepared *p = dra->checkpoint.claims; uid && p; p = p->next)
        memcpy(uid[i++], p->uid, SL_UID_SIZE);
    for (i = 0; uid && i < n; i++) {
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
    struct sl_dra *dra = (struct sl_dra *)(void *)((char *)t - offsetof(struct sl_dra, retry));
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
    if (dra->sweep)
        free(dra->sweep->name);
    free(dra->sweep);
    while (dra->running) {
        struct op *op = dra->running;
        dra->running = op->next;
        if (op->get)
            sl_kube_cancel(op->get);
        sl_timer_stop(dra->loop, &op->again);
        free(op->claim);
        while (op->waiters) {
            struct waiter *w = op->waiters;
            op->waiters = w->next;
            struct sl_err err = SL_ERR_INIT;
            int rc = sl_err_set(&err, -ECANCELED, "the node agent is ending");
            if (w->done)
                w->done(w->data, op->uid, rc, &err, NULL);
            free(w);
        }
        free(op);
    }
}
