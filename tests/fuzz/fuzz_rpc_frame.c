/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC messages in pieces, beside a reader that sees all bytes at once; and the header values with a
 * grammar. The first byte says how large the pieces are. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "fuzz.h"
#include "rpc/frame.h"
#include "rpc/status.h"

enum { MAX_BYTES = 300 };

/* What the reader must say about the message that begins at data: its length, or an error. */
static int model(const uint8_t *data, size_t size, size_t *ret_end)
{
    if (size < SL_RPC_PREFIX)
        return 0;
    uint32_t want =
        (uint32_t)data[1] << 24 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 8 | data[4];
    if (data[0] == 1)
        return -EOPNOTSUPP;
    if (data[0] != 0)
        return -EPROTO;
    if (want > MAX_BYTES)
        return -EMSGSIZE;
    if (size - SL_RPC_PREFIX < want)
        return 0;
    *ret_end = SL_RPC_PREFIX + want;
    return 1;
}

static void frames(const uint8_t *data, size_t size, size_t piece)
{
    struct sl_rpc_reader r = {.max_bytes = MAX_BYTES};
    size_t begin = 0, end = 0; /* of the message being read */
    for (size_t at = 0; at < size; at += piece) {
        const uint8_t *p = data + at;
        size_t left = size - at < piece ? size - at : piece;
        struct sl_err err = SL_ERR_INIT;
        int rc;
        while ((rc = sl_rpc_reader_feed(&r, &p, &left, &err)) == 1) {
            FUZZ_CHECK(model(data + begin, size - begin, &end) == 1);
            FUZZ_CHECK(r.have == end - SL_RPC_PREFIX && r.capacity <= MAX_BYTES);
            FUZZ_CHECK(r.have == 0 || memcmp(r.body, data + begin + SL_RPC_PREFIX, r.have) == 0);
            begin += end;
            sl_rpc_reader_next(&r);
        }
        if (rc < 0) {
            FUZZ_CHECK(rc == model(data + begin, size - begin, &end) && err.code == rc);
            sl_rpc_reader_next(&r);
            return;
        }
        FUZZ_CHECK(left == 0);
    }
    FUZZ_CHECK(model(data + begin, size - begin, &end) == 0);
    FUZZ_CHECK(sl_rpc_reader_idle(&r) == (begin == size));
    sl_rpc_reader_next(&r);
}

static void texts(const uint8_t *data, size_t size)
{
    char text[600], wire[1800], back[600];
    sl_rpc_text_decode(data, size, text, sizeof(text));
    FUZZ_CHECK(sl_rpc_text_encode(text, wire, sizeof(wire)) == strlen(wire));
    sl_rpc_text_decode((const uint8_t *)wire, strlen(wire), back, sizeof(back));
    FUZZ_CHECK(strcmp(text, back) == 0);
    FUZZ_CHECK((unsigned)sl_rpc_code_parse(data, size) <= SL_RPC_UNAUTHENTICATED);
    uint64_t ns, again;
    if (sl_rpc_timeout_parse(data, size, &ns)) {
        char formatted[SL_RPC_TIMEOUT_TEXT];
        sl_rpc_timeout_format(ns, formatted);
        FUZZ_CHECK(sl_rpc_timeout_parse((const uint8_t *)formatted, strlen(formatted), &again));
        FUZZ_CHECK(again >= ns);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    frames(data + 1, size - 1, data[0] ? data[0] : 4096);
    texts(data + 1, size - 1);
    return 0;
}
