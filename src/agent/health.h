/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which cards and MIG devices may be given to a pod. A state machine without I/O: XIDs and polls go
 * in, changes come out, time is the loop's. The rules are in docs/agent.md, "Devices and health".
 */
#ifndef SLUICE_AGENT_HEALTH_H
#define SLUICE_AGENT_HEALTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/loop.h"
#include "gpu/gpu.h"
#include "gpu/inventory.h"

struct sl_health;

struct sl_health_options {
    const uint64_t *ignored_xids; /* NULL: the application errors 13, 31, 43, 45, 68, 109 */
    size_t ignored_count;
    bool off;                /* no XID counts; lost cards still do */
    uint64_t quiet_ns;       /* without another XID until healthy again: 60 s */
    uint64_t reset_quiet_ns; /* the same after an XID that calls for a reset: 300 s */
};

struct sl_health_ops {
    /* A card or a MIG device ("GPU-…", "MIG-…"). reason: one sentence, also for the good news. */
    void (*changed)(void *data, const char *uuid, bool healthy, const char *reason);
    /* A read is wanted now (sl_devices_refresh). */
    void (*refresh)(void *data);
};

int sl_health_create(struct sl_loop *loop, const struct sl_health_options *options,
                     const struct sl_health_ops *ops, void *data, struct sl_health **ret,
                     struct sl_err *err) SL_MUST_CHECK;
void sl_health_destroy(struct sl_health *health); /* NULL is fine */

/* Another list after a reload; what is unhealthy by an XID now ignored becomes healthy. */
int sl_health_ignore(struct sl_health *health, const uint64_t *xids, size_t count, bool off,
                     struct sl_err *err) SL_MUST_CHECK;

/* What sl_devices tells: its `xid`, `polled` and, once a card was seen, `no_driver`. */
void sl_health_xid(struct sl_health *health, const char *uuid, const struct sl_gpu_event *event);
void sl_health_polled(struct sl_health *health, const struct sl_inventory *inv, uint64_t asked_ns);
void sl_health_no_driver(struct sl_health *health, const struct sl_err *why);

/* False with a reason for what was never seen. *ret_reason lives until the next call above. */
bool sl_health_ok(const struct sl_health *health, const char *uuid, const char **ret_reason);

/* What an XID means, in a few words; NULL: not one we know. */
const char *sl_health_xid_words(uint64_t xid);

#endif
