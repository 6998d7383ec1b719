/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/status_view.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/table.h"
#include "share/share.h"

static const struct sl_msg_gpu *find_gpu(const struct sl_client_status *s, const char *uuid)
{
    for (size_t i = 0; i < s->gpu_count; i++)
        if (strcmp(s->gpu[i].uuid, uuid) == 0)
            return &s->gpu[i];
    return NULL;
}

/* The index people know a GPU by, else its UUID. */
static const char *gpu_label(const struct sl_client_status *s, const char *uuid, char *buf,
                             size_t size)
{
    const struct sl_msg_gpu *g = find_gpu(s, uuid);
    if (g)
        (void)snprintf(buf, size, "%u", g->index);
    else
        (void)snprintf(buf, size, "%s", uuid);
    return buf;
}

static const char *percent(uint32_t permille, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%u.%u%%", permille / 10, permille % 10);
    return buf;
}

static const char *compute_name(uint32_t compute)
{
    return compute == SL_COMPUTE_TURNS ? "turns" : "slices";
}

static void print_gpus(const struct sl_status_view *v, FILE *out, bool colour)
{
    static const struct sl_table_column columns[] = {
        {"GPU", true},     {"NAME", false},      {"MEMORY", true},
        {"USED", true},    {"PROMISED", true},   {"CORES", true},
        {"TENANTS", true}, {"SHARED BY", false}, {"UUID", false}};
    struct sl_table t;
    sl_table_init(&t, columns, SL_ARRAY_LEN(columns));
    for (size_t i = 0; i < v->status->gpu_count; i++) {
        const struct sl_msg_gpu *g = &v->status->gpu[i];
        char b[32];
        sl_table_cell(&t, "%u", g->index);
        sl_table_cell(&t, "%s", g->name);
        sl_table_cell(&t, "%s", sl_format_bytes(g->total_bytes, b, sizeof(b)));
        sl_table_cell(&t, "%s", sl_format_bytes(g->used_bytes, b, sizeof(b)));
        sl_table_cell(&t, "%s", sl_format_bytes(g->promised_bytes, b, sizeof(b)));
        sl_table_cell(&t, "%s%%",
                      sl_format_cores(g->promised_permille, g->promised_permille, b, sizeof(b)));
        sl_table_cell(&t, "%u", g->tenants);
        sl_table_cell(&t, "%s", compute_name(g->compute));
        sl_table_cell(&t, "%s", g->uuid);
    }
    sl_table_print(&t, out, colour);
    for (size_t i = 0; i < v->status->gpu_count; i++) {
        const struct sl_msg_gpu *g = &v->status->gpu[i];
        if (g->compute == SL_COMPUTE_TURNS)
            (void)fprintf(out, "GPU %u is shared by turns: %s\n", g->index, g->compute_why);
    }
}

/* The columns that belong to one GPU of a tenant. */
static void gpu_cells(struct sl_table *t, const struct sl_status_view *v,
                      const struct sl_msg_tenant *m, uint32_t i)
{
    char b[80];
    uint64_t used = m->gpu[i].used_bytes + m->gpu[i].overhead_bytes;
    sl_table_cell(t, "%s", gpu_label(v->status, m->gpu[i].uuid, b, sizeof(b)));
    if (m->gpu[i].limit_bytes == SL_NO_LIMIT)
        sl_table_cell(t, "-");
    else
        sl_table_cell(t, "%s", sl_format_bytes(m->gpu[i].limit_bytes, b, sizeof(b)));
    sl_table_cell(t, "%s", sl_format_bytes(used, b, sizeof(b)));
}

static void tenant_cells(struct sl_table *t, const struct sl_msg_tenant *m)
{
    char b[32];
    if (m->cores_request_permille)
        sl_table_cell(
            t, "%s",
            sl_format_cores(m->cores_request_permille, m->cores_limit_permille, b, sizeof(b)));
    else
        sl_table_cell(t, "-");
    sl_table_cell(t, "%s", percent(m->share_1s_permille, b, sizeof(b)));
    sl_table_cell(t, "%s", percent(m->share_60s_permille, b, sizeof(b)));
    sl_table_cell(t, "%s", sl_priority_name(m->priority));
    sl_table_cell(t, "%u", m->processes);
    sl_table_cell(t, "%s", sl_format_duration(m->waited_ns, b, sizeof(b)));
    sl_table_cell(t, "%llu", (unsigned long long)m->launches);
    sl_table_cell(t, "%llu", (unsigned long long)m->oom_count);
    if (m->compute == SL_COMPUTE_TURNS)
        sl_table_cell(t, "turns");
    else
        sl_table_cell(t, "%s", sl_format_duration(m->slice_us * 1000ULL, b, sizeof(b)));
}

/* "namespace/pod", and the container or another word that tells the pod's tenants apart. */
static const char *pod_label(const char *about, char *buf, size_t size)
{
    char space[64], pod[256], part[64];
    if (!sl_client_about(about, "pod", pod, sizeof(pod)) &&
        !sl_client_about(about, "claim", pod, sizeof(pod)))
        return "";
    (void)sl_client_about(about, "namespace", space, sizeof(space));
    if (!sl_client_about(about, "container", part, sizeof(part)))
        (void)sl_client_about(about, "request", part, sizeof(part));
    (void)snprintf(buf, size, "%s/%s%s%s", space, pod, part[0] ? "/" : "", part);
    return sl_table_printable(buf);
}

static bool any_pod(const struct sl_client_status *s)
{
    char b[400];
    for (size_t i = 0; i < s->tenant_count; i++)
        if (pod_label(s->tenant[i].about, b, sizeof(b))[0])
            return true;
    return false;
}

static void print_tenants(const struct sl_status_view *v, FILE *out, bool colour)
{
    static const struct sl_table_column columns[] = {
        {"TENANT", false}, {"GPU", true},    {"LIMIT", true},    {"USED", true},
        {"CORES", true},   {"GOT 1s", true}, {"GOT 1min", true}, {"PRIORITY", false},
        {"PROCS", true},   {"WAITED", true}, {"LAUNCHES", true}, {"REFUSED", true},
        {"SLICE", true},   {"POD", false}};
    struct sl_table t;
    char pod[400];
    bool pods = any_pod(v->status);
    sl_table_init(&t, columns, SL_ARRAY_LEN(columns) - (pods ? 0 : 1));
    for (size_t i = 0; i < v->status->tenant_count; i++) {
        const struct sl_msg_tenant *m = &v->status->tenant[i];
        for (uint32_t g = 0; g < m->gpu_count; g++) {
            sl_table_cell(&t, "%s", g ? "" : m->name);
            gpu_cells(&t, v, m, g);
            if (g == 0)
                tenant_cells(&t, m);
            if (g == 0 && pods)
                sl_table_cell(&t, "%s", pod_label(m->about, pod, sizeof(pod)));
            while (t.cell_count % t.column_count != 0)
                sl_table_cell(&t, "%s", "");
        }
    }
    sl_table_print(&t, out, colour);
}

static void print_finding(const struct sl_status_view *v, const struct sl_msg_audit *a, FILE *out)
{
    char bytes[32], gpu[80], command[sizeof(a->command)], tenant[sizeof(a->tenant)];
    memcpy(command, a->command, sizeof(command));
    memcpy(tenant, a->tenant, sizeof(tenant));
    (void)sl_table_printable(command);
    (void)sl_table_printable(tenant);
    (void)sl_format_bytes(a->bytes, bytes, sizeof(bytes));
    (void)gpu_label(v->status, a->uuid, gpu, sizeof(gpu));
    static const char *const why[] = {
        [SL_AUDIT_STRANGER] = "; it belongs to no tenant",
        [SL_AUDIT_UNATTACHED] =
            " without libsluice: the program is static, or LD_PRELOAD was removed",
        [SL_AUDIT_UNACCOUNTED] = " that libsluice did not count"};
    bool known = a->kind < SL_ARRAY_LEN(why) && why[a->kind];
    bool of_tenant = a->kind == SL_AUDIT_UNATTACHED || a->kind == SL_AUDIT_UNACCOUNTED;
    (void)fprintf(out, "process %u (%s)%s%s uses %s on GPU %s%s\n", a->pid, command,
                  of_tenant ? " of tenant " : "", of_tenant ? tenant : "", bytes, gpu,
                  known ? why[a->kind] : " that no tenant's account contains");
}

void sl_status_text(const struct sl_status_view *v, FILE *out, bool colour)
{
    if (v->sim)
        (void)fprintf(out, "Simulated GPUs (%s)\n", v->sim);
    print_gpus(v, out, colour);
    if (v->status->tenant_count) {
        (void)fputc('\n', out);
        print_tenants(v, out, colour);
    } else {
        (void)fputs("\nNo tenants.\n", out);
    }
    for (size_t i = 0; i < v->status->audit_count; i++) {
        (void)fprintf(out, "%s%sAudit:%s ", i ? "" : "\n", colour ? SL_COLOUR_YELLOW : "",
                      colour ? SL_COLOUR_OFF : "");
        print_finding(v, &v->status->audit[i], out);
    }
}

/* --- JSON --- */

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

/* The kind of compute that the tenant asked for, not the kind that it got. */
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
    sl_json_string(j, "compute", compute_name(g->compute));
    sl_json_string(j, "compute_reason", g->compute_why[0] ? g->compute_why : NULL);
    sl_json_end(j, '}');
}

static void json_tenant_gpus(struct sl_json *j, const struct sl_client_status *s,
                             const struct sl_msg_tenant *m)
{
    sl_json_begin(j, "gpus", '[');
    for (uint32_t i = 0; i < m->gpu_count; i++) {
        const struct sl_msg_gpu *g = find_gpu(s, m->gpu[i].uuid);
        sl_json_begin(j, NULL, '{');
        if (g)
            sl_json_uint(j, "index", g->index);
        else
            sl_json_string(j, "index", NULL);
        sl_json_string(j, "uuid", m->gpu[i].uuid);
        put_limit(j, "memory_limit_bytes", m->gpu[i].limit_bytes);
        sl_json_uint(j, "memory_used_bytes", m->gpu[i].used_bytes);
        sl_json_uint(j, "memory_overhead_bytes", m->gpu[i].overhead_bytes);
        sl_json_end(j, '}');
    }
    sl_json_end(j, ']');
}

/* The pairs of a tenant's description, unchanged. */
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

static void json_tenant(struct sl_json *j, const struct sl_client_status *s,
                        const struct sl_msg_tenant *m)
{
    static const char *const gates[] = {[SL_GATE_FREE] = "free",
                                        [SL_GATE_OPEN] = "open",
                                        [SL_GATE_CLOSED] = "closed",
                                        [SL_GATE_METER] = "meter"};
    sl_json_begin(j, NULL, '{');
    sl_json_string(j, "name", m->name);
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
    sl_json_string(j, "compute", compute_name(m->compute));
    sl_json_string(j, "compute_asked", compute_asked(m->flags));
    sl_json_uint(j, "slice_us", m->slice_us);
    sl_json_uint(j, "window_ns", m->window_ns);
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

void sl_status_json(const struct sl_status_view *v, FILE *out)
{
    struct sl_json j;
    sl_json_init(&j, out);
    sl_json_begin(&j, NULL, '{');
    sl_json_bool(&j, "running", v->running);
    sl_json_string(&j, "dir", v->dir);
    sl_json_string(&j, "simulated", v->sim);
    if (v->arbiter_pid > 0)
        sl_json_int(&j, "arbiter_pid", v->arbiter_pid);
    else
        sl_json_string(&j, "arbiter_pid", NULL);
    sl_json_begin(&j, "gpus", '[');
    for (size_t i = 0; i < v->status->gpu_count; i++)
        json_gpu(&j, &v->status->gpu[i]);
    sl_json_end(&j, ']');
    sl_json_begin(&j, "tenants", '[');
    for (size_t i = 0; i < v->status->tenant_count; i++)
        json_tenant(&j, v->status, &v->status->tenant[i]);
    sl_json_end(&j, ']');
    sl_json_begin(&j, "audit", '[');
    for (size_t i = 0; i < v->status->audit_count; i++)
        json_audit(&j, &v->status->audit[i]);
    sl_json_end(&j, ']');
    sl_json_end(&j, '}');
}
