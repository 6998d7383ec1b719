/* SPDX-License-Identifier: Apache-2.0 */
/* Launches. Compiled twice: with the legacy and the per-thread default stream. */
#include "sim/cuda_int.h"

static CUresult launch(CUfunction f, const unsigned int grid[3], const unsigned int block[3],
                       unsigned int shared, CUstream hStream, void **params, void **extra,
                       bool cooperative, const int *priority)
{
    CUstream s;
    struct sim_work w;
    CUresult r = sim_stream(hStream, SIM_PT, &s);
    if (r == CUDA_SUCCESS)
        r = sim_kernel_work(f, grid, block, shared, params, extra, &w);
    if (r != CUDA_SUCCESS)
        return r;
    if (cooperative) { /* all blocks must fit on the card at once */
        uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
        uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
        uint64_t fit = 2048 / ((threads + 31) / 32 * 32);
        if (blocks > (fit > 32 ? 32 : fit) * sim_sm_count(s->ctx->card))
            return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    }
    int saved = s->priority;
    if (priority)
        s->priority = *priority;
    r = sim_stream_do(s, &w);
    s->priority = saved;
    return r;
}

CUresult PTSZ(cuLaunchKernel)(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                              unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                              unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                              void **kernelParams, void **extra)
{
    ENTER();
    const unsigned int grid[3] = {gridDimX, gridDimY, gridDimZ};
    const unsigned int block[3] = {blockDimX, blockDimY, blockDimZ};
    return LOCKED(
        launch(f, grid, block, sharedMemBytes, hStream, kernelParams, extra, false, NULL));
}

CUresult PTSZ(cuLaunchCooperativeKernel)(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                         unsigned int gridDimZ, unsigned int blockDimX,
                                         unsigned int blockDimY, unsigned int blockDimZ,
                                         unsigned int sharedMemBytes, CUstream hStream,
                                         void **kernelParams)
{
    ENTER();
    const unsigned int grid[3] = {gridDimX, gridDimY, gridDimZ};
    const unsigned int block[3] = {blockDimX, blockDimY, blockDimZ};
    return LOCKED(launch(f, grid, block, sharedMemBytes, hStream, kernelParams, NULL, true, NULL));
}

CUresult PTSZ(cuLaunchKernelEx)(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                                void **extra)
{
    ENTER();
    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned int grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
    const unsigned int block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
    bool cooperative = false;
    const int *priority = NULL;
    for (unsigned int i = 0; i < config->numAttrs; i++) {
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            cooperative = config->attrs[i].value.cooperative != 0;
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
            priority = &config->attrs[i].value.priority;
    }
    return LOCKED(launch(f, grid, block, config->sharedMemBytes, config->hStream, kernelParams,
                         extra, cooperative, priority));
}
