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
struct sl_http_call; /* one request, until it is answered */

/* `handle` answers now, or later with the call. After `gone` (may be NULL) the client has left: do not answer. */
struct sl_http_server_options {
    const char *address; /* "127.0.0.1:9400", "[::]:8443", ":8443" for all; port 0: any free one */
    const char *cert_file, *key_file; /* both: TLS, read again when they change */
    const char *cert_pem, *key_pem;   /* instead: TLS with these (copied) */
    const char *client_ca_pem; /* TLS: clients are asked for a certificate of these authorities, see
                                * sl_http_client(). A client may have none. Copied */
    size_t body_max;           /* 0: 4 MiB; beyond it 413 */
    unsigned connections_max;  /* 0: 256. Beyond it the connection that is silent for longest is
                                * closed, of the address with most connections */
    size_t held_max; /* 0: 16 MiB. Bytes of all bodies and answers together; beyond it the largest
                      * unfinished body is dropped and answered with 503 */
    /* The most bytes that the body of such a request may have, at most body_max; 0: the body is read and dropped. NULL:
     * body_max for all. Called when the headers are there. */
    size_t (*body_room)(void *data, struct sl_http_call *call, const char *method,
                        const char *path);
    /* 0: 60. The longest time for a client to be idle, to send one request or to take one answer. */
    unsigned idle_timeout_s;
    void (*handle)(void *data, struct sl_http_call *call, const struct sl_http_request *request);
    void (*gone)(void *data, struct sl_http_call *call); /* the call is over: never answer it */
    /* A new certificate cannot be used and the old one stays; for logs. May be NULL. */
    void (*trouble)(void *data, const struct sl_err *err);
    void *data;
};

int sl_http_server_create(struct sl_loop *loop, const struct sl_http_server_options *opt,
                          struct sl_http_server **ret, struct sl_err *err) SL_MUST_CHECK;
/* `gone` is called for calls without an answer. Do not call this from inside handle or gone. NULL is fine. */
void sl_http_server_destroy(struct sl_http_server *server);
/* Closes the listening socket; running calls go on. Before destroy, wait until no call is running. */
void sl_http_server_quiesce(struct sl_http_server *server);
/* For a TLS server made with cert_pem: new connections get this certificate. */
int sl_http_server_certify(struct sl_http_server *server, const char *cert_pem, const char *key_pem,
                           struct sl_err *err) SL_MUST_CHECK;
unsigned sl_http_server_port(const struct sl_http_server *server);

/* Has the client proven its identity with a certificate of client_ca_pem? name: the certificate's common name, cut to
 * fit; "" where there is none. Only inside handle and body_room. */
bool sl_http_client(struct sl_http_call *call, char name[128]);

/* A header of the request; NULL: absent. Only inside handle. */
const char *sl_http_header(struct sl_http_call *call, const char *name);

/* body is copied. Call this exactly once for each call. */
void sl_http_answer(struct sl_http_call *call, unsigned status, const char *content_type,
                    const char *body, size_t size);

/* The same with more headers; a row without a name ends them. */
struct sl_http_header {
    const char *name, *value;
};
void sl_http_answer_with(struct sl_http_call *call, unsigned status, const char *content_type,
                         const struct sl_http_header *headers, const char *body, size_t size);

#endif
