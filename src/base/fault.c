/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"

#ifdef SLUICE_FAULTS

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Atomic unsigned long passes;
static _Atomic unsigned long random_state;

static void die(void)
{
    (void)kill(getpid(), SIGKILL);
    for (;;)
        (void)pause();
}

static void random_death(const char *spec)
{
    char *end;
    unsigned long seed = strtoul(spec, &end, 10);
    unsigned long odds = *end == ':' ? strtoul(end + 1, NULL, 10) : 1000;
    unsigned long x = atomic_fetch_add(&random_state, 0x9e3779b97f4a7c15UL) + seed;
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9UL;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebUL;
    x ^= x >> 31;
    if (odds == 0 || x % odds == 0)
        die();
}

void sl_fault_point(const char *name)
{
    const char *want = getenv("SLUICE_FAULT");
    if (!want)
        return;
    if (strncmp(want, "random:", 7) == 0) {
        random_death(want + 7);
        return;
    }
    size_t n = strlen(name);
    if (strncmp(want, name, n) != 0 || (want[n] != '\0' && want[n] != ':'))
        return;
    unsigned long at = want[n] == ':' ? strtoul(want + n + 1, NULL, 10) : 1;
    if (atomic_fetch_add(&passes, 1) + 1 == at)
        die();
}

#else
/* ISO C wants something in every translation unit. */
typedef int sl_fault_nothing;
#endif
