/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <nghttp2/nghttp2.h>

#include "base/cleanup.h"

static const char *const names[] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

const char *sl_rpc_code_name(enum sl_rpc_code code)
{
    return (unsigned)code < SL_ARRAY_LEN(names) ? names[code] : names[SL_RPC_UNKNOWN];
}

enum sl_rpc_code sl_rpc_code_parse(const uint8_t *text, size_t size)
{
    unsigned value = 0;
    if (size == 0 || size > 2)
        return SL_RPC_UNKNOWN;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return SL_RPC_UNKNOWN;
        value = value * 10 + (unsigned)(text[i] - '0');
    }
    return value < SL_ARRAY_LEN(names) ? (enum sl_rpc_code)value : SL_RPC_UNKNOWN;
}

/* The status for a number of another protocol. */
struct meaning {
    unsigned number;
    enum sl_rpc_code code;
};

static enum sl_rpc_code look_up(const struct meaning *list, size_t count, unsigned number,
                                enum sl_rpc_code otherwise)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].number == number)
            return list[i].code;
    return otherwise;
}

enum sl_rpc_code sl_rpc_code_from_errno(int code)
{
    static const struct meaning list[] = {{0, SL_RPC_OK},
                                          {EINVAL, SL_RPC_INVALID_ARGUMENT},
                                          {EMSGSIZE, SL_RPC_INVALID_ARGUMENT},
                                          {ENOENT, SL_RPC_NOT_FOUND},
                                          {ENODEV, SL_RPC_NOT_FOUND},
                                          {EEXIST, SL_RPC_ALREADY_EXISTS},
                                          {EPERM, SL_RPC_PERMISSION_DENIED},
                                          {EACCES, SL_RPC_PERMISSION_DENIED},
                                          {ENOMEM, SL_RPC_RESOURCE_EXHAUSTED},
                                          {ENOSPC, SL_RPC_RESOURCE_EXHAUSTED},
                                          {EMFILE, SL_RPC_RESOURCE_EXHAUSTED},
                                          {ENFILE, SL_RPC_RESOURCE_EXHAUSTED},
                                          {EDQUOT, SL_RPC_RESOURCE_EXHAUSTED},
                                          {EBUSY, SL_RPC_FAILED_PRECONDITION},
                                          {ERANGE, SL_RPC_OUT_OF_RANGE},
                                          {ENOSYS, SL_RPC_UNIMPLEMENTED},
                                          {EOPNOTSUPP, SL_RPC_UNIMPLEMENTED},
                                          {EAGAIN, SL_RPC_UNAVAILABLE},
                                          {ECONNREFUSED, SL_RPC_UNAVAILABLE},
                                          {EPIPE, SL_RPC_UNAVAILABLE},
                                          {ESHUTDOWN, SL_RPC_UNAVAILABLE},
                                          {ETIMEDOUT, SL_RPC_DEADLINE_EXCEEDED},
                                          {ECANCELED, SL_RPC_CANCELLED}};
    return look_up(list, SL_ARRAY_LEN(list), (unsigned)-code, SL_RPC_INTERNAL);
}

enum sl_rpc_code sl_rpc_code_from_http(unsigned http_status)
{
    static const struct meaning list[] = {
        {400, SL_RPC_INTERNAL},      {401, SL_RPC_UNAUTHENTICATED}, {403, SL_RPC_PERMISSION_DENIED},
        {404, SL_RPC_UNIMPLEMENTED}, {429, SL_RPC_UNAVAILABLE},     {502, SL_RPC_UNAVAILABLE},
        {503, SL_RPC_UNAVAILABLE},   {504, SL_RPC_UNAVAILABLE},
    };
    return look_up(list, SL_ARRAY_LEN(list), http_status, SL_RPC_UNKNOWN);
}

enum sl_rpc_code sl_rpc_code_from_h2(uint32_t h2_error)
{
    static const struct meaning list[] = {
        {NGHTTP2_REFUSED_STREAM,
         SL_RPC_UNAVAILABLE}, /* certainly not processed: the client may try again */
        {NGHTTP2_CANCEL, SL_RPC_CANCELLED},
        {NGHTTP2_ENHANCE_YOUR_CALM, SL_RPC_RESOURCE_EXHAUSTED},
        {NGHTTP2_INADEQUATE_SECURITY, SL_RPC_PERMISSION_DENIED},
    };
    return look_up(list, SL_ARRAY_LEN(list), h2_error, SL_RPC_INTERNAL);
}

size_t sl_rpc_text_encode(const char *text, char *out, size_t out_size)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t used = 0;
    if (out_size == 0)
        return 0;
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;
        bool plain = c >= 0x20 && c <= 0x7e && c != '%';
        if (used + (plain ? 1 : 3) >= out_size)
            break;
        if (plain) {
            out[used++] = (char)c;
        } else {
            out[used++] = '%';
            out[used++] = hex[c >> 4];
            out[used++] = hex[c & 15];
        }
    }
    out[used] = '\0';
    return used;
}

static int hex_value(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

void sl_rpc_text_decode(const uint8_t *text, size_t size, char *out, size_t out_size)
{
    size_t used = 0;
    if (out_size == 0)
        return;
    for (size_t i = 0; i < size && used + 1 < out_size; i++) {
        int c = text[i];
        if (c == '%' && i + 2 < size && hex_value(text[i + 1]) >= 0 &&
            hex_value(text[i + 2]) >= 0) {
            c = hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]);
            i += 2;
        }
        out[used++] = c ? (char)c : '?';
    }
    out[used] = '\0';
}

static const struct {
    char letter;
    uint64_t ns;
} units[] = {
    {'n', 1},          {'u', 1000},        {'m', 1000000},
    {'S', 1000000000}, {'M', 60000000000}, {'H', 3600000000000},
};

bool sl_rpc_timeout_parse(const uint8_t *text, size_t size, uint64_t *ret_ns)
{
    if (size < 2 || size > 9)
        return false;
    uint64_t value = 0;
    for (size_t i = 0; i + 1 < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    for (size_t i = 0; i < SL_ARRAY_LEN(units); i++) {
        if (text[size - 1] != (uint8_t)units[i].letter)
            continue;
        if (__builtin_mul_overflow(value, units[i].ns, ret_ns))
            *ret_ns = SL_RPC_NO_TIMEOUT;
        return true;
    }
    return false;
}

void sl_rpc_timeout_format(uint64_t ns, char out[SL_RPC_TIMEOUT_TEXT])
{
    for (size_t i = 0; i < SL_ARRAY_LEN(units); i++) {
        uint64_t value = ns / units[i].ns + (ns % units[i].ns ? 1 : 0);
        if (value <= 99999999) {
            (void)snprintf(out, SL_RPC_TIMEOUT_TEXT, "%" PRIu64 "%c", value, units[i].letter);
            return;
        }
    }
    (void)snprintf(out, SL_RPC_TIMEOUT_TEXT, "99999999H"); /* not reached: 2^64 ns is 5 million H */
}
