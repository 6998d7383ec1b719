/* SPDX-License-Identifier: Apache-2.0 */
/* The controller as a whole: watches, HTTP servers, requests to the API server, all in the thread of one loop. */
#ifndef SLUICE_CONTROLLER_CONTROLLER_H
#define SLUICE_CONTROLLER_CONTROLLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/loop.h"
#include "controller/mutate.h"
#include "kube/kube.h"
#include "policy/place.h"

struct sl_controller;

enum sl_extender_mode {
    SL_EXTENDER_OFF,
    SL_EXTENDER_CHOOSE,     /* filter chooses and reserves */
    SL_EXTENDER_ALL,        /* filter answers with all nodes that fit; scores decide */
    SL_EXTENDER_PRIORITIZE, /* only scores, for pods placed by DRA */
};

/* How far a pod may be resized by annotation. */
enum sl_resize_mode {
    SL_RESIZE_NEVER,
    SL_RESIZE_ALLOCATED, /* up to what the pod was allocated */
    SL_RESIZE_FREE,      /* … and beyond, while the card has room and the quota allows it */
};

/* Strings are borrowed for the controller's life. */
struct sl_controller_options {
    struct sl_kube_options kube;
    const char *listen;        /* TLS: webhook and extender; NULL: none */
    const char *extender_http; /* the extender without TLS, for loopback; NULL: none */
    const char *client_ca;     /* file: authorities of the extender's clients; NULL: any client */
    const char *client_name;   /* … and the client's common name; NULL: any */
    const char *ui_token_file; /* the page on `listen`, for those who have this token; NULL: no */
    const char *ui_loopback;   /* the page without TLS at this loopback address; NULL: no */
    const char *metrics;       /* /metrics, /healthz, /readyz without TLS; NULL: none */
    const char *cert_file, *key_file;       /* both, or neither: self-signed, kept in a Secret */
    const char *name_space;                 /* our own namespace: of Secret, Lease and Service */
    const char *secret, *service, *webhook; /* names; webhook: MutatingWebhookConfiguration */
    bool admission;                         /* serve the webhook */
    const char *high_priority; /* namespaces allowed to use it, with commas, or *; NULL: none */
    enum sl_resize_mode resize;
    const char *resize_free; /* namespaces that may go beyond all the same; as high_priority */
    struct sl_mutate_options mutate;
    enum sl_extender_mode extender;
    enum sl_place_policy policy;
    bool elect; /* one of several replicas leads */
    const char *lease, *identity;
    const char *pod; /* our own pod, labelled sluice.io/leader while it leads; NULL: not in a pod */
    uint64_t lease_ns, renew_ns, retry_ns;
    long template_keep_s; /* how long an unused template stays */
};

int sl_controller_create(struct sl_loop *loop, const struct sl_controller_options *opt,
                         struct sl_controller **ret, struct sl_err *err) SL_MUST_CHECK;
void sl_controller_destroy(struct sl_controller *c);
/* Takes no new work; calls `done` once running binds are over and the lease is given back. */
void sl_controller_stop(struct sl_controller *c, void (*done)(void *data), void *data);

bool sl_controller_ready(const struct sl_controller *c);

#endif
