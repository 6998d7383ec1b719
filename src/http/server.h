/* SPDX-License-Identifier: Apache-2.0 */
/* An HTTP(S) server in the loop's thread: one handler, whole bodies, bounded in size, time and number. */
#ifndef SLUICE_HTTP_SERVER_H
#define SLUICE_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/loop.h"

struct sl_http_server;
struct sl_http_request {
    const char *method; /* HEAD arrives as GET; its body is not sent */
    const char *path;   /* decoded, without query */
    const char *query;  /* as sent; "" without one */
    const char *body;   /* NUL-terminated; only inside handle */
    size_t body_size;
};
struct sl_http_call; /* one request being answered */

/* Answer now, or later with the call (until `gone` told that the client left; may be NULL). */
struct sl_http_server_options {
    const char *address; /* "127.0.0.1:9400", "[::]:8443", ":8443" for all; port 0: any free one */
    const char *cert_file, *key_file; /* both: TLS, read again when they change */
    const char *cert_pem, *key_pem;   /* instead: TLS with these (copied) */
    const char *client_ca_pem; /* TLS: clients are asked for a certificate of these authorities, see
                                  sl_http_client(); they may have none (copied) */
    size_t body_max;           /* 0: 4 MiB; beyond it 413 */
    unsigned connections_max;  /* 0: 256; beyond it the one that says nothing for longest goes,
                                of the address that has most */
    size_t held_max; /* 0: 16 MiB. Bytes of all bodies and answers together; beyond it the largest
                        unfinished body is thrown away and answered with 503 */
    /* How many bytes the body of such a request may have, at most body_max; 0: it is read and thrown away. NULL:
     * body_max for all. Asked when the headers are there. */
    size_t (*body_room)(void *data, struct sl_http_call *call, const char *method,
                        const char *path);
    /* 0: 60. The longest that a client may be idle, send one request or take one answer. */
    unsigned idle_timeout_s;
    void (*handle)(void *data, struct sl_http_call *call, const struct sl_http_request *request);
    void (*gone)(void *data, struct sl_http_call *call); /* the call is no more: never answer it */
    /* A new certificate cannot be used and the old one stays; for logs. May be NULL. */
    void (*trouble)(void *data, const struct sl_err *err);
    void *data;
};

int sl_http_server_create(struct sl_loop *loop, const struct sl_http_server_options *opt,
                          struct sl_http_server **ret, struct sl_err *err) SL_MUST_CHECK;
/* Calls without an answer are told as gone. Not from inside handle or gone. NULL is fine. */
void sl_http_server_destroy(struct sl_http_server *server);
/* Closes the listening socket; what is under way goes on. Before destroy, wait until none is under way. */
void sl_http_server_quiesce(struct sl_http_server *server);
/* Of a TLS server made with cert_pem: new connections get this certificate. */
int sl_http_server_certify(struct sl_http_server *server, const char *cert_pem, const char *key_pem,
                           struct sl_err *err) SL_MUST_CHECK;
unsigned sl_http_server_port(const struct sl_http_server *server);

/* Whether the client has proven who it is, by a certificate of client_ca_pem. Its common name, cut to fit; "" where it
 * has none. Only inside handle and body_room. */
bool sl_http_client(struct sl_http_call *call, char name[128]);

/* body is copied. Exactly once a call. */
void sl_http_answer(struct sl_http_call *call, unsigned status, const char *content_type,
                    const char *body, size_t size);

#endif
