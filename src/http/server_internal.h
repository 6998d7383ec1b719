/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of the HTTP server. */
#ifndef SLUICE_HTTP_SERVER_INTERNAL_H
#define SLUICE_HTTP_SERVER_INTERNAL_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

#include "http/server.h"
#include "http/server_tls.h"

/* Addresses are counted by a hash with a secret, so that a client cannot choose to be counted
 * together with another client. */
enum { HTTP_ORIGINS = 256 };

/* A connection. Each of its phases (a request coming in, an answer going out, idle) has a deadline. While the server
 * waits for the client, the connection is in the server's line, ordered by the beginning of the phase. */
struct http_conn {
    struct sl_http_server *server;
    struct http_conn *prev, *next;
    bool in_line, sent_away;
    uint8_t origin; /* the hash of the client's address, below HTTP_ORIGINS */
    struct sl_timer timer;
    int fd;
};

struct sl_http_call {
    struct sl_http_server *server;
    struct sl_http_call *next;
    struct MHD_Connection *mhd; /* NULL: the call is over, but its owner does not know */
    struct http_conn *conn;
    struct sl_source hangup; /* while the call waits: MHD does not look at the socket then */
    char *query;
    char *body;
    size_t body_size, body_capacity, body_max, discarded;
    size_t answer_size;
    struct MHD_Response *response;
    unsigned status;
    bool started, too_large, crowded_out;
    bool unread;  /* the handler does not want the body */
    bool handled; /* the handler has the request */
    bool suspended;
    bool closed; /* the handler is done: it answered, or knows that the client is gone */
};

struct sl_http_server {
    struct sl_loop *loop;
    struct MHD_Daemon *daemon;
    struct sl_source source; /* MHD's epoll descriptor */
    struct sl_timer timer;   /* MHD's next deadline */
    struct http_tls tls;
    struct sl_http_server_options opt; /* the strings in it are not valid after the start */
    struct sl_http_call *calls;
    unsigned port;
    struct http_conn *line_first, *line_last;
    unsigned from[HTTP_ORIGINS]; /* connections by origin */
    uint64_t origin_secret;
    unsigned conn_count, leaving; /* leaving: shut down, but not closed yet */
    size_t held;                  /* bytes of bodies and answers */
    bool run_soon;                /* a connection goes on without an event of its socket */
    char complaint[200];          /* MHD's last error message */
};

/* server_listen.c: a listening socket, or -errno */
int sl_http_listen(const char *address, struct sl_err *err) SL_MUST_CHECK;
unsigned sl_http_listen_port(int fd);

/* server.c */
void sl_http_run_soon(struct sl_http_server *server);

/* server_call.c: MHD's callbacks */
void *sl_http_call_open(void *data, const char *uri, struct MHD_Connection *mhd);
enum MHD_Result sl_http_call_handle(void *data, struct MHD_Connection *mhd, const char *url,
                                    const char *method, const char *version, const char *upload,
                                    size_t *upload_size, void **context);
void sl_http_call_completed(void *data, struct MHD_Connection *mhd, void **context,
                            enum MHD_RequestTerminationCode why);
void sl_http_call_drop(struct sl_http_call *call); /* when the server ends */
void sl_http_call_free(struct sl_http_call *call);

/* server_crowd.c */
void sl_http_conn_arrived(struct http_conn *conn);
void sl_http_conn_left(struct http_conn *conn);
void sl_http_conn_waits(struct http_conn *conn); /* for its client, until its deadline */
void sl_http_conn_busy(struct http_conn *conn);  /* the handler works on its request */
/* May `more` bytes be held for a body or an answer of `whole` bytes? Larger unfinished bodies are dropped for it. */
bool sl_http_room(struct sl_http_server *server, size_t more, size_t whole);
void sl_http_body_drop(struct sl_http_call *call);

#endif
