/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prepares or unprepares one claim: a few steps, each of which may have to wait. The order makes a restart safe: each
 * thing is in the checkpoint before it is made, and "prepared" is written when everything exists. An entry in any other
 * state is undone at the next start.
 *
 *   prepare    GET, plan, look at MIG | write PREPARING | make MIG | write | lease | CDI | write PREPARED
 *   unprepare  write UNPREPARING | CDI | lease | MIG | drop, write
 *
 * Writes are shared: all claims that wait for a write in one turn of the loop share one write.
 */
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
#include "base/list.h"
#include "base/log.h"
#include "base/xalloc.h"

#define RETRY_NS (5 * SL_NS_PER_S)

struct sl_prepared *sl_dra_op_entry(struct op *op)
{
    return sl_checkpoint_find(&op->dra->checkpoint, op->uid);
}

void sl_dra_retry_soon(struct sl_dra *dra)
{
    if (!dra->retry.set)
        sl_timer_set(dra->loop, &dra->retry, sl_loop_now(dra->loop) + RETRY_NS);
}

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

/* Calls back everybody who waits for this operation. */
static void free_op(struct op *op, const struct sl_prepared *p)
{
    while (op->waiters) {
        struct waiter *w = op->waiters;
        op->waiters = w->next;
        if (w->done)
            w->done(w->data, op->rc, &op->err, p);
        free(w);
    }
    free(op->claim);
    free(op->item);
    free(op->lease);
    free(op);
}

void sl_dra_op_end(struct op *op)
{
    struct sl_dra *dra = op->dra;
    struct op *after = NULL;
    sl_list_drop(&dra->running, op);
    count(op);
    for (struct op *o = dra->running; o && !after; o = o->next)
        if (strcmp(o->uid, op->uid) == 0)
            after = o;
    if (op->kind == OP_UNPREPARE && op->rc < 0)
        sl_dra_retry_soon(dra);
    free_op(op, op->kind == OP_PREPARE && op->rc == 0 ? sl_dra_op_entry(op) : NULL);
    if (after)
        after->run(after);
}

void sl_dra_op_give_up(struct op *op, int rc, const struct sl_err *err)
{
    op->rc = rc;
    op->err = *err;
    sl_dra_op_end(op);
}

static void commit_fired(struct sl_timer *t)
{
    struct sl_dra *dra = sl_container_of(t, struct sl_dra, commit);
    struct sl_err err = SL_ERR_INIT;
    struct op *list = dra->committing;
    dra->committing = NULL;
    int rc = sl_checkpoint_save(dra->opt.state_dir, &dra->checkpoint, &err);
    if (rc < 0)
        sl_error("cannot write the checkpoint: %s", err.msg);
    while (list) {
        struct op *op = list;
        list = op->next_commit;
        if (rc == 0) {
            op->after_commit(op);
            continue;
        }
        /* The write failed, so the step does not count: undo it when the disk works again. */
        struct sl_prepared *p = sl_dra_op_entry(op);
        if (op->kind == OP_PREPARE && p)
            p->state = SL_PREPARING;
        sl_dra_retry_soon(dra);
        sl_dra_op_give_up(op, rc, &err);
    }
}

void sl_dra_mark_dirty(struct sl_dra *dra)
{
    if (!dra->commit.set)
        sl_timer_set(dra->loop, &dra->commit, sl_loop_now(dra->loop));
}

void sl_dra_op_commit(struct op *op, void (*then)(struct op *op))
{
    op->after_commit = then;
    op->next_commit = op->dra->committing;
    op->dra->committing = op;
    sl_dra_mark_dirty(op->dra);
}

static struct sl_msg_lease *add_item(struct op *op, enum sl_msg_type type, const char *fault)
{
    struct sl_msg_lease *lease = &op->lease[op->item_count];
    op->item[op->item_count++] = (struct sl_leases_item){type, lease, fault};
    return lease;
}

int sl_dra_op_list_tenants(struct op *op, bool make, struct sl_err *err)
{
    const struct sl_prepared *p = sl_dra_op_entry(op);
    free(op->item);
    free(op->lease);
    op->item = sl_xcalloc(p->device_count, 2 * sizeof(*op->item));
    op->lease = sl_xcalloc(p->device_count, 2 * sizeof(*op->lease));
    op->item_count = 0;
    for (size_t i = 0; i < p->device_count; i++) {
        const struct sl_prepared_device *d = &p->device[i];
        if (!sl_dra_first_of_tenant(p, i))
            continue;
        struct sl_msg_lease *lease =
            make ? add_item(op, SL_MSG_CREATE, SL_FAULT_NAME("dra.prepare.lease"))
                 : add_item(op, SL_MSG_REMOVE, SL_FAULT_NAME("dra.unprepare.lease"));
        memcpy(lease->name, d->tenant, sizeof(lease->name));
        int rc = make ? sl_dra_compose(op->dra, p, i, false, lease, err) : 0;
        /* Repeat the changes since the allocation: the arbiter may have lost them. */
        if (rc == 0 && make && (p->unsure || d->resized.memory_bytes || d->resized.cores_permille))
            rc = sl_dra_compose(op->dra, p, i, true, add_item(op, SL_MSG_SET, NULL), err);
        if (rc < 0)
            return rc;
    }
    return 0;
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
    op->again.fire = sl_dra_op_wait_fired;
    op->kind = kind;
    op->run = kind == OP_PREPARE ? sl_dra_op_prepare : sl_dra_op_unprepare;
    (void)snprintf(op->name_space, sizeof(op->name_space), "%s", name_space);
    (void)snprintf(op->name, sizeof(op->name), "%s", name);
    (void)snprintf(op->uid, sizeof(op->uid), "%s", uid);
    *end_of = op;
    if (!last)
        op->run(op);
}

/* --- after a restart: entries of the checkpoint go on, unknown tenants are removed --- */

static void leftover_removed(void *data, int rc, const char *text, const struct sl_err *err)
{
    (void)data;
    (void)text;
    if (rc < 0)
        sl_warn("cannot remove a left-over tenant: %s", err->msg);
}

/* Tenants of claims that are not in the checkpoint. */
static void got_tenants(void *data, struct sl_client_status *status, const struct sl_err *err)
{
    struct sl_dra *dra = data;
    char claim[SL_UID_SIZE];
    if (!status) {
        sl_warn("cannot look for left-over tenants: %s", err->msg);
        return;
    }
    for (size_t i = 0; i < status->tenant_count; i++) {
        const struct sl_msg_tenant *t = &status->tenant[i];
        if ((t->flags & SL_LEASE_KEEP) && sl_client_about(t->about, "uid", claim, sizeof(claim)) &&
            !sl_checkpoint_find(&dra->checkpoint, claim))
            sl_leases_remove(dra->leases, t->name, leftover_removed, NULL);
    }
    sl_client_status_free(status);
}

static void remove_leftovers(struct sl_dra *dra)
{
    char **claims = NULL;
    size_t n = 0;
    struct sl_err err = SL_ERR_INIT;
    /* A tenant that a damaged checkpoint does not have may be in use: only a good checkpoint is complete. */
    if (dra->checkpoint.doubtful)
        return;
    if (sl_cdi_list(dra->opt.cdi_dir, SL_CDI_CLAIM, &claims, &n, &err) < 0)
        sl_warn("cannot look for left-over CDI specs: %s", err.msg);
    for (size_t i = 0; i < n; i++)
        if (!sl_checkpoint_find(&dra->checkpoint, claims[i]) &&
            sl_cdi_remove(dra->opt.cdi_dir, SL_CDI_CLAIM, claims[i], &err) < 0)
            sl_warn("cannot remove a left-over CDI spec: %s", err.msg);
    sl_cdi_list_free(claims, n);
    sl_leases_status(dra->leases, false, got_tenants, dra);
}

static void recover_entries(struct sl_dra *dra, bool prepared_too)
{
    /* Operations change the list: work by name, from a copy. */
    size_t n = 0;
    for (const struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next)
        n++;
    char(*uid)[SL_UID_SIZE] = sl_xcalloc(n, sizeof(*uid));
    size_t i = 0;
    for (const struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next)
        memcpy(uid[i++], p->uid, SL_UID_SIZE);
    for (i = 0; i < n; i++) {
        struct sl_prepared *p = sl_checkpoint_find(&dra->checkpoint, uid[i]);
        if (!p || (p->state == SL_PREPARED && !prepared_too) || !sl_dra_knows(dra, p))
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
    bool cards = dra->driver && !dra->recovered, vm = dra->vm && !dra->recovered_vm;
    dra->recovered |= cards;
    dra->recovered_vm |= vm;
    if (cards || vm)
        recover_entries(dra, true);
    if (cards)
        remove_leftovers(dra);
}

void sl_dra_prepare_init(struct sl_dra *dra)
{
    dra->telling.fire = sl_dra_tell_fired;
    dra->commit.fire = commit_fired;
    dra->retry.fire = retry_fired;
}

void sl_dra_forget_ops(struct sl_dra *dra)
{
    sl_timer_stop(dra->loop, &dra->commit);
    sl_timer_stop(dra->loop, &dra->retry);
    sl_timer_stop(dra->loop, &dra->telling);
    while (dra->running) {
        struct op *op = dra->running;
        dra->running = op->next;
        sl_kube_cancel(op->get);
        sl_timer_stop(dra->loop, &op->again);
        op->rc = sl_err_set(&op->err, -ECANCELED, SL_E_DRA_ENDING);
        free_op(op, NULL);
    }
}
