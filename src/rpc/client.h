/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC client: one connection to a unix socket, any number of calls. The client does not reconnect: only its owner
 * knows when to try again, and which call comes first.
 */
#ifndef SLUICE_RPC_CLIENT_H
#define SLUICE_RPC_CLIENT_H

#include <stdbool.h>

#include "rpc/call.h"
#include "base/loop.h"

struct sl_rpc_client;

struct sl_rpc_client_options {
    struct sl_rpc_limits limits;
    const char *authority; /* NULL: "localhost" */
    /* The connection is over (each call has had its `done`). Called once; not after sl_rpc_client_destroy. The owner
     * must destroy the client, in this callback or later. May be NULL. */
    void (*closed)(struct sl_rpc_client *client, const struct sl_err *why, void *data);
    void *data;
};

/* connect() to a unix socket does not wait: it works or fails now. -EAGAIN: the server's queue of
 * connections is full. */
int sl_rpc_client_connect(struct sl_loop *loop, const char *path,
                          const struct sl_rpc_client_options *options, struct sl_rpc_client **ret,
                          struct sl_err *err) SL_MUST_CHECK;

/* As connect, over a connected socket. The client owns the socket from now on, also when this fails. */
int sl_rpc_client_adopt(struct sl_loop *loop, int fd, const struct sl_rpc_client_options *options,
                        struct sl_rpc_client **ret, struct sl_err *err) SL_MUST_CHECK;

/* Calls under way get `done` with CANCELLED. Allowed in any callback. NULL is fine. */
void sl_rpc_client_destroy(struct sl_rpc_client *client);

/* False once the peer sent GOAWAY or is gone: running calls go on, new calls need a new client. */
bool sl_rpc_client_usable(const struct sl_rpc_client *client);

struct sl_rpc_call_ops {
    /* One answer; msg is valid only during the callback. */
    void (*message)(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data);
    /* The end of the call, exactly once, unless the call was cancelled. The pointer is invalid afterwards. */
    void (*done)(struct sl_rpc_call *call, enum sl_rpc_code code, const char *message, void *data);
    /* True: a number of answers other than one is an error. */
    bool unary;
};

/* Sends one request. ops must outlive the call. No callback comes before this function returns. The server is told
 * timeout_ns, and the client keeps it too: DEADLINE_EXCEEDED comes in time, also when the server hangs. -ESHUTDOWN: the
 * client is not usable any more. -EAGAIN: too many calls are running. */
int sl_rpc_client_call(struct sl_rpc_client *client, const char *path, const void *msg, size_t size,
                       uint64_t timeout_ns, const struct sl_rpc_call_ops *ops, void *data,
                       struct sl_rpc_call **ret, struct sl_err *err) SL_MUST_CHECK;

/* Backpressure: the server of a paused call can send at most a window (256 KiB) more; these messages are still handed
 * over. Other calls of the connection are not held up. */
void sl_rpc_call_pause(struct sl_rpc_call *call);
void sl_rpc_call_resume(struct sl_rpc_call *call);

#endif
