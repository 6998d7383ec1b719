/* SPDX-License-Identifier: Apache-2.0 */
/* Asks an arbiter for the processes of a tenant, and finds out whether it can tell them. */
#ifndef SLUICE_CLI_TENANT_PROCESSES_H
#define SLUICE_CLI_TENANT_PROCESSES_H

#include "arbiter/client.h"

/* Over the connection *fd to the arbiter of this place; free *ret. An arbiter of an older version closes the connection
 * at this question: *fd is then a new connection (or -1), and the answer -EOPNOTSUPP with a sentence for people.
 * Otherwise as sl_client_processes. */
int sl_tenant_processes(const struct sl_arbiter_dir *place, int *fd, const char *name,
                        struct sl_msg_process **ret, size_t *ret_count,
                        struct sl_err *err) SL_MUST_CHECK;

#endif
