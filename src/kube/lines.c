/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/lines.h"

#include "kube/errors.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int reserve(struct sl_lines *lines, size_t more, struct sl_err *err)
{
    if (lines->taken) {
        memmove(lines->buf, lines->buf + lines->taken, lines->have - lines->taken);
        lines->have -= lines->taken;
        lines->scanned -= lines->taken;
        lines->taken = 0;
    }
    if (more > SIZE_MAX / 4 - lines->have)
        return sl_err_set(err, -ENOMEM, "out of memory for a stream of lines");
    if (lines->capacity - lines->have >= more)
        return 0;
    size_t capacity = lines->capacity ? lines->capacity : 4096;
    while (capacity - lines->have < more)
        capacity *= 2;
    char *buf = realloc(lines->buf, capacity);
    if (!buf)
        return sl_err_set(err, -ENOMEM, "out of memory for a stream of lines");
    lines->buf = buf;
    lines->capacity = capacity;
    return 0;
}

/* How many of the bytes may be kept, so that no line exceeds the limit; updates `open`. */
static size_t allowed(struct sl_lines *lines, const char *data, size_t size)
{
    size_t at = 0;
    while (at < size) {
        const char *end = memchr(data + at, '\n', size - at);
        size_t part = end ? (size_t)(end - data) - at : size - at;
        if (part > lines->max_bytes - lines->open)
            return at;
        at += part + (end != NULL);
        lines->open = end ? 0 : lines->open + part;
    }
    return size;
}

int sl_lines_feed(struct sl_lines *lines, const char *data, size_t size, struct sl_err *err)
{
    size_t keep = allowed(lines, data, size);
    if (keep > 0) {
        int rc = reserve(lines, keep, err);
        if (rc < 0)
            return rc;
        memcpy(lines->buf + lines->have, data, keep);
        lines->have += keep;
    }
    if (keep < size)
        return sl_err_set(err, -EMSGSIZE, SL_E_KUBE_LINE_LONG, lines->max_bytes);
    return 0;
}

const char *sl_lines_next(struct sl_lines *lines, size_t *ret_size)
{
    while (lines->scanned < lines->have) {
        char *end = memchr(lines->buf + lines->scanned, '\n', lines->have - lines->scanned);
        if (!end) {
            lines->scanned = lines->have;
            break;
        }
        const char *line = lines->buf + lines->taken;
        size_t size = (size_t)(end - line);
        lines->taken = lines->scanned = (size_t)(end - lines->buf) + 1;
        if (size > 0 && line[size - 1] == '\r')
            size--;
        if (size > 0) {
            *ret_size = size;
            return line;
        }
    }
    /* One huge line must not keep its memory for ever. */
    if (lines->taken == lines->have && lines->capacity > (1U << 20))
        sl_lines_reset(lines);
    return NULL;
}

void sl_lines_reset(struct sl_lines *lines)
{
    free(lines->buf);
    *lines = (struct sl_lines){.max_bytes = lines->max_bytes};
}
