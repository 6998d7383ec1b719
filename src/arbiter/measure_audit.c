/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a finding for each process that uses a GPU outside every ledger. */
#include "arbiter/measure_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"

/* More than this beyond ledger and context is not a module. */
#define UNACCOUNTED_BYTES (1ULL << 30)

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
    struct audit_finding *f = sl_xcalloc(1, sizeof(*f));
    sl_packet_init(&f->msg.h, SL_MSG_AUDIT, sizeof(f->msg));
    f->msg.pid = p->pid;
    f->msg.kind = kind;
    f->msg.bytes = bytes;
    if (t)
        memcpy(f->msg.tenant, t->name, sizeof(f->msg.tenant));
    for (uint32_t g = 0; g < a->gpu_count; g++)
        if (sl_measure_on_gpu(&a->gpu[g], s, p))
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

/* A child that does not attach still uses the card for its tenant: charge the tenant. */
static void charge_unattached(struct arbiter *a, const struct snapshot *s, struct tenant *t,
                              const struct sl_gpu_process *p)
{
    for (uint32_t i = 0; i < t->gpu_count; i++)
        if (sl_measure_on_gpu(&a->gpu[t->gpu[i]], s, p))
            t->unattached_bytes[i] += p->used_bytes;
}

/* After a restart: a process that has not returned yet is no stranger. */
static bool recovering(const struct arbiter *a)
{
    for (const struct tenant *t = a->tenants; t; t = t->next)
        if (t->recover_until_ns)
            return true;
    return false;
}

void sl_measure_audit(struct arbiter *a, const struct snapshot *s)
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
                if (sl_measure_on_gpu(&a->gpu[m->tenant->gpu[g]], s, p) &&
                    sl_measure_unaccounted(m, g) > UNACCOUNTED_BYTES)
                    add_finding(a, s, p, SL_AUDIT_UNACCOUNTED, m->tenant,
                                sl_measure_unaccounted(m, g));
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

/* Removes the charge of a tenant for a process outside its ledger. */
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

void sl_measure_not_outside(struct arbiter *a, const struct member *m)
{
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
