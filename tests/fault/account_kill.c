/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory account under SIGKILL. Real processes reserve and release at random over one ledger
 * page; they are killed at each named fault point in turn (given as arguments), then a thousand
 * times and more at random moments, half of them from outside and half inside the account's own
 * steps. Every process that dies is reaped as the arbiter would do it.
 *
 * Checked: after every single operation, and by an observer all the while, that no more is granted
 * than the limit; at every death, that the account knows exactly what the dead process had; with the
 * world stopped, that the total is the sum of the slots and each slot what its owner believes; at
 * the end, that nothing is left.
 *
 *   account_kill SEED KILLS OPERATIONS POINT…
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/rng.h"
#include "base/clock.h"
#include "base/fault.h"
#include "shm/account.h"
#include "shm/pages.h"

enum { WORKERS = 8, GPUS = 2, LIMIT = 4096, PATIENCE_S = 120 };

/* What a worker believes, where the supervisor can read it after its death. */
struct belief {
    _Atomic int64_t held[GPUS];
    _Atomic int64_t intent[GPUS]; /* what the operation in progress would change */
    _Atomic uint64_t operations;
    _Atomic uint64_t refused;
};

struct world {
    struct belief worker[WORKERS];
    _Atomic uint64_t observations;
    _Atomic uint64_t most_seen;
    _Atomic int stop;
    _Atomic int broken; /* somebody saw more granted than the limit */
};

static struct world *world;
static struct sl_ledger_map ledger = SL_LEDGER_MAP_INIT;
static pid_t worker_pid[WORKERS];
static uint64_t seed;
static uint64_t kills;

/* Slots spread over the page, so that tags with every bit take part. */
static uint32_t slot_of(int worker)
{
    return (uint32_t)worker * 585U;
}

static void fail(const char *what, int worker, int gpu, int64_t got, int64_t want)
{
    fprintf(stderr,
            "FAILED: %s: worker %d gpu %d: %" PRId64 ", expected %" PRId64 " (seed %" PRIu64
            ", after %" PRIu64 " kills)\n",
            what, worker, gpu, got, want, seed, kills);
    for (int i = 0; i < WORKERS; i++)
        if (worker_pid[i] > 0)
            (void)kill(worker_pid[i], SIGKILL);
    atomic_store(&world->stop, 1);
    exit(1);
}

static void look(uint32_t gpu)
{
    uint64_t total = sl_account_total(ledger.page, gpu);
    if (total > LIMIT)
        atomic_store(&world->broken, 1);
    if (total > atomic_load(&world->most_seen))
        atomic_store(&world->most_seen, total);
}

static void operate(struct belief *b, uint32_t slot, uint32_t gpu, struct rng *r)
{
    int64_t held = atomic_load(&b->held[gpu]);
    /* Sizes make the limit bite: eight workers want about 1.5 times what there is. */
    if (rng_below(r, 100) < 55) {
        uint64_t units = 1 + rng_below(r, 2 * LIMIT / WORKERS);
        atomic_store(&b->intent[gpu], (int64_t)units);
        if (sl_account_reserve(ledger.page, slot, gpu, units, LIMIT) == 0)
            atomic_store(&b->held[gpu], held + (int64_t)units);
        else
            atomic_fetch_add(&b->refused, 1);
    } else {
        uint64_t units = rng_below(r, (uint64_t)held + 1);
        atomic_store(&b->intent[gpu], -(int64_t)units);
        sl_account_release(ledger.page, slot, gpu, units);
        atomic_store(&b->held[gpu], held - (int64_t)units);
    }
    atomic_store(&b->intent[gpu], 0);
    atomic_fetch_add(&b->operations, 1);
    look(gpu);
}

static void work(int worker, uint64_t rng_seed)
{
    struct rng r = {rng_seed};
    struct belief *b = &world->worker[worker];
    while (!atomic_load(&world->stop))
        operate(b, slot_of(worker), (uint32_t)rng_below(&r, GPUS), &r);
    _exit(0);
}

static void start_worker(int worker, const char *fault)
{
    struct belief *b = &world->worker[worker];
    for (int g = 0; g < GPUS; g++) {
        atomic_store(&b->held[g], 0);
        atomic_store(&b->intent[g], 0);
    }
    uint64_t rng_seed = seed * 1000003 + kills * 31 + (uint64_t)worker;
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(1);
    }
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (fault)
            (void)setenv("SLUICE_FAULT", fault, 1);
        work(worker, rng_seed);
    }
    worker_pid[worker] = pid;
}

static pid_t start_observer(void)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (!atomic_load(&world->stop)) {
        for (uint32_t g = 0; g < GPUS; g++)
            look(g);
        /* What the arbiter does where it doubts the total: in the middle of the work it changes nothing that is right. */
        sl_account_true_up(ledger.page, (uint32_t)(atomic_load(&world->observations) % GPUS));
        atomic_fetch_add(&world->observations, 1);
        /* Two cores are enough for this test; an observer that never yields starves the workers. */
        if (atomic_load(&world->observations) % 64 == 0)
            sl_sleep_ns(20 * SL_NS_PER_US);
    }
    _exit(0);
}

/* The account's word for a slot whose owner stands still (dead or stopped) against the owner's. */
static void compare_with_belief(int worker, const char *when)
{
    const struct belief *b = &world->worker[worker];
    for (uint32_t g = 0; g < GPUS; g++) {
        int64_t has = (int64_t)sl_account_slot(ledger.page, slot_of(worker), g);
        int64_t held = atomic_load(&b->held[g]), intent = atomic_load(&b->intent[g]);
        if (has != held && has != held + intent)
            fail(when, worker, (int)g, has, held);
    }
}

static void bury(int worker)
{
    int status;
    if (waitpid(worker_pid[worker], &status, 0) != worker_pid[worker] || !WIFSIGNALED(status) ||
        WTERMSIG(status) != SIGKILL)
        fail("a worker did not die by SIGKILL", worker, 0, status, SIGKILL);
    worker_pid[worker] = 0;
    kills++;
    compare_with_belief(worker, "a dead worker's account");
}

static void reap(int worker)
{
    /* The others go on working; bounded tries may have to be repeated. */
    for (int i = 0; !sl_account_reap(ledger.page, slot_of(worker)); i++)
        if (i > 1000)
            fail("reaping does not finish", worker, 0, i, 1000);
    for (uint32_t g = 0; g < GPUS; g++) {
        uint64_t left = sl_account_slot(ledger.page, slot_of(worker), g);
        if (left != 0)
            fail("a reaped slot is not empty", worker, (int)g, (int64_t)left, 0);
    }
    if (atomic_load(&world->broken))
        fail("more was granted than the limit", worker, 0, 1, 0);
}

/* Stops every worker where it stands and compares all the books. */
static void audit(void)
{
    for (int i = 0; i < WORKERS; i++)
        (void)kill(worker_pid[i], SIGSTOP);
    bool dead[WORKERS] = {false};
    for (int i = 0; i < WORKERS; i++) {
        siginfo_t info;
        memset(&info, 0, sizeof(info));
        if (waitid(P_PID, (id_t)worker_pid[i], &info, WSTOPPED | WEXITED | WNOWAIT) != 0)
            fail("waitid", i, 0, errno, 0);
        dead[i] = info.si_code == CLD_KILLED; /* its own fault point was quicker */
    }
    for (uint32_t g = 0; g < GPUS; g++) {
        int64_t sum = 0;
        for (int i = 0; i < WORKERS; i++)
            sum += (int64_t)sl_account_slot(ledger.page, slot_of(i), g);
        int64_t total = (int64_t)sl_account_total(ledger.page, g);
        if (total != sum)
            fail("the total is not the sum of the slots", -1, (int)g, total, sum);
    }
    for (int i = 0; i < WORKERS; i++) {
        compare_with_belief(i, "a stopped worker's account");
        if (!dead[i])
            (void)kill(worker_pid[i], SIGCONT);
    }
}

/* One process dies at the named point, the n-th time it passes; the rest go on. */
static void kill_at_point(const char *point, int worker, unsigned n)
{
    char fault[128];
    (void)snprintf(fault, sizeof(fault), "%s:%u", point, n);
    if (strncmp(point, "account.reap.", 13) == 0) {
        /* Here the arbiter is the one that dies, over a process that died before it. */
        pid_t arbiter = 0;
        (void)kill(worker_pid[worker], SIGKILL);
        bury(worker);
        /* A worker that died with nothing makes nothing to reap: no point is passed. */
        bool something = sl_account_slot(ledger.page, slot_of(worker), 0) != 0;
        arbiter = fork();
        if (arbiter == 0) {
            (void)snprintf(fault, sizeof(fault), "%s:1", point);
            (void)setenv("SLUICE_FAULT", fault, 1);
            (void)sl_account_reap(ledger.page, slot_of(worker));
            _exit(0);
        }
        int status;
        if (waitpid(arbiter, &status, 0) != arbiter || (something && !WIFSIGNALED(status)))
            fail("the arbiter outlived its fault point", worker, 0, status, SIGKILL);
    } else {
        (void)kill(worker_pid[worker], SIGKILL);
        bury(worker);
        reap(worker);
        start_worker(worker, fault);
        bury(worker);
    }
    reap(worker);
    start_worker(worker, NULL);
}

static void kill_at_random(struct rng *r)
{
    int worker = (int)rng_below(r, WORKERS);
    if (rng_below(r, 2)) {
        sl_sleep_ns(rng_below(r, 300) * SL_NS_PER_US);
        (void)kill(worker_pid[worker], SIGKILL);
        bury(worker);
        reap(worker);
        start_worker(worker, NULL);
    } else {
        char fault[64];
        (void)snprintf(fault, sizeof(fault), "random:%" PRIu64 ":%" PRIu64, rng_next(r) >> 1,
                       1 + rng_below(r, 2000));
        (void)kill(worker_pid[worker], SIGKILL);
        bury(worker);
        reap(worker);
        start_worker(worker, fault);
        bury(worker);
        reap(worker);
        start_worker(worker, NULL);
    }
}

static uint64_t operations(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < WORKERS; i++)
        sum += atomic_load(&world->worker[i].operations);
    return sum;
}

static void finish(pid_t observer)
{
    atomic_store(&world->stop, 1);
    int status;
    for (int i = 0; i < WORKERS; i++)
        if (waitpid(worker_pid[i], &status, 0) != worker_pid[i] || status != 0)
            fail("a worker ended badly", i, 0, status, 0);
    if (waitpid(observer, &status, 0) != observer || status != 0)
        fail("the observer ended badly", -1, 0, status, 0);
    for (int i = 0; i < WORKERS; i++) {
        worker_pid[i] = 0;
        compare_with_belief(i, "a finished worker's account");
        reap(i);
    }
    for (uint32_t g = 0; g < GPUS; g++)
        if (sl_account_total(ledger.page, g) != 0)
            fail("something is left", -1, (int)g, (int64_t)sl_account_total(ledger.page, g), 0);
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: account_kill SEED KILLS OPERATIONS POINT…\n");
        return 2;
    }
    seed = strtoull(argv[1], NULL, 10);
    uint64_t want_kills = strtoull(argv[2], NULL, 10), want_ops = strtoull(argv[3], NULL, 10);
    static const uint8_t cookie[16] = {1};
    struct sl_err err = SL_ERR_INIT;
    if (sl_ledger_create(cookie, GPUS, &ledger, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (world == MAP_FAILED)
        return 1;
    (void)alarm(PATIENCE_S * 2); /* a hang is a failure too */

    for (int i = 0; i < WORKERS; i++)
        start_worker(i, NULL);
    pid_t observer = start_observer();
    struct rng r = {seed};
    for (int p = 4; p < argc; p++)
        for (unsigned round = 0; round < 12; round++)
            kill_at_point(argv[p], (int)rng_below(&r, WORKERS), 1 + (unsigned)rng_below(&r, 60));
    uint64_t at_points = kills;
    while (kills - at_points < want_kills || operations() < want_ops) {
        kill_at_random(&r);
        if (kills % 16 == 0)
            audit();
    }
    uint64_t refused = 0;
    for (int i = 0; i < WORKERS; i++)
        refused += atomic_load(&world->worker[i].refused);
    finish(observer);
    printf("%d processes, %" PRIu64 " operations (%" PRIu64 " refused at the limit), %" PRIu64
           " kills at %d named points, %" PRIu64 " at random; observer looked %" PRIu64
           " times, most seen %" PRIu64 " of %d units; nothing left\n",
           WORKERS, operations(), refused, at_points, argc - 4, kills - at_points,
           atomic_load(&world->observations), atomic_load(&world->most_seen), LIMIT);
    /* A run in which the limit never bit proves nothing about it. */
    return refused > 0 && atomic_load(&world->most_seen) > LIMIT * 9 / 10 ? 0 : 1;
}
