/* SPDX-License-Identifier: Apache-2.0 */
/* Processes and arbiters that die: what they had comes back, who is left goes on. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "integration/arbiter_world.h"
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

static int create(const char *name, uint64_t bytes, char path[256])
{
    union sl_packet p;
    int fd = world_connect(&world);
    struct sl_msg_lease m = lease_ask(name, bytes);
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    (void)snprintf(path, 256, "%s", p.created.attach_path);
    return fd;
}

/* A process that attaches, reserves, says so, and stays. */
static pid_t spawn_member(const char *path, uint64_t units, bool comes_back)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct peer peer;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (peer_attach(path, SL_NO_SLOT, -1, &peer) < 0 ||
            sl_account_reserve(peer.ledger.page, peer.slot, 0, units, UINT64_MAX) < 0)
            _exit(1);
        if (write(ready[1], "k", 1) != 1)
            _exit(1);
        char byte;
        ssize_t n = read(peer.sock, &byte, 1);
        while (comes_back && n <= 0) { /* the arbiter died: as libsluice does */
            struct peer next;
            if (peer_attach(path, peer.slot, peer.ledger.fd, &next) == 0)
                n = read(next.sock, &byte, 1);
            usleep(20000);
        }
        for (;;)
            pause();
    }
    char byte;
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    return pid;
}

static void kill_and_wait(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

static void test_killed_member_returns_everything(void **state)
{
    (void)state;
    char path[256];
    int fd = create("killed", 10 * GIB, path);
    pid_t a = spawn_member(path, 1000, false), b = spawn_member(path, 500, false);
    assert_int_equal(world_used(&world, "killed", NULL), 1500 * SL_UNIT_BYTES);
    kill_and_wait(a);
    EVENTUALLY(world_used(&world, "killed", NULL) == 500 * SL_UNIT_BYTES);
    kill_and_wait(b);
    EVENTUALLY(world_used(&world, "killed", NULL) == 0);
    (void)close(fd);
}

/* A forked child that holds the parent's socket open must not keep the parent's memory alive. */
static void test_inherited_connection(void **state)
{
    (void)state;
    char path[256];
    int fd = create("inherit", GIB, path);
    int told[2];
    assert_int_equal(pipe(told), 0);
    pid_t parent = fork();
    if (parent == 0) {
        struct peer peer;
        if (peer_attach(path, SL_NO_SLOT, -1, &peer) < 0 ||
            sl_account_reserve(peer.ledger.page, peer.slot, 0, 42, UINT64_MAX) < 0)
            _exit(1);
        pid_t child = fork();
        if (child == 0)
            for (;;)
                pause();
        if (write(told[1], &child, sizeof(child)) != (ssize_t)sizeof(child))
            _exit(1);
        _exit(0);
    }
    pid_t child;
    assert_int_equal(read(told[0], &child, sizeof(child)), sizeof(child));
    (void)waitpid(parent, NULL, 0);
    EVENTUALLY(world_used(&world, "inherit", NULL) == 0);
    (void)kill(child, SIGKILL);
    (void)close(told[0]);
    (void)close(told[1]);
    (void)close(fd);
}

static void test_exec_returns_everything(void **state)
{
    (void)state;
    char path[256];
    int fd = create("exec", GIB, path);
    pid_t pid = fork();
    if (pid == 0) {
        struct peer peer;
        if (peer_attach(path, SL_NO_SLOT, -1, &peer) < 0 ||
            sl_account_reserve(peer.ledger.page, peer.slot, 0, 42, UINT64_MAX) < 0)
            _exit(1);
        (void)execlp("sleep", "sleep", "60", (char *)NULL);
        _exit(1);
    }
    uint32_t processes = 9;
    usleep(100000);
    EVENTUALLY(world_used(&world, "exec", &processes) == 0 && processes == 0);
    kill_and_wait(pid);
    (void)close(fd);
}

static void test_restart_keeps_the_books(void **state)
{
    (void)state;
    char path[256];
    int fd = create("phoenix", 10 * GIB, path);
    pid_t back = spawn_member(path, 700, true), lost = spawn_member(path, 300, true);
    world_kill(&world);
    kill_and_wait(lost); /* dies while nobody looks */
    world_start(&world);
    uint32_t processes = 0;
    EVENTUALLY(world_used(&world, "phoenix", &processes) == 700 * SL_UNIT_BYTES && processes == 1);
    /* Newcomers share the same books. */
    pid_t more = spawn_member(path, 11, false);
    assert_int_equal(world_used(&world, "phoenix", NULL), 711 * SL_UNIT_BYTES);
    kill_and_wait(back);
    kill_and_wait(more);
    EVENTUALLY(world_used(&world, "phoenix", NULL) == 0);
    (void)close(fd);
}

/* A newcomer right after a restart does not get the slot of a process that is not back yet. */
static void test_newcomer_after_restart(void **state)
{
    (void)state;
    char path[256];
    struct peer newcomer;
    int fd = create("newcomer", 10 * GIB, path);
    pid_t late = spawn_member(path, 700, false), back = spawn_member(path, 300, true);
    world_kill(&world);
    world_start(&world);
    uint32_t processes = 0;
    EVENTUALLY(world_used(&world, "newcomer", &processes) != 0 && processes == 1);
    assert_int_equal(peer_attach(path, SL_NO_SLOT, -1, &newcomer), 0);
    assert_int_equal(sl_account_slot(newcomer.ledger.page, newcomer.slot, 0), 0);
    peer_close(&newcomer);
    kill_and_wait(late);
    kill_and_wait(back);
    (void)close(fd);
}

/* After a restart there is no ledger until a process brings it: limits can be set all the same. */
static void test_set_right_after_restart(void **state)
{
    (void)state;
    char path[256];
    union sl_packet answer;
    int fd = create("early", 10 * GIB, path);
    pid_t member = spawn_member(path, 700, false);
    world_kill(&world);
    world_start(&world);
    int control = world_connect(&world);
    struct sl_msg_lease ask = lease_ask("early", 5 * GIB);
    ask.h.type = SL_MSG_SET;
    assert_int_equal(world_call(control, &ask.h, &answer), SL_MSG_OK);
    (void)close(control);
    kill_and_wait(member);
    (void)close(fd);
}

static void test_restart_twenty_times(void **state)
{
    (void)state;
    char path[256];
    int fd = create("often", 10 * GIB, path);
    pid_t member = spawn_member(path, 77, true);
    for (int i = 0; i < 20; i++) {
        world_kill(&world);
        world_start(&world);
        uint32_t processes = 0;
        EVENTUALLY(world_used(&world, "often", &processes) == 77 * SL_UNIT_BYTES && processes == 1);
    }
    kill_and_wait(member);
    EVENTUALLY(world_used(&world, "often", NULL) == 0);
    (void)close(fd);
}

/* A lease file cut anywhere is set aside; the arbiter starts all the same. */
static void test_truncated_state(void **state)
{
    (void)state;
    char path[256], file[160], bad[160];
    int fd = create("torn", GIB, path);
    (void)snprintf(file, sizeof(file), "%s/t/torn.lease", world.dir);
    (void)snprintf(bad, sizeof(bad), "%s/t/torn.bad", world.dir);
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    world_kill(&world);
    char whole[8192];
    int f = open(file, O_RDONLY);
    assert_int_equal(read(f, whole, sizeof(whole)), st.st_size);
    (void)close(f);
    /* Less than the newline after `end`, that is. */
    for (off_t cut = st.st_size - 2; cut >= 0; cut -= 13) {
        f = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        assert_int_equal(write(f, whole, (size_t)cut), cut);
        (void)close(f);
        world_start(&world);
        assert_int_equal(world_used(&world, "torn", NULL), UINT64_MAX);
        assert_int_equal(access(bad, F_OK), 0);
        assert_int_equal(unlink(bad), 0);
        world_kill(&world);
    }
    world_start(&world);
    (void)close(fd);
}

/* A tenant that scribbles over its whole ledger harms itself alone. */
static void test_hostile_ledger(void **state)
{
    (void)state;
    char path[256], other[256];
    int fd = create("liar", GIB, path), fd2 = create("honest", GIB, other);
    pid_t honest = spawn_member(other, 5, false);
    for (unsigned seed = 1; seed <= 5; seed++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct peer peer;
            if (peer_attach(path, SL_NO_SLOT, -1, &peer) < 0)
                _exit(1);
            uint64_t one = 1;
            for (int round = 0; round < 50; round++) {
                uint8_t *p = (uint8_t *)peer.ledger.page;
                for (size_t i = 0; i < sizeof(*peer.ledger.page);
                     i += 1 + (unsigned)rand_r(&seed) % 64)
                    p[i] = (uint8_t)rand_r(&seed);
                (void)!write(peer.doorbell, &one, sizeof(one));
                usleep(1000);
            }
            _exit(0);
        }
        int status;
        (void)waitpid(pid, &status, 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_int_equal(world_used(&world, "honest", NULL), 5 * SL_UNIT_BYTES);
    }
    uint32_t processes = 1;
    EVENTUALLY(world_used(&world, "liar", &processes) == 0 && processes == 0);
    kill_and_wait(honest);
    (void)close(fd);
    (void)close(fd2);
}

/* The most processes a tenant may have, and one more. */
static void test_full_tenant(void **state)
{
    (void)state;
    char path[256];
    int fd = create("full", GIB, path), go[2], told[2];
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(told), 0);
    pid_t nursery = fork();
    if (nursery == 0) {
        (void)close(go[1]);
        for (int i = 0; i < SL_PROCESS_SLOTS; i++) {
            if (fork() != 0)
                continue;
            struct peer peer;
            char byte = (char)(peer_attach(path, SL_NO_SLOT, -1, &peer) == 0);
            (void)!write(told[1], &byte, 1);
            (void)!read(go[0], &byte, 1); /* until the test closes its end */
            _exit(0);
        }
        while (wait(NULL) > 0)
            ;
        _exit(0);
    }
    int attached = 0;
    for (int i = 0; i < SL_PROCESS_SLOTS; i++) {
        char byte = 0;
        assert_int_equal(read(told[0], &byte, 1), 1);
        attached += byte;
    }
    assert_int_equal(attached, SL_PROCESS_SLOTS);
    struct peer one_too_many;
    assert_int_equal(peer_attach(path, SL_NO_SLOT, -1, &one_too_many), -EAGAIN);
    (void)close(go[0]);
    (void)close(go[1]);
    (void)waitpid(nursery, NULL, 0);
    uint32_t processes = 1;
    EVENTUALLY(world_used(&world, "full", &processes) == 0 && processes == 0);
    assert_int_equal(peer_attach(path, SL_NO_SLOT, -1, &one_too_many), 0);
    peer_close(&one_too_many);
    (void)close(told[0]);
    (void)close(told[1]);
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_member_returns_everything),
        cmocka_unit_test(test_inherited_connection),
        cmocka_unit_test(test_exec_returns_everything),
        cmocka_unit_test(test_restart_keeps_the_books),
        cmocka_unit_test(test_newcomer_after_restart),
        cmocka_unit_test(test_set_right_after_restart),
        cmocka_unit_test(test_restart_twenty_times),
        cmocka_unit_test(test_truncated_state),
        cmocka_unit_test(test_hostile_ledger),
        cmocka_unit_test(test_full_tenant),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
