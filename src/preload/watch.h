/* SPDX-License-Identifier: Apache-2.0 */
/* The watch thread's side of attach.c: one thread that keeps the connection to the arbiter. */
#ifndef SLUICE_PRELOAD_WATCH_H
#define SLUICE_PRELOAD_WATCH_H

#include "preload/attach.h"
#include "preload/handshake.h"
#include "preload/lock.h"

/* Held while descriptors and pages are made or replaced, and during fork. No wait under it is longer than a handshake's
 * time limit. */
extern struct sl_lock sl_attach_lock;

/* Takes over the link's descriptors and starts the thread; with sl_attach_lock held. A process that starts alone has no
 * connection yet. A process that may not have another thread goes on without: it does not return to a restarted
 * arbiter. */
void sl_watch_start(struct sl_process *p, const char *path, struct sl_link *link);

/* In a forked child: the descriptors and the thread belong to the parent. */
void sl_watch_forget(struct sl_process *p);

#endif
