/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory that runs out: the n-th allocation fails, alone or with all that follow. CMake's
 * sluice_nth_malloc(target) links it: the calls in the target's own objects come here, and with WHOLE
 * those of its shared libraries too.
 */
#ifndef SLUICE_TESTS_NTH_MALLOC_H
#define SLUICE_TESTS_NTH_MALLOC_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct nth_malloc {
    _Atomic unsigned long fail_at;  /* 0: none fails */
    _Atomic unsigned long asked;    /* allocations since nth_malloc_set() */
    _Atomic unsigned long failures; /* of these */
    _Atomic long live;              /* allocations that are not freed */
    _Atomic bool persistent;        /* all allocations after fail_at fail too */
    _Atomic bool idle; /* the running code is not under test: its allocations are not counted */
};
extern struct nth_malloc nth_malloc;

/* The n-th allocation from now on fails; 0: none. Returns how many there were since the last call. */
unsigned long nth_malloc_set(unsigned long n);

/* For programs without cmocka: says which allocation failed, and ends. */
#define NTH_CHECK(cond)                                                                            \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            nth_malloc.idle = true;                                                                \
            (void)fprintf(stderr, "%s:%d: allocation %lu%s: not true: %s\n", __FILE__, __LINE__,   \
                          nth_malloc.fail_at, nth_malloc.persistent ? " and all after" : "",       \
                          #cond);                                                                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
