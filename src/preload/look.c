/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/look.h"

#include <stdatomic.h>
#include <stddef.h>

#include "preload/lock.h"
#include "preload/thread.h"

static struct {
    bool tried, running; /* used only by the watch thread */
    struct sl_process *process;
    uint64_t (*look)(struct sl_process *);
    _Atomic bool asleep;
    _Atomic uint32_t bell; /* a futex */
} look;

static void *look_main(void *unused)
{
    sl_thread_name("sluice-look");
    for (;;) {
        uint32_t seen = atomic_load(&look.bell);
        uint64_t wait_ns = look.look(look.process);
        bool sleeps = wait_ns == UINT64_MAX;
        atomic_store(&look.asleep, sleeps);
        sl_futex_wait(&look.bell, seen, sleeps ? 0 : wait_ns, false);
    }
    return unused;
}

bool sl_look_wake(struct sl_process *p, uint64_t (*function)(struct sl_process *))
{
    if (!look.tried) {
        look.tried = true;
        look.process = p;
        look.look = function;
        look.running = sl_thread_start(look_main, NULL);
    } else if (atomic_exchange(&look.asleep, false)) {
        atomic_fetch_add(&look.bell, 1);
        sl_futex_wake_all(&look.bell);
    }
    return look.running;
}

void sl_look_forget(void)
{
    look.tried = look.running = false;
    atomic_store(&look.asleep, false);
}
