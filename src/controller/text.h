/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows: answers of thousands of names, metrics. */
#ifndef SLUICE_CONTROLLER_TEXT_H
#define SLUICE_CONTROLLER_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Zeroed before first use. After a failure nothing more is added; data is then incomplete. */
struct sl_text {
    char *data;
    size_t size, room;
    bool failed;
};

void sl_text_add(struct sl_text *text, const char *data, size_t size);
void sl_text_put(struct sl_text *text, const char *data);
void sl_text_format(struct sl_text *text, const char *fmt, ...) SL_PRINTF(2, 3);
void sl_text_quote(struct sl_text *text,
                   const char *data); /* as a JSON string; wrong UTF-8 becomes U+FFFD */
/* Hands the data out, to be freed; NULL after a failure. */
char *sl_text_take(struct sl_text *text);

#endif
