/* SPDX-License-Identifier: Apache-2.0 */
/* The objects of a cluster that `sluice explain` and `sluice cluster` judge by, as far as the user may read them. */
#ifndef SLUICE_CLI_CLUSTER_READ_H
#define SLUICE_CLI_CLUSTER_READ_H

#include "cli/cli.h"
#include "cli/kubectl.h"
#include "explain/explain.h"

struct sl_cluster_objects {
    char *name_space;
    json_t *pod; /* explain only */
    json_t *events, *nodes, *pods, *claims, *templates, *classes,
        *slices;      /* lists; NULL: not read */
    char unread[256]; /* what the user may not read, with commas; "": nothing */
    bool own_pods;    /* `pods` are those of the namespace only */
};

/* For a pod of this name. */
int sl_cluster_read_pod(const struct sl_cli_args *args, const char *name,
                        struct sl_cluster_objects *ret, struct sl_err *err) SL_MUST_CHECK;
/* For tables: nodes, and pods of all namespaces or of --namespace. */
int sl_cluster_read_all(const struct sl_cli_args *args, struct sl_cluster_objects *ret,
                        struct sl_err *err) SL_MUST_CHECK;
void sl_cluster_objects_free(struct sl_cluster_objects *objects);

struct sl_explain_facts sl_cluster_facts(const struct sl_cluster_objects *objects);

#endif
