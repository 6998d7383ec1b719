/* SPDX-License-Identifier: Apache-2.0 */
/* Whether time slices have an effect on a GPU: measured with two processes. */
#ifndef SLUICE_CLI_SLICES_PROBE_H
#define SLUICE_CLI_SLICES_PROBE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "arbiter/slices_memo.h"
#include "cli/world.h"

/* Keeps the GPU busy with two processes for about half a second. */
int sl_slices_probe(const struct sl_world *world, const char *libsluice, const char *uuid,
                    struct sl_slices_result *ret, struct sl_err *err) SL_MUST_CHECK;

/* --- shared by `sluice doctor` and the processes that it starts to keep a GPU busy (`sluice spin`) --- */

enum sl_spin_state { SL_SPIN_STARTING, SL_SPIN_READY, SL_SPIN_FAILED };

/* One page for each process, in a memory file that the processes inherit. */
struct sl_spin_page {
    _Atomic uint32_t state;    /* enum sl_spin_state */
    _Atomic uint32_t go, stop; /* set by doctor */
    _Atomic uint64_t done;     /* turns of kernels' loops that are over */
    int32_t code;              /* CUresult of the call that failed … */
    char what[64];             /* … and its name */
};

#endif
