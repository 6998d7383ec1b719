/* SPDX-License-Identifier: Apache-2.0 */
/* What is promised is kept beside tenants without a limit: they get the rest, and see it as the card. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/world_case.h"
#include "tenant_world.h"

/* CREATE or SET; the answer's code and text. */
static int ask_for(enum sl_msg_type type, const char *name, uint64_t bytes, char text[404])
{
    union sl_packet p;
    struct sl_msg_lease m = lease_ask(name, bytes);
    int fd = world_connect(&world);
    m.h.type = (uint16_t)type;
    bool refused = world_call(fd, &m.h, &p) == SL_MSG_ERROR;
    (void)snprintf(text, 404, "%s", refused ? p.text.text : "");
    (void)close(fd);
    return refused ? p.text.code : 0;
}

static void start(const struct tenant *t, struct program *p)
{
    const char *argv[] = {"view_tenant", "0", NULL};
    char line[128];
    program_start(t, argv, NULL, p);
    program_answer(p, line, sizeof(line));
    assert_string_equal(line, "ready 0 0\n");
}

static void hold(struct program *p, uint64_t bytes, const char *answer)
{
    char line[64];
    (void)snprintf(line, sizeof(line), "hold %lu", bytes);
    program_ask(p, line, line, sizeof(line));
    assert_string_equal(line, answer);
}

/* What cuMemGetInfo, cuDeviceTotalMem and NVML (both versions) call the card's size: the same. */
static uint64_t size_seen(struct program *p)
{
    uint64_t v[9];
    char line[512];
    program_ask(p, "memory", line, sizeof(line));
    if (sscanf(line, "memory %lu %lu %lu %lu %lu %lu %lu %lu %lu", &v[0], &v[1], &v[2], &v[3],
               &v[4], &v[5], &v[6], &v[7], &v[8]) != 9)
        fail_msg("%s", line);
    assert_int_equal(v[1], v[2]);
    assert_int_equal(v[1], v[5]);
    assert_int_equal(v[1], v[8]);
    return v[1];
}

static void test_rest(void **state)
{
    (void)state;
    struct tenant open, firm;
    struct program p, q;
    uint64_t card = world_card().total_bytes;
    tenant_begin(&world, "open", 0, &open);
    start(&open, &p);
    assert_true(size_seen(&p) > card - GIB); /* the driver keeps a little for itself */
    tenant_begin(&world, "firm", 60 * GIB, &firm);
    assert_int_equal(size_seen(&p), card - 60 * GIB);
    hold(&p, 50 * GIB, "held 0\n");
    hold(&p, 30 * GIB, "held 2\n"); /* 140.4 GiB in all, 60 of them promised: its context counts */
    start(&firm, &q);
    hold(&q, 59 * GIB, "held 0\n");
    /* A promise that grows needs what is used by others; one that shrinks gives it back. */
    char text[404];
    assert_int_equal(ask_for(SL_MSG_SET, "firm", 100 * GIB, text), -ENOSPC);
    assert_non_null(strstr(text, "without a memory limit use 50"));
    assert_int_equal(tenant_usage(&firm).limit_bytes, 60 * GIB);
    assert_int_equal(size_seen(&p), card - 60 * GIB);
    assert_int_equal(ask_for(SL_MSG_SET, "firm", 70 * GIB, text), 0);
    assert_int_equal(size_seen(&p), card - 70 * GIB);
    assert_int_equal(ask_for(SL_MSG_SET, "firm", 60 * GIB, text), 0);
    assert_int_equal(size_seen(&p), card - 60 * GIB);
    assert_int_equal(program_end(&q), 0);
    assert_int_equal(program_end(&p), 0);
    tenant_end(&firm);
    tenant_end(&open);
}

static void test_later_promise(void **state)
{
    (void)state;
    struct tenant open;
    struct program p;
    char text[404];
    uint64_t card = world_card().total_bytes;
    tenant_begin(&world, "open", 0, &open);
    start(&open, &p);
    hold(&p, 100 * GIB, "held 0\n");
    assert_int_equal(ask_for(SL_MSG_CREATE, "late", 60 * GIB, text), -ENOSPC);
    assert_non_null(strstr(text, "open"));
    assert_non_null(strstr(text, "60.0 GiB were asked for"));
    assert_int_equal(tenant_usage(&open).limit_bytes, SL_NO_LIMIT); /* all as it was */
    assert_int_equal(ask_for(SL_MSG_CREATE, "late", 20 * GIB, text), 0);
    assert_int_equal(size_seen(&p), card - 20 * GIB);
    hold(&p, 30 * GIB, "held 2\n");
    /* Nothing is left for one more of either kind. */
    assert_int_equal(ask_for(SL_MSG_CREATE, "more", card - 100 * GIB - 19 * GIB, text), -ENOSPC);
    assert_int_equal(program_end(&p), 0);
    EVENTUALLY(tenant_usage(&open).used_bytes == 0);
    assert_int_equal(ask_for(SL_MSG_CREATE, "all", card - 20 * GIB, text), 0);
    assert_int_equal(ask_for(SL_MSG_CREATE, "none", 0, text), -ENOSPC);
    assert_non_null(strstr(text, "has nothing left"));
    tenant_end(&open);
}

/* Several without a limit have equal parts, whoever comes first; what one uses beyond that stays its own. */
static void test_several(void **state)
{
    (void)state;
    struct tenant a, b, firm;
    struct program p, q;
    uint64_t rest = world_card().total_bytes - 40 * GIB;
    tenant_begin(&world, "a", 0, &a);
    tenant_begin(&world, "firm", 40 * GIB, &firm);
    start(&a, &p);
    assert_int_equal(size_seen(&p), rest);
    tenant_begin(&world, "b", 0, &b);
    start(&b, &q);
    assert_int_equal(size_seen(&p), rest / 2);
    assert_int_equal(size_seen(&q), rest / 2);
    hold(&p, rest / 2 - 2 * GIB, "held 0\n");
    hold(&q, rest / 2 - 2 * GIB, "held 0\n");
    hold(&q, 2 * GIB, "held 2\n");
    tenant_set_limit(&firm, 41 * GIB);
    assert_int_equal(size_seen(&p), (rest - GIB) / 2);
    assert_int_equal(program_end(&q), 0);
    assert_int_equal(program_end(&p), 0);
    tenant_end(&a);
    tenant_end(&b);
    tenant_end(&firm);
}

/* As soon as the arbiter knows. */
static bool may_promise(uint64_t bytes)
{
    char text[404];
    int rc = -EAGAIN;
    EVENTUALLY((rc = rc == -EAGAIN ? ask_for(SL_MSG_CREATE, "late", bytes, text) : rc) != -EAGAIN);
    return rc != -ENOSPC;
}

/* A restart changes nothing of it, and promises nothing before it knows what is used. */
static void test_restart(void **state)
{
    (void)state;
    struct tenant open, firm;
    struct program p;
    uint64_t card = world_card().total_bytes;
    tenant_begin(&world, "open", 0, &open);
    tenant_begin(&world, "firm", 20 * GIB, &firm);
    start(&open, &p);
    hold(&p, 100 * GIB, "held 0\n");
    for (int i = 0; i < 5; i++) {
        world_stop_process(p.pid);
        world_kill(&world);
        world_start(&world);
        assert_int_equal(tenant_usage(&open).limit_bytes, card - 20 * GIB);
        if (i % 2) /* seen, although it has not come back */
            assert_false(may_promise(60 * GIB));
        assert_int_equal(kill(p.pid, SIGCONT), 0);
        assert_false(may_promise(60 * GIB));
        EVENTUALLY(tenant_usage(&open).processes == 1);
        assert_false(may_promise(60 * GIB));
        assert_int_equal(size_seen(&p), card - 20 * GIB);
    }
    assert_int_equal(program_end(&p), 0);
    tenant_end(&firm);
    tenant_end(&open);
}

/* --- a context that is not measured yet ----------------------------------------------------------- */

/* The driver does not say who uses what while this file is there. */
static char silent[] = "/tmp/sluice-promises-XXXXXX";

static int setup_silent(void **state)
{
    char fault[128];
    int fd = mkstemp(silent);
    assert_true(fd >= 0);
    (void)close(fd);
    (void)snprintf(fault, sizeof(fault), "nvmlDeviceGetComputeRunningProcesses_v3:0=hang@%s",
                   silent);
    assert_int_equal(setenv("SLUICE_SIM_FAULT", fault, 1), 0);
    int rc = world_setup(state);
    (void)unsetenv("SLUICE_SIM_FAULT"); /* it is for the arbiter alone */
    return rc;
}

static int teardown_silent(void **state)
{
    (void)unlink(silent); /* the test did, unless it failed */
    return world_teardown(state);
}

/* A promise is made, and used up, before the driver says what the context of a neighbour without a limit costs. */
static void test_unmeasured(void **state)
{
    (void)state;
    struct tenant open, firm;
    struct program p, q;
    char text[404];
    uint64_t card = world_card().total_bytes, rest = card - 60 * GIB;
    tenant_begin(&world, "open", 0, &open);
    start(&open, &p);
    assert_int_equal(tenant_usage(&open).overhead_bytes, 0); /* not known yet */
    /* The whole card is not free: there is a context on it. */
    assert_int_equal(ask_for(SL_MSG_CREATE, "all", card, text), -ENOSPC);
    tenant_begin(&world, "firm", 60 * GIB, &firm);
    hold(&p, rest / GIB * GIB, "held 2\n"); /* it fits, if the context were nothing */
    hold(&p, rest / GIB * GIB - GIB, "held 0\n");
    assert_int_equal(unlink(silent), 0);
    EVENTUALLY(tenant_usage(&open).overhead_bytes >= GIB / 4);
    /* What was put by for the context is given back: nothing counts twice. */
    EVENTUALLY(tenant_usage(&open).used_bytes == rest / GIB * GIB - GIB);
    assert_true(tenant_usage(&open).overhead_bytes < GIB);
    start(&firm, &q);
    hold(&q, 59 * GIB, "held 0\n");
    assert_int_equal(program_end(&q), 0);
    assert_int_equal(program_end(&p), 0);
    tenant_end(&firm);
    tenant_end(&open);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_unmeasured, setup_silent, teardown_silent),
        WORLD_CASE(test_rest),
        WORLD_CASE(test_later_promise),
        WORLD_CASE(test_several),
        WORLD_CASE(test_restart),
    };
    return WORLD_MAIN(tests, argc, argv);
}
