/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device plugins: one gRPC server per resource of a plan, registered with kubelet, and registered again after a restart
 * of kubelet, a removed socket or a removed directory. Keeps no state on disk: kubelet remembers its allocations, so an
 * agent that was killed comes back to the same picture.
 */
#ifndef SLUICE_AGENT_KUBELET_PLUGIN_H
#define SLUICE_AGENT_KUBELET_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "container/edits.h"
#include "base/err.h"
#include "base/loop.h"
#include "config/plan.h"
#include "gpu/inventory.h"

struct sl_plugins;

/*
 * Makes the edits for a container with these devices. `ids` are as kubelet sent them ("<uuid>::<n>"), all of this
 * resource, healthy, each once; at least one. `res` is a copy of the resource that was applied last. Errors reach the
 * user as the pod's admission failure: say what to do. Must not call back into sl_plugins_*.
 */
typedef int sl_plugins_allocate(void *data, const struct sl_plan_resource *res,
                                const char *const *ids, size_t n, struct sl_edits *edits,
                                struct sl_err *err);

/*
 * Kubelet is about to start a container with these devices, some of them fractions (never called for other resources).
 * `ids` are in no particular order, borrowed for the call. Answer once, at any time, with sl_prestart_answer(), also
 * when kubelet has given up meanwhile.
 */
struct sl_prestart;
typedef void sl_plugins_prestart(void *data, const struct sl_plan_resource *res,
                                 const char *const *ids, size_t n, struct sl_prestart *call);
/* err NULL: the container may start. Otherwise the text reaches the user as the pod's event, and kubelet asks again
 * later. Fine from inside the callback; the pointer is invalid when this returns. */
void sl_prestart_answer(struct sl_prestart *call, const struct sl_err *err);
/* The time when kubelet stops waiting, on the loop's clock. UINT64_MAX: never, or it has stopped. */
uint64_t sl_prestart_deadline(const struct sl_prestart *call);

struct sl_plugins_options {
    /* NULL: /var/lib/kubelet/device-plugins/kubelet.sock; our sockets are beside it. */
    const char *kubelet_socket;
    enum sl_share_policy share_policy;
    sl_plugins_allocate *allocate;
    sl_plugins_prestart *prestart; /* NULL: containers start without a question */
    /* A new kubelet has started; sl_plugins_apply may be called here. May be NULL. */
    void (*kubelet_started)(void *data);
    /* A sentence for the administrator (also in the log): for node events. Must not call back into sl_plugins_*. May be
     * NULL. */
    void (*notice)(void *data, const char *text);
    void *data; /* for all of them */
};

/* Watches kubelet's directory, which need not exist yet. Serves nothing before sl_plugins_apply. */
int sl_plugins_create(struct sl_loop *loop, const struct sl_plugins_options *options,
                      struct sl_plugins **ret, struct sl_err *err) SL_MUST_CHECK;

/* Closes everything at once and removes our sockets. Kubelet keeps its allocations. Do not call this from one of the
 * callbacks above. NULL is fine. */
void sl_plugins_destroy(struct sl_plugins *plugins);

/*
 * Serves this plan from now on; the needed parts are copied. Resources that stay keep their registration, and streams
 * get the new list in one message, so that devices that stay never look unhealthy. A removed resource is advertised
 * with no devices, then its server stops. On failure everything stays as before. A missing kubelet is no failure.
 */
int sl_plugins_apply(struct sl_plugins *plugins, const struct sl_plan *plan,
                     const struct sl_inventory *inv, struct sl_err *err) SL_MUST_CHECK;

/*
 * DRA serves these resources from now on: claims serve pods that ask for them by name. Kubelet remembers the options of
 * a plugin for five minutes after the plugin has gone. If these say "ask before a container starts" (fractions do),
 * pods with claims would not start. So this registers the remembered names once more, with no devices and no questions,
 * and then gives them up. Best effort; failures are logged.
 */
void sl_plugins_vacate(struct sl_plugins *plugins, const struct sl_plan *plan);

void sl_plugins_set_policy(struct sl_plugins *plugins, enum sl_share_policy policy);

/*
 * Sets the health of a GPU's UUID (all its replicas and MIG devices), of a MIG device's UUID (all its replicas), or of
 * one device id. Remembered across plans, also for devices that no plan has yet. A device is healthy when none of these
 * is unhealthy and the inventory does not call it `lost`.
 */
int sl_plugins_set_health(struct sl_plugins *plugins, const char *uuid, bool healthy,
                          struct sl_err *err) SL_MUST_CHECK;

#define SL_PLUGINS_BUCKETS 10
/* Upper bounds of the Allocate histogram's buckets, in ns; the last is UINT64_MAX. */
extern const uint64_t sl_plugins_bucket_ns[SL_PLUGINS_BUCKETS];

/* Since sl_plugins_create. */
struct sl_plugins_stats {
    uint64_t registrations, registration_failures;
    uint64_t kubelet_starts;                      /* how many kubelets have started */
    uint64_t allocations, allocation_failures;    /* Allocate calls answered, and refused */
    uint64_t allocate_ns_sum;                     /* of answered and refused calls */
    uint64_t allocate_bucket[SL_PLUGINS_BUCKETS]; /* not cumulative */
    uint64_t preferred, preferred_failures;
    uint64_t lists_sent;
    uint64_t prestarts, prestart_failures; /* PreStartContainer answered, and refused */
};
void sl_plugins_stats(const struct sl_plugins *plugins, struct sl_plugins_stats *ret);

/* The same for one resource, since it was first advertised. */
struct sl_plugins_counts {
    uint64_t registrations, allocations, allocation_failures, prestarts, prestart_failures;
};

struct sl_plugins_resource {
    const char *name; /* valid until the next apply */
    size_t advertised, healthy;
    bool registered; /* kubelet accepted it and listens */
    bool contested;  /* another process serves it */
    struct sl_plugins_counts counts;
};
size_t sl_plugins_count(const struct sl_plugins *plugins);
void sl_plugins_resource(const struct sl_plugins *plugins, size_t i,
                         struct sl_plugins_resource *ret);

/* Is every resource registered, and does kubelet listen to each? */
bool sl_plugins_ready(const struct sl_plugins *plugins);

#endif
