/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "cli/doctor.h"
#include "cli/errors.h"
#include "cli/table.h"

static const char *const result_names[] = {"ok", "warning", "problem", "skipped"};

void sl_doctor_add(struct sl_doctor *d, const char *name, enum sl_doctor_result result,
                   const char *cure, const char *fmt, ...)
{
    if (d->count == SL_ARRAY_LEN(d->line))
        return;
    struct sl_doctor_line *l = &d->line[d->count++];
    bool follows = d->root && result == SL_DOCTOR_PROBLEM;
    *l = (struct sl_doctor_line){.name = name, .result = follows ? SL_DOCTOR_SKIPPED : result};
    int n = follows ? snprintf(l->text, sizeof(l->text), "because of the %s: ", d->root) : 0;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(l->text + n, sizeof(l->text) - (size_t)n, fmt, ap);
    va_end(ap);
    if (cure && !follows)
        (void)snprintf(l->cure, sizeof(l->cure), "%s", cure);
}

size_t sl_doctor_problems(const struct sl_doctor *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->count; i++)
        n += d->line[i].result == SL_DOCTOR_PROBLEM;
    return n;
}

static void print_text(const struct sl_doctor *d)
{
    static const char *const colours[] = {SL_COLOUR_GREEN, SL_COLOUR_YELLOW, SL_COLOUR_RED, ""};
    bool colour = sl_table_colour(stdout);
    for (size_t i = 0; i < d->count; i++) {
        const struct sl_doctor_line *l = &d->line[i];
        (void)printf("%s%-7s%s  %-9s  %s\n", colour ? colours[l->result] : "",
                     result_names[l->result], colour ? SL_COLOUR_OFF : "", l->name, l->text);
        if (l->cure[0])
            (void)printf("%-7s  %-9s  -> %s\n", "", "", l->cure);
    }
    size_t problems = sl_doctor_problems(d);
    if (problems == 0)
        (void)printf("\n`sluice run` works here.\n");
    else
        (void)printf("\n`sluice run` does not work here: %zu problem%s above.\n", problems,
                     problems == 1 ? "" : "s");
}

static void print_json(const struct sl_doctor *d)
{
    struct sl_json j;
    sl_json_init(&j, stdout);
    sl_json_begin(&j, NULL, '{');
    sl_json_bool(&j, "ok", sl_doctor_problems(d) == 0);
    sl_json_begin(&j, "checks", '[');
    for (size_t i = 0; i < d->count; i++) {
        const struct sl_doctor_line *l = &d->line[i];
        sl_json_begin(&j, NULL, '{');
        sl_json_string(&j, "name", l->name);
        sl_json_string(&j, "result", result_names[l->result]);
        sl_json_string(&j, "text", l->text);
        sl_json_string(&j, "cure", l->cure[0] ? l->cure : NULL);
        sl_json_end(&j, '}');
    }
    sl_json_end(&j, ']');
    sl_json_end(&j, '}');
}

int sl_cmd_doctor(const struct sl_cli_args *args)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_world world;
    if (sl_world_find(args, &world, &err) < 0) {
        sl_cli_complain("doctor: %s", err.msg);
        return SL_EXIT_FAILED;
    }
    struct sl_doctor d = {.world = &world, .libsluice = sl_cli_value(args, "libsluice")};
    sl_doctor_gpu(&d);
    sl_doctor_system(&d);
    if (sl_cli_value(args, "json"))
        print_json(&d);
    else
        print_text(&d);
    return sl_cli_finish(sl_doctor_problems(&d) ? SL_EXIT_FAILED : SL_EXIT_OK);
}
