/* SPDX-License-Identifier: Apache-2.0 */
/* cuGetProcAddress: by base name, version and stream flavour, from the one table. */
#include "sim/cuda_int.h"

#include <string.h>

struct entry {
    const char *base;
    int since;
    void *plain, *per_thread; /* per_thread NULL: no such twin */
};

/* ISO C has no cast from function to object pointer; POSIX promises that it works. */
#define FN(name) __extension__((void *)(uintptr_t)(name))

static struct entry *table(size_t *ret_count)
{
#define SL_CUDA_FN(name, b, s, args)         {.base = b, .since = s},
#define SL_CUDA_FN_PT(name, suf, b, s, args) {.base = b, .since = s},
    static struct entry entries[] = {
#include "abi/cuda_api.def"
    };
#undef SL_CUDA_FN
#undef SL_CUDA_FN_PT
    static _Atomic int filled;
    if (!filled) { /* filling twice at once writes the same values */
        size_t i = 0;
#define SL_CUDA_FN(name, b, s, args) entries[i++].plain = FN(name);
#define SL_CUDA_FN_PT(name, suf, b, s, args)                                                       \
    entries[i].plain = FN(name);                                                                   \
    entries[i++].per_thread = FN(name##suf);
#include "abi/cuda_api.def"
#undef SL_CUDA_FN
#undef SL_CUDA_FN_PT
        filled = 1;
    }
    *ret_count = sizeof(entries) / sizeof(entries[0]);
    return entries;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    if (!symbol || !pfn || flags > 2)
        return CUDA_ERROR_INVALID_VALUE;
    int driver = SL_CUDA_ABI_VERSION;
    (void)cuDriverGetVersion(&driver);
    *pfn = NULL;
    size_t n;
    const struct entry *e = table(&n), *best = NULL;
    bool known = false;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(e[i].base, symbol) != 0 || e[i].since > driver)
            continue;
        known = true;
        if (e[i].since <= cudaVersion && (!best || e[i].since > best->since))
            best = &e[i];
    }
    if (status)
        *status = best    ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                          : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (!best) /* as the real one: with somewhere to say why, not finding is no error of the call */
        return status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
    *pfn = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) && best->per_thread
               ? best->per_thread
               : best->plain;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    return cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, NULL);
}
