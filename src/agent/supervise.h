/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A parent process that only starts the agent again when a signal ended it. Otherwise the death of
 * the agent would end its container, and with it the MPS daemons and the arbiter that pods use; and
 * kubelet waits before it starts another container.
 */
#ifndef SLUICE_AGENT_SUPERVISE_H
#define SLUICE_AGENT_SUPERVISE_H

/*
 * Returns in the child, which is to be the agent: -1. In the parent it returns when the agent has ended by itself or
 * as it was told: the status to exit with. SIGTERM, SIGINT and SIGHUP are passed on.
 */
int sl_supervise(void);

#endif
