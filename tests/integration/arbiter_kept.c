/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants that stay: made twice, left alone, taken over by the next arbiter, removed. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "arbiter/client.h"
#include "arbiter_world.h"

#define ABOUT "namespace=default pod=train-0 claim=train-0-gpu uid=1234 request=gpu"

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

static void first_uuid(char ret[SL_UUID_MAX])
{
    int fd = world_connect(&world);
    struct sl_client_status s;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_client_status(fd, &s, &err), 0);
    assert_true(s.gpu_count >= 1);
    memcpy(ret, s.gpu[0].uuid, SL_UUID_MAX);
    sl_client_status_free(&s);
    (void)close(fd);
}

static struct sl_msg_lease keep_ask(const char *name, uint64_t bytes)
{
    struct sl_msg_lease m = lease_ask(name, bytes);
    m.flags = SL_LEASE_KEEP;
    m.gpu_count = 1;
    first_uuid(m.gpu[0]);
    (void)snprintf(m.about, sizeof(m.about), ABOUT);
    return m;
}

static int create(const struct sl_msg_lease *m, struct sl_msg_created *ret)
{
    struct sl_err err = SL_ERR_INIT;
    int fd = world_connect(&world);
    int rc = sl_client_create(fd, m, ret, &err);
    (void)close(fd);
    return rc;
}

static int remove_named(const char *name)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_msg_lease question = {0};
    union sl_packet got = {.h = {0}};
    int fd = world_connect(&world);
    (void)snprintf(question.name, sizeof(question.name), "%s", name);
    sl_packet_init(&question.h, SL_MSG_REMOVE, sizeof(question));
    assert_int_equal(sl_packet_send(fd, &question.h, NULL, 0, &err), 0);
    assert_int_equal(sl_packet_wait(fd, 10000, &err), 0);
    assert_int_equal(sl_packet_recv(fd, &got, NULL, &err), 0);
    (void)close(fd);
    assert_true(got.h.type == SL_MSG_OK || got.h.type == SL_MSG_ERROR);
    return got.h.type == SL_MSG_OK ? 0 : got.text.code;
}

static bool told(const char *name, struct sl_msg_tenant *ret)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_client_status s;
    int fd = world_connect(&world);
    assert_int_equal(sl_client_status(fd, &s, &err), 0);
    bool found = false;
    for (size_t i = 0; i < s.tenant_count; i++)
        if (strcmp(s.tenant[i].name, name) == 0) {
            *ret = s.tenant[i];
            found = true;
        }
    sl_client_status_free(&s);
    (void)close(fd);
    return found;
}

/* A process of the tenant that launches so often and ends. */
static void come_and_go(const char *attach_path, uint64_t launches)
{
    pid_t child = fork();
    if (child == 0) {
        struct peer p;
        if (peer_attach(attach_path, SL_NO_SLOT, -1, &p) != 0)
            _exit(1);
        atomic_store(&p.ledger.page->slot[p.slot].launches, launches);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_outlives_its_maker(void **state)
{
    (void)state;
    struct sl_msg_lease m = keep_ask("stay", 3 * GIB);
    pid_t child = fork();
    if (child == 0) {
        struct sl_msg_created c;
        _exit(create(&m, &c) != 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    struct sl_msg_tenant t;
    assert_true(told("stay", &t));
    assert_string_equal(t.about, ABOUT);
    assert_true(t.flags & SL_LEASE_KEEP);

    /* A process comes and goes; the tenant stays, with a clean ledger. */
    struct sl_msg_created c;
    assert_int_equal(create(&m, &c), 0);
    come_and_go(c.attach_path, 5);
    assert_true(told("stay", &t));
    assert_int_equal(t.gpu[0].limit_bytes, 3 * GIB);
    assert_int_equal(t.launches, 5);
    /* Whoever asks again may know more of whose it is. */
    (void)snprintf(m.about, sizeof(m.about), ABOUT " container=main");
    assert_int_equal(create(&m, &c), 0);
    assert_true(told("stay", &t));
    assert_string_equal(t.about, ABOUT " container=main");
    m.about[0] = '\0';
    assert_int_equal(create(&m, &c), 0);
    assert_true(told("stay", &t));
    assert_string_equal(t.about, ABOUT " container=main");
    come_and_go(c.attach_path, 7); /* its counters go on */
    assert_true(told("stay", &t));
    assert_int_equal(t.launches, 12);
    assert_int_equal(remove_named("stay"), 0);
    assert_false(told("stay", &t));
}

static void test_same_again(void **state)
{
    (void)state;
    struct sl_msg_lease m = keep_ask("same", 3 * GIB);
    struct sl_msg_created first, again;
    assert_int_equal(create(&m, &first), 0);
    assert_int_equal(create(&m, &again), 0);
    assert_string_equal(first.attach_path, again.attach_path);
    assert_int_equal(again.memory_limit_bytes[0], 3 * GIB);

    /* Changed since by a person: still the tenant that was asked for. */
    struct sl_err err = SL_ERR_INIT;
    struct sl_msg_text remark;
    struct sl_msg_lease set = lease_ask("same", 5 * GIB);
    int fd = world_connect(&world);
    assert_int_equal(sl_client_set(fd, &set, &remark, &err), 0);
    (void)close(fd);
    assert_int_equal(create(&m, &again), 0);
    assert_int_equal(again.memory_limit_bytes[0], 5 * GIB);

    struct sl_msg_lease other = m;
    other.memory_bytes = 4 * GIB;
    assert_int_equal(create(&other, &again), -EEXIST);
    assert_int_equal(remove_named("same"), 0);
    assert_int_equal(remove_named("same"), -ENOENT);
    assert_int_equal(create(&other, &again), 0);
    assert_int_equal(remove_named("same"), 0);
}

/* How GPU time is shared is the latest that was said, not a part of what makes a lease another one: a
 * node whose configuration changes asks again for its containers' tenants. */
static void test_compute(void **state)
{
    (void)state;
    struct sl_msg_lease m = keep_ask("timed", GIB);
    struct sl_msg_created c;
    struct sl_msg_tenant t;
    m.flags = SL_LEASE_KEEP | SL_LEASE_SLICES | SL_LEASE_TURNS;
    assert_int_equal(create(&m, &c), -EINVAL);
    m.flags = SL_LEASE_KEEP | SL_LEASE_TURNS;
    assert_int_equal(create(&m, &c), 0);
    assert_true(told("timed", &t));
    assert_int_equal(t.flags, SL_LEASE_KEEP | SL_LEASE_TURNS);
    EVENTUALLY(told("timed", &t) && t.compute == SL_COMPUTE_TURNS);
    world_kill(&world);
    world_start(&world);
    assert_true(told("timed", &t));
    assert_int_equal(t.flags | SL_LEASE_RETURNING,
                     SL_LEASE_KEEP | SL_LEASE_TURNS | SL_LEASE_RETURNING);
    EVENTUALLY(told("timed", &t) && !(t.flags & SL_LEASE_RETURNING));
    EVENTUALLY(told("timed", &t) && t.compute == SL_COMPUTE_TURNS);

    static const uint32_t next[] = {SL_LEASE_SLICES, 0};
    for (size_t i = 0; i < sizeof(next) / sizeof(next[0]); i++) {
        m.flags = SL_LEASE_KEEP | next[i];
        assert_int_equal(create(&m, &c), 0);
        assert_true(told("timed", &t));
        assert_int_equal(t.flags | SL_LEASE_RETURNING, m.flags | SL_LEASE_RETURNING);
        EVENTUALLY(told("timed", &t) && t.compute == SL_COMPUTE_SLICES);
        assert_string_equal(t.about, ABOUT);
        world_kill(&world);
        world_start(&world);
        assert_true(told("timed", &t));
        assert_int_equal(t.flags | SL_LEASE_RETURNING, m.flags | SL_LEASE_RETURNING);
    }
    assert_int_equal(remove_named("timed"), 0);
}

/* A person names a lease: whoever has the name already, and be it with the same lease, keeps it. */
static void test_new(void **state)
{
    (void)state;
    struct sl_msg_lease m = keep_ask("named", GIB);
    struct sl_msg_created c;
    struct sl_msg_tenant t;
    m.flags = SL_LEASE_KEEP | SL_LEASE_NEW | SL_LEASE_ANY;
    m.gpu_count = 0;
    assert_int_equal(create(&m, &c), 0);
    assert_true(told("named", &t));
    assert_int_equal(t.flags, SL_LEASE_KEEP);
    assert_int_equal(create(&m, &c), -EEXIST);
    assert_int_equal(remove_named("named"), 0);
    assert_int_equal(create(&m, &c), 0);
    assert_int_equal(remove_named("named"), 0);
}

/* Slices that were asked for by name are used also where a process says that it cannot set them. */
static void test_compute_insisted(void **state)
{
    (void)state;
    struct sl_msg_lease m = keep_ask("cannot", GIB);
    struct sl_msg_created c;
    struct sl_msg_tenant t;
    struct peer p;
    assert_int_equal(create(&m, &c), 0);
    assert_int_equal(peer_attach(c.attach_path, SL_NO_SLOT, -1, &p), 0);
    atomic_store(&p.ledger.page->slot[p.slot].control_status, 0x56);
    atomic_store(&p.ledger.page->slot[p.slot].control, SL_CONTROL_REFUSED);
    EVENTUALLY(told("cannot", &t) && t.compute == SL_COMPUTE_TURNS);
    m.flags |= SL_LEASE_SLICES;
    assert_int_equal(create(&m, &c), 0);
    EVENTUALLY(told("cannot", &t) && t.compute == SL_COMPUTE_SLICES);
    m.flags = SL_LEASE_KEEP;
    assert_int_equal(create(&m, &c), 0);
    EVENTUALLY(told("cannot", &t) && t.compute == SL_COMPUTE_TURNS);
    peer_close(&p);
    assert_int_equal(remove_named("cannot"), 0);
}

/* A state file says nothing but what an arbiter wrote. */
static void test_compute_nonsense(void **state)
{
    (void)state;
    struct sl_msg_lease m = keep_ask("odd", GIB);
    struct sl_msg_created c;
    struct sl_msg_tenant t;
    char file[160], aside[160];
    (void)snprintf(file, sizeof(file), "%s/t/odd.lease", world.dir);
    (void)snprintf(aside, sizeof(aside), "%s/t/odd.bad", world.dir);
    m.flags |= SL_LEASE_TURNS;
    assert_int_equal(create(&m, &c), 0);
    world_kill(&world);
    char text[4096];
    FILE *f = fopen(file, "r+");
    assert_non_null(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    char *line = strstr(text, "\ncompute 2\n");
    assert_non_null(line);
    assert_int_equal(fseek(f, line - text + 9, SEEK_SET), 0);
    assert_int_equal(fputc('7', f), '7');
    assert_int_equal(fclose(f), 0);
    world_start(&world);
    assert_false(told("odd", &t));
    assert_int_equal(unlink(aside), 0);
}

/* Files of other versions: a line that a newer one added is passed over, the owner is read where each version wrote it, and
 * what 0.1.0 does not know stands behind what it reads. */
static void test_other_versions(void **state)
{
    (void)state;
    struct sl_msg_lease m = keep_ask("aged", GIB);
    struct sl_msg_created c;
    struct sl_msg_tenant t;
    char file[160], text[4096];
    (void)snprintf(file, sizeof(file), "%s/t/aged.lease", world.dir);
    assert_int_equal(create(&m, &c), 0);
    world_kill(&world);
    FILE *f = fopen(file, "r+");
    assert_non_null(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    assert_null(strstr(text, "\nowner"));
    char *owner = strstr(text, " owner ");
    char *end = strstr(text, "\nend\n");
    assert_non_null(owner);
    assert_non_null(end);
    *owner = *end = '\0';
    rewind(f);
    assert_true(fprintf(f, "%s\nowner 4711\n%s\nquota-of-tomorrow 1 2 3\nend\n", text,
                        strchr(owner + 1, '\n') + 1) > 0);
    assert_int_equal(fclose(f), 0);
    world_start(&world);
    assert_true(told("aged", &t));
    assert_int_equal(t.h.option, SL_OWNER_TOLD(4711));
    assert_int_equal(t.gpu[0].limit_bytes, GIB);
    assert_int_equal(remove_named("aged"), 0);
}

static void test_needs_name_and_gpus(void **state)
{
    (void)state;
    struct sl_msg_created c;
    struct sl_msg_lease m = keep_ask("", GIB);
    assert_int_equal(create(&m, &c), -EINVAL);
    m = keep_ask("nameless", GIB);
    m.gpu_count = 0;
    assert_int_equal(create(&m, &c), -EINVAL);
}

static void test_survives_the_arbiter(void **state)
{
    (void)state;
    struct sl_msg_lease m = keep_ask("long", 7 * GIB);
    struct sl_msg_created c;
    assert_int_equal(create(&m, &c), 0);
    struct stat dir_before, dir_after, sock_before, sock_after;
    char dir[256];
    (void)snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(c.attach_path, '/') - c.attach_path),
                   c.attach_path);
    assert_int_equal(stat(dir, &dir_before), 0);
    assert_int_equal(stat(c.attach_path, &sock_before), 0);
    for (int round = 0; round < 2; round++) {
        struct sl_msg_tenant t;
        if (round == 0) {
            world_kill(&world);
        } else {
            (void)kill(world.arbiter, SIGTERM);
            int status;
            assert_int_equal(waitpid(world.arbiter, &status, 0), world.arbiter);
        }
        world_start(&world);
        assert_true(told("long", &t));
        assert_string_equal(t.about, ABOUT);
        assert_int_equal(t.gpu[0].limit_bytes, 7 * GIB);
    }
    /* The directory a container has mounted is the same; the socket in it is the new arbiter's. */
    assert_int_equal(stat(dir, &dir_after), 0);
    assert_int_equal(stat(c.attach_path, &sock_after), 0);
    assert_true(dir_before.st_ino == dir_after.st_ino);
    struct sl_msg_created again;
    assert_int_equal(create(&m, &again), 0);
    struct peer p;
    assert_int_equal(peer_attach(c.attach_path, SL_NO_SLOT, -1, &p), 0);
    peer_close(&p);
    assert_int_equal(remove_named("long"), 0);
    assert_int_equal(stat(dir, &dir_after), -1);
}

/* Any uid of a container may come in by the directory it has, and by no other way. */
static void test_modes(void **state)
{
    (void)state;
    mode_t before = umask(0077);
    world_kill(&world);
    world_start(&world); /* an arbiter with a closed umask */
    (void)umask(before);
    struct sl_msg_lease m = keep_ask("open", GIB);
    struct sl_msg_created c;
    assert_int_equal(create(&m, &c), 0);
    char dir[256];
    (void)snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(c.attach_path, '/') - c.attach_path),
                   c.attach_path);
    struct stat st;
    assert_int_equal(stat(c.attach_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0666);
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0755);
    *strrchr(dir, '/') = '\0';
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0077, 0);
    assert_int_equal(remove_named("open"), 0);
}

static void test_remove_is_for_kept_ones(void **state)
{
    (void)state;
    union sl_packet p;
    int fd = world_connect(&world);
    struct sl_msg_lease m = lease_ask("mine", GIB);
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    assert_int_equal(remove_named("mine"), -EBUSY);
    m = keep_ask("mine", GIB);
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_ERROR);
    (void)close(fd);
}

/* An arbiter that died between the lease's end and the directory's. */
static void test_sweeps(void **state)
{
    (void)state;
    char dir[160];
    (void)snprintf(dir, sizeof(dir), "%s/k/left-over", world.dir);
    assert_int_equal(mkdir(dir, 0755), 0);
    world_kill(&world);
    world_start(&world);
    assert_int_equal(access(dir, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outlives_its_maker),
        cmocka_unit_test(test_same_again),
        cmocka_unit_test(test_compute),
        cmocka_unit_test(test_new),
        cmocka_unit_test(test_compute_insisted),
        cmocka_unit_test(test_compute_nonsense),
        cmocka_unit_test(test_other_versions),
        cmocka_unit_test(test_needs_name_and_gpus),
        cmocka_unit_test(test_survives_the_arbiter),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_remove_is_for_kept_ones),
        cmocka_unit_test(test_sweeps),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
