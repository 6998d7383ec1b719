/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC server on unix sockets: unary and server-streaming methods, that is, one request message and any number of
 * answers. The server knows paths and bytes; handlers know their meaning.
 */
#ifndef SLUICE_RPC_SERVER_H
#define SLUICE_RPC_SERVER_H

#include <sys/types.h>

#include "rpc/call.h"
#include "base/loop.h"

struct sl_rpc_server;

/* Runs when the request is complete; msg is valid only during the call. The handler answers with sl_rpc_call_send() and
 * sl_rpc_call_finish(), at once or later. A handler that answers later must watch the call: the call can end. */
typedef void sl_rpc_handler(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data);

struct sl_rpc_call_events {
    /* The queue has run low after -EAGAIN: send again. May be NULL. */
    void (*writable)(struct sl_rpc_call *call, void *data);
    /* The server is stopping: a stream that would go on for ever should finish. May be NULL. */
    void (*draining)(struct sl_rpc_call *call, void *data);
    /* The call is over, exactly once: finished and written out (the code given), cancelled or lost (CANCELLED), or past
     * its deadline. The pointer is invalid when this returns. May be NULL. */
    void (*ended)(struct sl_rpc_call *call, enum sl_rpc_code code, void *data);
};

int sl_rpc_server_create(struct sl_loop *loop, const struct sl_rpc_limits *limits,
                         struct sl_rpc_server **ret, struct sl_err *err) SL_MUST_CHECK;

/* Drops every connection at once and removes the sockets. Allowed in any callback. NULL is fine. */
void sl_rpc_server_destroy(struct sl_rpc_server *server);

/* path: "/package.Service/Method". */
int sl_rpc_server_handle(struct sl_rpc_server *server, const char *path, sl_rpc_handler *handler,
                         void *data, struct sl_err *err) SL_MUST_CHECK;

/* Listens on a unix socket with this mode. An existing socket is replaced, any other file is an error. May be called
 * for several paths, and again for a path whose file was removed; earlier connections live on. */
int sl_rpc_server_listen(struct sl_rpc_server *server, const char *path, mode_t mode,
                         struct sl_err *err) SL_MUST_CHECK;

/* Serves a connected socket. The server owns the socket from now on, also when this fails. */
int sl_rpc_server_adopt(struct sl_rpc_server *server, int fd, struct sl_err *err) SL_MUST_CHECK;

/* Graceful stop: no new connections, GOAWAY to the existing ones, calls go on to their end. Calls left after grace_ns
 * are dropped. Then `stopped` is called; the server may be destroyed in it. */
void sl_rpc_server_stop(struct sl_rpc_server *server, uint64_t grace_ns,
                        void (*stopped)(struct sl_rpc_server *server, void *data), void *data);

size_t sl_rpc_server_conns(const struct sl_rpc_server *server);

/* events must outlive the call. */
void sl_rpc_call_watch(struct sl_rpc_call *call, const struct sl_rpc_call_events *events,
                       void *data);

/* Ends the call after the queued messages. message: for people, NULL for none; control characters and all but ASCII
 * travel percent-encoded. Nothing may be sent afterwards. */
void sl_rpc_call_finish(struct sl_rpc_call *call, enum sl_rpc_code code, const char *message);

/* The usual end of a unary call: one message and OK, or the reason why there is no message. */
void sl_rpc_call_reply(struct sl_rpc_call *call, const void *data, size_t size);

#endif
