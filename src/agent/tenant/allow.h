/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rights of claims and pods. Users write claims and pods; the administrator decides which requests beyond a plain
 * share are allowed: in the configuration of the node (sharing.fractional.allow, also by namespace) and in the
 * DeviceClass. Pure.
 */
#ifndef SLUICE_AGENT_TENANT_ALLOW_H
#define SLUICE_AGENT_TENANT_ALLOW_H

#include <stdint.h>

#include "base/err.h"
#include "config/config.h"

/* The end of each refusal. */
#define SL_ALLOW_ASK_WHOM                                                                          \
    "the administrator can allow it, in sharing.fractional.allow of the node's configuration or "  \
    "in the "                                                                                      \
    "DeviceClass"

/* 0, or -EPERM and a sentence that says that `what` ("the pod", "request train") asks for too much. */
int sl_allow_priority(const char *what, const char *name_space, unsigned asked, unsigned highest,
                      struct sl_err *err) SL_MUST_CHECK;
int sl_allow_burst(const char *what, const char *name_space, uint32_t asked_permille,
                   uint32_t highest_permille, struct sl_err *err) SL_MUST_CHECK;

/* May a pod that the extender placed have this lease? priority is enum sl_priority; permille are of one GPU. */
int sl_allow_lease(const struct sl_config *config, const char *name_space, unsigned priority,
                   uint32_t request_permille, uint32_t limit_permille,
                   struct sl_err *err) SL_MUST_CHECK;

#endif
