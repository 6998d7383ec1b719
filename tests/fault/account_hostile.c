/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant that scribbles over its ledger as fast as it can while the arbiter works on the page:
 * nothing crashes, every call of the arbiter comes back in bounded time, and once the tenant is gone
 * the books are as good as new.
 *
 *   account_hostile SEED SECONDS
 */
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
#include "shm/account.h"
#include "shm/pages.h"
#include "shm/shared.h"

enum { LIARS = 3, SLOTS = 8, LONGEST_S = 20 };

static struct sl_ledger_map ledger = SL_LEDGER_MAP_INIT;

static void lie(uint64_t seed)
{
    struct rng r = {seed};
    struct sl_ledger_page *p = ledger.page;
    for (;;) {
        uint32_t gpu = (uint32_t)rng_below(&r, SL_MAX_GPUS), slot = (uint32_t)rng_below(&r, SLOTS);
        struct sl_slot_memory *m = &p->slot[slot].memory[gpu];
        uint64_t v = rng_below(&r, 3) ? rng_next(&r) : rng_below(&r, 100);
        switch (rng_below(&r, 7)) {
        case 0:
            atomic_store(&p->total[gpu].word, v);
            break;
        case 1: /* a tag that invites the arbiter to help */
            atomic_store(&p->total[gpu].word, (v & 0xffffff) | (uint64_t)slot << 40 |
                                                  (atomic_load(&m->applied) + 1) << 52);
            break;
        case 2:
            atomic_store(&m->applied, v);
            break;
        case 3:
            atomic_store(&m->used[v & 1], v);
            break;
        case 5: /* entries of shared memory, in any state, with any holders */
            atomic_store(&p->slot[SL_PROCESS_SLOTS + slot % 512].shared.state, (uint32_t)v);
            atomic_store(&p->slot[SL_PROCESS_SLOTS + slot % 512].shared.id, v >> 7);
            atomic_store(
                &p->slot[SL_PROCESS_SLOTS + slot % 512].shared.holder[v % SL_SHARED_HOLDERS],
                (uint16_t)(v >> 9));
            break;
        case 4: /* the header: nobody may depend on it after attaching */
            ((volatile char *)p)[rng_below(&r, 64)] = (char)v;
            break;
        default:
            sl_account_release(p, slot, gpu, v);
            (void)!sl_account_reserve(p, slot, gpu, v & 0xffff, UINT64_MAX);
        }
    }
}

static bool is_dead(uint32_t slot, const void *arg)
{
    return slot % SLOTS == *(const uint32_t *)arg;
}

static bool arbiter_step(struct rng *r, uint64_t *unfinished)
{
    uint32_t gpu = (uint32_t)rng_below(r, SL_MAX_GPUS), slot = (uint32_t)rng_below(r, SLOTS);
    switch (rng_below(r, 200)) {
    case 0:
        sl_account_clear(ledger.page);
        sl_shared_clear(ledger.page);
        break;
    case 1:
    case 2:
        if (!sl_shared_reap(ledger.page, is_dead, &slot, NULL))
            (*unfinished)++;
        break;
    default:
        if (!sl_account_reap(ledger.page, slot))
            (*unfinished)++;
    }
    return sl_account_total(ledger.page, gpu) < (1ULL << 40) &&
           sl_account_slot(ledger.page, slot, gpu) < (1ULL << 40) &&
           sl_shared_held(ledger.page, slot, gpu) < (1ULL << 50);
}

/* With the liars gone the page must be usable: the next process of the tenant starts from zero. */
static bool books_are_good(void)
{
    struct sl_ledger_page *p = ledger.page;
    sl_account_clear(p);
    sl_shared_clear(p);
    for (uint32_t g = 0; g < SL_MAX_GPUS; g++) {
        for (uint32_t s = 0; s < SLOTS; s++)
            if (sl_account_slot(p, s, g) != 0 || sl_account_reserve(p, s, g, 10, 10 * (s + 1)) != 0)
                return false;
        if (sl_account_total(p, g) != 10 * SLOTS || sl_account_reserve(p, 0, g, 1, 10 * SLOTS) == 0)
            return false;
        for (uint32_t s = 0; s < SLOTS; s++)
            if (!sl_account_reap(p, s))
                return false;
        if (sl_account_total(p, g) != 0)
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    static const uint8_t cookie[16] = {1};
    if (argc != 3 || sl_ledger_create(cookie, SL_MAX_GPUS, &ledger, NULL) < 0)
        return 2;
    uint64_t seed = strtoull(argv[1], NULL, 10), calls = 0, unfinished = 0, slowest_ns = 0;
    pid_t liar[LIARS];
    for (int i = 0; i < LIARS; i++) {
        liar[i] = fork();
        if (liar[i] == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            lie(seed + (uint64_t)i);
        }
    }
    struct rng r = {seed};
    bool good = true;
    uint64_t now = sl_now_ns(), end = now + strtoull(argv[2], NULL, 10) * SL_NS_PER_S;
    while (good && now < end) {
        (void)alarm(LONGEST_S); /* a call that does not come back ends the test */
        good = arbiter_step(&r, &unfinished);
        uint64_t after = sl_now_ns();
        slowest_ns = after - now > slowest_ns ? after - now : slowest_ns;
        now = after;
        calls++;
    }
    for (int i = 0; i < LIARS; i++) {
        (void)kill(liar[i], SIGKILL);
        int status = 0;
        good &= waitpid(liar[i], &status, 0) == liar[i] && WIFSIGNALED(status) &&
                WTERMSIG(status) == SIGKILL;
    }
    bool usable = books_are_good();
    printf("%" PRIu64 " calls against %d liars, %" PRIu64 " put off, slowest %.1f ms; books %s\n",
           calls, LIARS, unfinished, (double)slowest_ns / 1e6,
           usable ? "good afterwards" : "BROKEN afterwards");
    return good && usable && calls > 0 ? 0 : 1;
}
