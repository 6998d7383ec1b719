/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that ask for measurements without end: the driver is asked seldom, and everybody is answered. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "arbiter_world.h"
#include "base/clock.h"

#define PATIENCE_MS 10000 /* libsluice waits 2 s; a loaded machine is no fault */

static struct world world;

static int setup(void **state)
{
    (void)state;
    /* A driver that needs 10 ms to say who uses it, as real ones may. */
    assert_int_equal(
        setenv("SLUICE_SIM_FAULT", "nvmlDeviceGetComputeRunningProcesses_v3:0=10ms", 1), 0);
    world_begin(&world);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_end(&world);
    return 0;
}

static void join(const char *name, struct peer *ret)
{
    union sl_packet p;
    int fd = world_connect(&world);
    struct sl_msg_lease m = lease_ask(name, GIB);
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    (void)close(fd);
    assert_int_equal(peer_attach(p.created.attach_path, SL_NO_SLOT, -1, ret), 0);
}

/* Asks and waits for the answer, skipping what else the arbiter says. */
static void measure(int sock)
{
    union sl_packet p;
    struct sl_err err = SL_ERR_INIT;
    struct sl_msg_measure m = {.gpu = 0};
    sl_packet_init(&m.h, SL_MSG_MEASURE, sizeof(m));
    assert_int_equal(sl_packet_send(sock, &m.h, NULL, 0, &err), 0);
    do {
        if (sl_packet_wait(sock, PATIENCE_MS, &err) < 0 || sl_packet_recv(sock, &p, NULL, &err) < 0)
            fail_msg("no measurement: %s", err.msg);
    } while (p.h.type != SL_MSG_MEASURED);
}

/* Every answer needs a question to the driver after it was asked for: answers count questions. */
static void test_one_tenant_asks_seldom(void **state)
{
    (void)state;
    struct peer p;
    uint32_t answers = 0;
    join("greedy", &p);
    uint64_t begin = sl_now_ns(), end = begin + 3 * SL_NS_PER_S;
    while (sl_now_ns() < end) {
        measure(p.sock);
        answers++;
    }
    uint64_t seconds = (sl_now_ns() - begin) / SL_NS_PER_S;
    print_message("%u answers in %u s\n", answers, (unsigned)seconds);
    /* A question is worth half a second: those that the credit allows at once, two a second, the arbiter's own
     * audits, and one for the edges. */
    assert_in_range(answers, 4, 5 + 2 * (seconds + 1) + (seconds + 1) + 1);
    peer_close(&p);
}

/* Another tenant that has asked for nothing yet does not stand behind it. */
static void test_the_neighbour_is_answered(void **state)
{
    (void)state;
    struct peer greedy, neighbour;
    join("greedy2", &greedy);
    join("neighbour", &neighbour);
    struct sl_msg_measure m = {.gpu = 0};
    sl_packet_init(&m.h, SL_MSG_MEASURE, sizeof(m));
    for (int i = 0; i < 40; i++)
        assert_int_equal(sl_packet_send(greedy.sock, &m.h, NULL, 0, NULL), 0);
    for (int i = 0; i < 10; i++)
        measure(neighbour.sock);
    peer_close(&greedy);
    peer_close(&neighbour);
}

/* Who talks without end is not listened to without end: his words wait in his own socket. */
static void test_talk_is_rationed(void **state)
{
    (void)state;
    struct peer p;
    struct sl_msg_measure m = {.gpu = 0};
    uint32_t taken = 0;
    join("talker", &p);
    sl_packet_init(&m.h, SL_MSG_MEASURE, sizeof(m));
    struct pollfd out = {.fd = p.sock, .events = POLLOUT};
    for (uint64_t end = sl_now_ns() + 2 * SL_NS_PER_S; sl_now_ns() < end;)
        if (poll(&out, 1, 10) == 1)
            taken += send(p.sock, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
    print_message("%u packets in 2 s\n", taken);
    assert_in_range(taken, 64, 2000);
    measure(p.sock); /* and he is heard again */
    peer_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_tenant_asks_seldom),
        cmocka_unit_test(test_the_neighbour_is_answered),
        cmocka_unit_test(test_talk_is_rationed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
