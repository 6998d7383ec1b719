/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether time slices have an effect on a GPU, as `sluice doctor` measured it. One file in the arbiter's directory has
 * the result for each card and driver: doctor writes it, doctor and the arbiter read it.
 */
#ifndef SLUICE_ARBITER_SLICES_MEMO_H
#define SLUICE_ARBITER_SLICES_MEMO_H

#include <stdbool.h>
#include <stdint.h>

enum sl_slices_verdict {
    SL_SLICES_WORK,
    SL_SLICES_NO_EFFECT, /* accepted, and both processes get the same */
    SL_SLICES_REFUSED,   /* `status` is the driver's answer */
    SL_SLICES_NO_GROUP,  /* no compute channels of its own: an MPS client, an unknown driver */
};

struct sl_slices_result {
    enum sl_slices_verdict verdict;
    uint32_t tenths; /* work of the 4 ms slice for each 10 of the 1 ms slice */
    bool off;        /* channels can be taken off the GPU, and then stand still */
    uint32_t status;
};

/* `dir` is the arbiter's directory; -1 has no results. A damaged file has no results. */
bool sl_slices_recall(int dir, const char *uuid, const char *driver, struct sl_slices_result *ret);
void sl_slices_remember(int dir, const char *uuid, const char *driver,
                        const struct sl_slices_result *result);

#endif
