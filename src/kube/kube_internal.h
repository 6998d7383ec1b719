/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of the API client. */
#ifndef SLUICE_KUBE_KUBE_INTERNAL_H
#define SLUICE_KUBE_KUBE_INTERNAL_H

#include <curl/curl.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "kube/kube.h"
#include "kube/kube_config.h"

enum {
    KUBE_ACTIVE_MAX = 32,
    KUBE_WAITING_MAX = 4096,
    KUBE_ANSWER_MAX = 64 << 20,
    KUBE_ERROR_MAX = 64 << 10, /* of an answer that reports an error */
    KUBE_LINE_MAX = 8 << 20,
    KUBE_TOKEN_MAX = 64 << 10,
    KUBE_PATH_MAX = 8 << 10,
    KUBE_CONNECT_MS = 10000,
};

/* One HTTP exchange of curl, for a call or for a watch. */
struct kube_transfer {
    CURL *easy;
    struct curl_slist *headers;
    bool added; /* is it in the multi handle? */
    void (*done)(struct kube_transfer *transfer, CURLcode code);
    char why[CURL_ERROR_SIZE];
};

struct kube_buffer {
    char *data;
    size_t size, capacity, max;
};

struct sl_kube_call {
    struct sl_kube *kube;
    struct sl_kube_call *prev, *next; /* in kube->calls, oldest first */
    struct kube_transfer transfer;
    char *method, *path, *content_type, *accept, *body; /* accept: NULL for JSON */
    size_t body_size;
    struct kube_buffer answer;
    bool running, retried, too_big;
    sl_kube_done *done;
    sl_kube_bytes_done *bytes_done; /* called instead of done */
    void *data;
};

struct kube_socket {
    struct sl_source source;
    struct sl_kube *kube;
    struct kube_socket *next;
};

struct sl_kube {
    struct sl_loop *loop;
    CURLM *multi;
    struct sl_timer timer; /* curl's */
    struct sl_timer kick;  /* starts requests that wait */
    struct kube_socket *sockets;
    struct sl_kube_config config;
    int ca_fd, cert_fd, key_fd; /* PEM texts as files for curl; -1: none */
    char *token;
    struct stat token_stat;
    uint64_t timeout_ns;
    struct sl_kube_call *first_call, *last_call;
    unsigned active, waiting;
    struct sl_kube_watch *watches;
    unsigned depth; /* > 0: one of our loops is running and still needs this memory */
    bool dead;      /* destroyed inside a callback */
    uint64_t random;
};

/* Sets an option of a transfer, unless an earlier option was refused. */
#define KUBE_SET(code, easy, option, value)                                                        \
    do {                                                                                           \
        if ((code) == CURLE_OK)                                                                    \
            (code) = curl_easy_setopt(easy, option, value);                                        \
    } while (0)

/* kube.c */
int sl_kube_curl_failed(CURLcode code, struct sl_err *err);
int sl_kube_transfer_open(struct sl_kube *kube, struct kube_transfer *t, const char *path,
                          struct sl_err *err) SL_MUST_CHECK;
void sl_kube_transfer_header(struct kube_transfer *t, const char *name, const char *value);
int sl_kube_transfer_start(struct sl_kube *kube, struct kube_transfer *t,
                           struct sl_err *err) SL_MUST_CHECK;
void sl_kube_transfer_close(struct sl_kube *kube, struct kube_transfer *t);
void sl_kube_transfer_error(const struct kube_transfer *t, CURLcode code, struct sl_err *err);
void sl_kube_enter(struct sl_kube *kube);
void sl_kube_leave(struct sl_kube *kube);
uint64_t sl_kube_random(struct sl_kube *kube);

/* kube_auth.c */
int sl_kube_auth_open(struct sl_kube *kube, struct sl_err *err) SL_MUST_CHECK;
void sl_kube_auth_close(struct sl_kube *kube);
void sl_kube_token_refresh(struct sl_kube *kube, bool force);
int sl_kube_auth_apply(struct sl_kube *kube, struct kube_transfer *t,
                       struct sl_err *err) SL_MUST_CHECK;

/* kube_call.c */
int sl_kube_buffer_add(struct kube_buffer *b, const char *data, size_t size) SL_MUST_CHECK;
void sl_kube_buffer_free(struct kube_buffer *b);
void sl_kube_call_free(struct sl_kube_call *call);
void sl_kube_calls_start(struct sl_kube *kube);
/* Puts the server's own message for a status >= 400 into err. */
void sl_kube_status_error(const char *method, const char *path, long status, const json_t *body,
                          struct sl_err *err);

/* kube_watch.c */
void sl_kube_watches_pump(struct sl_kube *kube);
void sl_kube_watch_free(struct sl_kube_watch *watch);

#endif
