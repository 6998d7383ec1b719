/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC client: one connection to a unix socket, any number of calls. It does not reconnect: when
 * to try again, and what to say first, is its owner's knowledge.
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
    /* The connection is over (calls have had their `done`), once; not after sl_rpc_client_destroy.
     * The client may be destroyed in it, and must be some time. May be NULL. */
    void (*closed)(struct sl_rpc_client *client, const struct sl_err *why, void *data);
    void *data;
};

/* connect() to a unix socket does not wait: it works or fails now. -EAGAIN: the server's queue of
 * connections is full. */
int sl_rpc_client_connect(struct sl_loop *loop, const char *path,
                          const struct sl_rpc_client_options *options, struct sl_rpc_client **ret,
                          struct sl_err *err) SL_MUST_CHECK;

/* As connect, over a connected socket, which it owns from now on, also when it fails. */
int sl_rpc_client_adopt(struct sl_loop *loop, int fd, const struct sl_rpc_client_options *options,
                        struct sl_rpc_client **ret, struct sl_err *err) SL_MUST_CHECK;

/* Calls under way get `done` with CANCELLED. Allowed in any callback. NULL is fine. */
void sl_rpc_client_destroy(struct sl_rpc_client *client);

/* False once the peer said GOAWAY or is gone: calls under way go on, new ones need a new client. */
bool sl_rpc_client_usable(const struct sl_rpc_client *client);

struct sl_rpc_call_ops {
    /* One answer; gone when this returns. */
    void (*message)(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data);
    /* The end, exactly once, unless the call was cancelled. The pointer is dead when this returns. */
    void (*done)(struct sl_rpc_call *call, enum sl_rpc_code code, const char *message, void *data);
    /* More or fewer than one answer is an error. */
    bool unary;
};

/* Sends one request. ops must outlive the call. Nothing is called back before this returns.
 * timeout_ns is told to the server and kept here: DEADLINE_EXCEEDED comes in time, whatever the
 * server does. -ESHUTDOWN: the client is not usable any more. -EAGAIN: too many calls under way. */
int sl_rpc_client_call(struct sl_rpc_client *client, const char *path, const void *msg, size_t size,
                       uint64_t timeout_ns, const struct sl_rpc_call_ops *ops, void *data,
                       struct sl_rpc_call **ret, struct sl_err *err) SL_MUST_CHECK;

/* Backpressure: a paused call lets the server send at most a window (256 KiB) more; what comes is
 * still handed over. Other calls of the connection are not held up. */
void sl_rpc_call_pause(struct sl_rpc_call *call);
void sl_rpc_call_resume(struct sl_rpc_call *call);

#endif
