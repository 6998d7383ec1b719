/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tenant/tenancy.h"

#include "base/fault.h"

/* --- make --- */

static void make_next(struct sl_tenancy *t);

static void write_spec(struct sl_tenancy *t)
{
    struct sl_err err = SL_ERR_INIT;
    SL_FAULT(t->ops->fault.all_made);
    int rc = t->ops->write_spec(t->data, &err);
    if (rc == 0)
        SL_FAULT(t->ops->fault.written);
    t->done(t->data, SL_TENANCY_SPEC, rc, &err);
}

static void changed(void *data, int rc, const char *text, const struct sl_err *err)
{
    struct sl_tenancy *t = data;
    (void)text;
    if (rc < 0) {
        t->done(t->data, SL_TENANCY_TENANT, rc, err);
        return;
    }
    t->at++;
    make_next(t);
}

static void made(void *data, int rc, const char *text, const struct sl_err *err)
{
    struct sl_tenancy *t = data;
    if (rc == 0)
        SL_FAULT(t->ops->fault.made);
    if (rc == 0 && t->tenant[t->at].set)
        sl_leases_set(t->leases, t->tenant[t->at].set, changed, t);
    else
        changed(t, rc, text, err);
}

static void make_next(struct sl_tenancy *t)
{
    if (t->at < t->count)
        sl_leases_make(t->leases, t->tenant[t->at].make, made, t);
    else
        write_spec(t);
}

void sl_tenancy_make(struct sl_tenancy *t, sl_tenancy_done *done)
{
    t->done = done;
    t->at = 0;
    make_next(t);
}

/* --- unmake --- */

static void unmake_next(struct sl_tenancy *t);

static void unmade(void *data, int rc, const char *text, const struct sl_err *err)
{
    struct sl_tenancy *t = data;
    (void)text;
    if (rc < 0) {
        t->done(t->data, SL_TENANCY_TENANT, rc, err);
        return;
    }
    SL_FAULT(t->ops->fault.unmade);
    t->at++;
    unmake_next(t);
}

static void unmake_next(struct sl_tenancy *t)
{
    static const struct sl_err none = SL_ERR_INIT;
    if (t->at < t->count)
        sl_leases_remove(t->leases, t->tenant[t->at].name, unmade, t);
    else
        t->done(t->data, SL_TENANCY_TENANT, 0, &none);
}

void sl_tenancy_unmake(struct sl_tenancy *t, sl_tenancy_done *done)
{
    struct sl_err err = SL_ERR_INIT;
    t->done = done;
    t->at = 0;
    /* First the spec, so that nothing is left that names a tenant that is gone. */
    int rc = t->ops->remove_spec(t->data, &err);
    if (rc < 0) {
        done(t->data, SL_TENANCY_SPEC, rc, &err);
        return;
    }
    SL_FAULT(t->ops->fault.removed);
    unmake_next(t);
}
