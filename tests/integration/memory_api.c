/* SPDX-License-Identifier: Apache-2.0 */
#include "memory_api.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct test_api cu;

struct row {
    const char *name;
    const char *base;
    int since;
    cuuint64_t flags;
};

static const struct row rows[] = {
#define SL_CUDA_FN(name, base, since, args) {#name, base, since, CU_GET_PROC_ADDRESS_LEGACY_STREAM},
#define SL_CUDA_FN_PT(name, suf, base, since, args)                                                \
    {#name, base, since, CU_GET_PROC_ADDRESS_LEGACY_STREAM},                                       \
        {#name #suf, base, since, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM},
#include "abi/cuda_api.def"
};

static void *driver;
static bool use_default, use_v1;

static void *by_dlsym(const char *name)
{
    return dlsym(use_default ? RTLD_DEFAULT : driver, name);
}

static void *by_proc(const char *name)
{
    void *entry = NULL;
    __typeof__(&cuGetProcAddress_v2) ask =
        (__typeof__(ask))(uintptr_t)dlsym(driver, "cuGetProcAddress_v2");
    __typeof__(&cuGetProcAddress) ask_v1 =
        (__typeof__(ask_v1))(uintptr_t)dlsym(driver, "cuGetProcAddress");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(rows[i].name, name) != 0)
            continue;
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
        CUresult rc = use_v1 ? ask_v1(rows[i].base, &entry, rows[i].since, rows[i].flags)
                             : ask(rows[i].base, &entry, rows[i].since, rows[i].flags, &status);
        if (rc != CUDA_SUCCESS || status != CU_GET_PROC_ADDRESS_SUCCESS)
            (void)fprintf(stderr, "%s is not found by cuGetProcAddress: %d\n", name, (int)rc);
    }
    return entry;
}

bool test_api_load(const char *lookup)
{
    if (strcmp(lookup, "direct") == 0) {
#define TEST_API_DIRECT(name) cu.name = name;
        TEST_API(TEST_API_DIRECT)
        return true;
    }
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    use_default = strcmp(lookup, "dlsym-default") == 0;
    use_v1 = strcmp(lookup, "proc-v1") == 0;
    if (!driver)
        return false;
    if (use_default || strcmp(lookup, "dlsym") == 0) {
#define TEST_API_DLSYM(name) cu.name = (__typeof__(cu.name))(uintptr_t)by_dlsym(#name);
        TEST_API(TEST_API_DLSYM)
        return true;
    }
    if (use_v1 || strcmp(lookup, "proc") == 0) {
#define TEST_API_PROC(name) cu.name = (__typeof__(cu.name))(uintptr_t)by_proc(#name);
        TEST_API(TEST_API_PROC)
        return true;
    }
    return false;
}
