/* SPDX-License-Identifier: Apache-2.0 */
/* A loop with an echo server and a client in it, and calls that record their results. */
#ifndef SLUICE_TESTS_RPC_WORLD_H
#define SLUICE_TESTS_RPC_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "echo.h"
#include "rpc/client.h"

struct world {
    struct sl_loop *loop;
    struct sl_rpc_server *server;
    struct sl_rpc_client *client;
    struct echo echo;
    unsigned closed; /* how often the client's connection ended */
    struct sl_err why;
};

/* The result of a call. */
struct result {
    struct sl_rpc_call *call;
    unsigned messages, done;
    size_t bytes, last_size;
    uint32_t next_number; /* of a stream's messages, which must come in order */
    enum sl_rpc_code code;
    char text[600], last[64];
};

/* The clock of tests that set the time themselves. */
extern uint64_t world_now_ns;
uint64_t world_clock(void);

void world_open(struct world *w, const struct sl_rpc_limits *server,
                const struct sl_rpc_limits *client, uint64_t (*now_ns)(void));
void world_close(struct world *w);
/* Another client of the same server. */
struct sl_rpc_client *world_client(struct world *w, const struct sl_rpc_limits *limits,
                                   const char *authority);
/* A socket connected to the server, for a peer that is no client of ours. */
int world_raw(struct world *w);

void world_step(struct world *w, int timeout_ms);
/* Steps until there is nothing more to do at once. */
void world_settle(struct world *w);
/* Steps until *flag is at least n; fails after ten seconds without progress. */
void world_until(struct world *w, const unsigned *flag, unsigned n);

extern const struct sl_rpc_call_ops world_unary, world_stream;
void world_start(struct sl_rpc_client *client, const char *path, const void *msg, size_t size,
                 uint64_t timeout_ns, const struct sl_rpc_call_ops *ops, struct result *r);
/* A unary call to its end. */
enum sl_rpc_code world_call(struct world *w, const char *path, const void *msg, size_t size,
                            struct result *r);
void world_stream_request(uint8_t request[8], uint32_t count, uint32_t size);

#endif
