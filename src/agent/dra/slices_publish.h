/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the API server's ResourceSlices of this driver and node as they are wanted: writes what differs,
 * and again when somebody (kubelet, when it starts) has deleted them. Every change makes a new
 * generation of the whole pool, so that the scheduler never sees half of one.
 */
#ifndef SLUICE_AGENT_DRA_SLICES_PUBLISH_H
#define SLUICE_AGENT_DRA_SLICES_PUBLISH_H

#include <jansson.h>
#include <stdbool.h>

#include "base/loop.h"
#include "kube/kube.h"

struct sl_slices_publisher;

int sl_slices_publish_create(struct sl_loop *loop, struct sl_kube *kube, const char *driver,
                             const char *node_name, struct sl_slices_publisher **ret,
                             struct sl_err *err) SL_MUST_CHECK;
void sl_slices_publish_destroy(struct sl_slices_publisher *p); /* NULL is fine */

/* The slices there are to be (of sl_slices_make; generations are set here). Takes the reference. */
void sl_slices_publish_want(struct sl_slices_publisher *p, json_t *slices);

bool sl_slices_publish_current(const struct sl_slices_publisher *p);
unsigned long sl_slices_publish_writes(const struct sl_slices_publisher *p);

#endif
