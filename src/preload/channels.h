/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This process's own channel groups. The driver makes them through ioctl calls; libsluice defines
 * ioctl, sees their handles go by, and later sets their time slices or takes their channels off the
 * GPU with the driver's own controls, which need no privilege on one's own objects.
 */
#ifndef SLUICE_PRELOAD_CHANNELS_H
#define SLUICE_PRELOAD_CHANNELS_H

#include <stdbool.h>
#include <stdint.h>

/* Compute groups there are. */
uint32_t sl_channels_groups(void);

/* Sets the slice of every compute group, and of those to come. 0: the driver's own value again.
 * Returns the driver's status: 0, or why it refused. */
uint32_t sl_channels_slice(uint32_t slice_us);

/* Takes every compute channel off the GPU, in the middle of a kernel, or puts it back. Takes about half
 * a millisecond. Returns the driver's status. */
uint32_t sl_channels_set_off(bool off);

/* In a forked child: the parent's groups are not ours. */
void sl_channels_forget(void);

#endif
