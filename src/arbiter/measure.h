/* SPDX-License-Identifier: Apache-2.0 */
/* The NVML worker: a thread, because NVML may block for milliseconds and turns may not. */
#ifndef SLUICE_ARBITER_MEASURE_H
#define SLUICE_ARBITER_MEASURE_H

#include <stddef.h>
#include <stdint.h>

#include "gpu/gpu.h"

/* Who used how much of one card at one moment. */
struct snapshot {
    struct snapshot *next;
    uint32_t card;
    uint64_t took_ns;  /* the driver, to answer */
    uint64_t asked_ns; /* every question asked up to then is answered by this */
    uint64_t used_bytes;
    int rc; /* 0, or why there is nothing in it */
    struct sl_gpu_process *process;
    size_t count;
};

struct nvml_worker;

/* doorbell_fd (an eventfd) is rung whenever a snapshot can be taken. gpu stays the caller's. */
struct nvml_worker *sl_nvml_worker_start(struct sl_gpu *gpu, int doorbell_fd);
void sl_nvml_worker_stop(struct nvml_worker *w); /* waits for it; NULL is fine */

/* Asks for a snapshot of a card. Questions asked while one is being made share the next. */
void sl_nvml_worker_ask(struct nvml_worker *w, uint32_t card, uint64_t now_ns);

struct snapshot *sl_nvml_worker_take(struct nvml_worker *w); /* NULL: none ready */
void sl_snapshot_free(struct snapshot *s);

#endif
