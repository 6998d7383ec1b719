/* SPDX-License-Identifier: Apache-2.0 */
/* The node agent: its parts, put together. One thread, one loop; see docs/agent.md for the map. */
#ifndef SLUICE_AGENT_AGENT_H
#define SLUICE_AGENT_AGENT_H

#include "agent/options.h"
#include "base/err.h"

/* Serves until SIGTERM or SIGINT. A bad configuration at the start is an error; later it is refused and
 * the old one stays. */
int sl_agent_run(const struct sl_agent_options *opt, char *const *environ_list,
                 struct sl_err *err) SL_MUST_CHECK;

#endif
