/* SPDX-License-Identifier: Apache-2.0 */
/* How the NVML half uses the words the shared state keeps for it. */
#ifndef SLUICE_SIM_NVML_SHARED_H
#define SLUICE_SIM_NVML_SHARED_H

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sim/state.h"

enum {
    SL_SIM_NVML_WAKE = 0,        /* card 0: counts events, and waiters sleep on it */
    SL_SIM_NVML_PERSISTENCE = 1, /* persistence mode */
    SL_SIM_NVML_ECC = 2,         /* corrected errors; uncorrected ones in the next word */
    SL_SIM_NVML_TIMESLICE = 4,   /* as nvidia-smi compute-policy sets it: 0 to 3 */
};

/* One word for all cards, because a thread can sleep on one only. */
static inline uint32_t *sl_sim_nvml_wake_word(struct sl_sim_state *st)
{
    return (uint32_t *)(void *)&st->cards[0].nvml_private[SL_SIM_NVML_WAKE];
}

/* After sl_sim_event_add(): wakes event waiters in every process. */
static inline void sl_sim_nvml_wake(struct sl_sim_state *st)
{
    (void)__atomic_add_fetch(sl_sim_nvml_wake_word(st), 1, __ATOMIC_RELEASE);
    (void)syscall(SYS_futex, sl_sim_nvml_wake_word(st), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#endif
