/* SPDX-License-Identifier: Apache-2.0 */
/* A claim's tenants and its CDI spec, as tenancy.h makes and undoes them. */
#include "agent/dra/dra_op_internal.h"

#include "agent/container/cdi.h"
#include "base/fault.h"

static const char *tenant_at(void *data, size_t at)
{
    const struct sl_prepared *p = sl_dra_op_entry(data);
    return sl_dra_first_of_tenant(p, at) ? p->device[at].tenant : NULL;
}

static int lease_at(void *data, size_t at, struct sl_msg_lease *ret, struct sl_err *err)
{
    struct op *op = data;
    return sl_dra_compose(op->dra, sl_dra_op_entry(op), at, ret, err);
}

static bool change_at(void *data, size_t at, struct sl_msg_lease *ret)
{
    const struct sl_prepared *p = sl_dra_op_entry(data);
    const struct sl_claim_resize *r = &p->device[at].resized;
    return (r->memory_bytes || r->cores_permille) && sl_dra_compose_now(p, at, ret, NULL) == 0;
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
    .tenant = tenant_at,
    .lease = lease_at,
    .change = change_at,
    .write_spec = write_spec,
    .remove_spec = remove_spec,
    .fault = {.made = SL_FAULT_NAME("dra.prepare.lease"),
              .all_made = SL_FAULT_NAME("dra.prepare.leased"),
              .written = SL_FAULT_NAME("dra.prepare.cdi"),
              .removed = SL_FAULT_NAME("dra.unprepare.cdi"),
              .unmade = SL_FAULT_NAME("dra.unprepare.lease")}};
