/* SPDX-License-Identifier: Apache-2.0 */
#include "raw.h"

#include <stdlib.h>
#include <string.h>

#include "rpc/frame.h"

void raw_put(struct raw_bytes *b, const void *data, size_t size)
{
    if (size > sizeof(b->data) - b->size)
        abort();
    if (size)
        memcpy(b->data + b->size, data, size);
    b->size += size;
}

void raw_frame(struct raw_bytes *b, uint8_t type, uint8_t flags, uint32_t stream,
               const void *payload, size_t size)
{
    uint8_t head[9] = {(uint8_t)(size >> 16),
                       (uint8_t)(size >> 8),
                       (uint8_t)size,
                       type,
                       flags,
                       (uint8_t)(stream >> 24),
                       (uint8_t)(stream >> 16),
                       (uint8_t)(stream >> 8),
                       (uint8_t)stream};
    raw_put(b, head, sizeof(head));
    raw_put(b, payload, size);
}

void raw_hello(struct raw_bytes *b)
{
    raw_put(b, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    raw_frame(b, RAW_SETTINGS, 0, 0, NULL, 0);
}

/* HPACK: a literal string without Huffman coding. */
static void put_string(struct raw_bytes *b, const char *text)
{
    size_t n = strlen(text);
    if (n < 127) {
        raw_put(b, &(uint8_t){(uint8_t)n}, 1);
    } else {
        raw_put(b, &(uint8_t){127}, 1);
        for (n -= 127; n >= 128; n /= 128)
            raw_put(b, &(uint8_t){(uint8_t)(n % 128 + 128)}, 1);
        raw_put(b, &(uint8_t){(uint8_t)n}, 1);
    }
    raw_put(b, text, strlen(text));
}

void raw_headers(struct raw_bytes *b, uint8_t flags, uint32_t stream, const char *const *pairs)
{
    static struct raw_bytes block;
    block.size = 0;
    for (; *pairs; pairs += 2) {
        raw_put(&block, &(uint8_t){0}, 1); /* never indexed: no state to keep */
        put_string(&block, pairs[0]);
        put_string(&block, pairs[1]);
    }
    raw_frame(b, RAW_HEADERS, flags | RAW_END_HEADERS, stream, block.data, block.size);
}

void raw_request(struct raw_bytes *b, uint32_t stream, const char *path)
{
    const char *const pairs[] = {
        ":method",   "POST",         ":scheme",          "http", ":path",    path, ":authority",
        "localhost", "content-type", "application/grpc", "te",   "trailers", NULL};
    raw_headers(b, 0, stream, pairs);
}

void raw_message(struct raw_bytes *b, uint8_t flags, uint32_t stream, uint8_t compressed,
                 const char *text)
{
    uint8_t payload[1024];
    size_t n = strlen(text);
    sl_rpc_prefix_write(payload, (uint32_t)n);
    payload[0] = compressed;
    memcpy(payload + SL_RPC_PREFIX, text, n);
    raw_frame(b, RAW_DATA, flags, stream, payload, SL_RPC_PREFIX + n);
}
