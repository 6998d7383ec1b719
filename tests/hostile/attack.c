/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant that attacks the arbiter through its attach socket (SLUICE_ATTACH). It waits for a line of input, says
 * "attacking" once the attack is under way, and goes on until its input ends.
 *
 *   attack linger     passes TCP sockets that linger: whoever closes one last waits an hour
 *   attack silent     connects and says nothing, from several processes
 *   attack crowd      processes that attach and stay, and others that come and go
 *   attack maps       says HELLO and hangs up, with 60,000 mappings to its name
 *   attack measure    asks for measurements without end, from several processes
 *   attack connect    connects and leaves, as fast as it goes
 *   attack nonsense   random packets with random descriptors
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sluice/attach.h"

#define LINGER_S  3600
#define PROCESSES 8
#define MAPPINGS  60000

static struct sockaddr_un address = {.sun_family = AF_UNIX};

static struct sl_msg header(enum sl_msg_type type, size_t size)
{
    return (struct sl_msg){.magic = SL_MSG_MAGIC,
                           .version = SL_MSG_VERSION,
                           .type = (uint16_t)type,
                           .size = (uint32_t)size};
}

static int connect_now(int flags)
{
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | flags, 0);
    if (sock >= 0 && connect(sock, (struct sockaddr *)&address, sizeof(address)) != 0) {
        (void)close(sock);
        sock = -1;
    }
    return sock;
}

static void say_hello(int sock)
{
    struct sl_msg_hello m = {.h = header(SL_MSG_HELLO, sizeof(m)), .slot = SL_NO_SLOT};
    (void)send(sock, &m, sizeof(m), MSG_NOSIGNAL);
}

static void pass(int sock, const void *data, size_t size, const int *fds, size_t count)
{
    char control[CMSG_SPACE(sizeof(int) * 16)] = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
    if (count > 0) {
        mh.msg_control = control;
        mh.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * count);
    }
    (void)sendmsg(sock, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* One end full of unsent data; the other stays open in this process and is never read. */
static int lingering_socket(int listener, const struct sockaddr_in *at)
{
    static char junk[65536];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)at, sizeof(*at)) != 0 ||
        accept4(listener, NULL, NULL, SOCK_CLOEXEC) < 0)
        return -1;
    while (send(fd, junk, sizeof(junk), MSG_DONTWAIT) > 0)
        ;
    struct linger wait = {.l_onoff = 1, .l_linger = LINGER_S};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &wait, sizeof(wait));
    return fd;
}

/*
 * The arbiter must be the last to close it. So a child sends it behind a crowd of other connections that the arbiter
 * accepts first, and ends: a process that ends does not linger. Our own copy is closed before it sends: else ours could
 * be the last, and we would wait ourselves.
 */
static void linger_shot(int listener, const struct sockaddr_in *at, int shot)
{
    int closed[2], fd = lingering_socket(listener, at);
    if (pipe2(closed, O_CLOEXEC) != 0)
        exit(3);
    pid_t pid = fd >= 0 ? fork() : -1;
    if (pid == 0) {
        char c;
        (void)close(closed[1]);
        (void)!read(closed[0], &c, 1);
        struct sl_msg_hello m = {.h = header(SL_MSG_HELLO, sizeof(m)), .slot = SL_NO_SLOT};
        const int fds[6] = {fd, fd, fd, fd, fd, fd};
        for (int i = 0; i < 100; i++)
            (void)connect_now(SOCK_NONBLOCK);
        int sock = connect_now(SOCK_NONBLOCK);
        if (shot % 3 == 0)
            pass(sock, "garbage", 7, fds, 1);
        else
            pass(sock, &m, sizeof(m), fds, shot % 3 == 1 ? 1 : 6);
        _exit(0);
    }
    if (fd >= 0)
        (void)close(fd);
    (void)close(closed[0]);
    (void)close(closed[1]);
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
}

static void linger(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    int small = 4096, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    if (bind(listener, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(listener, 64) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &size) != 0)
        exit(3);
    for (int shot = 0;; shot++) {
        linger_shot(listener, &at, shot);
        if (shot == 5)
            (void)puts("attacking");
        if (shot > 200)
            (void)pause();
        usleep(5000);
    }
}

static void silent(void)
{
    for (;;) {
        int sock = connect_now(SOCK_NONBLOCK);
        if (sock < 0)
            usleep(1000); /* the queue is full, or no descriptor is left here: those held stay */
    }
}

static void crowd(void)
{
    for (int i = 0; i < 40; i++)
        if (fork() == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            say_hello(connect_now(0));
            (void)pause();
        }
    for (;;) {
        pid_t pid = fork();
        if (pid == 0) {
            say_hello(connect_now(0));
            _exit(0);
        }
        (void)waitpid(pid, NULL, 0);
    }
}

static void maps(void)
{
    for (int i = 0; i < MAPPINGS; i++)
        if (mmap(NULL, 4096, i & 1 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
            MAP_FAILED)
            break;
    for (;;) {
        int sock = connect_now(0);
        (void)shutdown(sock, SHUT_RD);
        say_hello(sock);
        usleep(200);
        (void)close(sock);
    }
}

static void measure(void)
{
    struct sl_msg_measure m = {.h = header(SL_MSG_MEASURE, sizeof(m))};
    char answer[4096];
    int sock = connect_now(0);
    say_hello(sock);
    for (;;) {
        if (send(sock, &m, sizeof(m), MSG_NOSIGNAL) < 0)
            usleep(1000);
        while (recv(sock, answer, sizeof(answer), MSG_DONTWAIT) > 0)
            ;
    }
}

static void connect_and_leave(void)
{
    for (;;)
        (void)close(connect_now(0));
}

static void nonsense(void)
{
    unsigned seed = (unsigned)getpid();
    const int fds[] = {STDIN_FILENO, memfd_create("sluice-ledger", 0),
                       socket(AF_UNIX, SOCK_STREAM, 0)};
    for (;;) {
        char bytes[1200];
        int sock = connect_now(0);
        for (int packet = rand_r(&seed) % 4; packet >= 0; packet--) {
            for (size_t i = 0; i < sizeof(bytes); i++)
                bytes[i] = (char)rand_r(&seed);
            size_t size = (size_t)rand_r(&seed) % sizeof(bytes);
            struct sl_msg h = header((enum sl_msg_type)(rand_r(&seed) % 20), size);
            memcpy(bytes, &h, sizeof(h));
            pass(sock, bytes, size, fds, (size_t)rand_r(&seed) % 4);
        }
        (void)close(sock);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
    int processes;
    bool says; /* by itself that it is under way */
} attacks[] = {
    {"linger", linger, 1, true},
    {"silent", silent, PROCESSES, false},
    {"crowd", crowd, 1, false},
    {"maps", maps, 1, false},
    {"measure", measure, PROCESSES, false},
    {"connect", connect_and_leave, 2, false},
    {"nonsense", nonsense, 2, false},
};

int main(int argc, char **argv)
{
    const char *path = getenv(SL_ATTACH_ENV);
    struct rlimit r;
    char c;
    if (argc != 2 || !path || strlen(path) >= sizeof(address.sun_path))
        return 2;
    memcpy(address.sun_path, path, strlen(path) + 1);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
        r.rlim_cur = r.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &r);
    }
    for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++) {
        if (strcmp(attacks[i].name, argv[1]) != 0)
            continue;
        (void)puts("waiting");
        if (read(STDIN_FILENO, &c, 1) != 1)
            return 0;
        (void)setpgid(0, 0);
        for (int k = 0; k < attacks[i].processes; k++)
            if (fork() == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                attacks[i].run();
                _exit(0);
            }
        if (!attacks[i].says)
            (void)puts("attacking");
        while (read(STDIN_FILENO, &c, 1) == 1)
            ;
        (void)kill(0, SIGKILL); /* our own group: every process of the attack */
    }
    return 2;
}
