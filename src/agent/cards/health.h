/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which cards and MIG devices may be given to a pod. This is a state machine without I/O:
 * XIDs and polls go in, changes come out, and the time is that of the loop. The rules are in
 * docs/agent.md, "Devices and health".
 */
#ifndef SLUICE_AGENT_CARDS_HEALTH_H
#define SLUICE_AGENT_CARDS_HEALTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/loop.h"
#include "gpu/gpu.h"
#include "gpu/inventory.h"

struct sl_health;

struct sl_health_options {
    /* Returns whether an XID is to be ignored, because a program caused it
     * (sl_config_xid_ignored). NULL: 13, 31, 43, 45, 68 and 109 are ignored. Called with `data`
     * of sl_health_create. */
    bool (*ignored)(void *data, uint64_t xid);
    uint64_t quiet_ns;       /* without another XID until healthy again: 60 s */
    uint64_t reset_quiet_ns; /* the same after an XID that calls for a reset: 300 s */
};

struct sl_health_ops {
    /* A card or a MIG device ("GPU-…", "MIG-…"). reason: one sentence, also for the good news. */
    void (*changed)(void *data, const char *uuid, bool healthy, const char *reason);
    /* A read is wanted now (sl_devices_refresh). */
    void (*refresh)(void *data);
};

struct sl_health *sl_health_create(struct sl_loop *loop, const struct sl_health_options *options,
                                   const struct sl_health_ops *ops, void *data);
void sl_health_destroy(struct sl_health *health); /* NULL is fine */

/* The configuration changed: what is unhealthy by an XID that is ignored now becomes healthy. */
void sl_health_reload(struct sl_health *health);

/* New times, also for what is unhealthy now; UINT64_MAX: never healthy again by itself. */
void sl_health_set_quiet(struct sl_health *health, uint64_t quiet_ns, uint64_t reset_quiet_ns);

/* What sl_devices tells: its `xid`, `polled` and, once a card was seen, `no_driver`. */
void sl_health_xid(struct sl_health *health, const char *uuid, const struct sl_gpu_event *event);
void sl_health_polled(struct sl_health *health, const struct sl_inventory *inv, uint64_t asked_ns);
void sl_health_no_driver(struct sl_health *health, const struct sl_err *why);

/* False with a reason for what was never seen. *ret_reason lives until the next call above. */
bool sl_health_ok(const struct sl_health *health, const char *uuid, const char **ret_reason);

/* What is known of an XID; unknown ones are of the card's, without words. */
struct sl_health_xid_kind {
    uint64_t xid;
    const char *words;
    bool application; /* the program's fault: ignored unless the configuration says otherwise */
    bool reset;       /* the card does not work again before it is reset */
    bool whole_card;  /* whichever MIG instance it names */
};
const struct sl_health_xid_kind *sl_health_xid_kind(uint64_t xid); /* NULL: unknown */

#endif
