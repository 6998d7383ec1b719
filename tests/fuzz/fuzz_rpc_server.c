/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes into a server: whatever they are, it goes on serving, every call it began has ended when
 * the connection has, and nothing is left open. The first byte says whether a proper preface goes
 * ahead (most inputs would not get past it otherwise), and how large the pieces are. */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../rpc/echo.h"
#include "fuzz.h"

static struct sl_loop *loop;
static struct sl_rpc_server *server;
static struct echo echo;
static uint64_t now_ns = 1;

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

static void start(void)
{
    /* Small limits are reached by small inputs. */
    struct sl_rpc_limits limits = {.max_message_bytes = 1000,
                                   .max_queue_bytes = 2000,
                                   .max_conn_bytes = 10000,
                                   .max_streams = 8,
                                   .max_conns = 2};
    FUZZ_CHECK(sl_loop_create(clock_now, &loop, NULL) == 0);
    FUZZ_CHECK(sl_rpc_server_create(loop, &limits, &server, NULL) == 0);
    FUZZ_CHECK(echo_install(server, &echo, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    int pair[2];
    if (!loop)
        start();
    if (size < 1)
        return 0;
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    FUZZ_CHECK(sl_rpc_server_adopt(server, pair[0], NULL) == 0);
    if (data[0] & 1)
        FUZZ_CHECK(send(pair[1], preface, sizeof(preface), MSG_NOSIGNAL) ==
                   (ssize_t)sizeof(preface));
    size_t piece = data[0] & 2 ? (size_t)data[0] + 1 : size;
    for (size_t at = 1; at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        if (send(pair[1], data + at, n, MSG_NOSIGNAL) != (ssize_t)n) {
            FUZZ_CHECK(errno == EPIPE || errno == ECONNRESET); /* it hung up on us, as it may */
            break;
        }
        settle();
        if (data[0] & 4) { /* a peer that reads */
            char in[65536];
            ssize_t ignored = recv(pair[1], in, sizeof(in), 0);
            (void)ignored;
        }
    }
    now_ns += (uint64_t)data[0] << 30; /* deadlines pass, or not */
    settle();
    (void)close(pair[1]);
    settle();
    FUZZ_CHECK(sl_rpc_server_conns(server) == 0);
    FUZZ_CHECK(echo.open == 0);
    return 0;
}
