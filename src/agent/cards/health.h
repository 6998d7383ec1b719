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
    /* Is the XID ignored because a program caused it (sl_config_xid_ignored)? */
    bool (*ignored)(void *data, uint64_t xid);
    /* The time without another XID after which a device is healthy again, and the same after an XID that needs a reset;
     * UINT64_MAX: never healthy again by itself. */
    uint64_t quiet_ns, reset_quiet_ns;
    /* A card or a MIG device ("GPU-…", "MIG-…"). reason: one sentence, also when the device is healthy again. */
    void (*changed)(void *data, const char *uuid, bool healthy, const char *reason);
    /* Asks for a read now (sl_devices_refresh). */
    void (*refresh)(void *data);
    void *data;
};

struct sl_health *sl_health_create(struct sl_loop *loop, const struct sl_health_options *options);
void sl_health_destroy(struct sl_health *health); /* NULL is fine */

/* The configuration changed. The new times hold also for devices that are unhealthy now; a device whose XID is ignored
 * from now on becomes healthy. */
void sl_health_reload(struct sl_health *health, uint64_t quiet_ns, uint64_t reset_quiet_ns);

/* The events of sl_devices: `xid`, `polled` and, once a card was seen, `no_driver`. */
void sl_health_xid(struct sl_health *health, const char *uuid, const struct sl_gpu_event *event);
void sl_health_polled(struct sl_health *health, const struct sl_inventory *inv, uint64_t asked_ns);
void sl_health_no_driver(struct sl_health *health, const struct sl_err *why);

/* False for a device that was never seen. */
bool sl_health_ok(const struct sl_health *health, const char *uuid);

#endif
