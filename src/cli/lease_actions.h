/* SPDX-License-Identifier: Apache-2.0 */
/* What `sluice lease` does, one function an action. Not in a core build. */
#ifndef SLUICE_CLI_LEASE_ACTIONS_H
#define SLUICE_CLI_LEASE_ACTIONS_H

#include "cli/cli.h"

int sl_cmd_lease_create(const struct sl_cli_args *args, struct sl_err *err) SL_MUST_CHECK;
int sl_cmd_lease_list(const struct sl_cli_args *args, struct sl_err *err) SL_MUST_CHECK;
int sl_cmd_lease_delete(const struct sl_cli_args *args, struct sl_err *err) SL_MUST_CHECK;

#endif
