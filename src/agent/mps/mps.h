/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MPS: one nvidia-cuda-mps-control per card, each with its own directories and only its card visible, so that a tenant
 * of one card cannot see another card. The agent starts, limits, watches, heals and ends these daemons; nothing here
 * blocks the loop. docs/agent.md, "MPS", has the directories and the rules.
 */
#ifndef SLUICE_AGENT_MPS_MPS_H
#define SLUICE_AGENT_MPS_MPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "container/edits.h"
#include "base/err.h"
#include "base/loop.h"

struct sl_mps;

enum sl_mps_state {
    SL_MPS_STARTING, /* not ready for tenants yet */
    SL_MPS_READY,
    SL_MPS_FAULTED, /* a client caused a fault: no new clients until it has healed */
    SL_MPS_FAILED,  /* it died or does not start; the agent tries again by itself */
};

/* Zero means the default in every field but root and state. */
struct sl_mps_options {
    const char *root;        /* "/run/nvidia/mps": <root>/<uuid>/{pipe,log,shm} */
    const char *control;     /* nvidia-cuda-mps-control; NULL: found under driver_root */
    const char *driver_root; /* NULL, "" or "/": the machine's own */
    /* Keeps the /dev/shm of daemons and tenants instead of <root>/<uuid>/shm: for tests without CAP_SYS_ADMIN. */
    bool no_own_shm;
    uint64_t command_ns; /* how long a control command may take: 5 s */
    uint64_t start_ns;   /* how long a daemon may take until it answers: 15 s */
    uint64_t watch_ns;   /* how often a daemon is asked whether it still answers: 60 s */
    uint64_t backoff_ns; /* before the first restart, doubling up to 60 s: 1 s */
    uint64_t heal_ns;    /* how long a server may stay faulted before it is restarted: 20 s */
    uint64_t quit_ns;    /* how long a daemon may take to end before it is killed: 5 s */
    /* Called for every change of state. reason: one sentence. restarted: ready again after a failure or fault. Shares
     * of a card are healthy in SL_MPS_READY only. */
    void (*state)(void *data, const char *uuid, enum sl_mps_state state, bool restarted,
                  const char *reason);
    void *data;
};

struct sl_mps_gpu {
    const char *uuid;
    unsigned index;        /* the card's number, for messages */
    uint64_t memory_bytes; /* of the whole card */
    unsigned replicas;     /* at least 1: a client gets at most this part of memory and threads */
};

int sl_mps_create(struct sl_loop *loop, const struct sl_mps_options *options, struct sl_mps **ret,
                  struct sl_err *err) SL_MUST_CHECK;
/* The daemons go on serving clients, and the next agent adopts them. NULL is fine. */
void sl_mps_destroy(struct sl_mps *mps);

/*
 * Sets the cards that are shared by MPS from now on. Daemons of other cards are ended, changed limits are set in place
 * (they hold for new clients), a daemon of an earlier agent is adopted. Errors are about the list (no UUID, a limit of
 * 0 MiB); all later problems come as a state.
 */
int sl_mps_apply(struct sl_mps *mps, const struct sl_mps_gpu *gpus, size_t count,
                 struct sl_err *err) SL_MUST_CHECK;

/* True: the daemon of the card is ready, or the card is not shared by MPS. */
bool sl_mps_ready(const struct sl_mps *mps, const char *uuid);
/* Why MPS works on no card. NULL: no card is shared by MPS, or MPS works on some card, or may still start. */
const char *sl_mps_trouble(const struct sl_mps *mps);

/* The edits for a tenant of the card: CUDA_MPS_PIPE_DIRECTORY, the pipe directory, /dev/shm. -EAGAIN with the reason
 * while the daemon is not ready, -ENOENT for a card that is not shared by MPS. */
int sl_mps_edits(const struct sl_mps *mps, const char *uuid, struct sl_edits *edits,
                 struct sl_err *err) SL_MUST_CHECK;

#endif
