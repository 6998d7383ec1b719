/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A clock for a benchmark on simulated GPUs that goes on only when everybody waits.
 *
 * A simulated GPU plays wall time. On a computer that others use, too, wall time goes on while a tenant that
 * would launch now waits for a processor, and figures say how busy the computer was. Here the clock stands
 * still while any thread of the benchmark can run, and jumps to the next moment that somebody waits for when
 * none can. The programs are the real ones; work on the host takes no time, unless it says so by sleeping.
 *
 * clock_preload.c is in each process and waits by this clock instead of the real one. clock.c, the conductor,
 * sees who can run (the kernel says so in /proc) and moves the clock.
 */
#ifndef SLUICE_BENCH_SIM_CLOCK_H
#define SLUICE_BENCH_SIM_CLOCK_H

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

#define CLOCK_ENV     "SLUICE_BENCH_CLOCK" /* the path of the page */
#define CLOCK_MAGIC   0x534c434c4f434b31ULL
#define CLOCK_THREADS 1024
#define CLOCK_NEVER   UINT64_MAX
/* Ends a poll or epoll_wait whose time has come. Blocked everywhere else, so none is lost. */
#define CLOCK_SIGNAL  (SIGRTMAX - 1)
/* From the moment that a thread waits for until it runs: what a processor that is free takes. */
#define CLOCK_WAKE_NS 5000U

enum clock_state {
    CLOCK_RUNS,   /* or waits for something that has nothing to do with time */
    CLOCK_SLEEPS, /* on `state` itself; only the conductor ends that */
    CLOCK_WAITS,  /* on `state` and on a word of its own */
    CLOCK_POLLS,  /* for descriptors; the signal ends it */
};

struct clock_thread {
    _Atomic int32_t tid; /* 0: not used */
    int32_t pid;
    _Atomic uint32_t state;
    uint32_t pad;
    _Atomic uint64_t deadline_ns; /* while it waits */
    _Atomic uint64_t waits;       /* how often it has, so far */
};

struct clock_page {
    uint64_t magic;
    _Atomic uint64_t now_ns;
    _Atomic uint32_t high;  /* threads from here on were never used */
    _Atomic uint32_t kicks; /* something was done that may wake a thread that waits for no time */
    _Atomic uint32_t bell;  /* rung when a thread begins to wait, while the conductor listens */
    _Atomic uint32_t listening;
    struct clock_thread thread[CLOCK_THREADS];
};

#endif
