/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of the Kubernetes API: JSON over TLS, requests and watches, all in the loop's thread. The client knows
 * verbs, paths, tokens and resource versions, but not the meaning of objects.
 */
#ifndef SLUICE_KUBE_KUBE_H
#define SLUICE_KUBE_KUBE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/loop.h"

struct sl_kube;
struct sl_kube_call;
struct sl_kube_watch;

struct sl_kube_options {
    const char *kubeconfig; /* a file; NULL: the service account of the pod */
    const char *server;     /* overrides: "https://127.0.0.1:6443" */
    const char *ca_file, *token_file;
    uint64_t timeout_ns; /* of one request; 0: 30 s */
};

/* -ENOENT: neither a kubeconfig nor a service account. A token file that changes is read again. A token is never sent
 * over http://: that combination is refused. */
int sl_kube_create(struct sl_loop *loop, const struct sl_kube_options *opt, struct sl_kube **ret,
                   struct sl_err *err) SL_MUST_CHECK;
/* Ends calls and watches without their callbacks. NULL is fine; also from inside a callback. */
void sl_kube_destroy(struct sl_kube *kube);

/*
 * One answer. status 0: no answer came, err says why. body is the parsed JSON (borrowed; NULL for an empty answer; a
 * JSON string for plain text). For a status >= 400 err carries the server's message and one of -ENOENT (404), -EEXIST
 * (409), -ESTALE (410), -EACCES (401), -EPERM (403), -EAGAIN (429), -EREMOTEIO (5xx), -EINVAL (the others). err is
 * never NULL; its code is 0 on success.
 */
typedef void sl_kube_done(void *data, int status, json_t *body, const struct sl_err *err);

/* Content types of PATCH. The last one is server-side apply (JSON is YAML). */
#define SL_KUBE_PATCH_MERGE     "application/merge-patch+json"
#define SL_KUBE_PATCH_STRATEGIC "application/strategic-merge-patch+json"
#define SL_KUBE_PATCH_JSON      "application/json-patch+json"
#define SL_KUBE_PATCH_APPLY     "application/apply-patch+yaml"

/* body (borrowed, may be NULL) is sent as content_type (NULL: application/json). done is called exactly once, never
 * from inside this function. ret may be NULL; *ret is valid until done. At most 32 requests run at once, the others
 * wait in order; -ENOBUFS when 4096 wait. */
int sl_kube_request(struct sl_kube *kube, const char *method, const char *path,
                    const char *content_type, json_t *body, sl_kube_done *done, void *data,
                    struct sl_kube_call **ret, struct sl_err *err) SL_MUST_CHECK;
/*
 * Objects as protobuf bytes. In JSON the API server rewrites the raw parts of an object; in protobuf it returns and
 * takes them unchanged. The answer of a PUT is JSON all the same.
 */
#define SL_KUBE_PROTOBUF "application/vnd.kubernetes.protobuf"
/* As sl_kube_done; bytes (borrowed) are the answer, for any status. */
typedef void sl_kube_bytes_done(void *data, int status, const uint8_t *bytes, size_t size,
                                const struct sl_err *err);
int sl_kube_get_bytes(struct sl_kube *kube, const char *path, const char *accept,
                      sl_kube_bytes_done *done, void *data, struct sl_kube_call **ret,
                      struct sl_err *err) SL_MUST_CHECK;
int sl_kube_put_bytes(struct sl_kube *kube, const char *path, const char *content_type,
                      const uint8_t *body, size_t size, sl_kube_done *done, void *data,
                      struct sl_kube_call **ret, struct sl_err *err) SL_MUST_CHECK;
/* done will not be called. */
void sl_kube_cancel(struct sl_kube_call *call);

/*
 * Watches the objects of a collection for ever: a list (in pages), then the changes, with bookmarks, back-off and a new
 * list after 410 Gone. After a new list, objects that are gone are reported as DELETED; only their metadata.name,
 * .namespace and .uid are known. An unchanged object is not reported again. Objects are borrowed. A callback may stop
 * this or any other watch, and may send requests.
 */
enum sl_kube_event { SL_KUBE_ADDED, SL_KUBE_MODIFIED, SL_KUBE_DELETED };
struct sl_kube_watch_ops {
    void (*object)(void *data, enum sl_kube_event event, json_t *object);
    void (*synced)(void *data);                            /* the whole list has been reported */
    void (*trouble)(void *data, const struct sl_err *err); /* for logs; it goes on. May be NULL */
};
/* path without resourceVersion: "/api/v1/nodes?fieldSelector=metadata.name%3Dnode-1" */
int sl_kube_watch_start(struct sl_kube *kube, const char *path, const struct sl_kube_watch_ops *ops,
                        void *data, struct sl_kube_watch **ret, struct sl_err *err) SL_MUST_CHECK;
void sl_kube_watch_stop(struct sl_kube_watch *watch); /* NULL is fine */

/* metadata.<key> of an object; "" if the object does not have it. */
const char *sl_kube_meta(const json_t *object, const char *key);

/* A path such as "/api/v1/nodes/%s", its names percent-encoded. Knows %s and %%. To be freed. */
char *sl_kube_path(const char *fmt, ...) SL_PRINTF(1, 2);

#endif
