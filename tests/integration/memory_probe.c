/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_probe PATH LOOKUP: takes memory on request. One line on stdin is one request, one line on
 * stdout its answer. It checks nothing itself; who drives it does (on the simulated driver
 * memory_limits.c, on a real GPU the scripts of tests/gpu).
 *
 * It begins with "ready RESULT PIECE_BYTES".
 *
 *   fill      take pieces until the driver refuses   → "got PIECES RESULT"
 *   take N    take N pieces                          → "got PIECES RESULT"
 *   give      give all pieces back, trim, synchronise → "gave PIECES RESULT"
 *   info                                             → "info FREE TOTAL DEVICE_TOTAL RESULT"
 *   use LOOKUP  from now on find the driver's functions this way → "use 1", or 0 if it cannot
 *   reset     destroy the context with all in it, make a new one → "reset RESULT"
 *   crash     dies by SIGKILL
 *   quit      or the end of stdin: ends
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory_paths.h"

#define MAX_PIECES 4096

static struct piece pieces[MAX_PIECES];
static int held;
static const struct memory_path *path;
static CUcontext context;

static CUresult start_context(void)
{
    CUresult rc = cu.cuDevicePrimaryCtxRetain(&context, path_device);
    if (rc == CUDA_SUCCESS)
        rc = cu.cuCtxSetCurrent(context);
    if (rc == CUDA_SUCCESS)
        rc = cu.cuStreamCreate(&path_stream, CU_STREAM_NON_BLOCKING);
    return rc;
}

static void take(int count)
{
    CUresult rc = CUDA_SUCCESS;
    for (int i = 0; i < count && held < MAX_PIECES && rc == CUDA_SUCCESS; i++) {
        memset(&pieces[held], 0, sizeof(pieces[held]));
        rc = path->take(&pieces[held]);
        held += rc == CUDA_SUCCESS;
    }
    (void)printf("got %d %d\n", held, (int)rc);
}

static void give(void)
{
    CUresult rc = CUDA_SUCCESS;
    CUmemoryPool pool;
    int count = 0;
    for (; held > 0 && rc == CUDA_SUCCESS; count++)
        rc = path->give(&pieces[--held]);
    if (rc == CUDA_SUCCESS)
        rc = cu.cuCtxSynchronize();
    if (path_pool) {
        (void)cu.cuMemPoolDestroy(path_pool);
        path_pool = NULL;
    }
    if (rc == CUDA_SUCCESS && cu.cuDeviceGetMemPool(&pool, path_device) == CUDA_SUCCESS)
        (void)cu.cuMemPoolTrimTo(pool, 0);
    (void)printf("gave %d %d\n", count, (int)rc);
}

static void info(void)
{
    size_t free_bytes = 0, total = 0, device_total = 0;
    CUresult rc = cu.cuMemGetInfo_v2(&free_bytes, &total);
    if (rc == CUDA_SUCCESS)
        rc = cu.cuDeviceTotalMem_v2(&device_total, path_device);
    (void)printf("info %zu %zu %zu %d\n", free_bytes, total, device_total, (int)rc);
}

static void reset(void)
{
    held = 0;
    path_pool = NULL;
    CUresult rc = cu.cuDevicePrimaryCtxReset_v2(path_device);
    if (rc == CUDA_SUCCESS)
        rc = start_context();
    (void)printf("reset %d\n", (int)rc);
}

int main(int argc, char **argv)
{
    char line[64];
    path = argc == 3 ? memory_path_find(argv[1]) : NULL;
    if (!path || !test_api_load(argv[2])) {
        (void)fprintf(stderr, "usage: memory_probe PATH direct|dlsym|dlsym-default|proc|proc-v1\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    CUresult rc = cu.cuInit(0);
    if (rc == CUDA_SUCCESS)
        rc = cu.cuDeviceGet(&path_device, 0);
    if (rc == CUDA_SUCCESS)
        rc = start_context();
    (void)printf("ready %d %zu\n", (int)rc, path->piece_bytes);
    while (rc == CUDA_SUCCESS && fgets(line, sizeof(line), stdin)) {
        int n = MAX_PIECES;
        char lookup[32];
        if (strncmp(line, "fill", 4) == 0 || sscanf(line, "take %d", &n) == 1)
            take(n);
        else if (strncmp(line, "give", 4) == 0)
            give();
        else if (strncmp(line, "info", 4) == 0)
            info();
        else if (strncmp(line, "reset", 5) == 0)
            reset();
        else if (sscanf(line, "use %31s", lookup) == 1)
            (void)printf("use %d\n", test_api_load(lookup));
        else if (strncmp(line, "crash", 5) == 0)
            (void)kill(getpid(), SIGKILL);
        else if (strncmp(line, "quit", 4) == 0)
            break;
        else
            return 2;
    }
    return rc == CUDA_SUCCESS ? 0 : 1;
}
