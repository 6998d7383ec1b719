/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for descriptors and timers, in one thread. One descriptor becomes readable when there is something to do. So
 * the loop runs by itself (call sl_loop_step again and again) or inside any other event loop (watch sl_loop_fd, then
 * step with timeout 0).
 */
#ifndef SLUICE_BASE_LOOP_H
#define SLUICE_BASE_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct sl_loop;

/* Embedded by its owner. `ready` may remove and free this or any other source. */
struct sl_source {
    int fd;
    uint32_t events; /* EPOLLIN, EPOLLOUT as watched; 0 = not watched */
    void (*ready)(struct sl_source *source, uint32_t events);
};

/* Embedded by its owner, zeroed before first use. One shot; may be set again when it fires. */
struct sl_timer {
    uint64_t at_ns;
    void (*fire)(struct sl_timer *timer);
    struct sl_timer *prev, *next;
    bool set;
};

/* now_ns NULL: the monotonic clock. With another clock (tests) time passes only in its steps: the loop's descriptor
 * does not wake up for timers. */
int sl_loop_create(uint64_t (*now_ns)(void), struct sl_loop **ret,
                   struct sl_err *err) SL_MUST_CHECK;
/* Remove every source and timer before. NULL is fine. */
void sl_loop_destroy(struct sl_loop *loop);

int sl_loop_fd(const struct sl_loop *loop);
uint64_t sl_loop_now(const struct sl_loop *loop);

/* Waits up to timeout_ms (-1: for ever) for an event, then runs ready sources: a limited batch, so that no source can
 * keep the others waiting. Not from inside a callback. */
int sl_loop_step(struct sl_loop *loop, int timeout_ms, struct sl_err *err) SL_MUST_CHECK;

/* Starts watching, or changes the watched events. events 0 stops. */
int sl_loop_watch(struct sl_loop *loop, struct sl_source *source, uint32_t events,
                  struct sl_err *err) SL_MUST_CHECK;
void sl_loop_unwatch(struct sl_loop *loop, struct sl_source *source);

/* Cannot fail: timers are linked, not stored. */
void sl_timer_set(struct sl_loop *loop, struct sl_timer *timer, uint64_t at_ns);
void sl_timer_stop(struct sl_loop *loop, struct sl_timer *timer);

#endif
