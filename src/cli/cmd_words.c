/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice words`: the words that may come next, one per line, straight from the table. For completion. */
#include <string.h>

#include "base/cleanup.h"
#include "cli/history_read.h"
#include "cli/world.h"

static void list_options(const struct sl_cli_option *list)
{
    for (const struct sl_cli_option *o = list; o && o->name; o++)
        (void)printf("--%s\n", o->name);
}

/* The possible values of an option; the shell expands "@file" and "@dir". */
static int list_values(const struct sl_cli_option *list, const char *option)
{
    for (const struct sl_cli_option *o = list; o && o->name; o++) {
        if (strcmp(o->name, option) != 0)
            continue;
        if (!o->arg || o->arg[0] == '[') /* the next word is not its value */
            return SL_EXIT_FAILED;
        for (const char *p = o->words; p && *p; p += strspn(p, " ")) {
            size_t n = strcspn(p, " ");
            (void)printf("%.*s\n", (int)n, p);
            p += n;
        }
        return SL_EXIT_OK;
    }
    return -1;
}

/* With --leases only those that are leases. */
static void list_tenants(const struct sl_cli_args *args)
{
    struct sl_world world;
    struct sl_client_status status = {0};
    if (sl_world_find(args, &world, NULL) < 0)
        return;
    SL_CLEANUP(close) int fd = sl_client_connect(&world.place, NULL);
    if (fd < 0 || sl_client_status(fd, &status, NULL) < 0)
        return;
    for (size_t i = 0; i < status.tenant_count; i++)
        if (sl_cli_value(args, "tenants") ||
            sl_client_about(status.tenant[i].about, "lease", NULL, 0))
            (void)printf("%s\n", status.tenant[i].name);
    sl_client_status_free(&status);
}

/* Each name of an ended tenant once. */
static void list_ended(const struct sl_cli_args *args)
{
    struct sl_world world;
    struct sl_past p;
    if (sl_world_find(args, &world, NULL) < 0)
        return;
    if (sl_past_read(&world.place, &p, NULL) == 0)
        for (size_t i = 0; i < p.count; i++) {
            size_t k = 0;
            while (k < i && strcmp(p.list[k].name, p.list[i].name) != 0)
                k++;
            if (k == i)
                (void)printf("%s\n", p.list[i].name);
        }
    sl_past_free(&p);
}

int sl_cmd_words(const struct sl_cli_args *args)
{
    if (sl_cli_value(args, "ended")) {
        list_ended(args);
        return sl_cli_finish(SL_EXIT_OK);
    }
    if (sl_cli_value(args, "tenants") || sl_cli_value(args, "leases")) {
        list_tenants(args);
        return sl_cli_finish(SL_EXIT_OK);
    }
    if (args->rest_count == 0) {
        for (const struct sl_cli_verb *v = sl_cli_verbs; v->name; v++)
            if (!(v->flags & SL_VERB_HIDDEN))
                (void)printf("%s\n", v->name);
        (void)puts("help");
        return sl_cli_finish(SL_EXIT_OK);
    }
    const struct sl_cli_verb *verb = sl_cli_verb_find(args->rest[0]);
    if (!verb)
        return SL_EXIT_FAILED;
    if (args->rest_count == 1) {
        list_options(verb->options);
        list_options(sl_cli_global_options);
        return sl_cli_finish(SL_EXIT_OK);
    }
    const char *option = args->rest[1] + strspn(args->rest[1], "-");
    int code = list_values(verb->options, option);
    if (code < 0)
        code = list_values(sl_cli_global_options, option);
    return sl_cli_finish(code < 0 ? SL_EXIT_FAILED : code);
}
