/* SPDX-License-Identifier: Apache-2.0 */
/* Whether time slices have an effect on a GPU: measured with two processes, and remembered. */
#ifndef SLUICE_CLI_SLICES_PROBE_H
#define SLUICE_CLI_SLICES_PROBE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/world.h"

enum sl_slices_verdict {
    SL_SLICES_WORK,
    SL_SLICES_NO_EFFECT, /* accepted, and both processes get the same */
    SL_SLICES_REFUSED,   /* `status` is the driver's */
    SL_SLICES_NO_GROUP,  /* no compute channels of one's own: an MPS client, an unknown driver */
};

struct sl_slices_result {
    enum sl_slices_verdict verdict;
    uint32_t tenths; /* what the slice of 4 ms got for each 10 of the slice of 1 ms */
    bool off;        /* channels can be taken off the GPU, and stand still */
    uint32_t status;
};

/* Keeps the GPU busy with two processes for about half a second. */
int sl_slices_probe(const struct sl_world *world, const char *libsluice, const char *uuid,
                    struct sl_slices_result *ret, struct sl_err *err) SL_MUST_CHECK;

/* What was measured before for this card with this driver, in the arbiter's directory. A file that is not
 * as it was written is as none. */
bool sl_slices_recall(const struct sl_arbiter_dir *place, const char *uuid, const char *driver,
                      struct sl_slices_result *ret);
/* Where the directory is there: doctor makes none. */
void sl_slices_remember(const struct sl_arbiter_dir *place, const char *uuid, const char *driver,
                        const struct sl_slices_result *result);

/* --- what `sluice doctor` and the processes that it starts to keep a GPU busy (`sluice spin`) share --- */

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
