/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA program for the command line's tests: alloc BYTES... takes that much device memory, one
 * allocation each, prints "ok" or "error N" a line, then "total T" as cuDeviceTotalMem says. Then it
 * takes what each line of its input asks for in the same way, until the input ends.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void need(void *lib, const char *name, void *ret_function)
{
    void *p = dlsym(lib, name);
    if (!p) {
        (void)fprintf(stderr, "alloc: the driver has no %s\n", name);
        exit(2);
    }
    memcpy(ret_function, &p, sizeof(p));
}

static void take(int (*alloc)(unsigned long long *, size_t), const char *bytes)
{
    unsigned long long pointer;
    int rc = alloc(&pointer, strtoull(bytes, NULL, 10));
    if (rc == 0)
        (void)puts("ok");
    else
        (void)printf("error %d\n", rc);
}

int main(int argc, char **argv)
{
    int (*init)(unsigned), (*get)(int *, int), (*retain)(void **, int), (*current)(void *);
    int (*alloc)(unsigned long long *, size_t), (*total_mem)(size_t *, int);
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    if (!lib) {
        (void)fprintf(stderr, "alloc: %s\n", dlerror());
        return 2;
    }
    need(lib, "cuInit", &init);
    need(lib, "cuDeviceGet", &get);
    need(lib, "cuDevicePrimaryCtxRetain", &retain);
    need(lib, "cuCtxSetCurrent", &current);
    need(lib, "cuMemAlloc_v2", &alloc);
    need(lib, "cuDeviceTotalMem_v2", &total_mem);
    int device = 0, rc = init(0);
    void *context = NULL;
    size_t total = 0;
    if (rc == 0)
        rc = get(&device, 0);
    if (rc == 0)
        rc = retain(&context, device);
    if (rc == 0)
        rc = current(context);
    if (rc != 0) {
        (void)fprintf(stderr, "alloc: CUDA does not start: error %d\n", rc);
        return 2;
    }
    for (int i = 1; i < argc; i++)
        take(alloc, argv[i]);
    rc = total_mem(&total, device);
    (void)printf("total %zu\n", rc == 0 ? total : 0);
    (void)fflush(stdout);
    char line[64];
    while (fgets(line, sizeof(line), stdin)) {
        take(alloc, line);
        (void)fflush(stdout);
    }
    return 0;
}
