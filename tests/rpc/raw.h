/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/2 by hand: frames that no sane client would send, and the answers. */
#ifndef SLUICE_TESTS_RPC_RAW_H
#define SLUICE_TESTS_RPC_RAW_H

#include <stddef.h>
#include <stdint.h>

enum { RAW_DATA = 0, RAW_HEADERS = 1, RAW_RST = 3, RAW_SETTINGS = 4, RAW_PING = 6, RAW_GOAWAY = 7 };
enum { RAW_END_STREAM = 1, RAW_ACK = 1, RAW_END_HEADERS = 4 };

struct raw_bytes {
    size_t size;
    uint8_t data[256 * 1024];
};

void raw_put(struct raw_bytes *b, const void *data, size_t size);
void raw_frame(struct raw_bytes *b, uint8_t type, uint8_t flags, uint32_t stream,
               const void *payload, size_t size);
/* The client's first words. */
void raw_hello(struct raw_bytes *b);
/* HEADERS from "name", "value", …, NULL; ":…" names too. */
void raw_headers(struct raw_bytes *b, uint8_t flags, uint32_t stream, const char *const *pairs);
/* A gRPC request's HEADERS. */
void raw_request(struct raw_bytes *b, uint32_t stream, const char *path);
/* One length-prefixed message in one DATA frame. */
void raw_message(struct raw_bytes *b, uint8_t flags, uint32_t stream, uint8_t compressed,
                 const char *text);

#endif
