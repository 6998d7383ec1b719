/* SPDX-License-Identifier: Apache-2.0 */
/* When the driver is asked for the usage of processes, and which processes get the answer. */
#include "arbiter/measure_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "arbiter/errors.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "shm/account.h"
#include "shm/shared.h"

/* A question to NVML holds the driver's locks for milliseconds, and launches wait meanwhile. So it is asked this often
 * only while tenants come and go, then more and more rarely. */
#define AUDIT_MIN_NS     SL_NS_PER_S
#define AUDIT_MAX_NS     (16 * SL_NS_PER_S)
/* A process that returns to us enters its memory into the ledger as soon as it has read our WELCOME. Before that the
 * ledger says too little, and all its memory would look like overhead. */
#define RETURN_NS        SL_NS_PER_S
/* A stopped process may have read the WELCOME and not have entered its memory yet. It is measured all the same. This
 * long after its return the arbiter no longer expects that it has some to enter. */
#define UNBOOKED_NS      (60 * SL_NS_PER_S)
/* A driver may take seconds to free the memory of a process: so many checks, one a second. */
#define ENDS_LOOKS       40
#define ENDS_SLACK_BYTES (256ULL << 20)
/* The part of the driver's time for questions of processes: a fiftieth for a tenant, a twenty-fifth for a card, beyond
 * two seconds' worth at once. Later questions wait for the next snapshot, which answers all of them; a process waits
 * two seconds for it, so no question costs more than one snapshot. */
#define TENANT_COST      50
#define CARD_COST        25
#define COST_MAX_NS      SL_NS_PER_S
#define CREDIT_NS        (2 * SL_NS_PER_S)
/* A snapshot that takes longer counts as lost. */
#define ANSWER_LOST_NS   (5 * SL_NS_PER_S)

/* After a restart: a process that did not return is in this snapshot now, and charged to its tenant. */
static void end_doubt(struct arbiter *a, const struct snapshot *s, struct tenant *t)
{
    for (uint32_t i = 0; i < t->gpu_count; i++)
        if ((t->doubt >> i & 1) && a->gpu[t->gpu[i]].index == s->card &&
            s->asked_ns >= t->doubt_since_ns) {
            t->doubt &= ~(1U << i);
            sl_arb_grant_share(a, &t->gpu[i], 1);
        }
}

/* A card is settled when all memory in use belongs to processes again, except for the part that never does. */
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

/* 0: the credit lasts for another question; else the time when it will. */
static uint64_t credit_wait(uint64_t paid_ns, uint64_t now_ns)
{
    return paid_ns > now_ns + CREDIT_NS ? paid_ns - CREDIT_NS : 0;
}

static void pay(uint64_t *paid_ns, uint64_t now_ns, uint64_t took_ns, uint64_t cost)
{
    *paid_ns = (*paid_ns > now_ns ? *paid_ns : now_ns) + least(took_ns * cost, COST_MAX_NS);
}

static bool answer_member(struct member *m, const struct snapshot *s, uint32_t i)
{
    if (!(m->measure_pending >> i & 1) || sl_measure_waits_for_later(m, s, i))
        return false;
    m->measure_pending &= ~(1U << i);
    m->put_by_bytes[i] = 0;
    struct sl_msg_measure answer = {.gpu = i, .overhead_bytes = m->overhead_bytes[i]};
    sl_packet_init(&answer.h, SL_MSG_MEASURED, sizeof(answer));
    /* If the answer cannot be sent, the process waits until its own time limit. */
    if (m->conn.fd >= 0 && sl_packet_send(m->conn.fd, &answer.h, NULL, 0, NULL) < 0)
        sl_debug("process %d did not take its measurement", m->pid);
    return true;
}

static uint64_t operations(const struct member *m)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < m->tenant->gpu_count; i++)
        sum += sl_account_operations(m->tenant->ledger.page, m->slot, i);
    return sum;
}

bool sl_arb_measure_entered(const struct member *m)
{
    return !m->unbooked_until_ns || operations(m) != m->unbooked_operations;
}

/* Says in the lease page whether memory of a process may count twice, or will once the process goes on. */
static void settle_tenant(struct arbiter *a, struct tenant *t)
{
    bool settling = false;
    for (struct member *m = t->members; m && t->ledger.page; m = m->next) {
        if (a->now_ns >= m->unbooked_until_ns)
            m->unbooked_until_ns = m->whole = 0;
        settling |= m->whole || !sl_arb_measure_entered(m);
    }
    atomic_store(&t->lease.page->settling, settling);
}

static void use_snapshot(struct arbiter *a, const struct snapshot *s)
{
    bool asked_for = false;
    a->measure->answered_ns[s->card] = s->asked_ns;
    for (uint32_t g = 0; g < a->gpu_count; g++)
        if (a->gpu[g].index == s->card)
            a->gpu[g].used_bytes = s->used_bytes;
    /* A snapshot that was begun before the last process ended does not show that end. */
    if (s->asked_ns >= a->measure->ended_ns)
        settle_card(a->measure, s);
    if (s->rc == 0)
        sl_measure_audit(a, s);
    for (struct tenant *t = a->tenants; t; t = t->next) {
        for (uint32_t i = 0; i < t->gpu_count; i++) {
            if (a->gpu[t->gpu[i]].index != s->card || !t->ledger.page)
                continue;
            if (t->reaped_absent)
                sl_account_true_up(t->ledger.page, i);
            for (struct member *m = t->members; m && s->rc == 0; m = m->next)
                sl_measure_member(a, s, m, i);
            if (s->rc == 0)
                sl_measure_balance(a, s, t, i);
        }
        /* Memory that only a descriptor kept, and the descriptor is closed by now. */
        if (t->ledger.page)
            (void)sl_shared_sweep(t->ledger.page, SL_SHARED_BY_ARBITER, sl_arb_descriptor_exists);
        /* First the page, then the answer: a process that has the answer may rely on the page. */
        settle_tenant(a, t);
        sl_arb_tenant_overhead(t);
        sl_arb_overheads_save(a, t);
        end_doubt(a, s, t);
        sl_arb_alone_look(a, t);
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

static void results_ready(struct arbiter *a, struct source *src)
{
    uint64_t count;
    ssize_t ignored = read(src->fd, &count, sizeof(count));
    (void)ignored;
    for (struct snapshot *s = sl_nvml_worker_take(a->measure->worker); s;
         s = sl_nvml_worker_take(a->measure->worker)) {
        use_snapshot(a, s);
        sl_snapshot_free(s);
    }
}

/* Reads the ledgers before a snapshot. A running snapshot keeps the figures from its beginning: only figures that were
 * read before the driver's can show that nothing moved. */
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
                sl_measure_read_ledger(m, i);
        }
    k->asked_ns[card] = a->now_ns;
    sl_nvml_worker_ask(k->worker, card, a->now_ns);
}

/* A process asks: start a snapshot now, or when the card has credit again. */
static void want_card(struct arbiter *a, uint32_t card)
{
    struct measure *k = a->measure;
    if (k->due_ns[card])
        return;
    k->due_ns[card] = credit_wait(k->paid_ns[card], a->now_ns);
    if (!k->due_ns[card])
        ask_card(a, card);
}

void sl_arb_measure_ask(struct arbiter *a, struct member *m, const struct sl_msg_measure *ask)
{
    struct tenant *t = m->tenant;
    uint32_t lease_gpu = ask->gpu;
    m->put_by_bytes[lease_gpu] = ask->overhead_bytes;
    m->measure_pending |= 1U << lease_gpu;
    m->measure_asked_ns = a->now_ns;
    if (t->measure_due_ns)
        return;
    t->measure_due_ns = credit_wait(t->measured_ns, a->now_ns);
    if (t->measure_due_ns)
        return;
    sl_measure_read_ledger(m, lease_gpu);
    want_card(a, a->gpu[t->gpu[lease_gpu]].index);
}

/* Answers processes that had to wait because their tenant asked too often, or too many asked for their card. */
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

void sl_arb_measure_joined(struct arbiter *a, struct member *m, bool returns)
{
    if (returns) {
        m->believe_from_ns = a->now_ns + RETURN_NS;
        sl_arb_overheads_back(m->tenant, m);
    }
    if (returns && !sl_measure_booked(m)) {
        m->unbooked_until_ns = a->now_ns + UNBOOKED_NS;
        m->unbooked_operations = operations(m);
        atomic_store(&m->tenant->lease.page->settling, 1);
        m->tenant->doubt = (1U << m->tenant->gpu_count) - 1;
        m->tenant->doubt_since_ns = m->believe_from_ns;
    }
    sl_measure_not_outside(a, m);
}

/* A process with unknown overhead could take too much memory: then the next snapshot comes soon. A ledger that never
 * stands still is accepted after UNSTEADY_MAX snapshots, so this ends. */
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

static void add_gpu(struct arbiter *a, const struct gpu *g)
{
    if (a->gpu_count < SL_ARB_MAX_GPUS)
        a->gpu[a->gpu_count++] = *g;
    else
        sl_warn(SL_E_GPU_LEFT_OUT_LOG, g->uuid, SL_ARB_MAX_GPUS);
}

/* Cards with NVLinks between them, directly or through others, are one group; a card without links is its own. */
static void find_link_groups(struct arbiter *a, size_t count)
{
    uint8_t links[SL_MAX_GPUS * SL_MAX_GPUS] = {0}, group[SL_MAX_GPUS];
    (void)!sl_gpu_nvlinks(a->measure->gpu, links, count, NULL); /* without an answer: no links */
    for (size_t i = 0; i < count; i++)
        group[i] = (uint8_t)i;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++) {
            uint8_t joined = group[j];
            for (size_t k = 0; links[i * count + j] && k < count; k++)
                group[k] = group[k] == joined ? group[i] : group[k];
        }
    for (uint32_t i = 0; i < a->gpu_count; i++)
        a->gpu[i].link_group = group[a->gpu[i].index];
}

/* Finds the GPUs and MIG instances that the arbiter serves. */
static int find_gpus(struct arbiter *a, struct sl_err *err)
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
    if (sl_gpu_driver_version(a->measure->gpu, a->driver, sizeof(a->driver), NULL) < 0)
        a->driver[0] = '\0';
    memset(a->measure->nobodys_bytes, 0xff, sizeof(a->measure->nobodys_bytes)); /* not known */
    for (size_t i = 0; i < count; i++) {
        struct sl_gpu_info info;
        if (sl_gpu_info(a->measure->gpu, i, &info, err) < 0) {
            sl_warn(SL_E_GPU_UNREADABLE_LOG, i, err->msg);
            continue;
        }
        struct gpu g = {.index = (uint32_t)i,
                        .instance = UINT32_MAX,
                        .total_bytes = info.memory_total_bytes,
                        .numa = (uint8_t)(info.numa_node > 0 ? info.numa_node : 0)};
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
    find_link_groups(a, count);
    return 0;
}

int sl_arb_measure_open(struct arbiter *a, struct sl_err *err)
{
    struct measure *m = a->measure = sl_xcalloc(1, sizeof(*m));
    m->results.fd = -1;
    int rc = sl_gpu_open(a->opt.nvml_library, &m->gpu, err);
    if (rc == 0)
        rc = find_gpus(a, err);
    if (rc < 0)
        return rc;
    m->results =
        (struct source){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .ready = results_ready};
    if (m->results.fd < 0)
        return sl_err_errno(err, errno, "cannot create an event descriptor");
    m->worker = sl_nvml_worker_start(m->gpu, m->results.fd);
    if (!m->worker)
        return sl_err_set(err, -ENOMEM, SL_E_NVML_THREAD);
    return sl_arb_watch(a, &m->results, err);
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
