/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fractions on the device plugin's path. Kubelet's Allocate does not name the pod, so the answer is only the name of a
 * slot. Before kubelet starts the container, it calls PreStartContainer, and by then PodResources tells which container
 * has the slot. The pod's promise, written by the scheduler extender, becomes a tenant of the arbiter, and the slot's
 * CDI spec becomes that tenant's.
 *
 * Nothing is guessed, nothing is locked, and there is no file of our own. The state is in tenants (kept by the arbiter,
 * with their slot in `about`) and in specs; kubelet and the API server tell which of them are left over.
 */
#ifndef SLUICE_AGENT_FRACTION_FRACTION_H
#define SLUICE_AGENT_FRACTION_FRACTION_H

#include <stdbool.h>
#include <stddef.h>

#include "container/driver.h"
#include "container/edits.h"
#include "agent/kubelet/plugin.h"
#include "base/loop.h"
#include "config/config.h"
#include "gpu/inventory.h"
#include "kube/kube.h"

struct sl_fraction;

struct sl_fraction_options {
    const char *node_name;
    const char *cdi_dir;
    const char *arbiter_dir, *arbiter_dir_host; /* for this process, and for the host */
    const char *sluice_dir_host;                /* of sl_cdi_install_sluice() */
    const char *podres_socket;                  /* NULL: kubelet's usual one */
    bool claims_too; /* no DRA driver runs here: tenants that one left go with their pods, too */
    /* The cards and the driver now; either may be NULL. Valid until the callback's caller returns. */
    void (*machine)(void *data, const struct sl_inventory **inv, const struct sl_driver **driver);
    /* The node's configuration now: rights of pods, and how GPU time is shared. NULL: the defaults. */
    const struct sl_config *(*config)(void *data);
    /* Writes an event about a pod. NULL: no events. */
    void (*event)(void *data, const char *pod_namespace, const char *pod, const char *uid,
                  bool warning, const char *reason, const char *text);
    void *data;
};

/* The strings of the options must outlive this. kube NULL: every container is refused, with the reason. */
int sl_fraction_create(struct sl_loop *loop, const struct sl_fraction_options *opt,
                       struct sl_kube *kube, struct sl_fraction **ret,
                       struct sl_err *err) SL_MUST_CHECK;
/* Tenants stay, for running containers. Containers about to start are refused. NULL is fine. */
void sl_fraction_destroy(struct sl_fraction *f);

/* The answer to Allocate: the slot's name, as a CDI device or, where the configuration has only annotations, as an
 * annotation. Pure. */
int sl_fraction_allocate(const struct sl_config *config, const char *const *ids, size_t n,
                         struct sl_edits *edits, struct sl_err *err) SL_MUST_CHECK;

/* As sl_plugins_prestart, for devices that are fractions. */
void sl_fraction_prestart(struct sl_fraction *f, const char *resource, const char *const *ids,
                          size_t n, struct sl_prestart *call);

/* Leases of this node may have changed: reads the pods of all tenants again. */
void sl_fraction_look(struct sl_fraction *f);

/* The pod and container of a tenant; false: the agent did not make this tenant. The texts are
 * valid until the loop runs again. */
struct sl_fraction_owner {
    const char *pod_namespace, *pod, *container;
};
bool sl_fraction_owner(const struct sl_fraction *f, const char *tenant,
                       struct sl_fraction_owner *ret);
/* Containers that have a tenant. */
size_t sl_fraction_count(const struct sl_fraction *f);

#endif
