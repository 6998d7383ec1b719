/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/history_view.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/units.h"
#include "base/xalloc.h"
#include "cli/table.h"

#define HINTS_SHOWN 5U

/* --- words --- */

/* The name of a user, or its number. */
static const char *user_name(uint32_t uid, char *buf, size_t size)
{
    const struct passwd *p = getpwuid(uid);
    if (p && p->pw_name)
        (void)snprintf(buf, size, "%s", p->pw_name);
    else
        (void)snprintf(buf, size, "%" PRIu32, uid);
    return buf;
}

static const char *date(uint64_t ms, bool whole, char *buf, size_t size)
{
    time_t t = (time_t)(ms / 1000);
    struct tm tm;
    if (!localtime_r(&t, &tm) || strftime(buf, size, whole ? "%F %T" : "%m-%d %H:%M", &tm) == 0)
        (void)snprintf(buf, size, "?");
    return buf;
}

static const char *span(uint64_t ms, char *buf, size_t size)
{
    double s = (double)ms / 1000;
    if (ms < 1000)
        (void)snprintf(buf, size, "%u ms", (unsigned)ms);
    else if (s < 120)
        (void)snprintf(buf, size, "%.1f s", s);
    else if (s < 7200)
        (void)snprintf(buf, size, "%.0f min", s / 60);
    else if (s < 172800)
        (void)snprintf(buf, size, "%.1f h", s / 3600);
    else
        (void)snprintf(buf, size, "%.1f d", s / 86400);
    return buf;
}

static uint64_t ran_ms(const struct sl_history_entry *e)
{
    return e->ended_ms > e->started_ms ? e->ended_ms - e->started_ms : 0;
}

/* "3.1/40.0 GiB", in the unit of the larger; "-" for no limit. */
static const char *memory(const struct sl_history_entry *e, char *buf, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    uint32_t i = sl_history_fullest(e);
    uint64_t peak = e->gpu_count ? e->gpu[i].peak_bytes : 0;
    uint64_t asked = e->gpu_count ? e->gpu[i].asked_bytes : SL_HISTORY_NO_LIMIT;
    bool limit = asked != SL_HISTORY_NO_LIMIT;
    uint64_t larger = limit && asked > peak ? asked : peak;
    double unit = 1;
    size_t u = 0;
    for (; (double)larger / unit >= 1024 && u + 1 < sizeof(units) / sizeof(units[0]); u++)
        unit *= 1024;
    char had[32] = "0", of[32] = "-";
    if (peak)
        (void)snprintf(had, sizeof(had), "%.1f", (double)peak / unit);
    if (limit)
        (void)snprintf(of, sizeof(of), "%.1f", (double)asked / unit);
    (void)snprintf(buf, size, larger ? "%s/%s %s" : "%s/%s", had, of, units[u]);
    return buf;
}

/* "29.5/30", "-/50:100" where nothing was measured, "12.0/-" where nothing was asked for. */
static const char *cores(const struct sl_history_entry *e, char *buf, size_t size)
{
    char got[16] = "-", asked[24] = "-";
    uint32_t permille;
    if (sl_history_got(e, &permille))
        (void)snprintf(got, sizeof(got), "%u.%u", permille / 10, permille % 10);
    if (e->cores_request_permille)
        (void)sl_format_cores(e->cores_request_permille, e->cores_limit_permille, asked,
                              sizeof(asked));
    (void)snprintf(buf, size, "%s/%s", got, asked);
    return buf;
}

static const char *ending(const struct sl_history_entry *e, char *buf, size_t size)
{
    switch (e->end) {
    case SL_HISTORY_EXIT:
        (void)snprintf(buf, size, "%u", e->code);
        break;
    case SL_HISTORY_SIGNAL:
        (void)snprintf(buf, size, "signal %u", e->code);
        break;
    case SL_HISTORY_REMOVED:
        (void)snprintf(buf, size, "removed");
        break;
    default:
        (void)snprintf(buf, size, "unknown");
    }
    return buf;
}

static const char *gpus(const struct sl_history_entry *e, char *buf, size_t size)
{
    size_t n = 0;
    buf[0] = '\0';
    for (uint32_t i = 0; i < e->gpu_count && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%u", i ? "," : "", e->gpu[i].index);
    return buf;
}

/* --- the table --- */

static bool several_users(const struct sl_history_view *v)
{
    for (size_t i = 1; i < v->count; i++)
        if (v->entries[i].uid != v->entries[0].uid)
            return true;
    return false;
}

static void row(struct sl_table *t, const struct sl_history_entry *e, bool users, bool wide)
{
    char buf[256];
    if (wide)
        sl_table_cell(t, "%s", date(e->started_ms, true, buf, sizeof(buf)));
    sl_table_cell(t, "%s", date(e->ended_ms, wide, buf, sizeof(buf)));
    sl_table_cell(t, "%s", e->name);
    if (users)
        sl_table_cell(t, "%s", user_name(e->uid, buf, sizeof(buf)));
    if (wide) {
        sl_table_cell(t, "%s", e->command[0] ? e->command : "-");
        sl_table_cell(t, "%s", gpus(e, buf, sizeof(buf)));
    }
    sl_table_cell(t, "%s", span(ran_ms(e), buf, sizeof(buf)));
    sl_table_cell(t, "%s", e->waited_ms ? span(e->waited_ms, buf, sizeof(buf)) : "-");
    sl_table_cell(t, "%s", memory(e, buf, sizeof(buf)));
    sl_table_cell(t, "%s", cores(e, buf, sizeof(buf)));
    if (wide)
        sl_table_cell(t, "%s", e->measured_ms ? span(e->used_ms, buf, sizeof(buf)) : "-");
    sl_table_cell(t, "%s", ending(e, buf, sizeof(buf)));
}

static void table(const struct sl_history_view *v, FILE *out, bool colour, bool wide)
{
    struct sl_table_column columns[SL_TABLE_COLUMNS];
    struct sl_table t;
    size_t n = 0;
    bool users = wide || several_users(v);
    if (wide)
        columns[n++] = (struct sl_table_column){"STARTED", SL_TABLE_LEFT};
    columns[n++] = (struct sl_table_column){"ENDED", SL_TABLE_LEFT};
    columns[n++] = (struct sl_table_column){"NAME", SL_TABLE_NAME};
    if (users)
        columns[n++] = (struct sl_table_column){"USER", SL_TABLE_NAME};
    if (wide) {
        columns[n++] = (struct sl_table_column){"COMMAND", SL_TABLE_NAME};
        columns[n++] = (struct sl_table_column){"GPU", SL_TABLE_LEFT};
    }
    columns[n++] = (struct sl_table_column){"RAN", SL_TABLE_RIGHT};
    columns[n++] = (struct sl_table_column){"WAITED", SL_TABLE_RIGHT};
    columns[n++] = (struct sl_table_column){"MEMORY", SL_TABLE_RIGHT};
    columns[n++] = (struct sl_table_column){"CORES", SL_TABLE_RIGHT};
    if (wide)
        columns[n++] = (struct sl_table_column){"GPU TIME", SL_TABLE_RIGHT};
    columns[n++] = (struct sl_table_column){"EXIT", SL_TABLE_LEFT};
    sl_table_init(&t, columns, n);
    t.max_width = wide ? 0 : SL_TABLE_WIDTH;
    for (size_t i = 0; i < v->count; i++)
        row(&t, &v->entries[i], users, wide);
    (void)sl_table_print(&t, out, colour);
}

/* --- hints --- */

/* All of them; to be freed. */
static struct sl_history_hint *hints_of(const struct sl_history_view *v, size_t *ret_count)
{
    size_t n = sl_history_hints(v->entries, v->count, NULL, 0);
    struct sl_history_hint *list = sl_xcalloc(n + 1, sizeof(*list));
    *ret_count = sl_history_hints(v->entries, v->count, list, n);
    return list;
}

static void permille_text(uint64_t permille, char *buf, size_t size)
{
    (void)snprintf(buf, size, permille % 10 ? "%u.%u" : "%u", (unsigned)(permille / 10),
                   (unsigned)(permille % 10));
}

/* "peak 3.1 of 40.0 GiB" and what to write instead. */
static void hint_text(const struct sl_history_hint *h, char *buf, size_t size)
{
    char runs[40] = "";
    if (h->runs > 1)
        (void)snprintf(runs, sizeof(runs), " (the highest of %u runs)", h->runs);
    if (h->memory) {
        struct sl_history_entry e = {.gpu_count = 1};
        char of[48], asked[32];
        e.gpu[0].asked_bytes = h->asked;
        e.gpu[0].peak_bytes = h->used;
        (void)memory(&e, of, sizeof(of));
        char *slash = strchr(of, '/');
        (void)snprintf(asked, sizeof(asked), "%s", slash ? slash + 1 : "");
        (void)snprintf(buf, size, "%s: peak %.*s of %s%s: --memory %" PRIu64 "%s would do", h->name,
                       slash ? (int)(slash - of) : 0, of, asked, runs,
                       h->enough % (1ULL << 30) ? h->enough >> 20 : h->enough >> 30,
                       h->enough % (1ULL << 30) ? "Mi" : "Gi");
        return;
    }
    char used[16], asked[16], enough[16];
    permille_text(h->used, used, sizeof(used));
    permille_text(h->asked, asked, sizeof(asked));
    permille_text(h->enough, enough, sizeof(enough));
    (void)snprintf(buf, size, "%s: on average %s of %s %% of GPU time%s: --cores %s:100 would do",
                   h->name, used, asked, runs, enough);
}

static void print_hints(const struct sl_history_view *v, FILE *out)
{
    size_t n;
    SL_CLEANUP(free) struct sl_history_hint *list = hints_of(v, &n);
    if (n == 0)
        return;
    (void)fputs("\nAsked for far more than was used:\n", out);
    for (size_t i = 0; i < n && i < HINTS_SHOWN; i++) {
        char text[256];
        hint_text(&list[i], text, sizeof(text));
        (void)fputs("  ", out);
        sl_table_prose(out, SL_TABLE_WIDTH, 2, 4, sl_table_printable(text));
    }
    if (n > HINTS_SHOWN)
        (void)fprintf(out, "  and %zu more: `sluice history NAME` shows those of one name\n",
                      n - HINTS_SHOWN);
}

void sl_history_text(const struct sl_history_view *v, FILE *out, bool colour, bool wide)
{
    table(v, out, colour, wide);
    print_hints(v, out);
}

/* --- JSON --- */

static void put_percent(struct sl_json *j, const char *key, uint32_t permille)
{
    sl_json_double(j, key, permille / 10.0);
}

static void put_user(struct sl_json *j, uint32_t uid)
{
    const struct passwd *p = getpwuid(uid);
    sl_json_uint(j, "uid", uid);
    sl_json_string(j, "user", p ? p->pw_name : NULL);
}

static void put_date(struct sl_json *j, const char *key, uint64_t ms)
{
    char text[40];
    time_t t = (time_t)(ms / 1000);
    struct tm tm;
    bool good = gmtime_r(&t, &tm) && strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    sl_json_string(j, key, good ? text : NULL);
}

static void json_cores(struct sl_json *j, const struct sl_history_entry *e)
{
    uint32_t got;
    if (e->cores_request_permille)
        put_percent(j, "cores_request_percent", e->cores_request_permille);
    else
        sl_json_string(j, "cores_request_percent", NULL);
    put_percent(j, "cores_limit_percent", e->cores_limit_permille);
    if (sl_history_got(e, &got))
        put_percent(j, "cores_got_percent", got);
    else
        sl_json_string(j, "cores_got_percent", NULL);
    sl_json_uint(j, "work_ms", e->work_ms);
    sl_json_uint(j, "measured_ms", e->measured_ms);
    sl_json_uint(j, "gpu_time_ms", e->used_ms);
}

static void json_end(struct sl_json *j, const struct sl_history_entry *e)
{
    static const char *const ends[] = {[SL_HISTORY_UNKNOWN] = "unknown",
                                       [SL_HISTORY_EXIT] = "exit",
                                       [SL_HISTORY_SIGNAL] = "signal",
                                       [SL_HISTORY_REMOVED] = "removed"};
    sl_json_string(j, "end", ends[e->end]);
    if (e->end == SL_HISTORY_EXIT)
        sl_json_uint(j, "exit_code", e->code);
    else
        sl_json_string(j, "exit_code", NULL);
    if (e->end == SL_HISTORY_SIGNAL)
        sl_json_uint(j, "signal", e->code);
    else
        sl_json_string(j, "signal", NULL);
}

static void json_entry(struct sl_json *j, const struct sl_history_entry *e)
{
    sl_json_begin(j, NULL, '{');
    sl_json_string(j, "name", e->name);
    put_user(j, e->uid);
    sl_json_string(j, "command", e->command[0] ? e->command : NULL);
    put_date(j, "started", e->started_ms);
    put_date(j, "ended", e->ended_ms);
    sl_json_uint(j, "started_unix_ms", e->started_ms);
    sl_json_uint(j, "ended_unix_ms", e->ended_ms);
    sl_json_uint(j, "waited_ms", e->waited_ms);
    json_cores(j, e);
    json_end(j, e);
    sl_json_begin(j, "gpus", '[');
    for (uint32_t i = 0; i < e->gpu_count; i++) {
        sl_json_begin(j, NULL, '{');
        sl_json_uint(j, "index", e->gpu[i].index);
        sl_json_string(j, "uuid", e->gpu[i].uuid);
        if (e->gpu[i].asked_bytes == SL_HISTORY_NO_LIMIT)
            sl_json_string(j, "memory_asked_bytes", NULL);
        else
            sl_json_uint(j, "memory_asked_bytes", e->gpu[i].asked_bytes);
        sl_json_uint(j, "memory_peak_bytes", e->gpu[i].peak_bytes);
        sl_json_end(j, '}');
    }
    sl_json_end(j, ']');
    sl_json_end(j, '}');
}

static void json_hint(struct sl_json *j, const struct sl_history_hint *h)
{
    sl_json_begin(j, NULL, '{');
    sl_json_string(j, "name", h->name);
    put_user(j, h->uid);
    sl_json_string(j, "about", h->memory ? "memory" : "cores");
    sl_json_uint(j, "runs", h->runs);
    if (h->memory) {
        sl_json_uint(j, "asked_bytes", h->asked);
        sl_json_uint(j, "used_bytes", h->used);
        sl_json_uint(j, "enough_bytes", h->enough);
    } else {
        put_percent(j, "asked_percent", (uint32_t)h->asked);
        put_percent(j, "used_percent", (uint32_t)h->used);
        put_percent(j, "enough_percent", (uint32_t)h->enough);
    }
    sl_json_end(j, '}');
}

void sl_history_json(const struct sl_history_view *v, FILE *out)
{
    struct sl_json j;
    size_t n;
    SL_CLEANUP(free) struct sl_history_hint *list = hints_of(v, &n);
    sl_json_init(&j, out);
    sl_json_begin(&j, NULL, '{');
    sl_json_bool(&j, "running", v->running);
    sl_json_string(&j, "dir", v->dir);
    sl_json_uint(&j, "damaged_lines", v->damaged);
    sl_json_begin(&j, "entries", '[');
    for (size_t i = 0; i < v->count; i++)
        json_entry(&j, &v->entries[i]);
    sl_json_end(&j, ']');
    sl_json_begin(&j, "hints", '[');
    for (size_t i = 0; i < n; i++)
        json_hint(&j, &list[i]);
    sl_json_end(&j, ']');
    sl_json_end(&j, '}');
}
