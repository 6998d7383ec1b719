/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice set`, `sluice pause` and `sluice resume`: one change of one tenant. */
#ifndef SLUICE_CLI_CHANGE_H
#define SLUICE_CLI_CHANGE_H

#include "cli/world.h"

/* What to say about the change; a negative errno: it did not take place, and *err says why. */
typedef int (*sl_change_report)(const struct sl_msg_tenant *old, const struct sl_msg_tenant *now,
                                uint32_t fields, struct sl_err *err);

/* Is exactly one tenant named? If not, complains and shows `usage`, which is how to write the command. */
bool sl_change_named(const struct sl_cli_args *args, const char *usage);
/* Changes the named tenant as `lease` says; returns the exit code. */
int sl_change(const struct sl_cli_args *args, struct sl_msg_lease *lease, sl_change_report report);

#endif
