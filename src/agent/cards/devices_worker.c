/* SPDX-License-Identifier: Apache-2.0 */
/* The two threads that call NVML: one runs tasks, one waits for XIDs. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "agent/cards/devices_internal.h"
#include "agent/cards/errors.h"
#include "base/cleanup.h"
#include "base/cond.h"
#include "base/xalloc.h"

#define EVENT_RETRY_MAX_NS (30 * SL_NS_PER_S)

void sl_task_list_init(struct task_list *list)
{
    list->first = NULL;
    list->tail = &list->first;
}

void sl_task_push(struct task_list *list, struct task *task)
{
    task->next = NULL;
    *list->tail = task;
    list->tail = &task->next;
}

struct task *sl_task_pop(struct task_list *list)
{
    struct task *task = list->first;
    if (!task)
        return NULL;
    list->first = task->next;
    if (!list->first)
        list->tail = &list->first;
    return task;
}

void sl_task_free(struct task *task)
{
    sl_inventory_free(task->inv);
    free(task);
}

static void core_free(struct core *core)
{
    struct task *task;
    while ((task = sl_task_pop(&core->queue)) != NULL)
        sl_task_free(task);
    while ((task = sl_task_pop(&core->finished)) != NULL)
        sl_task_free(task);
    if (core->doorbell_fd >= 0)
        (void)close(core->doorbell_fd);
    (void)pthread_mutex_destroy(&core->lock);
    (void)pthread_cond_destroy(&core->changed);
    free(core->driver_root);
    free(core);
}

void sl_core_drop(struct core *core)
{
    (void)pthread_mutex_lock(&core->lock);
    bool last = --core->holders == 0;
    (void)pthread_mutex_unlock(&core->lock);
    if (last)
        core_free(core);
}

static void ring(struct core *core)
{
    uint64_t one = 1;
    ssize_t ignored = write(core->doorbell_fd, &one, sizeof(one));
    (void)ignored;
}

/* With the lock held; returns with it held. False: the time is over. */
static bool wait_for(struct core *core, uint64_t until_ns)
{
    return sl_cond_wait_until(&core->changed, &core->lock, until_ns);
}

/* ---- opening ---- */

/* The NVML library below the driver root, where distributions and the driver's container put it. */
static const char *library_under(const char *root, char *buf, size_t size)
{
    static const char *const places[] = {
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/lib64",
        "/lib/x86_64-linux-gnu",
        "/lib",
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(places); i++) {
        (void)snprintf(buf, size, "%s%s/libnvidia-ml.so.1", root, places[i]);
        if (access(buf, R_OK) == 0)
            return buf;
    }
    return NULL;
}

static int open_cards(struct core *core, struct sl_gpu **ret, struct sl_err *err)
{
    char path[1024];
    const char *root = core->driver_root ? core->driver_root : "";
    if (core->open)
        return core->open(core->open_data, ret, err);
    if (strcmp(root, "/") == 0)
        root = "";
    const char *library = root[0] ? library_under(root, path, sizeof(path)) : "libnvidia-ml.so.1";
    if (!library)
        return sl_err_set(err, -ELIBACC, SL_E_CARDS_NO_LIBRARY, root);
    return sl_gpu_open_at(library, root, ret, err);
}

/* Makes the event thread leave the driver, closes the cards and opens them again. */
static int reopen(struct core *core, struct sl_err *err)
{
    uint64_t until = sl_now_ns() + (uint64_t)core->event_wait_ms * 2 * SL_NS_PER_MS + SL_NS_PER_S;
    (void)pthread_mutex_lock(&core->lock);
    core->park = true;
    bool in_time = true;
    while (core->waiting && in_time)
        in_time = wait_for(core, until);
    struct sl_gpu *old = core->gpu;
    bool keep = core->waiting; /* the event thread hangs in the driver: keep the cards open */
    if (!keep)
        core->gpu = NULL;
    (void)pthread_mutex_unlock(&core->lock);

    int rc = 0;
    struct sl_gpu *gpu = NULL;
    if (!keep) {
        sl_gpu_close(old);
        rc = open_cards(core, &gpu, err);
    }
    (void)pthread_mutex_lock(&core->lock);
    if (gpu)
        core->gpu = gpu;
    core->park = false;
    (void)pthread_cond_broadcast(&core->changed);
    (void)pthread_mutex_unlock(&core->lock);
    return rc;
}

/* ---- the worker ---- */

static void run_task(struct core *core, struct task *task)
{
    struct sl_gpu *gpu = core->gpu; /* only this thread writes it while the task runs */
    task->err = (struct sl_err)SL_ERR_INIT;
    if (task->kind == TASK_OPEN || (task->kind == TASK_READ && task->reopen)) {
        task->result = reopen(core, &task->err);
        gpu = core->gpu;
    }
    if (!gpu && task->result == 0)
        task->result = sl_err_set(&task->err, -ENODEV, SL_E_CARDS_NO_NVML);
    task->no_gpu = !gpu;
    if (task->result < 0)
        return;
    if (task->kind == TASK_READ)
        task->result = sl_inventory_read(gpu, &task->inv, &task->err);
    else if (task->kind == TASK_JOB)
        task->result = task->fn(gpu, task->arg, &task->err);
}

/* With the lock held: a thread ends. */
static void leave(struct core *core)
{
    struct sl_gpu *gpu = NULL;
    if (++core->leaving == core->threads) {
        gpu = core->gpu;
        core->gpu = NULL;
    }
    (void)pthread_mutex_unlock(&core->lock);
    sl_gpu_close(gpu); /* before it counts as gone: destroy waits for the close too */
    (void)pthread_mutex_lock(&core->lock);
    core->gone++;
    (void)pthread_cond_broadcast(&core->changed);
    (void)pthread_mutex_unlock(&core->lock);
    sl_core_drop(core);
}

static const char *task_name(const struct task *task)
{
    return task->kind == TASK_OPEN   ? "opening NVML"
           : task->kind == TASK_READ ? "reading the cards"
                                     : "a job on the cards";
}

static void *work(void *arg)
{
    struct core *core = arg;
    (void)pthread_mutex_lock(&core->lock);
    while (!core->stop) {
        struct task *task = sl_task_pop(&core->queue);
        if (!task) {
            (void)pthread_cond_wait(&core->changed, &core->lock);
            continue;
        }
        core->busy = true;
        core->serial++;
        core->what = task_name(task);
        (void)pthread_mutex_unlock(&core->lock);
        run_task(core, task);
        (void)pthread_mutex_lock(&core->lock);
        core->busy = false;
        sl_task_push(&core->finished, task);
        ring(core);
    }
    leave(core);
    return NULL;
}

/* ---- XIDs ---- */

/* A storm of equal errors is one event until the loop has taken it. */
static void keep_event(struct core *core, const struct sl_gpu_event *e)
{
    for (size_t i = 0; i < core->event_count; i++) {
        const struct sl_gpu_event *k = &core->events[i];
        if (k->device_known == e->device_known && k->device == e->device && k->xid == e->xid &&
            k->gpu_instance == e->gpu_instance && k->compute_instance == e->compute_instance)
            return;
    }
    if (core->event_count == EVENTS_KEPT)
        return; /* 256 different errors at once: the cards are unhealthy already */
    core->events[core->event_count++] = *e;
    ring(core);
}

static void keep_event_error(struct core *core, const struct sl_err *err)
{
    if (strcmp(core->event_err.msg, err->msg) == 0)
        return;
    core->event_err = *err;
    core->event_err_new = true;
    ring(core);
}

static void *watch(void *arg)
{
    struct core *core = arg;
    uint64_t pause_ns = 0;
    (void)pthread_mutex_lock(&core->lock);
    while (!core->stop) {
        if (!core->gpu || core->park) {
            pause_ns = 0;
            (void)pthread_cond_wait(&core->changed, &core->lock);
            continue;
        }
        struct sl_gpu *gpu = core->gpu;
        core->waiting = true;
        (void)pthread_mutex_unlock(&core->lock);
        struct sl_gpu_event event = {0};
        struct sl_err err = SL_ERR_INIT;
        int rc = sl_gpu_wait_event(gpu, core->event_wait_ms, &event, &err);
        (void)pthread_mutex_lock(&core->lock);
        core->waiting = false;
        (void)pthread_cond_broadcast(&core->changed);
        if (rc == 0)
            keep_event(core, &event);
        if (rc == 0 || rc == -ETIMEDOUT) {
            core->event_err.code = 0;
            core->event_err.msg[0] = '\0';
            pause_ns = 0;
            continue;
        }
        keep_event_error(core, &err);
        pause_ns = pause_ns ? pause_ns * 2 : SL_NS_PER_S;
        if (pause_ns > EVENT_RETRY_MAX_NS)
            pause_ns = EVENT_RETRY_MAX_NS;
        uint64_t until = sl_now_ns() + pause_ns;
        while (!core->stop && core->gpu == gpu && !core->park && wait_for(core, until))
            ;
    }
    leave(core);
    return NULL;
}

/* ---- life ---- */

int sl_core_create(const struct sl_devices_options *options, struct core **ret, struct sl_err *err)
{
    struct core *core = sl_xcalloc(1, sizeof(*core));
    core->holders = 1;
    core->event_wait_ms = options->event_wait_ms > 0 ? options->event_wait_ms : 500;
    core->open = options->open;
    core->open_data = options->open_data;
    sl_task_list_init(&core->queue);
    sl_task_list_init(&core->finished);
    (void)pthread_mutex_init(&core->lock, NULL);
    sl_cond_init(&core->changed);
    core->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (core->doorbell_fd < 0) {
        int rc = sl_err_errno(err, errno, "cannot make an eventfd");
        core_free(core);
        return rc;
    }
    core->driver_root = sl_xstrdup(options->driver_root);
    *ret = core;
    return 0;
}

static int start_thread(struct core *core, void *(*body)(void *), struct sl_err *err)
{
    pthread_t thread;
    (void)pthread_mutex_lock(&core->lock);
    core->threads++;
    core->holders++;
    int rc = pthread_create(&thread, NULL, body, core);
    if (rc != 0) {
        core->threads--;
        core->holders--;
    } else {
        (void)pthread_detach(thread); /* the thread may hang: do not join it */
    }
    (void)pthread_mutex_unlock(&core->lock);
    return rc != 0 ? sl_err_errno(err, rc, "cannot start a thread for NVML") : 0;
}

int sl_core_start(struct core *core, bool events, struct sl_err *err)
{
    /* Signals belong to the loop's thread. */
    sigset_t all, old;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = start_thread(core, work, err);
    if (rc == 0 && events)
        rc = start_thread(core, watch, err);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

bool sl_core_stop(struct core *core, uint64_t wait_ns)
{
    uint64_t until = sl_now_ns() + wait_ns;
    (void)pthread_mutex_lock(&core->lock);
    core->stop = true;
    (void)pthread_cond_broadcast(&core->changed);
    bool in_time = true;
    while (core->gone < core->threads && in_time)
        in_time = wait_for(core, until);
    bool gone = core->gone == core->threads;
    (void)pthread_mutex_unlock(&core->lock);
    return gone;
}
