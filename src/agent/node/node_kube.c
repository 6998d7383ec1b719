/* SPDX-License-Identifier: Apache-2.0 */
/* The real API server behind the node's table. */
#include "agent/node/node.h"

static int request(void *server, const char *method, const char *path, const char *content_type,
                   json_t *body, sl_kube_done *done, void *data, void **ret_call,
                   struct sl_err *err)
{
    struct sl_kube_call *call = NULL;
    int rc = sl_kube_request(server, method, path, content_type, body, done, data, &call, err);
    if (rc == 0)
        *ret_call = call;
    return rc;
}

static void cancel(void *server, void *call)
{
    (void)server;
    sl_kube_cancel(call);
}

static int watch(void *server, const char *path, const struct sl_kube_watch_ops *ops, void *data,
                 void **ret_watch, struct sl_err *err)
{
    struct sl_kube_watch *w = NULL;
    int rc = sl_kube_watch_start(server, path, ops, data, &w, err);
    if (rc == 0)
        *ret_watch = w;
    return rc;
}

static void unwatch(void *server, void *w)
{
    (void)server;
    sl_kube_watch_stop(w);
}

struct sl_node_api sl_node_api_kube(struct sl_kube *kube)
{
    return (struct sl_node_api){kube, request, cancel, watch, unwatch};
}
