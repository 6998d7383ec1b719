/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks an arbiter for its status again and again, as `sluice status` does, until its input ends. Each answer is a line:
 * how long it took (s), the connection included, and how long the arbiter and this process stood in the queue for a
 * processor meanwhile (s). "refused WHY" where there was none.
 *
 *   asker DIRECTORY      of the arbiter
 *
 * A process of its own for each question would mostly measure how long this machine takes to start one.
 */
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "shm/packet.h"

#define PAUSE_MS   50
#define PATIENCE_S 30

/* How long a process's first thread has waited for a processor while it could have run; 0 if the kernel does not tell. */
static uint64_t queued_ns(pid_t pid)
{
    char name[64];
    unsigned long long ran = 0, queued = 0;
    (void)snprintf(name, sizeof(name), "/proc/%d/task/%d/schedstat", pid, pid);
    FILE *f = fopen(name, "re");
    if (f && fscanf(f, "%llu %llu", &ran, &queued) != 2)
        queued = 0;
    if (f)
        (void)fclose(f);
    return queued;
}

/* Whose socket this is. */
static pid_t arbiter_of(const char *path)
{
    struct ucred who = {0};
    socklen_t size = sizeof(who);
    SL_CLEANUP(close) int fd = sl_packet_connect(path, NULL);
    return fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 ? who.pid : 0;
}

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
    pid_t arbiter = arbiter_of(path);
    while (argc == 2 && poll(&input, 1, PAUSE_MS) == 0) {
        struct sl_err err = SL_ERR_INIT;
        uint64_t queued = queued_ns(arbiter) + queued_ns(getpid()), begin = sl_now_ns();
        if (ask(path, &err) < 0)
            (void)printf("refused %s\n", err.msg);
        else
            (void)printf("%.4f %.4f\n", (double)(sl_now_ns() - begin) / 1e9,
                         (double)(queued_ns(arbiter) + queued_ns(getpid()) - queued) / 1e9);
    }
    return 0;
}
