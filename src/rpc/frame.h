/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC's length-prefixed messages: one flag byte, four bytes of length (big endian), the message.
 * Pure; knows nothing of HTTP/2. */
#ifndef SLUICE_RPC_FRAME_H
#define SLUICE_RPC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { SL_RPC_PREFIX = 5 };

/* Puts messages together from pieces of any size. Memory follows the bytes that have arrived, not
 * the length a peer claims. Zeroed apart from max_bytes it is ready for use. */
struct sl_rpc_reader {
    size_t max_bytes; /* a longer message is refused as soon as its prefix is there */
    uint8_t *body;
    size_t capacity;
    size_t have;   /* bytes of the body so far */
    uint32_t want; /* its length, once the prefix is there */
    uint8_t prefix[SL_RPC_PREFIX];
    uint8_t prefix_have;
};

/* Takes bytes from *data. Returns 1 when a message is complete (body, have): read it, then call
 * sl_rpc_reader_next(); 0 when all bytes are used up; -EMSGSIZE (too long), -EOPNOTSUPP
 * (compressed), -EPROTO (neither compressed nor not) or -ENOMEM, after which the reader is spent. */
int sl_rpc_reader_feed(struct sl_rpc_reader *r, const uint8_t **data, size_t *size,
                       struct sl_err *err) SL_MUST_CHECK;

/* Forgets the message just read and gives its memory back. */
void sl_rpc_reader_next(struct sl_rpc_reader *r);

/* Between two messages, that is: the stream may end here. */
bool sl_rpc_reader_idle(const struct sl_rpc_reader *r);

void sl_rpc_prefix_write(uint8_t prefix[SL_RPC_PREFIX], uint32_t size);

#endif
