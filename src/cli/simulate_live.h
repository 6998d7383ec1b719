/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice simulate --live`: which moves of pods would free whole cards of the cluster that kubectl reaches. */
#ifndef SLUICE_CLI_SIMULATE_LIVE_H
#define SLUICE_CLI_SIMULATE_LIVE_H

#include "cli/cli.h"

/* Returns the exit code. */
int sl_sim_live(const struct sl_cli_args *args);

#endif
