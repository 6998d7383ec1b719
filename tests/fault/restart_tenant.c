/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restart_tenant: a program that takes and gives memory while its arbiter comes and goes. One line on
 * stdin is one request, one line on stdout its answer. It begins with "ready RESULT".
 *
 *   hold BYTES   takes a piece and keeps it                      → "held RESULT"
 *   give BYTES   gives back the last piece that was taken with this size → "gave RESULT"
 *   churn BYTES  from now on a thread takes and gives this piece  → "churn 0"
 *   count        of that thread                                   → "count GRANTED REFUSED OTHER"
 *   calm         the thread stops                                 → "calm 0"
 *   info                                                          → "info FREE TOTAL DEVICE_TOTAL"
 *   quit         or the end of stdin: ends
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "abi/cuda.h"

static CUcontext context;
static CUdevice device;
static size_t piece_bytes;
static struct piece {
    CUdeviceptr at;
    size_t bytes;
} pieces[64];
static size_t piece_count;
static pthread_t thread;
static _Atomic int churning;
static _Atomic unsigned long granted, refused, other;

static CUresult begin(void)
{
    CUresult rc = cuInit(0);
    if (rc == CUDA_SUCCESS)
        rc = cuDeviceGet(&device, 0);
    if (rc == CUDA_SUCCESS)
        rc = cuDevicePrimaryCtxRetain(&context, device);
    return rc == CUDA_SUCCESS ? cuCtxSetCurrent(context) : rc;
}

static CUresult hold(size_t bytes)
{
    CUdeviceptr p;
    CUresult rc = cuMemAlloc_v2(&p, bytes);
    if (rc == CUDA_SUCCESS && piece_count < sizeof(pieces) / sizeof(pieces[0]))
        pieces[piece_count++] = (struct piece){p, bytes};
    return rc;
}

static CUresult give(size_t bytes)
{
    for (size_t i = piece_count; i-- > 0;)
        if (pieces[i].bytes == bytes) {
            CUdeviceptr p = pieces[i].at;
            pieces[i] = pieces[--piece_count];
            return cuMemFree_v2(p);
        }
    return CUDA_ERROR_INVALID_VALUE;
}

static void *churn(void *arg)
{
    CUdeviceptr p;
    (void)cuCtxSetCurrent(context);
    while (atomic_load(&churning)) {
        CUresult rc = cuMemAlloc_v2(&p, piece_bytes);
        if (rc == CUDA_SUCCESS)
            rc = cuMemFree_v2(p);
        atomic_fetch_add(rc == CUDA_SUCCESS               ? &granted
                         : rc == CUDA_ERROR_OUT_OF_MEMORY ? &refused
                                                          : &other,
                         1);
        (void)usleep(1000);
    }
    return arg;
}

static void calm(void)
{
    if (atomic_exchange(&churning, 0))
        (void)pthread_join(thread, NULL);
}

static void info(void)
{
    size_t free_bytes = 0, total = 0, device_total = 0;
    (void)cuMemGetInfo_v2(&free_bytes, &total);
    (void)cuDeviceTotalMem_v2(&device_total, device);
    (void)printf("info %zu %zu %zu\n", free_bytes, total, device_total);
}

int main(void)
{
    char line[128];
    size_t bytes;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)printf("ready %d\n", (int)begin());
    while (fgets(line, sizeof(line), stdin) && strcmp(line, "quit\n") != 0) {
        if (sscanf(line, "hold %zu", &bytes) == 1) {
            (void)printf("held %d\n", (int)hold(bytes));
        } else if (sscanf(line, "give %zu", &bytes) == 1) {
            (void)printf("gave %d\n", (int)give(bytes));
        } else if (sscanf(line, "churn %zu", &piece_bytes) == 1) {
            atomic_store(&churning, 1);
            (void)printf("churn %d\n", pthread_create(&thread, NULL, churn, NULL));
        } else if (strcmp(line, "count\n") == 0) {
            (void)printf("count %lu %lu %lu\n", granted, refused, other);
        } else if (strcmp(line, "calm\n") == 0) {
            calm();
            (void)printf("calm 0\n");
        } else if (strcmp(line, "info\n") == 0) {
            info();
        }
    }
    calm();
    return 0;
}
