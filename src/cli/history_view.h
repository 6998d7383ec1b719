/* SPDX-License-Identifier: Apache-2.0 */
/* Ended tenants, for people and for programs. */
#ifndef SLUICE_CLI_HISTORY_VIEW_H
#define SLUICE_CLI_HISTORY_VIEW_H

#include <stdbool.h>
#include <stdio.h>

#include "policy/history.h"

struct sl_history_view {
    const char *dir;
    bool running; /* an arbiter answered; else the entries come from its file */
    uint32_t damaged;
    const struct sl_history_entry *entries; /* oldest first */
    size_t count;
};

void sl_history_text(const struct sl_history_view *v, FILE *out, bool colour, bool wide);
void sl_history_json(const struct sl_history_view *v, FILE *out);

#endif
