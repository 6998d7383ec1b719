/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the controller. */
#ifndef SLUICE_CONTROLLER_CONTROLLER_INTERNAL_H
#define SLUICE_CONTROLLER_CONTROLLER_INTERNAL_H

#include "base/map.h"
#include "controller/claims.h"
#include "controller/cluster.h"
#include "controller/controller.h"
#include "controller/extender.h"
#include "controller/quota.h"
#include "http/server.h"
#include "kube/leader.h"

enum { SERVE_TLS, SERVE_EXTENDER, SERVE_METRICS, SERVE_UI, SERVE_COUNT };
enum {
    FEED_NODES,
    FEED_PODS,
    FEED_QUOTAS,
    FEED_SLICES,
    FEED_CLAIMS,
    FEED_TEMPLATES,
    FEED_SECRET,
    FEED_WEBHOOK,
    FEED_COUNT
};

struct serve {
    struct sl_controller *c;
    unsigned kind;
    struct sl_http_server *server; /* NULL: not open */
};

struct feed {
    struct sl_controller *c;
    struct sl_kube_watch *watch;
    unsigned which;
    bool synced;
};

/* A call that waits for the API server before it is answered. */
struct late_call {
    struct late_call *next;
    struct sl_controller *c;
    struct sl_http_call *call; /* NULL: the client left */
};

struct counters {
    uint64_t reviews_untouched, reviews_patched, reviews_denied, reviews_bad;
    uint64_t filters, prioritizes, binds, binds_failed, watch_troubles, templates_made,
        templates_dropped;
};

struct sl_controller {
    struct sl_loop *loop;
    struct sl_controller_options opt;
    struct sl_kube *kube;
    struct sl_cluster *cluster;
    struct sl_extender extender;
    struct sl_quota quota;
    struct sl_claims claims;
    struct ui_dra *dra;      /* NULL: no page, or no DRA */
    struct sl_map templates; /* by namespace/name */
    struct sl_map settling;  /* pods whose HAMi annotations are not up to date, by uid */
    unsigned settling_sent;
    struct sl_map resizing; /* pods whose resize annotation is not carried out yet, by uid */
    unsigned resizing_sent;
    unsigned telling; /* requests under way that label nodes with room */
    struct sl_leader *leader;
    struct serve serve[SERVE_COUNT];
    char *client_ca_pem; /* the text of opt.client_ca */
    struct feed feed[FEED_COUNT];
    struct certs *certs;
    struct late_call *reviews, *binds;
    struct sl_timer tick, sweep;
    struct counters count;
    int labelled; /* the label of this pod: 1 leader, 0 not the leader, -1 not known */
    bool labelling;
    bool stopping;
    void (*stopped)(void *data);
    void *stopped_data;
};

/* controller.c */
bool sl_controller_leads(const struct sl_controller *c);
void sl_controller_maybe_stopped(struct sl_controller *c);
bool sl_controller_listed(const char *list, const char *name); /* is the name in the comma list? */
void sl_controller_answer(struct sl_http_call *call, char *json); /* takes ownership of json */

/* feeds.c */
int sl_feeds_start(struct sl_controller *c, struct sl_err *err) SL_MUST_CHECK;
void sl_feeds_stop(struct sl_controller *c);
bool sl_feeds_synced(const struct sl_controller *c);

/* serve.c */
int sl_serve_start(struct sl_controller *c, struct sl_err *err) SL_MUST_CHECK;
int sl_serve_tls(struct sl_controller *c, const char *cert_pem, const char *key_pem,
                 struct sl_err *err) SL_MUST_CHECK;
void sl_serve_stop(struct sl_controller *c);

/* ui.c: the page */
/* Is the token readable? A mistake is told at the start, not to the first visitor. */
int sl_ui_check(const struct sl_controller *c, struct sl_err *err) SL_MUST_CHECK;
bool sl_ui_on(const struct sl_controller *c);
void sl_ui_handle(struct sl_controller *c, struct sl_http_call *call,
                  const struct sl_http_request *request, bool loopback);

/* ui_dra.c */
struct ui_dra *sl_ui_dra_create(enum sl_place_policy policy, struct sl_err *err);
void sl_ui_dra_free(struct ui_dra *d);
struct sl_cluster *sl_ui_dra_cluster(struct ui_dra *d);
void sl_ui_dra_slice(struct ui_dra *d, bool gone, const json_t *slice);
void sl_ui_dra_claim(struct ui_dra *d, bool gone, const json_t *claim);

/* webhook.c */
void sl_webhook_handle(struct sl_controller *c, struct sl_http_call *call,
                       const struct sl_http_request *request);
void sl_webhook_free(struct sl_controller *c);

/* templates.c: the feed reports existing ones */
void sl_templates_set(struct sl_controller *c, enum sl_kube_event event, json_t *object);
/* Makes sure that the template exists and stays for a while. done is called once, maybe at once. The caller owns the
 * call and keeps it until then. */
struct templates_call {
    struct sl_controller *c;
    void (*done)(void *data, const struct sl_err *err);
    void *data;
};
void sl_templates_ensure(struct templates_call *call, const char *name_space, const char *name,
                         json_t *object);
void sl_templates_sweep(struct sl_controller *c); /* deletes unused templates */
void sl_templates_free(struct sl_controller *c);

/* bind.c */
void sl_bind_handle(struct sl_controller *c, struct sl_http_call *call,
                    const struct sl_http_request *request);
void sl_bind_free(struct sl_controller *c);

/* settle.c: HAMi's annotations, after the bind */
json_t *sl_settle_patch(const json_t *pod); /* the annotations to change now; NULL: none. Pure */
void sl_settle_pod(struct sl_controller *c, const json_t *pod);
void sl_settle_gone(struct sl_controller *c, const char *uid);
void sl_settle_tick(struct sl_controller *c);
void sl_settle_free(struct sl_controller *c);

/* resize.c: pods that ask for another size */
bool sl_resize_wanted(const json_t *pod); /* Pure */
void sl_resize_pod(struct sl_controller *c, const json_t *pod);
void sl_resize_gone(struct sl_controller *c, const char *uid);
void sl_resize_tick(struct sl_controller *c);
void sl_resize_free(struct sl_controller *c);

/* certs.c: the Secret and the webhook's caBundle */
int sl_certs_create(struct sl_controller *c, struct sl_err *err) SL_MUST_CHECK;
#define SL_WEBHOOKS "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
void sl_certs_secret(struct sl_controller *c, enum sl_kube_event event, json_t *object);
void sl_certs_webhook(struct sl_controller *c, enum sl_kube_event event, json_t *config);
void sl_certs_tick(struct sl_controller *c);
void sl_certs_free(struct sl_controller *c);

/* metrics.c */
char *sl_controller_metrics(struct sl_controller *c);

#endif
