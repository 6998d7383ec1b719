/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of other processes, opened or imported by its handle: see ipc.c. */
#ifndef SLUICE_PRELOAD_IPC_H
#define SLUICE_PRELOAD_IPC_H

#include "preload/attach.h"
#include "preload/track.h"

/* Taken out of the table: it was closed, or freed, once. The last time it costs nothing any more. */
void sl_ipc_let_go(struct sl_process *p, struct sl_track *t);

#endif
