/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A futex lock: no destructor, no owner, all-zero is unlocked. A forked child may simply set its locks to zero, which a
 * pthread mutex does not allow. Never held across a driver call.
 */
#ifndef SLUICE_PRELOAD_LOCK_H
#define SLUICE_PRELOAD_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct sl_lock {
    _Atomic uint32_t word; /* 0 free, 1 held, 2 held and a thread waits */
};

void sl_lock_slow(struct sl_lock *lock);
void sl_lock_wake(struct sl_lock *lock);

static inline void sl_lock_take(struct sl_lock *lock)
{
    uint32_t expected = 0;
    if (!atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire,
                                                 memory_order_relaxed))
        sl_lock_slow(lock);
}

static inline void sl_lock_drop(struct sl_lock *lock)
{
    if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
        sl_lock_wake(lock);
}

/* Only in a forked child, whose other threads are gone. */
static inline void sl_lock_reset(struct sl_lock *lock)
{
    atomic_store_explicit(&lock->word, 0, memory_order_relaxed);
}

/* Both keep errno. Wait returns when the word may have changed, or after timeout_ns (0: no limit). `shared`: another
 * process sets the word. */
void sl_futex_wait(const _Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns, bool shared);
void sl_futex_wake_all(_Atomic uint32_t *word);

#endif
