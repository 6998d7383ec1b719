/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/labels.h"

#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

/* The index of the key, or the place to insert it. */
static size_t place_of(const struct sl_labels *labels, const char *key, bool *ret_found)
{
    size_t low = 0, high = labels->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(labels->label[mid].key, key);
        if (order == 0) {
            *ret_found = true;
            return mid;
        }
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    *ret_found = false;
    return low;
}

void sl_labels_set(struct sl_labels *labels, const char *key, const char *value)
{
    bool found = false;
    size_t at = place_of(labels, key, &found);
    char *copy = sl_xstrdup(value);
    if (found) {
        free(labels->label[at].value);
        labels->label[at].value = copy;
        return;
    }
    struct sl_label *l = sl_xreallocarray(labels->label, labels->count + 1, sizeof(*l));
    memmove(&l[at + 1], &l[at], (labels->count - at) * sizeof(*l));
    l[at] = (struct sl_label){sl_xstrdup(key), copy};
    labels->label = l;
    labels->count++;
}

const char *sl_labels_get(const struct sl_labels *labels, const char *key)
{
    bool found = false;
    size_t at = place_of(labels, key, &found);
    return found ? labels->label[at].value : NULL;
}

bool sl_labels_equal(const struct sl_labels *a, const struct sl_labels *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        if (strcmp(a->label[i].key, b->label[i].key) != 0 ||
            strcmp(a->label[i].value, b->label[i].value) != 0)
            return false;
    }
    return true;
}

void sl_labels_copy(struct sl_labels *to, const struct sl_labels *from)
{
    sl_labels_clear(to);
    for (size_t i = 0; i < from->count; i++)
        sl_labels_set(to, from->label[i].key, from->label[i].value);
}

void sl_labels_clear(struct sl_labels *labels)
{
    for (size_t i = 0; i < labels->count; i++) {
        free(labels->label[i].key);
        free(labels->label[i].value);
    }
    free(labels->label);
    *labels = (struct sl_labels){0};
}

/* Independent of the locale: a label is ASCII. */
static bool alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Appends the characters of text that a value may have, up to max characters in all. */
static size_t append(char *out, size_t n, size_t max, const char *text)
{
    bool gap = false;
    for (; *text && n < max; text++) {
        if (space(*text)) {
            gap = true;
            continue;
        }
        bool allowed = alnum(*text) || *text == '-' || *text == '_' || *text == '.';
        if (!allowed || (n == 0 && !alnum(*text)))
            continue;
        if (gap && n > 0)
            out[n++] = '-';
        gap = false;
        if (n < max)
            out[n++] = *text;
    }
    return n;
}

static size_t trim(const char *out, size_t n)
{
    while (n > 0 && !alnum(out[n - 1]))
        n--;
    return n;
}

void sl_label_value(const char *text, const char *suffix, char ret[SL_LABEL_VALUE_MAX + 1])
{
    char tail[SL_LABEL_VALUE_MAX + 1];
    size_t tail_size = 0;
    if (suffix) {
        size_t lead = *suffix == '-' ? 1 : 0; /* a value may not begin with '-', a suffix may */
        tail_size = trim(tail, append(tail, 0, SL_LABEL_VALUE_MAX - 1, suffix + lead));
        if (lead && tail_size > 0) {
            memmove(tail + 1, tail, tail_size);
            tail[0] = '-';
            tail_size++;
        }
    }
    size_t n = trim(ret, append(ret, 0, SL_LABEL_VALUE_MAX - tail_size, text));
    if (n == 0 && tail_size > 0 && tail[0] == '-') {
        memmove(tail, tail + 1, --tail_size);
    }
    memcpy(ret + n, tail, tail_size);
    ret[n + tail_size] = '\0';
}
