/* SPDX-License-Identifier: Apache-2.0 */
/* The commands that wait in line, for `sluice status`: as a table, and as JSON. */
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/status_view.h"
#include "cli/status_words.h"
#include "cli/table.h"
#include "share/share.h"

#define WHY_INDENT 9 /* below the names */

/* "any", "any 2", "0", "1 of 0,2": how many of which. */
static const char *which_gpus(const struct sl_client_status *s, const struct sl_msg_waiter *w,
                              char *buf, size_t size)
{
    char label[SL_UUID_MAX];
    if (w->state == SL_WAITER_ABSENT)
        (void)snprintf(buf, size, "?");
    else if (w->gpu_count == 0 && w->wanted == 1)
        (void)snprintf(buf, size, "any");
    else if (w->gpu_count == 0)
        (void)snprintf(buf, size, "any %u", w->wanted);
    else if (w->wanted < w->gpu_count)
        (void)snprintf(buf, size, "%u of ", w->wanted);
    else
        buf[0] = '\0';
    for (uint32_t i = 0; i < w->gpu_count; i++) {
        size_t n = strlen(buf);
        (void)snprintf(buf + n, size - n, "%s%s", i ? "," : "",
                       sl_status_gpu_label(s, w->gpu[i], label, sizeof(label)));
    }
    return buf;
}

static void put_waiter(struct sl_table *t, const struct sl_client_status *s,
                       const struct sl_msg_waiter *w)
{
    char b[SL_MAX_GPUS * SL_UUID_MAX];
    sl_table_cell(t, "%u", w->place);
    sl_table_cell(t, "%s", w->name[0] ? w->name : "-");
    sl_table_cell(t, "%u", w->pid);
    sl_table_cell(t, "%s", which_gpus(s, w, b, sizeof(b)));
    sl_table_cell(t, "%s", sl_status_asked_memory(w, b, sizeof(b)));
    sl_table_cell(t, "%s", sl_status_asked_cores(w, b, sizeof(b)));
    sl_table_cell(t, "%s", sl_priority_name(w->priority));
    sl_table_cell(t, "%s", sl_format_duration(w->waited_ns, b, sizeof(b)));
    /* A line for each part of the reason: two of them would be too long for one. */
    for (const char *p = w->why; *p; p += strspn(p, "; ")) {
        const char *end = strstr(p, "; ");
        int n = end ? (int)(end - p) : (int)strlen(p);
        (void)snprintf(b, sizeof(b), "%*s%.*s", WHY_INDENT, "", n, p);
        sl_table_line(t, b);
        p += n;
    }
}

bool sl_status_line_text(const struct sl_status_view *v, FILE *out, bool colour, bool wide)
{
    static const struct sl_table_column columns[] = {
        {"PLACE", SL_TABLE_RIGHT},   {"WAITING", SL_TABLE_NAME}, {"PID", SL_TABLE_RIGHT},
        {"GPU", SL_TABLE_NAME},      {"MEMORY", SL_TABLE_RIGHT}, {"CORES", SL_TABLE_RIGHT},
        {"PRIORITY", SL_TABLE_LEFT}, {"FOR", SL_TABLE_RIGHT}};
    struct sl_table t;
    if (v->status->waiter_count == 0)
        return false;
    sl_table_init(&t, columns, SL_ARRAY_LEN(columns));
    t.max_width = wide ? 0 : SL_TABLE_WIDTH;
    for (size_t i = 0; i < v->status->waiter_count; i++)
        put_waiter(&t, v->status, &v->status->waiter[i]);
    (void)fputc('\n', out);
    return sl_table_print(&t, out, colour);
}

static void json_asked(struct sl_json *j, const struct sl_msg_waiter *w)
{
    if ((w->fields & SL_FIELD_MEMORY) && !w->memory_percent)
        sl_json_uint(j, "memory_bytes", w->memory_bytes);
    else
        sl_json_string(j, "memory_bytes", NULL);
    if ((w->fields & SL_FIELD_MEMORY) && w->memory_percent)
        sl_json_uint(j, "memory_percent", w->memory_percent);
    else
        sl_json_string(j, "memory_percent", NULL);
    if (w->fields & SL_FIELD_CORES) {
        sl_json_double(j, "cores_request_percent", w->cores_request_permille / 10.0);
        sl_json_double(j, "cores_limit_percent", w->cores_limit_permille / 10.0);
    } else {
        sl_json_string(j, "cores_request_percent", NULL);
        sl_json_string(j, "cores_limit_percent", NULL);
    }
    if (w->wanted)
        sl_json_uint(j, "gpu_count", w->wanted);
    else
        sl_json_string(j, "gpu_count", NULL);
}

static void json_waiter(struct sl_json *j, const struct sl_client_status *s,
                        const struct sl_msg_waiter *w)
{
    static const char *const states[] = {[SL_WAITER_WAITS] = "waits",
                                         [SL_WAITER_CALLED] = "starts",
                                         [SL_WAITER_ASLEEP] = "stopped",
                                         [SL_WAITER_ABSENT] = "absent"};
    sl_json_begin(j, NULL, '{');
    sl_json_uint(j, "place", w->place);
    sl_json_string(j, "name", w->name[0] ? w->name : NULL);
    sl_json_uint(j, "pid", w->pid);
    sl_json_string(j, "state", w->state < SL_ARRAY_LEN(states) ? states[w->state] : NULL);
    sl_json_string(j, "reason", w->why);
    sl_json_string(j, "priority", sl_priority_name(w->priority));
    sl_json_uint(j, "waited_ns", w->waited_ns);
    json_asked(j, w);
    sl_json_begin(j, "gpus", '[');
    for (uint32_t i = 0; i < w->gpu_count; i++) {
        sl_json_begin(j, NULL, '{');
        sl_status_gpu_json(j, s, w->gpu[i]);
        sl_json_end(j, '}');
    }
    sl_json_end(j, ']');
    sl_json_end(j, '}');
}

void sl_status_line_json(struct sl_json *j, const struct sl_client_status *s)
{
    sl_json_begin(j, "waiting", '[');
    for (size_t i = 0; i < s->waiter_count; i++)
        json_waiter(j, s, &s->waiter[i]);
    sl_json_end(j, ']');
}
