/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/json.h"
#include "cli/status_view.h"
#include "cli/status_words.h"
#include "share/share.h"

static void put_percent(struct sl_json *j, const char *key, uint32_t permille)
{
    sl_json_double(j, key, permille / 10.0);
}

static void put_limit(struct sl_json *j, const char *key, uint64_t bytes)
{
    if (bytes == SL_NO_LIMIT)
        sl_json_string(j, key, NULL);
    else
        sl_json_uint(j, key, bytes);
}

/* What was asked for, not what came of it. */
static const char *compute_asked(uint32_t flags)
{
    if (flags & SL_LEASE_TURNS)
        return "turns";
    return flags & SL_LEASE_SLICES ? "slices" : "auto";
}

static void json_gpu(struct sl_json *j, const struct sl_msg_gpu *g)
{
    sl_json_begin(j, NULL, '{');
    sl_json_uint(j, "index", g->index);
    sl_json_string(j, "uuid", g->uuid);
    sl_json_string(j, "name", g->name);
    sl_json_uint(j, "memory_total_bytes", g->total_bytes);
    sl_json_uint(j, "memory_used_bytes", g->used_bytes);
    sl_json_uint(j, "memory_promised_bytes", g->promised_bytes);
    put_percent(j, "cores_promised_percent", g->promised_permille);
    sl_json_uint(j, "tenants", g->tenants);
    sl_json_string(j, "compute", sl_status_compute(g->compute));
    sl_json_string(j, "compute_reason", g->compute_why[0] ? g->compute_why : NULL);
    sl_json_end(j, '}');
}

void sl_status_gpu_json(struct sl_json *j, const struct sl_client_status *s, const char *uuid)
{
    const struct sl_msg_gpu *g = sl_status_gpu(s, uuid);
    if (g)
        sl_json_uint(j, "index", g->index);
    else
        sl_json_string(j, "index", NULL);
    sl_json_string(j, "uuid", uuid);
}

static void json_tenant_gpus(struct sl_json *j, const struct sl_client_status *s,
                             const struct sl_msg_tenant *m)
{
    sl_json_begin(j, "gpus", '[');
    for (uint32_t i = 0; i < m->gpu_count; i++) {
        sl_json_begin(j, NULL, '{');
        sl_status_gpu_json(j, s, m->gpu[i].uuid);
        put_limit(j, "memory_limit_bytes", m->gpu[i].limit_bytes);
        sl_json_uint(j, "memory_used_bytes", m->gpu[i].used_bytes);
        sl_json_uint(j, "memory_overhead_bytes", m->gpu[i].overhead_bytes);
        sl_json_end(j, '}');
    }
    sl_json_end(j, ']');
}

/* The pairs of a tenant's description, as they are. */
static void json_about(struct sl_json *j, const char *about)
{
    sl_json_begin(j, "about", '{');
    for (const char *p = about; *p; p += strcspn(p, " "), p += *p == ' ') {
        char key[32], value[256];
        size_t n = strcspn(p, "= ");
        if (p[n] != '=' || n == 0 || n >= sizeof(key))
            continue;
        (void)snprintf(key, sizeof(key), "%.*s", (int)n, p);
        (void)sl_client_about(p, key, value, sizeof(value));
        sl_json_string(j, key, value);
    }
    sl_json_end(j, '}');
}

static void json_tenant(struct sl_json *j, const char *key, const struct sl_client_status *s,
                        const struct sl_msg_tenant *m)
{
    static const char *const gates[] = {[SL_GATE_FREE] = "free",
                                        [SL_GATE_OPEN] = "open",
                                        [SL_GATE_CLOSED] = "closed",
                                        [SL_GATE_METER] = "meter"};
    sl_json_begin(j, key, '{');
    sl_json_string(j, "name", m->name);
    if (m->h.option) {
        char user[64];
        sl_json_string(j, "user", sl_status_user(m, user, sizeof(user)));
        sl_json_uint(j, "uid", m->h.option - 1U);
    }
    sl_json_uint(j, "processes", m->processes);
    sl_json_string(j, "priority", sl_priority_name(m->priority));
    if (m->cores_request_permille)
        put_percent(j, "cores_request_percent", m->cores_request_permille);
    else
        sl_json_string(j, "cores_request_percent", NULL);
    put_percent(j, "cores_limit_percent", m->cores_limit_permille);
    put_percent(j, "share_1s_percent", m->share_1s_permille);
    put_percent(j, "share_60s_percent", m->share_60s_permille);
    sl_json_string(j, "gate", m->gate < SL_ARRAY_LEN(gates) ? gates[m->gate] : NULL);
    sl_json_string(j, "compute", sl_status_compute(m->compute));
    sl_json_string(j, "compute_asked", compute_asked(m->flags));
    sl_json_uint(j, "slice_us", m->slice_us);
    sl_json_uint(j, "used_ns", m->used_ns);
    sl_json_int(j, "debt_ns", m->debt_ns);
    sl_json_uint(j, "waited_ns", m->waited_ns);
    sl_json_uint(j, "launches", m->launches);
    sl_json_uint(j, "oom_count", m->oom_count);
    sl_json_uint(j, "age_ns", m->age_ns);
    sl_json_uint(j, "creator_pid", m->creator_pid);
    sl_json_bool(j, "kept", m->flags & SL_LEASE_KEEP);
    sl_json_bool(j, "paused", m->flags & SL_LEASE_PAUSED);
    json_about(j, m->about);
    json_tenant_gpus(j, s, m);
    sl_json_end(j, '}');
}

static void json_audit(struct sl_json *j, const struct sl_msg_audit *a)
{
    static const char *const kinds[] = {[SL_AUDIT_STRANGER] = "stranger",
                                        [SL_AUDIT_UNATTACHED] = "unattached",
                                        [SL_AUDIT_UNACCOUNTED] = "unaccounted"};
    sl_json_begin(j, NULL, '{');
    sl_json_string(j, "kind", a->kind < SL_ARRAY_LEN(kinds) ? kinds[a->kind] : NULL);
    sl_json_uint(j, "pid", a->pid);
    sl_json_string(j, "command", a->command);
    sl_json_string(j, "tenant", a->tenant[0] ? a->tenant : NULL);
    sl_json_string(j, "gpu_uuid", a->uuid);
    sl_json_uint(j, "bytes", a->bytes);
    sl_json_end(j, '}');
}

/* One process; its GPUs are in the order of the tenant's. */
static void json_process(struct sl_json *j, const struct sl_client_status *s,
                         const struct sl_msg_tenant *m, const struct sl_msg_process *p)
{
    sl_json_begin(j, NULL, '{');
    sl_json_uint(j, "pid", p->pid);
    sl_json_string(j, "command", p->command);
    sl_json_uint(j, "waited_ns", p->waited_ns);
    sl_json_uint(j, "launches", p->launches);
    if (p->h.option) /* an arbiter from before protocol 3 does not tell */
        sl_json_uint(j, "protocol", p->h.option);
    else
        sl_json_string(j, "protocol", NULL);
    sl_json_begin(j, "gpus", '[');
    for (uint32_t i = 0; i < p->gpu_count && i < m->gpu_count; i++) {
        sl_json_begin(j, NULL, '{');
        sl_status_gpu_json(j, s, m->gpu[i].uuid);
        sl_json_uint(j, "memory_used_bytes", p->gpu[i].used_bytes);
        sl_json_uint(j, "memory_overhead_bytes", p->gpu[i].overhead_bytes);
        sl_json_end(j, '}');
    }
    sl_json_end(j, ']');
    sl_json_end(j, '}');
}

/* What both objects begin with. */
static void json_arbiter(struct sl_json *j, const struct sl_status_view *v)
{
    sl_json_bool(j, "running", v->running);
    sl_json_string(j, "dir", v->dir);
    sl_json_string(j, "simulated", v->sim);
    if (v->arbiter_pid > 0)
        sl_json_int(j, "arbiter_pid", v->arbiter_pid);
    else
        sl_json_string(j, "arbiter_pid", NULL);
}

void sl_status_json(const struct sl_status_view *v, FILE *out)
{
    struct sl_json j;
    sl_json_init(&j, out);
    sl_json_begin(&j, NULL, '{');
    json_arbiter(&j, v);
    sl_json_begin(&j, "gpus", '[');
    for (size_t i = 0; i < v->status->gpu_count; i++)
        json_gpu(&j, &v->status->gpu[i]);
    sl_json_end(&j, ']');
    sl_json_begin(&j, "tenants", '[');
    for (size_t i = 0; i < v->status->tenant_count; i++)
        json_tenant(&j, NULL, v->status, &v->status->tenant[i]);
    sl_json_end(&j, ']');
    sl_json_begin(&j, "audit", '[');
    for (size_t i = 0; i < v->status->audit_count; i++)
        json_audit(&j, &v->status->audit[i]);
    sl_json_end(&j, ']');
    sl_status_line_json(&j, v->status);
    sl_json_end(&j, '}');
}

void sl_status_tenant_json(const struct sl_status_view *v, const struct sl_status_detail *d,
                           FILE *out)
{
    struct sl_json j;
    sl_json_init(&j, out);
    sl_json_begin(&j, NULL, '{');
    json_arbiter(&j, v);
    json_tenant(&j, "tenant", v->status, d->tenant);
    if (d->untold) {
        sl_json_string(&j, "processes", NULL);
    } else {
        sl_json_begin(&j, "processes", '[');
        for (size_t i = 0; i < d->process_count; i++)
            json_process(&j, v->status, d->tenant, &d->processes[i]);
        sl_json_end(&j, ']');
    }
    sl_json_string(&j, "processes_reason", d->untold);
    sl_json_end(&j, '}');
}
