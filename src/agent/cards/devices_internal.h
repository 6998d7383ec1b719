/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of devices: the data that the threads and the loop exchange. */
#ifndef SLUICE_AGENT_CARDS_DEVICES_INTERNAL_H
#define SLUICE_AGENT_CARDS_DEVICES_INTERNAL_H

#include <pthread.h>

#include "agent/cards/devices.h"

enum task_kind { TASK_OPEN, TASK_READ, TASK_JOB };

struct task {
    struct task *next;
    enum task_kind kind;
    bool reopen; /* TASK_READ: opens NVML again, to see a card that was reset */
    uint64_t asked_ns;
    sl_devices_job_fn *fn;
    sl_devices_done_fn *done;
    void *arg;
    /* the answer */
    int result;
    bool no_gpu; /* NVML is not open after this task */
    struct sl_err err;
    struct sl_inventory *inv;
};

struct task_list {
    struct task *first, **tail;
};

enum { EVENTS_KEPT = 256 };

/*
 * The part that outlives its owner when a thread hangs in the driver. `lock` guards all fields except those set before
 * the threads start. The last thread closes the cards, the last holder frees the core.
 */
struct core {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int doorbell_fd; /* eventfd: there is news for the loop */
    unsigned holders;
    unsigned threads, leaving, gone; /* started, told to end, ended with the cards closed */
    bool stop;

    struct sl_gpu *gpu;
    bool park;    /* the event thread must leave the driver: the cards will be reopened */
    bool waiting; /* the event thread is in the driver */
    struct task_list queue, finished;
    bool busy;
    uint64_t serial; /* of the current task, or of the last one */
    const char *what;

    struct sl_gpu_event events[EVENTS_KEPT];
    size_t event_count;
    struct sl_err event_err; /* why there are no XIDs; code 0: there are */
    bool event_err_new;

    /* set once */
    char *driver_root;
    int event_wait_ms;
    int (*open)(void *open_data, struct sl_gpu **ret, struct sl_err *err);
    void *open_data;
};

/* The caller is the only holder. Threads start with sl_core_start. */
int sl_core_create(const struct sl_devices_options *options, struct core **ret, struct sl_err *err);
int sl_core_start(struct core *core, bool events, struct sl_err *err);
/* Gives up the hold; the last holder frees the core. */
void sl_core_drop(struct core *core);
/* Tells the threads to end and waits for them; false: they have not ended in time. */
bool sl_core_stop(struct core *core, uint64_t wait_ns);

void sl_task_list_init(struct task_list *list);
void sl_task_push(struct task_list *list, struct task *task);
struct task *sl_task_pop(struct task_list *list); /* NULL: empty */
void sl_task_free(struct task *task);

/*
 * Keeps earlier knowledge: `fresh` gets the order of `before` (NULL: none yet), the names and MIG devices of cards that
 * no longer answer, and, marked lost, the cards that are no longer listed. uuids: the UUID for each NVML number, one
 * for each card of `fresh`, "" where unknown. A lost card that was never known is left out; returns the number of such
 * cards.
 */
size_t sl_devices_merge(const struct sl_inventory *before, char (*uuids)[SL_GPU_UUID_SIZE],
                        struct sl_inventory *fresh);

#endif
