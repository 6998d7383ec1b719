/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice run --wait`: stands in the arbiter's line, over its restarts, and says so. */
#ifndef SLUICE_CLI_RUN_WAIT_H
#define SLUICE_CLI_RUN_WAIT_H

#include "cli/world.h"

/* --wait as it was given; NULL: it was not. Checked here, used by sl_run_wait. */
int sl_run_wait_check(const char *wait, struct sl_err *err) SL_MUST_CHECK;

/* The control connection of the new tenant. Ctrl-C ends the process, and with it its place. -ETIME: the time is over,
 * and *err says so in a whole sentence. */
int sl_run_wait(const struct sl_world *world, const struct sl_msg_lease *lease, const char *wait,
                struct sl_msg_created *ret, struct sl_err *err) SL_MUST_CHECK; /* fd */

#endif
