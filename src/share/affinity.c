/* SPDX-License-Identifier: Apache-2.0 */
#include "share/affinity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/xalloc.h"

#define WEIGHT_MAX 100 /* as the API server allows */
#define TERMS_MAX  64  /* of one pod; others do not count */

const json_t *sl_affinity_preferred(const json_t *pod)
{
    const json_t *affinity = json_object_get(json_object_get(pod, "spec"), "affinity");
    const json_t *list = json_object_get(json_object_get(affinity, "nodeAffinity"),
                                         "preferredDuringSchedulingIgnoredDuringExecution");
    return json_array_size(list) ? list : NULL;
}

/* --- labels: key, value, key, value, … each with its end, and an empty key at the end --- */

char *sl_affinity_labels(const json_t *node)
{
    const json_t *labels = json_object_get(json_object_get(node, "metadata"), "labels");
    const char *key;
    json_t *value;
    char *text;
    size_t size;
    if (json_object_size(labels) == 0)
        return NULL;
    FILE *out = sl_xmemstream(&text, &size);
    json_object_foreach((json_t *)(uintptr_t)labels, key, value)
    {
        if (!json_is_string(value) || !key[0])
            continue;
        (void)fwrite(key, 1, strlen(key) + 1, out);
        (void)fwrite(json_string_value(value), 1, strlen(json_string_value(value)) + 1, out);
    }
    (void)fputc('\0', out);
    sl_xmemstream_close(out);
    return text;
}

const char *sl_affinity_label(const char *labels, const char *key)
{
    while (labels && *labels) {
        const char *value = labels + strlen(labels) + 1;
        if (strcmp(labels, key) == 0)
            return value;
        labels = value + strlen(value) + 1;
    }
    return NULL;
}

/* --- terms --- */

static bool is_in(const json_t *values, const char *text)
{
    size_t i;
    const json_t *one;
    json_array_foreach(values, i, one)
    {
        if (json_is_string(one) && strcmp(json_string_value(one), text) == 0)
            return true;
    }
    return false;
}

/* A whole number, with nothing after it. */
static bool number(const char *text, long long *ret)
{
    char *end;
    errno = 0;
    *ret = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0;
}

/* Gt and Lt compare whole numbers; a label that is no number does not match. */
static bool compares(const json_t *values, const char *text, bool greater)
{
    long long have, bound;
    const char *wanted = json_string_value(json_array_get(values, 0));
    if (!text || !wanted || json_array_size(values) != 1 || !number(text, &have) ||
        !number(wanted, &bound))
        return false;
    return greater ? have > bound : have < bound;
}

static bool matches_one(const json_t *expression, const char *value)
{
    const char *op = sl_jget_text(expression, "operator");
    const json_t *values = json_object_get(expression, "values");
    if (strcmp(op, "In") == 0)
        return value && is_in(values, value);
    if (strcmp(op, "NotIn") == 0)
        return !value || !is_in(values, value);
    if (strcmp(op, "Exists") == 0)
        return value;
    if (strcmp(op, "DoesNotExist") == 0)
        return !value;
    if (strcmp(op, "Gt") == 0 || strcmp(op, "Lt") == 0)
        return compares(values, value, op[0] == 'G');
    return false;
}

/* All expressions must match; a term without any matches no node. */
static bool matches(const json_t *term, const char *node, const char *labels)
{
    const json_t *by_label = json_object_get(term, "matchExpressions"), *one;
    const json_t *by_field = json_object_get(term, "matchFields");
    size_t i;
    if (json_array_size(by_label) + json_array_size(by_field) == 0)
        return false;
    json_array_foreach(by_label, i, one)
    {
        if (!matches_one(one, sl_affinity_label(labels, sl_jget_text(one, "key"))))
            return false;
    }
    json_array_foreach(by_field, i, one)
    {
        bool name = strcmp(sl_jget_text(one, "key"), "metadata.name") == 0;
        if (!name || !matches_one(one, node))
            return false;
    }
    return true;
}

int32_t sl_affinity_weight(const json_t *preferred, const char *node, const char *labels)
{
    const json_t *one;
    size_t i;
    int32_t sum = 0;
    json_array_foreach(preferred, i, one)
    {
        json_int_t weight = json_integer_value(json_object_get(one, "weight"));
        if (i >= TERMS_MAX)
            break;
        if (weight >= 1 && weight <= WEIGHT_MAX &&
            matches(json_object_get(one, "preference"), node, labels))
            sum += (int32_t)weight;
    }
    return sum;
}

bool sl_affinity_required(const json_t *pod, const char *node, const char *labels)
{
    const json_t *affinity = json_object_get(json_object_get(pod, "spec"), "affinity");
    const json_t *must = json_object_get(json_object_get(affinity, "nodeAffinity"),
                                         "requiredDuringSchedulingIgnoredDuringExecution");
    const json_t *one;
    size_t i;
    if (!must)
        return true;
    json_array_foreach(json_object_get(must, "nodeSelectorTerms"), i, one)
    {
        if (matches(one, node, labels)) /* one of the terms is enough */
            return true;
    }
    return false;
}
