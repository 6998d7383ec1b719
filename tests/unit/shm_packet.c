/* SPDX-License-Identifier: Apache-2.0 */
/* Packets: round trips with descriptors, and a peer that sends nonsense. */
#include "shm/packet.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cleanup.h"

static int pair[2];

static int open_pair(void **state)
{
    (void)state;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair);
}

static int close_pair(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            (void)close(pair[i]);
    return 0;
}

static int open_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d))
        n++;
    (void)closedir(d);
    return n;
}

static void every_message_has_a_size_and_fits(void **state)
{
    (void)state;
    for (int type = SL_MSG_HELLO; type <= SL_MSG_LAST; type++) {
        size_t size = sl_packet_size((enum sl_msg_type)type);
        assert_in_range(size, sizeof(struct sl_msg), sizeof(union sl_packet));
    }
    assert_int_equal(sl_packet_size((enum sl_msg_type)0), 0);
    assert_int_equal(sl_packet_size((enum sl_msg_type)(SL_MSG_LAST + 1)), 0);
    assert_int_equal(sl_packet_size((enum sl_msg_type)65535), 0);
}

static void every_message_travels(void **state)
{
    (void)state;
    for (int type = SL_MSG_HELLO; type <= SL_MSG_LAST; type++) {
        union sl_packet out, in;
        struct sl_err err = SL_ERR_INIT;
        memset(&out, 0xa5, sizeof(out));
        memset(&in, 0, sizeof(in));
        size_t size = sl_packet_size((enum sl_msg_type)type);
        sl_packet_init(&out.h, (enum sl_msg_type)type, size);
        assert_int_equal(sl_packet_send(pair[0], &out.h, NULL, 0, &err), 0);
        assert_int_equal(sl_packet_wait(pair[1], 1000, &err), 0);
        assert_int_equal(sl_packet_recv(pair[1], &in, NULL, &err), 0);
        assert_memory_equal(&in, &out, size);
    }
}

static void hello(struct sl_msg_hello *m)
{
    memset(m, 0, sizeof(*m));
    sl_packet_init(&m->h, SL_MSG_HELLO, sizeof(*m));
}

static void descriptors_travel_and_are_closed_on_exec(void **state)
{
    (void)state;
    struct sl_msg_hello m;
    union sl_packet in;
    struct sl_packet_fds fds = {.count = 0};
    struct sl_err err = SL_ERR_INIT;
    int sent[SL_PACKET_FDS];
    hello(&m);
    int before = open_fds();
    for (int i = 0; i < SL_PACKET_FDS; i++) {
        sent[i] = memfd_create("x", 0);
        assert_int_equal(ftruncate(sent[i], 100 + i), 0);
    }
    assert_int_equal(sl_packet_send(pair[0], &m.h, sent, SL_PACKET_FDS, &err), 0);
    assert_int_equal(sl_packet_recv(pair[1], &in, &fds, &err), 0);
    assert_int_equal(fds.count, SL_PACKET_FDS);
    for (int i = 0; i < SL_PACKET_FDS; i++) {
        struct stat st;
        assert_int_equal(fstat(fds.fd[i], &st), 0);
        assert_int_equal(st.st_size, 100 + i);
        assert_int_equal(fcntl(fds.fd[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    }
    sl_packet_fds_close(&fds);
    assert_int_equal(fds.count, 0);
    sl_packet_fds_close(&fds);
    for (int i = 0; i < SL_PACKET_FDS; i++)
        (void)close(sent[i]);
    assert_int_equal(open_fds(), before);
}

/* Sends raw bytes, with descriptors beside them, as no peer of ours would. */
static void send_raw(const void *data, size_t size, int fd, int fd_count)
{
    char control[CMSG_SPACE(sizeof(int) * 16)];
    memset(control, 0, sizeof(control));
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd_count > 0) {
        mh.msg_control = control;
        mh.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)fd_count);
        struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)fd_count);
        for (int i = 0; i < fd_count; i++)
            memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &fd, sizeof(int));
    }
    assert_int_equal(sendmsg(pair[0], &mh, MSG_NOSIGNAL), (ssize_t)size);
}

static void nonsense_is_refused_and_leaks_nothing(void **state)
{
    (void)state;
    struct sl_msg_hello good;
    hello(&good);
    struct {
        const char *what;
        size_t size;
        uint32_t magic, claimed;
        uint16_t version, type;
    } cases[] = {
        {"one byte", 1, SL_MSG_MAGIC, sizeof(good), SL_MSG_VERSION, SL_MSG_HELLO},
        {"half a header", sizeof(struct sl_msg) - 1, SL_MSG_MAGIC, sizeof(good), SL_MSG_VERSION,
         SL_MSG_HELLO},
        {"a header that promises more", sizeof(struct sl_msg), SL_MSG_MAGIC, sizeof(good),
         SL_MSG_VERSION, SL_MSG_HELLO},
        {"cut short", sizeof(good) - 1, SL_MSG_MAGIC, sizeof(good) - 1, SL_MSG_VERSION,
         SL_MSG_HELLO},
        {"too long", sizeof(good) + 1, SL_MSG_MAGIC, sizeof(good) + 1, SL_MSG_VERSION,
         SL_MSG_HELLO},
        {"wrong magic", sizeof(good), 1, sizeof(good), SL_MSG_VERSION, SL_MSG_HELLO},
        {"wrong size", sizeof(good), SL_MSG_MAGIC, 7, SL_MSG_VERSION, SL_MSG_HELLO},
        {"no type", sizeof(good), SL_MSG_MAGIC, sizeof(good), SL_MSG_VERSION, 0},
        {"unknown type", sizeof(good), SL_MSG_MAGIC, sizeof(good), SL_MSG_VERSION, 999},
        {"another type", sizeof(good), SL_MSG_MAGIC, sizeof(good), SL_MSG_VERSION, SL_MSG_WELCOME},
        {"another version", sizeof(good), SL_MSG_MAGIC, sizeof(good), 99, SL_MSG_HELLO},
        {"another version, of another size", sizeof(good) + 8, SL_MSG_MAGIC, sizeof(good) + 8, 99,
         SL_MSG_HELLO},
        {"larger than any", sizeof(union sl_packet) + 100, SL_MSG_MAGIC, sizeof(good),
         SL_MSG_VERSION, SL_MSG_HELLO},
    };
    int before = open_fds();
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        char raw[sizeof(union sl_packet) + 200] = {0};
        struct sl_msg h = {.magic = cases[i].magic,
                           .version = cases[i].version,
                           .type = cases[i].type,
                           .size = cases[i].claimed};
        memcpy(raw, &h, sizeof(h));
        send_raw(raw, cases[i].size, pair[0], 3);
        union sl_packet in;
        struct sl_packet_fds fds = {.count = -7};
        struct sl_err err = SL_ERR_INIT;
        int rc = sl_packet_recv(pair[1], &in, &fds, &err);
        int expected = cases[i].version == SL_MSG_VERSION ? -EPROTO : -EPROTONOSUPPORT;
        if (rc != expected || err.code != rc)
            fail_msg("%s: %d (%s)", cases[i].what, rc, err.msg);
        assert_int_equal(fds.count, -7); /* untouched on failure */
        if (cases[i].version == 99)
            assert_non_null(strstr(err.msg, "version 99"));
    }
    assert_int_equal(open_fds(), before);
}

static void too_many_descriptors_are_refused_and_closed(void **state)
{
    (void)state;
    struct sl_msg_hello m;
    union sl_packet in;
    struct sl_packet_fds fds = {.count = 0};
    hello(&m);
    int before = open_fds();
    send_raw(&m, sizeof(m), pair[0], 16);
    assert_int_equal(sl_packet_recv(pair[1], &in, &fds, NULL), -EPROTO);
    assert_int_equal(open_fds(), before);
}

/* A receiver that wants no descriptors touches none: the packet is looked at, refused and left there. */
static void unwanted_descriptors_stay_where_they_are(void **state)
{
    (void)state;
    struct sl_msg_hello m;
    union sl_packet in;
    struct sl_err err = SL_ERR_INIT;
    hello(&m);
    assert_int_equal(sl_packet_brings_fds(pair[1]), -EAGAIN);
    assert_int_equal(sl_packet_send(pair[0], &m.h, NULL, 0, &err), 0);
    assert_int_equal(sl_packet_brings_fds(pair[1]), 0);
    assert_int_equal(sl_packet_recv(pair[1], &in, NULL, &err), 0);
    int before = open_fds(), ends[2];
    assert_int_equal(pipe(ends), 0);
    send_raw(&m, sizeof(m), ends[1], 5);
    (void)close(ends[1]);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sl_packet_brings_fds(pair[1]), 1);
        assert_int_equal(sl_packet_recv(pair[1], &in, NULL, &err), -EPROTO);
        assert_non_null(strstr(err.msg, "descriptors"));
    }
    char byte;
    assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(read(ends[0], &byte, 1), -1); /* not closed: that would read as an end */
    assert_int_equal(errno, EAGAIN);
    (void)close(ends[0]);
    assert_int_equal(open_fds(), before);
}

static void hanging_up_closes_what_is_harmless(void **state)
{
    (void)state;
    struct sl_msg_hello m;
    hello(&m);
    for (int with = 0; with < 2; with++) {
        int s[2], before = open_fds();
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, s), 0);
        /* Empty packets first: they look like the end, and are not. */
        assert_int_equal(send(s[0], &m, 0, 0), 0);
        assert_int_equal(send(s[0], &m, sizeof(m), 0), (ssize_t)sizeof(m));
        assert_int_equal(send(s[0], &m, 0, 0), 0);
        int fd = s[0];
        if (with)
            assert_int_equal(sl_packet_send(s[0], &m.h, &fd, 1, NULL), 0);
        assert_int_equal(sl_packet_hang_up(s[1]), !with);
        assert_int_equal(send(s[0], &m, sizeof(m), MSG_NOSIGNAL), -1); /* either way it is over */
        if (with)
            (void)close(s[1]);
        (void)close(s[0]);
        assert_int_equal(open_fds(), before);
    }
}

static void silence_and_goodbye(void **state)
{
    (void)state;
    union sl_packet in;
    struct sl_err err = SL_ERR_INIT;
    struct sl_msg_hello m;
    hello(&m);
    assert_int_equal(sl_packet_recv(pair[1], &in, NULL, &err), -EAGAIN);
    assert_int_equal(sl_packet_wait(pair[1], 1, &err), -ETIMEDOUT);
    assert_non_null(strstr(err.msg, "did not answer"));
    (void)close(pair[0]);
    pair[0] = -1;
    assert_int_equal(sl_packet_wait(pair[1], 1000, &err), 0);
    assert_int_equal(sl_packet_recv(pair[1], &in, NULL, &err), -ECONNRESET);
    assert_int_equal(sl_packet_send(pair[1], &m.h, NULL, 0, &err), -EPIPE); /* and no SIGPIPE */
    assert_int_equal(sl_packet_recv(-1, &in, NULL, &err), -EBADF);
    assert_int_equal(sl_packet_wait(pair[1], 0, &err), 0);
}

static void a_full_queue_says_so(void **state)
{
    (void)state;
    struct sl_msg_hello m;
    struct sl_err err = SL_ERR_INIT;
    hello(&m);
    int rc = 0;
    for (int i = 0; i < 100000 && rc == 0; i++)
        rc = sl_packet_send(pair[0], &m.h, NULL, 0, &err);
    assert_int_equal(rc, -EAGAIN);
}

static void other_control_data_is_no_descriptor(void **state)
{
    (void)state;
    struct sl_msg_hello m;
    union sl_packet in;
    struct sl_packet_fds fds = {.count = -1};
    int on = 1;
    hello(&m);
    /* The kernel now puts the sender's credentials beside every packet. */
    assert_int_equal(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
    assert_int_equal(sl_packet_send(pair[0], &m.h, NULL, 0, NULL), 0);
    assert_int_equal(sl_packet_recv(pair[1], &in, &fds, NULL), 0);
    assert_int_equal(fds.count, 0);
}

static void no_descriptors_left_is_an_error(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    struct rlimit old, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int rc_connect = sl_packet_connect("nowhere", &err),
        rc_listen = sl_packet_listen("nowhere", 1, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(rc_connect, -EMFILE);
    assert_int_equal(rc_listen, -EMFILE);
}

static void interrupt(int sig)
{
    (void)sig;
}

/* A signal whose handler does not restart calls is no reason to give up. */
static void interrupted_calls_go_on(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    struct sl_msg_hello m;
    union sl_packet in;
    hello(&m);
    struct sigaction act = {.sa_handler = interrupt}, old;
    assert_int_equal(sigaction(SIGALRM, &act, &old), 0);
    struct itimerval often = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};

    int blocking[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, blocking), 0);
    pid_t pid = fork(); /* it answers after several of our signals; its own timer is off */
    if (pid == 0) {
        const struct timespec pause = {.tv_nsec = 50000000};
        (void)nanosleep(&pause, NULL);
        int rc = sl_packet_send(blocking[1], &m.h, NULL, 0, NULL);
        (void)nanosleep(&pause, NULL);
        _exit(rc < 0 || sl_packet_send(blocking[1], &m.h, NULL, 0, NULL) < 0);
    }
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    int rc_recv = sl_packet_recv(blocking[0], &in, NULL, &err);
    int rc_wait = sl_packet_wait(blocking[0], 10000, &err);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
    assert_int_equal(rc_recv, 0);
    assert_int_equal(rc_wait, 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(blocking[0]);
    (void)close(blocking[1]);
    assert_int_equal(sl_packet_send(-1, &m.h, NULL, 0, &err), -EBADF);
}

static void sockets_are_made_reached_and_replaced(void **state)
{
    (void)state;
    char dir[] = "shm_packet.XXXXXX", path[64], missing[64];
    struct sl_err err = SL_ERR_INIT;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/s", dir);
    (void)snprintf(missing, sizeof(missing), "%s/no/s", dir);

    assert_int_equal(sl_packet_connect(path, &err), -ENOENT);
    assert_non_null(strstr(err.msg, path));
    assert_int_equal(sl_packet_listen(missing, 5, &err), -ENOENT);
    int first = sl_packet_listen(path, 5, &err);
    assert_true(first >= 0);
    int client = sl_packet_connect(path, &err);
    assert_true(client >= 0);
    assert_int_equal(fcntl(client, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    (void)close(client);
    (void)close(first);
    /* What a killed arbiter left behind is in nobody's way. */
    assert_int_equal(sl_packet_connect(path, &err), -ECONNREFUSED);
    int second = sl_packet_listen(path, 5, &err);
    assert_true(second >= 0);
    (void)close(second);
    (void)unlink(path);

    assert_int_equal(mkdir(path, 0700), 0);
    assert_true(sl_packet_listen(path, 5, &err) < 0);
    (void)rmdir(path);
    (void)rmdir(dir);

    char longest[300];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(sl_packet_connect(longest, &err), -ENAMETOOLONG);
    assert_non_null(strstr(err.msg, "shorter directory"));
    assert_int_equal(sl_packet_listen("", 5, &err), -ENAMETOOLONG);
}

#define P(f) cmocka_unit_test_setup_teardown(f, open_pair, close_pair)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_has_a_size_and_fits),
        P(every_message_travels),
        P(descriptors_travel_and_are_closed_on_exec),
        P(nonsense_is_refused_and_leaks_nothing),
        P(too_many_descriptors_are_refused_and_closed),
        P(unwanted_descriptors_stay_where_they_are),
        P(hanging_up_closes_what_is_harmless),
        P(silence_and_goodbye),
        P(a_full_queue_says_so),
        P(other_control_data_is_no_descriptor),
        cmocka_unit_test(no_descriptors_left_is_an_error),
        cmocka_unit_test(interrupted_calls_go_on),
        cmocka_unit_test(sockets_are_made_reached_and_replaced),
    };
    return cmocka_run_group_tests_name("shm packet", tests, NULL, NULL);
}
