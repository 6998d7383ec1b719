/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of our own in the program's process. */
#ifndef SLUICE_PRELOAD_THREAD_H
#define SLUICE_PRELOAD_THREAD_H

#include <stdbool.h>

/* Starts a thread that never ends: run(arg) first calls sl_thread_name(). Signals stay with the program's threads.
 * False: the process may not have another thread. */
bool sl_thread_start(void *(*run)(void *), void *arg);

/* In the new thread: its name, and waits that end on time, not up to 50 us later. */
void sl_thread_name(const char *name);

#endif
