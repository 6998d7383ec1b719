/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What measured launches say about the length of kernels: how much of a measurement is overhead, which measurements
 * were disturbed by another process, and what is learned from the rest. One thread uses it.
 */
#ifndef SLUICE_POLICY_SAMPLING_H
#define SLUICE_POLICY_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

struct sl_cost;

/* For a kernel of a few microseconds the overhead of a sample is as large as the kernel. So a small memset of our own is
 * sampled alone and so many in a row, several times: the others in the row show the time of one memset. */
#define SL_SAMPLING_MANY         17U
#define SL_SAMPLING_CALIBRATIONS 16U

#define SL_SAMPLING_KEYS 64U

/* All zero at the start. */
struct sl_sampling {
    uint64_t one_ns, many_ns;      /* means of one memset, and of many … */
    uint32_t one_seen, many_seen;  /* … of so many samples */
    uint64_t added_ns;             /* the overhead of a sample; 0: not known yet */
    uint64_t mean_ns;              /* of sampled launches */
    uint8_t odd[SL_SAMPLING_KEYS]; /* by key: are many samples much longer than usual? */
};

/* A sample of one memset of our own, or of SL_SAMPLING_MANY. */
void sl_sampling_own(struct sl_sampling *sampling, uint32_t count, uint64_t ns);

/* A sample of a launch. `held`: its stream was held until all of the sample was submitted. Otherwise the time that the
 * program takes to submit it, and the slice that it loses meanwhile, are part of the sample. */
void sl_sampling_learn(struct sl_sampling *sampling, struct sl_cost *cost, uint64_t key,
                       uint64_t ns, bool held);

#endif
