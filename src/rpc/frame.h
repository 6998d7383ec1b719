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

/* Puts messages together from pieces of any size. The memory grows with the bytes that have arrived, not with the
 * length that a peer claims. To initialise: set max_bytes, zero the rest. */
struct sl_rpc_reader {
    size_t max_bytes; /* a longer message is refused as soon as its prefix is there */
    uint8_t *body;
    size_t capacity;
    size_t have;   /* bytes of the body that have arrived */
    uint32_t want; /* length of the body, once the prefix is there */
    uint8_t prefix[SL_RPC_PREFIX];
    uint8_t prefix_have;
};

/* Takes bytes from *data. Returns 1 when a message is complete (body, have): read it, then call sl_rpc_reader_next(); 0
 * when all bytes are used up; -EMSGSIZE (too long), -EOPNOTSUPP (compressed), -EPROTO (the flag byte is neither 0 nor
 * 1) or -ENOMEM. After an error the reader must not be used again. */
int sl_rpc_reader_feed(struct sl_rpc_reader *r, const uint8_t **data, size_t *size,
                       struct sl_err *err) SL_MUST_CHECK;

/* Forgets the message just read and frees its memory. */
void sl_rpc_reader_next(struct sl_rpc_reader *r);

/* Is the reader between two messages? Only there may the stream end. */
bool sl_rpc_reader_idle(const struct sl_rpc_reader *r);

void sl_rpc_prefix_write(uint8_t prefix[SL_RPC_PREFIX], uint32_t size);

#endif
