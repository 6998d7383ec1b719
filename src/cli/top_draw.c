/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "cli/status_words.h"
#include "cli/top_model.h"
#include "share/share.h"

#define BAR_FROM     10
#define BAR_WIDTH    26
#define TEXT_FROM    (BAR_FROM + BAR_WIDTH + 1)
#define HISTORY_FROM 64  /* to the right edge, a minute wide */
#define LEAST_ROWS   6   /* title, head of the list, a tenant, two lines at the bottom */
#define WIDE         104 /* from so many columns on: priority and slice too */

static enum sl_style memory_style(uint32_t permille)
{
    return permille >= 950 ? SL_STYLE_BAD : permille >= 800 ? SL_STYLE_WARN : SL_STYLE_GOOD;
}

/* A GPU that works all the time is good: green, not red. */
static enum sl_style time_style(uint32_t permille)
{
    (void)permille;
    return SL_STYLE_GOOD;
}

/* --- GPUs ---------------------------------------------------------------------------------------- */

/* The samples of the last minute between two columns. A column stands for several samples and shows the highest. */
static void draw_history(struct sl_screen *s, int row, const uint16_t *ring, uint32_t samples,
                         int from, enum sl_style (*style)(uint32_t))
{
    int width = s->cols - from < SL_TOP_HISTORY ? s->cols - from : SL_TOP_HISTORY;
    for (int i = 0; i < width; i++) {
        uint32_t oldest = (uint32_t)((width - i) * SL_TOP_HISTORY / width);
        uint32_t newest = (uint32_t)((width - i - 1) * SL_TOP_HISTORY / width);
        uint32_t most = 0;
        bool any = false;
        for (uint32_t ago = newest + 1; ago <= oldest && ago <= samples; ago++) {
            uint32_t v = ring[(samples - ago) % SL_TOP_HISTORY];
            most = v > most ? v : most;
            any = true;
        }
        if (any)
            sl_screen_height(s, row, from + i, most, style(most));
    }
}

static uint32_t newest(const uint16_t *ring, uint32_t samples)
{
    return samples ? ring[(samples - 1) % SL_TOP_HISTORY] : 0;
}

static void draw_gpu(struct sl_screen *s, int row, const struct sl_top_gpu *g)
{
    char used[32], total[32], promised[32];
    uint32_t memory = newest(g->memory, g->samples);
    int col = sl_screen_put(s, row, 0, SL_STYLE_BOLD, "GPU %u  ", g->m.index);
    (void)sl_screen_put(s, row, col, SL_STYLE_BOLD, "%s", g->m.name);
    (void)sl_screen_put(s, row, TEXT_FROM, SL_STYLE_PLAIN, "%u %s, shared by %s", g->m.tenants,
                        g->m.tenants == 1 ? "tenant" : "tenants", sl_status_compute(g->m.compute));
    (void)sl_screen_put(s, row + 1, 2, SL_STYLE_PLAIN, "memory");
    sl_screen_bar(s, row + 1, BAR_FROM, BAR_WIDTH, memory, memory_style(memory));
    (void)sl_screen_put(s, row + 1, TEXT_FROM, SL_STYLE_PLAIN, "%s of %s",
                        sl_format_bytes(g->m.used_bytes, used, sizeof(used)),
                        sl_format_bytes(g->m.total_bytes, total, sizeof(total)));
    draw_history(s, row + 1, g->memory, g->samples, HISTORY_FROM, memory_style);
    (void)sl_screen_put(s, row + 2, 2, SL_STYLE_PLAIN, "time");
    sl_screen_bar(s, row + 2, BAR_FROM, BAR_WIDTH, g->time_permille, time_style(g->time_permille));
    (void)sl_screen_put(s, row + 2, TEXT_FROM, SL_STYLE_PLAIN, "%u.%u %%, promised %s %%",
                        g->time_permille / 10, g->time_permille % 10,
                        sl_format_cores(g->m.promised_permille, g->m.promised_permille, promised,
                                        sizeof(promised)));
    draw_history(s, row + 2, g->time, g->samples, HISTORY_FROM, time_style);
}

/* One line a GPU, where there are many GPUs. */
static void draw_gpu_short(struct sl_screen *s, int row, const struct sl_top_gpu *g)
{
    char used[32], total[32], both[72];
    uint32_t memory = newest(g->memory, g->samples);
    int col = sl_screen_put(s, row, 0, SL_STYLE_BOLD, "GPU %-2u ", g->m.index);
    (void)sl_screen_put(s, row, col, SL_STYLE_PLAIN, "mem");
    sl_screen_bar(s, row, 11, 14, memory, memory_style(memory));
    (void)snprintf(both, sizeof(both), "%s of %s",
                   sl_format_bytes(g->m.used_bytes, used, sizeof(used)),
                   sl_format_bytes(g->m.total_bytes, total, sizeof(total)));
    (void)sl_screen_field(s, row, 26, 19, false, SL_STYLE_PLAIN, both);
    (void)sl_screen_put(s, row, 46, SL_STYLE_PLAIN, "time");
    sl_screen_bar(s, row, 51, 14, g->time_permille, time_style(g->time_permille));
    (void)sl_screen_put(s, row, 66, SL_STYLE_PLAIN, "%3u.%u %%", g->time_permille / 10,
                        g->time_permille % 10);
    draw_history(s, row, g->time, g->samples, 74, time_style);
}

/* Returns the row after the GPUs. */
static int draw_gpus(const struct sl_top *t, struct sl_screen *s, int row, int bottom)
{
    int count = (int)t->gpu_count, room = bottom - row - LEAST_ROWS;
    bool tall = 3 * count <= room * 2 / 3;
    int shown = tall || count <= room ? count : room - 1;
    for (int i = 0; i < shown; i++) {
        if (tall)
            draw_gpu(s, row + 3 * i, &t->gpus[i]);
        else
            draw_gpu_short(s, row + i, &t->gpus[i]);
    }
    row += (tall ? 3 : 1) * (shown > 0 ? shown : 0);
    if (shown < count && shown >= 0)
        (void)sl_screen_put(s, row++, 0, SL_STYLE_DIM,
                            "and %d more GPUs: a taller window shows them", count - shown);
    return row;
}

/* --- tenants ------------------------------------------------------------------------------------- */

static const struct {
    const char *title;
    int from, width;
    bool right;
} columns[] = {{"TENANT", 2, 18, false}, {"USER", 21, 8, false}, {"GPU", 30, 5, false},
               {"MEMORY", 36, 19, true}, {"CORES", 56, 7, true}, {"GOT", 64, 6, true},
               {"WAIT", 71, 4, true},    {"PROC", 76, 4, true},  {"PRIORITY", 82, 8, false},
               {"SLICE", 92, 8, true}};
enum column { TENANT, USER, GPU, MEMORY, CORES, GOT, WAIT, PROC, PRIORITY, SLICE };

static void cell(struct sl_screen *s, int row, enum column c, enum sl_style style, const char *text)
{
    if (c < PRIORITY || s->cols >= WIDE)
        (void)sl_screen_field(s, row, columns[c].from, columns[c].width, columns[c].right, style,
                              text);
}

static void gpu_names(const struct sl_top *t, const struct sl_msg_tenant *m, char *buf, size_t size)
{
    size_t n = 0;
    buf[0] = '\0';
    for (uint32_t i = 0; i < m->gpu_count && n < size; i++)
        for (size_t k = 0; k < t->gpu_count && n < size; k++)
            if (strcmp(t->gpus[k].m.uuid, m->gpu[i].uuid) == 0)
                n += (size_t)snprintf(buf + n, size - n, "%s%u", i ? "," : "", t->gpus[k].m.index);
}

/* Of all GPUs of the tenant together. */
static void memory_text(const struct sl_msg_tenant *m, char *buf, size_t size)
{
    uint64_t used = 0, limit = 0;
    bool limited = m->gpu_count > 0;
    char a[32], b[32];
    for (uint32_t i = 0; i < m->gpu_count; i++) {
        used += m->gpu[i].used_bytes + m->gpu[i].overhead_bytes;
        limited = limited && m->gpu[i].limit_bytes != SL_NO_LIMIT;
        limit += m->gpu[i].limit_bytes;
    }
    (void)sl_format_bytes(used, a, sizeof(a));
    if (limited)
        (void)snprintf(buf, size, "%s of %s", a, sl_format_bytes(limit, b, sizeof(b)));
    else
        (void)snprintf(buf, size, "%s", a);
}

/* Warns when a tenant is paused, or waits and gets less than it asked for. */
static enum sl_style got_style(const struct sl_top_tenant *one)
{
    if (one->m.flags & SL_LEASE_PAUSED)
        return SL_STYLE_WARN;
    bool behind = one->m.share_1s_permille + 20 < one->m.cores_request_permille;
    return behind && one->waited_permille > 100 ? SL_STYLE_WARN : SL_STYLE_PLAIN;
}

static void draw_tenant(const struct sl_top *t, struct sl_screen *s, int row,
                        const struct sl_top_tenant *one)
{
    const struct sl_msg_tenant *m = &one->m;
    char b[96];
    cell(s, row, TENANT, SL_STYLE_PLAIN, m->name);
    cell(s, row, USER, SL_STYLE_PLAIN, one->user[0] ? one->user : "-");
    gpu_names(t, m, b, sizeof(b));
    cell(s, row, GPU, SL_STYLE_PLAIN, b);
    memory_text(m, b, sizeof(b));
    cell(s, row, MEMORY, SL_STYLE_PLAIN, b);
    cell(s, row, CORES, SL_STYLE_PLAIN, sl_status_cores(m, b, sizeof(b)));
    cell(s, row, GOT, got_style(one), sl_status_got(m, b, sizeof(b)));
    (void)snprintf(b, sizeof(b), "%u%%", one->waited_permille / 10);
    cell(s, row, WAIT, SL_STYLE_PLAIN, b);
    (void)snprintf(b, sizeof(b), "%u", m->processes);
    cell(s, row, PROC, SL_STYLE_PLAIN, b);
    cell(s, row, PRIORITY, SL_STYLE_PLAIN, sl_priority_name(m->priority));
    cell(s, row, SLICE, SL_STYLE_PLAIN, sl_status_slice(m, b, sizeof(b)));
}

static void draw_process(struct sl_screen *s, int row, const struct sl_msg_process *p)
{
    uint64_t used = 0;
    char b[32];
    for (uint32_t i = 0; i < p->gpu_count; i++)
        used += p->gpu[i].used_bytes + p->gpu[i].overhead_bytes;
    (void)sl_screen_put(s, row, 4, SL_STYLE_DIM, "process %-8u %-20.20s", p->pid, p->command);
    (void)sl_screen_field(s, row, columns[MEMORY].from, columns[MEMORY].width, true, SL_STYLE_DIM,
                          sl_format_bytes(used, b, sizeof(b)));
    (void)sl_screen_put(s, row, columns[CORES].from + 1, SL_STYLE_DIM, "%llu launches",
                        (unsigned long long)p->launches);
}

/* Below the unfolded tenant: its processes, or why there are none to show. Returns the row after them. */
static int draw_processes(const struct sl_top *t, struct sl_screen *s, int row, int bottom)
{
    for (size_t k = 0; k < t->process_count && row < bottom; k++)
        draw_process(s, row++, &t->processes[k]);
    if (t->untold[0] && row < bottom)
        (void)sl_screen_field(s, row++, 4, s->cols - 4, false, SL_STYLE_DIM, t->untold);
    return row;
}

/* How many rows a tenant takes. */
static int height(const struct sl_top *t, const struct sl_top_tenant *one)
{
    bool unfolded = strcmp(one->m.name, t->unfolded) == 0;
    return 1 + (unfolded ? (int)t->process_count + (t->untold[0] != '\0') : 0);
}

/* The first tenant to show, so that the selected one is among those that fit. */
static size_t first_shown(const struct sl_top *t, int room)
{
    const struct sl_top_tenant *selected = sl_top_selected(t);
    size_t last = selected ? (size_t)(selected - t->tenants) : 0, first = last;
    if (t->tenant_count == 0)
        return 0;
    for (int rows = height(t, &t->tenants[last]); first > 0; first--) {
        rows += height(t, &t->tenants[first - 1]);
        if (rows > room)
            break;
    }
    return first;
}

/* Returns the row after them. */
static int draw_tenants(const struct sl_top *t, struct sl_screen *s, int row, int bottom, bool once)
{
    const struct sl_top_tenant *selected = once ? NULL : sl_top_selected(t);
    for (size_t i = 0; i < SL_ARRAY_LEN(columns); i++)
        cell(s, row, (enum column)i, SL_STYLE_BOLD, columns[i].title);
    row++;
    if (t->tenant_count == 0)
        (void)sl_screen_put(s, row, 2, SL_STYLE_PLAIN,
                            t->tenants_in_all
                                ? "No tenant matches the filter \"%s\"; Esc clears it."
                                : "No tenants. `sluice run` starts one.%.0s",
                            t->filter);
    for (size_t i = first_shown(t, bottom - row); i < t->tenant_count && row < bottom; i++) {
        const struct sl_top_tenant *one = &t->tenants[i];
        draw_tenant(t, s, row, one);
        if (one == selected)
            sl_screen_row_style(s, row, SL_STYLE_SELECTED);
        row++;
        if (strcmp(one->m.name, t->unfolded) == 0)
            row = draw_processes(t, s, row, bottom);
    }
    return row + (t->tenant_count == 0);
}

/* --- the line ------------------------------------------------------------------------------------ */

/* "0", "0,2", "any", "any 2", "1 of 0,2" */
static void wanted_gpus(const struct sl_top *t, const struct sl_msg_waiter *w, char *buf,
                        size_t size)
{
    size_t n = 0;
    buf[0] = '\0';
    if (w->gpu_count == 0 && w->wanted > 1)
        (void)snprintf(buf, size, "any %u", w->wanted);
    else if (w->gpu_count == 0)
        (void)snprintf(buf, size, w->state == SL_WAITER_ABSENT ? "?" : "any");
    else if (w->wanted < w->gpu_count)
        n = (size_t)snprintf(buf, size, "%u of ", w->wanted);
    for (uint32_t i = 0; i < w->gpu_count; i++)
        for (size_t k = 0; k < t->gpu_count && n < size; k++)
            if (strcmp(t->gpus[k].m.uuid, w->gpu[i]) == 0)
                n += (size_t)snprintf(buf + n, size - n, "%s%u", i ? "," : "", t->gpus[k].m.index);
}

/* One that waits, and below it the reason. */
static void draw_waiter(const struct sl_top *t, struct sl_screen *s, int row, int bottom,
                        const struct sl_top_waiter *one)
{
    const struct sl_msg_waiter *w = &one->m;
    char b[96], waited[32];
    (void)snprintf(b, sizeof(b), "%u  %s", w->place, w->name[0] ? w->name : "(no name yet)");
    cell(s, row, TENANT, SL_STYLE_PLAIN, b);
    cell(s, row, USER, SL_STYLE_PLAIN, one->user[0] ? one->user : "-");
    wanted_gpus(t, w, b, sizeof(b));
    cell(s, row, GPU, SL_STYLE_PLAIN, b);
    cell(s, row, MEMORY, SL_STYLE_PLAIN, sl_status_asked_memory(w, b, sizeof(b)));
    cell(s, row, CORES, SL_STYLE_PLAIN, sl_status_asked_cores(w, b, sizeof(b)));
    (void)snprintf(b, sizeof(b), "for %s",
                   sl_format_duration(w->waited_ns, waited, sizeof(waited)));
    (void)sl_screen_field(s, row, columns[GOT].from, 16, true, SL_STYLE_PLAIN, b);
    cell(s, row, PRIORITY, SL_STYLE_PLAIN, sl_priority_name(w->priority));
    if (row + 1 < bottom)
        (void)sl_screen_field(s, row + 1, 5, s->cols - 5, false, SL_STYLE_DIM, w->why);
}

/* How many rows the line takes of this room. Tenants have at least half of it. */
static int line_rows(const struct sl_top *t, int room, bool once)
{
    int all = t->waiter_count ? 2 + 2 * (int)t->waiter_count : 0;
    return once || all <= room / 2 ? all : room / 2;
}

/* Below the tenants: who waits in line for a GPU, and why. */
static void draw_line(const struct sl_top *t, struct sl_screen *s, int row, int bottom)
{
    row++;
    if (row + 1 >= bottom) /* no room for one of them */
        return;
    (void)sl_screen_put(s, row++, 2, SL_STYLE_BOLD, "WAITING IN LINE (%zu)", t->waiter_count);
    for (size_t i = 0; i < t->waiter_count && row < bottom; i++, row += 2)
        draw_waiter(t, s, row, bottom, &t->waiters[i]);
}

/* --- the rest ------------------------------------------------------------------------------------ */

static void draw_help(struct sl_screen *s, int row, int bottom)
{
    static const char *const lines[] = {
        "up, down, j, k    select a tenant",
        "Enter, space      show or hide its processes",
        "s                 sort by name, GPU time, memory, waiting",
        "/                 show only tenants whose name, user or pod contains a text",
        "Esc               show all tenants again",
        "c  m  p           change cores, memory, priority of the selected tenant",
        "z                 pause the selected tenant, or let it go on",
        "x                 end the selected tenant (asks first)",
        "q, Ctrl-C         leave",
        "",
        "GOT is the part of GPU time in the last second; CORES is what was asked for.",
        "WAIT is the part of the last second in which the tenant's work was held back.",
        "GPU lines: memory in use and time used now, and over the last minute."};
    for (size_t i = 0; i < SL_ARRAY_LEN(lines) && row < bottom; i++)
        (void)sl_screen_put(s, row++, 2, SL_STYLE_PLAIN, "%s", lines[i]);
}

static void draw_list(const struct sl_top *t, struct sl_screen *s, int row, int bottom, bool once)
{
    int line = line_rows(t, bottom - row, once);
    row = draw_tenants(t, s, row, bottom - line, once);
    if (line > 0)
        draw_line(t, s, row, bottom);
}

/* What the selected tenant has of what is being changed. */
static const char *value_now(const struct sl_top *t, const struct sl_msg_tenant *m, char *buf,
                             size_t size)
{
    if (t->option[0] == 'c')
        return sl_status_cores(m, buf, size);
    if (t->option[0] == 'm')
        return sl_status_limit(m->gpu_count ? m->gpu[0].limit_bytes : SL_NO_LIMIT, buf, size);
    (void)snprintf(buf, size, "%s", sl_priority_name(m->priority));
    return buf;
}

/* The result of the last key, over as many rows as it needs: what to do stands at its end. */
static void draw_message(const struct sl_top *t, struct sl_screen *s)
{
    int rows = sl_screen_text_rows(t->message, s->cols), room = s->rows - 2;
    if (rows > room)
        rows = room;
    (void)sl_screen_text(s, s->rows - 1 - rows, SL_STYLE_PLAIN, t->message);
}

static void draw_bottom(const struct sl_top *t, struct sl_screen *s)
{
    static const char *const sorts[] = {[SL_TOP_BY_NAME] = "name",
                                        [SL_TOP_BY_GOT] = "got",
                                        [SL_TOP_BY_MEMORY] = "memory",
                                        [SL_TOP_BY_WAIT] = "wait"};
    const struct sl_top_tenant *one = sl_top_selected(t);
    int row = s->rows - 2;
    char b[32];
    switch (t->mode) {
    case SL_TOP_FILTER:
        (void)sl_screen_put(s, row, 0, SL_STYLE_BOLD, "filter: %s_", t->typed);
        break;
    case SL_TOP_VALUE:
        (void)sl_screen_put(s, row, 0, SL_STYLE_BOLD, "%s of %s, now %s: %s_", t->option,
                            t->selected, one ? value_now(t, &one->m, b, sizeof(b)) : "?", t->typed);
        break;
    case SL_TOP_SURE:
        (void)sl_screen_put(s, row, 0, SL_STYLE_WARN, "end %s (%u %s)? y or n", t->selected,
                            one ? one->m.processes : 0,
                            one && one->m.processes == 1 ? "process" : "processes");
        break;
    default:
        draw_message(t, s);
    }
    int col = sl_screen_put(s, row + 1, 0, SL_STYLE_DIM,
                            "q quit  ? help  Enter open  s sort: %s  / filter", sorts[t->sort]);
    if (t->filter[0])
        col = sl_screen_put(s, row + 1, col, SL_STYLE_DIM, ": %s", t->filter);
    (void)sl_screen_put(s, row + 1, col, SL_STYLE_DIM, "  c m p set  z pause  x end");
}

void sl_top_draw(const struct sl_top *t, struct sl_screen *s, const char *clock, bool once)
{
    int bottom = once ? s->rows : s->rows - 2, row = 0;
    sl_screen_clear(s);
    int col = sl_screen_put(s, row, 0, SL_STYLE_BOLD, "sluice top");
    col = sl_screen_put(s, row, col, SL_STYLE_PLAIN, "  %zu %s, %zu %s", t->gpu_count,
                        t->gpu_count == 1 ? "GPU" : "GPUs", t->tenants_in_all,
                        t->tenants_in_all == 1 ? "tenant" : "tenants");
    if (t->sim[0])
        (void)sl_screen_put(s, row, col, SL_STYLE_WARN, "  simulated GPUs (%s)", t->sim);
    (void)sl_screen_put(s, row, s->cols - (int)strlen(clock), SL_STYLE_PLAIN, "%s", clock);
    row += 2;
    if (t->trouble[0]) {
        (void)sl_screen_text(s, row, SL_STYLE_WARN, t->trouble);
    } else {
        row = draw_gpus(t, s, row, bottom) + 1;
        if (t->mode == SL_TOP_HELP)
            draw_help(s, row, bottom);
        else
            draw_list(t, s, row, bottom, once);
    }
    if (!once)
        draw_bottom(t, s);
}
