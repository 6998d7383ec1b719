/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>

#include "preload/elfsym.h"

#define STACK_BYTES ((size_t)256 << 10)

void sl_thread_name(const char *name)
{
    (void)prctl(PR_SET_NAME, name, 0, 0, 0);
    (void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* of this thread only */
}

/* Thread functions are in libc or in libpthread, depending on the glibc: found at run time. */
bool sl_thread_start(void *(*run)(void *), void *arg)
{
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (__typeof__(create))(uintptr_t)sl_elf_process("pthread_create");
    int (*set_stack)(pthread_attr_t *, size_t) =
        (__typeof__(set_stack))(uintptr_t)sl_elf_process("pthread_attr_setstacksize");
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    if (!create || pthread_attr_init(&attr) != 0)
        return false;
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (set_stack)
        (void)set_stack(&attr, STACK_BYTES);
    /* The thread starts with our mask. */
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before);
    int rc = create(&thread, &attr, run, arg);
    if (rc != 0 && set_stack) { /* large thread-local data may not fit a small stack */
        (void)set_stack(&attr, (size_t)8 << 20);
        rc = create(&thread, &attr, run, arg);
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return rc == 0;
}
