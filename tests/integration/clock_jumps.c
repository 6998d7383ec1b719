/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaded into a tenant beside libsluice: the monotonic clock that libsluice reads jumps back and ahead by
 * up to an hour, ten times a second. Everybody else, the simulated driver too, has the true time.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LONGEST_S 3600

/* glibc's own declaration says nothing of visibility. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *ret);

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    Dl_info caller;
    int rc = (int)syscall(SYS_clock_gettime, clock, ret);
    if (rc != 0 || clock != CLOCK_MONOTONIC || !dladdr(__builtin_return_address(0), &caller) ||
        !caller.dli_fname || !strstr(caller.dli_fname, "libsluice"))
        return rc;
    uint32_t x = (uint32_t)ret->tv_sec * 10 + (uint32_t)(ret->tv_nsec / 100000000);
    x = (x ^ (x >> 16)) * 0x45d9f3bU;
    x = (x ^ (x >> 16)) * 0x45d9f3bU;
    time_t jump = (time_t)(x % (2 * LONGEST_S)) - LONGEST_S;
    ret->tv_sec = ret->tv_sec + jump > 0 ? ret->tv_sec + jump : 1;
    return 0;
}
