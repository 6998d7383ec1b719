/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant with bad intentions, root in its container: attaches as libsluice does, then tries to change what
 * it was given and to reach what it was not. Prints a line for each attempt that was possible ("LET …"), and
 * one with how many were made. Arguments: sockets that it must not be able to use.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/packet.h"
#include "sluice/pages.h"

static unsigned attempts;

static void attempt(bool possible, const char *what)
{
    attempts++;
    if (possible)
        printf("LET %s\n", what);
}

static void attack_page(int fd)
{
    char path[64];
    size_t size = sizeof(struct sl_lease_page);
    uint64_t much = UINT64_MAX;
    void *ro = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (ro == MAP_FAILED) {
        (void)fprintf(stderr, "intruder: the lease cannot be read: %s\n", strerror(errno));
        exit(1);
    }
    attempt(mprotect(ro, size, PROT_READ | PROT_WRITE) == 0, "mprotect of the lease page");
    attempt(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED,
            "a writable mapping of the lease page");
    attempt(pwrite(fd, &much, sizeof(much), 64) > 0, "a write to the lease page");
    attempt(ftruncate(fd, 0) == 0, "truncating the lease page");
    attempt(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0,
            "a hole in the lease page");
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR | O_CLOEXEC);
    attempt(again >= 0 && pwrite(again, &much, sizeof(much), 64) > 0,
            "a write to the lease page opened anew");
    attempt(again >= 0 &&
                mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) != MAP_FAILED,
            "a writable mapping of the lease page opened anew");
    int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    attempt(mem >= 0 && pwrite(mem, &much, sizeof(much), (off_t)(uintptr_t)ro + 64) > 0 &&
                memcmp((char *)ro + 64, &much, sizeof(much)) == 0 &&
                /* A private copy of our own is nobody's limit: is it in the file? */
                pread(fd, &much, sizeof(much), 64) > 0 && much == UINT64_MAX,
            "a write to the lease page through /proc/self/mem");
}

/* Orders of the control socket, at the tenant's own. */
static void attack_attach(const char *path)
{
    static const enum sl_msg_type orders[] = {SL_MSG_STATUS, SL_MSG_SET, SL_MSG_CREATE,
                                              SL_MSG_REMOVE};
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        struct sl_err err = SL_ERR_INIT;
        union sl_packet p;
        struct sl_msg_lease m = {.fields = SL_FIELD_MEMORY, .memory_percent = 100};
        char what[64];
        int sock = sl_packet_connect(path, &err);
        if (sock < 0)
            continue;
        sl_packet_init(&m.h, orders[i], sl_packet_size(orders[i]));
        int rc = sl_packet_send(sock, &m.h, NULL, 0, &err);
        if (rc == 0)
            rc = sl_packet_wait(sock, 1000, &err);
        if (rc == 0)
            rc = sl_packet_recv(sock, &p, NULL, &err);
        (void)snprintf(what, sizeof(what), "order %d at its own socket", (int)orders[i]);
        attempt(rc == 0 && p.h.type != SL_MSG_ERROR, what);
        (void)close(sock);
    }
}

int main(int argc, char **argv)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_msg_hello hello = {.slot = SL_NO_SLOT, .own_pid = (uint32_t)getpid()};
    struct sl_packet_fds fds = {.count = 0};
    union sl_packet answer;
    int sock = sl_packet_connect(SL_ATTACH_DEFAULT, &err);
    sl_packet_init(&hello.h, SL_MSG_HELLO, sizeof(hello));
    if (sock < 0 || sl_packet_send(sock, &hello.h, NULL, 0, &err) < 0 ||
        sl_packet_wait(sock, 5000, &err) < 0 || sl_packet_recv(sock, &answer, &fds, &err) < 0 ||
        answer.h.type != SL_MSG_WELCOME || fds.count < 1) {
        (void)fprintf(stderr, "intruder: not attached: %s\n", err.msg);
        return 1;
    }
    attack_page(fds.fd[0]);
    attack_attach(SL_ATTACH_DEFAULT);
    for (int i = 1; i < argc; i++) {
        char what[300];
        (void)snprintf(what, sizeof(what), "a connection to %s", argv[i]);
        attempt(sl_packet_connect(argv[i], &err) >= 0, what);
    }
    printf("%u attempts\n", attempts);
    return 0;
}
