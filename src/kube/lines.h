/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts a stream of bytes into lines. A watch is one JSON object a line. */
#ifndef SLUICE_KUBE_LINES_H
#define SLUICE_KUBE_LINES_H

#include <stddef.h>

#include "base/err.h"

/* Zeroed, with max_bytes set, before first use. */
struct sl_lines {
    size_t max_bytes; /* of one line, without its end */
    char *buf;
    size_t have, capacity;
    size_t taken;   /* bytes of buf already handed out */
    size_t scanned; /* bytes of buf known to hold no further line end, from taken on */
    size_t open;    /* bytes since the last line end */
};

/* -EMSGSIZE: a line is longer than max_bytes; the complete lines before it can still be read. */
int sl_lines_feed(struct sl_lines *lines, const char *data, size_t size,
                  struct sl_err *err) SL_MUST_CHECK;
/* The next complete line that is not empty, without its end; valid until the next feed. NULL: no more. */
const char *sl_lines_next(struct sl_lines *lines, size_t *ret_size);
void sl_lines_reset(struct sl_lines *lines); /* frees the buffer, keeps max_bytes */

#endif
