/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tenant/tenancy.h"

#include "base/fault.h"

static void advance(struct sl_tenancy *t);

/* The arbiter has done what it was asked about the tenant `at`, or says why not. */
static void answered(void *data, int rc, const char *text, const struct sl_err *err)
{
    struct sl_tenancy *t = data;
    (void)text;
    if (rc < 0) {
        t->done(t->data, SL_TENANCY_TENANT, rc, err);
        return;
    }
    if (t->doing == SL_TENANCY_REMOVING)
        SL_FAULT(t->ops->fault.unmade);
    else if (t->doing == SL_TENANCY_MAKING)
        SL_FAULT(t->ops->fault.made);
    bool set = t->doing == SL_TENANCY_MAKING && t->tenant[t->at].set;
    if (t->doing != SL_TENANCY_REMOVING)
        t->doing = set ? SL_TENANCY_SETTING : SL_TENANCY_MAKING;
    t->at += !set;
    advance(t);
}

/* The next question to the arbiter; after the last one the spec is written. */
static void advance(struct sl_tenancy *t)
{
    struct sl_err err = SL_ERR_INIT;
    if (t->at < t->count) {
        const struct sl_tenancy_tenant *one = &t->tenant[t->at];
        if (t->doing == SL_TENANCY_MAKING)
            sl_leases_make(t->leases, one->make, answered, t);
        else if (t->doing == SL_TENANCY_SETTING)
            sl_leases_set(t->leases, one->set, answered, t);
        else
            sl_leases_remove(t->leases, one->name, answered, t);
        return;
    }
    if (t->doing == SL_TENANCY_REMOVING) {
        t->done(t->data, SL_TENANCY_TENANT, 0, &err);
        return;
    }
    SL_FAULT(t->ops->fault.all_made);
    int rc = t->ops->write_spec(t->data, &err);
    if (rc == 0)
        SL_FAULT(t->ops->fault.written);
    t->done(t->data, SL_TENANCY_SPEC, rc, &err);
}

void sl_tenancy_make(struct sl_tenancy *t, sl_tenancy_done *done)
{
    t->done = done;
    t->at = 0;
    t->doing = SL_TENANCY_MAKING;
    advance(t);
}

void sl_tenancy_unmake(struct sl_tenancy *t, sl_tenancy_done *done)
{
    struct sl_err err = SL_ERR_INIT;
    t->done = done;
    t->at = 0;
    t->doing = SL_TENANCY_REMOVING;
    /* First the spec, so that nothing is left that names a tenant that is gone. */
    int rc = t->ops->remove_spec(t->data, &err);
    if (rc < 0) {
        done(t->data, SL_TENANCY_SPEC, rc, &err);
        return;
    }
    SL_FAULT(t->ops->fault.removed);
    advance(t);
}
