/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_clock LIBRARY COMMAND...: runs COMMAND, and all that it starts, by a clock that goes on only when none
 * of their threads can run (clock.h). Never faster than PACE times the real clock: a program that just begins
 * is not known yet, and must find the world as it was. Exits with the command's status.
 */
#include "clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PACE          4U
#define LISTEN_NS     50000U
#define LOOK_AGAIN_NS 1000000U
/* All threads are looked at this often at least: a program that ends, or prints, wakes others unseen. */
#define FULL_LOOK_NS  2000000U

static struct clock_page *page;

static uint64_t looked_ns; /* when all threads were seen waiting last … */
static uint32_t looked_kicks;
static uint32_t woken[CLOCK_THREADS], woken_count; /* … and which the clock has woken since */

/* What the kernel says of a thread, kept open. */
static struct look {
    int32_t tid;
    int fd;
} looks[CLOCK_THREADS];

static uint64_t real_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

static void nap(uint64_t ns)
{
    struct timespec ts = {.tv_nsec = (long)ns};
    (void)nanosleep(&ts, NULL);
}

/* Until a thread begins to wait, or a moment has passed. */
static void listen_for(uint32_t rung)
{
    struct timespec ts = {.tv_nsec = LISTEN_NS};
    atomic_store(&page->listening, 1);
    (void)syscall(SYS_futex, &page->bell, FUTEX_WAIT, rung, &ts, NULL, 0);
    atomic_store(&page->listening, 0);
}

static void close_look(uint32_t i)
{
    if (looks[i].tid)
        (void)close(looks[i].fd);
    looks[i].tid = 0;
}

/* 'R', 'S', ...; 0: there is no such thread any more. */
static char kernel_state(uint32_t i, int32_t tid)
{
    char text[128];
    if (looks[i].tid != tid) {
        close_look(i);
        (void)snprintf(text, sizeof(text), "/proc/%d/task/%d/stat", page->thread[i].pid, tid);
        int fd = open(text, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return 0;
        looks[i] = (struct look){.tid = tid, .fd = fd};
    }
    ssize_t n = pread(looks[i].fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    const char *end = strrchr(text, ')');
    return end && end[1] ? end[2] : 0;
}

/* Whether a thread can run. Forgets it if it is gone. */
static bool can_run(uint32_t i)
{
    struct clock_thread *t = &page->thread[i];
    int32_t tid = atomic_load(&t->tid);
    if (tid < 0)
        return true;
    if (tid == 0 || atomic_load(&t->state) == CLOCK_SLEEPS)
        return false;
    char state = kernel_state(i, tid);
    if (state && state != 'Z' && state != 'X')
        return state != 'S' && state != 'T' && state != 't';
    close_look(i);
    atomic_store(&t->state, CLOCK_RUNS);
    atomic_store(&t->tid, 0);
    looked_ns = 0; /* what it had open is closed: others may have seen that */
    return false;
}

/* How often threads have waited, or kicked others, up to now: unchanged, none has run meanwhile. */
static uint64_t history(uint32_t high)
{
    uint64_t sum = atomic_load(&page->kicks);
    for (uint32_t i = 0; i < high; i++)
        sum += atomic_load(&page->thread[i].waits);
    return sum;
}

/*
 * Whether nothing goes on until time does. Once all threads were seen waiting, only those can run that were
 * woken since: by the clock, or by another that kicked them. Where nobody kicked, the others are not looked at.
 */
static bool quiet(uint64_t real)
{
    uint32_t high = atomic_load(&page->high), kicks = atomic_load(&page->kicks);
    bool all = kicks != looked_kicks || real > looked_ns + FULL_LOOK_NS;
    uint64_t before = history(high);
    for (uint32_t i = 0; !all && i < woken_count; i++)
        if (can_run(woken[i]))
            return false;
    for (uint32_t i = 0; all && i < high; i++)
        if (can_run(i))
            return false;
    if (history(high) != before || high != atomic_load(&page->high))
        return false;
    if (all) {
        looked_kicks = kicks;
        looked_ns = real;
    }
    return true;
}

/* The next moment that somebody waits for. */
static uint64_t next_moment(void)
{
    uint64_t next = CLOCK_NEVER;
    for (uint32_t i = 0; i < atomic_load(&page->high); i++) {
        struct clock_thread *t = &page->thread[i];
        uint64_t at = atomic_load(&t->deadline_ns);
        if (atomic_load(&t->tid) > 0 && atomic_load(&t->state) != CLOCK_RUNS && at < next)
            next = at;
    }
    return next;
}

static void wake(struct clock_thread *t)
{
    uint32_t state = atomic_exchange(&t->state, CLOCK_RUNS);
    if (state == CLOCK_POLLS)
        (void)syscall(SYS_tgkill, t->pid, atomic_load(&t->tid), CLOCK_SIGNAL);
    else if (state != CLOCK_RUNS)
        (void)syscall(SYS_futex, &t->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void move_to(uint64_t ns)
{
    if (ns > atomic_load(&page->now_ns))
        atomic_store(&page->now_ns, ns);
    woken_count = 0;
    for (uint32_t i = 0; i < atomic_load(&page->high); i++) {
        struct clock_thread *t = &page->thread[i];
        if (atomic_load(&t->tid) <= 0 || atomic_load(&t->state) == CLOCK_RUNS ||
            atomic_load(&t->deadline_ns) > ns)
            continue;
        woken[woken_count++] = i;
        wake(t);
    }
}

static uint64_t steps;
static volatile sig_atomic_t told_to_end;

static void end(int signal)
{
    told_to_end = signal;
}

/* Until the command ends; its status. */
static int conduct(pid_t command)
{
    uint64_t moved = real_ns();
    for (;;) {
        int status;
        pid_t ended = waitpid(command, &status, WNOHANG);
        if (ended == command)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (ended < 0)
            return 2;
        if (told_to_end) { /* it tidies up, which takes time */
            (void)kill(command, told_to_end);
            told_to_end = 0;
        }
        uint64_t now = atomic_load(&page->now_ns), real = real_ns();
        uint32_t rung = atomic_load(&page->bell);
        uint64_t next = quiet(real) ? next_moment() : CLOCK_NEVER;
        if (next == CLOCK_NEVER) {
            listen_for(rung);
            continue;
        }
        uint64_t takes = next > now ? (next - now) / PACE : 0;
        if (real < moved + takes) { /* look again: somebody may have begun something */
            uint64_t rest = moved + takes - real;
            nap(rest > LOOK_AGAIN_NS ? LOOK_AGAIN_NS : rest);
            looked_ns = 0;
            continue;
        }
        move_to(next);
        moved = real;
        steps++;
    }
}

static int make_page(char *path)
{
    int fd = mkstemp(path);
    if (fd < 0 || ftruncate(fd, sizeof(*page)) != 0)
        return -1;
    void *mapped = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        return -1;
    page = mapped;
    atomic_store(&page->now_ns, real_ns());
    page->magic = CLOCK_MAGIC;
    return close(fd);
}

int main(int argc, char **argv)
{
    char path[] = "/tmp/sluice-clock-XXXXXX";
    if (argc < 3) {
        (void)fprintf(stderr, "usage: bench_clock LIBRARY COMMAND...\n");
        return 2;
    }
    if (make_page(path) != 0) {
        perror("bench_clock");
        return 2;
    }
    pid_t command = fork();
    if (command == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)setenv(CLOCK_ENV, path, 1);
        (void)setenv("LD_PRELOAD", argv[1], 1);
        (void)execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    struct sigaction action = {.sa_handler = end};
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGINT, &action, NULL);
    uint64_t from = atomic_load(&page->now_ns), real = real_ns();
    int status = command < 0 ? 2 : conduct(command);
    (void)fprintf(stderr, "bench_clock: %.1f s on its clock, %.1f s real, %llu steps\n",
                  (double)(atomic_load(&page->now_ns) - from) / 1e9,
                  (double)(real_ns() - real) / 1e9, (unsigned long long)steps);
    (void)unlink(path);
    return status;
}
