/* SPDX-License-Identifier: Apache-2.0 */
/* What a forked child forgets: the parent's allocations are the parent's. */
#ifndef SLUICE_PRELOAD_CHILD_H
#define SLUICE_PRELOAD_CHILD_H

/* Calls every module's forget function; runs in the child, between fork and its return. */
void sl_child_forget(void);

#endif
