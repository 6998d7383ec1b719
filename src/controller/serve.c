/* SPDX-License-Identifier: Apache-2.0 */
/* Which client may ask for which path, on which port. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/log.h"
#include "controller/controller_internal.h"
#include "controller/errors.h"
#include "page/page.h"

#define BODY_MAX (8u << 20)
#define IDLE_S   30
#define CA_MAX   (256u << 10)

static void plain(struct sl_http_call *call, unsigned status, const char *text)
{
    sl_http_answer(call, status, "text/plain; charset=utf-8", text, strlen(text));
}

/* /healthz, /readyz, /leaderz */
static void probe(struct sl_controller *c, struct sl_http_call *call,
                  const struct sl_http_request *request)
{
    const char *not = NULL;
    if (strcmp(request->path, "/readyz") == 0 && !sl_controller_ready(c))
        not = c->stopping ? "stopping\n" : "the cluster or the certificate is not known yet\n";
    else if (strcmp(request->path, "/leaderz") == 0 && !sl_controller_leads(c))
        not = "another replica is the leader\n";
    plain(call, not? 503 : 200, not? not : "ok\n");
}

static void metrics(struct sl_controller *c, struct sl_http_call *call,
                    const struct sl_http_request *request)
{
    char *text = sl_controller_metrics(c);
    (void)request;
    sl_http_answer(call, 200, "text/plain; version=0.0.4", text, strlen(text));
    free(text);
}

static void filter(struct sl_controller *c, struct sl_http_call *call,
                   const struct sl_http_request *request)
{
    c->count.filters++;
    bool places = c->opt.extender == SL_EXTENDER_CHOOSE || c->opt.extender == SL_EXTENDER_ALL;
    if (!places)
        sl_controller_answer(call, sl_extender_filter_error(SL_E_NOT_PLACING));
    else if (!sl_controller_leads(c) || !sl_feeds_synced(c))
        sl_controller_answer(call, sl_extender_filter_error(SL_E_NOT_LEADING));
    else
        sl_controller_answer(call, sl_extender_filter(&c->extender, request->body,
                                                      request->body_size, sl_loop_now(c->loop)));
}

static void prioritize(struct sl_controller *c, struct sl_http_call *call,
                       const struct sl_http_request *request)
{
    c->count.prioritizes++;
    sl_controller_answer(call,
                         sl_extender_prioritize(&c->extender, request->body, request->body_size));
}

static bool is_page(const struct serve *s, const char *path)
{
    const char *const paths[] = {SL_PAGE_PATH, SL_PAGE_DATA_PATH, SL_PAGE_FIT_PATH};
    bool here = s->kind == SERVE_UI || (s->kind == SERVE_TLS && s->c->opt.ui_token_file);
    for (size_t i = 0; here && i < SL_ARRAY_LEN(paths); i++)
        if (strcmp(path, paths[i]) == 0)
            return true;
    return false;
}

enum { TLS = 1 << SERVE_TLS, EXTENDER = 1 << SERVE_EXTENDER, METRICS = 1 << SERVE_METRICS };

static const struct {
    const char *method, *path;
    void (*handle)(struct sl_controller *c, struct sl_http_call *call,
                   const struct sl_http_request *request);
    unsigned where;
    unsigned guarded; /* servers on which only the scheduler is allowed, if client_ca is set */
} routes[] = {
    {"POST", "/mutate", sl_webhook_handle, TLS, 0},
    {"POST", "/filter", filter, TLS | EXTENDER, TLS},
    {"POST", "/prioritize", prioritize, TLS | EXTENDER, TLS},
    {"POST", "/bind", sl_bind_handle, TLS | EXTENDER, TLS},
    {"GET", "/healthz", probe, TLS | EXTENDER | METRICS, 0},
    {"GET", "/readyz", probe, TLS | EXTENDER | METRICS, 0},
    {"GET", "/leaderz", probe, TLS | EXTENDER | METRICS, 0},
    {"GET", "/metrics", metrics, METRICS, 0},
};

static bool welcome(const struct sl_controller *c, struct sl_http_call *call)
{
    char name[128];
    if (!c->client_ca_pem)
        return true;
    return sl_http_client(call, name) &&
           (!c->opt.client_name || strcmp(name, c->opt.client_name) == 0);
}

/* Keeps a body only if a handler will read it: the path must exist, and the client must be allowed there. */
static size_t room(void *data, struct sl_http_call *call, const char *method, const char *path)
{
    const struct serve *s = data;
    unsigned where = 1u << s->kind;
    for (size_t i = 0; i < SL_ARRAY_LEN(routes); i++)
        if (strcmp(routes[i].path, path) == 0 && (routes[i].where & where) &&
            strcmp(routes[i].method, method) == 0 && strcmp(method, "POST") == 0)
            return (routes[i].guarded & where) && !welcome(s->c, call) ? 0 : BODY_MAX;
    return 0;
}

static void handle(void *data, struct sl_http_call *call, const struct sl_http_request *request)
{
    struct serve *s = data;
    struct sl_controller *c = s->c;
    unsigned where = 1u << s->kind;
    bool path = is_page(s, request->path);
    if (path && strcmp(request->method, "GET") == 0) {
        sl_ui_handle(c, call, request, s->kind == SERVE_UI);
        return;
    }
    for (size_t i = 0; i < SL_ARRAY_LEN(routes); i++) {
        if (strcmp(routes[i].path, request->path) != 0 || !(routes[i].where & where))
            continue;
        path = true;
        if (strcmp(routes[i].method, request->method) != 0)
            continue;
        if ((routes[i].guarded & where) && !welcome(c, call))
            plain(call, 403,
                  "only the scheduler may do this: use a client certificate of "
                  "--extender-client-ca with the name of --extender-client (tlsConfig.certFile "
                  "and keyFile)\n");
        else
            routes[i].handle(c, call, request);
        return;
    }
    plain(call, path ? 405 : 404,
          path ? "this path takes another method\n" : "there is no such path\n");
}

static void gone(void *data, struct sl_http_call *call)
{
    const struct serve *s = data;
    struct late_call *const lists[] = {s->c->reviews, s->c->binds};
    for (size_t i = 0; i < SL_ARRAY_LEN(lists); i++)
        for (struct late_call *late = lists[i]; late; late = late->next)
            if (late->call == call)
                late->call = NULL; /* the work goes on: half of it may be done */
}

static void trouble(void *data, const struct sl_err *err)
{
    (void)data;
    sl_warn("the old certificate stays in use: %s", err->msg);
}

/* For each server: together they stay below 1,024 descriptors, and far below the memory limit in deploy/. */
static const struct {
    unsigned connections;
    size_t held_max;
} kinds[SERVE_COUNT] = {
    [SERVE_TLS] = {384, 48u << 20},
    [SERVE_EXTENDER] = {128, 48u << 20},
    [SERVE_METRICS] = {64, 8u << 20},
    [SERVE_UI] = {64, 8u << 20},
};

/* With the certificate of the options, if there is one. */
static int open_server(struct sl_controller *c, unsigned kind, const char *address,
                       struct sl_http_server_options opt, struct sl_err *err)
{
    struct serve *s = &c->serve[kind];
    *s = (struct serve){c, kind, NULL};
    opt.address = address;
    opt.client_ca_pem = c->client_ca_pem;
    opt.body_max = BODY_MAX;
    opt.body_room = room;
    opt.connections_max = kinds[kind].connections;
    opt.held_max = kinds[kind].held_max;
    opt.idle_timeout_s = IDLE_S;
    opt.handle = handle;
    opt.gone = gone;
    opt.trouble = trouble;
    opt.data = s;
    return address ? sl_http_server_create(c->loop, &opt, &s->server, err) : 0;
}

int sl_serve_tls(struct sl_controller *c, const char *cert_pem, const char *key_pem,
                 struct sl_err *err)
{
    const struct sl_http_server_options opt = {.cert_pem = cert_pem, .key_pem = key_pem};
    if (c->serve[SERVE_TLS].server)
        return sl_http_server_certify(c->serve[SERVE_TLS].server, cert_pem, key_pem, err);
    return open_server(c, SERVE_TLS, c->opt.listen, opt, err);
}

int sl_serve_start(struct sl_controller *c, struct sl_err *err)
{
    const struct sl_http_server_options plain_http = {0};
    const struct sl_http_server_options tls = {.cert_file = c->opt.cert_file,
                                               .key_file = c->opt.key_file};
    size_t size;
    int rc = c->opt.client_ca
                 ? sl_fs_read(AT_FDCWD, c->opt.client_ca, CA_MAX, &c->client_ca_pem, &size, err)
                 : 0;
    if (!rc)
        rc = open_server(c, SERVE_METRICS, c->opt.metrics, plain_http, err);
    if (!rc)
        rc = open_server(c, SERVE_EXTENDER, c->opt.extender_http, plain_http, err);
    if (!rc)
        rc = open_server(c, SERVE_UI, c->opt.ui_loopback, plain_http, err);
    if (!rc && tls.cert_file)
        rc = open_server(c, SERVE_TLS, c->opt.listen, tls, err);
    return rc;
}

void sl_serve_stop(struct sl_controller *c)
{
    for (unsigned i = 0; i < SERVE_COUNT; i++) {
        sl_http_server_destroy(c->serve[i].server);
        c->serve[i].server = NULL;
    }
}
