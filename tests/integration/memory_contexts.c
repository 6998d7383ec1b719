/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts count with what they themselves take, and free what was allocated in them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tenant_world.h"

#define MIB (1ULL << 20)

static struct world world;

static void start(const struct tenant *t, struct program *p)
{
    const char *argv[] = {"memory_contexts_tenant", NULL};
    program_start(t, argv, NULL, p);
}

static void ask(struct program *p, const char *request, const char *answer)
{
    char line[64];
    program_ask(p, request, line, sizeof(line));
    line[strcspn(line, "\n")] = '\0';
    if (strcmp(line, answer) != 0)
        fail_msg("%s: %s instead of %s", request, line, answer);
}

static void test_each_kind(void **state)
{
    (void)state;
    static const char *const kinds[] = {"v1", "v2", "v3", "v4", "primary"};
    struct tenant t;
    struct program p;
    tenant_begin(&world, "kinds", 16 * GIB, &t);
    start(&t, &p);
    for (size_t i = 0; i < 5; i++) {
        ask(&p, kinds[i], "context 0");
        struct usage u = tenant_usage(&t);
        assert_true(u.overhead_bytes > 0); /* measured before the call returned */
        assert_int_equal(u.used_bytes, 0);
        ask(&p, "hold", "held 0");
        ask(&p, "hold", "held 0");
        assert_int_equal(tenant_usage(&t).used_bytes, 4 * MIB);
        ask(&p, "end", "ended 0");
        assert_int_equal(tenant_usage(&t).used_bytes, 0);
        EVENTUALLY(tenant_usage(&t).overhead_bytes < u.overhead_bytes);
    }
    (void)program_end(&p);
    tenant_end(&t);
}

/* Only what was allocated in the ended context goes back. */
static void test_two_at_once(void **state)
{
    (void)state;
    struct tenant t;
    struct program p;
    tenant_begin(&world, "two", 16 * GIB, &t);
    start(&t, &p);
    ask(&p, "primary", "context 0");
    ask(&p, "hold", "held 0");
    ask(&p, "v2", "context 0");
    ask(&p, "hold", "held 0");
    ask(&p, "hold", "held 0");
    assert_int_equal(tenant_usage(&t).used_bytes, 6 * MIB);
    ask(&p, "primary", "context 0"); /* a second reference to the first one */
    ask(&p, "end", "ended 0");
    assert_int_equal(tenant_usage(&t).used_bytes, 6 * MIB);
    ask(&p, "end", "ended 0");
    assert_int_equal(tenant_usage(&t).used_bytes, 2 * MIB);
    ask(&p, "end", "ended 0");
    assert_int_equal(tenant_usage(&t).used_bytes, 0);
    (void)program_end(&p);
    tenant_end(&t);
}

/* A context that alone takes more than the tenant has is undone and refused as out of memory. */
static void test_too_large(void **state)
{
    (void)state;
    static const char *const kinds[] = {"v1", "v2", "v3", "v4", "primary"};
    struct tenant t;
    struct program p;
    tenant_begin(&world, "tiny", 16 * MIB, &t);
    start(&t, &p);
    for (size_t i = 0; i < 5; i++) {
        ask(&p, kinds[i], "context 2");
        EVENTUALLY(tenant_usage(&t).overhead_bytes == 0);
    }
    assert_true(tenant_usage(&t).oom_count >= 5);
    tenant_set_limit(&t, 16 * GIB);
    ask(&p, "primary", "context 0");
    ask(&p, "hold", "held 0");
    (void)program_end(&p);
    tenant_end(&t);
}

static int begin(void **state)
{
    (void)state;
    world_begin(&world);
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
        cmocka_unit_test(test_each_kind),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_too_large),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
