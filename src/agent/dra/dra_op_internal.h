/* SPDX-License-Identifier: Apache-2.0 */
/* One claim being prepared or unprepared, as dra_op.c, dra_prepare.c and dra_unprepare.c share it. */
#ifndef SLUICE_AGENT_DRA_DRA_OP_INTERNAL_H
#define SLUICE_AGENT_DRA_DRA_OP_INTERNAL_H

#include "agent/dra/dra_internal.h"
#include "agent/tenant/tenancy.h"

/* Of a prepare: the step that is next, or under way. */
enum op_step { OP_LOOK_AT_MIG, OP_MAKE_MIG, OP_MAKE_TENANTS, OP_DONE };

struct op {
    struct op *next;        /* in dra->running */
    struct op *next_commit; /* in dra->committing */
    struct sl_dra *dra;
    enum op_kind kind;
    enum op_step step;
    void (*run)(struct op *op); /* its first step */
    char name_space[64], name[SL_K8S_NAME], uid[SL_UID_SIZE];
    struct waiter *waiters;
    struct sl_kube_call *get;
    struct sl_claim *claim; /* as the API server has it; NULL: not read */
    void (*after_commit)(struct op *op);
    struct sl_tenancy tenancy;
    struct sl_tenancy_tenant *tenant; /* its list */
    struct sl_msg_lease *lease;       /* what they are asked for */
    struct sl_timer again;            /* an MPS daemon is being waited for */
    unsigned waits;
    bool undoing; /* a prepare that failed */
    int rc;       /* why */
    struct sl_err err;
};

/* dra_op.c */
struct sl_prepared *sl_dra_op_entry(struct op *op); /* in the checkpoint; NULL: none */
/* The operation is over: whoever waits is told, and the next one of the claim begins. */
void sl_dra_op_end(struct op *op);
void sl_dra_op_give_up(struct op *op, int rc, const struct sl_err *err);
/* Goes on with `then` when the checkpoint is on disk. */
void sl_dra_op_commit(struct op *op, void (*then)(struct op *op));
void sl_dra_retry_soon(struct sl_dra *dra);
/* Puts the tenants of the claim into op->tenancy; to be made: with what each is asked for. */
int sl_dra_op_list_tenants(struct op *op, bool ask, struct sl_err *err) SL_MUST_CHECK;

/* dra_cdi.c: the spec of the claim, for tenancy.h; data is the op */
int sl_dra_write_spec(void *data, struct sl_err *err) SL_MUST_CHECK;
int sl_dra_remove_spec(void *data, struct sl_err *err) SL_MUST_CHECK;

/* dra_prepare.c */
void sl_dra_op_prepare(struct op *op);
void sl_dra_op_wait_fired(struct sl_timer *t);
void sl_dra_tell_fired(struct sl_timer *t);

/* dra_unprepare.c; also undoes a prepare that failed */
void sl_dra_op_unprepare(struct op *op);

#endif
