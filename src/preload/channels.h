/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This process's own channel groups. The driver makes them through ioctl calls; libsluice defines ioctl and sees their
 * handles. Later it sets their time slices or takes their channels off the GPU with the driver's own controls, which
 * need no privilege for a process's own objects.
 */
#ifndef SLUICE_PRELOAD_CHANNELS_H
#define SLUICE_PRELOAD_CHANNELS_H

#include <stdbool.h>
#include <stdint.h>

/* The number of compute groups. */
uint32_t sl_channels_groups(void);

/* Sets the slice of every compute group, and of new groups. 0: the driver's own value again. Returns the driver's
 * status: 0, or why it refused. */
uint32_t sl_channels_slice(uint32_t slice_us);

/* Takes every compute channel off the GPU, in the middle of a kernel, or puts it back. Takes about half
 * a millisecond. Returns the driver's status. */
uint32_t sl_channels_set_off(bool off);

/* In a forked child: the parent's groups belong to the parent. */
void sl_channels_forget(void);

#endif
