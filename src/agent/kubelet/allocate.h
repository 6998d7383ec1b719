/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer to kubelet's Allocate: takes device ids, returns edits, by the device-list strategies of the
 * configuration. Reads nothing but its arguments and the driver's nodes; safe to call twice.
 */
#ifndef SLUICE_AGENT_KUBELET_ALLOCATE_H
#define SLUICE_AGENT_KUBELET_ALLOCATE_H

#include "container/driver.h"
#include "container/edits.h"
#include "config/config.h"
#include "config/plan.h"
#include "gpu/inventory.h"

/*
 * Errors: -ENOENT the resource does not have this id, -EINVAL more than one share where the configuration forbids it
 * (or no id at all), -ENODEV a required IMEX channel is missing. `extra` (may be NULL) is added last: the edits of MPS
 * or libsluice. The result is appended to `edits`.
 */
int sl_allocate_edits(const struct sl_config *config, const struct sl_inventory *inv,
                      const struct sl_driver *driver, const struct sl_plan_resource *resource,
                      const char *const *ids, size_t id_count, const struct sl_edits *extra,
                      struct sl_edits *edits, struct sl_err *err) SL_MUST_CHECK;

#endif
