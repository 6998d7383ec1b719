/* SPDX-License-Identifier: Apache-2.0 */
/* The results of `sluice doctor`. Checks add lines; only cmd_doctor.c prints them. */
#ifndef SLUICE_CLI_DOCTOR_H
#define SLUICE_CLI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/world.h"

enum sl_doctor_result {
    SL_DOCTOR_OK,
    SL_DOCTOR_WARNING,
    SL_DOCTOR_PROBLEM,
    SL_DOCTOR_SKIPPED, /* not checked, or not a problem of its own: an earlier problem is the cause */
};

struct sl_doctor_line {
    const char *name;
    enum sl_doctor_result result;
    char text[400]; /* what the check found */
    char cure[240]; /* what the user should do; empty for ok and skipped */
};

struct sl_doctor {
    const struct sl_world *world;
    const char *libsluice; /* --libsluice, or NULL */
    const char *root; /* the check whose problem explains every problem found now; NULL: none */
    struct sl_doctor_line line[64];
    size_t count;
};

/* Adds a line. `cure` may be NULL for ok. A problem that d->root explains is added as skipped, without a cure: one cause
 * is one problem. */
void sl_doctor_add(struct sl_doctor *d, const char *name, enum sl_doctor_result result,
                   const char *cure, const char *fmt, ...) SL_PRINTF(5, 6);

size_t sl_doctor_problems(const struct sl_doctor *d);

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
    bool crashed; /* crashed, or did not return in time */
    int cu_init;  /* CUresult; -1: the library has no cuInit */
    int cuda_version;
    char message[200]; /* the loader's error message, when the library was not loaded */
};

void sl_doctor_load(const char *library, bool probe_cuda, struct sl_load_result *ret);

/* A private directory in /tmp; dir is "" where none could be made. */
#define SL_DOCTOR_TMP 64
int sl_doctor_tmp(char dir[SL_DOCTOR_TMP], struct sl_err *err) SL_MUST_CHECK;

/* The simulated driver keeps its cards in a file. The doctor uses a scratch file, so that a check changes no card.
 * begin sets the environment of this process; end removes the file. */
int sl_doctor_scratch_begin(const char *sim, struct sl_err *err) SL_MUST_CHECK;
void sl_doctor_scratch_end(void);

#endif
