/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC's status codes and the three header values with a grammar of their own: grpc-status,
 * grpc-message and grpc-timeout. Pure. */
#ifndef SLUICE_RPC_STATUS_H
#define SLUICE_RPC_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sl_rpc_code {
    SL_RPC_OK = 0,
    SL_RPC_CANCELLED = 1,
    SL_RPC_UNKNOWN = 2,
    SL_RPC_INVALID_ARGUMENT = 3,
    SL_RPC_DEADLINE_EXCEEDED = 4,
    SL_RPC_NOT_FOUND = 5,
    SL_RPC_ALREADY_EXISTS = 6,
    SL_RPC_PERMISSION_DENIED = 7,
    SL_RPC_RESOURCE_EXHAUSTED = 8,
    SL_RPC_FAILED_PRECONDITION = 9,
    SL_RPC_ABORTED = 10,
    SL_RPC_OUT_OF_RANGE = 11,
    SL_RPC_UNIMPLEMENTED = 12,
    SL_RPC_INTERNAL = 13,
    SL_RPC_UNAVAILABLE = 14,
    SL_RPC_DATA_LOSS = 15,
    SL_RPC_UNAUTHENTICATED = 16,
};

/* "DEADLINE_EXCEEDED"; a number outside the list is "UNKNOWN". */
const char *sl_rpc_code_name(enum sl_rpc_code code);

/* Decimal text of a grpc-status header; any other text is SL_RPC_UNKNOWN. */
enum sl_rpc_code sl_rpc_code_parse(const uint8_t *text, size_t size);

/* The one place where our negative errno codes become statuses. 0 is SL_RPC_OK. */
enum sl_rpc_code sl_rpc_code_from_errno(int code);

/* For answers without a grpc-status: the code that an HTTP status, or a stream reset, stands for. */
enum sl_rpc_code sl_rpc_code_from_http(unsigned http_status);
enum sl_rpc_code sl_rpc_code_from_h2(uint32_t h2_error);

/* Percent-encodes text for grpc-message into out (NUL-terminated, cut at a whole character's
 * escape if it does not fit); returns the length. */
size_t sl_rpc_text_encode(const char *text, char *out, size_t out_size);

/* The reverse; a '%' that starts no escape stays as it is. NULs become '?'. */
void sl_rpc_text_decode(const uint8_t *text, size_t size, char *out, size_t out_size);

#define SL_RPC_NO_TIMEOUT UINT64_MAX

/* "250m", "10S": one to eight digits and a unit of H M S m u n. A time beyond 2^64 ns counts as
 * no time limit. */
bool sl_rpc_timeout_parse(const uint8_t *text, size_t size, uint64_t *ret_ns);

enum { SL_RPC_TIMEOUT_TEXT = 12 };

/* Rounds up, so that the peer never gives up before the client does. */
void sl_rpc_timeout_format(uint64_t ns, char out[SL_RPC_TIMEOUT_TEXT]);

#endif
