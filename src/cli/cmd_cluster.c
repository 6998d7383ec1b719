/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice cluster nodes|pods|top`: the GPUs of a cluster, and who has them. */
#include <errno.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/errors.h"

static const char *const views[] = {"nodes", "pods", "top", NULL};

bool sl_cli_is_view(const char *word)
{
    for (size_t i = 0; views[i]; i++)
        if (strcmp(views[i], word) == 0)
            return true;
    return false;
}

static bool words_ok(const struct sl_cli_args *args)
{
    const char *word = args->rest_count ? args->rest[0] : "";
    if (args->rest_count == 0)
        sl_cli_complain(SL_E_CLUSTER_NO_ACTION);
    else if (!sl_cli_is_view(word))
        sl_cli_complain(SL_E_CLUSTER_ACTION, word);
    else if (args->rest_count > 1)
        sl_cli_complain(SL_E_CLUSTER_EXTRA_WORD, args->rest[1], word);
    else
        return true;
    return false;
}

#ifndef SLUICE_WITH_CLUSTER

int sl_cmd_cluster(const struct sl_cli_args *args)
{
    if (!words_ok(args))
        return SL_EXIT_USAGE;
    sl_cli_complain(SL_E_CLUSTER_NOT_BUILT);
    return SL_EXIT_FAILED;
}

#else

#include "cli/cluster_view.h"

int sl_cmd_cluster(const struct sl_cli_args *args)
{
    struct sl_cluster_objects objects;
    struct sl_holdings holdings;
    struct sl_err err = SL_ERR_INIT;
    if (!words_ok(args))
        return SL_EXIT_USAGE;
    int rc = sl_cluster_read_all(args, &objects, &err);
    if (rc < 0) {
        sl_cli_complain("cluster: %s", err.msg);
        sl_cluster_objects_free(&objects);
        return rc == -EINVAL ? SL_EXIT_USAGE : SL_EXIT_FAILED;
    }
    sl_holdings_make(objects.nodes, objects.pods, objects.claims, objects.slices, &holdings);
    bool json = sl_cli_value(args, "json");
    if (json)
        sl_cluster_json(&objects, &holdings, stdout);
    else if (strcmp(args->rest[0], "nodes") == 0)
        sl_cluster_nodes(&holdings, stdout);
    else if (strcmp(args->rest[0], "pods") == 0)
        sl_cluster_pods(&objects, &holdings, stdout);
    else
        sl_cluster_top(&holdings, stdout);
    if (!json && *objects.unread)
        (void)printf("You may not read %s:\nthese are left out.\n", objects.unread);
    sl_holdings_free(&holdings);
    sl_cluster_objects_free(&objects);
    return sl_cli_finish(SL_EXIT_OK);
}

#endif
