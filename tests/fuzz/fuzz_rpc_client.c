/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes from a server to our client with three calls under way: each of them ends exactly once,
 * at the latest with the connection. The first byte chooses the size of the pieces. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "rpc/client.h"

static struct sl_loop *loop;
static uint64_t now_ns = 1;
static unsigned done[3], closed;

static uint64_t clock_now(void)
{
    return now_ns;
}

static void settle(void)
{
    struct pollfd p = {.fd = sl_loop_fd(loop), .events = POLLIN};
    int steps = 0;
    do {
        FUZZ_CHECK(sl_loop_step(loop, 0, NULL) == 0);
        FUZZ_CHECK(++steps < 10000);
    } while (poll(&p, 1, 0) == 1);
}

static void on_message(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)call;
    (void)msg;
    FUZZ_CHECK(size <= 1000);
    FUZZ_CHECK(*(unsigned *)data == 0);
}

static void on_done(struct sl_rpc_call *call, enum sl_rpc_code code, const char *text, void *data)
{
    (void)call;
    FUZZ_CHECK((unsigned)code <= SL_RPC_UNAUTHENTICATED && text);
    ++*(unsigned *)data;
}

static void on_closed(struct sl_rpc_client *client, const struct sl_err *why, void *data)
{
    (void)client;
    (void)data;
    FUZZ_CHECK(why->code < 0 && why->msg[0]);
    closed++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct sl_rpc_call_ops unary = {
        .message = on_message, .done = on_done, .unary = true};
    static const struct sl_rpc_call_ops stream = {.message = on_message, .done = on_done};
    struct sl_rpc_client_options options = {.limits.max_message_bytes = 1000, .closed = on_closed};
    struct sl_rpc_client *client;
    int pair[2];
    if (size < 1)
        return 0;
    if (!loop)
        FUZZ_CHECK(sl_loop_create(clock_now, &loop, NULL) == 0);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    FUZZ_CHECK(sl_rpc_client_adopt(loop, pair[0], &options, &client, NULL) == 0);
    memset(done, 0, sizeof(done));
    closed = 0;
    for (int i = 0; i < 3; i++) /* streams 1, 3, 5 */
        FUZZ_CHECK(sl_rpc_client_call(client, "/a/B", "x", 1,
                                      i == 2 ? 1000000000 : SL_RPC_NO_TIMEOUT, i ? &stream : &unary,
                                      &done[i], NULL, NULL) == 0);
    settle();
    size_t piece = data[0] & 2 ? (size_t)data[0] + 1 : size;
    for (size_t at = 1; at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        if (send(pair[1], data + at, n, MSG_NOSIGNAL) != (ssize_t)n) {
            FUZZ_CHECK(errno == EPIPE || errno == ECONNRESET);
            break;
        }
        settle();
    }
    now_ns += (uint64_t)data[0] << 25;
    settle();
    if (data[0] & 1) {
        (void)close(pair[1]);
        settle();
        FUZZ_CHECK(closed == 1 && !sl_rpc_client_usable(client));
        sl_rpc_client_destroy(client);
    } else {
        sl_rpc_client_destroy(client);
        (void)close(pair[1]);
    }
    for (int i = 0; i < 3; i++)
        FUZZ_CHECK(done[i] == 1);
    return 0;
}
