/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded: the monotonic clock, sleeping, and everything that waits with a limit go by the benchmark's clock
 * (clock.h). Calls of the kernel are made directly: libsluice has a `dlsym` of its own.
 */
#include "clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define EXPORT        __attribute__((visibility("default")))
#define S_NS          1000000000ULL
#define MAX_TIMERS    16
#define KERNEL_SIGSET 8
/* A thread that reads the clock so often without waiting waits for the clock: let it go on a little. */
#define READS_MOST    512
#define READS_STEP_NS 5000U

static struct clock_page *page;
static _Thread_local struct clock_thread *me;
static _Thread_local unsigned int reads;
static _Thread_local volatile sig_atomic_t rung;

static struct timer {
    int fd; /* + 1; 0: unused */
    uint64_t at_ns;
} timers[MAX_TIMERS];
static pthread_mutex_t timers_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the kernel ---- */

static long kernel(long n, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long r;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(r)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return r;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = n;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
#else
#error "no system calls are known for this processor"
#endif
}

/* As libc returns it. */
static long given(long r)
{
    if (r < 0 && r > -4096) {
        errno = (int)-r;
        return -1;
    }
    return r;
}

/* ---- threads ---- */

static void ring(int signal)
{
    (void)signal;
    rung = 1;
}

static void forget_thread(void)
{
    me = NULL;
}

__attribute__((constructor)) static void open_clock(void)
{
    const char *path = getenv(CLOCK_ENV);
    if (page || !path)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *mapped =
        fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        (void)close(fd);
    if (mapped == MAP_FAILED || ((struct clock_page *)mapped)->magic != CLOCK_MAGIC)
        return;
    struct sigaction action = {.sa_handler = ring};
    (void)sigaction(CLOCK_SIGNAL, &action, NULL);
    (void)pthread_atfork(NULL, NULL, forget_thread);
    page = mapped;
}

/* After exec a thread has its place already. */
static struct clock_thread *place_of(int32_t tid, int32_t pid)
{
    uint32_t high = atomic_load(&page->high);
    for (uint32_t i = 0; i < high; i++)
        if (atomic_load(&page->thread[i].tid) == tid)
            return &page->thread[i];
    for (uint32_t i = 0; i < CLOCK_THREADS; i++) {
        struct clock_thread *t = &page->thread[i];
        int32_t none = 0;
        if (!atomic_compare_exchange_strong(&t->tid, &none, -1))
            continue;
        t->pid = pid;
        atomic_store(&t->state, CLOCK_RUNS);
        atomic_store(&t->tid, tid);
        atomic_fetch_add(&page->kicks, 1);
        uint32_t seen = atomic_load(&page->high);
        while (seen < i + 1 && !atomic_compare_exchange_weak(&page->high, &seen, i + 1))
            ;
        return t;
    }
    return NULL;
}

static struct clock_thread *enter(void)
{
    if (me || !page)
        return me;
    int32_t pid = (int32_t)kernel(SYS_getpid, 0, 0, 0, 0, 0, 0);
    me = place_of((int32_t)kernel(SYS_gettid, 0, 0, 0, 0, 0, 0), pid);
    if (!me)
        return NULL;
    me->pid = pid;
    atomic_store(&me->state, CLOCK_RUNS);
    uint64_t mask = 1ULL << (CLOCK_SIGNAL - 1);
    (void)kernel(SYS_rt_sigprocmask, SIG_BLOCK, (long)&mask, 0, KERNEL_SIGSET, 0, 0);
    return me;
}

static void announce(struct clock_thread *t, enum clock_state state, uint64_t until_ns)
{
    reads = 0;
    atomic_store(&t->deadline_ns, until_ns);
    atomic_fetch_add(&t->waits, 1);
    atomic_store(&t->state, state);
    atomic_fetch_add(&page->bell, 1);
    if (atomic_exchange(&page->listening, 0))
        (void)kernel(SYS_futex, (long)&page->bell, FUTEX_WAKE, 1, 0, 0, 0);
}

static uint64_t after(uint64_t now_ns, uint64_t ns)
{
    return ns > UINT64_MAX / 4 ? CLOCK_NEVER : now_ns + ns + CLOCK_WAKE_NS;
}

static void sleep_until(struct clock_thread *t, uint64_t until_ns)
{
    if (until_ns <= atomic_load(&page->now_ns))
        return;
    announce(t, CLOCK_SLEEPS, until_ns);
    while (atomic_load(&t->state) == CLOCK_SLEEPS)
        (void)kernel(SYS_futex, (long)&t->state, FUTEX_WAIT, CLOCK_SLEEPS, 0, 0, 0);
}

static uint64_t ns_of(const struct timespec *ts)
{
    return (uint64_t)ts->tv_sec * S_NS + (uint64_t)ts->tv_nsec;
}

/* ---- reading and sleeping ---- */

static bool ours(clockid_t id)
{
    return id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_RAW || id == CLOCK_MONOTONIC_COARSE ||
           id == CLOCK_BOOTTIME;
}

EXPORT int clock_gettime(clockid_t id, struct timespec *ts)
{
    struct clock_thread *t = ours(id) ? enter() : NULL;
    if (!t)
        return (int)given(kernel(SYS_clock_gettime, id, (long)ts, 0, 0, 0, 0));
    uint64_t now = atomic_load(&page->now_ns);
    if (++reads > READS_MOST) {
        sleep_until(t, now + READS_STEP_NS);
        now = atomic_load(&page->now_ns);
    }
    ts->tv_sec = (time_t)(now / S_NS);
    ts->tv_nsec = (long)(now % S_NS);
    return 0;
}

EXPORT int clock_nanosleep(clockid_t id, int flags, const struct timespec *ts,
                           struct timespec *left)
{
    struct clock_thread *t =
        ours(id) || (id == CLOCK_REALTIME && !(flags & TIMER_ABSTIME)) ? enter() : NULL;
    if (!t)
        return (int)-kernel(SYS_clock_nanosleep, id, flags, (long)ts, (long)left, 0, 0);
    uint64_t now = atomic_load(&page->now_ns), ns = ns_of(ts);
    if (flags & TIMER_ABSTIME)
        ns = ns > now ? ns - now : 0;
    sleep_until(t, after(now, ns));
    return 0;
}

EXPORT int nanosleep(const struct timespec *ts, struct timespec *left)
{
    int r = clock_nanosleep(CLOCK_MONOTONIC, 0, ts, left);
    errno = r ? r : errno;
    return r ? -1 : 0;
}

EXPORT int usleep(useconds_t us)
{
    struct timespec ts = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
    return nanosleep(&ts, NULL);
}

EXPORT unsigned int sleep(unsigned int s)
{
    struct timespec ts = {.tv_sec = (time_t)s};
    (void)nanosleep(&ts, NULL);
    return 0;
}

/* ---- waiting for descriptors ---- */

/* The mask in which a wait may be ended: the given one, or the thread's. */
static uint64_t waiting_mask(const sigset_t *mask)
{
    uint64_t bits = 0;
    if (mask)
        memcpy(&bits, mask, sizeof(bits));
    else
        (void)kernel(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)&bits, KERNEL_SIGSET, 0, 0);
    return bits & ~(1ULL << (CLOCK_SIGNAL - 1));
}

/* Where a kernel call that takes no limit was ended: by the clock, and is it time? Else it goes on. */
static bool time_is_up(struct clock_thread *t, long r, uint64_t until_ns, bool *ret_again)
{
    bool by_clock = rung != 0;
    atomic_store(&t->state, CLOCK_RUNS);
    *ret_again = false;
    if (r != -EINTR || !by_clock)
        return false;
    *ret_again = atomic_load(&page->now_ns) < until_ns;
    return !*ret_again;
}

EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask)
{
    struct clock_thread *t = enter();
    bool now = ts && ns_of(ts) == 0, again = true, up = false;
    if (!t || now)
        return (int)given(
            kernel(SYS_ppoll, (long)fds, (long)n, (long)ts, (long)mask, KERNEL_SIGSET, 0));
    uint64_t until = ts ? after(atomic_load(&page->now_ns), ns_of(ts)) : CLOCK_NEVER;
    uint64_t bits = waiting_mask(mask);
    long r = 0;
    while (again) {
        rung = 0;
        announce(t, CLOCK_POLLS, until);
        r = kernel(SYS_ppoll, (long)fds, (long)n, 0, (long)&bits, KERNEL_SIGSET, 0);
        up = time_is_up(t, r, until, &again);
    }
    if (!up)
        return (int)given(r);
    for (nfds_t i = 0; i < n; i++)
        fds[i].revents = 0;
    return 0;
}

EXPORT int poll(struct pollfd *fds, nfds_t n, int ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    return ppoll(fds, n, ms < 0 ? NULL : &ts, NULL);
}

/* The first of this process's timers, and its number. */
static uint64_t next_timer(size_t *ret)
{
    uint64_t first = CLOCK_NEVER;
    (void)pthread_mutex_lock(&timers_lock);
    for (size_t i = 0; i < MAX_TIMERS; i++)
        if (timers[i].fd && timers[i].at_ns < first) {
            first = timers[i].at_ns;
            *ret = i;
        }
    (void)pthread_mutex_unlock(&timers_lock);
    return first;
}

/* Makes the timer readable, really. */
static void fire(size_t i)
{
    struct itimerspec soon = {.it_value.tv_nsec = 1};
    (void)pthread_mutex_lock(&timers_lock);
    int fd = timers[i].fd - 1;
    timers[i].fd = 0;
    (void)pthread_mutex_unlock(&timers_lock);
    (void)kernel(SYS_timerfd_settime, fd, 0, (long)&soon, 0, 0, 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    (void)kernel(SYS_ppoll, (long)&p, 1, 0, 0, KERNEL_SIGSET, 0);
}

EXPORT int timerfd_settime(int fd, int flags, const struct itimerspec *its, struct itimerspec *old)
{
    static const struct itimerspec off;
    struct clock_thread *t = enter();
    uint64_t ns = ns_of(&its->it_value);
    if (!t || its->it_interval.tv_sec || its->it_interval.tv_nsec)
        return (int)given(kernel(SYS_timerfd_settime, fd, flags, (long)its, (long)old, 0, 0));
    long r = kernel(SYS_timerfd_settime, fd, 0, (long)&off, (long)old, 0, 0);
    struct timer *mine = NULL;
    (void)pthread_mutex_lock(&timers_lock);
    for (size_t i = 0; r == 0 && i < MAX_TIMERS; i++)
        if (timers[i].fd == fd + 1 || (!timers[i].fd && !mine))
            mine = &timers[i];
    if (mine) {
        mine->fd = ns ? fd + 1 : 0;
        mine->at_ns =
            (flags & TFD_TIMER_ABSTIME ? ns : atomic_load(&page->now_ns) + ns) + CLOCK_WAKE_NS;
    }
    (void)pthread_mutex_unlock(&timers_lock);
    return (int)given(r);
}

EXPORT int epoll_wait(int fd, struct epoll_event *events, int most, int ms)
{
    struct clock_thread *t = ms ? enter() : NULL;
    if (!t)
        return (int)given(kernel(SYS_epoll_pwait, fd, (long)events, most, ms, 0, KERNEL_SIGSET));
    uint64_t limit =
        ms < 0 ? CLOCK_NEVER : after(atomic_load(&page->now_ns), (uint64_t)ms * 1000000);
    uint64_t bits = waiting_mask(NULL);
    bool again = true;
    long r = 0;
    while (again) {
        size_t timer = MAX_TIMERS;
        uint64_t until = next_timer(&timer);
        if (until <= atomic_load(&page->now_ns)) {
            fire(timer);
            until = next_timer(&timer);
        }
        until = limit < until ? limit : until;
        rung = 0;
        announce(t, CLOCK_POLLS, until);
        r = kernel(SYS_epoll_pwait, fd, (long)events, most, -1, (long)&bits, KERNEL_SIGSET);
        if (time_is_up(t, r, until, &again)) {
            if (limit <= atomic_load(&page->now_ns))
                return 0;
            again = true;
        }
    }
    return (int)given(r);
}

/* ---- waking others ---- */

/* After this somebody else may be able to run whose time has not come. */
static void kick(void)
{
    if (page)
        atomic_fetch_add(&page->kicks, 1);
}

EXPORT ssize_t write(int fd, const void *data, size_t bytes)
{
    kick();
    return (ssize_t)given(kernel(SYS_write, fd, (long)data, (long)bytes, 0, 0, 0));
}

EXPORT ssize_t sendto(int fd, const void *data, size_t bytes, int flags, const struct sockaddr *to,
                      socklen_t size)
{
    kick();
    return (ssize_t)given(
        kernel(SYS_sendto, fd, (long)data, (long)bytes, flags, (long)to, (long)size));
}

EXPORT ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    return sendto(fd, data, bytes, flags, NULL, 0);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    kick();
    return (ssize_t)given(kernel(SYS_sendmsg, fd, (long)message, flags, 0, 0, 0));
}

/* ---- waiting for a word ---- */

struct both {
    uint64_t value, address;
    uint32_t flags, reserved;
};
#define WORD_32      2U
#define WORD_PRIVATE 128U

static long wait_word(struct clock_thread *t, uint32_t *word, int op, uint32_t value,
                      const struct timespec *ts)
{
    uint64_t until = after(atomic_load(&page->now_ns), ns_of(ts));
    struct both both[2] = {
        {.value = value,
         .address = (uintptr_t)word,
         .flags = WORD_32 | (op & FUTEX_PRIVATE_FLAG ? WORD_PRIVATE : 0)},
        {.value = CLOCK_WAITS, .address = (uintptr_t)&t->state, .flags = WORD_32}};
    announce(t, CLOCK_WAITS, until);
    long r = kernel(SYS_futex_waitv, (long)both, 2, 0, 0, 0, 0);
    bool up = atomic_exchange(&t->state, CLOCK_RUNS) == CLOCK_RUNS;
    if (r == 1 || (up && r != 0))
        return -ETIMEDOUT;
    return r > 0 ? 0 : r;
}

EXPORT long syscall(long n, ...)
{
    long a[6];
    va_list args;
    va_start(args, n);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    bool waits = n == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT && a[3];
    struct clock_thread *t = waits ? enter() : NULL;
    if (n == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAKE)
        kick();
    if (t)
        return given(wait_word(t, (uint32_t *)a[0], (int)a[1], (uint32_t)a[2],
                               (const struct timespec *)a[3]));
    return given(kernel(n, a[0], a[1], a[2], a[3], a[4], a[5]));
}
