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
 * kubelet_watch.c: watches the directory where kubelet's registration socket lives and ours do: a kubelet that comes
 * back, files that vanish or are replaced, the directory itself going and coming. What inotify cannot tell (its queue
 * ran over, there is none to be had) is found by looking.
 */
struct sl_kubelet_watch;

struct sl_kubelet_watch_ops {
    /* Kubelet's socket was made anew (also when there was one before): a kubelet has started. */
    void (*kubelet)(void *data);
    /* Another file of the directory was made, replaced or removed; NULL: any of them may have been. */
    void (*touched)(const char *name, void *data);
};

/* The directory need not exist. Nothing is called back before this returns; a kubelet that is there
 * already is not announced. ops must outlive the watch. */
int sl_kubelet_watch_create(struct sl_loop *loop, const char *kubelet_socket,
                            const struct sl_kubelet_watch_ops *ops, void *data,
                            struct sl_kubelet_watch **ret, struct sl_err *err) SL_MUST_CHECK;
/* Not from inside its callbacks. NULL is fine. */
void sl_kubelet_watch_destroy(struct sl_kubelet_watch *watch);

const char *sl_kubelet_watch_dir(const struct sl_kubelet_watch *watch);

enum { PLUGIN_MAX_MESSAGE = 16 << 20 }; /* what kubelet takes from a plugin */

/* What apply() keeps of an inventory. */
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
    struct sl_plan_resource res; /* `device` is ours */
    bool *healthy;
    size_t healthy_count;
    uint32_t *by_id; /* positions in res.device, by id */
    bool whole;      /* each a card of its own: no shares, no MIG */
    bool fractions;  /* some are: kubelet is to ask before it starts a container */
    /* What is shared out: a card, or a MIG device, with its replicas. */
    uint32_t *unit_of; /* by device */
    struct plugin_unit *units;
    size_t unit_count;
};

/* One kubelet listening. Outlives its plugin when the connection is still on the stack. */
struct plugin_stream {
    struct plugin *plugin; /* NULL: the plugin has gone, or the stream has been told to end */
    struct sl_rpc_call *call;
    struct plugin_stream *next;
    bool stale; /* the reader was slow: it gets the newest list as soon as there is room */
};

enum plugin_state {
    PLUGIN_NEW,        /* nothing has been tried */
    PLUGIN_WAITING,    /* not registered; the timer tries again */
    PLUGIN_CALLING,    /* Register is under way */
    PLUGIN_REGISTERED, /* kubelet took it; with no stream the timer runs */
    PLUGIN_CONTESTED,  /* another process owns our socket; the timer looks whether it still does */
};

struct plugin {
    struct sl_plugins *owner;
    struct plugin *next;
    struct plugin_devices devices;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    const char *endpoint; /* its last component */
    struct sl_plugins_counts counts;

    /* plugin_serve.c */
    struct sl_rpc_server *server;
    bool listening; /* … on this very file: */
    dev_t dev;
    ino_t ino;
    struct plugin_stream *streams;
    uint8_t *list; /* packed; NULL: to be packed */
    size_t list_size;
    struct sl_timer push; /* changes of one round of the loop go out as one list */
    bool retiring;

    /* plugin_register.c */
    enum plugin_state state;
    struct sl_rpc_client *client;
    struct sl_timer timer;
    struct sl_timer gap;  /* our socket is missing: by then somebody else's may be there */
    uint64_t missed_ns;   /* since when; 0: it is not */
    uint64_t delay_ns;    /* the next wait */
    uint64_t listened_ns; /* when the newest stream began */
    bool dropped;         /* a stream ended since Register was called */
    char complaint[600];  /* said last: nothing is said twice */

    /* plugin_vacate.c */
    uint64_t vacate_ns; /* when to give that up; 0: it is not one of those */
    bool vacated;       /* kubelet has heard */
    bool vacate_told;   /* that somebody serves the name all the same */
};

struct sl_plugins {
    struct sl_loop *loop;
    struct sl_plugins_options options;
    char *kubelet_socket;
    struct sl_kubelet_watch *watch;
    struct plugin *plugins;  /* in the plan's order */
    struct plugin *retiring; /* on their way out */
    struct plugin *vacating; /* registered to be forgotten */
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
/* Sets `healthy` from what is known; true when something changed. */
bool sl_plugin_devices_judge(const struct sl_plugins *plugins, const struct plugin_cards *cards,
                             struct plugin_devices *devices);
/* A ListAndWatch message; `none`: with no devices in it. */
int sl_plugin_devices_pack(const struct plugin_devices *devices, bool none, uint8_t **ret,
                           size_t *ret_size, struct sl_err *err) SL_MUST_CHECK;

/* plugin_serve.c */
void sl_plugin_serve_init(struct plugin *p);
/* A server that listens on p->path, a fresh one if the old one has connections. */
int sl_plugin_serve(struct plugin *p, struct sl_err *err) SL_MUST_CHECK;
/* Makes the socket's file anew; connections live on. */
int sl_plugin_listen(struct plugin *p, struct sl_err *err) SL_MUST_CHECK;
void sl_plugin_unserve(struct plugin *p);
/* The list has changed: to be sent to whoever listens. */
void sl_plugin_changed(struct plugin *p);
/* Says "nothing left" and stops; freed when that is done. The caller has unlinked it. */
void sl_plugin_retire(struct plugin *p);
void sl_plugin_free(struct plugin *p);

/* plugin_register.c */
void sl_plugin_register_init(struct plugin *p);
/* Whatever was before: serve and register now. */
void sl_plugin_register(struct plugin *p);
void sl_plugin_register_stop(struct plugin *p);
/* A new kubelet: what was tried with the old one does not count. */
void sl_plugin_kubelet_started(struct plugin *p);
/* Looks at the socket's file, and does what its state asks for. */
void sl_plugin_check_file(struct plugin *p);
void sl_plugin_stream_began(struct plugin *p);
void sl_plugin_streams_ended(struct plugin *p);

/* plugin_calls.c */
void sl_plugin_call_options(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data);
void sl_plugin_call_prefer(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data);
void sl_plugin_call_allocate(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data);
/* What kubelet is told at registration, and when it asks. */
struct Dp__DevicePluginOptions;
void sl_plugin_options(const struct plugin *p, struct Dp__DevicePluginOptions *ret);

/* plugin_prestart.c */
void sl_plugin_call_prestart(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data);
bool sl_plugin_wants_prestart(const struct plugin *p);
void sl_plugin_prestarts_forget(struct sl_plugins *plugins); /* they may be answered later */

/* plugin_vacate.c: the timer's turn; false: there is more to try. */
bool sl_plugin_vacate_ends(struct plugin *p);
/* `who` serves the name still. */
void sl_plugin_vacate_waits(struct plugin *p, const char *who);

/* plugin_prefer.c: which of `available`; ret (size entries) points at ids in p's devices. */
int sl_plugin_prefer(struct plugin *p, char *const *available, size_t available_count,
                     char *const *must, size_t must_count, size_t size, char **ret,
                     struct sl_err *err) SL_MUST_CHECK;

/* plugin.c: one that serves nothing yet, in no list. */
int sl_plugin_make(struct sl_plugins *plugins, const struct sl_plan_resource *res,
                   const struct plugin_cards *cards, struct plugin **ret,
                   struct sl_err *err) SL_MUST_CHECK;
/* plugin.c: to the log and to whoever makes events of it. */
void sl_plugin_notice(const struct sl_plugins *plugins, const char *fmt, ...) SL_PRINTF(2, 3);

#endif
