/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice arbiter --system`: one arbiter for several users. */
#ifndef SLUICE_CLI_ARBITER_SYSTEM_H
#define SLUICE_CLI_ARBITER_SYSTEM_H

#include "arbiter/arbiter.h"
#include "cli/world.h"

/* Fills in what makes an arbiter the system's: rules, and the socket of a service manager where there is one. The
 * directory exists. */
int sl_system_prepare(const struct sl_world *world, const char *config,
                      struct sl_arbiter_options *options, struct sl_err *err) SL_MUST_CHECK;

/* May an arbiter of one user be started here? */
int sl_system_absent(const struct sl_world *world, struct sl_err *err) SL_MUST_CHECK;

/* `sluice arbiter check [FILE]`. Returns the exit code. */
int sl_system_check(const char *file);

#endif
