/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A certificate of our own, kept in a Secret that all replicas share, and its authority in the webhook's configuration.
 * All replicas watch both and follow every change. A certificate that expires within a month is replaced. The second
 * scheduler reads the authority when it starts only: a new authority starts it again.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/json_read.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "controller/base64.h"
#include "controller/controller_internal.h"
#include "controller/errors.h"
#include "http/cert.h"

#define VALID_S (365L * 86400)
#define RENEW_S (30L * 86400)
#define WAIT_S  10 /* between two attempts to write */

struct certs {
    struct sl_controller *c;
    char name[256]; /* service.namespace.svc */
    struct sl_cert used;
    char version[64]; /* of the Secret; "": there is none */
    json_t *webhook;  /* the configuration, as last seen */
    time_t tried;
    bool writing, patching;
    uint64_t
        scheduler_has; /* the authority that the second scheduler was told of, as a hash; 0: none */
    time_t scheduler_tried;
    bool telling;
};

static bool usable(const struct certs *s, const struct sl_cert *cert, time_t left_s,
                   struct sl_err *err)
{
    return cert->ca_pem && cert->cert_pem && cert->key_pem &&
           sl_cert_check(cert, s->name, time(NULL) + left_s, err) == 0;
}

int sl_certs_create(struct sl_controller *c, struct sl_err *err)
{
    struct certs *s = sl_xcalloc(1, sizeof(*s));
    if (snprintf(s->name, sizeof(s->name), "%s.%s.svc", c->opt.service, c->opt.name_space) >=
        (int)sizeof(s->name)) {
        free(s);
        return sl_err_set(err, -ENAMETOOLONG, SL_E_CONTROLLER_SERVICE_LONG);
    }
    s->c = c;
    c->certs = s;
    return 0;
}

void sl_certs_free(struct sl_controller *c)
{
    if (!c->certs)
        return;
    sl_cert_free(&c->certs->used);
    json_decref(c->certs->webhook);
    free(c->certs);
    c->certs = NULL;
}

/* --- the webhook's caBundle --- */

static void patched(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct certs *s = data;
    (void)status;
    (void)body;
    s->patching = false;
    if (err->code)
        sl_warn(SL_E_CABUNDLE_LOG, err->msg);
}

/* Only the webhooks that point at our service. */
static json_t *bundle_patch(const struct certs *s, const char *bundle)
{
    json_t *patch = json_array();
    const json_t *hook;
    size_t i;
    json_array_foreach(json_object_get(s->webhook, "webhooks"), i, hook)
    {
        const json_t *config = json_object_get(hook, "clientConfig");
        const char *service = sl_jget_text(json_object_get(config, "service"), "name");
        char path[64];
        if (strcmp(service, s->c->opt.service) != 0 ||
            strcmp(sl_jget_text(config, "caBundle"), bundle) == 0)
            continue;
        (void)snprintf(path, sizeof(path), "/webhooks/%zu/clientConfig/caBundle", i);
        (void)json_array_append_new(
            patch, json_pack("{s:s,s:s,s:s}", "op", "add", "path", path, "value", bundle));
    }
    return patch;
}

static void tell_webhook(struct certs *s)
{
    struct sl_err err = SL_ERR_INIT;
    char *bundle SL_CLEANUP(free) = s->used.ca_pem ? sl_base64_encode(s->used.ca_pem) : NULL;
    if (!bundle || !s->webhook || s->patching)
        return;
    json_t *patch = bundle_patch(s, bundle);
    if (json_array_size(patch)) {
        /* If positions in the list have changed, so has the version, and the API server refuses the patch. */
        (void)json_array_insert_new(patch, 0,
                                    json_pack("{s:s,s:s,s:s}", "op", "test", "path",
                                              "/metadata/resourceVersion", "value",
                                              sl_kube_meta(s->webhook, "resourceVersion")));
        char *path SL_CLEANUP(free) = sl_kube_path(SL_WEBHOOKS "/%s", s->c->opt.webhook);
        if (sl_kube_request(s->c->kube, "PATCH", path, SL_KUBE_PATCH_JSON, patch, patched, s, NULL,
                            &err) != 0)
            sl_warn("%s", err.msg);
        else
            s->patching = true;
    }
    json_decref(patch);
}

void sl_certs_webhook(struct sl_controller *c, enum sl_kube_event event, json_t *config)
{
    struct certs *s = c->certs;
    json_decref(s->webhook);
    s->webhook = event == SL_KUBE_DELETED ? NULL : json_incref(config);
    tell_webhook(s);
}

/* --- the second scheduler --- */

static void scheduler_told(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct certs *s = data;
    (void)body;
    s->telling = false;
    if (!err->code || status == 404) /* a Deployment that comes later reads the newest authority */
        return;
    s->scheduler_has = 0;
    sl_warn(SL_E_SCHEDULER_LOG, s->c->opt.mutate.second, err->msg);
}

/* Another annotation of its pods replaces them one by one; the same one changes nothing. */
static void tell_scheduler(struct certs *s)
{
    const char *name = s->c->opt.mutate.second;
    uint64_t hash = s->used.ca_pem ? sl_hash_text(s->used.ca_pem) : 0;
    struct sl_err err = SL_ERR_INIT;
    char text[24];
    if (!name || !name[0] || !hash || hash == s->scheduler_has || s->telling ||
        time(NULL) - s->scheduler_tried < WAIT_S)
        return;
    s->scheduler_tried = time(NULL);
    (void)snprintf(text, sizeof(text), "%016llx", (unsigned long long)hash);
    json_t *patch = json_pack("{s:{s:{s:{s:{s:s}}}}}", "spec", "template", "metadata",
                              "annotations", "sluice.io/authority", text);
    char *path SL_CLEANUP(free) =
        sl_kube_path("/apis/apps/v1/namespaces/%s/deployments/%s", s->c->opt.name_space, name);
    if (sl_kube_request(s->c->kube, "PATCH", path, SL_KUBE_PATCH_MERGE, patch, scheduler_told, s,
                        NULL, &err) != 0) {
        sl_warn(SL_E_SCHEDULER_LOG, name, err.msg);
    } else {
        s->telling = true;
        s->scheduler_has = hash;
    }
    json_decref(patch);
}

/* --- the Secret --- */

static void use(struct certs *s, struct sl_cert *cert)
{
    struct sl_err err = SL_ERR_INIT;
    if (sl_serve_tls(s->c, cert->cert_pem, cert->key_pem, &err) != 0) {
        sl_error(SL_E_SECRET_UNUSABLE_LOG, s->c->opt.secret, err.msg);
        return;
    }
    sl_cert_free(&s->used);
    s->used = *cert;
    memset(cert, 0, sizeof(*cert));
    tell_webhook(s);
}

static char *item(const json_t *secret, const char *key)
{
    const char *coded = json_string_value(json_object_get(json_object_get(secret, "data"), key));
    return coded ? sl_base64_decode(coded) : NULL;
}

void sl_certs_secret(struct sl_controller *c, enum sl_kube_event event, json_t *object)
{
    struct certs *s = c->certs;
    struct sl_err err = SL_ERR_INIT;
    const json_t *secret = event == SL_KUBE_DELETED ? NULL : object;
    struct sl_cert cert = {.ca_pem = item(secret, "ca.crt"),
                           .cert_pem = item(secret, "tls.crt"),
                           .key_pem = item(secret, "tls.key")};
    (void)snprintf(s->version, sizeof(s->version), "%.63s",
                   sl_kube_meta(secret, "resourceVersion"));
    if (usable(s, &cert, 0, &err))
        use(s, &cert);
    else if (secret)
        sl_info(SL_E_SECRET_MISSING_LOG, c->opt.secret,
                err.msg[0] ? err.msg : "something is missing in it");
    sl_cert_free(&cert);
    if (!secret)
        sl_certs_tick(c);
}

static void written(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct certs *s = data;
    (void)body;
    s->writing = false;
    if (err->code &&
        status != 409) /* another replica was faster: the watch brings its certificate */
        sl_warn(SL_E_SECRET_WRITE_LOG, s->c->opt.secret, err->msg);
}

static int write_secret(struct certs *s, const struct sl_cert *cert, struct sl_err *err)
{
    const struct sl_controller_options *opt = &s->c->opt;
    bool there = s->version[0] != '\0';
    char *ca SL_CLEANUP(free) = sl_base64_encode(cert->ca_pem);
    char *crt SL_CLEANUP(free) = sl_base64_encode(cert->cert_pem);
    char *key SL_CLEANUP(free) = sl_base64_encode(cert->key_pem);
    json_t *body =
        json_pack("{s:s,s:s,s:s,s:{s:s,s:s},s:{s:s,s:s,s:s}}", "apiVersion", "v1", "kind", "Secret",
                  "type", "kubernetes.io/tls", "metadata", "name", opt->secret, "namespace",
                  opt->name_space, "data", "ca.crt", ca, "tls.crt", crt, "tls.key", key);
    if (there)
        (void)json_object_set_new(json_object_get(body, "metadata"), "resourceVersion",
                                  json_string(s->version));
    char *path SL_CLEANUP(free) =
        there ? sl_kube_path("/api/v1/namespaces/%s/secrets/%s", opt->name_space, opt->secret)
              : sl_kube_path("/api/v1/namespaces/%s/secrets", opt->name_space);
    int rc = sl_kube_request(s->c->kube, there ? "PUT" : "POST", path, NULL, body, written, s, NULL,
                             err);
    json_decref(body);
    return rc;
}

/* Makes a new certificate where there is none, or where it expires soon; used once the Secret has it. */
void sl_certs_tick(struct sl_controller *c)
{
    struct certs *s = c->certs;
    struct sl_err err = SL_ERR_INIT;
    struct sl_cert cert = {.ca_pem = NULL};
    if (s)
        tell_scheduler(s);
    if (!s || s->writing || !c->feed[FEED_SECRET].synced || time(NULL) - s->tried < WAIT_S)
        return;
    bool good = usable(s, &s->used, RENEW_S, NULL);
    if (good && s->version[0])
        return;
    char short_name[256], long_name[300];
    const char *const names[] = {s->name, short_name, long_name};
    (void)snprintf(short_name, sizeof(short_name), "%.120s.%.120s", c->opt.service,
                   c->opt.name_space);
    (void)snprintf(long_name, sizeof(long_name), "%s.cluster.local", s->name);
    time_t now = s->tried = time(NULL);
    int rc =
        good ? 0 : sl_cert_make(names, SL_ARRAY_LEN(names), now - 3600, now + VALID_S, &cert, &err);
    if (!rc) /* the Secret was deleted: write the served certificate into a new one */
        rc = write_secret(s, good ? &s->used : &cert, &err);
    if (rc)
        sl_error("cannot make a certificate: %s", err.msg);
    s->writing = rc == 0;
    sl_cert_free(&cert);
}
