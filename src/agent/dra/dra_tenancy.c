/* SPDX-License-Identifier: Apache-2.0 */
/* A claim's tenants and its CDI spec, as tenancy.h makes and undoes them. */
#include "agent/dra/dra_op_internal.h"

#include <stdlib.h>

#include "agent/container/cdi.h"
#include "base/fault.h"
#include "base/xalloc.h"

/* The tenants of the claim; to be made: with what each is asked for. */
int sl_dra_op_list_tenants(struct op *op, bool ask, struct sl_err *err)
{
    const struct sl_prepared *p = sl_dra_op_entry(op);
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
        op->tenant[n++] =
            (struct sl_tenancy_tenant){p->device[i].tenant, make, resized ? set : NULL};
    }
    op->tenancy.tenant = op->tenant;
    op->tenancy.count = n;
    return 0;
}

static int write_spec(void *data, struct sl_err *err)
{
    struct op *op = data;
    return sl_dra_write_cdi(op->dra, sl_dra_op_entry(op), err);
}

static int remove_spec(void *data, struct sl_err *err)
{
    const struct op *op = data;
    return sl_cdi_remove_claim(op->dra->cdi_dir, op->uid, err);
}

const struct sl_tenancy_ops sl_dra_tenancy_ops = {
    .write_spec = write_spec,
    .remove_spec = remove_spec,
    .fault = {.made = SL_FAULT_NAME("dra.prepare.lease"),
              .all_made = SL_FAULT_NAME("dra.prepare.leased"),
              .written = SL_FAULT_NAME("dra.prepare.cdi"),
              .removed = SL_FAULT_NAME("dra.unprepare.cdi"),
              .unmade = SL_FAULT_NAME("dra.unprepare.lease")}};
