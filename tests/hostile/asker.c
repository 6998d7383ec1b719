/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks an arbiter for its status again and again, as `sluice status` does, until its input ends. Each answer is a line:
 * how long it took (s), the connection included. "refused WHY" where there was none.
 *
 *   asker DIRECTORY      of the arbiter
 *
 * A process of its own for each question would mostly measure how long this machine takes to start one.
 */
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "shm/packet.h"

#define PAUSE_MS   50
#define PATIENCE_S 30

static int ask(const char *path, struct sl_err *err)
{
    struct sl_msg m;
    union sl_packet p;
    SL_CLEANUP(close) int fd = sl_packet_connect(path, err);
    sl_packet_init(&m, SL_MSG_STATUS, sizeof(m));
    int rc = fd < 0 ? fd : sl_packet_send(fd, &m, NULL, 0, err);
    do {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        if (rc == 0 && poll(&one, 1, PATIENCE_S * 1000) != 1)
            rc = sl_err_set(err, -1, "nothing for %d s", PATIENCE_S);
        if (rc == 0)
            rc = sl_packet_recv(fd, &p, NULL, err);
    } while (rc == 0 && p.h.type != SL_MSG_END);
    return rc;
}

int main(int argc, char **argv)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/%s", argc == 2 ? argv[1] : ".", SL_CONTROL_SOCKET);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    while (argc == 2 && poll(&input, 1, PAUSE_MS) == 0) {
        struct sl_err err = SL_ERR_INIT;
        uint64_t begin = sl_now_ns();
        if (ask(path, &err) < 0)
            (void)printf("refused %s\n", err.msg);
        else
            (void)printf("%.4f\n", (double)(sl_now_ns() - begin) / 1e9);
    }
    return 0;
}
