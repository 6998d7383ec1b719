/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that tries to get more GPU memory than its lease, by some road:
 *   bypass_tenant dlsym|procaddr|deepbind|raw|dlmopen|unset LIMIT_MIB [hold]
 * It takes 64 MiB pieces up to LIMIT_MIB and prints how many MiB it got and the last result. With `hold`
 * it then keeps them until its stdin ends.
 *
 * dlsym      dlopen and dlsym, as most programs do
 * procaddr   the driver's own cuGetProcAddress
 * deepbind   the driver opened with RTLD_DEEPBIND
 * dlmopen    the driver in a link-map namespace of its own, where no library is preloaded
 * unset      SLUICE_ATTACH taken out of the environment before the first call
 * raw        the driver's symbol table read by hand: what libsluice cannot stand in front of
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/cuda.h"

static const char *road;
static void *driver;

/* The value of a symbol in the driver's dynamic symbol table, by walking its hash chains. */
static void *by_hand(const char *name)
{
    struct link_map *map = NULL;
    if (dlinfo(driver, RTLD_DI_LINKMAP, &map) != 0)
        return NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const uint32_t *gnu = NULL;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            symbols = (const ElfW(Sym) *)d->d_un.d_ptr;
        else if (d->d_tag == DT_STRTAB)
            strings = (const char *)d->d_un.d_ptr;
        else if (d->d_tag == DT_GNU_HASH)
            gnu = (const uint32_t *)d->d_un.d_ptr;
    }
    if (!symbols || !strings || !gnu)
        return NULL;
    const uint32_t *buckets = gnu + 4 + gnu[2] * (sizeof(ElfW(Addr)) / 4),
                   *chain = buckets + gnu[0];
    for (uint32_t b = 0; b < gnu[0]; b++)
        for (uint32_t i = buckets[b]; i >= gnu[1] && i != 0; i++) {
            if (strcmp(strings + symbols[i].st_name, name) == 0)
                return (void *)(map->l_addr + symbols[i].st_value);
            if (chain[i - gnu[1]] & 1)
                break;
        }
    return NULL;
}

static void *find(const char *name)
{
    void *p = NULL;
    if (strcmp(road, "raw") == 0)
        return by_hand(name);
    if (strcmp(road, "procaddr") == 0) {
        __typeof__(&cuGetProcAddress_v2) get =
            (__typeof__(&cuGetProcAddress_v2))(uintptr_t)dlsym(driver, "cuGetProcAddress_v2");
        char stem[64];
        (void)snprintf(stem, sizeof(stem), "%s", name);
        char *version = strstr(stem, "_v2");
        if (version)
            *version = '\0';
        return get && get(stem, &p, 12000, 0, NULL) == CUDA_SUCCESS ? p : NULL;
    }
    return dlsym(driver, name);
}

#define GET(function)                                                                              \
    __typeof__(&function) p_##function = (__typeof__(&function))(uintptr_t)find(#function);        \
    if (!p_##function)                                                                             \
    return 3

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    road = argv[1];
    int flags = RTLD_NOW | (strcmp(road, "deepbind") == 0 ? RTLD_DEEPBIND : 0);
    if (strcmp(road, "unset") == 0)
        (void)unsetenv("SLUICE_ATTACH");
    driver = strcmp(road, "dlmopen") == 0 ? dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW)
                                          : dlopen("libcuda.so.1", flags);
    if (!driver)
        return 3;
    GET(cuInit);
    GET(cuDevicePrimaryCtxRetain);
    GET(cuCtxSetCurrent);
    GET(cuMemAlloc_v2);
    CUcontext context;
    CUdeviceptr piece;
    CUresult rc = p_cuInit(0);
    if (rc == CUDA_SUCCESS)
        rc = p_cuDevicePrimaryCtxRetain(&context, 0);
    if (rc == CUDA_SUCCESS)
        rc = p_cuCtxSetCurrent(context);
    unsigned got = 0, want = (unsigned)atoi(argv[2]);
    while (rc == CUDA_SUCCESS && got < want) {
        rc = p_cuMemAlloc_v2(&piece, (size_t)64 << 20);
        got += rc == CUDA_SUCCESS ? 64 : 0;
    }
    printf("%u %d\n", got, (int)rc);
    fflush(stdout);
    while (argc > 3 && getchar() != EOF)
        ;
    return 0;
}
