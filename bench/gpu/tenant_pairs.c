/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenant --launch-pairs: what a library between the program and the driver adds to a launch, measured inside one
 * process. The program calls cuLaunchKernel as it finds it and as the driver's file defines it, in turn. Both have the
 * same process, processor and memory, which differ between two processes by more than the library costs. What the
 * library does in threads of its own slows both down, and does not show here.
 */
#include "tenant.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAIRS  40
#define BLOCKS 24 /* of a pair, of each kind: their median counts */

typedef CUresult (*launch_fn)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, unsigned, CUstream, void **, void **);

/* The tables of a loaded library that name its symbols. */
struct tables {
    const ElfW(Sym) * symbols;
    const char *names;
    const uint32_t *hash;
};

static struct tables tables_of(const struct link_map *map)
{
    struct tables t = {0};
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        const void *at = (const void *)(uintptr_t)d->d_un.d_ptr;
        if (d->d_tag == DT_SYMTAB)
            t.symbols = at;
        if (d->d_tag == DT_STRTAB)
            t.names = at;
        if (d->d_tag == DT_GNU_HASH)
            t.hash = at;
    }
    return t;
}

/* The hash table's chains stand in the order of the symbols; the last one of a chain is odd. */
static void *defined_in(const struct link_map *map, const char *name)
{
    struct tables t = tables_of(map);
    if (!t.symbols || !t.names || !t.hash)
        return NULL;
    uint32_t buckets = t.hash[0], first = t.hash[1], words = t.hash[2];
    const uint32_t *bucket =
        (const uint32_t *)(const void *)((const ElfW(Addr) *)(const void *)(t.hash + 4) + words);
    const uint32_t *chain = bucket + buckets;
    for (uint32_t b = 0; b < buckets; b++)
        for (uint32_t i = bucket[b]; i >= first; i++) {
            const ElfW(Sym) *s = &t.symbols[i];
            if (s->st_value && strcmp(t.names + s->st_name, name) == 0)
                return (void *)(map->l_addr + s->st_value);
            if (chain[i - first] & 1)
                break;
        }
    return NULL;
}

/* The host's time of a launch, with room in the queue. */
static double burst_ns(struct tenant *t, launch_fn launch)
{
    uint64_t start = tenant_now_ns();
    for (unsigned i = 0; i < TINY_BURST; i++)
        tenant_check(t, launch(t->empty, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
    uint64_t submitted = tenant_now_ns();
    CU(t, cuStreamSynchronize, NULL);
    return (double)(submitted - start) / TINY_BURST;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof(*v), by_value);
    return v[n / 2];
}

static void print(const char *key, const double *v)
{
    (void)printf(", \"%s\": [", key);
    for (unsigned i = 0; i < PAIRS; i++)
        (void)printf("%s%.1f", i ? ", " : "", v[i]);
    (void)printf("]");
}

void tenant_launch_pairs(struct tenant *t, void *lib)
{
    static double found_ns[PAIRS], own_ns[PAIRS], block[2][BLOCKS];
    struct link_map *map = NULL;
    if (dlinfo(lib, RTLD_DI_LINKMAP, &map) != 0)
        tenant_die("dlinfo: %s", dlerror());
    launch_fn launch[2] = {t->cu.cuLaunchKernel, NULL};
    *(void **)&launch[1] = defined_in(map, "cuLaunchKernel");
    if (!launch[1])
        tenant_die("the driver's file has no cuLaunchKernel");
    for (unsigned i = 0; i < 200; i++) /* clocks up, caches warm */
        (void)burst_ns(t, launch[i % 2]);
    for (unsigned p = 0; p < PAIRS; p++) {
        for (unsigned b = 0; b < 2 * BLOCKS; b++) {
            unsigned which = (b ^ (b >> 1)) & 1; /* AB, BA, AB: a drift falls on both alike */
            block[which][b / 2] = burst_ns(t, launch[which]);
        }
        found_ns[p] = median(block[0], BLOCKS);
        own_ns[p] = median(block[1], BLOCKS);
    }
    (void)printf("{\"ready\": true, \"hooked\": %s", launch[0] != launch[1] ? "true" : "false");
    print("found_ns", found_ns);
    print("own_ns", own_ns);
    (void)printf("}\n");
    (void)fflush(stdout);
}
