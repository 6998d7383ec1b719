/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the composition root. Everything here belongs to the thread of the
 * loop. */
#ifndef SLUICE_AGENT_AGENT_INTERNAL_H
#define SLUICE_AGENT_AGENT_INTERNAL_H

#include "agent/cards/devices.h"
#include "agent/cards/health.h"
#include "container/driver.h"
#include "agent/dra/dra.h"
#include "agent/fraction/fraction.h"
#include "agent/kubelet/plugin.h"
#include "agent/kubelet/podres.h"
#include "agent/metrics/metrics_serve.h"
#include "agent/mps/mps.h"
#include "agent/node/labels_publish.h"
#include "agent/node/node.h"
#include "agent/node/node_feature.h"
#include "agent/options.h"
#include "agent/vm/made.h"
#include "agent/vm/offer.h"
#include "agent/vm/vm.h"
#include "base/loop.h"
#include "config/plan.h"
#include "http/server.h"

#define SL_AGENT_MAX_XIDS 128
#define SL_AGENT_MAX_GPUS 64

struct sl_agent {
    struct sl_agent_options opt;
    char *const *environ_list;
    struct sl_loop *loop;
    struct sl_source signals;
    bool stopping;
    struct sl_err fatal; /* why the agent stops by itself */

    struct sl_config *config;
    char *config_text;      /* the file as it was read last, good or bad; NULL: no file */
    size_t config_size;     /* of that text, which may contain a NUL: the parser refuses it */
    char config_file[4096]; /* "": none */
    char config_label[256]; /* "": no such label */
    bool text_refused;      /* the configuration in force comes from another text */
    bool label_known;       /* the label is known, or remembered from before, or not waited for */
    struct sl_timer label_wait;
    uint64_t reloads_ok, reloads_failed;
    double reload_time_s;   /* of the last reload that went well; NAN: none */
    char reload_error[400]; /* "": the last reload went well */
    char unfit[400];        /* why these cards cannot offer the configured devices; "": they can */
    bool vacated;           /* kubelet has been told who serves the names of resources now */

    struct sl_driver *driver;    /* NULL until the driver is found */
    struct sl_timer files_retry; /* driver files to find, CDI specs to write */
    uint64_t files_retry_ns;     /* 0: nothing to retry */
    struct sl_plan *plan;        /* NULL until there is an inventory */
    char nvml_library[4096];
    char node_name[256];

    struct sl_devices *devices;
    struct sl_health *health;
    struct sl_mps *mps; /* NULL until MPS is configured */
    struct sl_plugins *plugins;
    struct sl_kube *kube; /* NULL: no API server */
    struct sl_node *node;
    struct sl_labeler *labeler;
    struct sl_node_feature *feature; /* NULL: labels go to the Node */
    struct sl_podres *podres;
    struct sl_exporter *exporter;
    struct sl_http_server *http;
    struct sl_reload *reload;
    struct sl_arbiter_child *arbiter;
    struct sl_timer
        arbiter_late;        /* an arbiter that is away for longer than a change of agents takes */
    char arbiter_words[512]; /* why it is away; "": it runs */
    bool arbiter_said;       /* the Node has an event that it is away */
    struct sl_dra *dra;
    struct sl_fraction *fraction; /* NULL until fractions are configured without DRA */
    char resized_at[64];          /* the Node's SL_PROMISE_NUDGE_KEY, as last seen */
    bool published_gpus;          /* this agent has written the Node's annotations */
    char dra_mps[SL_AGENT_MAX_GPUS][SL_GPU_UUID_SIZE]; /* cards that claims share by MPS */
    size_t dra_mps_count;

    struct sl_vm *vm; /* NULL: no devices for virtual machines */
    struct sl_plugins *vm_plugins;
    struct sl_vm_offer *vm_offer, *vm_next; /* vm_next replaces vm_offer in this step */
    bool vm_took[SL_AGENT_MAX_GPUS];        /* by place in the inventory */
    uint64_t vm_driver_cards;               /* a sum of the driver's cards; 0: not known */
    uint64_t vm_allocated_ns;               /* when a device was given away last; 0: never */
    const struct sl_podres_map *vm_map;     /* kubelet's answer, in its step; NULL: none */
    struct sl_timer vm_again;               /* asks again who has what */
    bool vm_waits;                          /* sysfs has not been read: a card may be a machine's */
    bool vm_asking, vm_blind;               /* kubelet is asked; it does not answer */
    char vm_text[300];
    struct sl_vgpu_made vgpu_made;
    struct sl_podres *vgpu_podres; /* NULL until a vGPU is to be made or removed */
    struct sl_timer vgpu_again;
    bool vgpu_unseen;                  /* sysfs has not been read since the last step */
    bool vgpu_asking, vgpu_stepping;   /* kubelet is asked, a step is under way */
    char vgpu_uuid[SL_MDEV_UUID_SIZE]; /* of the next mediated device */
    char vgpu_said[600];               /* what is waited for */

    struct sl_metrics_xid xid[SL_AGENT_MAX_XIDS];
    size_t xid_count;
    double start_time_s;
    struct sl_plugins_stats metrics_stats; /* of the last scrape */
};

/*
 * arbiter_child.c: the arbiter, a process beside the agent. Decisions about GPU time must not wait for a label, and
 * tenants must keep their turns when the agent dies. The agent starts the arbiter, watches it, and starts it again.
 */
struct sl_arbiter_child_options {
    const char *dir;                                       /* of its sockets */
    const char *nvml_library;                              /* NULL: as the loader finds it */
    void (*state)(void *data, bool up, const char *words); /* may be NULL */
    void *data;
};

int sl_arbiter_child_create(struct sl_loop *loop, const struct sl_arbiter_child_options *opt,
                            struct sl_arbiter_child **ret, struct sl_err *err) SL_MUST_CHECK;
/* Ends the arbiter: tenants run on under their last limits until the next arbiter starts. NULL is fine. */
void sl_arbiter_child_destroy(struct sl_arbiter_child *child);

/* The child's side, from main(): argv after the word "arbiter". Returns the exit status. */
int sl_arbiter_child_main(int argc, char **argv);

/*
 * reload.c: tells when a file may have changed: written in place, replaced, or swapped as kubelet swaps a mounted
 * ConfigMap (a link of the directory). Where inotify does not work, or misses a change, a slow poll finds it.
 */
/* `changed` is called some 100 ms after the last of several changes, sometimes without any: compare the text. */
int sl_reload_create(struct sl_loop *loop, void (*changed)(void *data), void *data,
                     struct sl_reload **ret, struct sl_err *err) SL_MUST_CHECK;
void sl_reload_destroy(struct sl_reload *reload); /* NULL is fine */

/* The file to watch from now on; NULL or "": none. It need not exist. */
void sl_reload_watch(struct sl_reload *reload, const char *path);

/* agent_config.c: chooses the configuration, and follows its changes. */
int sl_agent_config_first(struct sl_agent *a, struct sl_err *err) SL_MUST_CHECK;
void sl_agent_config_changed(void *data);             /* the file may have changed */
bool sl_agent_config_waits(const struct sl_agent *a); /* for the label: make no plan now */
void sl_agent_config_label(void *data, const char *value);

/* agent_plan.c: makes the node's plan from inventory and configuration. */
void sl_agent_replan(struct sl_agent *a);
void sl_agent_retry_files(struct sl_timer *timer);
/* Counts the ids that are fractions, or are not; ids that the resource does not have count as neither. */
size_t sl_agent_count_ids(const struct sl_plan_resource *res, const char *const *ids, size_t n,
                          bool fractional);
bool sl_agent_shared_by(const struct sl_plan *plan, size_t gpu, enum sl_sharing sharing);
int sl_agent_allocate(void *data, const struct sl_plan_resource *res, const char *const *ids,
                      size_t n, struct sl_edits *edits, struct sl_err *err);
void sl_agent_health_changed(void *data, const char *uuid, bool healthy, const char *reason);
/* Cards may have gone to virtual machines, or have come back. */
void sl_agent_publish_cards(struct sl_agent *a);

/* Starts and ends MPS daemons as the plan and the claims need them now. */
int sl_agent_mps_apply(struct sl_agent *a, struct sl_err *err) SL_MUST_CHECK;

/* agent_node.c: the Node object, and the way that labels take to it. */
int sl_agent_node_open(struct sl_agent *a, struct sl_err *err) SL_MUST_CHECK;
void sl_agent_labels(void *data); /* labels, or the configuration, may have changed */
void sl_agent_node_fill(const struct sl_agent *a, struct sl_metrics_agent *m);

/* agent_observe.c: metrics and readiness. */
int sl_agent_observe_open(struct sl_agent *a, struct sl_err *err) SL_MUST_CHECK;
void sl_agent_observe_close(struct sl_agent *a);
int sl_agent_observe_arbiter(struct sl_agent *a,
                             struct sl_err *err) SL_MUST_CHECK; /* the arbiter may have started */
void sl_agent_count_xid(struct sl_agent *a, const char *uuid, uint64_t xid);

/* agent_dra.c: the DRA driver, where it is on. */
int sl_agent_dra_open(struct sl_agent *a, struct sl_err *err) SL_MUST_CHECK;
void sl_agent_dra_update(struct sl_agent *a);
/* The card's place in dra_mps; dra_mps_count: no claim shares the card by MPS. */
size_t sl_agent_dra_mps(const struct sl_agent *a, const char *uuid);

/* Notes that the arbiter is away; an event follows if it stays away. */
void sl_agent_arbiter_away(struct sl_agent *a, const char *words);
/* Starts the arbiter, where it is needed and does not run yet. */
int sl_agent_arbiter_open(struct sl_agent *a, struct sl_err *err) SL_MUST_CHECK;

/* agent_dra.c: copies libsluice to the directory that containers mount. */
int sl_agent_install_sluice(struct sl_agent *a, struct sl_err *err) SL_MUST_CHECK;

/* agent_fraction.c: fractions without DRA. */
void sl_agent_prestart(void *data, const struct sl_plan_resource *res, const char *const *ids,
                       size_t n, struct sl_prestart *call);
void sl_agent_fraction_update(struct sl_agent *a);
void sl_agent_fraction_seen(void *data);            /* the Node's annotations may have changed */
void sl_agent_fraction_publish(struct sl_agent *a); /* a card's health may have changed */

/* agent_vm.c: devices for virtual machines, where the configuration asks for them. */
int sl_agent_vm_open(struct sl_agent *a, struct sl_err *err) SL_MUST_CHECK;
void sl_agent_vm_reload(struct sl_agent *a); /* the configuration has changed */
void sl_agent_vm_offer(struct sl_agent *a);  /* the configuration is known now */
void sl_agent_vm_close(struct sl_agent *a);
bool sl_agent_vm_ready(const struct sl_agent *a);
void sl_agent_vm_again(struct sl_agent *a); /* makes the offer again */
/* agent_vm_way.c: by device plugins or by claims, and never both. */
enum sl_vm_way sl_agent_vm_way(const struct sl_agent *a);
void sl_agent_vm_way_set(struct sl_agent *a, struct sl_vm_offer *next);
void sl_agent_vm_way_look(
    struct sl_agent *a); /* after an offer: asks who has what, where that matters */
void sl_agent_vm_way_check(struct sl_agent *a); /* the configuration is new */
struct sl_podres *sl_agent_vm_podres(struct sl_agent *a);
/* Does a virtual machine have the card of this UUID, or may it get the card? */
bool sl_agent_vm_takes(const struct sl_agent *a, const char *uuid);
/* May containers have the card, or the MIG device? */
bool sl_agent_card_ok(const struct sl_agent *a, const char *uuid);

/* agent_vgpu.c: vGPUs made and removed as the configuration says. */
void sl_agent_vgpu_open(struct sl_agent *a);
void sl_agent_vgpu_close(struct sl_agent *a);
void sl_agent_vgpu_look(struct sl_agent *a); /* the tree or the configuration may have changed */
/* Frees nothing of its own: the caller frees ret->card. There must be a tree. */
void sl_agent_vgpu_input(const struct sl_agent *a, struct sl_vgpu_input *ret);

/* agent_observe.c: the UUID of the card of a device that a container has; NULL: not one of ours. */
const char *sl_agent_gpu_of(const struct sl_inventory *inv, const char *id);

/* agent.c: serves until SIGTERM or SIGINT. A bad configuration is an error at the start; later it is refused and the
 * old one stays. */
int sl_agent_run(const struct sl_agent_options *opt, char *const *environ_list,
                 struct sl_err *err) SL_MUST_CHECK;
/* agent_cleanup.c: instead of an agent. */
int sl_agent_cleanup(const struct sl_agent_options *opt, struct sl_err *err) SL_MUST_CHECK;
void sl_agent_refresh(void *data);                  /* reads the cards now */
void sl_agent_notice(void *data, const char *text); /* of a device plugin, for an event */
/* Logs the text and, where there is an API server, makes an event of the Node. */
void sl_agent_say(struct sl_agent *a, enum sl_event_type type, const char *reason, const char *fmt,
                  ...) SL_PRINTF(4, 5);

#endif
