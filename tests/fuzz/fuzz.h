/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that every fuzz target offers, to libFuzzer or to driver.c. */
#ifndef SLUICE_TESTS_FUZZ_H
#define SLUICE_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A broken promise is a crash, which is what a fuzzer looks for. */
#define FUZZ_CHECK(cond)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #cond);                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
