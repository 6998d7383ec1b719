/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hook table (hooks.def) in C, and how to call the driver's function behind a hook.
 *
 *     SL_REAL_OR_RETURN(cuMemAlloc_v2, real);
 *     rc = real(dptr, bytesize);
 */
#ifndef SLUICE_PRELOAD_HOOKS_H
#define SLUICE_PRELOAD_HOOKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/cuda.h"
#include "abi/nvml.h"

enum sl_library { SL_LIBRARY_CUDA, SL_LIBRARY_NVML, SL_LIBRARY_COUNT };

/* Hooks first, so that an id below SL_HOOK_COUNT indexes sl_hooks. */
enum sl_symbol {
#define SL_HOOK(symbol, library) SL_SYMBOL_##symbol,
#include "preload/hooks.def"
    SL_HOOK_COUNT,
    SL_USE_BASE = SL_HOOK_COUNT - 1,
#define SL_USE(symbol, library) SL_SYMBOL_##symbol,
#include "preload/hooks.def"
    SL_SYMBOL_COUNT,
};

struct sl_hook {
    const char *name;
    void *wrapper;
    enum sl_library library;
    int since; /* CUDA version, or NVML driver branch, that introduced the symbol */
};

extern const struct sl_hook sl_hooks[SL_HOOK_COUNT];

/* The table decides which symbols are visible outside. */
#define SL_HOOK(symbol, library)                                                                   \
    extern __typeof__(symbol) symbol __attribute__((visibility("default")));
#include "preload/hooks.def"

/* ---- the driver's function of a symbol (resolve.c) ---- */
#define SL_REAL_MISSING ((void *)1)
extern void *_Atomic sl_real_cache[SL_SYMBOL_COUNT];
void *sl_real_slow(enum sl_symbol symbol);

/* The function of the driver, or NULL if this driver does not have it. Never a wrapper of
 * libsluice. */
static inline void *sl_real(enum sl_symbol symbol)
{
    void *p = atomic_load_explicit(&sl_real_cache[symbol], memory_order_acquire);
    if (__builtin_expect(p > SL_REAL_MISSING, 1))
        return p;
    return p == SL_REAL_MISSING ? NULL : sl_real_slow(symbol);
}

#define SL_REAL(symbol) ((__typeof__(&symbol))(uintptr_t)sl_real(SL_SYMBOL_##symbol))

/* The same without a call: NULL also where it was not looked up yet. */
static inline void *sl_real_known(enum sl_symbol symbol)
{
    void *p = atomic_load_explicit(&sl_real_cache[symbol], memory_order_acquire);
    return __builtin_expect(p > SL_REAL_MISSING, 1) ? p : NULL;
}

#define SL_REAL_KNOWN(symbol) ((__typeof__(&symbol))(uintptr_t)sl_real_known(SL_SYMBOL_##symbol))

/* Declares `var`, the driver's `symbol`; if the driver does not have it, the call is not supported. */
#define SL_REAL_OR_RETURN(symbol, var)                                                             \
    __typeof__(&symbol) var = SL_REAL(symbol);                                                     \
    if (!(var))                                                                                    \
    return CUDA_ERROR_NOT_SUPPORTED

/* Any other symbol that the driver's library itself defines, or NULL. *ret_loaded: the library is loaded. */
void *sl_driver_symbol(enum sl_library library, const char *name, bool *ret_loaded);

/* ---- lookups ---- */
const struct sl_hook *sl_hook_by_name(const char *name);

/* The wrapper for the entry that the driver chose for cuGetProcAddress(stem, …, version, flags);
 * NULL if libsluice does not hook that entry. */
void *sl_hook_wrapper_for(const char *stem, void *entry, int version, uint64_t flags);

#endif
