/* SPDX-License-Identifier: Apache-2.0 */
/* A connection (HTTP/2 session on a descriptor) and its calls, shared by server and client. */
#ifndef SLUICE_RPC_RPC_INTERNAL_H
#define SLUICE_RPC_RPC_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <nghttp2/nghttp2.h>

#include "rpc/call.h"
#include "rpc/client.h"
#include "rpc/frame.h"
#include "base/loop.h"
#include "rpc/server.h"

enum {
    RPC_OUT_BYTES = 64 * 1024,
    RPC_STREAM_WINDOW = 256 * 1024,
    RPC_CONN_WINDOW = 1024 * 1024,
    RPC_HEADER_BYTES = 16 * 1024, /* of one request or answer */
    RPC_TEXT = 512,               /* a status message is cut to this size */
};

/* A message on its way out, prefix included. */
struct rpc_out {
    struct rpc_out *next;
    size_t size, at;
    uint8_t data[];
};

struct rpc_method {
    struct rpc_method *next;
    sl_rpc_handler *handler;
    void *data;
    char path[];
};

struct sl_rpc_call {
    struct rpc_conn *conn;
    struct sl_rpc_call *prev, *next;
    int32_t stream_id;
    struct sl_timer deadline;
    uint64_t deadline_ns;

    struct sl_rpc_reader in;
    size_t header_bytes;
    uint64_t unconsumed; /* bytes of window held back while paused */
    bool discard;        /* ignore all bytes that still arrive */
    bool peer_ended;     /* END_STREAM received */

    struct rpc_out *out_first, *out_last;
    size_t queued; /* bytes in that list */
    bool deferred; /* nghttp2 waits for nghttp2_session_resume_data */
    bool blocked;  /* a send was refused: the owner waits for `writable` */
    bool notify;   /* … and can be told now */
    bool started;  /* a response, or the request, was submitted */
    bool finished; /* nothing more will be queued */
    bool unsent;   /* the HEADERS will never be sent: no stream, so no close event either */
    bool over;     /* the owner has been told, or wants no more events */

    enum sl_rpc_code code; /* server: to send; client: received */
    char text[RPC_TEXT];
    void *data; /* belongs to the owner */

    /* server */
    const struct sl_rpc_call_events *events;
    const struct rpc_method *method;
    uint8_t *request;
    size_t request_size;
    unsigned http_status; /* to send, or received; 0 = none yet */
    unsigned seen;        /* RPC_SEEN_… */
    bool malformed;

    /* client */
    const struct sl_rpc_call_ops *ops;
    uint64_t messages;
    bool status_seen;
    bool paused;
};

enum {
    RPC_SEEN_METHOD = 1,
    RPC_SEEN_SCHEME = 2,
    RPC_SEEN_PATH = 4,
    RPC_SEEN_AUTHORITY = 8,
    RPC_SEEN_REGULAR = 16,
    RPC_SEEN_GRPC = 32, /* content-type: application/grpc… */
    RPC_SEEN_POST = 64,
    RPC_SEEN_ENCODING = 128, /* a grpc-encoding that we do not know */
    RPC_SEEN_BAD_TIMEOUT = 256,
    RPC_SEEN_ALL = 512, /* the header block is complete */
};

/* The callbacks that differ between server and client. */
struct rpc_role {
    void (*header)(struct sl_rpc_call *call, const uint8_t *name, size_t name_size,
                   const uint8_t *value, size_t value_size);
    void (*headers_done)(struct sl_rpc_call *call, bool ends);
    /* The reader holds a complete message. */
    void (*message)(struct sl_rpc_call *call);
    void (*broken)(struct sl_rpc_call *call, const struct sl_err *err);
    void (*peer_ended)(struct sl_rpc_call *call);
    void (*expired)(struct sl_rpc_call *call);
    /* The stream is gone: the last event for the owner; the call is freed next. */
    void (*closed)(struct sl_rpc_call *call, bool lost, uint32_t h2_error);
    /* The final frame of a call is written. This callback and the next may be NULL. */
    void (*sent_end)(struct sl_rpc_call *call);
    void (*ping_acked)(struct rpc_conn *conn);
    /* The connection is gone and will be freed next; why is set. */
    void (*lost)(struct rpc_conn *conn, const struct sl_err *why);
    bool reads_to_the_end; /* bytes that a peer sent before it left still count */
};

struct rpc_conn {
    struct sl_source source;
    struct sl_loop *loop;
    nghttp2_session *session;
    const struct rpc_role *role;
    struct sl_rpc_limits limits;
    struct sl_rpc_call *calls;
    size_t call_count;
    size_t held_bytes;  /* in parts of messages and queues, of all calls */
    unsigned depth;     /* how many functions of ours are on the stack; freed only at 0 */
    bool dead;          /* to be released as soon as depth is 0 */
    bool unwritten;     /* frames were submitted since the last write */
    bool said_goodbye;  /* the final GOAWAY is submitted */
    bool going_away;    /* the peer said GOAWAY: no new calls */
    bool sweep, notify; /* some call is `unsent`, or has `notify` */
    struct sl_err why;  /* … the connection is dead */
    void *owner;
    struct rpc_conn *prev, *next;
    const uint8_t *more; /* owned by nghttp2, valid until its next send: did not fit into out */
    size_t more_size;
    size_t out_at, out_size;
    uint8_t out[RPC_OUT_BYTES];
};

/* conn.c. The connection owns the descriptor from the call on, also when the call fails. */
int sl_rpc_conn_create(struct sl_loop *loop, int fd, bool server, const struct rpc_role *role,
                       const struct sl_rpc_limits *limits, void *owner, struct rpc_conn **ret,
                       struct sl_err *err) SL_MUST_CHECK;
/* Call this after code that calls back into the owner, and conn->depth++ before it. Nothing is freed before the last
 * leave. */
void sl_rpc_conn_leave(struct rpc_conn *conn);
/* The connection cannot be used any more: the loop releases it soon. Never calls back. */
void sl_rpc_conn_fail(struct rpc_conn *conn, int code, const char *why);
/* The same, at once unless a function of ours is on the stack. Calls back for every call. */
void sl_rpc_conn_drop(struct rpc_conn *conn, int code, const char *why);
/* Asks the loop to write submitted frames. */
void sl_rpc_conn_schedule(struct rpc_conn *conn);
void sl_rpc_limits_fill(struct sl_rpc_limits *limits);

/* call.c */
struct sl_rpc_call *sl_rpc_call_create(struct rpc_conn *conn);
void sl_rpc_call_free(struct sl_rpc_call *call);
void sl_rpc_call_receive(struct sl_rpc_call *call, const uint8_t *data, size_t size);
void sl_rpc_call_reset(struct sl_rpc_call *call, uint32_t h2_error);
void sl_rpc_call_drop_queue(struct sl_rpc_call *call);
void sl_rpc_call_set_deadline(struct sl_rpc_call *call, uint64_t timeout_ns);
int sl_rpc_call_push(struct sl_rpc_call *call, const void *data, size_t size,
                     struct sl_err *err) SL_MUST_CHECK;
void sl_rpc_call_wake(struct sl_rpc_call *call);
/* The nghttp2 data source of both ends. */
ssize_t sl_rpc_call_read(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t length,
                         uint32_t *flags, nghttp2_data_source *source, void *user_data);
/* serve.c: HEADERS with the status, after the last message. */
int sl_rpc_server_trailers(struct sl_rpc_call *call);

/* server.c */
const struct rpc_method *sl_rpc_server_find(const struct rpc_conn *conn, const uint8_t *path,
                                            size_t size);
void sl_rpc_server_goaway(struct rpc_conn *conn);
void sl_rpc_server_lost(struct rpc_conn *conn, const struct sl_err *why);
extern const struct rpc_role sl_rpc_server_role; /* serve.c */

static inline bool rpc_is(const uint8_t *text, size_t size, const char *word)
{
    return size == strlen(word) && memcmp(text, word, size) == 0;
}

static inline bool rpc_starts(const uint8_t *text, size_t size, const char *word)
{
    size_t n = strlen(word);
    return size >= n && memcmp(text, word, n) == 0;
}

/* nghttp2 copies names and values; its struct only lacks the const. */
static inline uint8_t *rpc_unconst(const char *text)
{
    union {
        const char *in;
        uint8_t *out;
    } same = {.in = text};
    return same.out;
}

static inline nghttp2_nv rpc_nv(const char *name, const char *value)
{
    return (nghttp2_nv){.name = rpc_unconst(name),
                        .value = rpc_unconst(value),
                        .namelen = strlen(name),
                        .valuelen = strlen(value)};
}

#endif
