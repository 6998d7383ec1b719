/* SPDX-License-Identifier: Apache-2.0 */
/* Single requests. */
#include "kube/errors.h"
#include "kube/kube_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/json_dump.h"
#include "base/xalloc.h"

int sl_kube_buffer_add(struct kube_buffer *b, const char *data, size_t size)
{
    if (size > b->max - b->size)
        return -EMSGSIZE;
    if (size > b->capacity - b->size) {
        size_t capacity = b->capacity ? b->capacity : 4096;
        while (capacity - b->size < size)
            capacity *= 2;
        b->data = sl_xrealloc(b->data, capacity);
        b->capacity = capacity;
    }
    memcpy(b->data + b->size, data, size);
    b->size += size;
    return 0;
}

void sl_kube_buffer_free(struct kube_buffer *b)
{
    free(b->data);
    *b = (struct kube_buffer){.max = b->max};
}

/* --- the server's errors -------------------------------------------------------------------- */

static int status_code(long status)
{
    static const struct {
        long status;
        int code;
    } codes[] = {{401, -EACCES}, {403, -EPERM},  {404, -ENOENT},
                 {409, -EEXIST}, {410, -ESTALE}, {429, -EAGAIN}};
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (codes[i].status == status)
            return codes[i].code;
    return status >= 500 ? -EREMOTEIO : -EINVAL;
}

void sl_kube_status_error(const char *method, const char *path, long status, const json_t *body,
                          struct sl_err *err)
{
    const char *message = json_string_value(json_object_get(body, "message"));
    if (!message)
        message = json_string_value(body);
    char text[300];
    size_t n = 0;
    for (; message && message[n] && n + 1 < sizeof(text); n++)
        text[n] = (unsigned char)message[n] < ' ' ? ' ' : message[n]; /* the text goes into logs */
    text[n] = 0;
    (void)sl_err_set(err, status_code(status), SL_E_KUBE_STATUS, method, (int)strcspn(path, "?"),
                     path, status, n ? ": " : "", text);
}

/* JSON, or a plain text as a JSON string. NULL: neither. */
static json_t *parse_answer(CURL *easy, const struct kube_buffer *answer, json_error_t *ret_why)
{
    char *type = NULL;
    (void)curl_easy_getinfo(easy, CURLINFO_CONTENT_TYPE, &type);
    if (type && strncasecmp(type, "text/plain", 10) == 0)
        return json_stringn(answer->data, answer->size);
    return json_loadb(answer->data, answer->size, 0, ret_why);
}

/* --- one call ------------------------------------------------------------------------------- */

void sl_kube_call_free(struct sl_kube_call *call)
{
    struct sl_kube *kube = call->kube;
    sl_kube_transfer_close(kube, &call->transfer);
    *(call->prev ? &call->prev->next : &kube->first_call) = call->next;
    *(call->next ? &call->next->prev : &kube->last_call) = call->prev;
    *(call->running ? &kube->active : &kube->waiting) -= 1;
    sl_kube_buffer_free(&call->answer);
    free(call->method);
    free(call->path);
    free(call->content_type);
    free(call->accept);
    free(call->body);
    free(call);
}

static void finish(struct sl_kube_call *call, long status, json_t *body, const struct sl_err *err)
{
    sl_kube_done *done = call->done;
    sl_kube_bytes_done *bytes_done = call->bytes_done;
    void *data = call->data;
    struct kube_buffer answer = call->answer;
    call->answer = (struct kube_buffer){0};
    sl_kube_call_free(call);
    if (bytes_done)
        bytes_done(data, (int)status, (const uint8_t *)answer.data, answer.size, err);
    else
        done(data, (int)status, body, err);
    sl_kube_buffer_free(&answer);
    json_decref(body);
}

static size_t on_body(char *data, size_t size, size_t count, void *user)
{
    struct sl_kube_call *call = user;
    int rc = sl_kube_buffer_add(&call->answer, data, size * count);
    call->too_big = rc < 0;
    return rc == 0 ? size * count : 0;
}

static int start(struct sl_kube_call *call, struct sl_err *err);

static void call_done(struct kube_transfer *t, CURLcode code)
{
    struct sl_kube_call *call = sl_container_of(t, struct sl_kube_call, transfer);
    struct sl_err err = SL_ERR_INIT;
    json_error_t why = {.line = 0};
    json_t *body = NULL;
    long status = 0;
    if (code != CURLE_OK) {
        if (call->too_big)
            (void)sl_err_set(&err, -EMSGSIZE, SL_E_KUBE_ANSWER_LARGE, call->answer.max);
        else
            sl_kube_transfer_error(t, code, &err);
        (void)sl_err_wrap(&err, "%s %.*s", call->method, (int)strcspn(call->path, "?"), call->path);
        finish(call, 0, NULL, &err);
        return;
    }
    (void)curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status == 401 && !call->retried && call->kube->config.token_file) {
        call->retried = true; /* the token file has changed since the token was read */
        sl_kube_token_refresh(call->kube, true);
        if (start(call, &err) < 0)
            finish(call, 0, NULL, &err);
        return;
    }
    bool json = !call->bytes_done;
    if (call->answer.size > 0 && (json || status >= 400))
        body = parse_answer(t->easy, &call->answer, &why);
    if (status >= 400)
        sl_kube_status_error(call->method, call->path, status, body, &err);
    else if (status >= 300)
        (void)sl_err_set(&err, -EPROTO, SL_E_KUBE_REDIRECT, call->path, status);
    else if (json && call->answer.size > 0 && !body)
        (void)sl_err_set(&err, -EPROTO, SL_E_KUBE_ANSWER_JSON, call->path, why.line, why.text);
    finish(call, status, body, &err);
}

/* Also runs a second time, after a 401. */
static int start(struct sl_kube_call *call, struct sl_err *err)
{
    struct kube_transfer *t = &call->transfer;
    sl_kube_transfer_close(call->kube, t);
    call->answer.size = 0;
    int rc = sl_kube_transfer_open(call->kube, t, call->path, err);
    if (rc < 0)
        return rc;
    CURLcode code = CURLE_OK;
    KUBE_SET(code, t->easy, CURLOPT_WRITEFUNCTION, on_body);
    KUBE_SET(code, t->easy, CURLOPT_WRITEDATA, call);
    KUBE_SET(code, t->easy, CURLOPT_TIMEOUT_MS,
             (long)((call->kube->timeout_ns + SL_NS_PER_MS - 1) / SL_NS_PER_MS));
    if (call->body) {
        KUBE_SET(code, t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body_size);
        KUBE_SET(code, t->easy, CURLOPT_POSTFIELDS, call->body);
    }
    KUBE_SET(code, t->easy, CURLOPT_CUSTOMREQUEST, call->method);
    if (code != CURLE_OK)
        return sl_kube_curl_failed(code, err);
    if (call->body)
        sl_kube_transfer_header(t, "Content-Type", call->content_type);
    sl_kube_transfer_header(t, "Accept", call->accept ? call->accept : "application/json");
    sl_kube_transfer_header(t, "Expect", ""); /* no extra round trip before a large body */
    return sl_kube_transfer_start(call->kube, t, err);
}

void sl_kube_calls_start(struct sl_kube *kube)
{
    while (!kube->dead && kube->waiting > 0 && kube->active < KUBE_ACTIVE_MAX) {
        struct sl_kube_call *call = kube->first_call;
        while (call->running)
            call = call->next; /* running calls come first in the list: there are few */
        call->running = true;
        kube->active++;
        kube->waiting--;
        struct sl_err err = SL_ERR_INIT;
        if (start(call, &err) < 0)
            finish(call, 0, NULL, &err);
    }
}

/* A call that is not in the list yet. */
static int new_call(struct sl_kube *kube, const char *method, const char *path,
                    const char *content_type, void *data, struct sl_kube_call **ret,
                    struct sl_err *err)
{
    if (path[0] != '/' || strpbrk(path, " \r\n\t") || strlen(path) > KUBE_PATH_MAX)
        return sl_err_set(err, -EINVAL, SL_E_KUBE_PATH, path);
    if (kube->dead || kube->waiting >= KUBE_WAITING_MAX)
        return sl_err_set(err, -ENOBUFS, SL_E_KUBE_BUSY, KUBE_WAITING_MAX);
    struct sl_kube_call *call = *ret = sl_xcalloc(1, sizeof(*call));
    call->kube = kube;
    call->method = sl_xstrdup(method);
    call->path = sl_xstrdup(path);
    call->content_type = sl_xstrdup(content_type ? content_type : "application/json");
    call->data = data;
    call->answer.max = KUBE_ANSWER_MAX;
    call->transfer.done = call_done;
    return 0;
}

static int submit(struct sl_kube_call *call, struct sl_kube_call **ret, struct sl_err *err)
{
    struct sl_kube *kube = call->kube;
    call->prev = kube->last_call;
    *(call->prev ? &call->prev->next : &kube->first_call) = call;
    kube->last_call = call;
    /* Start at once only if no call waits: first come, first served. */
    call->running = kube->waiting == 0 && kube->active < KUBE_ACTIVE_MAX;
    *(call->running ? &kube->active : &kube->waiting) += 1;
    int rc = call->running ? start(call, err) : 0;
    if (rc < 0) {
        sl_kube_call_free(call);
        return rc;
    }
    if (ret)
        *ret = call;
    return 0;
}

int sl_kube_request(struct sl_kube *kube, const char *method, const char *path,
                    const char *content_type, json_t *body, sl_kube_done *done, void *data,
                    struct sl_kube_call **ret, struct sl_err *err)
{
    SL_CLEANUP(free) char *text = body ? sl_json_dump(body, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (body && !text)
        return sl_err_set(err, -EILSEQ, SL_E_KUBE_UTF8);
    struct sl_kube_call *call;
    int rc = new_call(kube, method, path, content_type, data, &call, err);
    if (rc < 0)
        return rc;
    call->body_size = text ? strlen(text) : 0;
    call->body = sl_take_ptr(text);
    call->done = done;
    return submit(call, ret, err);
}

int sl_kube_get_bytes(struct sl_kube *kube, const char *path, const char *accept,
                      sl_kube_bytes_done *done, void *data, struct sl_kube_call **ret,
                      struct sl_err *err)
{
    struct sl_kube_call *call;
    int rc = new_call(kube, "GET", path, NULL, data, &call, err);
    if (rc < 0)
        return rc;
    call->accept = sl_xstrdup(accept);
    call->bytes_done = done;
    return submit(call, ret, err);
}

int sl_kube_put_bytes(struct sl_kube *kube, const char *path, const char *content_type,
                      const uint8_t *body, size_t size, sl_kube_done *done, void *data,
                      struct sl_kube_call **ret, struct sl_err *err)
{
    struct sl_kube_call *call;
    int rc = new_call(kube, "PUT", path, content_type, data, &call, err);
    if (rc < 0)
        return rc;
    call->body = memcpy(sl_xmalloc(size), body, size);
    call->body_size = size;
    call->done = done;
    return submit(call, ret, err);
}

void sl_kube_cancel(struct sl_kube_call *call)
{
    if (!call)
        return;
    struct sl_kube *kube = call->kube;
    sl_kube_call_free(call);
    if (kube->waiting > 0 && !kube->dead) /* not here: a start that fails calls its owner back */
        sl_timer_set(kube->loop, &kube->kick, sl_loop_now(kube->loop));
}
