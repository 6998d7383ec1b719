/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice explain [pod] NAME`: why a pod waits or failed, and what to do, in three sentences. */
#include <errno.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/errors.h"

/* The name of the pod; NULL when the command line is wrong. */
static const char *named_pod(const struct sl_cli_args *args)
{
    int word = args->rest_count > 1 && strcmp(args->rest[0], "pod") == 0;
    if (args->rest_count == word)
        sl_cli_complain(SL_E_EXPLAIN_NO_POD);
    else if (args->rest_count > word + 1)
        sl_cli_complain(SL_E_EXPLAIN_EXTRA_WORD, args->rest[word + 1]);
    else
        return args->rest[word];
    return NULL;
}

#ifndef SLUICE_WITH_CLUSTER

int sl_cmd_explain(const struct sl_cli_args *args)
{
    if (!named_pod(args))
        return SL_EXIT_USAGE;
    sl_cli_complain(SL_E_CLUSTER_NOT_BUILT);
    return SL_EXIT_NOT_KNOWN;
}

#else

#include <unistd.h>

#include "base/json.h"
#include "base/xalloc.h"
#include "cli/cluster_read.h"
#include "cli/table.h"
#include "explain/explain.h"

static void print_json(const struct sl_cluster_objects *o, const char *pod,
                       const struct sl_explanation *e)
{
    struct sl_json j;
    sl_json_init(&j, stdout);
    sl_json_begin(&j, NULL, '{');
    sl_json_string(&j, "namespace", o->name_space);
    sl_json_string(&j, "pod", pod);
    sl_json_string(&j, "code", e->code);
    sl_json_bool(&j, "well", e->well);
    sl_json_string(&j, "what", e->what);
    sl_json_string(&j, "why", e->why);
    sl_json_string(&j, "do", e->cure);
    sl_json_string(&j, "not_read", *o->unread ? o->unread : NULL);
    sl_json_end(&j, '}');
    (void)putchar('\n');
}

static void print_sentence(const char *word, const char *text)
{
    (void)fputs(word, stdout);
    sl_table_prose(stdout, SL_TABLE_WIDTH, (int)strlen(word), (int)strlen(word), text);
}

static void print_text(const struct sl_cluster_objects *o, struct sl_explanation *e)
{
    char unread[sizeof(o->unread) + 64];
    print_sentence("", sl_table_printable(e->what));
    print_sentence("Why: ", sl_table_printable(e->why));
    print_sentence("Do:  ", e->cure);
    (void)snprintf(unread, sizeof(unread), "You may not read %s: this was said without them.",
                   o->unread);
    if (*o->unread)
        print_sentence("", unread);
}

int sl_cmd_explain(const struct sl_cli_args *args)
{
    struct sl_cluster_objects objects;
    struct sl_explanation e;
    struct sl_err err = SL_ERR_INIT;
    const char *pod = named_pod(args);
    if (!pod)
        return SL_EXIT_USAGE;
    int rc = sl_cluster_read_pod(args, pod, &objects, &err);
    if (rc < 0) {
        sl_cli_complain("explain: %s", err.msg);
        sl_cluster_objects_free(&objects);
        return rc == -EINVAL ? SL_EXIT_USAGE : SL_EXIT_NOT_KNOWN;
    }
    struct sl_explain_facts facts = sl_cluster_facts(&objects);
    sl_explain_pod(&facts, &e);
    if (sl_cli_value(args, "json"))
        print_json(&objects, pod, &e);
    else
        print_text(&objects, &e);
    sl_cluster_objects_free(&objects);
    return sl_cli_finish(e.well ? SL_EXIT_OK : SL_EXIT_FAILED);
}

#endif
