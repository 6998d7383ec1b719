/* SPDX-License-Identifier: Apache-2.0 */
/* The file of the system's arbiter: what it means, for whom, and line and column of every mistake. */
#include "arbiter/rules.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "arbiter/subuid.h"
#include "base/cleanup.h"

#define GI (1ULL << 30)

static struct sl_rules *rules(const char *text)
{
    struct sl_rules *r = NULL;
    struct sl_err err = SL_ERR_INIT;
    if (sl_rules_parse("f.yaml", text, strlen(text), &r, &err) < 0)
        fail_msg("refused: %s", err.msg);
    for (size_t i = 0; i < r->user_count; i++) { /* u1 has uid 1, g7 has gid 7 */
        r->users[i].known = true;
        r->users[i].id = (unsigned)(r->users[i].name[1] - '0');
    }
    for (size_t i = 0; i < r->group_count; i++) {
        r->groups[i].known = true;
        r->groups[i].id = (unsigned)(r->groups[i].name[1] - '0');
    }
    return r;
}

static void a_file_says_what_it_says(void **state)
{
    (void)state;
    struct sl_rules *r = rules("# who may use the cards\n"
                               "group: gpu-people   # a group of this system\n"
                               "\n"
                               "defaults:\n"
                               "    memory: 40Gi\n"
                               "    cores: 12.5%\n"
                               "    priority: low\n"
                               "    tenants: 4\n"
                               "users:\n"
                               "  u1: {memory: 80Gi, \"priority\": 'high', }\n"
                               "  \"u2\":\n"
                               "    cores: 200\n"
                               "groups:\n"
                               "  g7: {tenants: unlimited}\n"
                               "  g8: {}\n");
    assert_string_equal(r->group, "gpu-people");
    assert_int_equal(r->defaults.of[SL_LIMIT_MEMORY].most, 40 * GI);
    assert_int_equal(r->defaults.of[SL_LIMIT_MEMORY].line, 5);
    assert_int_equal(r->defaults.of[SL_LIMIT_CORES].most, 125);
    assert_int_equal(r->defaults.of[SL_LIMIT_PRIORITY].most, 0);
    assert_int_equal(r->defaults.of[SL_LIMIT_TENANTS].most, 4);
    assert_int_equal(r->user_count, 2);
    assert_int_equal(r->users[0].limits.of[SL_LIMIT_MEMORY].line, 10);
    assert_int_equal(r->users[1].limits.of[SL_LIMIT_CORES].most, 2000);
    assert_int_equal(r->groups[0].limits.of[SL_LIMIT_TENANTS].most, SL_LIMIT_NONE);
    sl_rules_free(r);
}

static void an_empty_file_limits_nobody(void **state)
{
    (void)state;
    static const char *const empty[] = {"",         "\n\n",          "# nothing\n", "   \n  # x\n",
                                        "users:\n", "defaults: {}\n"};
    for (size_t i = 0; i < SL_ARRAY_LEN(empty); i++) {
        struct sl_rules *r = rules(empty[i]);
        struct sl_limits l = sl_rules_limits(r, 1, NULL, 0);
        assert_string_equal(r->group, SL_RULES_GROUP);
        for (int k = 0; k < SL_LIMITS; k++)
            assert_int_equal(l.of[k].most, SL_LIMIT_NONE);
        sl_rules_free(r);
    }
}

/* Key by key: the user's own entry, else the first group of the file, else the default. */
static void the_nearest_entry_counts(void **state)
{
    (void)state;
    struct sl_rules *r = rules("defaults: {memory: 1Gi, cores: 10, tenants: 1}\n"
                               "users:\n"
                               "  u1: {memory: 4Gi}\n"
                               "  u3: {memory: unlimited}\n"
                               "groups:\n"
                               "  g8: {memory: 2Gi, cores: 20}\n"
                               "  g7: {memory: 3Gi, cores: 30, tenants: 3}\n");
    const gid_t both[] = {7, 8}, one[] = {5, 7};
    struct sl_limits l = sl_rules_limits(r, 1, both, 2);
    assert_int_equal(l.of[SL_LIMIT_MEMORY].most, 4 * GI);
    assert_int_equal(l.of[SL_LIMIT_MEMORY].line, 3);
    assert_int_equal(l.of[SL_LIMIT_CORES].most, 200);
    assert_int_equal(l.of[SL_LIMIT_CORES].line, 6);
    assert_int_equal(l.of[SL_LIMIT_TENANTS].most, 1); /* g8 does not say: the default, not g7 */
    l = sl_rules_limits(r, 2, one, 2);
    assert_int_equal(l.of[SL_LIMIT_MEMORY].most, 3 * GI);
    l = sl_rules_limits(r, 2, NULL, 0);
    assert_int_equal(l.of[SL_LIMIT_MEMORY].most, 1 * GI);
    l = sl_rules_limits(r, 3, one, 2);
    assert_int_equal(l.of[SL_LIMIT_MEMORY].most, SL_LIMIT_NONE);
    assert_int_equal(l.of[SL_LIMIT_MEMORY].line, 4);
    r->users[0].known = false; /* a user who is gone has no uid */
    l = sl_rules_limits(r, 1, NULL, 0);
    assert_int_equal(l.of[SL_LIMIT_MEMORY].most, 1 * GI);
    sl_rules_free(r);
}

static void every_mistake_has_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *place, *part;
    } bad[] = {
        {"memory: 4Gi\n", "f.yaml:1:1: ", "no key \"memory\""},
        {"user: {}\n", "f.yaml:1:1: ", "did you mean \"users\""},
        {"defaults:\n  memmory: 4Gi\n", "f.yaml:2:3: ", "did you mean \"memory\""},
        {"defaults:\n  memory: 4Gb\n", "f.yaml:2:11: ", "unit"},
        {"defaults:\n  memory: 25%\n", "f.yaml:2:11: ", "percentage of one"},
        {"defaults:\n  memory:\n", "f.yaml:2:3: ", "has no value"},
        {"defaults:\n  memory: ''\n", "f.yaml:2:3: ", "has no value"},
        {"defaults:\n  memory: {a: b}\n", "f.yaml:2:3: ", "has no value"},
        {"defaults: {cores: 0}\n", "f.yaml:1:19: ", "not a share"},
        {"defaults: {cores: 0.01}\n", "f.yaml:1:19: ", "not a share"},
        {"defaults: {cores: 30:50}\n", "f.yaml:1:19: ", "not a share"},
        {"defaults: {cores: 99999}\n", "f.yaml:1:19: ", "not a share"},
        {"defaults: {tenants: -1}\n", "f.yaml:1:21: ", "not a number"},
        {"defaults: {tenants: 4x}\n", "f.yaml:1:21: ", "not a number"},
        {"defaults: {priority: highest}\n", "f.yaml:1:22: ", "priority"},
        {"defaults: 4\n", "f.yaml:1:11: ", "takes keys"},
        {"users: alice\n", "f.yaml:1:8: ", "takes keys"},
        {"users:\n  u1: 5Gi\n", "f.yaml:2:7: ", "takes keys"},
        {"group:\n", "f.yaml:1:1: ", "no value"},
        {"group: a\ngroup: b\n", "f.yaml:2:1: ", "first in line 1"},
        {"users:\n  u1: {}\n  u2: {}\n  u1: {}\n", "f.yaml:4:3: ", "first in line 2"},
        {"defaults: {memory: 1Gi, memory: 2Gi}\n", "f.yaml:1:25: ", "first in line 1"},
        {"defaults:\n\tmemory: 1Gi\n", "f.yaml:2:1: ", "tab"},
        {"defaults: {\tmemory: 1Gi}\n", "f.yaml:1:12: ", "tab"},
        {"defaults:\n  memory: 1Gi\r\n", "f.yaml:2:14: ", "0x0d"},
        {"group: \xff\n", "f.yaml:1:1: ", "UTF-8"},
        {"- a\n", "f.yaml:1:1: ", "list"},
        {"group: [a]\n", "f.yaml:1:8: ", "\"[\""},
        {"group: *a\n", "f.yaml:1:8: ", "\"*\""},
        {"group: a b: c\n", "f.yaml:1:11: ", "after the value"},
        {"group a\n", "f.yaml:1:8: ", "colon"},
        {"group:a\n", "f.yaml:1:8: ", "colon"},
        {": a\n", "f.yaml:1:1: ", "word is missing"},
        {"group: 'a\n", "f.yaml:1:8: ", "closing"},
        {"group: \"\\n\"\n", "f.yaml:1:9: ", "backslash"},
        {"defaults: {memory: 1Gi\n", "f.yaml:1:11: ", "matching }"},
        {"defaults: {memory: 1Gi cores: 5}\n", "f.yaml:1:11: ", "matching }"},
        {"defaults: {memory: 1Gi}}\n", "f.yaml:1:24: ", "after the value"},
        {"defaults: {memory: 1Gi} 5\n", "f.yaml:1:25: ", "after the value"},
        {"defaults:\n    memory: 1Gi\n  cores: 5\n", "f.yaml:3:3: ", "indented"},
        {"defaults:\n  memory: 1Gi\n    cores: 5\n", "f.yaml:3:5: ", "indented"},
        {"  group: a\nusers:\n", "f.yaml:2:1: ", "indented"},
        {"a:\n b:\n  c:\n   d:\n    e:\n     f:\n      g:\n       h:\n        i: 1\n",
         "f.yaml:", "deep"},
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        struct sl_rules *r = NULL;
        struct sl_err err = SL_ERR_INIT;
        int rc = sl_rules_parse("f.yaml", bad[i].text, strlen(bad[i].text), &r, &err);
        if (rc >= 0 || strncmp(err.msg, bad[i].place, strlen(bad[i].place)) != 0 ||
            !strstr(err.msg, bad[i].part))
            fail_msg("%s\ngave %d \"%s\", not \"%s…%s\"", bad[i].text, rc, err.msg, bad[i].place,
                     bad[i].part);
    }
    struct sl_rules *r = NULL;
    assert_int_equal(sl_rules_parse("f", "group: a\0b", 10, &r, NULL), -EINVAL);
}

static void a_group_that_does_not_exist_is_refused(void **state)
{
    (void)state;
    static const char text[] = "users:\n  no-such-user: {}\ngroup: no-such-group\n";
    struct sl_rules *r = NULL;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_rules_parse("f.yaml", text, strlen(text), &r, NULL), 0);
    assert_int_equal(sl_rules_resolve(r, &err), -ENOENT);
    assert_non_null(strstr(err.msg, "f.yaml:3:8: "));
    assert_non_null(strstr(err.msg, "groupadd --system no-such-group"));
    assert_false(r->users[0].known);
    sl_rules_free(r);
    static const char good[] = "users:\n  root: {}\n  4711: {}\ngroup: 0\n";
    assert_int_equal(sl_rules_parse("f.yaml", good, strlen(good), &r, NULL), 0);
    assert_int_equal(sl_rules_resolve(r, NULL), 0);
    assert_true(r->users[0].known && r->users[0].id == 0);
    assert_true(r->users[1].known && r->users[1].id == 4711);
    assert_int_equal(r->gid, 0);
    sl_rules_free(r);
}

static void containers_run_with_subordinate_uids(void **state)
{
    (void)state;
    static const char text[] = "alice:100000:65536\nbob:200000:1\n1003:300000:10\n"
                               "alice:x:5\nalice:7\nalice\n:1:2\nalice:400000:10 \nalice:500000:3";
    assert_true(sl_subuid_has(text, "alice", 1001, 100000));
    assert_true(sl_subuid_has(text, "alice", 1001, 165535));
    assert_false(sl_subuid_has(text, "alice", 1001, 165536));
    assert_false(sl_subuid_has(text, "alice", 1001, 99999));
    assert_false(sl_subuid_has(text, "alice", 1001, 200000));
    assert_false(sl_subuid_has(text, "ali", 1001, 100000));
    assert_false(sl_subuid_has(text, NULL, 1001, 100000));
    assert_true(sl_subuid_has(text, NULL, 1003, 300009));
    assert_false(sl_subuid_has(text, "alice", 1001, 7));
    assert_false(sl_subuid_has(text, "alice", 1001, 400001));
    assert_true(sl_subuid_has(text, "alice", 1001, 500002));
    assert_false(sl_subuid_has("", "alice", 1001, 1));
}

/* --- the decision --- */

static struct sl_limits_use use(uint64_t memory, uint64_t cores, uint64_t tenants,
                                uint64_t priority)
{
    return (struct sl_limits_use){.of = {memory, cores, tenants, priority}};
}

static void the_sum_counts(void **state)
{
    (void)state;
    struct sl_limits l = sl_limits_none();
    struct sl_limits_use none = use(0, 0, 0, 0), asked = use(4, 300, 1, 2);
    struct sl_limits_use others = use(7, 0, 3, 2);
    assert_int_equal(sl_limits_check(&l, &others, &none, &asked).answer, SL_LIMITS_FINE);
    l.of[SL_LIMIT_MEMORY] = (struct sl_limit){11, 5};
    assert_int_equal(sl_limits_check(&l, &others, &none, &asked).answer, SL_LIMITS_FINE);
    l.of[SL_LIMIT_MEMORY].most = 10;
    struct sl_limits_verdict v = sl_limits_check(&l, &others, &none, &asked);
    assert_int_equal(v.answer, SL_LIMITS_LATER);
    assert_int_equal(v.limit.line, 5);
    assert_int_equal(v.used, 7);
    l.of[SL_LIMIT_MEMORY].most = 3;
    assert_int_equal(sl_limits_check(&l, &others, &none, &asked).answer, SL_LIMITS_NEVER);
    l.of[SL_LIMIT_MEMORY].most = UINT64_MAX - 1; /* nothing overflows */
    others.of[SL_LIMIT_MEMORY] = UINT64_MAX;
    assert_int_equal(sl_limits_check(&l, &others, &none, &asked).answer, SL_LIMITS_LATER);
}

static void never_comes_before_later(void **state)
{
    (void)state;
    struct sl_limits l = sl_limits_none();
    struct sl_limits_use none = use(0, 0, 0, 0), asked = use(4, 300, 1, 2);
    struct sl_limits_use others = use(7, 0, 0, 0);
    l.of[SL_LIMIT_MEMORY] = (struct sl_limit){10, 1};
    l.of[SL_LIMIT_PRIORITY] = (struct sl_limit){1, 2};
    struct sl_limits_verdict v = sl_limits_check(&l, &others, &none, &asked);
    assert_int_equal(v.answer, SL_LIMITS_NEVER);
    assert_int_equal(v.kind, SL_LIMIT_PRIORITY);
    l.of[SL_LIMIT_TENANTS] = (struct sl_limit){0, 3};
    assert_int_equal(sl_limits_check(&l, &others, &none, &asked).kind, SL_LIMIT_TENANTS);
}

static void what_it_has_is_not_taken_away(void **state)
{
    (void)state;
    struct sl_limits l = sl_limits_none();
    struct sl_limits_use has = use(8, 0, 1, 2), others = use(7, 0, 0, 0), asked = use(6, 0, 1, 2);
    l.of[SL_LIMIT_MEMORY] = (struct sl_limit){5, 1};
    l.of[SL_LIMIT_PRIORITY] = (struct sl_limit){0, 1};
    l.of[SL_LIMIT_TENANTS] = (struct sl_limit){0, 1};
    assert_int_equal(sl_limits_check(&l, &others, &has, &asked).answer, SL_LIMITS_FINE);
    asked.of[SL_LIMIT_MEMORY] = 9;
    assert_int_equal(sl_limits_check(&l, &others, &has, &asked).answer, SL_LIMITS_NEVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_says_what_it_says),
        cmocka_unit_test(an_empty_file_limits_nobody),
        cmocka_unit_test(the_nearest_entry_counts),
        cmocka_unit_test(every_mistake_has_its_place),
        cmocka_unit_test(a_group_that_does_not_exist_is_refused),
        cmocka_unit_test(containers_run_with_subordinate_uids),
        cmocka_unit_test(the_sum_counts),
        cmocka_unit_test(never_comes_before_later),
        cmocka_unit_test(what_it_has_is_not_taken_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
