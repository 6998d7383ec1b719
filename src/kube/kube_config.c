/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/kube_config.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "kube/errors.h"

enum { FILE_MAX = 1 << 20, TEXT_MAX = 256 << 10 };

struct reader {
    yaml_document_t doc;
    const char *dir;
};

static int no_memory(struct sl_err *err)
{
    return sl_err_set(err, -ENOMEM, "out of memory for a kubeconfig");
}

static yaml_node_t *member(struct reader *r, yaml_node_t *map, const char *key)
{
    if (!map || map->type != YAML_MAPPING_NODE)
        return NULL;
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
         p++) {
        yaml_node_t *k = yaml_document_get_node(&r->doc, p->key);
        if (k && k->type == YAML_SCALAR_NODE && k->data.scalar.length == strlen(key) &&
            memcmp(k->data.scalar.value, key, strlen(key)) == 0)
            return yaml_document_get_node(&r->doc, p->value);
    }
    return NULL;
}

/* The text of a scalar; NULL where there is none or it is empty. */
static const char *text_of(struct reader *r, yaml_node_t *map, const char *key)
{
    yaml_node_t *n = member(r, map, key);
    if (!n || n->type != YAML_SCALAR_NODE || n->data.scalar.length == 0 ||
        n->data.scalar.length > TEXT_MAX)
        return NULL;
    const char *text = (const char *)n->data.scalar.value;
    return strlen(text) == n->data.scalar.length ? text : NULL;
}

/* How a text of the file becomes a string of the configuration. */
enum form { PLAIN, PATH, BASE64 };

struct row {
    const char *key;
    enum form form;
    char **at;
};

static int decode(const char *key, const char *text, char **ret, struct sl_err *err)
{
    gnutls_datum_t in = {.data = (unsigned char *)(uintptr_t)text, .size = (unsigned)strlen(text)};
    gnutls_datum_t out = {0};
    if (gnutls_base64_decode2(&in, &out) < 0)
        return sl_err_set(err, -EINVAL, SL_E_KUBECONFIG_BASE64, key);
    *ret = strndup((const char *)out.data, out.size);
    gnutls_free(out.data);
    return 0;
}

/* A key that the map does not have leaves its string NULL. */
static int copy(struct reader *r, yaml_node_t *map, const struct row *rows, size_t count,
                struct sl_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const char *text = text_of(r, map, rows[i].key);
        char **at = rows[i].at;
        if (!text)
            continue;
        if (rows[i].form == BASE64)
            rc = decode(rows[i].key, text, at, err);
        else if (rows[i].form == PLAIN || text[0] == '/')
            *at = strdup(text);
        else if (asprintf(at, "%s/%s", r->dir, text) < 0)
            *at = NULL;
        if (rc == 0 && !*at)
            rc = no_memory(err);
    }
    return rc;
}

/* clusters, users and contexts are lists of {name, <inner>}. */
static int named(struct reader *r, const char *list, const char *inner, const char *name,
                 yaml_node_t **ret, struct sl_err *err)
{
    yaml_node_t *seq = member(r, yaml_document_get_root_node(&r->doc), list);
    if (seq && seq->type == YAML_SEQUENCE_NODE) {
        for (yaml_node_item_t *i = seq->data.sequence.items.start; i < seq->data.sequence.items.top;
             i++) {
            yaml_node_t *item = yaml_document_get_node(&r->doc, *i);
            const char *have = text_of(r, item, "name");
            yaml_node_t *found = member(r, item, inner);
            if (have && found && strcmp(have, name) == 0) {
                *ret = found;
                return 0;
            }
        }
    }
    return sl_err_set(err, -EINVAL, SL_E_KUBECONFIG_NO_ENTRY, inner, name);
}

static int read_cluster(struct reader *r, yaml_node_t *cluster, struct sl_kube_config *ret,
                        struct sl_err *err)
{
    static const char *const refused[] = {"proxy-url", "tls-server-name"};
    for (size_t i = 0; i < SL_ARRAY_LEN(refused); i++)
        if (text_of(r, cluster, refused[i]))
            return sl_err_set(err, -ENOTSUP, SL_E_KUBECONFIG_UNSUPPORTED, refused[i]);
    const char *insecure = text_of(r, cluster, "insecure-skip-tls-verify");
    ret->insecure = insecure && (strcmp(insecure, "true") == 0 || strcmp(insecure, "True") == 0);
    const struct row rows[] = {{"server", PLAIN, &ret->server},
                               {"certificate-authority", PATH, &ret->ca_file},
                               {"certificate-authority-data", BASE64, &ret->ca_pem}};
    if (!text_of(r, cluster, "server"))
        return sl_err_set(err, -EINVAL, SL_E_KUBECONFIG_NO_SERVER);
    return copy(r, cluster, rows, SL_ARRAY_LEN(rows), err);
}

static int read_user(struct reader *r, yaml_node_t *user, struct sl_kube_config *ret,
                     struct sl_err *err)
{
    if (member(r, user, "exec") || member(r, user, "auth-provider"))
        return sl_err_set(err, -ENOTSUP, SL_E_KUBECONFIG_PLUGIN);
    if (member(r, user, "username") || member(r, user, "password"))
        return sl_err_set(err, -ENOTSUP, SL_E_KUBECONFIG_PASSWORD);
    const struct row rows[] = {{"token", PLAIN, &ret->token},
                               {"tokenFile", PATH, &ret->token_file},
                               {"client-certificate", PATH, &ret->cert_file},
                               {"client-certificate-data", BASE64, &ret->cert_pem},
                               {"client-key", PATH, &ret->key_file},
                               {"client-key-data", BASE64, &ret->key_pem}};
    int rc = copy(r, user, rows, SL_ARRAY_LEN(rows), err);
    if (rc == 0 && (ret->cert_file || ret->cert_pem) != (ret->key_file || ret->key_pem))
        rc = sl_err_set(err, -EINVAL, SL_E_KUBECONFIG_PAIR);
    return rc;
}

static int read_document(struct reader *r, struct sl_kube_config *ret, struct sl_err *err)
{
    yaml_node_t *context = NULL, *cluster = NULL, *user = NULL;
    const char *name = text_of(r, yaml_document_get_root_node(&r->doc), "current-context");
    if (!name)
        return sl_err_set(err, -EINVAL, SL_E_KUBECONFIG_CONTEXT);
    int rc = named(r, "contexts", "context", name, &context, err);
    if (rc < 0)
        return rc;
    const char *cluster_name = text_of(r, context, "cluster");
    const char *user_name = text_of(r, context, "user");
    if (!cluster_name)
        return sl_err_set(err, -EINVAL, SL_E_KUBECONFIG_NO_CLUSTER);
    rc = named(r, "clusters", "cluster", cluster_name, &cluster, err);
    if (rc == 0)
        rc = read_cluster(r, cluster, ret, err);
    if (rc == 0 && user_name) {
        rc = named(r, "users", "user", user_name, &user, err);
        if (rc == 0)
            rc = read_user(r, user, ret, err);
    }
    return rc;
}

int sl_kube_config_parse(const char *text, size_t size, const char *dir, struct sl_kube_config *ret,
                         struct sl_err *err)
{
    struct reader r = {.dir = dir};
    struct sl_kube_config config = {0};
    yaml_parser_t parser;
    if (size > FILE_MAX)
        return sl_err_set(err, -EMSGSIZE, SL_E_KUBECONFIG_LARGE, FILE_MAX);
    if (!yaml_parser_initialize(&parser))
        return no_memory(err);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    if (!yaml_parser_load(&parser, &r.doc)) {
        int rc = parser.error == YAML_MEMORY_ERROR
                     ? no_memory(err)
                     : sl_err_set(err, -EINVAL, SL_E_KUBECONFIG_YAML, parser.problem_mark.line + 1,
                                  parser.problem ? parser.problem : "the file cannot be read");
        yaml_parser_delete(&parser);
        return rc;
    }
    int rc = read_document(&r, &config, err);
    yaml_document_delete(&r.doc);
    yaml_parser_delete(&parser);
    if (rc < 0)
        sl_kube_config_free(&config);
    else
        *ret = config;
    return rc;
}

int sl_kube_config_file(const char *path, struct sl_kube_config *ret, struct sl_err *err)
{
    SL_CLEANUP(free) char *text = NULL;
    SL_CLEANUP(free) char *dir = strdup(path);
    size_t size;
    if (!dir)
        return no_memory(err);
    int rc = sl_fs_read(AT_FDCWD, path, FILE_MAX, &text, &size, err);
    if (rc < 0)
        return rc;
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[slash == dir] = 0;
    rc = sl_kube_config_parse(text, size, slash ? dir : ".", ret, err);
    explicit_bzero(text, size);
    return rc < 0 ? sl_err_wrap(err, "%s", path) : 0;
}

int sl_kube_config_pod(const char *dir, struct sl_kube_config *ret, struct sl_err *err)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    const char *port = getenv("KUBERNETES_SERVICE_PORT");
    struct sl_kube_config config = {0};
    if (!host || !host[0])
        return sl_err_set(err, -ENOENT, SL_E_KUBE_NOWHERE);
    bool v6 = strchr(host, ':') != NULL;
    int rc = asprintf(&config.server, "https://%s%s%s:%s", v6 ? "[" : "", host, v6 ? "]" : "",
                      port && port[0] ? port : "443");
    if (rc < 0)
        config.server = NULL;
    if (rc >= 0 && (rc = asprintf(&config.ca_file, "%s/ca.crt", dir)) < 0)
        config.ca_file = NULL;
    if (rc >= 0 && (rc = asprintf(&config.token_file, "%s/token", dir)) < 0)
        config.token_file = NULL;
    if (rc < 0)
        rc = no_memory(err);
    else if (access(config.token_file, R_OK) != 0)
        rc = sl_err_set(err, -ENOENT, SL_E_KUBE_NO_TOKEN, dir);
    else
        rc = 0;
    if (rc < 0)
        sl_kube_config_free(&config);
    else
        *ret = config;
    return rc;
}

void sl_kube_config_free(struct sl_kube_config *config)
{
    free(config->server);
    free(config->ca_file);
    free(config->ca_pem);
    free(config->cert_file);
    free(config->cert_pem);
    free(config->key_file);
    sl_free_secret(config->key_pem);
    sl_free_secret(config->token);
    free(config->token_file);
    *config = (struct sl_kube_config){0};
}
