/* SPDX-License-Identifier: Apache-2.0 */
/* The history of ended tenants: from the arbiter, or from its file where no arbiter runs. */
#ifndef SLUICE_CLI_HISTORY_READ_H
#define SLUICE_CLI_HISTORY_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arbiter/dir.h"
#include "policy/history.h"

struct sl_past {
    struct sl_history_entry *list; /* oldest first */
    size_t count;
    uint32_t damaged; /* lines that could not be read */
    bool running;     /* an arbiter told us */
};

/* No directory and no file are no error. Free with sl_past_free, also after an error. */
int sl_past_read(const struct sl_arbiter_dir *place, struct sl_past *ret,
                 struct sl_err *err) SL_MUST_CHECK;
void sl_past_free(struct sl_past *p);

#endif
