/* SPDX-License-Identifier: Apache-2.0 */
/* Turn-taking: tenants, events, and the cost of turns. turns_plan.c decides. */
#include "policy/turns.h"

#include <errno.h>
#include <stdlib.h>

#include "base/xalloc.h"
#include "policy/errors.h"
#include "policy/turns_internal.h"

/* Weight of a tenant that asked for no cores. */
#define BEST_EFFORT_PERMILLE 10U
/* Products below stay far from overflow, whatever the clock does. */
#define MOST_ELAPSED_NS      (1000000 * SL_TIME_S)
#define MOST_LEAD_NS         (INT64_MAX / 4)

struct sl_turns *sl_turns_create(void)
{
    struct sl_turns *s = sl_xcalloc(1, sizeof(*s));
    for (uint32_t g = 0; g < SL_TURNS_MAX_GPUS; g++)
        s->gpu[g].holder = NOBODY;
    return s;
}

void sl_turns_destroy(struct sl_turns *turns)
{
    free(turns);
}

/* --- the cost of turns --------------------------------------------------------------------------- */

void sl_turns_accrue(const struct sl_turns *s, struct tenant *t)
{
    uint64_t elapsed = min_u64(s->now_ns - t->tokens_at_ns, MOST_ELAPSED_NS);
    t->tokens_at_ns = s->now_ns;
    if (capped(t))
        t->tokens = min_i64(t->tokens + (int64_t)(elapsed * t->spec.limit_permille),
                            (int64_t)(SL_TURN_SAVED_NS * 1000));
}

int64_t sl_turns_start_tokens(const struct tenant *t)
{
    /* Alone, a tenant with limit L then runs for L of each period: it starts with this much, and
     * spends it at 1 - L while it runs. */
    uint64_t l = t->spec.limit_permille;
    return (int64_t)max_u64(SL_TURN_PERIOD_NS * l * (1000 - l) / 1000, SL_TIME_MS * 1000);
}

uint64_t sl_turns_run_ns(const struct tenant *t)
{
    if (!capped(t))
        return SL_TURNS_NEVER;
    return t->tokens <= 0 ? 0 : (uint64_t)t->tokens / (1000 - t->spec.limit_permille);
}

/* Beside an overrun the hardware slices a GPU evenly; the fullest of its GPUs sets the pace. */
static uint64_t slices(const struct sl_turns *s, const struct tenant *t)
{
    uint64_t most = 1;
    FOR_EACH_GPU(g, t->hold_mask)
    most = max_u64(most, s->gpu[g].overruns + (s->gpu[g].holder != NOBODY ? 1U : 0U));
    return most;
}

static void charge(struct sl_turns *s, struct tenant *t, uint64_t from, uint64_t to)
{
    if (is_open(t) && !t->want && t->until_ns == SL_TURNS_NEVER)
        return; /* the gate is open because no other tenant comes, and it is not used */
    from = max_u64(from, to - min_u64(to, SL_TURN_DEBT_NS)); /* no harm by a clock that jumps */
    /*
     * Between tenants, each pays for its real part: a slice. Towards its own limit a holder pays in full: the tenant in
     * overrun may be frozen and use nothing, and a limit must hold even then.
     */
    uint64_t sharing = slices(s, t);
    uint64_t divisor = t->state == SL_TURNS_OVERRUN ? sharing : 1, ns = (to - from) / divisor;
    uint64_t *total = t->state == SL_TURNS_OVERRUN ? &t->overrun_ns : &t->held_ns;
    *total = add_sat(*total, ns);
    sl_ring_add(&s->rings[id_of(s, t)], from, to, (uint32_t)(1000 / divisor));
    /* A tenant may fill gaps that no other tenant can use: its debt for them is bounded. */
    int64_t most = t->filler ? (int64_t)SL_TURN_FILLED_NS : MOST_LEAD_NS;
    FOR_EACH_GPU(g, t->hold_mask)
    {
        int64_t lead = t->lead_ns[g] + virtual_of((to - from) / sharing, t->weight);
        t->lead_ns[g] = max_i64(t->lead_ns[g], min_i64(lead, most));
    }
    if (capped(t))
        t->tokens = max_i64(t->tokens - (int64_t)(ns * 1000), -(int64_t)(SL_TURN_DEBT_NS * 1000));
}

/* Charges all tenants up to now. */
void sl_turns_tick(struct sl_turns *s, uint64_t now_ns)
{
    uint64_t from = s->now_ns;
    if (now_ns <= from)
        return;
    s->now_ns = now_ns;
    FOR_EACH_TENANT(s, t)
    if (is_busy(t)) {
        sl_turns_accrue(s, t);
        charge(s, t, from, now_ns);
    }
}

/* --- tenants on a GPU ---------------------------------------------------------------------------- */

void sl_turns_occupy(struct sl_turns *s, struct tenant *t)
{
    t->hold_mask = t->spec.gpu_mask;
    FOR_EACH_GPU(g, t->hold_mask)
    s->gpu[g].holder = id_of(s, t);
}

/* No longer the holder, but still on the GPU. */
void sl_turns_pass_over(struct sl_turns *s, struct tenant *t)
{
    FOR_EACH_GPU(g, t->hold_mask)
    {
        s->gpu[g].holder = NOBODY;
        s->gpu[g].overruns++;
    }
    t->state = SL_TURNS_OVERRUN;
    t->overruns++;
}

static void vacate(struct sl_turns *s, struct tenant *t)
{
    FOR_EACH_GPU(g, t->hold_mask)
    {
        if (t->state == SL_TURNS_OVERRUN)
            s->gpu[g].overruns--;
        else
            s->gpu[g].holder = NOBODY;
    }
    t->state = t->want ? SL_TURNS_WAITING : SL_TURNS_IDLE;
    t->hold_mask = 0;
    t->dirty = t->filler = false;
    t->wait_from_ns = s->now_ns;
}

/* --- tenants ------------------------------------------------------------------------------------ */

static int check_spec(const struct sl_steer_spec *spec, struct sl_err *err)
{
    if (spec->gpu_mask == 0 || spec->gpu_mask >> SL_TURNS_MAX_GPUS)
        return sl_err_set(err, -EINVAL, SL_E_TURNS_GPUS, SL_TURNS_MAX_GPUS);
    if (spec->limit_permille == 0 || spec->limit_permille > 1000 || spec->request_permille > 1000)
        return sl_err_set(err, -EINVAL, SL_E_TURNS_SHARE, spec->request_permille,
                          spec->limit_permille);
    if (spec->priority > SL_TURNS_HIGH)
        return sl_err_set(err, -EINVAL, SL_E_TURNS_PRIORITY, spec->priority);
    return 0;
}

static void apply_spec(struct tenant *t, const struct sl_steer_spec *spec)
{
    t->spec = *spec;
    if (t->spec.request_permille > t->spec.limit_permille)
        t->spec.request_permille = t->spec.limit_permille;
    t->weight = t->spec.request_permille ? t->spec.request_permille : BEST_EFFORT_PERMILLE;
}

static struct tenant *find(struct sl_turns *s, uint32_t id)
{
    return id < SL_TURNS_MAX_TENANTS && s->tenants[id].state ? &s->tenants[id] : NULL;
}

int sl_turns_add(struct sl_turns *turns, uint32_t id, const struct sl_steer_spec *spec,
                 uint64_t now_ns, struct sl_err *err)
{
    int r = check_spec(spec, err);
    if (r < 0)
        return r;
    if (id >= SL_TURNS_MAX_TENANTS)
        return sl_err_set(err, -ERANGE, SL_E_TURNS_NUMBER, id, SL_TURNS_MAX_TENANTS);
    if (find(turns, id))
        return sl_err_set(err, -EEXIST, SL_E_TURNS_EXISTS, id);
    sl_turns_tick(turns, now_ns);
    sl_turns_refresh(turns);
    struct tenant *t = &turns->tenants[id];
    *t = (struct tenant){.state = SL_TURNS_IDLE, .tokens_at_ns = turns->now_ns};
    turns->rings[id] = (struct sl_ring){.began_ns = turns->now_ns,
                                        .newest = turns->now_ns / SL_RING_FINE_NS,
                                        .newest_coarse = turns->now_ns / SL_RING_COARSE_NS};
    apply_spec(t, spec);
    t->tokens = sl_turns_start_tokens(t);
    turns->ids[turns->n_ids++] = id;
    return 0;
}

int sl_turns_set(struct sl_turns *turns, uint32_t id, const struct sl_steer_spec *spec,
                 uint64_t now_ns, struct sl_err *err)
{
    int r = check_spec(spec, err);
    if (r < 0)
        return r;
    struct tenant *t = find(turns, id);
    if (!t)
        return sl_err_set(err, -ENOENT, SL_E_TURNS_NONE, id);
    sl_turns_tick(turns, now_ns);
    sl_turns_accrue(turns, t);
    bool was_capped = capped(t);
    if (t->spec.paused && !spec->paused)
        sl_turns_refresh(turns); /* leads without it, as for one that wants turns again */
    if (spec->priority != t->spec.priority || spec->gpu_mask != t->spec.gpu_mask)
        for (uint32_t g = 0; g < SL_TURNS_MAX_GPUS; g++)
            t->lead_ns[g] = 0; /* it has other neighbours now: it owes them nothing */
    apply_spec(t, spec);
    /* Use from before the limit was set does not count against the limit, nor as savings. */
    int64_t start = sl_turns_start_tokens(t);
    t->tokens = was_capped ? min_i64(t->tokens, start) : start;
    return 0;
}

void sl_turns_remove(struct sl_turns *turns, uint32_t id, uint64_t now_ns)
{
    struct tenant *t = find(turns, id);
    if (!t)
        return;
    sl_turns_tick(turns, now_ns);
    vacate(turns, t);
    uint32_t i = 0;
    while (turns->ids[i] != id)
        i++;
    turns->ids[i] = turns->ids[--turns->n_ids];
    t->state = SL_TURNS_NONE;
}

/* --- events ------------------------------------------------------------------------------------- */

void sl_turns_want(struct sl_turns *turns, uint32_t id, bool want, uint64_t now_ns)
{
    struct tenant *t = find(turns, id);
    if (!t)
        return;
    sl_turns_tick(turns, now_ns);
    if (t->want == want)
        return;
    if (want)
        sl_turns_refresh(turns); /* leads without it: time that it had alone is no tenant's loss */
    t->want = want;
    t->idle_since_ns = turns->now_ns;
    if (is_busy(t))
        return;
    if (!want)
        t->waited_ns = add_sat(t->waited_ns, turns->now_ns - t->wait_from_ns);
    t->state = want ? SL_TURNS_WOKEN : SL_TURNS_IDLE;
    t->wait_from_ns = turns->now_ns;
}

void sl_turns_started(struct sl_turns *turns, uint32_t id, uint64_t now_ns)
{
    struct tenant *t = find(turns, id);
    if (!t)
        return;
    sl_turns_tick(turns, now_ns);
    if (t->state != SL_TURNS_CALLED)
        return;
    t->state = SL_TURNS_RUNNING;
    if (!t->filler) /* on an overloaded machine a turn must not be over before it begins */
        t->until_ns = add_sat(t->until_ns, turns->now_ns - t->granted_ns);
}

void sl_turns_released(struct sl_turns *turns, uint32_t id, uint64_t now_ns)
{
    struct tenant *t = find(turns, id);
    if (!t)
        return;
    sl_turns_tick(turns, now_ns);
    /* If it was not told to close yet, its gate is open. */
    if ((t->state == SL_TURNS_CLOSING || t->state == SL_TURNS_OVERRUN) && !t->dirty)
        vacate(turns, t);
}

/* --- statistics --------------------------------------------------------------------------------- */

static uint64_t debt_ns(struct sl_turns *s, struct tenant *t)
{
    sl_turns_accrue(s, t);
    uint64_t debt = capped(t) && t->tokens < 0 ? (uint64_t)-t->tokens / 1000 : 0;
    FOR_EACH_GPU(g, t->spec.gpu_mask)
    {
        uint64_t lead = (uint64_t)max_i64(t->lead_ns[g], 0);
        debt = max_u64(debt, lead / 1000 * t->weight);
    }
    return min_u64(debt, SL_TURN_DEBT_NS);
}

int sl_turns_stats(struct sl_turns *turns, uint32_t id, uint64_t now_ns, struct sl_turns_stats *ret)
{
    struct tenant *t = find(turns, id);
    if (!t)
        return -ENOENT;
    sl_turns_tick(turns, now_ns);
    bool waits = t->want && !is_busy(t);
    const struct sl_ring *ring = &turns->rings[id];
    *ret = (struct sl_turns_stats){
        .state = t->state,
        .held_ns = t->held_ns,
        .overrun_ns = t->overrun_ns,
        .waited_ns = add_sat(t->waited_ns, waits ? turns->now_ns - t->wait_from_ns : 0),
        .turns = t->turns,
        .overruns = t->overruns,
        .debt_ns = debt_ns(turns, t),
        .share_1s_permille = sl_ring_permille(ring, false, turns->now_ns),
        .share_60s_permille = sl_ring_permille(ring, true, turns->now_ns),
    };
    return 0;
}
