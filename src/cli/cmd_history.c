/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/words.h"
#include "base/xalloc.h"
#include "cli/errors.h"
#include "cli/history_read.h"
#include "cli/history_view.h"
#include "cli/since.h"
#include "cli/table.h"
#include "cli/world.h"

/* What was asked for on the command line. */
struct request {
    struct sl_world world;
    const char *name;     /* NULL: all */
    uint64_t since_ms;    /* 0: all */
    unsigned long latest; /* so many; 0: all */
    bool json, wide;
};

/* Leaves only what was asked for. False: no tenant of the name has ended. */
static bool choose(const struct request *q, struct sl_past *p)
{
    size_t n = 0;
    bool named = !q->name;
    for (size_t i = 0; i < p->count; i++) {
        bool ours = !q->name || strcmp(p->list[i].name, q->name) == 0;
        named |= ours;
        if (ours && p->list[i].ended_ms >= q->since_ms)
            p->list[n++] = p->list[i];
    }
    p->count = n;
    if (q->latest && q->latest < n) {
        memmove(p->list, p->list + (n - q->latest), q->latest * sizeof(*p->list));
        p->count = q->latest;
    }
    return named;
}

static int unknown_name(const struct request *q, const struct sl_past *p, struct sl_err *err)
{
    const char **names = sl_xcalloc(p->count + 1, sizeof(*names));
    for (size_t i = 0; i < p->count; i++)
        names[i] = p->list[i].name;
    const char *close_one = sl_word_closest(q->name, names);
    int rc = close_one ? sl_err_set(err, -ENOENT, SL_E_HISTORY_NAME_NEAR, q->name, close_one)
                       : sl_err_set(err, -ENOENT, SL_E_HISTORY_NAME_UNKNOWN, q->name);
    free(names);
    return rc;
}

static void show(const struct request *q, const struct sl_past *p, FILE *out)
{
    const struct sl_history_view view = {.dir = q->world.place.dir,
                                         .running = p->running,
                                         .damaged = p->damaged,
                                         .entries = p->list,
                                         .count = p->count};
    if (q->json)
        sl_history_json(&view, out);
    else if (p->count > 0)
        sl_history_text(&view, out, sl_table_colour(out), q->wide);
    else if (q->since_ms)
        (void)fprintf(out, "No tenant has ended since that time in %s.\n", view.dir);
    else
        (void)fprintf(out,
                      "No tenant has ended in %s yet. If yours was started with --sim or --dir, "
                      "give the same option here.\n",
                      view.dir);
    if (p->damaged && !q->json)
        sl_cli_complain(SL_E_HISTORY_DAMAGED, p->damaged, view.dir);
}

static int look(const struct request *q, struct sl_err *err)
{
    struct sl_past all = {.list = NULL};
    int rc = sl_past_read(&q->world.place, &all, err);
    struct sl_past p = all;
    if (rc == 0 && !choose(q, &p))
        rc = unknown_name(q, &all, err);
    if (rc == 0)
        show(q, &p, stdout);
    sl_past_free(&all);
    return rc;
}

static int parse_count(const char *text, unsigned long *ret, struct sl_err *err)
{
    char *end;
    errno = 0;
    *ret = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || *ret == 0)
        return sl_err_set(err, -EINVAL, SL_E_HISTORY_COUNT, text);
    return 0;
}

static int read_request(const struct sl_cli_args *args, struct request *q, struct sl_err *err)
{
    const char *since = sl_cli_value(args, "since"), *latest = sl_cli_value(args, "last");
    if (args->rest_count > 1)
        return sl_err_set(err, -EINVAL, SL_E_HISTORY_TWO_NAMES);
    int rc = latest ? parse_count(latest, &q->latest, err) : 0;
    if (rc == 0 && since)
        rc = sl_since_parse(since, (uint64_t)time(NULL) * 1000, &q->since_ms, err);
    return rc;
}

int sl_cmd_history(const struct sl_cli_args *args)
{
    struct sl_err err = SL_ERR_INIT;
    struct request q = {.name = args->rest[0],
                        .json = sl_cli_value(args, "json"),
                        .wide = sl_cli_value(args, "wide")};
    int rc = read_request(args, &q, &err);
    if (rc < 0) {
        sl_cli_complain("history: %s", err.msg);
        return SL_EXIT_USAGE;
    }
    rc = sl_world_find(args, &q.world, &err);
    if (rc == 0)
        rc = look(&q, &err);
    if (rc == 0)
        return sl_cli_finish(SL_EXIT_OK);
    sl_cli_complain("history: %s", err.msg);
    return SL_EXIT_FAILED;
}
