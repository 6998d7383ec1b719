/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_faults_tenant LOOKUP PATH…: takes two pieces by each path and gives them back, while
 * SLUICE_SIM_FAULT makes one driver call fail. What fails is tried once more. Lines on stdout:
 *   held BYTES   everything is taken that could be taken; waits for a line
 *   done BYTES   everything is given back (BYTES could not be); waits for a line
 */
#include <stdio.h>
#include <string.h>

#include "memory_paths.h"

#define MAX_PATHS 64

static CUresult twice(CUresult (*what)(struct piece *), struct piece *piece)
{
    CUresult rc = what(piece);
    return rc == CUDA_SUCCESS ? rc : what(piece);
}

static CUresult start(void)
{
    CUcontext context;
    CUresult rc = cu.cuInit(0);
    if (rc == CUDA_SUCCESS)
        rc = cu.cuDeviceGet(&path_device, 0);
    if (rc == CUDA_SUCCESS)
        rc = cu.cuDevicePrimaryCtxRetain(&context, path_device);
    if (rc == CUDA_SUCCESS)
        rc = cu.cuCtxSetCurrent(context);
    if (rc == CUDA_SUCCESS && !path_stream)
        rc = cu.cuStreamCreate(&path_stream, CU_STREAM_NON_BLOCKING);
    return rc;
}

int main(int argc, char **argv)
{
    struct piece pieces[MAX_PATHS][2];
    bool held[MAX_PATHS][2] = {{false}};
    const struct memory_path *paths[MAX_PATHS];
    size_t bytes = 0;
    char line[16];
    int count = argc - 2 < MAX_PATHS ? argc - 2 : MAX_PATHS;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 3 || !test_api_load(argv[1]))
        return 2;
    if (start() != CUDA_SUCCESS && start() != CUDA_SUCCESS)
        return 3;
    for (int i = 0; i < count; i++) {
        paths[i] = memory_path_find(argv[i + 2]);
        for (int k = 0; paths[i] && k < 2; k++) {
            memset(&pieces[i][k], 0, sizeof(pieces[i][k]));
            held[i][k] = twice(paths[i]->take, &pieces[i][k]) == CUDA_SUCCESS;
            bytes += held[i][k] ? paths[i]->piece_bytes : 0;
        }
    }
    (void)printf("held %zu\n", bytes);
    if (!fgets(line, sizeof(line), stdin))
        return 4;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < 2; k++)
            if (held[i][k] && paths[i]->give(&pieces[i][k]) == CUDA_SUCCESS)
                bytes -= paths[i]->piece_bytes;
    if (cu.cuCtxSynchronize() != CUDA_SUCCESS)
        (void)cu.cuCtxSynchronize();
    CUmemoryPool pool;
    if (path_pool && cu.cuMemPoolDestroy(path_pool) != CUDA_SUCCESS)
        (void)cu.cuMemPoolDestroy(path_pool);
    for (int i = 0; i < 2; i++)
        if (cu.cuDeviceGetMemPool(&pool, path_device) == CUDA_SUCCESS)
            (void)cu.cuMemPoolTrimTo(pool, 0);
    for (int i = 0; i < 2; i++)
        (void)cu.cuDeviceGraphMemTrim(path_device);
    (void)printf("done %zu\n", bytes);
    return fgets(line, sizeof(line), stdin) ? 0 : 4;
}
