/* SPDX-License-Identifier: Apache-2.0 */
/* Run by bench_clock: everything that waits does so by the benchmark's clock, to the nanosecond. */
#include "clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ULL

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            (void)fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #cond);             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static uint64_t now(clockid_t id)
{
    struct timespec ts;
    CHECK(clock_gettime(id, &ts) == 0);
    return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

static void sleep_ns(uint64_t ns)
{
    struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    CHECK(nanosleep(&ts, NULL) == 0);
}

/* Each takes 3 ms, and the moment that a thread takes to come back. */
static void wait_in_every_way(void)
{
    struct timespec ts = {.tv_nsec = 3 * MS};
    uint64_t from = now(CLOCK_MONOTONIC), each = 3 * MS + CLOCK_WAKE_NS;
    sleep_ns(3 * MS);
    CHECK(now(CLOCK_MONOTONIC) - from == each);
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    struct pollfd p = {.fd = pipes[0], .events = POLLIN};
    CHECK(poll(&p, 1, 3) == 0 && now(CLOCK_MONOTONIC) - from == 2 * each);
    CHECK(ppoll(&p, 1, &ts, NULL) == 0 && now(CLOCK_MONOTONIC) - from == 3 * each);
    uint32_t word = 7;
    CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 7, &ts, NULL, 0) == -1 &&
          errno == ETIMEDOUT);
    CHECK(now(CLOCK_MONOTONIC) - from == 4 * each);
    CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 8, &ts, NULL, 0) == -1 && errno == EAGAIN);
    int all = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct epoll_event e = {.events = EPOLLIN};
    CHECK(all >= 0 && timer >= 0 && epoll_ctl(all, EPOLL_CTL_ADD, timer, &e) == 0);
    struct itimerspec in = {.it_value = ts};
    CHECK(timerfd_settime(timer, 0, &in, NULL) == 0);
    CHECK(epoll_wait(all, &e, 1, -1) == 1 && now(CLOCK_MONOTONIC) - from == 5 * each);
    uint64_t count;
    CHECK(read(timer, &count, sizeof(count)) == sizeof(count) && count == 1);
    CHECK(epoll_wait(all, &e, 1, 3) == 0 && now(CLOCK_MONOTONIC) - from == 6 * each);
    /* What is there is seen at once. */
    CHECK(write(pipes[1], "x", 1) == 1 && poll(&p, 1, 1000) == 1);
    CHECK(now(CLOCK_MONOTONIC) - from == 6 * each);
}

static pthread_barrier_t both;

/* A thread is known to the clock once it has looked at it: only then do they begin. */
static void *sleeper(void *arg)
{
    uint64_t ns = *(uint64_t *)arg;
    (void)now(CLOCK_MONOTONIC);
    (void)pthread_barrier_wait(&both);
    uint64_t from = now(CLOCK_MONOTONIC);
    for (int i = 0; i < 100; i++)
        sleep_ns(ns);
    CHECK(now(CLOCK_MONOTONIC) - from == 100 * (ns + CLOCK_WAKE_NS));
    return NULL;
}

/* Time does not go on while somebody computes, however long that takes. */
static void the_clock_waits(void)
{
    _Atomic uint32_t *done =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(done != MAP_FAILED);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        uint64_t from = now(CLOCK_MONOTONIC), used = now(CLOCK_PROCESS_CPUTIME_ID);
        atomic_store(done, 1);
        while (now(CLOCK_PROCESS_CPUTIME_ID) < used + 50 * MS)
            ;
        CHECK(now(CLOCK_MONOTONIC) == from);
        atomic_store(done, 2);
        _exit(0);
    }
    while (atomic_load(done) == 0)
        ;
    uint64_t from = now(CLOCK_MONOTONIC);
    sleep_ns(MS);
    CHECK(atomic_load(done) == 2 && now(CLOCK_MONOTONIC) == from + MS + CLOCK_WAKE_NS);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    wait_in_every_way();
    the_clock_waits();
    /* Two threads, side by side. */
    uint64_t ns[2] = {MS, 2 * MS};
    pthread_t thread[2];
    CHECK(pthread_barrier_init(&both, NULL, 2) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&thread[i], NULL, sleeper, &ns[i]) == 0);
    CHECK(pthread_join(thread[0], NULL) == 0 && pthread_join(thread[1], NULL) == 0);
    /* Who only reads the clock until a moment gets there. */
    uint64_t from = now(CLOCK_MONOTONIC);
    while (now(CLOCK_MONOTONIC) < from + MS)
        ;
    return 0;
}
