/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The DRA driver gpu.sluice.io, or gpu.nvidia.com in the place of NVIDIA's: registers with kubelet, publishes this node's ResourceSlices, and prepares allocated
 * claims: lease, MIG instance, CDI spec. The checkpoint has every step before and after it is taken: whenever this
 * process ends, a claim is either prepared or gone.
 *
 * All of it runs in the loop's thread; blocking work goes through `ops`. docs/dra.md is for users.
 */
#ifndef SLUICE_AGENT_DRA_DRA_H
#define SLUICE_AGENT_DRA_DRA_H

#include <stdbool.h>

#include "agent/cards/devices.h"
#include "agent/dra/device_name.h"
#include "agent/vm/offer.h"
#include "container/driver.h"
#include "container/edits.h"
#include "base/loop.h"
#include "config/config.h"
#include "gpu/inventory.h"
#include "kube/kube.h"

struct sl_dra;

/* News for people, about a pod or (pod "") a claim. */
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
    /* MIG devices were made or destroyed: read the cards again. May be NULL. */
    void (*refresh)(void *data);
    /* A share with strategy mps on this card: starts its daemon where none runs, and sets the tenant's edits. -EAGAIN
     * while the daemon starts: called again soon. NULL: mps is refused. */
    int (*mps)(void *data, const char *uuid, struct sl_edits *edits, struct sl_err *err);
    /* No share of the card uses MPS any more. May be NULL. */
    void (*mps_done)(void *data, const char *uuid);
    void (*event)(void *data, const struct sl_dra_event *event); /* may be NULL */
    /* The standby is over: the older agent has ended. May be NULL. */
    void (*took_over)(void *data);
    /* Another program serves our name on this node; this driver waits for its end. One sentence. May be NULL. */
    void (*name_taken)(void *data, const char *message);
};

struct sl_dra_options {
    struct sl_dra_names names;
    const char *node_name;
    const char *instance;   /* the agent pod's UID, in the sockets' names: two agents overlap in an
                             * upgrade. NULL: there is one agent */
    const char *plugin_dir; /* NULL: /var/lib/kubelet/plugins/gpu.sluice.io; made */
    const char *registry_dir; /* NULL: /var/lib/kubelet/plugins_registry */
    const char *cdi_dir;
    const char *state_dir;        /* the checkpoint; NULL: plugin_dir */
    const char *arbiter_dir;      /* the directory of the arbiter's control socket */
    const char *arbiter_dir_host; /* the same directory for the container runtime */
    const char *sluice_dir_host;  /* of sl_cdi_install_sluice(), for the runtime */
    const char *state_dir_host;   /* state_dir for the container runtime; NULL: the same path */
};

/*
 * Two agents may overlap in an upgrade: the newer one waits, without sockets and without slices of its own, until the
 * older one has ended. Then it takes over the prepared claims. It counts as ready meanwhile.
 *
 * Otherwise this driver serves kubelet at once; until the first sl_dra_update it only unprepares, and kubelet asks
 * again. options and ops are copied; their strings must outlive the driver. kube may be NULL (no API server): then no
 * claim is prepared.
 */
int sl_dra_create(struct sl_loop *loop, const struct sl_dra_options *options, struct sl_kube *kube,
                  const struct sl_dra_ops *ops, void *data, struct sl_dra **ret,
                  struct sl_err *err) SL_MUST_CHECK;
/* Removes the sockets; slices and prepared claims stay. A running job may end later. NULL is fine. */
void sl_dra_destroy(struct sl_dra *dra);

/* The cards of this node and how they are shared, now. All three are borrowed until the next call. */
void sl_dra_update(struct sl_dra *dra, const struct sl_inventory *inv,
                   const struct sl_config *config, const struct sl_driver *driver);

/* The devices for virtual machines, now; NULL: none. Both are borrowed until the next call. Cards that the offer takes
 * leave the slices; its devices are in them where it is by claims. */
void sl_dra_vm(struct sl_dra *dra, const struct sl_vm_offer *offer, const struct sl_config *config);
/* The devices for virtual machines are still being read, or not to be had: until sl_dra_vm, nothing is published and no
 * card prepared, because a card may be a virtual machine's. */
void sl_dra_await_vm(struct sl_dra *dra, bool await);
/* This node has no driver for containers: the slices need not wait for cards. */
void sl_dra_no_driver(struct sl_dra *dra);
/* Has a claim this device for virtual machines? While another agent has the claims, it may. */
bool sl_dra_vm_held(const struct sl_dra *dra, const char *id);

/* A card's or MIG device's health, as sl_health_options.changed tells it. */
void sl_dra_health(struct sl_dra *dra, const char *uuid, bool healthy, const char *reason);

struct sl_dra_stats {
    unsigned claims; /* prepared now */
    unsigned long prepared, prepare_failed, unprepared, unprepare_failed;
    bool registered;     /* kubelet has confirmed it */
    bool standby;        /* another agent still serves this node; this one is next */
    bool slices_current; /* the API server has our current slices */
};
struct sl_dra_stats sl_dra_stats(const struct sl_dra *dra);

/* One lease of a prepared claim, for metrics. */
struct sl_dra_lease {
    const char *tenant; /* in the arbiter; "": none, for whole cards, MIG, mps, time slicing */
    const char *name_space, *pod, *share_id;
};
void sl_dra_each_lease(const struct sl_dra *dra,
                       void (*each)(void *data, const struct sl_dra_lease *lease), void *data);

#endif
