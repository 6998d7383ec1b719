/* SPDX-License-Identifier: Apache-2.0 */
/* A tenant that connects too often, and to say nothing: its neighbours and `status` must not notice. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "arbiter_world.h"

#define LIMIT     512 /* descriptors of the arbiter */
#define FLOOD     2000
#define CROWD     600
#define ANSWER_MS 10000

static struct world world;
static char evil[256], good[256];

static void limit_arbiter(rlim_t limit)
{
    struct rlimit r;
    assert_int_equal(prlimit(world.arbiter, RLIMIT_NOFILE, NULL, &r), 0);
    r.rlim_cur = limit;
    assert_int_equal(prlimit(world.arbiter, RLIMIT_NOFILE, &r, NULL), 0);
}

static int setup(void **state)
{
    (void)state;
    struct rlimit r;
    union sl_packet p;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
    r.rlim_cur = r.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
    world_begin(&world);
    limit_arbiter(LIMIT);
    int fd = world_connect(&world);
    struct sl_msg_lease m = lease_ask("evil", GIB);
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    memcpy(evil, p.created.attach_path, sizeof(evil));
    m = lease_ask("good", GIB);
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    memcpy(good, p.created.attach_path, sizeof(good));
    (void)close(fd);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_end(&world);
    return 0;
}

/* In time for a status and a process of the neighbour; each gets an answer of the arbiter. */
static void assert_served(void)
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
        assert_int_not_equal(p.h.type, SL_MSG_ERROR);
    } while (p.h.type != SL_MSG_END);
    (void)close(fd);
    int sock = sl_packet_connect(good, &err);
    struct sl_msg_hello m = {.slot = SL_NO_SLOT};
    sl_packet_init(&m.h, SL_MSG_HELLO, sizeof(m));
    if (sock < 0 || sl_packet_send(sock, &m.h, NULL, 0, &err) < 0 ||
        sl_packet_wait(sock, ANSWER_MS, &err) < 0 ||
        sl_packet_recv(sock, &p, &(struct sl_packet_fds){0}, &err) < 0)
        fail_msg("the neighbour's process is not taken in: %s", err.msg);
    assert_int_equal(p.h.type, SL_MSG_WELCOME);
    (void)close(sock);
}

static int connect_quietly(void)
{
    int sock = sl_packet_connect(evil, NULL);
    return sock;
}

static void test_silent_connections(void **state)
{
    (void)state;
    static int sock[FLOOD];
    for (int i = 0; i < FLOOD; i++)
        sock[i] = connect_quietly();
    assert_served();
    /* Of one process only a few stay, and those not for ever: the arbiter hangs up on all. */
    struct sl_err err = SL_ERR_INIT;
    for (int i = 0; i < FLOOD; i++)
        if (sock[i] >= 0)
            EVENTUALLY(sl_packet_wait(sock[i], 0, &err) == 0);
    assert_served();
    for (int i = 0; i < FLOOD; i++)
        if (sock[i] >= 0)
            (void)close(sock[i]);
}

/* One connection each from many processes, with HELLO or without; each lives until its pipe closes. */
static int start_crowd(int count, bool hello, pid_t *pids)
{
    int end[2], ready[2];
    char byte;
    assert_int_equal(pipe(end), 0);
    assert_int_equal(pipe(ready), 0);
    for (int i = 0; i < count; i++) {
        pids[i] = fork();
        if (pids[i] != 0)
            continue;
        (void)close(end[1]);
        struct peer p;
        if (hello)
            (void)peer_attach(evil, SL_NO_SLOT, -1, &p);
        else
            (void)connect_quietly();
        if (write(ready[1], "x", 1) == 1)
            (void)!read(end[0], &byte, 1);
        _exit(0);
    }
    (void)close(end[0]);
    (void)close(ready[1]);
    for (int i = 0; i < count; i++)
        assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    return end[1];
}

static void end_crowd(int count, int pipe_end, pid_t *pids)
{
    (void)close(pipe_end);
    for (int i = 0; i < count; i++)
        assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
}

static void test_silent_crowd(void **state)
{
    (void)state;
    static pid_t pids[CROWD];
    int end = start_crowd(CROWD, false, pids);
    assert_served();
    end_crowd(CROWD, end, pids);
    assert_served();
}

static uint32_t processes_of_evil(void)
{
    uint32_t processes = 0;
    (void)world_used(&world, "evil", &processes);
    return processes;
}

/* Real members, more than there are descriptors for: those beyond its part are refused, not the neighbour. */
static void test_crowd_of_members(void **state)
{
    (void)state;
    static pid_t pids[CROWD];
    int end = start_crowd(CROWD, true, pids);
    assert_in_range(processes_of_evil(), 20, LIMIT / 4);
    assert_served();
    struct peer p;
    assert_int_equal(peer_attach(evil, SL_NO_SLOT, -1, &p), -EMFILE);
    end_crowd(CROWD, end, pids);
    EVENTUALLY(processes_of_evil() == 0);
    assert_served();
    assert_int_equal(peer_attach(evil, SL_NO_SLOT, -1, &p), 0);
    peer_close(&p);
}

static double cpu_seconds(void)
{
    clockid_t id;
    struct timespec ts;
    assert_int_equal(clock_getcpuclockid(world.arbiter, &id), 0);
    assert_int_equal(clock_gettime(id, &ts), 0);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Nothing can be accepted at all: the arbiter waits instead of trying without pause, and goes on after. */
static void test_no_descriptors_at_all(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    limit_arbiter(4);
    int control = world_connect(&world), attach = connect_quietly();
    double before = cpu_seconds();
    assert_int_equal(sl_packet_wait(attach, 2000, &err), -ETIMEDOUT);
    assert_true(cpu_seconds() - before < 0.5);
    limit_arbiter(LIMIT);
    assert_served();
    (void)close(control);
    (void)close(attach);
}

/* Who asks and does not read gets no more answers than his socket holds. */
static void test_unread_answers(void **state)
{
    (void)state;
    struct sl_msg ask;
    int fd = world_connect(&world);
    sl_packet_init(&ask, SL_MSG_STATUS, sizeof(ask));
    int sent = 0;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    while (sent < 20000 && poll(&p, 1, 2000) == 1)
        sent += send(fd, &ask, sizeof(ask), MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
    assert_true(sent < 20000); /* the arbiter does not take them any more */
    assert_served();
    (void)close(fd);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_silent_connections),    CASE(test_silent_crowd),   CASE(test_crowd_of_members),
        CASE(test_no_descriptors_at_all), CASE(test_unread_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
