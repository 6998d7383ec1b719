/* SPDX-License-Identifier: Apache-2.0 */
/* What `status` says is in use on a GPU follows the end of those who used it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "support/world_case.h"
#include "tenant_world.h"

#define HELD (40 * GIB)

static void start(const struct tenant *t, struct program *p)
{
    const char *argv[] = {"view_tenant", "0", NULL};
    char line[128];
    program_start(t, argv, NULL, p);
    program_answer(p, line, sizeof(line));
    assert_string_equal(line, "ready 0 0\n");
}

static void hold(struct program *p)
{
    char line[64];
    (void)snprintf(line, sizeof(line), "hold %llu", HELD);
    program_ask(p, line, line, sizeof(line));
    assert_string_equal(line, "held 0\n");
}

/* A tenant as a container has it: it ends when it is removed. */
static void kept(enum sl_msg_type type, struct tenant *t)
{
    union sl_packet p;
    struct sl_msg_lease m = lease_ask("kept", 60 * GIB);
    m.h.type = (uint16_t)type;
    m.flags = SL_LEASE_KEEP;
    m.gpu_count = 1;
    (void)snprintf(m.gpu[0], sizeof(m.gpu[0]), "%s", world_card().uuid);
    int fd = world_connect(&world);
    assert_int_not_equal(world_call(fd, &m.h, &p), SL_MSG_ERROR);
    if (type == SL_MSG_CREATE) {
        *t = (struct tenant){.world = &world, .control = -1, .name = "kept"};
        memcpy(t->attach_path, p.created.attach_path, sizeof(t->attach_path));
    }
    (void)close(fd);
}

/* The last tenant goes together with its last process, and nobody is left to be looked after. */
static void test_last_one(void **state)
{
    (void)state;
    struct tenant t;
    struct program p, late;
    kept(SL_MSG_CREATE, &t);
    start(&t, &p);
    hold(&p);
    start(&t, &late); /* a newcomer: the card is measured, with what the first one holds */
    EVENTUALLY(world_card().used_bytes >= HELD);
    assert_int_equal(program_end(&late), 0);
    assert_int_equal(program_end(&p), 0);
    kept(SL_MSG_REMOVE, &t);
    EVENTUALLY(world_card().used_bytes < GIB);
}

/* Who asked for a container's tenant is the agent. What the agent starts beside it (an MPS server) is not
 * that container's. */
static void test_not_of_the_container(void **state)
{
    (void)state;
    struct tenant t;
    struct program p, bare;
    struct sl_msg question;
    union sl_packet packet;
    kept(SL_MSG_CREATE, &t);
    start(NULL, &bare); /* our child, as the tenant's creator is us */
    hold(&bare);
    start(&t, &p); /* measured */
    uint32_t kind = 0;
    char whose[SL_NAME_MAX] = "?";
    while (kind == 0) {
        int fd = world_connect(&world);
        sl_packet_init(&question, SL_MSG_STATUS, sizeof(question));
        for (enum sl_msg_type m = world_call(fd, &question, &packet); m != SL_MSG_END;) {
            if (m == SL_MSG_AUDIT) {
                kind = packet.audit.kind;
                memcpy(whose, packet.audit.tenant, sizeof(whose));
            }
            struct sl_err err = SL_ERR_INIT;
            if (sl_packet_recv(fd, &packet, NULL, &err) < 0)
                fail_msg("%s", err.msg);
            m = (enum sl_msg_type)packet.h.type;
        }
        (void)close(fd);
    }
    assert_int_equal(kind, SL_AUDIT_STRANGER);
    assert_string_equal(whose, "");
    assert_true(tenant_usage(&t).overhead_bytes < HELD);
    assert_int_equal(program_end(&bare), 0);
    assert_int_equal(program_end(&p), 0);
    kept(SL_MSG_REMOVE, &t);
}

static void foreign(const char *amount)
{
    char command[512];
    (void)snprintf(command, sizeof(command), "%s/sluice-sim-ctl foreign 0 %s",
                   getenv("SLUICE_TEST_DRIVER"), amount);
    assert_int_equal(system(command), 0);
}

/* A driver that is slow to give memory back: what is nobody's is looked at until it is gone. The seconds
 * are part of what is tested: the arbiter looked every 16 s by then. */
static void test_slow_driver(void **state)
{
    (void)state;
    struct tenant t;
    struct program stays, ends;
    const struct timespec slow = {.tv_sec = 7};
    tenant_begin(&world, "slow", 60 * GIB, &t);
    start(&t, &stays);
    start(&t, &ends);
    hold(&ends);
    EVENTUALLY(tenant_usage(&t).overhead_bytes > 0);
    foreign("40Gi"); /* still taken after its end */
    assert_int_equal(program_end(&ends), 0);
    EVENTUALLY(world_card().used_bytes >= HELD);
    (void)nanosleep(&slow, NULL);
    foreign("0");
    for (int tries = 0; tries < 600 && world_card().used_bytes >= HELD; tries++)
        (void)usleep(10000);
    assert_true(world_card().used_bytes < GIB);
    assert_int_equal(program_end(&stays), 0);
    tenant_end(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        WORLD_CASE(test_last_one),
        WORLD_CASE(test_not_of_the_container),
        WORLD_CASE(test_slow_driver),
    };
    return WORLD_MAIN(tests, argc, argv);
}
