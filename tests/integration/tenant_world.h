/* SPDX-License-Identifier: Apache-2.0 */
/* Programs as processes of a tenant: libsluice preloaded, the simulated driver found, driven by lines. */
#ifndef SLUICE_TESTS_TENANT_WORLD_H
#define SLUICE_TESTS_TENANT_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "arbiter_world.h"

struct tenant {
    const struct world *world;
    int control;
    char name[SL_NAME_MAX];
    char attach_path[256];
};

/* memory_bytes 0: no limit. */
void tenant_begin(const struct world *w, const char *name, uint64_t memory_bytes,
                  struct tenant *ret);
void tenant_set_limit(const struct tenant *t, uint64_t memory_bytes);
void tenant_end(struct tenant *t); /* the arbiter drops it when this process ends */

struct usage {
    uint64_t limit_bytes, used_bytes, overhead_bytes, oom_count;
    uint32_t processes;
};
struct usage tenant_usage(const struct tenant *t);

/* "LD_PRELOAD=…" with libsluice, after a sanitizer's run-time and `first` ("" or "file:"). */
void tenant_preload(const char *first, char *buf, size_t size);
/* The same with another build of libsluice: SLUICE_TEST_PRELOAD_FAULT names the one with fault points. */
void tenant_preload_library(const char *first, const char *library, char *buf, size_t size);

struct program {
    pid_t pid;
    FILE *in, *out; /* its stdin and stdout */
};

/* Starts $SLUICE_TEST_BIN/argv[0] with libsluice; `extra` is NULL or NAME=VALUE strings. */
void program_start(const struct tenant *t, const char *const *argv, const char *const *extra,
                   struct program *ret);
/* Sends a line (without newline) without waiting, and reads an answer. */
void program_say(struct program *p, const char *line);
void program_answer(struct program *p, char *buf, size_t size);
/* Both; returns what scanf of `format` found in it. */
void program_ask(struct program *p, const char *line, char *buf, size_t size);
/* Closes its stdin and waits; returns the wait status. */
int program_end(struct program *p);

#endif
