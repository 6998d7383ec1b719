/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_KUBE_ERRORS_H
#define SLUICE_KUBE_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("api");

SL_ERROR(KUBE_NOWHERE,
    "there is no kubeconfig, and this is not a pod (KUBERNETES_SERVICE_HOST is not set): name a kubeconfig",
    "the program does not know where the API server is", "`--kubeconfig`, a service account, or `--no-api`");
SL_ERROR_ALSO(KUBE_NO_TOKEN,
    "the pod has no service account token in %s: set automountServiceAccountToken, or name a kubeconfig");
SL_ERROR(KUBECONFIG_CONTEXT, "the kubeconfig has no current-context",
    "the kubeconfig is incomplete or damaged", "`kubectl config view`");
SL_ERROR_ALSO(KUBECONFIG_NO_ENTRY, "the kubeconfig has no %s named \"%.100s\"");
SL_ERROR_ALSO(KUBECONFIG_NO_CLUSTER, "the context of the kubeconfig names no cluster");
SL_ERROR_ALSO(KUBECONFIG_NO_SERVER, "the cluster of the kubeconfig has no server");
SL_ERROR_ALSO(KUBECONFIG_LARGE, "the kubeconfig is larger than %d bytes");
SL_ERROR_ALSO(KUBECONFIG_YAML, "the kubeconfig is not YAML: line %zu: %s");
SL_ERROR_ALSO(KUBECONFIG_BASE64, "%s is not base64");
SL_ERROR(KUBECONFIG_PLUGIN,
    "the user of the kubeconfig logs in with a plugin (exec or auth-provider), which is not supported: use a token, a "
    "tokenFile or a client certificate",
    "a way to log in that is not supported", "a token, a tokenFile or a client certificate");
SL_ERROR_ALSO(KUBECONFIG_PASSWORD,
    "the user of the kubeconfig has a password, which API servers no longer accept: use a token, a tokenFile or a "
    "client certificate");
SL_ERROR_ALSO(KUBECONFIG_PAIR,
    "the user of the kubeconfig has a client certificate without its key, or a key without its certificate");
SL_ERROR_ALSO(KUBECONFIG_TOKEN, "the token of the kubeconfig is not a valid token");
SL_ERROR_ALSO(KUBE_TOKEN_BAD, "the token in %s is empty or not a valid token");
SL_ERROR_ALSO(KUBECONFIG_UNSUPPORTED, "%s in a kubeconfig is not supported");
SL_ERROR(KUBE_URL, "the API server \"%.100s\" is not a URL: write https://HOST:PORT",
    "the address of the API server is wrong", "`https://HOST:PORT`");
SL_ERROR(KUBE_PLAIN, "the token is not sent to \"%.100s\", because the connection is not encrypted: write https://",
    "`http://` and a token", "`https://`");
SL_ERROR(KUBE_NO_ANSWER, "no answer from the API server: %s",
    "the API server or the network does not answer",
    "nothing: Sluice tries again by itself, and pods get their GPUs meanwhile");
SL_ERROR_ALSO(KUBE_SLOW, "the API server did not answer in time");
SL_ERROR(KUBE_STATUS, "the API server answers %s %.*s with %ld%s%s",
    "the text of the API server follows. 403: rights are missing; 401: the token has expired",
    "the rights in [labels.md](labels.md)");
SL_ERROR_ALSO(KUBE_REDIRECT, "the API server answers %s with a redirection (%ld), which this program does not follow");
SL_ERROR(KUBE_BUSY, "%d requests to the API server are waiting already",
    "the API server answers too slowly", "nothing: Sluice tries again by itself");
SL_ERROR_ALSO(KUBE_OBJECT_DROPPED, "an object is ignored: there are more than %d objects");
SL_ERROR(KUBE_ANSWER_LARGE, "the API server's answer is larger than %zu bytes",
    "another program answers on this address", "check the address in the kubeconfig");
SL_ERROR_ALSO(KUBE_ANSWER_JSON, "the API server's answer to %s is not JSON: line %d: %s");
SL_ERROR_ALSO(KUBE_NOT_A_LIST, "the API server's answer is not a list");
SL_ERROR_ALSO(KUBE_NOT_AN_EVENT, "the API server sent a line that is not an event: %.100s");
SL_ERROR_ALSO(KUBE_LINE_LONG, "the server sent a line longer than %zu bytes");
SL_ERROR(KUBE_PATH, "\"%.100s\" is not a path of the API",
    "a mistake in Sluice itself", "please report it");
SL_ERROR(KUBE_SETUP, "cannot set up a request to the API server: %s",
    "libcurl refused; its text is in the message", "nothing: Sluice tries again by itself");
SL_ERROR_ALSO(KUBE_START, "cannot start a request to the API server: %s");
SL_ERROR_ALSO(KUBE_CURL, "cannot set up libcurl: %s");
SL_ERROR_ALSO(KUBE_CURL_GONE, "cannot set up libcurl");
SL_ERROR(LEADER_NAMES, "leader election needs the name of a lease and the name of this replica",
    "options of sluice-controller", "`--lease`, `--identity`");
SL_ERROR_ALSO(LEADER_TIMES,
    "leader election: the lease must last longer than the time to renew it, and that time must be longer than the "
    "pause between attempts");
SL_ERROR(KUBE_UTF8, "a request to the API server is not UTF-8",
    "a mistake in Sluice itself", "please report it");
SL_ERROR(LEADER_UTF8, "leader election: the name of this replica is not UTF-8",
    "`--identity`", "another name");

#endif
