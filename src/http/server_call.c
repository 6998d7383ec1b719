/* SPDX-License-Identifier: Apache-2.0 */
/* One request: its body comes in, the handler answers now or later, the answer goes out. */
#include "http/server_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/container.h"
#include "base/list.h"
#include "base/xalloc.h"

enum {
    DISCARD_FACTOR = 4, /* this much of a too large body is read, so that the client sees the 413 */
    ANSWER_SMALL = 64 << 10, /* answers up to this always have room */
};

void *sl_http_call_open(void *data, const char *uri, struct MHD_Connection *mhd)
{
    struct sl_http_server *server = data;
    struct sl_http_call *call = sl_xcalloc(1, sizeof(*call));
    const char *mark = strchr(uri, '?');
    call->query = sl_xstrdup(mark ? mark + 1 : "");
    call->server = server;
    call->mhd = mhd;
    call->next = server->calls;
    server->calls = call;
    call->conn = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    return call;
}

void sl_http_call_free(struct sl_http_call *call)
{
    sl_loop_unwatch(call->server->loop, &call->hangup);
    sl_list_drop(&call->server->calls, call);
    if (call->response)
        MHD_destroy_response(call->response);
    call->server->held -= call->answer_size;
    sl_http_body_drop(call);
    free(call->query);
    free(call);
}

/* --- the body ------------------------------------------------------------------------------- */

/* Makes room for `size` more bytes and a NUL; false: there is none. */
static bool grow(struct sl_http_call *call, size_t size)
{
    struct sl_http_server *s = call->server;
    size_t capacity = call->body_capacity ? call->body_capacity : 1024;
    if (size < call->body_capacity - call->body_size)
        return true;
    while (capacity - call->body_size <= size)
        capacity *= 2;
    capacity = capacity < call->body_max + 1 ? capacity : call->body_max + 1;
    if (!sl_http_room(s, capacity - call->body_capacity, capacity))
        return false;
    char *grown = realloc(call->body, capacity);
    if (!grown)
        return false;
    s->held += capacity - call->body_capacity;
    call->body = grown;
    call->body_capacity = capacity;
    return true;
}

/* False: the client sends far too much, and the connection is closed. */
static bool keep(struct sl_http_call *call, const char *data, size_t size)
{
    if (size > call->body_max - call->body_size)
        call->too_large = true;
    else if (!call->too_large && !call->crowded_out)
        call->crowded_out = !grow(call, size);
    if (call->too_large || call->crowded_out) {
        sl_http_body_drop(call);
        call->discarded += size;
        return call->discarded <= DISCARD_FACTOR * call->server->opt.body_max;
    }
    memcpy(call->body + call->body_size, data, size);
    call->body_size += size;
    call->body[call->body_size] = 0;
    return true;
}

static void answer_too_large(struct sl_http_call *call)
{
    char text[100];
    int n = snprintf(text, sizeof(text), "the request's body is larger than %zu bytes\n",
                     call->body_max);
    sl_http_answer(call, MHD_HTTP_CONTENT_TOO_LARGE, "text/plain", text, (size_t)n);
}

static void answer_crowded(struct sl_http_call *call)
{
    static const char text[] = "too much is being sent here at once; try again later\n";
    sl_http_answer(call, MHD_HTTP_SERVICE_UNAVAILABLE, "text/plain", text, sizeof(text) - 1);
}

/* Sets how much of the body is kept; a body that no handler reads is not kept. */
static void set_body_max(struct sl_http_call *call, const char *url, const char *method)
{
    const struct sl_http_server_options *opt = &call->server->opt;
    size_t room = opt->body_room ? opt->body_room(opt->data, call, method, url) : opt->body_max;
    call->body_max = room < opt->body_max ? room : opt->body_max;
    call->unread = call->body_max == 0;
}

/* Is the body so large that the client need not even send it? */
static bool hopeless(struct sl_http_call *call)
{
    const char *length = MHD_lookup_connection_value(call->mhd, MHD_HEADER_KIND, "Content-Length");
    const char *expect = MHD_lookup_connection_value(call->mhd, MHD_HEADER_KIND, "Expect");
    unsigned long long size = length ? strtoull(length, NULL, 10) : 0;
    size_t max = call->server->opt.body_max;
    return size > (expect ? max : (DISCARD_FACTOR + 1ULL) * max);
}

/* --- the answer ----------------------------------------------------------------------------- */

static enum MHD_Result send_answer(struct sl_http_call *call)
{
    sl_http_conn_waits(call->conn);
    return MHD_queue_response(call->mhd, call->status, call->response);
}

static void tell_gone(struct sl_http_call *call)
{
    struct sl_http_server *server = call->server;
    if (!call->handled || call->closed || !server->opt.gone)
        return;
    call->closed = true;
    server->opt.gone(server->opt.data, call);
}

static void resume(struct sl_http_call *call)
{
    sl_loop_unwatch(call->server->loop, &call->hangup);
    if (call->suspended) {
        call->suspended = false;
        MHD_resume_connection(call->mhd);
        sl_http_run_soon(call->server); /* no event of MHD wakes the loop for it */
    }
}

static void hangup_ready(struct sl_source *source, uint32_t events)
{
    (void)events;
    struct sl_http_call *call = sl_container_of(source, struct sl_http_call, hangup);
    tell_gone(call);
    resume(call); /* without an answer: MHD closes the connection */
}

static void suspend(struct sl_http_call *call)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(call->mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    call->suspended = true;
    MHD_suspend_connection(call->mhd);
    call->hangup.fd = info ? info->connect_fd : -1;
    call->hangup.ready = hangup_ready;
    if (call->hangup.fd >= 0 &&
        sl_loop_watch(call->server->loop, &call->hangup, EPOLLRDHUP, NULL) < 0)
        call->hangup.events = 0; /* then only the failing answer shows that the client left */
}

static void call_handler(struct sl_http_call *call, const char *url, const char *method)
{
    struct sl_http_request request = {
        .method = strcmp(method, "HEAD") == 0 ? "GET" : method,
        .path = url,
        .query = call->query,
        .body = call->body ? call->body : "",
        .body_size = call->body_size,
    };
    call->server->opt.handle(call->server->opt.data, call, &request);
}

enum MHD_Result sl_http_call_handle(void *data, struct MHD_Connection *mhd, const char *url,
                                    const char *method, const char *version, const char *upload,
                                    size_t *upload_size, void **context)
{
    (void)data;
    (void)mhd;
    (void)version;
    struct sl_http_call *call = *context;
    if (!call->started) {
        call->started = true;
        set_body_max(call, url, method);
        if (!hopeless(call))
            return MHD_YES;
        answer_too_large(call);
        return call->response ? send_answer(call) : MHD_NO;
    }
    if (*upload_size > 0) {
        bool kept = keep(call, upload, *upload_size);
        *upload_size = 0;
        return kept ? MHD_YES : MHD_NO;
    }
    bool first = !call->handled;
    if (first) {
        sl_http_conn_busy(call->conn);
        call->handled = true;
        if (call->too_large && !call->unread)
            answer_too_large(call);
        else if (call->crowded_out)
            answer_crowded(call);
        else
            call_handler(call, url, method);
        sl_http_body_drop(call); /* do not hold the body while the answer is awaited */
    }
    if (call->response)
        return send_answer(call);
    if (!first || call->closed)
        return MHD_NO; /* there will be no answer */
    suspend(call);
    return MHD_YES;
}

void sl_http_call_completed(void *data, struct MHD_Connection *mhd, void **context,
                            enum MHD_RequestTerminationCode why)
{
    (void)data;
    (void)mhd;
    (void)why;
    struct sl_http_call *call = *context;
    *context = NULL;
    if (!call)
        return;
    sl_http_conn_waits(call->conn); /* until the next request is in */
    tell_gone(call);
    call->mhd = NULL;
    call->conn = NULL;
    if (call->closed || !call->handled)
        sl_http_call_free(call);
    else
        sl_loop_unwatch(call->server->loop, &call->hangup);
}

void sl_http_call_drop(struct sl_http_call *call)
{
    tell_gone(call);
    if (call->mhd)
        resume(call);
}

void sl_http_answer(struct sl_http_call *call, unsigned status, const char *content_type,
                    const char *body, size_t size)
{
    sl_http_answer_with(call, status, content_type, NULL, body, size);
}

static bool add_headers(struct MHD_Response *response, const char *content_type,
                        const struct sl_http_header *headers)
{
    if (content_type && MHD_add_response_header(response, "Content-Type", content_type) != MHD_YES)
        return false;
    for (; headers && headers->name; headers++)
        if (MHD_add_response_header(response, headers->name, headers->value) != MHD_YES)
            return false;
    return true;
}

void sl_http_answer_with(struct sl_http_call *call, unsigned status, const char *content_type,
                         const struct sl_http_header *headers, const char *body, size_t size)
{
    if (call->closed)
        return;
    call->closed = true;
    if (!call->mhd) { /* the client left, and there was no `gone` to call */
        sl_http_call_free(call);
        return;
    }
    if (size > ANSWER_SMALL && !sl_http_room(call->server, size, ANSWER_SMALL)) {
        body = "too many answers are on their way; try again later\n";
        size = strlen(body);
        status = MHD_HTTP_SERVICE_UNAVAILABLE;
        content_type = "text/plain";
    }
    call->answer_size = size;
    call->server->held += size;
    /* MHD only reads the body, to copy it. */
    call->response =
        MHD_create_response_from_buffer(size, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    call->status = status;
    if (call->response && !add_headers(call->response, content_type, headers)) {
        MHD_destroy_response(call->response);
        call->response = NULL; /* the connection is closed instead */
    }
    resume(call);
}

const char *sl_http_header(struct sl_http_call *call, const char *name)
{
    return call->mhd ? MHD_lookup_connection_value(call->mhd, MHD_HEADER_KIND, name) : NULL;
}

bool sl_http_client(struct sl_http_call *call, char name[128])
{
    name[0] = '\0';
    if (!call->mhd || !call->server->tls.client_ca_pem)
        return false;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(call->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info && info->tls_session && sl_http_tls_client(info->tls_session, name);
}
