/* SPDX-License-Identifier: Apache-2.0 */
/* A service for tests: echoes, streams, stays silent, fails, and counts how calls end. */
#ifndef SLUICE_TESTS_RPC_ECHO_H
#define SLUICE_TESTS_RPC_ECHO_H

#include "rpc/server.h"

#define ECHO_UNARY  "/test.Echo/Unary"  /* the request */
#define ECHO_STREAM "/test.Echo/Stream" /* request: count, size (big endian, 4 bytes each) */
#define ECHO_NEVER  "/test.Echo/Never"  /* no answer */
#define ECHO_HELLO  "/test.Echo/Hello"  /* one message, then silence; ends when the server drains */
#define ECHO_FAIL   "/test.Echo/Fail"   /* request: status code (1 byte), text */
#define ECHO_NONE   "/test.Echo/None"   /* OK without a message */
#define ECHO_STATE  "/test.Echo/State"  /* "cancelled N deadline N open N most N" */

struct echo {
    unsigned ended[17]; /* by status code */
    unsigned open;      /* watched calls under way */
    size_t most_queued; /* the longest queue a stream has seen */
    unsigned refused;   /* sends answered with -EAGAIN */
};

int echo_install(struct sl_rpc_server *server, struct echo *echo, struct sl_err *err) SL_MUST_CHECK;

#endif
