/* SPDX-License-Identifier: Apache-2.0 */
/* Functions: attributes, occupancy, arguments, and the launch calls that have no twin. */
#include "sim/cuda_int.h"

#include <string.h>

static bool func_ok(CUfunction f)
{
    return f && f->name;
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction func)
{
    ENTER();
    if (!func_ok(func))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pi || (unsigned int)attrib >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)attrib) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *pi = 1024;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *pi = 16;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *pi = 70;
        break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *pi = 90;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *pi = func->max_dynamic_shared;
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *pi = -1;
        break;
    default:
        *pi = 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction func, CUfunction_attribute attrib, int value)
{
    ENTER();
    if (!func_ok(func))
        return CUDA_ERROR_INVALID_HANDLE;
    if ((unsigned int)attrib >= CU_FUNC_ATTRIBUTE_MAX || attrib < CU_FUNC_ATTRIBUTE_CACHE_MODE_CA)
        return CUDA_ERROR_INVALID_VALUE;
    if (attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        if (value < 0 || value > 232448)
            return CUDA_ERROR_INVALID_VALUE;
        func->max_dynamic_shared = value;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction func, CUfunc_cache config)
{
    ENTER();
    (void)config;
    return func_ok(func) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncSetSharedMemConfig(CUfunction func, CUsharedconfig config)
{
    ENTER();
    (void)config;
    return func_ok(func) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction func)
{
    ENTER();
    if (!func_ok(func) || !module)
        return CUDA_ERROR_INVALID_VALUE;
    *module = func->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction func)
{
    ENTER();
    if (!func_ok(func) || !name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = func->name;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t index, size_t *offset, size_t *size)
{
    ENTER();
    if (!func_ok(func) || !offset || index >= func->param_count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = func->params[index].offset;
    if (size)
        *size = func->params[index].size;
    return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(int *state, CUfunction func)
{
    ENTER();
    if (!func_ok(func) || !state)
        return CUDA_ERROR_INVALID_VALUE;
    *state = 1;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction func)
{
    ENTER();
    return func_ok(func) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- occupancy: threads are what limits it here ---- */

static CUresult occupancy(int *numBlocks, CUfunction func, int blockSize)
{
    if (!func_ok(func))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!numBlocks || blockSize <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    *numBlocks = blockSize > 1024 ? 0 : (int)sim_blocks_per_sm((uint64_t)blockSize, 0);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
                                                     size_t dynSmem)
{
    ENTER();
    (void)dynSmem;
    return occupancy(numBlocks, func, blockSize);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func,
                                                              int blockSize, size_t dynSmem,
                                                              unsigned int flags)
{
    ENTER();
    (void)dynSmem;
    return flags & ~1u ? CUDA_ERROR_INVALID_VALUE : occupancy(numBlocks, func, blockSize);
}

static CUresult potential(int *minGridSize, int *blockSize, CUfunction func, int limit)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!func_ok(func) || !minGridSize || !blockSize || limit < 0)
        return CUDA_ERROR_INVALID_VALUE;
    *blockSize = limit && limit < 1024 ? limit : 1024;
    int blocks = 0;
    r = occupancy(&blocks, func, *blockSize);
    *minGridSize = blocks * (int)sim_sm_count(ctx->card);
    return r;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
                                          CUoccupancyB2DSize toSmem, size_t dynSmem,
                                          int blockSizeLimit)
{
    ENTER();
    (void)toSmem;
    (void)dynSmem;
    return potential(minGridSize, blockSize, func, blockSizeLimit);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize,
                                                   CUfunction func, CUoccupancyB2DSize toSmem,
                                                   size_t dynSmem, int blockSizeLimit,
                                                   unsigned int flags)
{
    ENTER();
    (void)toSmem;
    (void)dynSmem;
    return flags & ~1u ? CUDA_ERROR_INVALID_VALUE
                       : potential(minGridSize, blockSize, func, blockSizeLimit);
}

/* ---- arguments ---- */

static void take_args(CUfunction f, const unsigned char *packed, void **params, uint64_t arg[3])
{
    for (size_t i = 0; (packed || params) && i < f->param_count && i < 3; i++) {
        size_t n = f->params[i].size < 8 ? f->params[i].size : 8;
        arg[i] = 0;
        memcpy(&arg[i], packed ? packed + f->params[i].offset : params[i], n);
    }
}

CUresult sim_kernel_work(CUfunction f, const unsigned int grid[3], const unsigned int block[3],
                         unsigned int shared, void **params, void **extra, struct sim_work *ret)
{
    if (!func_ok(f))
        return CUDA_ERROR_INVALID_HANDLE;
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (!grid[0] || !grid[1] || !grid[2] || threads == 0 || grid[1] > 65535 || grid[2] > 65535 ||
        grid[0] > 2147483647u || threads > 1024 || block[2] > 64 || (params && extra))
        return CUDA_ERROR_INVALID_VALUE;
    if (shared > (unsigned int)f->max_dynamic_shared)
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned char *packed = NULL;
    size_t packed_bytes = SIZE_MAX;
    for (void **e = extra; e && *e != CU_LAUNCH_PARAM_END; e += 2) {
        if (e[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            packed = e[1];
        else if (e[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            packed_bytes = *(const size_t *)e[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (f->param_count && ((!params && !packed) || (packed && packed_bytes < f->param_bytes)))
        return CUDA_ERROR_INVALID_VALUE;
    *ret = (struct sim_work){.type = SIM_WORK_KERNEL};
    ret->kernel.f = f;
    memcpy(ret->kernel.grid, grid, sizeof(ret->kernel.grid));
    memcpy(ret->kernel.block, block, sizeof(ret->kernel.block));
    ret->kernel.shared_bytes = shared;
    take_args(f, packed, params, ret->kernel.arg);
    return CUDA_SUCCESS;
}

/* ---- CUDA 2 launches ---- */

CUresult cuFuncSetBlockShape(CUfunction func, int x, int y, int z)
{
    ENTER();
    if (!func_ok(func))
        return CUDA_ERROR_INVALID_HANDLE;
    if (x <= 0 || y <= 0 || z <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    func->block[0] = (unsigned int)x;
    func->block[1] = (unsigned int)y;
    func->block[2] = (unsigned int)z;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction func, unsigned int bytes)
{
    ENTER();
    if (!func_ok(func))
        return CUDA_ERROR_INVALID_HANDLE;
    func->shared_bytes = bytes;
    return CUDA_SUCCESS;
}

CUresult cuParamSetSize(CUfunction func, unsigned int numbytes)
{
    ENTER();
    if (!func_ok(func))
        return CUDA_ERROR_INVALID_HANDLE;
    return numbytes <= sizeof(func->legacy_args) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuParamSetv(CUfunction func, int offset, void *ptr, unsigned int numbytes)
{
    ENTER();
    if (!func_ok(func))
        return CUDA_ERROR_INVALID_HANDLE;
    if (offset < 0 || !ptr || (size_t)offset + numbytes > sizeof(func->legacy_args))
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(func->legacy_args + offset, ptr, numbytes);
    return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction func, int offset, unsigned int value)
{
    return cuParamSetv(func, offset, &value, sizeof(value));
}

CUresult cuParamSetf(CUfunction func, int offset, float value)
{
    return cuParamSetv(func, offset, &value, sizeof(value));
}

static CUresult legacy_launch(CUfunction f, int width, int height, CUstream hStream)
{
    CUstream s;
    struct sim_work w;
    if (!func_ok(f))
        return CUDA_ERROR_INVALID_HANDLE;
    if (width <= 0 || height <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned int grid[3] = {(unsigned int)width, (unsigned int)height, 1};
    size_t bytes = sizeof(f->legacy_args);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, f->legacy_args, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &bytes, CU_LAUNCH_PARAM_END};
    CUresult r = sim_stream(hStream, false, &s);
    if (r == CUDA_SUCCESS)
        r = sim_kernel_work(f, grid, f->block, f->shared_bytes, NULL, extra, &w);
    return r == CUDA_SUCCESS ? sim_stream_do(s, &w) : r;
}

CUresult cuLaunch(CUfunction f)
{
    ENTER();
    return LOCKED(legacy_launch(f, 1, 1, NULL));
}

CUresult cuLaunchGrid(CUfunction f, int gridWidth, int gridHeight)
{
    ENTER();
    return LOCKED(legacy_launch(f, gridWidth, gridHeight, NULL));
}

CUresult cuLaunchGridAsync(CUfunction f, int gridWidth, int gridHeight, CUstream hStream)
{
    ENTER();
    return LOCKED(legacy_launch(f, gridWidth, gridHeight, hStream));
}

static CUresult multi_device(const CUDA_LAUNCH_PARAMS *p, unsigned int n)
{
    CUresult r = CUDA_SUCCESS;
    for (unsigned int i = 0; i < n && r == CUDA_SUCCESS; i++) {
        CUstream s;
        struct sim_work w;
        const unsigned int grid[3] = {p[i].gridDimX, p[i].gridDimY, p[i].gridDimZ};
        const unsigned int block[3] = {p[i].blockDimX, p[i].blockDimY, p[i].blockDimZ};
        r = p[i].hStream ? sim_stream(p[i].hStream, false, &s) : CUDA_ERROR_INVALID_VALUE;
        if (r == CUDA_SUCCESS)
            r = sim_kernel_work(p[i].function, grid, block, p[i].sharedMemBytes, p[i].kernelParams,
                                NULL, &w);
        if (r == CUDA_SUCCESS)
            r = sim_stream_do(s, &w);
    }
    return r;
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList,
                                              unsigned int numDevices, unsigned int flags)
{
    ENTER();
    if (!launchParamsList || numDevices == 0 || numDevices > (unsigned int)sim_p.count ||
        (flags & ~3u))
        return CUDA_ERROR_INVALID_VALUE;
    return LOCKED(multi_device(launchParamsList, numDevices));
}
