/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a pod sees of GPUs, as one line of JSON: by CUDA and by NVML, each found as any program finds
 * it. With `fill` the memory it can have, too: it allocates until there is no more. With `hold` it
 * keeps one allocation and prints a line a second until it is ended. With `churn MIB PIECE` it keeps
 * so much, takes and gives PIECE MiB until it is ended, and prints how often that was granted,
 * refused, and failed otherwise.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "abi/nvml.h"

#define MIB ((size_t)1 << 20)

static void *lookup(void *lib, const char *name)
{
    void *f = dlsym(lib, name);
    if (!f) {
        (void)fprintf(stderr, "gpus: no %s\n", name);
        exit(1);
    }
    return f;
}

#define CALL(lib, name, ...) ((__typeof__(&name))lookup(lib, #name))(__VA_ARGS__)

static void print_cuda(void *cuda, int count)
{
    for (int i = 0; i < count; i++) {
        CUdevice dev = 0;
        CUuuid uuid;
        char name[96] = "";
        size_t bytes = 0;
        memset(&uuid, 0, sizeof(uuid));
        if (CALL(cuda, cuDeviceGet, &dev, i) != CUDA_SUCCESS ||
            CALL(cuda, cuDeviceGetUuid_v2, &uuid, dev) != CUDA_SUCCESS ||
            CALL(cuda, cuDeviceGetName, name, (int)sizeof(name), dev) != CUDA_SUCCESS ||
            CALL(cuda, cuDeviceTotalMem_v2, &bytes, dev) != CUDA_SUCCESS)
            exit(1);
        printf("%s{\"uuid\": \"", i ? ", " : "");
        for (size_t b = 0; b < sizeof(uuid.bytes); b++)
            printf("%s%02x", b == 4 || b == 6 || b == 8 || b == 10 ? "-" : "",
                   (unsigned char)uuid.bytes[b]);
        printf("\", \"name\": \"%s\", \"mib\": %zu}", name, bytes / MIB);
    }
}

static void print_nvml_mig(void *nvml, nvmlDevice_t card)
{
    unsigned int max = 0, printed = 0;
    printf(", \"mig\": [");
    (void)CALL(nvml, nvmlDeviceGetMaxMigDeviceCount, card, &max);
    for (unsigned int i = 0; i < max; i++) {
        nvmlDevice_t mig;
        char uuid[96] = "";
        if (CALL(nvml, nvmlDeviceGetMigDeviceHandleByIndex, card, i, &mig) != NVML_SUCCESS)
            continue;
        (void)CALL(nvml, nvmlDeviceGetUUID, mig, uuid, (unsigned int)sizeof(uuid));
        printf("%s\"%s\"", printed++ ? ", " : "", uuid);
    }
    printf("]");
}

static void print_nvml(void *nvml)
{
    unsigned int count = 0;
    int rc = nvml ? (int)CALL(nvml, nvmlInit_v2) : -1;
    printf(", \"nvml_error\": %d, \"nvml\": [", rc);
    if (rc == 0)
        (void)CALL(nvml, nvmlDeviceGetCount_v2, &count);
    for (unsigned int i = 0; i < count; i++) {
        nvmlDevice_t card;
        char uuid[96] = "";
        if (CALL(nvml, nvmlDeviceGetHandleByIndex_v2, i, &card) != NVML_SUCCESS ||
            CALL(nvml, nvmlDeviceGetUUID, card, uuid, (unsigned int)sizeof(uuid)) != NVML_SUCCESS)
            exit(1);
        printf("%s{\"uuid\": \"%s\"", i ? ", " : "", uuid);
        print_nvml_mig(nvml, card);
        printf("}");
    }
    printf("]");
}

static int context(void *cuda)
{
    CUcontext ctx;
    CUdevice dev = 0;
    int rc = (int)CALL(cuda, cuDeviceGet, &dev, 0);
    return rc ? rc : (int)CALL(cuda, cuCtxCreate_v2, &ctx, 0, dev);
}

static void fill(void *cuda)
{
    static const size_t steps[] = {1024 * MIB, 64 * MIB, MIB};
    size_t total = 0;
    CUdeviceptr p;
    int rc = context(cuda);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) &&
                       (rc == CUDA_SUCCESS || (i > 0 && rc == CUDA_ERROR_OUT_OF_MEMORY));
         i++)
        while ((rc = (int)CALL(cuda, cuMemAlloc_v2, &p, steps[i])) == CUDA_SUCCESS)
            total += steps[i];
    printf(", \"filled_mib\": %zu, \"fill_error\": %d", total / MIB, rc);
}

static int hold(void *cuda)
{
    CUdeviceptr p = 0;
    int rc = context(cuda);
    if (rc == 0)
        rc = (int)CALL(cuda, cuMemAlloc_v2, &p, MIB);
    for (unsigned beat = 0; rc == 0; beat++) {
        rc = (int)CALL(cuda, cuMemsetD8_v2, p, (unsigned char)beat, MIB);
        printf("beat %u: %d\n", beat, rc);
        (void)fflush(stdout);
        (void)sleep(1);
    }
    (void)fprintf(stderr, "gpus: CUDA error %d\n", rc);
    return 1;
}

static int churn(void *cuda, size_t held_mib, size_t piece_mib)
{
    unsigned long granted = 0, refused = 0, failed = 0;
    CUdeviceptr p = 0;
    int rc = context(cuda);
    if (rc == 0)
        rc = (int)CALL(cuda, cuMemAlloc_v2, &p, held_mib * MIB);
    if (rc != 0) {
        (void)fprintf(stderr, "gpus: CUDA error %d\n", rc);
        return 1;
    }
    for (unsigned long rounds = 1;; rounds++) {
        rc = (int)CALL(cuda, cuMemAlloc_v2, &p, piece_mib * MIB);
        if (rc == 0)
            rc = (int)CALL(cuda, cuMemFree_v2, p);
        *(rc == 0 ? &granted : rc == CUDA_ERROR_OUT_OF_MEMORY ? &refused : &failed) += 1;
        if (rounds % 100 == 0 || rc != 0) {
            printf("churn %lu %lu %lu\n", granted, refused, failed);
            (void)fflush(stdout);
        }
        (void)usleep(1000);
    }
}

int main(int argc, char **argv)
{
    int count = 0;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) {
        printf("{\"no_driver\": true}\n");
        return 0;
    }
    int rc = (int)CALL(cuda, cuInit, 0);
    if (argc > 1 && strcmp(argv[1], "hold") == 0)
        return rc ? 1 : hold(cuda);
    if (argc > 3 && strcmp(argv[1], "churn") == 0)
        return rc ? 1 : churn(cuda, strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10));
    printf("{\"cuda_error\": %d, \"cuda\": [", rc);
    if (rc == 0 && CALL(cuda, cuDeviceGetCount, &count) == CUDA_SUCCESS)
        print_cuda(cuda, count);
    printf("]");
    print_nvml(dlopen("libnvidia-ml.so.1", RTLD_NOW));
    if (rc == 0 && argc > 1 && strcmp(argv[1], "fill") == 0)
        fill(cuda);
    printf("}\n");
    return 0;
}
