/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tenants of a claim or of a slot, and the CDI spec by which containers find them. Both front ends make and undo
 * them in one order. It makes a restart safe: no spec ever names a tenant that is not there.
 *
 *   make    tenant | tenant | … | spec
 *   unmake  spec | tenant | tenant | …
 *
 * Every step may be taken twice: the arbiter answers the same question in the same way, a spec is replaced whole, and
 * what is gone is gone. After an error the caller may make it again, or unmake it.
 */
#ifndef SLUICE_AGENT_TENANT_TENANCY_H
#define SLUICE_AGENT_TENANT_TENANCY_H

#include "agent/tenant/leases.h"
#include "share/lease.h"

/* One of its tenants. Good until the next make or unmake. */
struct sl_tenancy_tenant {
    const char *name;
    const struct sl_msg_lease *make; /* not needed to unmake it */
    const struct sl_msg_lease
        *set; /* what was changed since, for the arbiter may have lost it; NULL: nothing */
};

struct sl_tenancy_ops {
    int (*write_spec)(void *data, struct sl_err *err);
    int (*remove_spec)(void *data, struct sl_err *err);
    /* Names of the fault points: a tenant is made, all are, the spec is written; it is removed, a tenant is. */
    struct {
        const char *made, *all_made, *written, *removed, *unmade;
    } fault;
};

/* What ended it. */
enum sl_tenancy_step { SL_TENANCY_TENANT, SL_TENANCY_SPEC };

/* Once a make or unmake, from inside it too. The tenancy may be freed or begun again in it. */
typedef void sl_tenancy_done(void *data, enum sl_tenancy_step step, int rc,
                             const struct sl_err *err);

/* One make or unmake at a time. Its owner destroys `leases` before it: then nothing comes any more. */
struct sl_tenancy {
    struct sl_leases *leases;
    const struct sl_tenancy_ops *ops;
    void *data;
    const struct sl_tenancy_tenant *tenant;
    size_t count;
    /* its own */
    enum { SL_TENANCY_MAKING, SL_TENANCY_SETTING, SL_TENANCY_REMOVING } doing;
    size_t at;
    sl_tenancy_done *done;
};

void sl_tenancy_make(struct sl_tenancy *t, sl_tenancy_done *done);
void sl_tenancy_unmake(struct sl_tenancy *t, sl_tenancy_done *done);

#endif
