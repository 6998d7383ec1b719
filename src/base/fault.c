/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"

#ifdef SLUICE_FAULTS

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

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

/* The process that removes the file dies. Later processes pass, until a test writes another file. */
static void death_by_file(const char *path, const char *name)
{
    char want[64];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, want, sizeof(want) - 1);
    if (fd >= 0)
        (void)close(fd);
    want[n > 0 ? n : 0] = '\0';
    want[strcspn(want, "\n")] = '\0';
    if (n > 0 && strcmp(want, name) == 0 && unlink(path) == 0)
        die();
}

/* What a test does meanwhile has happened between two instructions of this thread. */
static void hold(const char *spec, const char *name)
{
    size_t n = strlen(name);
    if (strncmp(spec, name, n) != 0 || spec[n] != ':')
        return;
    char *path;
    unsigned long at = strtoul(spec + n + 1, &path, 10);
    if (*path++ != ':' || atomic_fetch_add(&passes, 1) + 1 != at)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        (void)close(fd);
    while (access(path, F_OK) == 0)
        sl_sleep_ns(SL_NS_PER_MS);
}

void sl_fault_point(const char *name)
{
    const char *want = getenv("SLUICE_FAULT");
    if (!want)
        return;
    if (want[0] == '@') {
        death_by_file(want + 1, name);
        return;
    }
    if (strncmp(want, "hold:", 5) == 0) {
        hold(want + 5, name);
        return;
    }
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
/* ISO C wants a declaration in every translation unit. */
typedef int sl_fault_nothing;
#endif
