/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steering against random callers and in random worlds. SLUICE_SEED runs one seed alone, SLUICE_SEEDS that many.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "steer_case.h"

#define IDS 24U

static uint64_t below(uint64_t *rng, uint64_t n)
{
    return world_random(rng) % n;
}

static void for_seeds(uint64_t count, void (*check)(uint64_t seed))
{
    const char *one = getenv("SLUICE_SEED"), *many = getenv("SLUICE_SEEDS");
    uint64_t first = one ? strtoull(one, NULL, 0) : 1;
    uint64_t last = one ? first : many ? strtoull(many, NULL, 0) : count;
    for (uint64_t seed = first; seed <= last; seed++)
        check(seed);
}

static struct sl_steer_spec random_spec(uint64_t *rng, uint32_t gpus)
{
    static const uint32_t limits[] = {1, 15, 100, 300, 500, 900, 999, 1000, 1000, 1000, 1000, 5000};
    return (struct sl_steer_spec){.gpu_mask = 1 + (uint32_t)below(rng, (1U << gpus) - 1),
                                  .request_permille = (uint32_t)below(rng, 1001),
                                  .limit_permille = limits[below(rng, 12)],
                                  .priority = below(rng, 3) ? NORMAL : 1 + (uint32_t)below(rng, 3)};
}

/* --- random callers ---------------------------------------------------------------------------- */

struct caller {
    struct sl_steer *s;
    uint64_t rng, now_ns, seed;
    bool there[IDS];
    struct sl_steer_seen seen[IDS];
};

static uint64_t random_count(uint64_t *rng, uint64_t now)
{
    switch (below(rng, 8)) {
    case 0:
        return world_random(rng);
    case 1:
        return 0;
    case 2:
        return now / 2;
    default:
        return now + below(rng, 10 * MS);
    }
}

static void say_something(struct caller *c, uint32_t id)
{
    struct sl_steer_seen *seen = &c->seen[id];
    seen->saturated_ns = random_count(&c->rng, seen->saturated_ns);
    seen->work_ns = random_count(&c->rng, seen->work_ns);
    seen->launches = random_count(&c->rng, seen->launches);
    seen->groups =
        below(&c->rng, 4) ? (uint32_t)below(&c->rng, 3) : (uint32_t)world_random(&c->rng);
    seen->active = below(&c->rng, 3) != 0;
    seen->pending = below(&c->rng, 2) != 0;
    sl_steer_report(c->s, id, seen);
}

static void pass_time(struct caller *c)
{
    static const uint64_t steps[] = {1, US, 100 * US, MS, 5 * MS, 60 * MS, 300 * MS, 2 * S};
    uint64_t kind = below(&c->rng, 300);
    if (kind == 0)
        c->now_ns += 5 * 3600 * S;
    else if (kind == 1)
        c->now_ns -= below(&c->rng, c->now_ns + 1);
    else if (kind == 2)
        c->now_ns = world_random(&c->rng) >> 1;
    else
        c->now_ns += below(&c->rng, steps[below(&c->rng, 8)]);
}

static void decide_and_check(struct caller *c)
{
    struct sl_steer_order orders[IDS];
    size_t max = 1 + below(&c->rng, IDS), n;
    uint64_t next;
    n = sl_steer_decide(c->s, c->now_ns, orders, max, &next);
    for (size_t i = 0; i < n; i++) {
        if (orders[i].id >= IDS || !c->there[orders[i].id])
            fail_msg("seed %llu: an order for %u", (unsigned long long)c->seed, orders[i].id);
        if (orders[i].off_until_ns > c->now_ns + SL_STEER_MOST_OFF_NS || orders[i].slice_us < 20 ||
            orders[i].slice_us > 100000)
            fail_msg("seed %llu: tenant %u: slice %u us, off for %lld ns",
                     (unsigned long long)c->seed, orders[i].id, orders[i].slice_us,
                     (long long)(orders[i].off_until_ns - c->now_ns));
    }
    if (n > max || (next <= c->now_ns && n < max))
        fail_msg("seed %llu: %zu orders of %zu, next in %lld ns", (unsigned long long)c->seed, n,
                 max, (long long)(next - c->now_ns));
}

static void check_stats(const struct caller *c)
{
    for (uint32_t id = 0; id < IDS; id++) {
        struct sl_steer_stats st;
        assert_int_equal(sl_steer_stats(c->s, id, &st), c->there[id] ? 0 : -ENOENT);
        if (c->there[id] && (st.share_1s_permille > 1000 || st.share_60s_permille > 1000 ||
                             st.window_permille > 1000 || st.debt_ns > SL_STEER_PERIOD_NS))
            fail_msg("seed %llu: tenant %u: shares %u and %u, window %u, debt %llu",
                     (unsigned long long)c->seed, id, st.share_1s_permille, st.share_60s_permille,
                     st.window_permille, (unsigned long long)st.debt_ns);
    }
}

static void check_caller(uint64_t seed)
{
    struct sl_err err = SL_ERR_INIT;
    struct caller c = {.rng = seed, .seed = seed, .now_ns = seed * S};
    c.s = sl_steer_create();
    for (int step = 0; step < 600; step++) {
        uint32_t id = (uint32_t)below(&c.rng, IDS);
        struct sl_steer_spec spec = random_spec(&c.rng, SL_STEER_MAX_GPUS);
        spec.paused = below(&c.rng, 8) == 0;
        switch (below(&c.rng, 12)) {
        case 0:
            assert_int_equal(sl_steer_add(c.s, id, &spec, c.now_ns, &err),
                             c.there[id] ? -EEXIST : 0);
            c.there[id] = true;
            break;
        case 1:
            assert_int_equal(sl_steer_set(c.s, id, &spec, &err), c.there[id] ? 0 : -ENOENT);
            break;
        case 2:
            if (below(&c.rng, 4) == 0) {
                sl_steer_remove(c.s, id);
                c.there[id] = false;
            }
            break;
        case 3:
        case 4:
        case 5:
        case 6:
            say_something(&c, id);
            break;
        default:
            pass_time(&c);
            decide_and_check(&c);
        }
        check_stats(&c);
    }
    sl_steer_destroy(c.s);
}

static void random_callers(void **state)
{
    (void)state;
    for_seeds(400, check_caller);
}

/* --- random worlds ----------------------------------------------------------------------------- */

static struct world_load random_load(uint64_t *rng)
{
    static const uint64_t kernels[] = {20 * US, 100 * US, 2 * MS, 20 * MS, 2 * S};
    struct world_load kinds[] = {saturating(kernels[below(rng, 5)]),
                                 saturating(100 * US),
                                 synchronising(),
                                 launch_bound(),
                                 requests(),
                                 training()};
    return kinds[below(rng, 6)];
}

/* A tenant of a higher priority on one of its GPUs. */
static bool is_lower(uint32_t id)
{
    const struct world_tenant *t = &world->t[id];
    for (uint32_t i = 0; i < WORLD_TENANTS; i++)
        if (world->t[i].used && world->t[i].spec.priority > t->spec.priority &&
            (world->t[i].spec.gpu_mask & t->spec.gpu_mask))
            return true;
    return false;
}

static void check_offs(uint64_t seed)
{
    for (uint32_t id = 0; id < WORLD_TENANTS; id++) {
        const struct world_tenant *t = &world->t[id];
        if (t->used && t->longest_off_ns > S && t->spec.limit_permille >= 1000 && !is_lower(id))
            fail_msg("seed %llu: tenant %u was off for %llu ms", (unsigned long long)seed, id,
                     (unsigned long long)(t->longest_off_ns / MS));
    }
}

static void start_tenant(uint64_t *rng, uint32_t id, uint32_t gpus)
{
    struct sl_steer_spec spec = random_spec(rng, gpus);
    world_add(world, id, spec);
    for (uint32_t gpu = 0; gpu < gpus; gpu++)
        if (spec.gpu_mask & 1U << gpu)
            world_start(world, id, gpu, random_load(rng));
}

static void check_world(uint64_t seed)
{
    uint64_t rng = seed;
    uint32_t gpus = 1 + (uint32_t)below(&rng, 3), n = 2 + (uint32_t)below(&rng, 7);
    start_afresh();
    world->jitter = seed;
    for (uint32_t id = 0; id < n; id++)
        start_tenant(&rng, id, gpus);
    for (int step = 0; step < 12; step++) {
        uint32_t id = (uint32_t)below(&rng, n);
        world_run(world, below(&rng, 400) * MS);
        if (world->fault[0])
            fail_msg("seed %llu: %s", (unsigned long long)seed, world->fault);
        check_offs(seed);
        for (uint32_t i = 0; i < n; i++)
            world->t[i].longest_off_ns = world->t[i].off_at_ns = 0;
        switch (below(&rng, 4)) {
        case 0:
            world_load_set(world, (uint32_t)below(&rng, world->n_procs), random_load(&rng));
            break;
        case 1: {
            struct sl_steer_spec spec = random_spec(&rng, gpus);
            spec.gpu_mask = world->t[id].spec.gpu_mask;
            world_set(world, id, spec);
            break;
        }
        case 2:
            world_stop(world, (uint32_t)below(&rng, world->n_procs));
            break;
        default:
            world_remove(world, id);
            start_tenant(&rng, id, gpus);
        }
    }
}

static void random_worlds(void **state)
{
    (void)state;
    for_seeds(150, check_world);
}

/*
 * Who keeps the GPU busy gets its part of what those it meets ask for, and no more than its limit. Beside light
 * ones slices are short, for their sake, and switching takes a part of the GPU. One that waits for bursts of
 * more than a millisecond says that it keeps the GPU busy although it does not use its slices, so what
 * others get beside it is known less well.
 */
static void check_fair(uint64_t seed)
{
    uint64_t rng = seed ^ 0xfa1;
    uint32_t n = 2 + (uint32_t)below(&rng, 4), sum = 0;
    bool mixed = false;
    start_afresh();
    world->jitter = seed;
    for (uint32_t id = 0; id < n; id++) {
        uint32_t request = 50 + (uint32_t)below(&rng, 500);
        sum += request;
        add_one(id, spec_of(request, below(&rng, 3) ? 1000 : request),
                below(&rng, 3) ? saturating(100 * US) : random_load(&rng));
    }
    world_run(world, 2 * S);
    struct world_shares s = world_shares(world, 3 * S);
    if (world->fault[0])
        fail_msg("seed %llu: %s", (unsigned long long)seed, world->fault);
    for (uint32_t id = 0; id < n; id++)
        mixed |= world->p[id].load.count != 0;
    for (uint32_t id = 0; id < n; id++) {
        uint32_t limit = world->t[id].spec.limit_permille, got = s.permille[id];
        uint32_t fair = world->t[id].spec.request_permille * 1000 / sum;
        fair = fair < limit ? fair : limit;
        if (!world->p[id].load.count && got < fair * (mixed ? 70 : 90) / 100)
            fail_msg("seed %llu: tenant %u got %u permille of %u", (unsigned long long)seed, id,
                     got, fair);
        if (got > (mixed ? limit * 3 / 2 : limit + 20))
            fail_msg("seed %llu: tenant %u got %u permille, its limit is %u",
                     (unsigned long long)seed, id, got, limit);
    }
}

static void random_shares(void **state)
{
    (void)state;
    for_seeds(150, check_fair);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_callers),
        T(random_worlds),
        T(random_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
