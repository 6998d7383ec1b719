/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether time slices have an effect on a GPU, as `sluice doctor` measured it. One file in the arbiter's
 * directory holds it for each card and driver: doctor writes it, doctor and the arbiter read it.
 */
#ifndef SLUICE_ARBITER_SLICES_MEMO_H
#define SLUICE_ARBITER_SLICES_MEMO_H

#include <stdbool.h>
#include <stdint.h>

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

/* `dir` is the arbiter's directory; -1 holds nothing. A file that is not as it was written holds nothing. */
bool sl_slices_recall(int dir, const char *uuid, const char *driver, struct sl_slices_result *ret);
void sl_slices_remember(int dir, const char *uuid, const char *driver,
                        const struct sl_slices_result *result);

#endif
