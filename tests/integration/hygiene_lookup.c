/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hygiene_lookup: run with libsluice preloaded. Every row of hooks.def must lead to libsluice by
 * every way to look a symbol up, and to the very ABI asked for; everything else to the driver.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "abi/cuda.h"

static const struct {
    const char *name;
    bool cuda;
} hooks[] = {
#define IS_CUDA                  true
#define IS_NVML                  false
#define SL_HOOK(symbol, library) {#symbol, IS_##library},
#include "preload/hooks.def"
};

static const struct row {
    const char *name;
    const char *base;
    int since;
    bool per_thread;
    bool has_twin;
} rows[] = {
#define SL_CUDA_FN(name, base, since, args) {#name, base, since, false, false},
#define SL_CUDA_FN_PT(name, suf, base, since, args)                                                \
    {#name, base, since, false, true}, {#name #suf, base, since, true, true},
#include "abi/cuda_api.def"
};

static int failures;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)printf(__VA_ARGS__);                                                             \
            (void)printf("\n");                                                                    \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

static bool is_hook(const char *name)
{
    for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++)
        if (strcmp(hooks[i].name, name) == 0)
            return true;
    return false;
}

static const char *object_of(void *address)
{
    Dl_info info;
    return address && dladdr(address, &info) ? info.dli_fname : "nowhere";
}

/* The symbol's own name, as far as the object tells: cuMemAlloc must not be cuMemAlloc_v2. */
static bool is_symbol(void *address, const char *name)
{
    Dl_info info;
    return dladdr(address, &info) && info.dli_sname && strcmp(info.dli_sname, name) == 0;
}

static void check_found(const char *how, const char *name, void *found, bool hooked)
{
    const char *object = object_of(found);
    bool ours = strstr(object, "libsluice") != NULL;
    CHECK(found, "%s %s: not found", how, name);
    CHECK(ours == hooked, "%s %s: found in %s", how, name, object);
    if (ours)
        CHECK(is_symbol(found, name), "%s %s: another symbol's wrapper", how, name);
}

static void check_dlsym(void *cuda, void *nvml)
{
    for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++) {
        check_found("dlsym", hooks[i].name, dlsym(hooks[i].cuda ? cuda : nvml, hooks[i].name),
                    true);
        check_found("RTLD_DEFAULT", hooks[i].name, dlsym(RTLD_DEFAULT, hooks[i].name), true);
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_found("dlsym", rows[i].name, dlsym(cuda, rows[i].name), is_hook(rows[i].name));
}

static void check_proc(void *cuda)
{
    __typeof__(&cuGetProcAddress_v2) ask =
        (__typeof__(ask))(uintptr_t)dlsym(cuda, "cuGetProcAddress_v2");
    __typeof__(&cuGetProcAddress) ask_v1 =
        (__typeof__(ask_v1))(uintptr_t)dlsym(cuda, "cuGetProcAddress");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *r = &rows[i];
        void *found = NULL;
        cuuint64_t flags = r->per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        CUresult rc = ask(r->base, &found, r->since, flags, &status);
        CHECK(rc == CUDA_SUCCESS && status == CU_GET_PROC_ADDRESS_SUCCESS,
              "cuGetProcAddress_v2 %s: %d", r->name, (int)rc);
        check_found("cuGetProcAddress_v2", r->name, found, is_hook(r->name));
        rc = ask_v1(r->base, &found, r->since, flags);
        CHECK(rc == CUDA_SUCCESS, "cuGetProcAddress %s: %d", r->name, (int)rc);
        check_found("cuGetProcAddress", r->name, found, is_hook(r->name));
    }
    /* What is not there stays not there, with the driver's own words. */
    void *found = &failures;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    (void)ask("cuMemAllocNonsense", &found, 12000, 0, &status);
    CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND && !found, "a made-up name was found");
    found = &failures;
    (void)ask("cuMemAllocAsync", &found, 11010, 0, &status);
    CHECK(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT && !found,
          "cuMemAllocAsync was found for a version that had none");
}

/* dlsym of names that are not ours reaches the C library as if nobody stood between. */
static void check_others(void)
{
    void *mine = dlsym(RTLD_DEFAULT, "malloc");
    void *next = dlsym(RTLD_NEXT, "malloc");
    CHECK(mine && next, "malloc is not found");
    CHECK(dlvsym(RTLD_NEXT, "memcpy", "GLIBC_2.2.5") || dlvsym(RTLD_NEXT, "memcpy", "GLIBC_2.17"),
          "dlvsym finds no memcpy");
    CHECK(!dlsym(RTLD_DEFAULT, "no_such_symbol_here") && dlerror(), "a made-up symbol was found");
}

/* The driver opened, used and closed again and again, each time looked up anew. */
static void check_reopen(void)
{
    for (int i = 0; i < 3; i++) {
        void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        CHECK(cuda, "no driver: %s", dlerror());
        if (!cuda)
            return;
#define GET(name) __typeof__(&name) do_##name = (__typeof__(&name))(uintptr_t)dlsym(cuda, #name)
        GET(cuInit);
        GET(cuDevicePrimaryCtxRetain);
        GET(cuDevicePrimaryCtxRelease_v2);
        GET(cuCtxSetCurrent);
        GET(cuMemAlloc_v2);
        GET(cuMemFree_v2);
        CUcontext context = NULL;
        CUdeviceptr p;
        CUresult rc = do_cuInit(0);
        if (rc == CUDA_SUCCESS)
            rc = do_cuDevicePrimaryCtxRetain(&context, 0);
        if (rc == CUDA_SUCCESS)
            rc = do_cuCtxSetCurrent(context);
        if (rc == CUDA_SUCCESS)
            rc = do_cuMemAlloc_v2(&p, 1 << 20);
        if (rc == CUDA_SUCCESS)
            rc = do_cuMemFree_v2(p);
        if (rc == CUDA_SUCCESS)
            rc = do_cuDevicePrimaryCtxRelease_v2(0);
        CHECK(rc == CUDA_SUCCESS, "round %d: %d", i, (int)rc);
        (void)dlclose(cuda);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "reopen") == 0) {
        check_reopen();
        return failures != 0;
    }
    if (argc > 1 && strcmp(argv[1], "without-driver") == 0) {
        CHECK(!dlsym(RTLD_DEFAULT, "cuInit") && dlerror(),
              "without a driver, RTLD_DEFAULT still found cuInit");
        CHECK(!dlsym(RTLD_NEXT, "cuInit"), "without a driver, RTLD_NEXT still found cuInit");
        CHECK(!dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo"), "NVML found without NVML");
        return failures != 0;
    }
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(cuda && nvml, "no driver: %s", dlerror());
    if (!failures) {
        check_dlsym(cuda, nvml);
        check_proc(cuda);
        check_others();
    }
    (void)printf("%zu hooks, %zu driver symbols, %d failures\n", sizeof(hooks) / sizeof(hooks[0]),
                 sizeof(rows) / sizeof(rows[0]), failures);
    return failures != 0;
}
