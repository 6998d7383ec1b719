/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: see context.c. Only the forked child needs to know. */
#ifndef SLUICE_PRELOAD_CONTEXT_H
#define SLUICE_PRELOAD_CONTEXT_H

void sl_context_forget(void);

#endif
