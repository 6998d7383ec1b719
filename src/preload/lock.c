/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/lock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

void sl_futex_wait(const _Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns, bool shared)
{
    int saved = errno;
    struct timespec ts = {.tv_sec = (time_t)(timeout_ns / SL_NS_PER_S),
                          .tv_nsec = (long)(timeout_ns % SL_NS_PER_S)};
    (void)syscall(SYS_futex, word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, seen,
                  timeout_ns ? &ts : NULL, NULL, 0);
    errno = saved;
}

static void futex_wake(_Atomic uint32_t *word, int count)
{
    int saved = errno;
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
    errno = saved;
}

void sl_futex_wake_all(_Atomic uint32_t *word)
{
    futex_wake(word, INT_MAX);
}

void sl_lock_slow(struct sl_lock *lock)
{
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
        sl_futex_wait(&lock->word, 2, 0, false);
}

void sl_lock_wake(struct sl_lock *lock)
{
    futex_wake(&lock->word, 1);
}
