/* SPDX-License-Identifier: Apache-2.0 */
/* Kubelet's end of the device plugin protocol, in the test's own loop: behaves as a real kubelet or, when told so,
 * badly. */
#ifndef SLUICE_TESTS_AGENT_FAKE_KUBELET_H
#define SLUICE_TESTS_AGENT_FAKE_KUBELET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/loop.h"
#include "rpc/client.h"
#include "rpc/server.h"

enum { FAKE_RESOURCES = 8 };

enum fake_manners {
    FAKE_GOOD,
    FAKE_REFUSES,    /* answers Register with an error */
    FAKE_SILENT,     /* never answers Register */
    FAKE_GARBAGE,    /* answers Register with bytes that are no message */
    FAKE_DEAF,       /* takes the registration, never asks for the list */
    FAKE_INCONSTANT, /* asks for the list and hangs up */
    FAKE_RACES,      /* up to 1.36: the end of an old stream disconnects the new client, once */
};

/* The data of one resource. */
struct fake_resource {
    struct fake_kubelet *kubelet;
    char name[128], endpoint[128];
    struct sl_rpc_client *client;
    struct sl_rpc_call *stream;
    unsigned registrations, lists, ends; /* of streams */
    size_t devices, healthy;             /* of the newest list */
    size_t with_numa;
    char **id; /* of the newest list, in its order */
    bool *ok;
    unsigned
        blips; /* devices of a list that a later list, or the end of a stream, took away for a moment */
    bool preferred, options_answered;
    bool prestart, prestart_registered; /* as answered, and as registered */
};

struct fake_kubelet {
    struct sl_loop *loop;
    char dir[80], path[100];
    struct sl_rpc_server *server;
    enum fake_manners manners;
    struct fake_resource resource[FAKE_RESOURCES];
    unsigned registrations; /* in all, of all lives */
    bool raced;
};

/* As kubelet does: removes every socket in its directory, then listens. */
void fake_start(struct fake_kubelet *k, struct sl_loop *loop, const char *dir);
/* Gone. `stale`: its socket's file stays behind, as after SIGKILL. */
void fake_stop(struct fake_kubelet *k, bool stale);
struct fake_resource *fake_find(struct fake_kubelet *k,
                                const char *name); /* NULL: not registered */

/* A unary call to the plugin and its answer. */
struct fake_call {
    bool done;
    enum sl_rpc_code code;
    char text[600];
    uint8_t *answer;
    size_t size;
    struct sl_rpc_call *call;
};
void fake_call(struct fake_resource *r, const char *method, const void *msg, size_t size,
               struct fake_call *ret);
void fake_allocate(struct fake_resource *r, const char *const *ids, size_t n,
                   struct fake_call *ret);
void fake_prestart(struct fake_resource *r, const char *const *ids, size_t n, uint64_t timeout_ns,
                   struct fake_call *ret);
void fake_prefer(struct fake_resource *r, const char *const *available, size_t n,
                 const char *const *must, size_t must_n, int want, struct fake_call *ret);
void fake_call_free(struct fake_call *call);

#endif
