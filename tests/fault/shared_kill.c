/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory's entries under SIGKILL. Processes make entries, join each other's, leave, and take back, over one
 * ledger page; they die inside the steps at random. Every process that dies is reaped as the
 * arbiter would do it.
 *
 * Checked: who holds an entry finds its units in it every time it looks; with the world stopped, the
 * total is the sum of the slots; at the end nothing is left, and every entry is free.
 *
 *   shared_kill SEED DEATHS
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/rng.h"
#include "shm/account.h"
#include "shm/pages.h"
#include "shm/shared.h"

enum { WORKERS = 6, HELD = 8, OFFERS = 16 };

struct world {
    _Atomic uint64_t offer[OFFERS]; /* ids that others may join */
    _Atomic uint64_t next;
    _Atomic uint64_t joined, made, taken;
};

static struct world *world;
static struct sl_ledger_map ledger = SL_LEDGER_MAP_INIT;

static uint32_t slot_of(int worker)
{
    return (uint32_t)worker * 511U;
}

static uint64_t units_of(uint64_t id)
{
    return id % 61 + 1;
}

struct held {
    int entry;
    uint64_t id;
};

static bool kept_at_times(uint64_t id)
{
    return id % 3 == 0 && rng_below(&(struct rng){id ^ (uint64_t)(uintptr_t)&id}, 2) == 0;
}

static void make(struct rng *r, uint32_t slot, struct held *h)
{
    uint64_t id = atomic_fetch_add(&world->next, 1) + 1;
    if (sl_account_reserve(ledger.page, slot, 0, units_of(id), UINT64_MAX) < 0)
        abort();
    h->entry = sl_shared_make(ledger.page, slot, id, 0, units_of(id), id % 3 == 0);
    h->id = id;
    if (h->entry < 0) {
        sl_account_release(ledger.page, slot, 0, units_of(id));
        return;
    }
    atomic_fetch_add(&world->made, 1);
    atomic_store(&world->offer[rng_below(r, OFFERS)], id);
}

static void join(struct rng *r, uint32_t slot, const struct held *all, struct held *h)
{
    uint64_t id = atomic_load(&world->offer[rng_below(r, OFFERS)]), units = 0;
    uint32_t gpu = 99;
    for (int i = 0; i < HELD; i++)
        if (all[i].entry > 0 && all[i].id == id)
            return; /* a process is one holder */
    int entry = id ? sl_shared_join(ledger.page, slot, id, &gpu, &units) : -ENOENT;
    if (entry < 0)
        return;
    if (gpu != 0 || units != units_of(id))
        abort();
    atomic_fetch_add(&world->joined, 1);
    *h = (struct held){entry, id};
}

/* Its units are the slot's own again, and are gone with the memory; or others have it, and it is left. */
static void take_back(uint32_t slot, const struct held *h)
{
    uint64_t own = sl_account_slot(ledger.page, slot, 0);
    if (!sl_shared_take_back(ledger.page, (uint32_t)h->entry, slot)) {
        if (sl_account_slot(ledger.page, slot, 0) != own)
            abort();
        sl_shared_leave(ledger.page, (uint32_t)h->entry, slot, kept_at_times);
        return;
    }
    if (sl_account_slot(ledger.page, slot, 0) != own + units_of(h->id))
        abort();
    atomic_fetch_add(&world->taken, 1);
    sl_account_release(ledger.page, slot, 0, units_of(h->id));
}

static void work(int worker, uint64_t seed)
{
    struct rng r = {seed};
    struct held held[HELD] = {{0}};
    char fault[64];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)snprintf(fault, sizeof(fault), "random:%llu:400", (unsigned long long)(seed | 1));
    (void)setenv("SLUICE_FAULT", fault, 1);
    for (;;) {
        struct held *h = &held[rng_below(&r, HELD)];
        if (h->entry > 0) {
            if (sl_account_slot(ledger.page, (uint32_t)h->entry, 0) != units_of(h->id))
                abort();
            if (rng_below(&r, 2))
                sl_shared_leave(ledger.page, (uint32_t)h->entry, slot_of(worker), kept_at_times);
            else
                take_back(slot_of(worker), h);
            h->entry = 0;
        } else if (rng_below(&r, 2)) {
            make(&r, slot_of(worker), h);
        } else {
            join(&r, slot_of(worker), held, h);
        }
        if (rng_below(&r, 50) == 0)
            (void)sl_shared_sweep(ledger.page, slot_of(worker), kept_at_times);
    }
}

static bool is_dead(uint32_t slot, const void *arg)
{
    return slot == *(const uint32_t *)arg;
}

static bool never(uint64_t id)
{
    (void)id;
    return false;
}

static void bury(uint32_t slot)
{
    while (!sl_shared_reap(ledger.page, is_dead, &slot, kept_at_times))
        ;
    while (!sl_account_reap(ledger.page, slot))
        ;
}

static pid_t start(int worker, uint64_t seed)
{
    pid_t pid = fork();
    if (pid == 0) {
        work(worker, seed);
        _exit(0);
    }
    return pid;
}

static uint64_t sum(void)
{
    uint64_t all = 0;
    for (uint32_t s = 0; s < SL_MAX_SLOTS; s++)
        all += sl_account_slot(ledger.page, s, 0);
    return all;
}

int main(int argc, char **argv)
{
    struct rng r = {argc > 1 ? strtoull(argv[1], NULL, 10) : 1};
    int deaths = argc > 2 ? atoi(argv[2]) : 200, status;
    const uint8_t cookie[16] = {0};
    struct sl_err err = SL_ERR_INIT;
    pid_t pid[WORKERS];
    world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (world == MAP_FAILED || sl_ledger_create(cookie, 1, &ledger, &err) < 0)
        return 2;
    for (int i = 0; i < WORKERS; i++)
        pid[i] = start(i, rng_next(&r));
    for (int n = 0; n < deaths; n++) {
        pid_t gone = wait(&status);
        int i = 0;
        while (i < WORKERS && pid[i] != gone)
            i++;
        if (i == WORKERS || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
            (void)fprintf(stderr, "worker %d found its units missing (status %x)\n", i,
                          (unsigned)status);
            return 1;
        }
        bury(slot_of(i));
        pid[i] = start(i, rng_next(&r));
    }
    for (int i = 0; i < WORKERS; i++) {
        (void)kill(pid[i], SIGKILL);
        (void)waitpid(pid[i], &status, 0);
    }
    uint64_t total = sl_account_total(ledger.page, 0), slots = sum();
    for (int i = 0; i < WORKERS; i++)
        bury(slot_of(i));
    (void)sl_shared_sweep(ledger.page, slot_of(0), never);
    uint64_t left = sl_account_total(ledger.page, 0), open = 0;
    for (uint32_t e = SL_PROCESS_SLOTS; e < SL_MAX_SLOTS; e++)
        open += atomic_load(&ledger.page->slot[e].shared.state) != 0;
    (void)printf("%d deaths, %llu made, %llu joined, %llu taken back; total %llu, slots %llu; left "
                 "%llu, entries %llu\n",
                 deaths, (unsigned long long)world->made, (unsigned long long)world->joined,
                 (unsigned long long)world->taken, (unsigned long long)total,
                 (unsigned long long)slots, (unsigned long long)left, (unsigned long long)open);
    return total == slots && left == 0 && open == 0 && world->joined > 0 && world->taken > 0 ? 0
                                                                                             : 1;
}
