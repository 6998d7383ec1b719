/* SPDX-License-Identifier: Apache-2.0 */
#include "base/container.h"
#include "base/loop.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"

enum { BATCH = 64 };

struct sl_loop {
    int epoll_fd;
    struct sl_source alarm;   /* a timerfd: wakes a thread that waits on epoll_fd */
    uint64_t alarm_at_ns;     /* its present time; UINT64_MAX = not set */
    uint64_t (*now_ns)(void); /* NULL: the real clock */
    struct sl_timer *first, *last;
};

static void alarm_ready(struct sl_source *source, uint32_t events)
{
    (void)events;
    struct sl_loop *loop = sl_container_of(source, struct sl_loop, alarm);
    uint64_t count;
    ssize_t ignored = read(source->fd, &count, sizeof(count));
    (void)ignored;
    loop->alarm_at_ns = UINT64_MAX;
}

int sl_loop_create(uint64_t (*now_ns)(void), struct sl_loop **ret, struct sl_err *err)
{
    struct sl_loop *loop = calloc(1, sizeof(*loop));
    if (!loop)
        return sl_err_set(err, -ENOMEM, "out of memory for an event loop");
    loop->now_ns = now_ns;
    loop->alarm_at_ns = UINT64_MAX;
    loop->alarm.ready = alarm_ready;
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->alarm.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    int rc = 0;
    if (loop->epoll_fd < 0 || loop->alarm.fd < 0)
        rc = sl_err_errno(err, errno, "cannot create an event loop");
    if (rc == 0)
        rc = sl_loop_watch(loop, &loop->alarm, EPOLLIN, err);
    if (rc < 0) {
        sl_loop_destroy(loop);
        return rc;
    }
    *ret = loop;
    return 0;
}

void sl_loop_destroy(struct sl_loop *loop)
{
    if (!loop)
        return;
    if (loop->alarm.fd >= 0)
        (void)close(loop->alarm.fd);
    if (loop->epoll_fd >= 0)
        (void)close(loop->epoll_fd);
    free(loop);
}

int sl_loop_fd(const struct sl_loop *loop)
{
    return loop->epoll_fd;
}

uint64_t sl_loop_now(const struct sl_loop *loop)
{
    return loop->now_ns ? loop->now_ns() : sl_now_ns();
}

/* The alarm may be early (a timer was stopped) but never late. */
static void set_alarm(struct sl_loop *loop)
{
    if (loop->now_ns || !loop->first || loop->first->at_ns >= loop->alarm_at_ns)
        return;
    uint64_t at = loop->first->at_ns ? loop->first->at_ns : 1; /* 0 would switch it off */
    struct itimerspec its = {
        .it_value = {.tv_sec = (time_t)(at / SL_NS_PER_S), .tv_nsec = (long)(at % SL_NS_PER_S)}};
    if (timerfd_settime(loop->alarm.fd, TFD_TIMER_ABSTIME, &its, NULL) == 0)
        loop->alarm_at_ns = loop->first->at_ns;
}

static void run_timers(struct sl_loop *loop)
{
    uint64_t now = sl_loop_now(loop);
    while (loop->first && loop->first->at_ns <= now) {
        struct sl_timer *timer = loop->first;
        sl_timer_stop(loop, timer);
        timer->fire(timer);
    }
    set_alarm(loop);
}

int sl_loop_step(struct sl_loop *loop, int timeout_ms, struct sl_err *err)
{
    run_timers(loop);
    /* One event a round: a handler may free any source, and a batch could still name it. Level
     * triggering brings the others back, in turn. */
    for (int i = 0; i < BATCH; i++) {
        struct epoll_event e;
        int n = epoll_wait(loop->epoll_fd, &e, 1, i == 0 ? timeout_ms : 0);
        if (n < 0 && errno != EINTR)
            return sl_err_errno(err, errno, "cannot wait for events");
        if (n <= 0)
            break;
        struct sl_source *source = e.data.ptr;
        source->ready(source, e.events);
    }
    run_timers(loop);
    return 0;
}

int sl_loop_watch(struct sl_loop *loop, struct sl_source *source, uint32_t events,
                  struct sl_err *err)
{
    if (events == source->events)
        return 0;
    if (events == 0) {
        sl_loop_unwatch(loop, source);
        return 0;
    }
    struct epoll_event e = {.events = events, .data.ptr = source};
    int op = source->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(loop->epoll_fd, op, source->fd, &e) != 0)
        return sl_err_errno(err, errno, "cannot watch descriptor %d", source->fd);
    source->events = events;
    return 0;
}

void sl_loop_unwatch(struct sl_loop *loop, struct sl_source *source)
{
    if (source->events)
        (void)epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
    source->events = 0;
}

void sl_timer_set(struct sl_loop *loop, struct sl_timer *timer, uint64_t at_ns)
{
    sl_timer_stop(loop, timer);
    /* From the end: most deadlines are set in the order in which they expire. */
    struct sl_timer *before = loop->last;
    while (before && before->at_ns > at_ns)
        before = before->prev;
    timer->at_ns = at_ns;
    timer->set = true;
    timer->prev = before;
    timer->next = before ? before->next : loop->first;
    *(timer->next ? &timer->next->prev : &loop->last) = timer;
    *(before ? &before->next : &loop->first) = timer;
    set_alarm(loop);
}

void sl_timer_stop(struct sl_loop *loop, struct sl_timer *timer)
{
    if (!timer->set)
        return;
    *(timer->prev ? &timer->prev->next : &loop->first) = timer->next;
    *(timer->next ? &timer->next->prev : &loop->last) = timer->prev;
    timer->prev = timer->next = NULL;
    timer->set = false;
}
