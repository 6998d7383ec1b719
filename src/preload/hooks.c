/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/hooks.h"

#include <stdbool.h>
#include <string.h>

/* The version that introduced each symbol: from the ABI tables, so the hook table need not repeat it. */
enum since {
#define SL_CUDA_FN(name, base, since, args) SINCE_##name = (since),
#define SL_CUDA_FN_PT(name, suf, base, since, args)                                                \
    SINCE_##name = (since), SINCE_##name##suf = (since),
#include "abi/cuda_api.def"
#undef SL_CUDA_FN
#undef SL_CUDA_FN_PT
#define SINCE_NVML(name, since, params) SINCE_##name = (since),
    NVML_FUNCTIONS(SINCE_NVML)
};

const struct sl_hook sl_hooks[SL_HOOK_COUNT] = {
#define SL_HOOK(symbol, lib)                                                                       \
    {                                                                                              \
        .name = #symbol,                                                                           \
        .wrapper = (void *)(uintptr_t)(symbol),                                                    \
        .library = SL_LIBRARY_##lib,                                                               \
        .since = (int)SINCE_##symbol,                                                              \
    },
#include "preload/hooks.def"
};

const struct sl_hook *sl_hook_by_name(const char *name)
{
    /* Programs look up thousands of names, almost none of them hooked: decide by the first letters. */
    if (name[0] == 'c' ? name[1] != 'u' : (name[0] != 'n' || name[1] != 'v'))
        return NULL;
    for (size_t i = 0; i < SL_HOOK_COUNT; i++)
        if (strcmp(sl_hooks[i].name + 2, name + 2) == 0 && sl_hooks[i].name[0] == name[0])
            return &sl_hooks[i];
    return NULL;
}

/* The suffix after the stem: "" "_v2" "_ptsz" "_v2_ptds". */
static bool is_variant(const char *name, const char *stem, size_t stem_length, bool *ret_per_thread)
{
    if (strncmp(name, stem, stem_length) != 0)
        return false;
    const char *rest = name + stem_length;
    if (rest[0] == '_' && rest[1] == 'v' && rest[2] >= '0' && rest[2] <= '9')
        rest += 3;
    *ret_per_thread = strcmp(rest, "_ptsz") == 0 || strcmp(rest, "_ptds") == 0;
    return rest[0] == '\0' || *ret_per_thread;
}

/*
 * A driver may return an address that differs from its exported symbol. Then the driver is asked again, with the
 * version that introduced one of our variants: the same answer means the same ABI. An entry that is newer than all we
 * know stays the driver's: never an older ABI in its place.
 */
static void *wrapper_by_version(const char *stem, void *entry, int version, uint64_t flags)
{
    __typeof__(&cuGetProcAddress_v2) ask = SL_REAL(cuGetProcAddress_v2);
    __typeof__(&cuGetProcAddress) ask_v1 = SL_REAL(cuGetProcAddress);
    bool want_per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    size_t length = strlen(stem);
    const struct sl_hook *best = NULL;
    bool best_per_thread = false;

    for (size_t i = 0; i < SL_HOOK_COUNT; i++) {
        const struct sl_hook *h = &sl_hooks[i];
        bool per_thread = false;
        void *again = NULL;
        CUresult rc = CUDA_ERROR_NOT_SUPPORTED;
        if (h->library != SL_LIBRARY_CUDA || h->since > version ||
            !is_variant(h->name, stem, length, &per_thread) || (per_thread && !want_per_thread))
            continue;
        if (ask)
            rc = ask(stem, &again, h->since, flags, NULL);
        else if (ask_v1)
            rc = ask_v1(stem, &again, h->since, flags);
        if (rc != CUDA_SUCCESS || again != entry)
            continue;
        if (!best || (per_thread && !best_per_thread) ||
            (per_thread == best_per_thread && h->since > best->since)) {
            best = h;
            best_per_thread = per_thread;
        }
    }
    return best ? best->wrapper : NULL;
}

void *sl_hook_wrapper_for(const char *stem, void *entry, int version, uint64_t flags)
{
    for (size_t i = 0; i < SL_HOOK_COUNT; i++)
        if (sl_hooks[i].library == SL_LIBRARY_CUDA &&
            (sl_real((enum sl_symbol)i) == entry || sl_hooks[i].wrapper == entry))
            return sl_hooks[i].wrapper;
    return wrapper_by_version(stem, entry, version, flags);
}
