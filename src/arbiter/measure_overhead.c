/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the driver's figures for tenants with their ledgers. The difference is overhead (contexts, modules) and
 * counts against the limit.
 */
#include "arbiter/measure_internal.h"

#include "base/clock.h"
#include "shm/account.h"
#include "shm/shared.h"

/* The ledger has an allocation before the driver has it, so a low reading may be an allocation on its way. A lower
 * reading is accepted when the process waits for the answer, or when all readings are low for so long. */
#define LOWER_NS (SL_NS_PER_S / 2)

bool sl_measure_on_gpu(const struct gpu *g, const struct snapshot *s,
                       const struct sl_gpu_process *p)
{
    return g->index == s->card && (g->instance == UINT32_MAX || g->instance == p->gpu_instance);
}

static const struct sl_gpu_process *find_process(const struct arbiter *a, const struct snapshot *s,
                                                 uint32_t gpu, pid_t pid)
{
    for (size_t i = 0; i < s->count; i++)
        if ((pid_t)s->process[i].pid == pid && sl_measure_on_gpu(&a->gpu[gpu], s, &s->process[i]))
            return &s->process[i];
    return NULL;
}

/*
 * The most that the ledger explains: the process's own memory, and all that it shares. The driver shows shared memory
 * under one of its holders, and which one is not known; so shared memory never counts as overhead of a process.
 * sl_measure_balance() then checks the sum of the tenant.
 */
static uint64_t ledger_bytes(const struct member *m, uint32_t i)
{
    const struct sl_ledger_page *ledger = m->tenant->ledger.page;
    return (sl_account_slot(ledger, m->slot, i) + sl_shared_held(ledger, m->slot, i)) *
           SL_UNIT_BYTES;
}

/* The process asked after this snapshot was begun: the snapshot cannot answer it. */
bool sl_measure_waits_for_later(const struct member *m, const struct snapshot *s, uint32_t i)
{
    return (m->measure_pending >> i & 1) && m->measure_asked_ns > s->asked_ns;
}

/* Only a ledger that stood still during the snapshot can be compared with it. Equal usage before and after is not
 * enough: the snapshot may show an allocation that was made and freed in between. */
static bool ledger_moved(const struct member *m, uint32_t i)
{
    return ledger_bytes(m, i) != m->used_before[i] ||
           sl_account_operations(m->tenant->ledger.page, m->slot, i) != m->operations_before[i];
}

/* --- the rules for one process -------------------------------------------------------------------- */

/* Some virtual machines hide the usage of processes: then contexts are not counted. */
static bool hidden(const struct sl_gpu_process *p)
{
    return p && !p->used_known;
}

/* A process that returned has not filled its ledger yet: ignore this reading. */
static bool not_booked_yet(struct member *m, const struct snapshot *s, uint32_t i)
{
    if (s->asked_ns >= m->believe_from_ns)
        return false;
    m->least_bytes[i] = UINT64_MAX;
    m->unsteady[i] = 1;
    return true;
}

/* The least of several readings while the ledger moves: real overhead is in all of them, an allocation on its way is
 * not. False: too few readings. */
static bool least_of_many(struct member *m, uint32_t i, uint64_t *reading)
{
    m->least_bytes[i] = m->unsteady[i] ? least(m->least_bytes[i], *reading) : *reading;
    *reading = m->least_bytes[i];
    return ++m->unsteady[i] >= UNSTEADY_MAX;
}

/* A context keeps its size from the time when it was made, and the process stood still for that reading. A lower
 * reading comes from memory that is promised but not there yet, mostly managed pages. */
static uint64_t with_its_context(struct member *m, uint32_t i, uint64_t reading, bool there,
                                 bool asked, bool moved)
{
    if (asked)
        m->base_bytes[i] = moved ? least(m->base_bytes[i], reading) : reading;
    else if (there && reading < m->base_bytes[i])
        reading = m->base_bytes[i];
    return reading;
}

/* A higher reading is accepted at once; a lower one when it is certain, or when all readings have been low for
 * LOWER_NS. */
static void believe(struct member *m, uint32_t i, uint64_t reading, bool certain, bool moved,
                    uint64_t now_ns)
{
    bool now = certain || reading >= m->reading_bytes[i];
    if (!now && m->lower_since_ns[i] == 0)
        m->lower_since_ns[i] = now_ns;
    if (now || (!moved && now_ns - m->lower_since_ns[i] >= LOWER_NS)) {
        m->reading_bytes[i] = reading;
        m->lower_since_ns[i] = 0;
    }
    m->overhead_bytes[i] = m->reading_bytes[i];
}

void sl_measure_member(struct arbiter *a, const struct snapshot *s, struct member *m, uint32_t i)
{
    const struct sl_gpu_process *p = find_process(a, s, m->tenant->gpu[i], m->pid);
    uint64_t ledger = ledger_bytes(m, i); /* first: a change after this is noticed */
    if (sl_measure_waits_for_later(m, s, i) || hidden(p))
        return;
    bool asked = m->measure_pending >> i & 1;
    bool moved = ledger_moved(m, i);
    if (!asked && not_booked_yet(m, s, i))
        return;
    if (ledger < m->used_before[i])
        ledger = m->used_before[i];
    /* The reserve for its context is no allocation. A process that reserves too much gets more overhead itself. */
    if (asked)
        ledger -= least(ledger, m->put_by_bytes[i]);
    uint64_t reading = p && p->used_bytes > ledger ? p->used_bytes - ledger : 0;
    if (moved && !asked && !least_of_many(m, i, &reading))
        return;
    m->unsteady[i] = 0;
    m->measured |= 1U << i;
    m->seen_bytes[i] = p ? least(p->used_bytes, ledger + reading) : 0;
    reading = with_its_context(m, i, reading, p != NULL, asked, moved);
    /* The memory that it has entered since was overhead in the reading before this one. */
    bool entered = (m->whole >> i & 1) && sl_arb_measure_entered(m);
    if (entered)
        m->whole &= ~(1U << i);
    else if (!sl_arb_measure_entered(m))
        m->whole |= 1U << i;
    believe(m, i, reading, !p || asked || entered, moved, a->now_ns);
}

/* --- the tenant as a whole -------------------------------------------------------------------- */

/*
 * The sum of a tenant: whatever its slots claim, total + overhead must not be below the driver's figure. So a tenant
 * that rewrites its ledger gains nothing beyond one audit.
 */
void sl_measure_balance(struct arbiter *a, const struct snapshot *s, struct tenant *t, uint32_t i)
{
    uint64_t driver = 0, claimed = 0;
    for (const struct member *m = t->members; m; m = m->next) {
        const struct sl_gpu_process *p = find_process(a, s, t->gpu[i], m->pid);
        if (m->unsteady[i] || sl_measure_waits_for_later(m, s, i))
            return;
        driver += p && p->used_known ? m->seen_bytes[i] : 0;
        claimed += m->overhead_bytes[i];
    }
    uint64_t total = sl_account_total(t->ledger.page, i) * SL_UNIT_BYTES;
    if (total < t->total_before[i])
        total = t->total_before[i]; /* freed since: the driver's figure still has it */
    /* Kept until all stand still again: one busy process must not clear the figure. */
    t->unexplained_bytes[i] = driver > total + claimed ? driver - total - claimed : 0;
}

/* The audit's figure for a process; the first process also gets the tenant's unexplained part. */
uint64_t sl_measure_unaccounted(const struct member *m, uint32_t i)
{
    return m->overhead_bytes[i] + (m == m->tenant->members ? m->tenant->unexplained_bytes[i] : 0);
}

bool sl_measure_booked(const struct member *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->tenant->gpu_count; i++)
        any |= ledger_bytes(m, i) != 0;
    return any;
}

void sl_measure_read_ledger(struct member *m, uint32_t i)
{
    m->operations_before[i] = sl_account_operations(m->tenant->ledger.page, m->slot, i);
    m->used_before[i] = ledger_bytes(m, i);
}
