/* SPDX-License-Identifier: Apache-2.0 */
/* Finding what the process would find without us: the driver's functions and the C library's. */
#ifndef SLUICE_PRELOAD_RESOLVE_H
#define SLUICE_PRELOAD_RESOLVE_H

#include <stdbool.h>
#include <stdint.h>

/* What the dlsym and dlvsym stubs do next: jump to `target`, or return it. Two registers. */
struct sl_lookup {
    void *target;
    uintptr_t jump;
};

struct sl_lookup sl_resolve_dlsym(void *handle, const char *name, void *caller);
struct sl_lookup sl_resolve_dlvsym(void *handle, const char *name, const char *version,
                                   void *caller);

#endif
