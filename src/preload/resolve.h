/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the functions that the process would find without libsluice: the driver's and the C library's. */
#ifndef SLUICE_PRELOAD_RESOLVE_H
#define SLUICE_PRELOAD_RESOLVE_H

#include <stdbool.h>
#include <stdint.h>

/* The next step of the dlsym and dlvsym stubs: jump to `target`, or return it. Two registers. */
struct sl_lookup {
    void *target;
    uintptr_t jump;
};

struct sl_lookup sl_resolve_dlsym(void *handle, const char *name, void *caller);
struct sl_lookup sl_resolve_dlvsym(void *handle, const char *name, const char *version,
                                   void *caller);

#endif
