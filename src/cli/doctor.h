/* SPDX-License-Identifier: Apache-2.0 */
/* What `sluice doctor` found out. Checks add lines; only cmd_doctor.c prints them. */
#ifndef SLUICE_CLI_DOCTOR_H
#define SLUICE_CLI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/world.h"

enum sl_doctor_result { SL_DOCTOR_OK, SL_DOCTOR_WARNING, SL_DOCTOR_PROBLEM };

struct sl_doctor_line {
    const char *name;
    enum sl_doctor_result result;
    char text[400]; /* what is */
    char cure[240]; /* what to do; empty for ok */
};

struct sl_doctor {
    const struct sl_world *world;
    const char *libsluice; /* --libsluice, or NULL */
    struct sl_doctor_line line[64];
    size_t count;
};

/* Adds a line. `cure` may be NULL for ok. */
void sl_doctor_add(struct sl_doctor *d, const char *name, enum sl_doctor_result result,
                   const char *cure, const char *fmt, ...) SL_PRINTF(5, 6);

/* doctor_system.c: kernel, libc, limits, directory, libsluice, other interposers, container. */
void sl_doctor_system(struct sl_doctor *d);

/* doctor_gpu.c: driver, device files, libcuda, NVML, cards, MPS. */
void sl_doctor_gpu(struct sl_doctor *d);

/* doctor_slices.c: whether time slices have an effect on GPU number i, measured once per card and driver. */
void sl_doctor_slices(struct sl_doctor *d, size_t i, const char *uuid, const char *driver);

/* doctor_load.c: loads a library in a process of its own (a broken one may crash or hang) and, with
 * `probe_cuda`, starts CUDA in it. */
struct sl_load_result {
    bool loaded;
    bool crashed; /* or did not come back */
    int cu_init;  /* CUresult; -1: the library has no cuInit */
    int cuda_version;
    char message[200]; /* the loader's, when not loaded */
};

void sl_doctor_load(const char *library, bool probe_cuda, struct sl_load_result *ret);

/* A directory of one's own in /tmp; dir is "" where there is none. */
#define SL_DOCTOR_TMP 64
int sl_doctor_tmp(char dir[SL_DOCTOR_TMP], struct sl_err *err) SL_MUST_CHECK;

/* The simulated driver keeps its cards in a file. A scratch one, so that looking changes nothing:
 * sets the environment of this process; removed by the matching call. */
int sl_doctor_scratch_begin(const char *sim, struct sl_err *err) SL_MUST_CHECK;
void sl_doctor_scratch_end(void);

#endif
