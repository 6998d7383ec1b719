/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver says tenants use, against what their ledgers say. The difference is overhead
 * (contexts, modules) and counts against the limit; a process outside every ledger is a finding.
 */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "arbiter/errors.h"
#include "arbiter/measure.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "shm/account.h"
#include "shm/shared.h"

/* A question to NVML holds the driver's locks for milliseconds, and launches wait meanwhile: so often
 * only while tenants come and go, then ever more rarely. */
#define AUDIT_MIN_NS      SL_NS_PER_S
#define AUDIT_MAX_NS      (16 * SL_NS_PER_S)
/* More than this beyond ledger and context is no module any more. */
#define UNACCOUNTED_BYTES (1ULL << 30)
/* A ledger that never stands still is measured anyhow after this many tries. */
#define UNSTEADY_MAX      8
/* The ledger has a piece before the driver does, so a low reading may be a piece on its way. Less is
 * believed when the process waits for the answer, or when all readings are low for so long. */
#define LOWER_NS          (SL_NS_PER_S / 2)
/* A process that returns to us books what it has as soon as it has read our WELCOME: until then its
 * ledger says too little, and all it has would look like overhead. */
#define RETURN_NS         SL_NS_PER_S
/* A driver may take seconds to give back what a process had: so often it is looked for, once a second. */
#define ENDS_LOOKS        40
#define ENDS_SLACK_BYTES  (256ULL << 20)
/* What processes ask for may take this part of the driver's time: a tenant's a fiftieth, a card's a
 * twenty-fifth, beyond what two seconds allow for at once. Who comes later waits for the next snapshot, which
 * answers all who wait; a process waits two seconds for it, so none costs more than one. */
#define TENANT_COST       50
#define CARD_COST         25
#define COST_MAX_NS       SL_NS_PER_S
#define CREDIT_NS         (2 * SL_NS_PER_S)
/* A snapshot that takes longer is not waited for any more. */
#define ANSWER_LOST_NS    (5 * SL_NS_PER_S)

struct measure {
    struct sl_gpu *gpu;
    struct nvml_worker *worker;
    struct source results;
    uint32_t cards;
    uint64_t next_audit_ns;
    uint64_t audit_gap_ns;
    uint64_t seen_changes; /* arbiter.changes at the last audit */
    uint64_t seen_ends;    /* … and arbiter.ends */
    uint32_t unsettled;    /* bit per card: somebody ended, and the card may not show it yet */
    uint32_t looks_left;   /* for that */
    uint64_t ended_ns;     /* when the last one was seen to end */
    uint64_t nobodys_bytes[SL_MAX_GPUS]; /* by card: in use by no process, at the least */
    uint64_t asked_ns[SL_MAX_GPUS], answered_ns[SL_MAX_GPUS]; /* by card */
    uint64_t paid_ns[SL_MAX_GPUS]; /* what processes asked for is paid for until then */
    uint64_t due_ns[SL_MAX_GPUS];  /* 0, or when to ask for those that wait */
};

static void add_gpu(struct arbiter *a, const struct gpu *g)
{
    if (a->gpu_count < SL_ARB_MAX_GPUS)
        a->gpu[a->gpu_count++] = *g;
    else
        sl_warn(SL_E_GPU_LEFT_OUT_LOG, g->uuid, SL_ARB_MAX_GPUS);
}

static int list_gpus(struct arbiter *a, struct sl_err *err)
{
    size_t count = 0;
    int rc = sl_gpu_count(a->measure->gpu, &count, err);
    if (rc < 0)
        return rc;
    if (count > SL_MAX_GPUS) {
        sl_warn(SL_E_CARDS_LEFT_OUT_LOG, SL_MAX_GPUS, count - 1, SL_MAX_GPUS);
        count = SL_MAX_GPUS;
    }
    a->measure->cards = (uint32_t)count;
    memset(a->measure->nobodys_bytes, 0xff, sizeof(a->measure->nobodys_bytes)); /* not known */
    for (size_t i = 0; i < count; i++) {
        struct sl_gpu_info info;
        if (sl_gpu_info(a->measure->gpu, i, &info, err) < 0) {
            sl_warn(SL_E_GPU_UNREADABLE_LOG, i, err->msg);
            continue;
        }
        struct gpu g = {
            .index = (uint32_t)i, .instance = UINT32_MAX, .total_bytes = info.memory_total_bytes};
        (void)snprintf(g.uuid, sizeof(g.uuid), "%.63s", info.uuid);
        (void)snprintf(g.name, sizeof(g.name), "%.63s", info.name);
        if (!info.mig_enabled)
            add_gpu(a, &g);
        for (uint32_t slot = 0; slot < info.mig_slots; slot++) {
            struct sl_gpu_mig_info mig;
            if (sl_gpu_mig_info(a->measure->gpu, i, slot, &mig, NULL) < 0)
                continue;
            g.instance = mig.gpu_instance;
            g.total_bytes = mig.memory_total_bytes;
            (void)snprintf(g.uuid, sizeof(g.uuid), "%.63s", mig.uuid);
            (void)snprintf(g.name, sizeof(g.name), "%.40s %.20s", info.name, mig.profile);
            add_gpu(a, &g);
        }
    }
    if (a->gpu_count == 0)
        return sl_err_set(err, -ENODEV, SL_E_NO_GPU);
    return 0;
}

/* --- overhead --------------------------------------------------------------------------------- */

static bool on_gpu(const struct gpu *g, const struct snapshot *s, const struct sl_gpu_process *p)
{
    return g->index == s->card && (g->instance == UINT32_MAX || g->instance == p->gpu_instance);
}

static const struct sl_gpu_process *find_process(const struct arbiter *a, const struct snapshot *s,
                                                 uint32_t gpu, pid_t pid)
{
    for (size_t i = 0; i < s->count; i++)
        if ((pid_t)s->process[i].pid == pid && on_gpu(&a->gpu[gpu], s, &s->process[i]))
            return &s->process[i];
    return NULL;
}

/*
 * The most its books explain: its own, and all it shares. The driver shows a shared piece under one of its
 * holders, and which one is not known; so no process is said to have overhead because of it. What
 * the tenant has in all is then settled by balance_tenant().
 */
static uint64_t ledger_bytes(const struct member *m, uint32_t i)
{
    const struct sl_ledger_page *ledger = m->tenant->ledger.page;
    return (sl_account_slot(ledger, m->slot, i) + sl_shared_held(ledger, m->slot, i)) * SL_UNIT_BYTES;
}

/* It asked after this snapshot was begun: the snapshot knows nothing of what it asks for. */
static bool waits_for_later(const struct member *m, const struct snapshot *s, uint32_t i)
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

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void measure_member(struct arbiter *a, const struct snapshot *s, struct member *m,
                           uint32_t i)
{
    const struct sl_gpu_process *p = find_process(a, s, m->tenant->gpu[i], m->pid);
    uint64_t ledger = ledger_bytes(m, i);
    if (waits_for_later(m, s, i))
        return;
    if (p && !p->used_known)
        return; /* some virtual machines hide it: then contexts are not counted */
    bool asked = m->measure_pending >> i & 1;
    bool moved = ledger_moved(m, i);
    if (!asked && s->asked_ns < m->believe_from_ns) {
        m->least_bytes[i] = UINT64_MAX;
        m->unsteady[i] = 1;
        return;
    }
    if (ledger < m->used_before[i])
        ledger = m->used_before[i];
    uint64_t reading = p && p->used_bytes > ledger ? p->used_bytes - ledger : 0;
    if (moved && !asked) {
        /* True overhead is in all of them, a piece on its way is not. */
        m->least_bytes[i] = m->unsteady[i] ? least(m->least_bytes[i], reading) : reading;
        reading = m->least_bytes[i];
        if (++m->unsteady[i] < UNSTEADY_MAX)
            return;
    }
    m->unsteady[i] = 0;
    m->measured |= 1U << i;
    m->seen_bytes[i] = p ? least(p->used_bytes, ledger + reading) : 0;
    /* A context keeps what it had when it was made, and its maker stood still for that reading. What
     * looks like less is memory that is promised but not there yet, managed pages above all. */
    if (asked)
        m->base_bytes[i] = moved ? least(m->base_bytes[i], reading) : reading;
    else if (p && reading < m->base_bytes[i])
        reading = m->base_bytes[i];
    bool now = !p || asked || reading >= m->reading_bytes[i];
    if (!now && m->lower_since_ns[i] == 0)
        m->lower_since_ns[i] = a->now_ns;
    if (now || (!moved && a->now_ns - m->lower_since_ns[i] >= LOWER_NS)) {
        m->reading_bytes[i] = reading;
        m->lower_since_ns[i] = 0;
    }
    m->overhead_bytes[i] = m->reading_bytes[i];
}

static bool answer_member(struct member *m, const struct snapshot *s, uint32_t i)
{
    if (!(m->measure_pending >> i & 1) || waits_for_later(m, s, i))
        return false;
    m->measure_pending &= ~(1U << i);
    struct sl_msg_measure answer = {.gpu = i, .overhead_bytes = m->overhead_bytes[i]};
    sl_packet_init(&answer.h, SL_MSG_MEASURED, sizeof(answer));
    /* A process that cannot be told waits out its own time limit. */
    if (m->conn.fd >= 0 && sl_packet_send(m->conn.fd, &answer.h, NULL, 0, NULL) < 0)
        sl_debug("process %d did not take its measurement", m->pid);
    return true;
}

/*
 * The books of a tenant as a whole: whatever its slots claim, total + overhead must not fall below
 * what the driver sees. So a tenant that rewrites its ledger gains nothing beyond one audit.
 */
static void balance_tenant(struct arbiter *a, const struct snapshot *s, struct tenant *t,
                           uint32_t i)
{
    uint64_t driver = 0, claimed = 0;
    for (const struct member *m = t->members; m; m = m->next) {
        const struct sl_gpu_process *p = find_process(a, s, t->gpu[i], m->pid);
        if (m->unsteady[i] || waits_for_later(m, s, i))
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
static uint64_t unaccounted(const struct member *m, uint32_t i)
{
    return m->overhead_bytes[i] + (m == m->tenant->members ? m->tenant->unexplained_bytes[i] : 0);
}

/* --- audit ------------------------------------------------------------------------------------ */

static pid_t parent_of(pid_t pid)
{
    return (pid_t)sl_arb_process_stat(pid, 4);
}

static struct tenant *family_of(struct arbiter *a, pid_t pid)
{
    for (int depth = 0; pid > 1 && depth < 64; depth++, pid = parent_of(pid))
        for (struct tenant *t = a->tenants; t; t = t->next) {
            /* A container's tenant was made by the agent, whose other children are not the container's. */
            if (!t->kept && t->creator_pid == pid)
                return t;
            for (const struct member *m = t->members; m; m = m->next)
                if (m->pid == pid)
                    return t;
        }
    return NULL;
}

static const struct member *member_of(const struct arbiter *a, pid_t pid)
{
    for (const struct tenant *t = a->tenants; t; t = t->next)
        for (const struct member *m = t->members; m; m = m->next)
            if (m->pid == pid)
                return m;
    return NULL;
}

static void add_finding(struct arbiter *a, const struct snapshot *s, const struct sl_gpu_process *p,
                        enum sl_audit_kind kind, const struct tenant *t, uint64_t bytes)
{
    struct audit_finding *f = calloc(1, sizeof(*f));
    if (!f)
        return;
    sl_packet_init(&f->msg.h, SL_MSG_AUDIT, sizeof(f->msg));
    f->msg.pid = p->pid;
    f->msg.kind = kind;
    f->msg.bytes = bytes;
    if (t)
        memcpy(f->msg.tenant, t->name, sizeof(f->msg.tenant));
    for (uint32_t g = 0; g < a->gpu_count; g++)
        if (on_gpu(&a->gpu[g], s, p))
            memcpy(f->msg.uuid, a->gpu[g].uuid, sizeof(f->msg.uuid));
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%u/comm", p->pid);
    SL_CLEANUP(fclose) FILE *comm = fopen(path, "re");
    if (comm && fgets(f->msg.command, sizeof(f->msg.command), comm))
        f->msg.command[strcspn(f->msg.command, "\n")] = '\0';
    f->next = a->findings;
    a->findings = f;
}

static void forget_findings(struct arbiter *a, uint32_t card)
{
    for (struct audit_finding **p = &a->findings; *p;) {
        struct audit_finding *f = *p;
        bool same = false;
        for (uint32_t g = 0; g < a->gpu_count; g++)
            same |= a->gpu[g].index == card && strcmp(a->gpu[g].uuid, f->msg.uuid) == 0;
        if (!same) {
            p = &f->next;
            continue;
        }
        *p = f->next;
        free(f);
    }
}

/* A child that does not attach still uses the card in its tenant's name: it is charged there. */
static void charge_unattached(struct arbiter *a, const struct snapshot *s, struct tenant *t,
                              const struct sl_gpu_process *p)
{
    for (uint32_t i = 0; i < t->gpu_count; i++)
        if (on_gpu(&a->gpu[t->gpu[i]], s, p))
            t->unattached_bytes[i] += p->used_bytes;
}

/* After a restart: who has not come back yet is not somebody else. */
static bool recovering(const struct arbiter *a)
{
    for (const struct tenant *t = a->tenants; t; t = t->next)
        if (t->recover_until_ns)
            return true;
    return false;
}

static void audit(struct arbiter *a, const struct snapshot *s)
{
    bool too_early = recovering(a);
    forget_findings(a, s->card);
    for (struct tenant *t = a->tenants; t; t = t->next)
        for (uint32_t i = 0; i < t->gpu_count; i++)
            if (a->gpu[t->gpu[i]].index == s->card)
                t->unattached_bytes[i] = 0;
    for (size_t i = 0; i < s->count; i++) {
        const struct sl_gpu_process *p = &s->process[i];
        const struct member *m = member_of(a, (pid_t)p->pid);
        if (m) {
            for (uint32_t g = 0; g < m->tenant->gpu_count; g++)
                if (on_gpu(&a->gpu[m->tenant->gpu[g]], s, p) &&
                    unaccounted(m, g) > UNACCOUNTED_BYTES)
                    add_finding(a, s, p, SL_AUDIT_UNACCOUNTED, m->tenant, unaccounted(m, g));
            continue;
        }
        if (too_early)
            continue;
        struct tenant *t = family_of(a, (pid_t)p->pid);
        add_finding(a, s, p, t ? SL_AUDIT_UNATTACHED : SL_AUDIT_STRANGER, t, p->used_bytes);
        if (t)
            charge_unattached(a, s, t, p);
    }
}

/* --- the loop's side -------------------------------------------------------------------------- */

/* After a restart: who did not come back was seen now, and charged to its tenant. */
static void end_doubt(struct arbiter *a, const struct snapshot *s, struct tenant *t)
{
    for (uint32_t i = 0; i < t->gpu_count; i++)
        if ((t->doubt >> i & 1) && a->gpu[t->gpu[i]].index == s->card &&
            s->asked_ns >= t->doubt_since_ns) {
            t->doubt &= ~(1U << i);
            sl_arb_grant_share(a, &t->gpu[i], 1);
        }
}

/* Is what is in use on the card some process's again, but for what never is? */
static void settle_card(struct measure *k, const struct snapshot *s)
{
    uint64_t processes = 0;
    for (size_t i = 0; i < s->count; i++)
        processes += s->process[i].used_known ? s->process[i].used_bytes : 0;
    uint64_t nobodys = s->used_bytes > processes ? s->used_bytes - processes : 0;
    if (s->rc == 0 && nobodys < k->nobodys_bytes[s->card])
        k->nobodys_bytes[s->card] = nobodys;
    if (s->rc < 0 || nobodys <= k->nobodys_bytes[s->card] + ENDS_SLACK_BYTES)
        k->unsettled &= ~(1U << s->card);
}

/* 0: its credit lasts for another question; else when it will. */
static uint64_t credit_wait(uint64_t paid_ns, uint64_t now_ns)
{
    return paid_ns > now_ns + CREDIT_NS ? paid_ns - CREDIT_NS : 0;
}

static void pay(uint64_t *paid_ns, uint64_t now_ns, uint64_t took_ns, uint64_t cost)
{
    *paid_ns = (*paid_ns > now_ns ? *paid_ns : now_ns) + least(took_ns * cost, COST_MAX_NS);
}

static void use_snapshot(struct arbiter *a, const struct snapshot *s)
{
    bool asked_for = false;
    a->measure->answered_ns[s->card] = s->asked_ns;
    for (uint32_t g = 0; g < a->gpu_count; g++)
        if (a->gpu[g].index == s->card)
            a->gpu[g].used_bytes = s->used_bytes;
    /* One that was begun before the last process ended says nothing of its end. */
    if (s->asked_ns >= a->measure->ended_ns)
        settle_card(a->measure, s);
    if (s->rc == 0)
        audit(a, s);
    for (struct tenant *t = a->tenants; t; t = t->next) {
        for (uint32_t i = 0; i < t->gpu_count; i++) {
            if (a->gpu[t->gpu[i]].index != s->card || !t->ledger.page)
                continue;
            for (struct member *m = t->members; m && s->rc == 0; m = m->next)
                measure_member(a, s, m, i);
            if (s->rc == 0)
                balance_tenant(a, s, t, i);
        }
        /* Memory that only a descriptor kept, and that is closed by now. */
        if (t->ledger.page)
            (void)sl_shared_sweep(t->ledger.page, SL_SHARED_BY_ARBITER, sl_arb_descriptor_exists);
        /* The page first, the answer after: who was told may rely on the page. */
        sl_arb_tenant_overhead(t);
        sl_arb_overheads_save(a, t);
        end_doubt(a, s, t);
        bool asked = false;
        for (uint32_t i = 0; i < t->gpu_count; i++)
            for (struct member *m = t->members; m; m = m->next)
                if (a->gpu[t->gpu[i]].index == s->card)
                    asked |= answer_member(m, s, i);
        if (asked)
            pay(&t->measured_ns, a->now_ns, s->took_ns, TENANT_COST);
        asked_for |= asked;
    }
    if (asked_for)
        pay(&a->measure->paid_ns[s->card], a->now_ns, s->took_ns, CARD_COST);
}

static void results_ready(struct arbiter *a, struct source *src, uint32_t events)
{
    (void)events;
    uint64_t count;
    ssize_t ignored = read(src->fd, &count, sizeof(count));
    (void)ignored;
    for (struct snapshot *s = sl_nvml_worker_take(a->measure->worker); s;
         s = sl_nvml_worker_take(a->measure->worker)) {
        use_snapshot(a, s);
        sl_snapshot_free(s);
    }
}

static void read_ledger(struct member *m, uint32_t i)
{
    m->operations_before[i] = sl_account_operations(m->tenant->ledger.page, m->slot, i);
    m->used_before[i] = ledger_bytes(m, i);
}

/* What ledgers say before a snapshot. One under way keeps what it was begun with: only what was read
 * before the driver was can show that nothing moved. */
static void ask_card(struct arbiter *a, uint32_t card)
{
    struct measure *k = a->measure;
    bool under_way =
        k->asked_ns[card] > k->answered_ns[card] && a->now_ns - k->asked_ns[card] < ANSWER_LOST_NS;
    for (struct tenant *t = under_way ? NULL : a->tenants; t; t = t->next)
        for (uint32_t i = 0; i < t->gpu_count && t->ledger.page; i++) {
            if (a->gpu[t->gpu[i]].index != card)
                continue;
            t->total_before[i] = sl_account_total(t->ledger.page, i) * SL_UNIT_BYTES;
            for (struct member *m = t->members; m; m = m->next)
                read_ledger(m, i);
        }
    k->asked_ns[card] = a->now_ns;
    sl_nvml_worker_ask(k->worker, card, a->now_ns);
}

/* A process wants to know: now, or when the card has credit again. */
static void want_card(struct arbiter *a, uint32_t card)
{
    struct measure *k = a->measure;
    if (k->due_ns[card])
        return;
    k->due_ns[card] = credit_wait(k->paid_ns[card], a->now_ns);
    if (!k->due_ns[card])
        ask_card(a, card);
}

void sl_arb_measure_ask(struct arbiter *a, struct member *m, uint32_t lease_gpu)
{
    struct tenant *t = m->tenant;
    m->measure_pending |= 1U << lease_gpu;
    m->measure_asked_ns = a->now_ns;
    if (t->measure_due_ns)
        return;
    t->measure_due_ns = credit_wait(t->measured_ns, a->now_ns);
    if (t->measure_due_ns)
        return;
    read_ledger(m, lease_gpu);
    want_card(a, a->gpu[t->gpu[lease_gpu]].index);
}

/* Those who had to wait: of a tenant that asked too often, and of a card that too many asked for. */
static uint64_t ask_for_waiting(struct arbiter *a)
{
    struct measure *k = a->measure;
    uint64_t next = UINT64_MAX;
    for (struct tenant *t = a->tenants; t; t = t->next) {
        if (t->measure_due_ns && a->now_ns >= t->measure_due_ns) {
            uint32_t pending = 0;
            t->measure_due_ns = 0;
            for (const struct member *m = t->members; m; m = m->next)
                pending |= m->measure_pending;
            for (uint32_t i = 0; i < t->gpu_count; i++)
                if (pending >> i & 1)
                    want_card(a, a->gpu[t->gpu[i]].index);
        }
        if (t->measure_due_ns)
            next = least(next, t->measure_due_ns);
    }
    for (uint32_t card = 0; card < k->cards; card++) {
        if (k->due_ns[card] && a->now_ns >= k->due_ns[card]) {
            k->due_ns[card] = 0;
            want_card(a, card);
        }
        if (k->due_ns[card])
            next = least(next, k->due_ns[card]);
    }
    return next;
}

/* What was charged to a tenant for a process outside its ledger. */
static void uncharge_unattached(struct arbiter *a, const struct sl_msg_audit *f)
{
    struct tenant *t = sl_arb_tenant_find(a, f->tenant);
    if (!t || f->kind != SL_AUDIT_UNATTACHED)
        return;
    for (uint32_t i = 0; i < t->gpu_count; i++)
        if (strcmp(a->gpu[t->gpu[i]].uuid, f->uuid) == 0)
            t->unattached_bytes[i] -= least(t->unattached_bytes[i], f->bytes);
    sl_arb_tenant_overhead(t);
}

static bool booked(const struct member *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->tenant->gpu_count; i++)
        any |= ledger_bytes(m, i) != 0;
    return any;
}

void sl_arb_measure_joined(struct arbiter *a, struct member *m, bool returns)
{
    if (returns) {
        m->believe_from_ns = a->now_ns + RETURN_NS;
        sl_arb_overheads_back(m->tenant, m);
    }
    if (returns && !booked(m)) {
        m->tenant->doubt = (1U << m->tenant->gpu_count) - 1;
        m->tenant->doubt_since_ns = m->believe_from_ns;
    }
    for (struct audit_finding **p = &a->findings; *p;) {
        struct audit_finding *f = *p;
        if ((pid_t)f->msg.pid != m->pid) {
            p = &f->next;
            continue;
        }
        *p = f->next;
        uncharge_unattached(a, &f->msg);
        free(f);
    }
}

/* A process whose overhead is not known yet could take that much too much: then the next look is not
 * put off. One that never stands still is believed after UNSTEADY_MAX looks, so this ends. */
static bool all_measured(const struct arbiter *a)
{
    for (const struct tenant *t = a->tenants; t; t = t->next)
        for (const struct member *m = t->members; m; m = m->next)
            if (m->measured != (1U << t->gpu_count) - 1)
                return false;
    return true;
}

uint64_t sl_arb_measure_tick(struct arbiter *a)
{
    struct measure *m = a->measure;
    if (m->seen_ends != a->ends) {
        m->seen_ends = a->ends;
        m->ended_ns = a->now_ns;
        m->unsettled = (1U << m->cards) - 1;
        m->looks_left = ENDS_LOOKS;
    }
    if (!a->tenants && (!m->unsettled || !m->looks_left))
        return UINT64_MAX;
    uint64_t waiting = ask_for_waiting(a);
    if (m->seen_changes != a->changes) {
        m->seen_changes = a->changes;
        m->audit_gap_ns = AUDIT_MIN_NS;
        if (m->next_audit_ns > a->now_ns + AUDIT_MIN_NS)
            m->next_audit_ns = a->now_ns + AUDIT_MIN_NS;
    }
    if (a->now_ns >= m->next_audit_ns) {
        m->next_audit_ns = a->now_ns + m->audit_gap_ns;
        m->looks_left -= m->looks_left > 0;
        if (all_measured(a) && (!m->unsettled || !m->looks_left))
            m->audit_gap_ns = m->audit_gap_ns < AUDIT_MAX_NS ? m->audit_gap_ns * 4 : AUDIT_MAX_NS;
        for (uint32_t card = 0; card < a->measure->cards; card++)
            ask_card(a, card);
    }
    return least(waiting, a->measure->next_audit_ns);
}

int sl_arb_measure_open(struct arbiter *a, struct sl_err *err)
{
    struct measure *m = a->measure = calloc(1, sizeof(*m));
    if (!m)
        return sl_err_set(err, -ENOMEM, "out of memory");
    m->results.fd = -1;
    int rc = sl_gpu_open(a->opt.nvml_library, &m->gpu, err);
    if (rc == 0)
        rc = list_gpus(a, err);
    if (rc < 0)
        return rc;
    m->results =
        (struct source){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .ready = results_ready};
    if (m->results.fd < 0)
        return sl_err_errno(err, errno, "cannot create an event descriptor");
    m->worker = sl_nvml_worker_start(m->gpu, m->results.fd);
    if (!m->worker)
        return sl_err_set(err, -ENOMEM, SL_E_NVML_THREAD);
    return sl_arb_watch(a, &m->results, EPOLLIN, err);
}

void sl_arb_measure_close(struct arbiter *a)
{
    struct measure *m = a->measure;
    sl_nvml_worker_stop(m->worker);
    sl_arb_unwatch(a, &m->results);
    sl_gpu_close(m->gpu);
    while (a->findings) {
        struct audit_finding *f = a->findings;
        a->findings = f->next;
        free(f);
    }
    free(m);
    a->measure = NULL;
}
