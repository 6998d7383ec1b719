/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/vm/worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cond.h"
#include "base/container.h"
#include "base/xalloc.h"

struct item {
    struct item *next;
    struct sl_worker_task task;
};

struct list {
    struct item *first, **tail;
};

/* Outlives the worker while the thread hangs; the last of both frees it. `lock` guards all but the descriptor. */
struct core {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int doorbell_fd;
    unsigned holders;
    bool stop, ended;
    struct list queue, finished;
};

struct sl_worker {
    struct sl_loop *loop;
    struct core *core;
    struct sl_source doorbell;
};

static void push(struct list *list, struct item *item)
{
    item->next = NULL;
    *list->tail = item;
    list->tail = &item->next;
}

static struct item *pop(struct list *list)
{
    struct item *item = list->first;
    if (!item)
        return NULL;
    list->first = item->next;
    if (!list->first)
        list->tail = &list->first;
    return item;
}

static void drop_all(struct list *list)
{
    struct item *item;
    while ((item = pop(list)) != NULL) {
        item->task.drop(item->task.arg);
        free(item);
    }
}

static void let_go(struct core *core)
{
    (void)pthread_mutex_lock(&core->lock);
    bool last = --core->holders == 0;
    (void)pthread_mutex_unlock(&core->lock);
    if (!last)
        return;
    drop_all(&core->queue);
    drop_all(&core->finished);
    (void)close(core->doorbell_fd);
    (void)pthread_mutex_destroy(&core->lock);
    (void)pthread_cond_destroy(&core->changed);
    free(core);
}

static void *work(void *arg)
{
    struct core *core = arg;
    const uint64_t one = 1;
    (void)pthread_mutex_lock(&core->lock);
    while (!core->stop) {
        struct item *item = pop(&core->queue);
        if (!item) {
            (void)pthread_cond_wait(&core->changed, &core->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&core->lock);
        item->task.run(item->task.arg);
        (void)pthread_mutex_lock(&core->lock);
        push(&core->finished, item);
        ssize_t ignored = write(core->doorbell_fd, &one, sizeof(one));
        (void)ignored;
    }
    core->ended = true;
    (void)pthread_cond_broadcast(&core->changed);
    (void)pthread_mutex_unlock(&core->lock);
    let_go(core);
    return NULL;
}

static void doorbell_ready(struct sl_source *source, uint32_t events)
{
    (void)events;
    struct sl_worker *w = sl_container_of(source, struct sl_worker, doorbell);
    uint64_t count;
    ssize_t ignored = read(source->fd, &count, sizeof(count));
    (void)ignored;
    for (;;) {
        (void)pthread_mutex_lock(&w->core->lock);
        struct item *item = pop(&w->core->finished);
        (void)pthread_mutex_unlock(&w->core->lock);
        if (!item)
            return;
        struct sl_worker_task task = item->task;
        free(item);
        task.done(task.arg);
    }
}

static int start(struct core *core, struct sl_err *err)
{
    pthread_t thread;
    sigset_t all, old;
    sigfillset(&all); /* signals belong to the loop's thread */
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    core->holders++;
    int rc = pthread_create(&thread, NULL, work, core);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        core->holders--;
        return sl_err_errno(err, rc, "cannot start a thread for sysfs");
    }
    (void)pthread_detach(thread); /* the thread may hang: do not join it */
    return 0;
}

int sl_worker_create(struct sl_loop *loop, struct sl_worker **ret, struct sl_err *err)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return sl_err_errno(err, errno, "cannot make an eventfd");
    struct core *core = sl_xcalloc(1, sizeof(*core));
    (void)pthread_mutex_init(&core->lock, NULL);
    sl_cond_init(&core->changed);
    core->doorbell_fd = fd;
    core->holders = 1;
    core->queue.tail = &core->queue.first;
    core->finished.tail = &core->finished.first;

    struct sl_worker *w = sl_xcalloc(1, sizeof(*w));
    w->loop = loop;
    w->core = core;
    w->doorbell = (struct sl_source){.fd = fd, .ready = doorbell_ready};
    int rc = sl_loop_watch(loop, &w->doorbell, EPOLLIN, err);
    if (rc == 0)
        rc = start(core, err);
    if (rc < 0) {
        sl_loop_unwatch(loop, &w->doorbell);
        let_go(core);
        free(w);
        return rc;
    }
    *ret = w;
    return 0;
}

void sl_worker_destroy(struct sl_worker *w, uint64_t wait_ns)
{
    if (!w)
        return;
    struct core *core = w->core;
    uint64_t until = sl_now_ns() + wait_ns;
    sl_loop_unwatch(w->loop, &w->doorbell);
    (void)pthread_mutex_lock(&core->lock);
    core->stop = true;
    (void)pthread_cond_broadcast(&core->changed);
    bool in_time = true;
    while (!core->ended && in_time)
        in_time = sl_cond_wait_until(&core->changed, &core->lock, until);
    (void)pthread_mutex_unlock(&core->lock);
    let_go(core);
    free(w);
}

void sl_worker_submit(struct sl_worker *w, const struct sl_worker_task *task)
{
    struct item *item = sl_xcalloc(1, sizeof(*item));
    item->task = *task;
    (void)pthread_mutex_lock(&w->core->lock);
    push(&w->core->queue, item);
    (void)pthread_cond_broadcast(&w->core->changed);
    (void)pthread_mutex_unlock(&w->core->lock);
}
