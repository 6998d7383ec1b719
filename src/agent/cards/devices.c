/* SPDX-License-Identifier: Apache-2.0 */
/* The loop's side: sends questions in time, and interprets the answers. */
#include "agent/cards/devices.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "agent/cards/devices_internal.h"
#include "agent/cards/errors.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/xalloc.h"

#define RETRY_MAX_NS (60 * SL_NS_PER_S)

struct sl_devices {
    struct sl_loop *loop;
    struct sl_devices_ops ops;
    void *data;
    struct core *core;
    struct sl_source doorbell;
    bool fail_on_init_error;
    uint64_t poll_ns, stall_ns, retry_ns, stop_wait_ns;

    struct sl_timer poll; /* the next read, or the next attempt to open */
    uint64_t backoff_ns;  /* of the last failed attempt; 0: none */
    bool open;            /* NVML is open */
    bool asking;          /* an open or a read is under way */
    bool again;           /* a refresh came meanwhile */
    bool fresh;           /* open NVML again for the next read */
    struct sl_err said;   /* the last error that was reported */
    struct sl_inventory *inv;
    char (*uuids)[SL_GPU_UUID_SIZE]; /* the UUIDs of NVML's numbers, as of the last read */
    size_t uuid_count;

    struct sl_timer stall; /* runs while tasks are under way */
    unsigned out;
    uint64_t seen_serial, seen_ns;
    bool stalled;
};

static uint64_t or_default(uint64_t value, uint64_t otherwise)
{
    return value ? value : otherwise;
}

/* ---- stalls ---- */

static void look_again(struct sl_devices *d)
{
    sl_timer_set(d->loop, &d->stall, sl_loop_now(d->loop) + d->stall_ns / 4);
}

/* Refuses the tasks behind the task that hangs; reads are repeated when it returns. */
static void refuse_queued(struct sl_devices *d, int code, const char *why)
{
    struct task_list refused;
    struct task *task;
    sl_task_list_init(&refused);
    (void)pthread_mutex_lock(&d->core->lock);
    while ((task = sl_task_pop(&d->core->queue)) != NULL)
        sl_task_push(&refused, task);
    (void)pthread_mutex_unlock(&d->core->lock);
    while ((task = sl_task_pop(&refused)) != NULL) {
        d->out--;
        if (task->kind == TASK_JOB) {
            struct sl_err err = SL_ERR_INIT;
            (void)sl_err_set(&err, code, "%s", why);
            task->done(task->arg, code, &err);
        } else {
            d->asking = false;
            d->again = true;
        }
        sl_task_free(task);
    }
}

static void stall_fire(struct sl_timer *timer)
{
    struct sl_devices *d = sl_container_of(timer, struct sl_devices, stall);
    uint64_t now = sl_loop_now(d->loop);
    (void)pthread_mutex_lock(&d->core->lock);
    bool busy = d->core->busy;
    uint64_t serial = d->core->serial;
    const char *what = d->core->what;
    (void)pthread_mutex_unlock(&d->core->lock);
    if (d->out == 0)
        return;
    look_again(d);
    if (!busy || serial != d->seen_serial) {
        d->seen_serial = serial;
        d->seen_ns = now;
        return;
    }
    if (d->stalled || now - d->seen_ns < d->stall_ns)
        return;
    d->stalled = true;
    refuse_queued(d, -ETIMEDOUT, SL_E_CARDS_BUSY);
    if (d->ops.stalled)
        d->ops.stalled(d->data, what, now - d->seen_ns);
}

static void finished_one(struct sl_devices *d)
{
    d->out--;
    if (d->stalled) {
        d->stalled = false;
        if (d->ops.resumed)
            d->ops.resumed(d->data, sl_loop_now(d->loop) - d->seen_ns);
    }
    if (d->out == 0)
        sl_timer_stop(d->loop, &d->stall);
}

/* ---- asking ---- */

static void push(struct sl_devices *d, struct task *task)
{
    task->asked_ns = sl_loop_now(d->loop);
    (void)pthread_mutex_lock(&d->core->lock);
    if (d->out++ == 0) {
        d->seen_serial = d->core->serial;
        d->seen_ns = task->asked_ns;
    }
    sl_task_push(&d->core->queue, task);
    (void)pthread_cond_broadcast(&d->core->changed);
    (void)pthread_mutex_unlock(&d->core->lock);
    if (!d->stall.set)
        look_again(d);
}

/* Starts an open or a read, whichever is due; one at a time. */
static void ask(struct sl_devices *d)
{
    if (d->asking || d->stalled) {
        d->again = true;
        return;
    }
    struct task *task = sl_xcalloc(1, sizeof(*task));
    sl_timer_stop(d->loop, &d->poll);
    task->kind = d->open ? TASK_READ : TASK_OPEN;
    task->reopen = d->open && d->fresh;
    d->again = false;
    d->asking = true;
    push(d, task);
}

static void poll_fire(struct sl_timer *timer)
{
    ask(sl_container_of(timer, struct sl_devices, poll));
}

static uint64_t back_off(struct sl_devices *d)
{
    d->backoff_ns = d->backoff_ns ? d->backoff_ns * 2 : d->retry_ns;
    if (d->backoff_ns > RETRY_MAX_NS)
        d->backoff_ns = RETRY_MAX_NS;
    return d->backoff_ns;
}

/* ---- answers ---- */

static void say_trouble(struct sl_devices *d, const struct sl_err *err)
{
    if (strcmp(d->said.msg, err->msg) == 0)
        return;
    d->said = *err;
    if (d->ops.trouble)
        d->ops.trouble(d->data, err);
}

static void not_open(struct sl_devices *d, const struct sl_err *err)
{
    d->open = d->again = false;
    uint64_t retry_ns = d->fail_on_init_error && !d->inv ? 0 : back_off(d);
    if (retry_ns)
        sl_timer_set(d->loop, &d->poll, sl_loop_now(d->loop) + retry_ns);
    if (d->ops.no_driver)
        d->ops.no_driver(d->data, err, retry_ns);
}

/* Remembers the UUIDs of NVML's numbers. A card that does not tell its UUID is still the same card, as long as the
 * driver lists as many cards as before. */
static void remember_numbers(struct sl_devices *d, const struct sl_inventory *inv)
{
    char(*uuids)[SL_GPU_UUID_SIZE] = sl_xcalloc(inv->gpu_count + 1, sizeof(*uuids));
    for (size_t i = 0; i < inv->gpu_count; i++) {
        const char *uuid = inv->gpu[i].info.uuid;
        if (!uuid[0] && d->uuid_count == inv->gpu_count)
            uuid = d->uuids[i];
        memcpy(uuids[i], uuid, strlen(uuid) + 1);
    }
    free(d->uuids);
    d->uuids = uuids;
    d->uuid_count = inv->gpu_count;
}

static bool any_lost(const struct sl_inventory *inv)
{
    for (size_t i = 0; i < inv->gpu_count; i++)
        if (inv->gpu[i].lost)
            return true;
    return false;
}

static void got_inventory(struct sl_devices *d, struct sl_inventory *inv, uint64_t asked_ns)
{
    struct sl_err err = SL_ERR_INIT;
    remember_numbers(d, inv);
    size_t unknown = sl_devices_merge(d->inv, d->uuids, inv);
    if (unknown > 0) {
        (void)sl_err_set(&err, -ENXIO, SL_E_CARDS_SILENT, unknown);
        say_trouble(d, &err);
    } else {
        d->said = (struct sl_err)SL_ERR_INIT;
    }
    d->fresh = unknown > 0 || any_lost(inv);
    if (d->ops.polled)
        d->ops.polled(d->data, inv, asked_ns);
    if (d->inv && sl_inventory_equal(d->inv, inv)) {
        sl_inventory_free(inv);
        return;
    }
    struct sl_inventory *before = d->inv;
    d->inv = inv;
    if (d->ops.inventory)
        d->ops.inventory(d->data, inv);
    sl_inventory_free(before);
}

static void read_done(struct sl_devices *d, struct task *task)
{
    if (task->no_gpu) {
        not_open(d, &task->err);
        return;
    }
    uint64_t next_ns = d->poll_ns;
    if (task->result == 0) {
        struct sl_inventory *inv = task->inv;
        task->inv = NULL;
        d->backoff_ns = 0;
        got_inventory(d, inv, task->asked_ns);
    } else {
        d->fresh = true;
        next_ns = back_off(d);
        say_trouble(d, &task->err);
    }
    sl_timer_set(d->loop, &d->poll, sl_loop_now(d->loop) + next_ns);
}

static void task_done(struct sl_devices *d, struct task *task)
{
    if (task->kind == TASK_JOB) {
        task->done(task->arg, task->result, &task->err);
        return;
    }
    d->asking = false;
    if (task->kind == TASK_READ) {
        read_done(d, task);
    } else if (task->result < 0) {
        not_open(d, &task->err);
    } else {
        d->open = true;
        d->fresh = false;
        d->again = true; /* and now the first read */
    }
}

static const char *event_uuid(const struct sl_devices *d, const struct sl_gpu_event *event)
{
    if (!event->device_known || event->device >= d->uuid_count || !d->uuids[event->device][0])
        return NULL;
    return d->uuids[event->device];
}

static void take_events(struct sl_devices *d)
{
    struct sl_gpu_event events[EVENTS_KEPT];
    struct sl_err err = SL_ERR_INIT;
    /* Before the first read no UUID is known: the XIDs wait. */
    if (!d->inv)
        return;
    (void)pthread_mutex_lock(&d->core->lock);
    size_t n = d->core->event_count;
    memcpy(events, d->core->events, n * sizeof(*events));
    d->core->event_count = 0;
    if (d->core->event_err_new)
        err = d->core->event_err;
    d->core->event_err_new = false;
    (void)pthread_mutex_unlock(&d->core->lock);
    if (err.code)
        d->again = true; /* the driver reports a lost card in this way */
    if (err.code && d->ops.trouble) {
        (void)sl_err_wrap(&err, "XIDs cannot be read, so health is known by polling only");
        d->ops.trouble(d->data, &err);
    }
    for (size_t i = 0; i < n; i++) {
        const char *uuid = event_uuid(d, &events[i]);
        if (!uuid)
            d->again = true;
        if (d->ops.xid)
            d->ops.xid(d->data, uuid, &events[i]);
    }
}

static void doorbell_ready(struct sl_source *source, uint32_t epoll_events)
{
    (void)epoll_events;
    struct sl_devices *d = sl_container_of(source, struct sl_devices, doorbell);
    uint64_t count;
    ssize_t ignored = read(source->fd, &count, sizeof(count));
    (void)ignored;
    for (;;) {
        (void)pthread_mutex_lock(&d->core->lock);
        struct task *task = sl_task_pop(&d->core->finished);
        (void)pthread_mutex_unlock(&d->core->lock);
        if (!task)
            break;
        finished_one(d);
        task_done(d, task);
        sl_task_free(task);
    }
    take_events(d);
    if (d->again && !d->asking && !d->stalled && !(d->poll.set && !d->open))
        ask(d);
}

/* ---- for callers ---- */

int sl_devices_create(struct sl_loop *loop, const struct sl_devices_options *options,
                      const struct sl_devices_ops *ops, void *data, struct sl_devices **ret,
                      struct sl_err *err)
{
    struct sl_devices *d = sl_xcalloc(1, sizeof(*d));
    d->loop = loop;
    d->ops = *ops;
    d->data = data;
    d->fail_on_init_error = options->fail_on_init_error;
    d->poll_ns = or_default(options->poll_ns, 30 * SL_NS_PER_S);
    d->stall_ns = or_default(options->stall_ns, 10 * SL_NS_PER_S);
    d->retry_ns = or_default(options->retry_ns, SL_NS_PER_S);
    d->stop_wait_ns = or_default(options->stop_wait_ns, SL_NS_PER_S);
    d->poll.fire = poll_fire;
    d->stall.fire = stall_fire;
    d->doorbell = (struct sl_source){.fd = -1, .ready = doorbell_ready};
    int rc = sl_core_create(options, &d->core, err);
    if (rc == 0) {
        d->doorbell.fd = d->core->doorbell_fd;
        rc = sl_loop_watch(loop, &d->doorbell, EPOLLIN, err);
    }
    if (rc == 0)
        rc = sl_core_start(d->core, !options->no_events, err);
    if (rc < 0) {
        sl_devices_destroy(d);
        return rc;
    }
    ask(d);
    *ret = d;
    return 0;
}

void sl_devices_destroy(struct sl_devices *d)
{
    if (!d)
        return;
    sl_timer_stop(d->loop, &d->poll);
    sl_timer_stop(d->loop, &d->stall);
    if (d->core) {
        sl_loop_unwatch(d->loop, &d->doorbell);
        refuse_queued(d, -ECANCELED, "the agent is ending");
        (void)sl_core_stop(d->core, d->stop_wait_ns);
        struct task *task;
        for (;;) { /* answers that were not reported yet */
            (void)pthread_mutex_lock(&d->core->lock);
            task = sl_task_pop(&d->core->finished);
            (void)pthread_mutex_unlock(&d->core->lock);
            if (!task)
                break;
            if (task->kind == TASK_JOB)
                task->done(task->arg, task->result, &task->err);
            sl_task_free(task);
        }
        sl_core_drop(d->core);
    }
    sl_inventory_free(d->inv);
    free(d->uuids);
    free(d);
}

const struct sl_inventory *sl_devices_inventory(const struct sl_devices *d)
{
    return d->inv;
}

void sl_devices_refresh(struct sl_devices *d)
{
    if (d->open || d->asking)
        ask(d);
}

void sl_devices_rescan(struct sl_devices *d)
{
    d->fresh = true;
    sl_devices_refresh(d);
}

int sl_devices_submit(struct sl_devices *d, sl_devices_job_fn *fn, sl_devices_done_fn *done,
                      void *arg, struct sl_err *err)
{
    if (d->stalled)
        return sl_err_set(err, -ETIMEDOUT, SL_E_CARDS_BUSY);
    if (!d->open)
        return sl_err_set(err, -ENODEV, SL_E_CARDS_NO_NVML);
    struct task *task = sl_xcalloc(1, sizeof(*task));
    task->kind = TASK_JOB;
    task->fn = fn;
    task->done = done;
    task->arg = arg;
    push(d, task);
    return 0;
}

int sl_devices_find(struct sl_gpu *gpu, const char *uuid, size_t *ret, struct sl_err *err)
{
    size_t n = 0;
    int rc = sl_gpu_count(gpu, &n, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct sl_gpu_info info = {0};
        if (sl_gpu_info(gpu, i, &info, NULL) == 0 && strcmp(info.uuid, uuid) == 0) {
            *ret = i;
            return 0;
        }
    }
    return rc < 0 ? rc : sl_err_set(err, -ENOENT, SL_E_CARDS_GONE, uuid);
}
