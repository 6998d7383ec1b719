/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management: see vmm.c. Only the forked child needs to know. */
#ifndef SLUICE_PRELOAD_VMM_H
#define SLUICE_PRELOAD_VMM_H

void sl_vmm_forget(void);

#endif
