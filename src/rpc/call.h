/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by server and client: the limits, and the calls themselves. */
#ifndef SLUICE_RPC_CALL_H
#define SLUICE_RPC_CALL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "rpc/status.h"

/* Limits on the memory and the descriptors that a peer can make us hold. 0 stands for the default. */
struct sl_rpc_limits {
    size_t max_message_bytes; /* of a message we accept; 4 MiB */
    size_t max_queue_bytes;   /* of one call, waiting for the peer to read; 1 MiB */
    size_t max_conn_bytes;    /* of one connection, in parts of messages and queues; 64 MiB */
    uint32_t max_streams;     /* calls at a time on one connection; 1024 */
    uint32_t max_conns;       /* connections to one server; 64 */
};

/* One call. All its functions and callbacks run in the loop's thread. */
struct sl_rpc_call;

/* Queues one message (copied) for the peer. -EAGAIN: the peer is slow and the queue full; nothing was queued, and
 * `writable` will tell when to send again. An empty queue takes a message of any size. -EMSGSIZE: the message is larger
 * than max_conn_bytes. -EPIPE: the call or its connection is over (the event that says so has come or will come).
 * -ENOMEM. */
int sl_rpc_call_send(struct sl_rpc_call *call, const void *data, size_t size,
                     struct sl_err *err) SL_MUST_CHECK;

/* Ends the call at once, from either end: queued messages are dropped, the stream is reset, and the peer sees
 * CANCELLED. No further callback; the pointer is invalid when this function returns. */
void sl_rpc_call_cancel(struct sl_rpc_call *call);

/* The time when the call must be over, on the loop's clock; SL_RPC_NO_TIMEOUT: never. */
uint64_t sl_rpc_call_deadline(const struct sl_rpc_call *call);

#endif
