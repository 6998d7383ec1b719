/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach protocol|cuinit N ROUNDS: N processes start at the same moment and each times its own
 * attach: as the protocol goes (connect, hello, welcome with the pages), or the first cuInit.
 * Runs inside `sluice run`, which says where the tenant's socket is.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "shm/packet.h"

#define MAX_PROCESSES 4096

static struct {
    double ms[MAX_PROCESSES];
    bool ok[MAX_PROCESSES];
} *shared;

/* Holds the membership until `hold` closes, so that all of them are members at once. */
static bool attach_protocol(double *ret_ms, int *ret_fd)
{
    struct sl_err err = SL_ERR_INIT;
    const char *path = getenv(SL_ATTACH_ENV);
    union sl_packet packet;
    struct sl_packet_fds fds = {.count = 0};
    struct sl_msg_hello hello = {
        .slot = SL_NO_SLOT, .own_pid = (uint32_t)getpid(), .command = "bench"};
    sl_packet_init(&hello.h, SL_MSG_HELLO, sizeof(hello));
    uint64_t start = sl_now_ns();
    int fd = sl_packet_connect(path ? path : SL_ATTACH_DEFAULT, &err);
    int rc = fd < 0 ? fd : sl_packet_send(fd, &hello.h, NULL, 0, &err);
    if (rc == 0)
        rc = sl_packet_wait(fd, 20000, &err);
    if (rc == 0)
        rc = sl_packet_recv(fd, &packet, &fds, &err);
    *ret_ms = (double)(sl_now_ns() - start) / 1e6;
    *ret_fd = fd;
    bool ok = rc == 0 && packet.h.type == SL_MSG_WELCOME && fds.count == 3;
    sl_packet_fds_close(&fds);
    if (!ok)
        (void)fprintf(stderr, "attach: %s\n", rc < 0 ? err.msg : "no welcome");
    return ok;
}

static bool attach_cuinit(double *ret_ms)
{
    int (*init)(unsigned);
    uint64_t start = sl_now_ns();
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&init = lib ? dlsym(lib, "cuInit") : NULL;
    int r = init ? init(0) : -1;
    *ret_ms = (double)(sl_now_ns() - start) / 1e6;
    if (r != 0)
        (void)fprintf(stderr, "attach: cuInit: %d\n", r);
    return r == 0;
}

static void child(unsigned i, bool protocol, const int *ready, const int *gate, const int *hold)
{
    char byte = 0;
    int fd = -1;
    (void)close(gate[1]);
    (void)close(hold[1]);
    if (write(ready[1], &byte, 1) != 1)
        _exit(1);
    if (read(gate[0], &byte, 1) < 0) /* end of file when all are to start */
        _exit(1);
    shared->ok[i] = protocol ? attach_protocol(&shared->ms[i], &fd) : attach_cuinit(&shared->ms[i]);
    if (write(ready[1], &byte, 1) != 1)
        _exit(1);
    if (read(hold[0], &byte, 1) < 0)
        _exit(1);
    _exit(shared->ok[i] ? 0 : 1);
}

static void read_all(int fd, unsigned n)
{
    char buf[256];
    while (n > 0) {
        ssize_t got = read(fd, buf, n < sizeof(buf) ? n : sizeof(buf));
        if (got <= 0) {
            (void)fprintf(stderr, "attach: a process is missing\n");
            exit(1);
        }
        n -= (unsigned)got;
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int round_of(unsigned n, bool protocol, double *ret_p99)
{
    int ready[2], gate[2], hold[2], failed = 0;
    if (pipe(ready) < 0 || pipe(gate) < 0 || pipe(hold) < 0) {
        perror("attach: pipe");
        return 1;
    }
    (void)fflush(stdout);
    for (unsigned i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid < 0) {
            perror("attach: fork");
            return 1;
        }
        if (pid == 0)
            child(i, protocol, ready, gate, hold);
    }
    (void)close(ready[1]);
    read_all(ready[0], n);
    (void)close(gate[1]);
    read_all(ready[0], n);
    (void)close(hold[1]);
    for (unsigned i = 0; i < n; i++) {
        int status;
        if (wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
            failed = 1;
    }
    (void)close(ready[0]);
    (void)close(gate[0]);
    (void)close(hold[0]);
    qsort(shared->ms, n, sizeof(double), by_value);
    *ret_p99 = shared->ms[(n * 99 + 99) / 100 - 1];
    (void)printf("%.3f %.3f %.3f\n", shared->ms[(n - 1) / 2], *ret_p99, shared->ms[n - 1]);
    return failed;
}

int main(int argc, char **argv)
{
    unsigned n = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    unsigned rounds = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 1;
    double p99;
    if (n < 1 || n > MAX_PROCESSES) {
        (void)fprintf(stderr, "usage: attach protocol|cuinit N [ROUNDS]\n");
        return 2;
    }
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    for (unsigned r = 0; r < rounds; r++)
        if (round_of(n, strcmp(argv[1], "protocol") == 0, &p99) != 0)
            return 1;
    return 0;
}
