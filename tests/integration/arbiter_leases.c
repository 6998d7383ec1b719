/* SPDX-License-Identifier: Apache-2.0 */
/* Leases over the control socket: what is granted, what is refused and how, what survives. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "arbiter/arbiter.h"
#include "arbiter/client.h"
#include "arbiter_world.h"
#include "shm/account.h"

static struct world world;

static int setup(void **state)
{
    (void)state;
    world_begin(&world);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_end(&world);
    return 0;
}

static void expect_refusal(const struct sl_msg_lease *ask, const char *part_of_text)
{
    union sl_packet p;
    int fd = world_connect(&world);
    enum sl_msg_type t = world_call(fd, &ask->h, &p);
    (void)close(fd);
    assert_int_equal(t, SL_MSG_ERROR);
    assert_true(p.text.code < 0);
    if (!strstr(p.text.text, part_of_text))
        fail_msg("\"%s\" does not say \"%s\"", p.text.text, part_of_text);
}

static void test_grants(void **state)
{
    (void)state;
    union sl_packet p;
    int fd = world_connect(&world);
    struct sl_msg_lease m = lease_ask("alpha", 10 * GIB);
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    assert_string_equal(p.created.name, "alpha");
    assert_int_equal(p.created.memory_limit_bytes[0], 10 * GIB);

    struct peer peer;
    assert_int_equal(peer_attach(p.created.attach_path, SL_NO_SLOT, -1, &peer), 0);
    assert_int_equal(atomic_load(&peer.lease.page->gpu[0].memory_limit_bytes), 10 * GIB);
    assert_int_equal(sl_account_reserve(peer.ledger.page, peer.slot, 0, 7, UINT64_MAX), 0);
    uint32_t processes = 0;
    assert_int_equal(world_used(&world, "alpha", &processes), 7 * SL_UNIT_BYTES);
    assert_int_equal(processes, 1);
    peer_close(&peer);
    (void)close(fd);
}

/* The tenant's side of the lease can be read, and nothing else, by any road. */
static void test_lease_is_read_only(void **state)
{
    (void)state;
    union sl_packet p;
    int fd = world_connect(&world);
    struct sl_msg_lease m = lease_ask("ro", GIB);
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    struct peer peer;
    assert_int_equal(peer_attach(p.created.attach_path, SL_NO_SLOT, -1, &peer), 0);
    assert_true(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, peer.lease.fd, 0) ==
                MAP_FAILED);
    assert_int_equal(ftruncate(peer.lease.fd, 0), -1);
    char self[64];
    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", peer.lease.fd);
    int again = open(self, O_RDWR);
    if (again >= 0) {
        assert_true(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED);
        assert_int_equal(pwrite(again, "x", 1, 0), -1);
        (void)close(again);
    }
    peer_close(&peer);
    (void)close(fd);
}

static void test_refusals(void **state)
{
    (void)state;
    struct sl_msg_lease m = lease_ask("", 200 * GIB);
    expect_refusal(&m, "ask for less");
    m = lease_ask("no/slash", GIB);
    expect_refusal(&m, "is not valid");
    m = lease_ask("", GIB);
    m.gpu_count = 1;
    (void)snprintf(m.gpu[0], sizeof(m.gpu[0]), "GPU-nonsense");
    expect_refusal(&m, "no GPU \"GPU-nonsense\"");
    (void)snprintf(m.gpu[0], sizeof(m.gpu[0]), "7");
    expect_refusal(&m, "no GPU \"7\"");
    m.gpu_count = 2;
    (void)snprintf(m.gpu[0], sizeof(m.gpu[0]), "0");
    (void)snprintf(m.gpu[1], sizeof(m.gpu[1]), "0");
    expect_refusal(&m, "twice");
    m.gpu_count = 99;
    expect_refusal(&m, "at most");
    m = lease_ask("", GIB);
    m.fields |= SL_FIELD_CORES;
    m.cores_request_permille = 900;
    m.cores_limit_permille = 100;
    expect_refusal(&m, "cores");
    m = lease_ask("", GIB);
    m.fields |= SL_FIELD_PRIORITY;
    m.priority = 77;
    expect_refusal(&m, "priority");
}

static void test_card_is_not_promised_twice(void **state)
{
    (void)state;
    union sl_packet p;
    int fd = world_connect(&world);
    struct sl_msg_lease m = lease_ask("big", 100 * GIB);
    m.fields |= SL_FIELD_CORES;
    m.cores_request_permille = m.cores_limit_permille = 600;
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    struct sl_msg_lease second = lease_ask("second", 100 * GIB);
    expect_refusal(&second, "left of");
    second = lease_ask("second", GIB);
    second.fields |= SL_FIELD_CORES;
    second.cores_request_permille = second.cores_limit_permille = 500;
    expect_refusal(&second, "% of its time left");
    second = lease_ask("big", GIB);
    expect_refusal(&second, "already runs");
    (void)close(fd);
}

static void test_live_set(void **state)
{
    (void)state;
    union sl_packet p;
    int fd = world_connect(&world);
    struct sl_msg_lease m = lease_ask("live", 4 * GIB);
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    struct peer peer;
    assert_int_equal(peer_attach(p.created.attach_path, SL_NO_SLOT, -1, &peer), 0);
    uint64_t three = sl_units_of_bytes(3 * GIB);
    assert_int_equal(sl_account_reserve(peer.ledger.page, peer.slot, 0, three, UINT64_MAX), 0);

    sl_packet_init(&m.h, SL_MSG_SET, sizeof(m));
    m.memory_bytes = 8 * GIB;
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_OK);
    assert_string_equal(p.text.text, "");
    assert_int_equal(atomic_load(&peer.lease.page->gpu[0].memory_limit_bytes), 8 * GIB);
    m.memory_bytes = 2 * GIB;
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_OK);
    assert_non_null(strstr(p.text.text, "more than its new limit"));
    assert_int_equal(atomic_load(&peer.lease.page->gpu[0].memory_limit_bytes), 2 * GIB);
    m.memory_bytes = 500 * GIB;
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_ERROR);
    assert_int_equal(atomic_load(&peer.lease.page->gpu[0].memory_limit_bytes), 2 * GIB);
    (void)snprintf(m.name, sizeof(m.name), "who");
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_ERROR);
    peer_close(&peer);
    (void)close(fd);
}

static void test_processes(void **state)
{
    (void)state;
    union sl_packet p;
    struct peer peer;
    struct sl_err err = SL_ERR_INIT;
    struct sl_msg_process *list = NULL;
    size_t count = 9;
    int fd = world_connect(&world);
    struct sl_msg_lease m = lease_ask("crew", 10 * GIB);
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    assert_int_equal(sl_client_processes(fd, "crew", &list, &count, &err), 0);
    assert_int_equal(count, 0);
    assert_int_equal(peer_attach(p.created.attach_path, SL_NO_SLOT, -1, &peer), 0);
    assert_int_equal(sl_account_reserve(peer.ledger.page, peer.slot, 0, 3, UINT64_MAX), 0);
    assert_int_equal(sl_client_processes(fd, "crew", &list, &count, &err), 0);
    assert_int_equal(count, 1);
    assert_int_equal(list[0].pid, getpid());
    assert_int_equal(list[0].gpu_count, 1);
    assert_int_equal(list[0].gpu[0].used_bytes, 3 * SL_UNIT_BYTES);
    free(list);
    assert_int_equal(sl_client_processes(fd, "nobody", &list, &count, &err), -ENOENT);
    assert_non_null(strstr(err.msg, "no tenant is named \"nobody\""));
    /* A name without an end is cut, not read on. */
    memset(m.name, 'x', sizeof(m.name));
    m.h.type = SL_MSG_PROCESSES;
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_ERROR);
    peer_close(&peer);
    (void)close(fd);
}

static void test_second_arbiter(void **state)
{
    (void)state;
    struct sl_arbiter_options o = {.dir = world.dir, .ready_fd = -1};
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_arbiter_serve(&o, &err), SL_ARBITER_TAKEN);
    assert_non_null(strstr(err.msg, "already serves"));
}

/* Bytes that are none of ours end that connection and nothing else. */
static void test_nonsense(void **state)
{
    (void)state;
    unsigned seed = 7;
    for (int i = 0; i < 200; i++) {
        char junk[600];
        int fd = world_connect(&world);
        struct sl_msg *h = (struct sl_msg *)(void *)junk;
        for (size_t k = 0; k < sizeof(junk); k++)
            junk[k] = (char)(seed = seed * 1103515245U + 12345U);
        size_t n = 1 + seed % sizeof(junk);
        if (i % 2)
            sl_packet_init(h, (enum sl_msg_type)(i % 20), n);
        (void)send(fd, junk, n, MSG_NOSIGNAL);
        (void)close(fd);
    }
    assert_int_equal(world_used(&world, "nobody", NULL), UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grants),   cmocka_unit_test(test_lease_is_read_only),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_card_is_not_promised_twice),
        cmocka_unit_test(test_live_set), cmocka_unit_test(test_second_arbiter),
        cmocka_unit_test(test_nonsense), cmocka_unit_test(test_processes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
