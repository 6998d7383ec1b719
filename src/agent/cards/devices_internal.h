/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of devices: what the threads and the loop hand each other. */
#ifndef SLUICE_AGENT_CARDS_DEVICES_INTERNAL_H
#define SLUICE_AGENT_CARDS_DEVICES_INTERNAL_H

#include <pthread.h>

#include "agent/cards/devices.h"

enum task_kind { TASK_OPEN, TASK_READ, TASK_JOB };

struct task {
    struct task *next;
    enum task_kind kind;
    bool reopen; /* TASK_READ: through a fresh NVML, which sees a card that was reset */
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
 * What outlives the owner when a thread hangs in the driver: `lock` guards everything but what is
 * set before the threads start. The last thread closes the cards, the last holder frees the core.
 */
struct core {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int doorbell_fd; /* eventfd: something for the loop */
    unsigned holders;
    unsigned threads, leaving, gone; /* started, told to end, ended with the cards closed */
    bool stop;

    struct sl_gpu *gpu;
    bool park;    /* the event thread must leave the driver: the cards are opened anew */
    bool waiting; /* the event thread is in the driver */
    struct task_list queue, finished;
    bool busy;
    uint64_t serial; /* of the task that runs, or ran last */
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

/* With one holder, the caller. Threads start with sl_core_start. */
int sl_core_create(const struct sl_devices_options *options, struct core **ret, struct sl_err *err);
int sl_core_start(struct core *core, bool events, struct sl_err *err);
/* Lets go; frees with the last holder. */
void sl_core_drop(struct core *core);
/* Tells the threads to go and waits for them; false when they have not gone by then. */
bool sl_core_stop(struct core *core, uint64_t wait_ns);

void sl_task_list_init(struct task_list *list);
void sl_task_push(struct task_list *list, struct task *task);
struct task *sl_task_pop(struct task_list *list); /* NULL: empty */
void sl_task_free(struct task *task);

/*
 * Keeps what was known: `fresh` gets the order of `before` (NULL: nothing yet), the names and MIG
 * devices of cards that no longer answer, and the cards that are no longer listed, as lost. uuids:
 * what NVML's numbers mean, one for each card of `fresh`, "" where nobody knows. A lost card
 * nobody ever knew is left out; returns how many.
 */
size_t sl_devices_merge(const struct sl_inventory *before, char (*uuids)[SL_GPU_UUID_SIZE],
                        struct sl_inventory *fresh);

#endif
