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

/* One tenant of a status, and its processes. */
struct sl_status_detail {
    const struct sl_msg_tenant *tenant;
    const struct sl_msg_process *processes;
    size_t process_count;
    const char *untold; /* why the arbiter does not tell the processes; NULL: it does */
};

/* status_view.c. In SL_TABLE_WIDTH columns, long names cut; wide: all columns, nothing cut. */
void sl_status_text(const struct sl_status_view *view, FILE *out, bool colour, bool wide);
/* The findings of the audit: those of a tenant, or all (NULL). */
void sl_status_audit(const struct sl_status_view *view, const char *tenant, FILE *out, bool colour,
                     bool wide);
/* status_tenant.c */
void sl_status_tenant_text(const struct sl_status_view *view, const struct sl_status_detail *d,
                           FILE *out, bool colour);
/* status_line.c: who waits in line. Returns whether a text was cut. */
struct sl_json;
bool sl_status_line_text(const struct sl_status_view *view, FILE *out, bool colour, bool wide);
void sl_status_line_json(struct sl_json *j, const struct sl_client_status *s);
/* status_json.c */
/* Index and UUID of a GPU, in the object that is open. */
void sl_status_gpu_json(struct sl_json *j, const struct sl_client_status *s, const char *uuid);
void sl_status_json(const struct sl_status_view *view, FILE *out);
void sl_status_tenant_json(const struct sl_status_view *view, const struct sl_status_detail *d,
                           FILE *out);

#endif
