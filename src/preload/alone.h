/* SPDX-License-Identifier: Apache-2.0 */
/* A process that starts while its arbiter is away, where that is safe: sluice/attach.h has the rule (SL_LEASE_FILE). */
#ifndef SLUICE_PRELOAD_ALONE_H
#define SLUICE_PRELOAD_ALONE_H

#include "preload/attach.h"
#include "preload/handshake.h"

/* Before the HELLO: keeps others from starting alone, until this process ends. */
void sl_alone_stay(const char *path);
/* There was no arbiter to say HELLO to: this process has nothing that others must know of. */
void sl_alone_leave(void);
/* Says in the process's slot whether it stays. */
void sl_alone_told(struct sl_process *p);
/* Now and then, by the watch thread: a program may close every descriptor, and so give up the lock. */
void sl_alone_keep(struct sl_process *p, const char *path);

/* A link without a connection, with pages of its own. -EBUSY: the tenant may have other processes; any other error: a
 * start is not safe. */
int sl_alone_start(const char *path, struct sl_link *ret) SL_MUST_CHECK;
/* Charges the contexts that nobody can measure now. */
void sl_alone_put_by(struct sl_process *p);
/* An arbiter is there, and measures them. */
void sl_alone_over(struct sl_process *p);

/* In a forked child: the locks are the parent's. */
void sl_alone_forget(void);

#endif
