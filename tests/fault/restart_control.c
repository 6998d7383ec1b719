/* SPDX-License-Identifier: Apache-2.0 */
/* What people and the agent ask of an arbiter that has just restarted, or whose disk is full. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "integration/arbiter_world.h"
#include "shm/account.h"

static struct world world;

static int setup(void **state)
{
    (void)state;
    /* A file that may not grow is then a failed write, as on a full disk, and no signal. */
    (void)signal(SIGXFSZ, SIG_IGN);
    world_begin(&world);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_end(&world);
    return 0;
}

static enum sl_msg_type set_memory(const char *name, uint64_t bytes, char text[404])
{
    union sl_packet p;
    struct sl_msg_lease m = lease_ask(name, bytes);
    int fd = world_connect(&world);
    m.h.type = SL_MSG_SET;
    enum sl_msg_type type = world_call(fd, &m.h, &p);
    (void)snprintf(text, 404, "%.403s", p.text.text);
    (void)close(fd);
    return type;
}

static struct sl_msg_tenant look(const char *name)
{
    struct sl_msg ask;
    union sl_packet p;
    struct sl_msg_tenant found = {.processes = UINT32_MAX};
    int fd = world_connect(&world);
    sl_packet_init(&ask, SL_MSG_STATUS, sizeof(ask));
    for (enum sl_msg_type t = world_call(fd, &ask, &p); t != SL_MSG_END;) {
        if (t == SL_MSG_TENANT && strcmp(p.tenant.name, name) == 0)
            found = p.tenant;
        struct sl_err err = SL_ERR_INIT;
        if (sl_packet_recv(fd, &p, NULL, &err) < 0)
            fail_msg("%s", err.msg);
        t = (enum sl_msg_type)p.h.type;
    }
    (void)close(fd);
    return found;
}

static void create(const char *name, uint64_t bytes, char path[256])
{
    union sl_packet p;
    int fd = world_connect(&world);
    struct sl_msg_lease m = lease_ask(name, bytes);
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    (void)snprintf(path, 256, "%s", p.created.attach_path);
    (void)close(fd);
}

/* A process of the tenant that holds something and comes back to every arbiter, as libsluice does. */
static pid_t spawn_member(const char *path, uint64_t units)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct peer peer, next;
        char byte;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (peer_attach(path, SL_NO_SLOT, -1, &peer) < 0 ||
            sl_account_reserve(peer.ledger.page, peer.slot, 0, units, UINT64_MAX) < 0 ||
            write(ready[1], "k", 1) != 1)
            _exit(1);
        /* Until it is killed. What an arbiter says (SL_MSG_GATE) only wakes; the end of a connection is
         * that of an arbiter. */
        for (;;)
            if (read(peer.sock, &byte, 1) <= 0) {
                if (peer_attach(path, peer.slot, peer.ledger.fd, &next) == 0)
                    peer = next;
                else
                    (void)usleep(10000);
            }
    }
    char byte;
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    return pid;
}

static void end_member(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

/* Nobody has brought the ledger back yet. */
static void test_set_at_once(void **state)
{
    (void)state;
    char path[256], text[404];
    create("early", 10 * GIB, path);
    pid_t member = spawn_member(path, 1000);
    for (uint64_t gib = 11; gib < 31; gib++) {
        world_stop_process(member);
        world_kill(&world);
        world_start(&world);
        assert_int_equal(set_memory("early", gib * GIB, text), SL_MSG_OK);
        assert_int_equal(look("early").gpu[0].limit_bytes, gib * GIB);
        assert_int_equal(kill(member, SIGCONT), 0);
        EVENTUALLY(look("early").processes == 1);
    }
    assert_int_equal(look("early").gpu[0].used_bytes, 1000 * SL_UNIT_BYTES);
    end_member(member);
}

/* Its creator is gone and its processes have yet to come back: it is still somebody's. */
static void test_stopped_while_recovering(void **state)
{
    (void)state;
    char path[256];
    int told[2], go[2];
    assert_int_equal(pipe(told), 0);
    assert_int_equal(pipe(go), 0);
    pid_t creator = fork();
    if (creator == 0) {
        char byte;
        create("orphan", 10 * GIB, path);
        if (write(told[1], path, sizeof(path)) != (ssize_t)sizeof(path) ||
            read(go[0], &byte, 1) != 1)
            _exit(1);
        _exit(0);
    }
    assert_int_equal(read(told[0], path, sizeof(path)), sizeof(path));
    pid_t member = spawn_member(path, 1000);
    assert_int_equal(write(go[1], "g", 1), 1);
    assert_int_equal(waitpid(creator, NULL, 0), creator);
    world_stop_process(member);
    for (int i = 0; i < 3; i++) {
        world_stop(&world);
        world_start(&world);
    }
    assert_int_equal(kill(member, SIGCONT), 0);
    EVENTUALLY(look("orphan").processes == 1);
    assert_int_equal(look("orphan").gpu[0].limit_bytes, 10 * GIB);
    assert_int_equal(look("orphan").gpu[0].used_bytes, 1000 * SL_UNIT_BYTES);
    end_member(member);
    EVENTUALLY(look("orphan").processes == UINT32_MAX);
}

static void let_files_grow(bool yes)
{
    struct rlimit r;
    assert_int_equal(prlimit(world.arbiter, RLIMIT_FSIZE, NULL, &r), 0);
    r.rlim_cur = yes ? r.rlim_max : 0;
    assert_int_equal(prlimit(world.arbiter, RLIMIT_FSIZE, &r, NULL), 0);
}

/* What could not be written down is not in force either, now or after a restart. */
static void test_full_disk(void **state)
{
    (void)state;
    char path[256], text[404];
    create("full", 10 * GIB, path);
    let_files_grow(false);
    assert_int_equal(set_memory("full", 20 * GIB, text), SL_MSG_ERROR);
    assert_non_null(strstr(text, "tenant full keeps its old limits: cannot write full.lease"));
    assert_int_equal(look("full").gpu[0].limit_bytes, 10 * GIB);
    let_files_grow(true);
    assert_int_equal(set_memory("full", 20 * GIB, text), SL_MSG_OK);
    world_kill(&world);
    world_start(&world);
    assert_int_equal(look("full").gpu[0].limit_bytes, 20 * GIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_set_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stopped_while_recovering, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
