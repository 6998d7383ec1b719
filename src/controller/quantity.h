/* SPDX-License-Identifier: Apache-2.0 */
/* Kubernetes quantities as whole numbers: "20480", "20Ki", "10Gi", "1.5G", "1500m", "12e6". */
#ifndef SLUICE_CONTROLLER_QUANTITY_H
#define SLUICE_CONTROLLER_QUANTITY_H

#include <jansson.h>
#include <stdint.h>

/* Rounded down. -EINVAL: negative, no number, or beyond 2^53. */
int sl_ctl_quantity(const json_t *value, uint64_t *ret);

#endif
