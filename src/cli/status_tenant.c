/* SPDX-License-Identifier: Apache-2.0 */
/* One tenant in detail, for people. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "base/xalloc.h"
#include "cli/status_view.h"
#include "cli/status_words.h"
#include "cli/table.h"
#include "share/share.h"

#define VALUE_FROM 14

/* "  Title:      text": the lines of a long text begin below each other. The text is freed. */
static void put(FILE *out, const char *title, char *text)
{
    int end = fprintf(out, "  %s:", title);
    int from = end < VALUE_FROM ? VALUE_FROM : end + 1;
    (void)fprintf(out, "%*s", from - end, "");
    sl_table_prose(out, SL_TABLE_WIDTH, from, VALUE_FROM, sl_table_printable(text));
    free(text);
}

static void put_gpu(FILE *out, const struct sl_client_status *s, const struct sl_msg_tenant *m,
                    uint32_t i)
{
    const struct sl_msg_gpu *g = sl_status_gpu(s, m->gpu[i].uuid);
    uint64_t overhead = m->gpu[i].overhead_bytes;
    char label[80], title[96], used[32], limit[32], contexts[80] = "", b[32];
    bool named = g && g->name[0];
    bool limited = m->gpu[i].limit_bytes != SL_NO_LIMIT;
    (void)snprintf(title, sizeof(title), "GPU %s",
                   sl_status_gpu_label(s, m->gpu[i].uuid, label, sizeof(label)));
    if (overhead)
        (void)snprintf(contexts, sizeof(contexts), " (%s of it for contexts and modules)",
                       sl_format_bytes(overhead, b, sizeof(b)));
    put(out, title,
        sl_xasprintf("%s%s%s used%s, %s%s", named ? g->name : "", named ? ": " : "",
                     sl_format_bytes(m->gpu[i].used_bytes + overhead, used, sizeof(used)), contexts,
                     limited ? "limit " : "no limit but the card's",
                     limited ? sl_status_limit(m->gpu[i].limit_bytes, limit, sizeof(limit)) : ""));
}

static char *cores_text(const struct sl_msg_tenant *m)
{
    char asked[32], second[16], minute[16];
    bool some = m->cores_request_permille > 0;
    return sl_xasprintf("%s%s asked for; got %s in the last second, %s in the last minute",
                        some ? sl_status_cores(m, asked, sizeof(asked)) : "nothing",
                        some ? "%" : "",
                        sl_status_percent(m->share_1s_permille, second, sizeof(second)),
                        sl_status_percent(m->share_60s_permille, minute, sizeof(minute)));
}

/* How its GPU time is shared and, by turns, why. */
static char *shared_text(const struct sl_client_status *s, const struct sl_msg_tenant *m)
{
    char slice[32];
    if (m->compute != SL_COMPUTE_TURNS)
        return sl_xasprintf("slices: the hardware runs it for %s, then the next tenant",
                            sl_status_slice(m, slice, sizeof(slice)));
    const char *why = "";
    for (uint32_t i = 0; i < m->gpu_count && !why[0]; i++) {
        const struct sl_msg_gpu *g = sl_status_gpu(s, m->gpu[i].uuid);
        why = g && g->compute == SL_COMPUTE_TURNS ? g->compute_why : "";
    }
    return sl_xasprintf("turns, one tenant at a time%s%s", why[0] ? ": " : "", why);
}

static char *now_text(const struct sl_msg_tenant *m)
{
    static const char *const gates[] = {
        [SL_GATE_FREE] = "its work goes to the GPU at once",
        [SL_GATE_OPEN] = "it has its turn",
        [SL_GATE_CLOSED] = "it waits for its turn",
        [SL_GATE_METER] = "its work goes to the GPU at once, and counts against its cores"};
    if (m->flags & SL_LEASE_PAUSED)
        return sl_xasprintf("paused; `sluice resume %s` lets it go on", m->name);
    return sl_xstrdup(m->gate < SL_ARRAY_LEN(gates) ? gates[m->gate] : "not known");
}

static char *started_text(const struct sl_msg_tenant *m)
{
    char age[32], user[64];
    const char *of = sl_status_user(m, user, sizeof(user))[0] ? " of user " : "";
    (void)sl_format_duration(m->age_ns, age, sizeof(age));
    if (m->creator_pid)
        return sl_xasprintf("%s ago, by process %u%s%s", age, m->creator_pid, of, user);
    return sl_xasprintf("%s ago%s%s", age, user[0] ? ", by user " : "", user);
}

static void print_processes(const struct sl_status_view *v, const struct sl_status_detail *d,
                            FILE *out, bool colour)
{
    static const struct sl_table_column columns[] = {
        {"PROCESS", SL_TABLE_RIGHT}, {"PROGRAM", SL_TABLE_NAME},   {"GPU", SL_TABLE_NAME},
        {"USED", SL_TABLE_RIGHT},    {"CONTEXTS", SL_TABLE_RIGHT}, {"WAITED", SL_TABLE_RIGHT},
        {"LAUNCHES", SL_TABLE_RIGHT}};
    const struct sl_msg_tenant *m = d->tenant;
    struct sl_table t;
    char b[80];
    sl_table_init(&t, columns, SL_ARRAY_LEN(columns));
    t.max_width = SL_TABLE_WIDTH;
    for (size_t k = 0; k < d->process_count; k++) {
        const struct sl_msg_process *p = &d->processes[k];
        for (uint32_t i = 0; i < p->gpu_count && i < m->gpu_count; i++) {
            uint64_t overhead = p->gpu[i].overhead_bytes;
            (void)snprintf(b, sizeof(b), "%u", p->pid);
            sl_table_cell(&t, "%s", i ? "" : b);
            sl_table_cell(&t, "%s", i ? "" : p->command);
            sl_table_cell(&t, "%s", sl_status_gpu_label(v->status, m->gpu[i].uuid, b, sizeof(b)));
            sl_table_cell(&t, "%s", sl_format_bytes(p->gpu[i].used_bytes + overhead, b, sizeof(b)));
            sl_table_cell(&t, "%s", sl_format_bytes(overhead, b, sizeof(b)));
            sl_table_cell(&t, "%s", i ? "" : sl_format_duration(p->waited_ns, b, sizeof(b)));
            (void)snprintf(b, sizeof(b), "%llu", (unsigned long long)p->launches);
            sl_table_cell(&t, "%s", i ? "" : b);
        }
    }
    (void)sl_table_print(&t, out, colour);
}

void sl_status_tenant_text(const struct sl_status_view *v, const struct sl_status_detail *d,
                           FILE *out, bool colour)
{
    const struct sl_msg_tenant *m = d->tenant;
    char b[400];
    if (v->sim)
        (void)fprintf(out, "Simulated GPUs (%s)\n", v->sim);
    (void)snprintf(b, sizeof(b), "%s", m->name);
    (void)fprintf(out, "%sTenant %s%s\n", colour ? SL_COLOUR_BOLD : "", sl_table_printable(b),
                  colour ? SL_COLOUR_OFF : "");
    if (sl_status_pod(m->about, b, sizeof(b))[0])
        put(out, "Pod", sl_xstrdup(b));
    for (uint32_t i = 0; i < m->gpu_count; i++)
        put_gpu(out, v->status, m, i);
    put(out, "Cores", cores_text(m));
    put(out, "Priority", sl_xstrdup(sl_priority_name(m->priority)));
    put(out, "Shared by", shared_text(v->status, m));
    put(out, "Now", now_text(m));
    put(out, "Waited",
        sl_xasprintf("%s in all, because of its cores or of other tenants",
                     sl_format_duration(m->waited_ns, b, sizeof(b))));
    put(out, "Launches", sl_xasprintf("%llu", (unsigned long long)m->launches));
    put(out, "Refused",
        sl_xasprintf("%llu allocation%s, because of the memory limit",
                     (unsigned long long)m->oom_count, m->oom_count == 1 ? "" : "s"));
    put(out, "Started", started_text(m));
    (void)fputc('\n', out);
    if (d->untold)
        put(out, "Processes", sl_xasprintf("not known: %s", d->untold));
    else if (d->process_count == 0)
        (void)fputs("No process of this tenant uses the GPU.\n", out);
    else
        print_processes(v, d, out, colour);
    sl_status_audit(v, m->name, out, colour, false);
}
