/* SPDX-License-Identifier: Apache-2.0 */
/* Inside measuring. measure.c: the GPUs, the questions to the driver, the answers to processes; measure_overhead.c: the
 * overhead in the driver's figures; measure_audit.c: processes that use a GPU outside every ledger. */
#ifndef SLUICE_ARBITER_MEASURE_INTERNAL_H
#define SLUICE_ARBITER_MEASURE_INTERNAL_H

#include "arbiter/arbiter_internal.h"
#include "gpu/gpu.h"

/* A ledger that never stands still is measured all the same after this many attempts. */
#define UNSTEADY_MAX 8

/* --- the NVML worker: a thread, because NVML may block for milliseconds and turns may not ---------- */

/* How much of one card each process used at one moment. */
struct snapshot {
    struct snapshot *next;
    uint32_t card;
    uint64_t took_ns;  /* time that the driver needed for the answer */
    uint64_t asked_ns; /* this snapshot answers all questions up to then */
    uint64_t used_bytes;
    int rc; /* 0, or why it is empty */
    struct sl_gpu_process *process;
    size_t count;
};

struct nvml_worker;

/* doorbell_fd (an eventfd) is rung whenever a snapshot can be taken. gpu stays the caller's. */
struct nvml_worker *sl_nvml_worker_start(struct sl_gpu *gpu, int doorbell_fd);
void sl_nvml_worker_stop(struct nvml_worker *w); /* waits for its end; NULL is fine */

/* Asks for a snapshot of a card. Questions asked while one is being made share the next. */
void sl_nvml_worker_ask(struct nvml_worker *w, uint32_t card, uint64_t now_ns);

struct snapshot *sl_nvml_worker_take(struct nvml_worker *w); /* NULL: none ready */
void sl_snapshot_free(struct snapshot *s);

/* --- the loop's side -------------------------------------------------------------------------- */

struct measure {
    struct sl_gpu *gpu;
    struct nvml_worker *worker;
    struct source results;
    uint32_t cards;
    uint64_t next_audit_ns;
    uint64_t audit_gap_ns;
    uint64_t seen_changes; /* arbiter.changes at the last audit */
    uint64_t seen_ends;    /* … and arbiter.ends */
    uint32_t unsettled;    /* bit per card: a process ended, and the card may not show it yet */
    uint32_t looks_left;   /* snapshots left for that */
    uint64_t ended_ns;     /* when the last process ended */
    uint64_t nobodys_bytes[SL_MAX_GPUS]; /* by card: memory in use by no process, the least seen */
    uint64_t asked_ns[SL_MAX_GPUS], answered_ns[SL_MAX_GPUS]; /* by card */
    uint64_t paid_ns[SL_MAX_GPUS]; /* until then the questions of processes are paid for */
    uint64_t due_ns[SL_MAX_GPUS];  /* 0, or when to ask for waiting processes */
};

/* measure_overhead.c; i: the GPU's place in the lease */
bool sl_measure_on_gpu(const struct gpu *g, const struct snapshot *s,
                       const struct sl_gpu_process *p);
void sl_measure_read_ledger(struct member *m, uint32_t i); /* before the driver is asked */
bool sl_measure_waits_for_later(const struct member *m, const struct snapshot *s, uint32_t i);
void sl_measure_member(struct arbiter *a, const struct snapshot *s, struct member *m, uint32_t i);
void sl_measure_balance(struct arbiter *a, const struct snapshot *s, struct tenant *t, uint32_t i);
uint64_t sl_measure_unaccounted(const struct member *m, uint32_t i);
bool sl_measure_booked(const struct member *m); /* its ledger is not empty */

/* measure_audit.c */
void sl_measure_audit(struct arbiter *a, const struct snapshot *s);
void sl_measure_not_outside(struct arbiter *a,
                            const struct member *m); /* it attached: remove its finding */

#endif
