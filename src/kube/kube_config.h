/* SPDX-License-Identifier: Apache-2.0 */
/* The address of the API server and the identity of this program: from a kubeconfig, or from the
 * service account of a pod. */
#ifndef SLUICE_KUBE_KUBE_CONFIG_H
#define SLUICE_KUBE_KUBE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Every string is owned and may be NULL. Where there are both a file and a PEM text, the text counts. */
struct sl_kube_config {
    char *server; /* without a slash at the end */
    char *ca_file, *ca_pem;
    char *cert_file, *cert_pem;
    char *key_file, *key_pem;
    char *token, *token_file; /* where both are set, the file counts */
    bool insecure;            /* the file says not to check the server's certificate */
};

/* Reads the text of a kubeconfig; paths in it are relative to dir. Settings that this client does not support (exec
 * plugins, proxies, passwords) are refused, not ignored. */
int sl_kube_config_parse(const char *text, size_t size, const char *dir, struct sl_kube_config *ret,
                         struct sl_err *err) SL_MUST_CHECK;
int sl_kube_config_file(const char *path, struct sl_kube_config *ret,
                        struct sl_err *err) SL_MUST_CHECK;
/* From the files in dir and KUBERNETES_SERVICE_HOST and _PORT. -ENOENT: not in a pod. */
int sl_kube_config_pod(const char *dir, struct sl_kube_config *ret,
                       struct sl_err *err) SL_MUST_CHECK;
void sl_kube_config_free(struct sl_kube_config *config);

#endif
