/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/status_view.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "base/xalloc.h"
#include "cli/status_words.h"
#include "cli/table.h"
#include "share/share.h"

/* What a row is about: a GPU, or a tenant and one of its GPUs. */
struct row {
    const struct sl_client_status *s;
    const struct sl_msg_gpu *gpu;
    const struct sl_msg_tenant *tenant;
    uint32_t at; /* in the tenant's GPUs */
};

struct column {
    struct sl_table_column title;
    enum { ALWAYS, WIDE, WIDE_PODS, USERS } when;
    bool once; /* in the first row of a tenant only */
    const char *(*text)(const struct row *r, char *buf, size_t size);
};

#define TEXT_MAX 400

static const char *number(uint64_t n, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%llu", (unsigned long long)n);
    return buf;
}

/* --- GPUs ---------------------------------------------------------------------------------------- */

static const char *gpu_index(const struct row *r, char *buf, size_t size)
{
    return number(r->gpu->index, buf, size);
}

static const char *gpu_name(const struct row *r, char *buf, size_t size)
{
    (void)buf, (void)size;
    return r->gpu->name;
}

static const char *gpu_memory(const struct row *r, char *buf, size_t size)
{
    return sl_format_bytes(r->gpu->total_bytes, buf, size);
}

static const char *gpu_used(const struct row *r, char *buf, size_t size)
{
    return sl_format_bytes(r->gpu->used_bytes, buf, size);
}

static const char *gpu_promised(const struct row *r, char *buf, size_t size)
{
    return sl_format_bytes(r->gpu->promised_bytes, buf, size);
}

static const char *gpu_cores(const struct row *r, char *buf, size_t size)
{
    uint32_t cores = r->gpu->promised_permille;
    (void)sl_format_cores(cores, cores, buf, size);
    (void)snprintf(buf + strlen(buf), size - strlen(buf), "%%");
    return buf;
}

static const char *gpu_tenants(const struct row *r, char *buf, size_t size)
{
    return number(r->gpu->tenants, buf, size);
}

static const char *gpu_compute(const struct row *r, char *buf, size_t size)
{
    (void)buf, (void)size;
    return sl_status_compute(r->gpu->compute);
}

static const char *gpu_uuid(const struct row *r, char *buf, size_t size)
{
    (void)buf, (void)size;
    return r->gpu->uuid;
}

static const struct column gpu_columns[] = {
    {{"GPU", SL_TABLE_RIGHT}, ALWAYS, false, gpu_index},
    {{"NAME", SL_TABLE_NAME}, ALWAYS, false, gpu_name},
    {{"MEMORY", SL_TABLE_RIGHT}, ALWAYS, false, gpu_memory},
    {{"USED", SL_TABLE_RIGHT}, ALWAYS, false, gpu_used},
    {{"PROMISED", SL_TABLE_RIGHT}, ALWAYS, false, gpu_promised},
    {{"CORES", SL_TABLE_RIGHT}, ALWAYS, false, gpu_cores},
    {{"TENANTS", SL_TABLE_RIGHT}, ALWAYS, false, gpu_tenants},
    {{"SHARED BY", SL_TABLE_LEFT}, WIDE, false, gpu_compute},
    {{"UUID", SL_TABLE_LEFT}, WIDE, false, gpu_uuid},
};

/* --- tenants ------------------------------------------------------------------------------------- */

static const char *tenant_name(const struct row *r, char *buf, size_t size)
{
    (void)buf, (void)size;
    return r->tenant->name;
}

static const char *tenant_gpu(const struct row *r, char *buf, size_t size)
{
    return sl_status_gpu_label(r->s, r->tenant->gpu[r->at].uuid, buf, size);
}

static const char *tenant_limit(const struct row *r, char *buf, size_t size)
{
    return sl_status_limit(r->tenant->gpu[r->at].limit_bytes, buf, size);
}

static const char *tenant_used(const struct row *r, char *buf, size_t size)
{
    return sl_format_bytes(r->tenant->gpu[r->at].used_bytes + r->tenant->gpu[r->at].overhead_bytes,
                           buf, size);
}

static const char *tenant_cores(const struct row *r, char *buf, size_t size)
{
    return sl_status_cores(r->tenant, buf, size);
}

static const char *tenant_second(const struct row *r, char *buf, size_t size)
{
    return sl_status_got(r->tenant, buf, size);
}

static const char *tenant_minute(const struct row *r, char *buf, size_t size)
{
    return sl_status_percent(r->tenant->share_60s_permille, buf, size);
}

static const char *tenant_priority(const struct row *r, char *buf, size_t size)
{
    (void)buf, (void)size;
    return sl_priority_name(r->tenant->priority);
}

static const char *tenant_processes(const struct row *r, char *buf, size_t size)
{
    return number(r->tenant->processes, buf, size);
}

static const char *tenant_waited(const struct row *r, char *buf, size_t size)
{
    return sl_format_duration(r->tenant->waited_ns, buf, size);
}

static const char *tenant_launches(const struct row *r, char *buf, size_t size)
{
    return number(r->tenant->launches, buf, size);
}

static const char *tenant_refused(const struct row *r, char *buf, size_t size)
{
    return number(r->tenant->oom_count, buf, size);
}

static const char *tenant_slice(const struct row *r, char *buf, size_t size)
{
    return sl_status_slice(r->tenant, buf, size);
}

static const char *tenant_pod(const struct row *r, char *buf, size_t size)
{
    return sl_status_pod(r->tenant->about, buf, size);
}

static const char *tenant_user(const struct row *r, char *buf, size_t size)
{
    return sl_status_user(r->tenant, buf, size);
}

static const struct column tenant_columns[] = {
    {{"TENANT", SL_TABLE_NAME}, ALWAYS, true, tenant_name},
    {{"USER", SL_TABLE_NAME}, USERS, true, tenant_user},
    {{"GPU", SL_TABLE_NAME}, ALWAYS, false, tenant_gpu},
    {{"LIMIT", SL_TABLE_RIGHT}, ALWAYS, false, tenant_limit},
    {{"USED", SL_TABLE_RIGHT}, ALWAYS, false, tenant_used},
    {{"CORES", SL_TABLE_RIGHT}, ALWAYS, true, tenant_cores},
    {{"GOT 1s", SL_TABLE_RIGHT}, ALWAYS, true, tenant_second},
    {{"GOT 1min", SL_TABLE_RIGHT}, WIDE, true, tenant_minute},
    {{"PRIORITY", SL_TABLE_LEFT}, ALWAYS, true, tenant_priority},
    {{"PROCS", SL_TABLE_RIGHT}, ALWAYS, true, tenant_processes},
    {{"WAITED", SL_TABLE_RIGHT}, WIDE, true, tenant_waited},
    {{"LAUNCHES", SL_TABLE_RIGHT}, WIDE, true, tenant_launches},
    {{"REFUSED", SL_TABLE_RIGHT}, WIDE, true, tenant_refused},
    {{"SLICE", SL_TABLE_RIGHT}, WIDE, true, tenant_slice},
    {{"POD", SL_TABLE_LEFT}, WIDE_PODS, true, tenant_pod},
};

/* --- the page ------------------------------------------------------------------------------------ */

/* The columns of one table that are shown. */
struct page {
    const struct column *columns[SL_TABLE_COLUMNS];
    struct sl_table_column titles[SL_TABLE_COLUMNS];
    struct sl_table table;
};

/* What the columns depend on. */
struct shown {
    bool wide, pods, users;
};

static bool is_shown(const struct column *c, const struct shown *what)
{
    switch (c->when) {
    case ALWAYS:
        return true;
    case USERS:
        return what->users;
    case WIDE_PODS:
        return what->wide && what->pods;
    default:
        return what->wide;
    }
}

static void choose(struct page *p, const struct column *all, size_t count, struct shown what)
{
    size_t n = 0;
    bool wide = what.wide;
    for (size_t i = 0; i < count; i++) {
        if (!is_shown(&all[i], &what))
            continue;
        p->columns[n] = &all[i];
        p->titles[n++] = all[i].title;
    }
    sl_table_init(&p->table, p->titles, n);
    p->table.max_width = wide ? 0 : SL_TABLE_WIDTH;
}

static void put_row(struct page *p, const struct row *r)
{
    char buf[TEXT_MAX];
    for (size_t i = 0; i < p->table.column_count; i++) {
        bool empty = p->columns[i]->once && r->at > 0;
        sl_table_cell(&p->table, "%s", empty ? "" : p->columns[i]->text(r, buf, sizeof(buf)));
    }
}

static bool print_gpus(const struct sl_status_view *v, FILE *out, bool colour, bool wide)
{
    struct page p;
    choose(&p, gpu_columns, SL_ARRAY_LEN(gpu_columns), (struct shown){.wide = wide});
    for (size_t i = 0; i < v->status->gpu_count; i++)
        put_row(&p, &(struct row){.s = v->status, .gpu = &v->status->gpu[i]});
    bool cut = sl_table_print(&p.table, out, colour);
    for (size_t i = 0; i < v->status->gpu_count; i++) {
        const struct sl_msg_gpu *g = &v->status->gpu[i];
        if (g->compute != SL_COMPUTE_TURNS)
            continue;
        SL_CLEANUP(free)
        char *text = sl_xasprintf("GPU %u is shared by turns: %s", g->index, g->compute_why);
        sl_table_prose(out, wide ? 0 : SL_TABLE_WIDTH, 0, 2, sl_table_printable(text));
    }
    return cut;
}

static bool any_pod(const struct sl_client_status *s)
{
    char b[TEXT_MAX];
    for (size_t i = 0; i < s->tenant_count; i++)
        if (sl_status_pod(s->tenant[i].about, b, sizeof(b))[0])
            return true;
    return false;
}

/* Do the tenants belong to several users? One user needs no column. */
static bool several_users(const struct sl_client_status *s)
{
    for (size_t i = 1; i < s->tenant_count; i++)
        if (s->tenant[i].h.option != s->tenant[0].h.option)
            return true;
    return false;
}

/* A pod's name is longer than a column: it gets a line below its tenant. */
static void put_pod(struct page *p, const struct sl_msg_tenant *m)
{
    char pod[TEXT_MAX], line[TEXT_MAX + 8];
    if (!sl_status_pod(m->about, pod, sizeof(pod))[0])
        return;
    (void)snprintf(line, sizeof(line), "    pod %s", pod);
    sl_table_line(&p->table, line);
}

static bool print_tenants(const struct sl_status_view *v, FILE *out, bool colour, bool wide)
{
    struct page p;
    choose(&p, tenant_columns, SL_ARRAY_LEN(tenant_columns),
           (struct shown){wide, any_pod(v->status), several_users(v->status)});
    for (size_t i = 0; i < v->status->tenant_count; i++) {
        const struct sl_msg_tenant *m = &v->status->tenant[i];
        for (uint32_t g = 0; g < m->gpu_count; g++)
            put_row(&p, &(struct row){.s = v->status, .tenant = m, .at = g});
        if (!wide)
            put_pod(&p, m);
    }
    return sl_table_print(&p.table, out, colour);
}

static void print_finding(const struct sl_status_view *v, const struct sl_msg_audit *a, FILE *out,
                          bool colour, int width)
{
    static const char *const why[] = {
        [SL_AUDIT_STRANGER] = "; it belongs to no tenant",
        [SL_AUDIT_UNATTACHED] =
            " without libsluice: the program is static, or LD_PRELOAD was removed",
        [SL_AUDIT_UNACCOUNTED] = " that libsluice did not count"};
    char bytes[32], gpu[80];
    bool known = a->kind < SL_ARRAY_LEN(why) && why[a->kind];
    bool of_tenant = a->kind == SL_AUDIT_UNATTACHED || a->kind == SL_AUDIT_UNACCOUNTED;
    SL_CLEANUP(free)
    char *text = sl_xasprintf("process %u (%s)%s%s uses %s on GPU %s%s", a->pid, a->command,
                              of_tenant ? " of tenant " : "", of_tenant ? a->tenant : "",
                              sl_format_bytes(a->bytes, bytes, sizeof(bytes)),
                              sl_status_gpu_label(v->status, a->uuid, gpu, sizeof(gpu)),
                              known ? why[a->kind] : " that no tenant's account contains");
    (void)fprintf(out, "%sAudit:%s ", colour ? SL_COLOUR_YELLOW : "", colour ? SL_COLOUR_OFF : "");
    sl_table_prose(out, width, (int)strlen("Audit: "), 2, sl_table_printable(text));
}

void sl_status_audit(const struct sl_status_view *v, const char *tenant, FILE *out, bool colour,
                     bool wide)
{
    size_t shown = 0;
    for (size_t i = 0; i < v->status->audit_count; i++) {
        const struct sl_msg_audit *a = &v->status->audit[i];
        if (tenant && strcmp(a->tenant, tenant) != 0)
            continue;
        (void)fputs(shown++ ? "" : "\n", out);
        print_finding(v, a, out, colour, wide ? 0 : SL_TABLE_WIDTH);
    }
}

void sl_status_text(const struct sl_status_view *v, FILE *out, bool colour, bool wide)
{
    if (v->sim)
        (void)fprintf(out, "Simulated GPUs (%s)\n", v->sim);
    bool cut = print_gpus(v, out, colour, wide);
    if (v->status->tenant_count) {
        (void)fputc('\n', out);
        cut = print_tenants(v, out, colour, wide) || cut;
    } else {
        (void)fputs("\nNo tenants.\n", out);
    }
    cut = sl_status_line_text(v, out, colour, wide) || cut;
    if (cut)
        (void)fprintf(out, "\n%c: the name is longer; `sluice status --wide` shows all of it.\n",
                      SL_TABLE_CUT);
    sl_status_audit(v, NULL, out, colour, wide);
}
