/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that a tenant passes to the arbiter. A TCP socket with SO_LINGER and unsent data is the
 * weapon: whoever closes it last waits in close(). The arbiter must answer all the same.
 */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "arbiter_world.h"
#include "shm/account.h"

#define LINGER_S  3600
#define ANSWER_MS 10000 /* far below LINGER_S, far above what a loaded machine needs */

static struct world world;
static int frozen;

static int setup(void **state)
{
    (void)state;
    frozen = 0;
    world_begin(&world);
    return 0;
}

/* An arbiter that was told to stop stops, whatever it has not been able to close. */
static int teardown(void **state)
{
    (void)state;
    int status, ms = 0;
    (void)kill(world.arbiter, SIGTERM);
    while (waitpid(world.arbiter, &status, WNOHANG) == 0 && ms++ < ANSWER_MS)
        usleep(1000);
    bool stopped = ms < ANSWER_MS && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (ms >= ANSWER_MS)
        world_kill(&world);
    char command[160];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", world.dir);
    return system(command) == 0 && stopped ? 0 : -1;
}

/* A connected socket full of unsent data: nobody reads at the other end, which stays open in *ret_end. */
static int lingering_socket(int *ret_end)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int small = 4096, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    *ret_end = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(*ret_end >= 0);
    (void)close(listener);
    char junk[65536] = {0};
    while (send(fd, junk, sizeof(junk), MSG_DONTWAIT) > 0)
        ;
    assert_int_equal(errno, EAGAIN);
    struct linger wait = {.l_onoff = 1, .l_linger = LINGER_S};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)), 0);
    return fd;
}

static int connect_to(const char *path)
{
    struct sl_err err = SL_ERR_INIT;
    int sock = sl_packet_connect(path, &err);
    if (sock < 0)
        fail_msg("%s", err.msg);
    return sock;
}

/* The arbiter stands still between the two. */
static void freeze(void)
{
    if (frozen++ == 0)
        world_stop_process(world.arbiter);
}

static void thaw(void)
{
    if (--frozen == 0)
        assert_int_equal(kill(world.arbiter, SIGCONT), 0);
}

/* `count` descriptors beside the bytes: the lingering one last, the others harmless. The arbiter stands
 * still until we have closed ours: the packet holds the only one that is left. */
static int pass(int sock, const void *data, size_t bytes, int count)
{
    int end, fd[253];
    char control[CMSG_SPACE(sizeof(fd))] = {0};
    for (int i = 0; i < count - 1; i++)
        fd[i] = STDIN_FILENO;
    fd[count - 1] = lingering_socket(&end);
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
    struct msghdr mh = {.msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = control,
                        .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
    memcpy(CMSG_DATA(c), fd, sizeof(int) * (size_t)count);
    freeze();
    assert_int_equal(sendmsg(sock, &mh, MSG_NOSIGNAL), (ssize_t)bytes);
    (void)close(fd[count - 1]);
    thaw();
    return end;
}

/* The arbiter's loop is alive: it answers a status, and takes a process in. */
static void assert_answers(const char *attach_path)
{
    struct sl_msg ask;
    union sl_packet p;
    struct sl_err err = SL_ERR_INIT;
    int fd = world_connect(&world);
    sl_packet_init(&ask, SL_MSG_STATUS, sizeof(ask));
    assert_int_equal(sl_packet_send(fd, &ask, NULL, 0, &err), 0);
    do {
        if (sl_packet_wait(fd, ANSWER_MS, &err) < 0 || sl_packet_recv(fd, &p, NULL, &err) < 0)
            fail_msg("no status: %s", err.msg);
    } while (p.h.type != SL_MSG_END);
    (void)close(fd);
    struct peer peer;
    assert_int_equal(peer_attach(attach_path, SL_NO_SLOT, -1, &peer), 0);
    peer_close(&peer);
}

static struct sl_msg_hello hello(void)
{
    struct sl_msg_hello m = {.slot = SL_NO_SLOT, .command = "evil"};
    sl_packet_init(&m.h, SL_MSG_HELLO, sizeof(m));
    return m;
}

/* Makes the tenant and its neighbour; the control connection keeps nothing alive, this process does. */
static void make_tenants(const char *name, char evil[256], char good[256])
{
    union sl_packet p;
    char neighbour[SL_NAME_MAX];
    int fd = world_connect(&world);
    struct sl_msg_lease m = lease_ask(name, GIB);
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    memcpy(evil, p.created.attach_path, 256);
    (void)snprintf(neighbour, sizeof(neighbour), "%s-neighbour", name);
    m = lease_ask(neighbour, GIB);
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    memcpy(good, p.created.attach_path, 256);
    (void)close(fd);
}

static void test_in_a_nonsense_packet(void **state)
{
    (void)state;
    char evil[256], good[256];
    make_tenants("nonsense", evil, good);
    int sock = connect_to(evil), end = pass(sock, "garbage", 7, 1);
    assert_answers(good);
    (void)close(sock);
    (void)close(end);
}

static void test_in_a_hello(void **state)
{
    (void)state;
    char evil[256], good[256];
    make_tenants("hello", evil, good);
    /* One that is looked at, one beyond what a packet may carry, and the most there can be. */
    const int counts[] = {1, 2, SL_PACKET_FDS + 1, 253};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct sl_msg_hello m = hello();
        int sock = connect_to(evil), end = pass(sock, &m, sizeof(m), counts[i]);
        assert_answers(good);
        (void)close(sock);
        (void)close(end);
    }
}

static void test_from_a_member(void **state)
{
    (void)state;
    char evil[256], good[256];
    struct peer peer;
    make_tenants("member", evil, good);
    assert_int_equal(peer_attach(evil, SL_NO_SLOT, -1, &peer), 0);
    struct sl_msg_measure m = {.gpu = 0};
    sl_packet_init(&m.h, SL_MSG_MEASURE, sizeof(m));
    int end = pass(peer.sock, &m, sizeof(m), 1);
    assert_answers(good);
    peer_close(&peer);
    (void)close(end);
}

/* Nobody receives it at all: it waits in the queue of a connection that is closed for another reason. */
static void test_left_in_the_queue(void **state)
{
    (void)state;
    char evil[256], good[256];
    make_tenants("queue", evil, good);
    int sock = connect_to(evil);
    freeze();
    assert_int_equal(send(sock, "garbage", 7, MSG_NOSIGNAL), 7);
    assert_int_equal(send(sock, "", 0, MSG_NOSIGNAL), 0); /* looks like the end, and is not */
    int end = pass(sock, "more", 4, 3);
    thaw();
    assert_answers(good);
    (void)close(sock);
    (void)close(end);
}

static void test_on_the_control_socket(void **state)
{
    (void)state;
    char evil[256], good[256];
    make_tenants("control", evil, good);
    struct sl_msg ask;
    sl_packet_init(&ask, SL_MSG_STATUS, sizeof(ask));
    int sock = world_connect(&world), end = pass(sock, &ask, sizeof(ask), 1);
    assert_answers(good);
    (void)close(sock);
    (void)close(end);
}

/* A tenant that is removed leaves connections behind that nobody has accepted or read. */
static void test_in_a_tenant_that_ends(void **state)
{
    (void)state;
    char evil[256], good[256];
    union sl_packet p;
    make_tenants("ends", evil, good);
    int fd = world_connect(&world);
    struct sl_msg_lease m = lease_ask("kept", GIB);
    m.flags = SL_LEASE_KEEP;
    m.gpu_count = 1;
    struct sl_msg status;
    sl_packet_init(&status, SL_MSG_STATUS, sizeof(status));
    for (enum sl_msg_type t = world_call(fd, &status, &p); t != SL_MSG_END;) {
        if (t == SL_MSG_GPU)
            memcpy(m.gpu[0], p.gpu.uuid, sizeof(m.gpu[0]));
        assert_int_equal(sl_packet_recv(fd, &p, NULL, NULL), 0);
        t = (enum sl_msg_type)p.h.type;
    }
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    /* More connections than the arbiter accepts at once, and the removal behind them. */
    int sock[200], last = 199;
    freeze();
    for (int i = 0; i <= last; i++)
        sock[i] = connect_to(p.created.attach_path);
    int end = pass(sock[last], "x", 1, 1);
    sl_packet_init(&m.h, SL_MSG_REMOVE, sizeof(m));
    assert_int_equal(sl_packet_send(fd, &m.h, NULL, 0, NULL), 0);
    thaw();
    assert_answers(good);
    for (int i = 0; i <= last; i++)
        (void)close(sock[i]);
    (void)close(end);
    (void)close(fd);
}

/* An honest process that brings its ledger after a restart is taken in, beside one that brings poison. */
static void test_ledger_comes_back(void **state)
{
    (void)state;
    char evil[256], good[256];
    struct peer peer, again;
    make_tenants("back", evil, good);
    assert_int_equal(peer_attach(evil, SL_NO_SLOT, -1, &peer), 0);
    assert_int_equal(sl_account_reserve(peer.ledger.page, peer.slot, 0, 9, UINT64_MAX), 0);
    world_kill(&world);
    world_start(&world);
    struct sl_msg_hello m = hello();
    int sock = connect_to(good), end = pass(sock, &m, sizeof(m), 1);
    assert_int_equal(peer_attach(evil, peer.slot, peer.ledger.fd, &again), 0);
    assert_int_equal(again.slot, peer.slot);
    assert_int_equal(world_used(&world, "back", NULL), 9 * SL_UNIT_BYTES);
    peer_close(&again);
    peer_close(&peer);
    (void)close(sock);
    (void)close(end);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_in_a_nonsense_packet),  CASE(test_in_a_hello),
        CASE(test_from_a_member),         CASE(test_left_in_the_queue),
        CASE(test_on_the_control_socket), CASE(test_in_a_tenant_that_ends),
        CASE(test_ledger_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
