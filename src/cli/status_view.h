/* SPDX-License-Identifier: Apache-2.0 */
/* Shows a status: for people and as JSON. Sends no requests. */
#ifndef SLUICE_CLI_STATUS_VIEW_H
#define SLUICE_CLI_STATUS_VIEW_H

#include <stdbool.h>
#include <stdio.h>

#include "arbiter/client.h"

struct sl_status_view {
    const char *dir;
    const char *sim; /* NULL: real GPUs */
    bool running;
    int arbiter_pid;
    const struct sl_client_status *status;
};

void sl_status_text(const struct sl_status_view *view, FILE *out, bool colour);
void sl_status_json(const struct sl_status_view *view, FILE *out);

#endif
