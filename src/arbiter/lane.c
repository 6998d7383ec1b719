/* SPDX-License-Identifier: Apache-2.0 */
#include "arbiter/lane.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "shm/pages.h"

#define STACK_BYTES ((size_t)128 << 10)

struct job {
    struct job *next;
    int fd;
    bool receive; /* a packet waits in it; false: only close it */
    uint64_t tenant;
    struct sl_peer peer;
};

struct sl_lanes {
    pthread_mutex_t lock; /* for this struct and the lanes */
    uint32_t users;       /* the arbiter, and every lane */
    int bell_fd;          /* -1: closed */
    struct sl_received *ready, **ready_tail;
};

struct sl_lane {
    struct sl_lanes *all;
    struct job *head, **tail;
    uint32_t held;
    bool running; /* it has a thread */
    bool owned;   /* by its tenant; freed when neither owned nor running */
};

struct sl_lanes *sl_lanes_open(int bell_fd)
{
    struct sl_lanes *l = sl_xcalloc(1, sizeof(*l));
    (void)pthread_mutex_init(&l->lock, NULL);
    l->users = 1;
    l->bell_fd = bell_fd;
    l->ready_tail = &l->ready;
    return l;
}

/* Call with the lock held; it drops the lock. */
static void lanes_unref(struct sl_lanes *l)
{
    bool last = --l->users == 0;
    (void)pthread_mutex_unlock(&l->lock);
    if (!last)
        return;
    (void)pthread_mutex_destroy(&l->lock);
    free(l);
}

/* Call with the lock held; it drops the lock. */
static void lane_maybe_free(struct sl_lane *lane)
{
    struct sl_lanes *l = lane->all;
    if (lane->owned || lane->running) {
        (void)pthread_mutex_unlock(&l->lock);
        return;
    }
    while (lane->head) { /* no thread could be started for these: they stay open */
        struct job *j = lane->head;
        lane->head = j->next;
        free(j);
    }
    free(lane);
    lanes_unref(l);
}

/* The thread's side: all of this may block. */
static void receive(struct sl_lanes *l, const struct job *j)
{
    struct sl_packet_fds fds = {.count = 0};
    struct sl_received *r = sl_xcalloc(1, sizeof(*r));
    *r = (struct sl_received){.tenant = j->tenant, .peer = j->peer, .sock = j->fd, .page_fd = -1};
    struct sl_err err = SL_ERR_INIT;
    r->rc = sl_packet_recv(j->fd, &r->packet, &fds, &err);
    (void)snprintf(r->why, sizeof(r->why), "%s", err.msg);
    if (r->rc == 0 && fds.count > 0 && sl_page_fd(fds.fd[0]))
        r->page_fd = sl_take_fd(fds.fd[0]);
    (void)pthread_mutex_lock(&l->lock);
    bool listened = l->bell_fd >= 0;
    if (listened) {
        *l->ready_tail = r;
        l->ready_tail = &r->next;
        uint64_t one = 1;
        ssize_t ignored = write(l->bell_fd, &one, sizeof(one));
        (void)ignored;
    }
    (void)pthread_mutex_unlock(&l->lock);
    sl_packet_fds_close(&fds);
    if (listened)
        return;
    sl_cleanup_close(&r->page_fd);
    (void)close(r->sock);
    free(r);
}

static void *work(void *arg)
{
    struct sl_lane *lane = arg;
    struct sl_lanes *l = lane->all;
    (void)pthread_mutex_lock(&l->lock);
    while (lane->head) {
        struct job *j = lane->head;
        lane->head = j->next;
        if (!lane->head)
            lane->tail = &lane->head;
        (void)pthread_mutex_unlock(&l->lock);
        if (j->receive)
            receive(l, j);
        else
            (void)close(j->fd);
        free(j);
        (void)pthread_mutex_lock(&l->lock);
        lane->held--;
    }
    lane->running = false;
    lane_maybe_free(lane);
    return NULL;
}

/* Call with the lock held. If no thread can be started now, the next job tries again. */
static void start_thread(struct sl_lane *lane)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, old;
    if (lane->running || pthread_attr_init(&attr) != 0)
        return;
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&all); /* signals belong to the loop's thread */
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    lane->running = pthread_create(&thread, &attr, work, lane) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    (void)pthread_attr_destroy(&attr);
}

static void add_job(struct sl_lane *lane, const struct job *job)
{
    struct job *j = sl_xmalloc(sizeof(*j));
    *j = *job;
    (void)pthread_mutex_lock(&lane->all->lock);
    *lane->tail = j;
    lane->tail = &j->next;
    lane->held++;
    start_thread(lane);
    (void)pthread_mutex_unlock(&lane->all->lock);
}

void sl_lane_drop(struct sl_lane *lane, int fd)
{
    add_job(lane, &(struct job){.fd = fd});
}

void sl_lane_receive(struct sl_lane *lane, int sock, uint64_t tenant, const struct sl_peer *peer)
{
    add_job(lane, &(struct job){.fd = sock, .receive = true, .tenant = tenant, .peer = *peer});
}

struct sl_lane *sl_lane_open(struct sl_lanes *l)
{
    struct sl_lane *lane = sl_xcalloc(1, sizeof(*lane));
    lane->all = l;
    lane->tail = &lane->head;
    lane->owned = true;
    (void)pthread_mutex_lock(&l->lock);
    l->users++;
    (void)pthread_mutex_unlock(&l->lock);
    return lane;
}

void sl_lane_close(struct sl_lane *lane)
{
    if (!lane)
        return;
    (void)pthread_mutex_lock(&lane->all->lock);
    lane->owned = false;
    if (lane->head)
        start_thread(lane);
    lane_maybe_free(lane);
}

uint32_t sl_lane_held(struct sl_lane *lane)
{
    if (!lane)
        return 0;
    (void)pthread_mutex_lock(&lane->all->lock);
    uint32_t held = lane->held;
    (void)pthread_mutex_unlock(&lane->all->lock);
    return held;
}

struct sl_received *sl_lanes_take(struct sl_lanes *l)
{
    (void)pthread_mutex_lock(&l->lock);
    struct sl_received *r = l->ready;
    if (r) {
        l->ready = r->next;
        if (!l->ready)
            l->ready_tail = &l->ready;
    }
    (void)pthread_mutex_unlock(&l->lock);
    return r;
}

void sl_lanes_close(struct sl_lanes *l)
{
    if (!l)
        return;
    (void)pthread_mutex_lock(&l->lock);
    l->bell_fd = -1;
    (void)pthread_mutex_unlock(&l->lock);
    /* Their sockets stay open: the arbiter ends, and the kernel closes them without lingering. */
    for (struct sl_received *r = sl_lanes_take(l); r; r = sl_lanes_take(l)) {
        sl_cleanup_close(&r->page_fd);
        free(r);
    }
    (void)pthread_mutex_lock(&l->lock);
    lanes_unref(l);
}
