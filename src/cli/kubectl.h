/* SPDX-License-Identifier: Apache-2.0 */
/* Reads objects of the API server through the user's own kubectl: with its kubeconfig, its context, its login. */
#ifndef SLUICE_CLI_KUBECTL_H
#define SLUICE_CLI_KUBECTL_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

struct sl_kubectl {
    const char *kubeconfig, *context; /* NULL: as kubectl's defaults are */
};

/* A namespace or the name of a pod, as Kubernetes takes it? */
bool sl_kubectl_name_ok(const char *name);

/* The object at this path of the API. -ENOENT: it does not exist; -EACCES: the user may not read it; -ENOEXEC: there is
 * no kubectl; others: kubectl's own words are in err. */
int sl_kubectl_get(const struct sl_kubectl *kubectl, const char *path, json_t **ret,
                   struct sl_err *err) SL_MUST_CHECK;

/* The namespace of the context, to be freed: "default" where it has none. */
int sl_kubectl_namespace(const struct sl_kubectl *kubectl, char **ret,
                         struct sl_err *err) SL_MUST_CHECK;

#endif
