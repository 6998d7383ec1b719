/* SPDX-License-Identifier: Apache-2.0 */
/* Finds things in a status, and writes its values in the words that `sluice status` and `sluice top` show. */
#ifndef SLUICE_CLI_STATUS_WORDS_H
#define SLUICE_CLI_STATUS_WORDS_H

#include "arbiter/client.h"

const struct sl_msg_tenant *sl_status_tenant(const struct sl_client_status *s, const char *name);
const struct sl_msg_gpu *sl_status_gpu(const struct sl_client_status *s, const char *uuid);

/* The name that somebody meant who wrote this one, or NULL. */
const char *sl_status_closest(const struct sl_client_status *s, const char *written);

/* The functions below return buf. */

/* The index people know a GPU by, else its UUID. */
const char *sl_status_gpu_label(const struct sl_client_status *s, const char *uuid, char *buf,
                                size_t size);
/* What it got in the last second: "29.5%", or "paused". */
const char *sl_status_got(const struct sl_msg_tenant *m, char *buf, size_t size);
/* "29.5%" */
const char *sl_status_percent(uint32_t permille, char *buf, size_t size);
/* What was asked for: "30", "30:100", "-" for nothing. */
const char *sl_status_cores(const struct sl_msg_tenant *m, char *buf, size_t size);
/* "10.0 GiB", "-" for no limit. */
const char *sl_status_limit(uint64_t bytes, char *buf, size_t size);
/* "2.0 ms", or "turns" where one tenant runs at a time. */
const char *sl_status_slice(const struct sl_msg_tenant *m, char *buf, size_t size);
/* "namespace/pod", and the container or what else tells one of its tenants from another; "" for no pod. */
const char *sl_status_pod(const char *about, char *buf, size_t size);

/* What a command in line asked for: "60.0 GiB", "30%"; "-" for nothing, "?" where it has not come back to say it. */
const char *sl_status_asked_memory(const struct sl_msg_waiter *w, char *buf, size_t size);
/* "30", "30:100", "-", "?" */
const char *sl_status_asked_cores(const struct sl_msg_waiter *w, char *buf, size_t size);

/* "slices" or "turns". */
const char *sl_status_compute(uint32_t compute);

/* The name of the user who made the tenant, or the uid; "" where the arbiter does not tell. Returns buf. */
char *sl_status_user(const struct sl_msg_tenant *m, char *buf, size_t size);

#endif
