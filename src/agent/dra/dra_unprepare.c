/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of unpreparing a claim, and of undoing one whose preparing failed; the order is in dra_op.c. */
#include "agent/dra/dra_internal.h"

#include <string.h>

#include "agent/container/cdi.h"
#include "base/fault.h"
#include "base/log.h"

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

/* A prepare being undone keeps its own reason. */
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

static void unmake_tenants(struct op *op)
{
    struct sl_err err = SL_ERR_INIT;
    SL_FAULT("dra.unprepare.begun");
    int rc = sl_cdi_remove(op->dra->opt.cdi_dir, SL_CDI_CLAIM, op->uid, &err);
    if (rc < 0) {
        undo_failed(op, rc, &err);
        return;
    }
    SL_FAULT("dra.unprepare.cdi");
    (void)!sl_dra_op_list_tenants(op, false, NULL);
    sl_leases_ask(op->dra->leases, op->item, op->item_count, unmade, op);
}

void sl_dra_op_unprepare(struct op *op)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_prepared *p = sl_dra_op_entry(op);
    sl_dra_resize_unwatch(op->dra, op->uid);
    if (!p) { /* never heard of it, or long gone */
        int rc = sl_cdi_remove(op->dra->opt.cdi_dir, SL_CDI_CLAIM, op->uid, &err);
        if (rc < 0)
            undo_failed(op, rc, &err);
        else
            sl_dra_op_end(op);
        return;
    }
    /* PREPARING on disk is undone at a restart as it is. */
    bool written = p->state != SL_PREPARED;
    p->state = SL_UNPREPARING;
    if (written)
        unmake_tenants(op);
    else
        sl_dra_op_commit(op, unmake_tenants);
}
