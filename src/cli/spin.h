/* SPDX-License-Identifier: Apache-2.0 */
/* What `sluice doctor` and the processes that it starts to keep a GPU busy (`sluice spin`) share. */
#ifndef SLUICE_CLI_SPIN_H
#define SLUICE_CLI_SPIN_H

#include <stdatomic.h>
#include <stdint.h>

enum sl_spin_state { SL_SPIN_STARTING, SL_SPIN_READY, SL_SPIN_FAILED };

/* One for each process, in a memory file that they inherit. */
struct sl_spin_page {
    _Atomic uint32_t state;    /* enum sl_spin_state */
    _Atomic uint32_t go, stop; /* by doctor */
    _Atomic uint64_t done;     /* turns of kernels' loops that are over */
    int32_t code;              /* CUresult of the call that failed … */
    char what[64];             /* … and its name */
};

#endif
