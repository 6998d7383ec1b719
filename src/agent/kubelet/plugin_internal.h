/* SPDX-License-Identifier: Apache-2.0 */
/* The insides of device plugins, shared by plugin*.c. */
#ifndef SLUICE_AGENT_KUBELET_PLUGIN_INTERNAL_H
#define SLUICE_AGENT_KUBELET_PLUGIN_INTERNAL_H

#include <sys/types.h>
#include <sys/un.h>

#include "agent/kubelet/plugin.h"
#include "policy/prefer.h"
#include "rpc/client.h"
#include "rpc/server.h"

/*
 * kubelet_watch.c: watches the directory of kubelet's registration socket, where our sockets are too: a kubelet that
 * restarts, files that vanish or are replaced, the directory itself. Where inotify fails (its queue overflowed, or
 * there is none), a poll finds the changes.
 */
struct sl_kubelet_watch;

struct sl_kubelet_watch_ops {
    /* Kubelet's socket is new (there may have been one before): a kubelet has started. */
    void (*kubelet)(void *data);
    /* Another file of the directory was made, replaced or removed; NULL: any file may have changed. */
    void (*touched)(const char *name, void *data);
};

/* The directory need not exist. No callback comes before this returns; a kubelet that already runs is not reported. ops
 * must outlive the watch. */
int sl_kubelet_watch_create(struct sl_loop *loop, const char *kubelet_socket,
                            const struct sl_kubelet_watch_ops *ops, void *data,
                            struct sl_kubelet_watch **ret, struct sl_err *err) SL_MUST_CHECK;
/* Not from inside its callbacks. NULL is fine. */
void sl_kubelet_watch_destroy(struct sl_kubelet_watch *watch);

const char *sl_kubelet_watch_dir(const struct sl_kubelet_watch *watch);

enum { PLUGIN_MAX_MESSAGE = 16 << 20 }; /* the most that kubelet accepts */

/* The parts of an inventory that apply() keeps. */
struct plugin_cards {
    size_t count;
    char (*uuid)[SL_GPU_UUID_SIZE];
    bool *lost;
    int *numa;
    uint8_t *links;
};

struct plugin_unit {
    size_t gpu, mig;
    unsigned replicas;
};

/* The devices of one resource, replaced as a whole. */
struct plugin_devices {
    struct sl_plan_resource res; /* we own `device` */
    bool *healthy;
    size_t healthy_count;
    uint32_t *by_id; /* positions in res.device, by id */
    bool whole;      /* each device is a whole card: no shares, no MIG */
    bool fractions;  /* has fractions: kubelet must ask before it starts a container */
    /* A unit is a card or a MIG device, with all its replicas. */
    uint32_t *unit_of; /* by device */
    struct plugin_unit *units;
    size_t unit_count;
};

/* One stream to a listening kubelet. Outlives its plugin while the connection is on the stack. */
struct plugin_stream {
    struct plugin *plugin; /* NULL: the plugin is gone, or the stream has been told to end */
    struct sl_rpc_call *call;
    struct plugin_stream *next;
    bool stale; /* the reader was slow: send the newest list when there is room */
};

enum plugin_state {
    PLUGIN_NEW,        /* nothing tried yet */
    PLUGIN_WAITING,    /* not registered; the timer tries again */
    PLUGIN_CALLING,    /* Register is under way */
    PLUGIN_REGISTERED, /* kubelet accepted it; without a stream the timer runs */
    PLUGIN_CONTESTED,  /* another process owns our socket; the timer checks whether it still does */
};

struct plugin {
    struct sl_plugins *owner;
    struct plugin *next;
    struct plugin_devices devices;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    const char *endpoint; /* the last component of path */
    struct sl_plugins_counts counts;

    /* plugin_serve.c */
    struct sl_rpc_server *server;
    bool listening; /* … on this very file: */
    dev_t dev;
    ino_t ino;
    struct plugin_stream *streams;
    uint8_t *list; /* packed; NULL: must be packed */
    size_t list_size;
    struct sl_timer push; /* collects the changes of one round of the loop into one list */
    bool retiring;

    /* plugin_register.c */
    enum plugin_state state;
    struct sl_rpc_client *client;
    struct sl_timer timer;
    struct sl_timer gap;  /* our socket is missing: another process may replace it until then */
    uint64_t missed_ns;   /* since when the socket is missing; 0: it is there */
    uint64_t delay_ns;    /* the next wait */
    uint64_t listened_ns; /* when the newest stream began */
    bool dropped;         /* a stream ended since Register was called */
    char complaint[600];  /* the last message: none is logged twice */

    /* plugin_vacate.c */
    uint64_t vacate_ns; /* when to give up vacating; 0: this plugin does not vacate */
    bool vacated;       /* kubelet has the new options */
    bool vacate_told;   /* told that another process still serves the name */
};

struct sl_plugins {
    struct sl_loop *loop;
    struct sl_plugins_options options;
    char *kubelet_socket;
    struct sl_kubelet_watch *watch;
    struct plugin *plugins;  /* in the plan's order */
    struct plugin *retiring; /* plugins that are being stopped */
    struct plugin *vacating; /* plugins that register so that kubelet forgets them */
    struct plugin_cards cards;
    char (*unhealthy)[SL_GPU_UUID_SIZE];
    size_t unhealthy_count;
    struct sl_prestart *prestarts; /* not answered yet */
    struct sl_plugins_stats stats;
};

/* plugin_devices.c */
void sl_plugin_cards_copy(const struct sl_inventory *inv, struct plugin_cards *ret);
void sl_plugin_cards_free(struct plugin_cards *cards);
int sl_plugin_devices_copy(const struct sl_plan_resource *res, const struct plugin_cards *cards,
                           struct plugin_devices *ret, struct sl_err *err) SL_MUST_CHECK;
void sl_plugin_devices_free(struct plugin_devices *devices);
bool sl_plugin_devices_equal(const struct plugin_devices *a, const struct plugin_devices *b);
/* SIZE_MAX: no such device. */
size_t sl_plugin_devices_find(const struct plugin_devices *devices, const char *id);
/* Sets `healthy` from all that is known; true: something changed. */
bool sl_plugin_devices_judge(const struct sl_plugins *plugins, const struct plugin_cards *cards,
                             struct plugin_devices *devices);
/* A ListAndWatch message; `none`: with no devices in it. */
int sl_plugin_devices_pack(const struct plugin_devices *devices, bool none, uint8_t **ret,
                           size_t *ret_size, struct sl_err *err) SL_MUST_CHECK;

/* plugin_serve.c */
void sl_plugin_serve_init(struct plugin *p);
/* Starts a server that listens on p->path; a new server if the old one has connections. */
int sl_plugin_serve(struct plugin *p, struct sl_err *err) SL_MUST_CHECK;
/* Makes the socket's file anew; connections live on. */
int sl_plugin_listen(struct plugin *p, struct sl_err *err) SL_MUST_CHECK;
void sl_plugin_unserve(struct plugin *p);
/* The list has changed: sends it to all listeners. */
void sl_plugin_changed(struct plugin *p);
/* Sends an empty list and stops; frees the plugin afterwards. The caller has unlinked it. */
void sl_plugin_retire(struct plugin *p);
void sl_plugin_free(struct plugin *p);

/* plugin_register.c */
void sl_plugin_register_init(struct plugin *p);
/* Serves and registers now, in any state. */
void sl_plugin_register(struct plugin *p);
void sl_plugin_register_stop(struct plugin *p);
/* A new kubelet: failures with the old one do not count. */
void sl_plugin_kubelet_started(struct plugin *p);
/* Looks at the socket's file, and acts by its state. */
void sl_plugin_check_file(struct plugin *p);
void sl_plugin_stream_began(struct plugin *p);
void sl_plugin_streams_ended(struct plugin *p);

/* plugin_calls.c */
void sl_plugin_call_options(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data);
void sl_plugin_call_prefer(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data);
void sl_plugin_call_allocate(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data);
/* The options for kubelet, at registration and on request. */
struct Dp__DevicePluginOptions;
void sl_plugin_options(const struct plugin *p, struct Dp__DevicePluginOptions *ret);

/* plugin_prestart.c */
void sl_plugin_call_prestart(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data);
bool sl_plugin_wants_prestart(const struct plugin *p);
void sl_plugin_prestarts_forget(struct sl_plugins *plugins); /* the owner may still answer them */

/* plugin_vacate.c: called by the timer; false: try again. */
bool sl_plugin_vacate_ends(struct plugin *p);
/* `who` still serves the name. */
void sl_plugin_vacate_waits(struct plugin *p, const char *who);

/* plugin_prefer.c: picks from `available`; ret (size entries) points at ids in p's devices. */
int sl_plugin_prefer(struct plugin *p, char *const *available, size_t available_count,
                     char *const *must, size_t must_count, size_t size, char **ret,
                     struct sl_err *err) SL_MUST_CHECK;

/* plugin.c: makes a plugin that serves nothing yet and is in no list. */
int sl_plugin_make(struct sl_plugins *plugins, const struct sl_plan_resource *res,
                   const struct plugin_cards *cards, struct plugin **ret,
                   struct sl_err *err) SL_MUST_CHECK;
/* plugin.c: logs the text and calls `notice`. */
void sl_plugin_notice(const struct sl_plugins *plugins, const char *fmt, ...) SL_PRINTF(2, 3);

#endif
