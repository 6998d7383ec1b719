/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device plugins: one gRPC server per resource of a plan, registered with kubelet and kept registered
 * through restarts of kubelet, removed sockets and a removed directory. Keeps no state on disk: kubelet
 * remembers what it allocated, so an agent killed at any moment comes back to the same picture.
 */
#ifndef SLUICE_AGENT_KUBELET_PLUGIN_H
#define SLUICE_AGENT_KUBELET_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/container/edits.h"
#include "base/err.h"
#include "base/loop.h"
#include "config/plan.h"
#include "gpu/inventory.h"

struct sl_plugins;

/*
 * What a container gets that was given these devices. `ids` are as kubelet sent them ("<uuid>::<n>"),
 * all of this resource, healthy, each once; at least one. `res` is a copy of what was applied last. Errors
 * reach the user as the pod's admission failure: say what to do. Must not call back into sl_plugins_*.
 */
typedef int sl_plugins_allocate(void *data, const struct sl_plan_resource *res,
                                const char *const *ids, size_t n, struct sl_edits *edits,
                                struct sl_err *err);

/*
 * Kubelet is about to start a container with these devices, some of them fractions (other resources are not
 * asked about). `ids` in no particular order, borrowed for the call. Answered once, at any time, by
 * sl_prestart_answer(); a call kubelet has given up meanwhile is answered all the same.
 */
struct sl_prestart;
typedef void sl_plugins_prestart(void *data, const struct sl_plan_resource *res,
                                 const char *const *ids, size_t n, struct sl_prestart *call);
/* err NULL: the container may start. Otherwise the text reaches the user as the pod's event, and kubelet asks
 * again later. Fine from inside the callback; the pointer is dead when this returns. */
void sl_prestart_answer(struct sl_prestart *call, const struct sl_err *err);
/* On the loop's clock: when kubelet stops waiting. UINT64_MAX: it does not, or has stopped. */
uint64_t sl_prestart_deadline(const struct sl_prestart *call);

struct sl_plugins_options {
    const char
        *kubelet_socket; /* NULL: /var/lib/kubelet/device-plugins/kubelet.sock; ours go beside it */
    enum sl_share_policy share_policy;
    sl_plugins_allocate *allocate;
    sl_plugins_prestart *prestart; /* NULL: nothing is asked to wait for it */
    /* A kubelet is there that was not before; sl_plugins_apply is welcome here. May be NULL. */
    void (*kubelet_started)(void *data);
    /* Something an administrator should read, as a sentence (also in the log): for node events. Must
     * not call back into sl_plugins_*. May be NULL. */
    void (*notice)(void *data, const char *text);
    void *data; /* for all of them */
};

/* Watches kubelet's directory, which need not exist yet. Serves nothing before sl_plugins_apply. */
int sl_plugins_create(struct sl_loop *loop, const struct sl_plugins_options *options,
                      struct sl_plugins **ret, struct sl_err *err) SL_MUST_CHECK;

/* Closes everything at once and removes our sockets. Kubelet keeps its allocations. Not from inside one
 * of the callbacks above. NULL is fine. */
void sl_plugins_destroy(struct sl_plugins *plugins);

/*
 * Serves this plan from now on; both are copied as far as they are needed. Resources that stay keep
 * their registration, and streams get the new list in one message, so that devices that stay never look
 * unhealthy. A resource that is gone is advertised empty, then its server stops. On failure everything
 * is as before. A kubelet that is not there is no failure.
 */
int sl_plugins_apply(struct sl_plugins *plugins, const struct sl_plan *plan,
                     const struct sl_inventory *inv, struct sl_err *err) SL_MUST_CHECK;

/*
 * These resources are somebody else's from now on: claims serve pods that ask for them by name. Kubelet
 * remembers a plugin that has gone for five minutes, and while it does it goes by what that one wanted: where it
 * was asked before containers start (fractions are), pods with claims would not start. Names that kubelet
 * remembers are registered once more, with no devices and nothing to be asked, and given up. Best effort, said
 * in the log.
 */
void sl_plugins_vacate(struct sl_plugins *plugins, const struct sl_plan *plan);

void sl_plugins_set_policy(struct sl_plugins *plugins, enum sl_share_policy policy);

/*
 * Of a GPU's UUID (all its replicas and MIG devices), a MIG device's UUID (all its replicas), or one device
 * id. Remembered across plans, also for devices no plan has yet. A device is healthy when none of these
 * and not `lost` in the inventory applies to it.
 */
int sl_plugins_set_health(struct sl_plugins *plugins, const char *uuid, bool healthy,
                          struct sl_err *err) SL_MUST_CHECK;

#define SL_PLUGINS_BUCKETS 10
/* Upper bounds of the Allocate histogram's buckets, in ns; the last is UINT64_MAX. */
extern const uint64_t sl_plugins_bucket_ns[SL_PLUGINS_BUCKETS];

/* Since sl_plugins_create. */
struct sl_plugins_stats {
    uint64_t registrations, registration_failures;
    uint64_t kubelet_starts;                      /* kubelets seen */
    uint64_t allocations, allocation_failures;    /* Allocate calls answered, and refused */
    uint64_t allocate_ns_sum;                     /* of both */
    uint64_t allocate_bucket[SL_PLUGINS_BUCKETS]; /* not cumulative */
    uint64_t preferred, preferred_failures;
    uint64_t lists_sent;
    uint64_t prestarts, prestart_failures; /* PreStartContainer answered, and refused */
};
void sl_plugins_stats(const struct sl_plugins *plugins, struct sl_plugins_stats *ret);

/* The same of one resource, since it was first advertised. */
struct sl_plugins_counts {
    uint64_t registrations, allocations, allocation_failures, prestarts, prestart_failures;
};

struct sl_plugins_resource {
    const char *name; /* good until the next apply */
    size_t advertised, healthy;
    bool registered; /* kubelet took it and listens */
    bool contested;  /* another process serves it */
    struct sl_plugins_counts counts;
};
size_t sl_plugins_count(const struct sl_plugins *plugins);
void sl_plugins_resource(const struct sl_plugins *plugins, size_t i,
                         struct sl_plugins_resource *ret);

/* Every resource is registered, and kubelet listens to it. */
bool sl_plugins_ready(const struct sl_plugins *plugins);

#endif
