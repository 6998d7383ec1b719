/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/extender.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/utf8.h"
#include "base/xalloc.h"
#include "share/affinity.h"
#include "controller/dialect.h"
#include "controller/errors.h"
#include "controller/load.h"
#include "controller/names.h"

#define NODES_MAX 100000

/* The arguments of filter and prioritize. */
struct args {
    json_t *root;
    const json_t *pod, *nodes; /* nodes: whole objects, or NULL */
    struct sl_names names;     /* text is NULL where the ordinary parser read the names */
    struct sl_request request;
    bool asks;  /* for GPUs that the extender places */
    bool claim; /* … that DRA places */
};

/* kube-scheduler writes capitals; others may not. */
static const json_t *key_of(const json_t *object, const char *upper, const char *lower)
{
    const json_t *value = json_object_get(object, upper);
    return value ? value : json_object_get(object, lower);
}

static int read_names(struct args *a, struct sl_err *err)
{
    const json_t *names = key_of(a->root, "NodeNames", "nodenames");
    const json_t *nodes = key_of(a->root, "Nodes", "nodes");
    const json_t *items = key_of(nodes, "items", "Items");
    const json_t *list = json_is_array(names) ? names : items;
    size_t i;
    const json_t *one;
    if (!json_is_array(list) || json_array_size(list) > NODES_MAX)
        return sl_err_set(err, -EINVAL, SL_E_EXT_NO_NODES);
    a->nodes = list == items ? nodes : NULL;
    a->names.name = sl_xcalloc(json_array_size(list) + 1, sizeof(*a->names.name));
    json_array_foreach(list, i, one)
    {
        const char *name = a->nodes ? sl_jget_text(json_object_get(one, "metadata"), "name")
                                    : json_string_value(one);
        if (!name)
            return sl_err_set(err, -EINVAL, SL_E_EXT_NODE_NAME);
        a->names.name[a->names.count++] = name;
    }
    return 0;
}

/* The pod's request: as the webhook wrote it, or in its dialect where the webhook did not see the pod. */
static int read_request(struct args *a, const char *slot, struct sl_err *err)
{
    const char *text = sl_jget_note(a->pod, SL_PROMISE_REQUEST_KEY);
    const json_t *spec = json_object_get(a->pod, "spec");
    a->claim = json_array_size(json_object_get(spec, "resourceClaims")) > 0;
    if (a->claim)
        return 0;
    int rc =
        text ? sl_request_parse(text, &a->request, err) : sl_dialect_read(a->pod, &a->request, err);
    a->asks = text ? rc == 0 : rc == SL_DIALECT_PLAIN || rc == SL_DIALECT_ASKS;
    if (a->asks)
        rc = sl_dialect_check_slots(a->pod, &a->request, slot, err);
    return rc < 0 ? rc : 0;
}

static int args_read(const struct sl_extender *e, struct args *a, const char *body, size_t size,
                     struct sl_err *err)
{
    memset(a, 0, sizeof(*a));
    if (sl_names_scan(body, size, &a->names)) {
        body = a->names.rest;
        size = strlen(body);
    }
    a->root = sl_load_json(body, size, JSON_REJECT_DUPLICATES, err);
    if (!a->root)
        return -EINVAL;
    a->pod = key_of(a->root, "Pod", "pod");
    if (!json_is_object(a->pod))
        return sl_err_set(err, -EINVAL, SL_E_EXT_NO_POD);
    int rc = a->names.text ? 0 : read_names(a, err);
    return rc ? rc : read_request(a, e->slot_resource, err);
}

static void args_free(struct args *a)
{
    sl_names_free(&a->names);
    json_decref(a->root);
}

static struct sl_cluster_ask ask_of(const struct args *a)
{
    const json_t *meta = json_object_get(a->pod, "metadata");
    return (struct sl_cluster_ask){.uid = sl_jget_text(meta, "uid"),
                                   .name_space = sl_jget_text(meta, "namespace"),
                                   .request = &a->request,
                                   .cpu_milli = sl_cluster_pod_cpu(a->pod),
                                   .preferred = sl_affinity_preferred(a->pod),
                                   .nodes = a->names.name,
                                   .node_count = a->names.count};
}

/* --- answers --- */

/* Writes a JSON string without a tree: answers have thousands of names. Wrong UTF-8 becomes U+FFFD: one wrong byte
 * would make the whole answer unreadable. */
static void quote(FILE *out, const char *text)
{
    const char *plain = text;
    (void)fputc('"', out);
    while (*text) {
        unsigned char c = (unsigned char)*text;
        size_t n = sl_utf8_length(text);
        if (c >= 0x20 && c != '"' && c != '\\' && n) {
            text += n;
            continue;
        }
        (void)fwrite(plain, 1, (size_t)(text - plain), out);
        if (!n)
            (void)fputs("\\ufffd", out);
        else
            (void)fprintf(out, c < 0x20 ? "\\u%04x" : "\\%c", (unsigned)c);
        plain = ++text;
    }
    (void)fwrite(plain, 1, (size_t)(text - plain), out);
    (void)fputc('"', out);
}

static char *answer_with(const char *before, const char *word, const char *after)
{
    char *text;
    size_t size;
    FILE *out = sl_xmemstream(&text, &size);
    (void)fputs(before, out);
    quote(out, word);
    (void)fputs(after, out);
    sl_xmemstream_close(out);
    return text;
}

/* --- filter --- */

char *sl_extender_filter_error(const char *error)
{
    return answer_with("{\"NodeNames\":null,\"Nodes\":null,\"FailedNodes\":{},\"Error\":", error,
                       "}");
}

/* good[i]: names[i] stays. The answer has the form of the question: names or objects. */
static void put_nodes(FILE *out, const struct args *a, const int32_t *good)
{
    const char *sep = "";
    (void)fputs(a->nodes ? "\"NodeNames\":null,\"Nodes\":{\"items\":["
                         : "\"Nodes\":null,\"NodeNames\":[",
                out);
    for (size_t i = 0; i < a->names.count; i++) {
        if (good && good[i] == INT32_MIN)
            continue;
        (void)fputs(sep, out);
        sep = ",";
        if (a->nodes)
            (void)json_dumpf(json_array_get(key_of(a->nodes, "items", "Items"), i), out,
                             JSON_COMPACT);
        else
            quote(out, a->names.name[i]);
    }
    (void)fputs(a->nodes ? "]}" : "]", out);
}

static void put_reasons(FILE *out, const struct sl_extender *e, const struct args *a,
                        const int32_t *good)
{
    for (int never = 0; never < 2; never++) {
        const char *sep = "";
        (void)fputs(never ? ",\"FailedAndUnresolvableNodes\":{" : ",\"FailedNodes\":{", out);
        for (size_t i = 0; i < a->names.count; i++) {
            bool is_never;
            if (good && good[i] != INT32_MIN)
                continue;
            const char *why =
                sl_cluster_reason(e->cluster, &a->request, a->names.name[i], &is_never);
            if (is_never != (never == 1))
                continue;
            (void)fputs(sep, out);
            quote(out, a->names.name[i]);
            (void)fputc(':', out);
            quote(out, why);
            sep = ",";
        }
        (void)fputc('}', out);
    }
}

/* scores NULL: no node stays. */
static char *filter_answer(const struct sl_extender *e, const struct args *a, const int32_t *scores,
                           bool reasons)
{
    char *text;
    size_t size;
    FILE *out = sl_xmemstream(&text, &size);
    (void)fputc('{', out);
    if (scores || !reasons)
        put_nodes(out, a, scores);
    else
        (void)fputs("\"Nodes\":null,\"NodeNames\":[]", out);
    if (reasons)
        put_reasons(out, e, a, scores);
    else
        (void)fputs(",\"FailedNodes\":{}", out);
    (void)fputs(",\"Error\":\"\"}", out);
    sl_xmemstream_close(out);
    return text;
}

char *sl_extender_filter(const struct sl_extender *e, const char *body, size_t size,
                         uint64_t now_ns)
{
    struct args a;
    struct sl_err err = SL_ERR_INIT;
    char *answer = NULL;
    int rc = args_read(e, &a, body, size, &err);
    struct sl_cluster_ask ask = rc ? (struct sl_cluster_ask){0} : ask_of(&a);
    if (!rc && !a.asks) {
        answer = filter_answer(e, &a, NULL, false);
    } else if (!rc && (e->all || a.nodes)) {
        int32_t *scores SL_CLEANUP(free) = sl_xcalloc(a.names.count + 1, sizeof(*scores));
        if (sl_cluster_scores(e->cluster, &ask, scores, &err) == 0)
            answer = filter_answer(e, &a, scores, true);
    } else if (!rc) {
        const char *node;
        rc = sl_cluster_choose(e->cluster, &ask, now_ns, &node, &err);
        if (rc == -ENOSPC)
            answer = filter_answer(e, &a, NULL, true);
        else if (!rc)
            answer = answer_with("{\"Nodes\":null,\"NodeNames\":[", node,
                                 "],\"FailedNodes\":{},\"Error\":\"\"}");
    }
    args_free(&a);
    return answer ? answer : sl_extender_filter_error(err.msg);
}

/* --- prioritize --- */

/* Scales the scores of nodes that fit to 0 (worst) to 10 (best). */
static void scale(int32_t *scores, size_t count)
{
    int64_t low = INT32_MAX, high = INT32_MIN;
    for (size_t i = 0; i < count; i++) {
        if (scores[i] == INT32_MIN)
            continue;
        low = scores[i] < low ? scores[i] : low;
        high = scores[i] > high ? scores[i] : high;
    }
    for (size_t i = 0; i < count; i++)
        scores[i] = scores[i] == INT32_MIN ? 0
                    : high == low          ? 10
                                           : (int32_t)((scores[i] - low) * 10 / (high - low));
}

static void rate(const struct sl_extender *e, const struct args *a, int32_t *scores)
{
    if (a->claim) { /* DRA places it; fuller nodes first keep other nodes whole */
        for (size_t i = 0; i < a->names.count; i++)
            scores[i] = (int32_t)sl_claims_fullness(e->claims, a->names.name[i]);
        scale(scores, a->names.count);
    } else if (a->asks && a->names.count > 1) {
        struct sl_cluster_ask ask = ask_of(a);
        if (sl_cluster_scores(e->cluster, &ask, scores, NULL) == 0)
            scale(scores, a->names.count);
        else
            memset(scores, 0, a->names.count * sizeof(*scores));
    }
}

char *sl_extender_prioritize(const struct sl_extender *e, const char *body, size_t size)
{
    struct args a;
    char *text;
    size_t text_size;
    FILE *out = sl_xmemstream(&text, &text_size);
    int32_t *scores SL_CLEANUP(free) = NULL;
    if (args_read(e, &a, body, size, NULL) == 0)
        scores = sl_xcalloc(a.names.count + 1, sizeof(*scores));
    if (scores)
        rate(e, &a, scores);
    (void)fputc('[', out);
    for (size_t i = 0; scores && i < a.names.count; i++) {
        (void)fputs(i ? ",{\"Host\":" : "{\"Host\":", out);
        quote(out, a.names.name[i]);
        (void)fprintf(out, ",\"Score\":%d}", (int)scores[i]);
    }
    (void)fputc(']', out);
    sl_xmemstream_close(out);
    args_free(&a);
    return text;
}

/* --- bind --- */

int sl_extender_bind_parse(const char *body, size_t size, struct sl_extender_bind *ret,
                           struct sl_err *err)
{
    json_t *j = sl_load_json(body, size, 0, err);
    const struct {
        const char *upper, *lower;
        char *buf;
        size_t size;
    } rows[] = {{"PodName", "podName", ret->name, sizeof(ret->name)},
                {"PodNamespace", "podNamespace", ret->name_space, sizeof(ret->name_space)},
                {"PodUID", "podUID", ret->uid, sizeof(ret->uid)},
                {"Node", "node", ret->node, sizeof(ret->node)}};
    int rc = j ? 0 : -EINVAL;
    for (size_t i = 0; !rc && i < SL_ARRAY_LEN(rows); i++) {
        const char *text = json_string_value(key_of(j, rows[i].upper, rows[i].lower));
        if (!text || !text[0] || strlen(text) >= rows[i].size || strchr(text, '/'))
            rc = sl_err_set(err, -EINVAL, SL_E_EXT_BIND, rows[i].upper);
        else
            (void)snprintf(rows[i].buf, rows[i].size, "%s", text);
    }
    json_decref(j);
    return rc;
}

char *sl_extender_bind_answer(const char *error)
{
    return answer_with("{\"Error\":", error ? error : "", "}");
}
