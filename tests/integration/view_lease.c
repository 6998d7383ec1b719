/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA and NVML tell a tenant the same: its lease, and its own processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tenant_world.h"

#define MIB   (1ULL << 20)
#define LIMIT (4 * GIB)

static struct world world;

static void start(const struct tenant *t, const char *device, struct program *p)
{
    const char *argv[] = {"view_tenant", device, NULL};
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

struct view {
    uint64_t cuda_free, cuda_total, device_total, free, used, total, v2_reserved, v2_used, v2_total;
};

static struct view look(struct program *p)
{
    struct view v;
    char line[512];
    program_ask(p, "memory", line, sizeof(line));
    if (sscanf(line, "memory %lu %lu %lu %lu %lu %lu %lu %lu %lu", &v.cuda_free, &v.cuda_total,
               &v.device_total, &v.free, &v.used, &v.total, &v.v2_reserved, &v.v2_used,
               &v.v2_total) != 9)
        fail_msg("%s", line);
    return v;
}

static void test_limited(void **state)
{
    (void)state;
    struct tenant a, b;
    struct program p, q;
    tenant_begin(&world, "limited", LIMIT, &a);
    tenant_begin(&world, "neighbour", LIMIT, &b);
    start(&a, "0", &p);
    start(&b, "0", &q);
    hold(&p, 100 * MIB, "held 0\n");
    hold(&q, 3 * GIB, "held 0\n"); /* the neighbour's memory is not to be seen */
    struct view v = look(&p);
    struct usage u = tenant_usage(&a);
    assert_int_equal(u.used_bytes, 100 * MIB);
    assert_int_equal(v.cuda_total, LIMIT);
    assert_int_equal(v.device_total, LIMIT);
    assert_int_equal(v.total, LIMIT);
    assert_int_equal(v.v2_total, LIMIT);
    assert_int_equal(v.used, u.used_bytes + u.overhead_bytes);
    assert_int_equal(v.v2_used, v.used);
    assert_int_equal(v.free, LIMIT - v.used);
    assert_int_equal(v.cuda_free, v.free);
    assert_int_equal(v.v2_reserved, 0);

    /* A limit set while it runs is seen at once; below what is used, nothing is free. */
    tenant_set_limit(&a, 2 * LIMIT);
    assert_int_equal(look(&p).total, 2 * LIMIT);
    tenant_set_limit(&a, u.overhead_bytes + 50 * MIB);
    v = look(&p);
    assert_int_equal(v.cuda_free, 0);
    assert_int_equal(v.free, 0);
    assert_int_equal(v.used, v.total);
    hold(&p, MIB, "held 2\n");
    (void)program_end(&p);
    (void)program_end(&q);
    tenant_end(&a);
    tenant_end(&b);
}

static void test_unlimited(void **state)
{
    (void)state;
    struct tenant t;
    struct program p, bare;
    tenant_begin(&world, "unlimited", 0, &t);
    start(&t, "0", &p);
    start(NULL, "0", &bare);
    struct view v = look(&p), native = look(&bare);
    assert_int_equal(v.cuda_total, native.cuda_total);
    assert_int_equal(v.device_total, native.device_total);
    assert_int_equal(v.total, native.total);
    hold(&p, 10 * GIB, "held 0\n");
    assert_int_equal(tenant_usage(&t).used_bytes, 10 * GIB);
    (void)program_end(&p);
    (void)program_end(&bare);
    tenant_end(&t);
}

static void check_pids(const char *line, const char *what, const pid_t *pid, size_t count)
{
    char expected[128];
    size_t found = 0;
    assert_int_equal(strncmp(line, what, strlen(what)), 0);
    for (const char *s = strchr(line, ' '); s; s = strchr(s + 1, ' '))
        found++;
    if (found != count)
        fail_msg("%zu processes instead of %zu: %s", found, count, line);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(expected, sizeof(expected), " %d", pid[i]);
        if (!strstr(line, expected))
            fail_msg("process %d is missing: %s", pid[i], line);
    }
}

static void test_processes(void **state)
{
    (void)state;
    struct tenant a, b;
    struct program p[3];
    char line[512];
    tenant_begin(&world, "family", LIMIT, &a);
    tenant_begin(&world, "stranger", LIMIT, &b);
    start(&a, "0", &p[0]);
    start(&a, "0", &p[1]);
    start(&b, "0", &p[2]);
    const pid_t family[] = {p[0].pid, p[1].pid}, stranger[] = {p[2].pid};
    program_ask(&p[0], "processes", line, sizeof(line));
    check_pids(line, "processes", family, 2);
    program_ask(&p[2], "processes", line, sizeof(line));
    check_pids(line, "processes", stranger, 1);
    (void)program_end(&p[1]);
    EVENTUALLY(tenant_usage(&a).processes == 1);
    program_ask(&p[0], "processes", line, sizeof(line));
    check_pids(line, "processes", family, 1);
    /* Utilisation samples: of its own processes, or none at all (6: not found). */
    program_ask(&p[0], "samples", line, sizeof(line));
    (void)snprintf(line + 400, 100, " %d", p[2].pid);
    assert_null(strstr(line, line + 400));
    (void)program_end(&p[0]);
    (void)program_end(&p[2]);
    tenant_end(&a);
    tenant_end(&b);
}

/* On a machine with two cards and a lease on the second, the first is there but not to be used. */
static void test_other_device(void **state)
{
    (void)state;
    union sl_packet packet;
    struct program p;
    struct tenant t = {.world = &world, .control = world_connect(&world)};
    struct sl_msg_lease ask = lease_ask("second", LIMIT);
    char line[256];
    ask.gpu_count = 1;
    (void)snprintf(ask.gpu[0], sizeof(ask.gpu[0]), "1");
    if (world_call(t.control, &ask.h, &packet) != SL_MSG_CREATED)
        fail_msg("no tenant: %s", packet.text.text);
    memcpy(t.name, packet.created.name, sizeof(t.name));
    memcpy(t.attach_path, packet.created.attach_path, sizeof(t.attach_path));
    start(&t, "1", &p);
    assert_int_equal(look(&p).total, LIMIT);
    assert_int_equal(look(&p).cuda_total, LIMIT);
    program_ask(&p, "device 0", line, sizeof(line));
    assert_string_equal(line, "device 0 2 0 4 0\n");
    hold(&p, MIB, "held 0\n");
    (void)program_end(&p);
    tenant_end(&t);
}

static int begin(void **state)
{
    (void)state;
    (void)snprintf(world.dir, sizeof(world.dir), "/tmp/sluice-test-XXXXXX");
    assert_non_null(mkdtemp(world.dir));
    char file[128];
    (void)snprintf(file, sizeof(file), "%s/sim.state", world.dir);
    (void)setenv("SLUICE_SIM", "h200x2", 1);
    (void)setenv("SLUICE_SIM_STATE", file, 1);
    world_start(&world);
    return 0;
}

static int end(void **state)
{
    (void)state;
    world_end(&world);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unlimited), /* first: nothing of the card is promised yet */
        cmocka_unit_test(test_limited),
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_other_device),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
