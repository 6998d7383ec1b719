/* SPDX-License-Identifier: Apache-2.0 */
/* MIG geometry alone: what fits beside what, and how it is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/mig.h"

enum { G7 = 0, G4 = 5, G3 = 9, G2 = 14, G1X2 = 15, G1 = 19, G1ME = 20 };

static size_t row(const struct sl_sim_profile *p, uint32_t id)
{
    int r = sl_sim_mig_row_by_id(p, id);
    assert_true(r >= 0);
    return (size_t)r;
}

static int create(const struct sl_sim_profile *p, struct sl_sim_mig_state *s, uint32_t id, int at)
{
    return sl_sim_mig_create_gi(p, s, row(p, id), at);
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *key, *names[7];
    } want[] = {
        {"a100-40g",
         {"7g.40gb", "4g.20gb", "3g.20gb", "2g.10gb", "1g.10gb", "1g.5gb", "1g.5gb+me"}},
        {"a100-80g",
         {"7g.80gb", "4g.40gb", "3g.40gb", "2g.20gb", "1g.20gb", "1g.10gb", "1g.10gb+me"}},
        {"h100-80g",
         {"7g.80gb", "4g.40gb", "3g.40gb", "2g.20gb", "1g.20gb", "1g.10gb", "1g.10gb+me"}},
        {"h200", {"7g.141gb", "4g.71gb", "3g.71gb", "2g.35gb", "1g.35gb", "1g.18gb", "1g.18gb+me"}},
        {"b200", {"7g.180gb", "4g.90gb", "3g.90gb", "2g.45gb", "1g.45gb", "1g.23gb", "1g.23gb+me"}},
    };
    static const uint32_t ids[] = {G7, G4, G3, G2, G1X2, G1, G1ME};
    for (size_t i = 0; i < SL_ARRAY_LEN(want); i++) {
        const struct sl_sim_profile *p = sl_sim_profile_find(want[i].key);
        for (size_t k = 0; k < SL_ARRAY_LEN(ids); k++) {
            char name[32];
            sl_sim_mig_name(p, row(p, ids[k]), name, sizeof(name));
            assert_string_equal(name, want[i].names[k]);
            /* Whoever derives the name from the memory size must get the same one. */
            uint64_t mib = p->mig[row(p, ids[k])].memory_mib, total = p->memory_total_bytes >> 20;
            assert_int_equal((8 * mib + total - 1) / total, p->mig[row(p, ids[k])].size);
        }
        assert_true(sl_sim_mig_row_by_id(p, 3) < 0);
    }
    assert_null(sl_sim_profile_find("t4")->mig);
    assert_null(sl_sim_profile_find("l4")->mig);
}

static void test_seven(void **state)
{
    (void)state;
    const struct sl_sim_profile *p = sl_sim_profile_find("h200");
    struct sl_sim_mig_state s = {.enabled = 1};
    uint32_t starts = 0, ids = 0;
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(sl_sim_mig_room(p, &s, row(p, G1)), 7 - i);
        int slot = create(p, &s, G1, -1);
        assert_true(slot >= 0);
        starts |= 1u << s.gi[slot].start;
        ids |= 1u << s.gi[slot].id;
    }
    assert_int_equal(starts, 0x7f);
    assert_int_equal(__builtin_popcount(ids), 7);
    assert_int_equal(create(p, &s, G1, -1), -ENOSPC);
    /* Slice 7 is free memory without a compute slice: nothing can have it. */
    for (size_t r = 0; r < p->mig_count; r++)
        assert_int_equal(sl_sim_mig_room(p, &s, r), 0);
    assert_int_equal(sl_sim_mig_destroy_gi(&s, 3), 0);
    assert_int_equal(sl_sim_mig_room(p, &s, row(p, G1)), 1);
    assert_int_equal(create(p, &s, G1, -1), 3);
}

static void test_mixed(void **state)
{
    (void)state;
    const struct sl_sim_profile *p = sl_sim_profile_find("a100-80g");
    struct sl_sim_mig_state s = {.enabled = 1};
    /* 3g goes to the upper half by itself, so 4g still fits. */
    int a = create(p, &s, G3, -1), b = create(p, &s, G4, -1);
    assert_true(a >= 0 && b >= 0);
    assert_int_equal(s.gi[a].start, 4);
    assert_int_equal(s.gi[a].id, 1);
    assert_int_equal(s.gi[b].start, 0);
    assert_int_equal(s.gi[b].id, 2);
    for (size_t r = 0; r < p->mig_count; r++)
        assert_int_equal(sl_sim_mig_room(p, &s, r), 0);

    s = (struct sl_sim_mig_state){.enabled = 1};
    assert_true(create(p, &s, G3, -1) >= 0);
    assert_true(create(p, &s, G3, -1) >= 0);
    assert_int_equal(create(p, &s, G3, -1), -ENOSPC);
    assert_int_equal(create(p, &s, G4, -1), -ENOSPC);
    assert_int_equal(create(p, &s, G1, -1), -ENOSPC);

    s = (struct sl_sim_mig_state){.enabled = 1};
    for (int i = 0; i < 3; i++)
        assert_true(create(p, &s, G2, -1) >= 0);
    assert_int_equal(create(p, &s, G2, -1), -ENOSPC);
    assert_true(create(p, &s, G1, -1) >= 0); /* slice 6 */
    assert_int_equal(create(p, &s, G1, -1), -ENOSPC);

    s = (struct sl_sim_mig_state){.enabled = 1};
    for (int i = 0; i < 4; i++)
        assert_true(create(p, &s, G1X2, -1) >= 0);
    assert_int_equal(create(p, &s, G1X2, -1), -ENOSPC);

    s = (struct sl_sim_mig_state){.enabled = 1};
    assert_true(create(p, &s, G1ME, -1) >= 0);
    assert_int_equal(create(p, &s, G1ME, -1), -ENOSPC); /* one media engine */
    assert_int_equal(create(p, &s, G7, -1), -ENOSPC);
    assert_int_equal(sl_sim_mig_room(p, &s, row(p, G1)), 6);
}

static void test_placement(void **state)
{
    (void)state;
    const struct sl_sim_profile *p = sl_sim_profile_find("h100-80g");
    struct sl_sim_mig_state s = {.enabled = 1};
    assert_int_equal(create(p, &s, G3, 2), -EINVAL);
    assert_int_equal(create(p, &s, G4, 4), -EINVAL);
    assert_int_equal(create(p, &s, G1, 7), -EINVAL);
    assert_int_equal(create(p, &s, G1, 8), -EINVAL);
    assert_true(create(p, &s, G3, 0) >= 0);
    assert_int_equal(create(p, &s, G3, 0), -ENOSPC);
    assert_int_equal(create(p, &s, G4, 0), -ENOSPC);
    assert_int_equal(create(p, &s, G1, 3), -ENOSPC); /* overlaps the 3g's fourth memory slice */
    assert_true(create(p, &s, G2, 4) >= 0);
    int last = create(p, &s, G1, -1);
    assert_true(last >= 0);
    assert_int_equal(s.gi[last].start, 6);
    assert_int_equal(s.gi[last].id, 9);
}

static void test_compute_instances(void **state)
{
    (void)state;
    const struct sl_sim_profile *p = sl_sim_profile_find("h200");
    const struct sl_sim_device dev = {.uuid_text = "GPU-x"};
    struct sl_sim_mig_state s = {.enabled = 1};
    int g = create(p, &s, G3, -1);
    assert_true(g >= 0);
    size_t gi = (size_t)g;
    assert_int_equal(sl_sim_mig_ci_room(p, &s.gi[gi], 0), 3);
    assert_int_equal(sl_sim_mig_ci_room(p, &s.gi[gi], 1), 1);
    assert_int_equal(sl_sim_mig_ci_room(p, &s.gi[gi], 2), 1);
    assert_int_equal(sl_sim_mig_ci_room(p, &s.gi[gi], 3), 0);
    assert_int_equal(sl_sim_mig_create_ci(p, &s, gi, 4, -1), -EINVAL); /* 7c in 3g */
    int two = sl_sim_mig_create_ci(p, &s, gi, 1, -1), one = sl_sim_mig_create_ci(p, &s, gi, 0, -1);
    assert_true(two >= 0 && one >= 0);
    assert_int_equal(s.gi[gi].ci[one].start, 2);
    assert_int_equal(sl_sim_mig_create_ci(p, &s, gi, 0, -1), -ENOSPC);
    assert_int_equal(sl_sim_mig_destroy_gi(&s, gi), -EBUSY);

    uint8_t a[16], b[16];
    sl_sim_mig_uuid(&dev, &s.gi[gi], &s.gi[gi].ci[one], a);
    sl_sim_mig_uuid(&dev, &s.gi[gi], &s.gi[gi].ci[two], b);
    assert_memory_not_equal(a, b, sizeof(a));
    sl_sim_mig_destroy_ci(&s, gi, (size_t)one);
    assert_int_equal(sl_sim_mig_create_ci(p, &s, gi, 0, 2), one);
    sl_sim_mig_uuid(&dev, &s.gi[gi], &s.gi[gi].ci[one], b);
    assert_memory_equal(a, b, sizeof(a));

    char name[40];
    sl_sim_mig_ci_name(p, s.gi[gi].profile, 1, name, sizeof(name));
    assert_string_equal(name, "1c.3g.71gb");
    sl_sim_mig_ci_name(p, s.gi[gi].profile, 3, name, sizeof(name));
    assert_string_equal(name, "3g.71gb");
    assert_int_equal(sl_sim_mig_ci_sms(p, s.gi[gi].profile, 1), 20);
    sl_sim_mig_destroy_ci(&s, gi, (size_t)one);
    sl_sim_mig_destroy_ci(&s, gi, (size_t)two);
    assert_int_equal(sl_sim_mig_destroy_gi(&s, gi), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_seven),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_placement),
        cmocka_unit_test(test_compute_instances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
