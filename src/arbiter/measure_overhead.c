/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver says tenants use, against what their ledgers say. The difference is overhead (contexts, modules) and counts
 * against the limit.
 */
#include "arbiter/measure_internal.h"

#include "base/clock.h"
#include "shm/account.h"
#include "shm/shared.h"

/* The ledger has a piece before the driver does, so a low reading may be a piece on its way. Less is
 * believed when the process waits for the answer, or when all readings are low for so long. */
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
 * The most its books explain: its own, and all it shares. The driver shows a shared piece under one of its
 * holders, and which one is not known; so no process is said to have overhead because of it. What
 * the tenant has in all is then settled by sl_measure_balance().
 */
static uint64_t ledger_bytes(const struct member *m, uint32_t i)
{
    const struct sl_ledger_page *ledger = m->tenant->ledger.page;
    return (sl_account_slot(ledger, m->slot, i) + sl_shared_held(ledger, m->slot, i)) *
           SL_UNIT_BYTES;
}

/* It asked after this snapshot was begun: the snapshot knows nothing of what it asks for. */
bool sl_measure_waits_for_later(const struct member *m, const struct snapshot *s, uint32_t i)
{
    return (m->measure_pending >> i & 1) && m->measure_asked_ns > s->asked_ns;
}

/* Only a ledger that stood still during the snapshot can be compared with it: the same usage before and
 * after is not enough, the driver may have been caught with a piece that was taken and given back between. */
static bool ledger_moved(const struct member *m, uint32_t i)
{
    return ledger_bytes(m, i) != m->used_before[i] ||
           sl_account_operations(m->tenant->ledger.page, m->slot, i) != m->operations_before[i];
}

/* --- what is believed of one process, rule by rule ------------------------------------------------ */

/* Some virtual machines hide what a process uses: then contexts are not counted. */
static bool hidden(const struct sl_gpu_process *p)
{
    return p && !p->used_known;
}

/* A process that returned has not booked what it has: what is read now counts for nothing. */
static bool not_booked_yet(struct member *m, const struct snapshot *s, uint32_t i)
{
    if (s->asked_ns >= m->believe_from_ns)
        return false;
    m->least_bytes[i] = UINT64_MAX;
    m->unsteady[i] = 1;
    return true;
}

/* The least of several readings while the ledger moves: true overhead is in all of them, a piece on its way is not. False: there
 * were too few. */
static bool least_of_many(struct member *m, uint32_t i, uint64_t *reading)
{
    m->least_bytes[i] = m->unsteady[i] ? least(m->least_bytes[i], *reading) : *reading;
    *reading = m->least_bytes[i];
    return ++m->unsteady[i] >= UNSTEADY_MAX;
}

/* A context keeps what it had when it was made, and its maker stood still for that reading. What looks like less is memory that is
 * promised but not there yet, managed pages above all. */
static uint64_t with_its_context(struct member *m, uint32_t i, uint64_t reading, bool there,
                                 bool asked, bool moved)
{
    if (asked)
        m->base_bytes[i] = moved ? least(m->base_bytes[i], reading) : reading;
    else if (there && reading < m->base_bytes[i])
        reading = m->base_bytes[i];
    return reading;
}

/* More is believed at once; less when it is certain, or when all readings have been low for LOWER_NS. */
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
    uint64_t ledger = ledger_bytes(m, i); /* first: what moves after this is seen as moving */
    if (sl_measure_waits_for_later(m, s, i) || hidden(p))
        return;
    bool asked = m->measure_pending >> i & 1;
    bool moved = ledger_moved(m, i);
    if (!asked && not_booked_yet(m, s, i))
        return;
    if (ledger < m->used_before[i])
        ledger = m->used_before[i];
    /* What it put by for its context is no allocation. One that says too much has more overhead itself. */
    if (asked)
        ledger -= least(ledger, m->put_by_bytes[i]);
    uint64_t reading = p && p->used_bytes > ledger ? p->used_bytes - ledger : 0;
    if (moved && !asked && !least_of_many(m, i, &reading))
        return;
    m->unsteady[i] = 0;
    m->measured |= 1U << i;
    m->seen_bytes[i] = p ? least(p->used_bytes, ledger + reading) : 0;
    reading = with_its_context(m, i, reading, p != NULL, asked, moved);
    believe(m, i, reading, !p || asked, moved, a->now_ns);
}

/* --- the tenant as a whole -------------------------------------------------------------------- */

/*
 * The books of a tenant as a whole: whatever its slots claim, total + overhead must not fall below
 * what the driver sees. So a tenant that rewrites its ledger gains nothing beyond one audit.
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
        total = t->total_before[i]; /* given back since: the driver was seen with it */
    /* Kept until the next time that all stand still: the figure of one busy process must not drop it. */
    t->unexplained_bytes[i] = driver > total + claimed ? driver - total - claimed : 0;
}

/* What the audit says of a process; what only the tenant as a whole shows is said of its first. */
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
