/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The DRA driver gpu.sluice.io: tells kubelet it is there, publishes this node's ResourceSlices, and
 * prepares what the scheduler allocated: lease, MIG instance, CDI spec. Every step is in a checkpoint
 * before and after it is taken, so that a claim is prepared or gone, whenever this process ends.
 *
 * All of it in the loop's thread; what may block goes through `ops`. docs/dra.md is for users.
 */
#ifndef SLUICE_AGENT_DRA_DRA_H
#define SLUICE_AGENT_DRA_DRA_H

#include <stdbool.h>

#include "agent/cards/devices.h"
#include "agent/container/driver.h"
#include "agent/container/edits.h"
#include "base/loop.h"
#include "config/config.h"
#include "gpu/inventory.h"
#include "kube/kube.h"

struct sl_dra;

/* Something a person should know, about a pod or (pod "") a claim. */
struct sl_dra_event {
    bool warning;
    const char *name_space, *pod, *pod_uid, *claim, *claim_uid;
    const char *reason; /* CamelCase */
    const char *message;
};

struct sl_dra_ops {
    /* sl_devices_submit of the owner's devices. NULL: no MIG instances are made. */
    int (*submit)(void *data, sl_devices_job_fn *fn, sl_devices_done_fn *done, void *arg,
                  struct sl_err *err);
    /* MIG devices were made or destroyed: a read is wanted. May be NULL. */
    void (*refresh)(void *data);
    /* A share with strategy mps on this card: start its daemon where none runs, and give the tenant's
     * edits. -EAGAIN while it starts: asked again soon. NULL: mps is refused. */
    int (*mps)(void *data, const char *uuid, struct sl_edits *edits, struct sl_err *err);
    /* No share of the card uses MPS any more. May be NULL. */
    void (*mps_done)(void *data, const char *uuid);
    void (*event)(void *data, const struct sl_dra_event *event); /* may be NULL */
    /* The standby is over, the older agent has ended. May be NULL. */
    void (*took_over)(void *data);
};

struct sl_dra_options {
    const char *node_name;
    const char *instance;   /* the agent pod's UID, in the sockets' names: two agents overlap in an
                                     upgrade. NULL: there is one */
    const char *plugin_dir; /* NULL: /var/lib/kubelet/plugins/gpu.sluice.io; made */
    const char *registry_dir; /* NULL: /var/lib/kubelet/plugins_registry */
    const char *cdi_dir;
    const char *state_dir;        /* the checkpoint; NULL: plugin_dir */
    const char *arbiter_dir;      /* where the arbiter's control socket is */
    const char *arbiter_dir_host; /* the same for the container runtime */
    const char *sluice_dir_host;  /* of sl_cdi_install_sluice(), for the runtime */
};

/*
 * Two agents may overlap in an upgrade: the newer waits, without sockets and without slices of its own, until
 * the older has ended, and then takes over what it prepared. It is as good as ready meanwhile.
 *
 * Otherwise serves kubelet at once; until the first sl_dra_update it unprepares only, and kubelet asks again.
 * options and ops are copied, their strings outlive it. kube may be NULL (no API server): nothing new is prepared then.
 */
int sl_dra_create(struct sl_loop *loop, const struct sl_dra_options *options, struct sl_kube *kube,
                  const struct sl_dra_ops *ops, void *data, struct sl_dra **ret,
                  struct sl_err *err) SL_MUST_CHECK;
/* Sockets go, slices and prepared claims stay. A job under way may come back later. NULL is fine. */
void sl_dra_destroy(struct sl_dra *dra);

/* What this node has and how it is shared, now. All three are borrowed until the next call. */
void sl_dra_update(struct sl_dra *dra, const struct sl_inventory *inv,
                   const struct sl_config *config, const struct sl_driver *driver);

/* A card's or MIG device's health, as sl_health_options.changed tells it. */
void sl_dra_health(struct sl_dra *dra, const char *uuid, bool healthy, const char *reason);

struct sl_dra_stats {
    unsigned claims; /* prepared now */
    unsigned long prepared, prepare_failed, unprepared, unprepare_failed;
    bool registered;     /* kubelet said so */
    bool standby;        /* another agent still serves this node; we are next */
    bool slices_current; /* the API server has what we have */
};
struct sl_dra_stats sl_dra_stats(const struct sl_dra *dra);

/* One lease of a prepared claim, for metrics. */
struct sl_dra_lease {
    const char *tenant; /* in the arbiter; "" without one: whole cards, MIG, mps, time slicing */
    const char *name_space, *pod, *share_id;
};
void sl_dra_each_lease(const struct sl_dra *dra,
                       void (*each)(void *data, const struct sl_dra_lease *lease), void *data);

#endif
