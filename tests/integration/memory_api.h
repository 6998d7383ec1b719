/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver functions of the test programs, found in each way that a program may use. Driver API only, so the same
 * programs run on a real GPU.
 */
#ifndef SLUICE_TESTS_MEMORY_API_H
#define SLUICE_TESTS_MEMORY_API_H

#include <stdbool.h>

#include "abi/cuda.h"

#define TEST_API(F)                                                                                \
    F(cuInit)                                                                                      \
    F(cuDeviceGet)                                                                                 \
    F(cuDeviceGetMemPool)                                                                          \
    F(cuDeviceGraphMemTrim)                                                                        \
    F(cuDeviceTotalMem_v2)                                                                         \
    F(cuDevicePrimaryCtxRetain)                                                                    \
    F(cuDevicePrimaryCtxRelease_v2)                                                                \
    F(cuDevicePrimaryCtxReset_v2)                                                                  \
    F(cuCtxCreate)                                                                                 \
    F(cuCtxCreate_v2)                                                                              \
    F(cuCtxCreate_v3)                                                                              \
    F(cuCtxCreate_v4)                                                                              \
    F(cuCtxDestroy_v2)                                                                             \
    F(cuCtxSetCurrent)                                                                             \
    F(cuCtxSynchronize)                                                                            \
    F(cuStreamCreate)                                                                              \
    F(cuStreamSynchronize)                                                                         \
    F(cuStreamBeginCapture_v2)                                                                     \
    F(cuStreamEndCapture)                                                                          \
    F(cuMemGetInfo_v2)                                                                             \
    F(cuMemAlloc)                                                                                  \
    F(cuMemAlloc_v2)                                                                               \
    F(cuMemAllocPitch)                                                                             \
    F(cuMemAllocPitch_v2)                                                                          \
    F(cuMemAllocManaged)                                                                           \
    F(cuMemFree)                                                                                   \
    F(cuMemFree_v2)                                                                                \
    F(cuMemAllocAsync)                                                                             \
    F(cuMemAllocAsync_ptsz)                                                                        \
    F(cuMemAllocFromPoolAsync)                                                                     \
    F(cuMemAllocFromPoolAsync_ptsz)                                                                \
    F(cuMemFreeAsync)                                                                              \
    F(cuMemFreeAsync_ptsz)                                                                         \
    F(cuMemPoolCreate)                                                                             \
    F(cuMemPoolDestroy)                                                                            \
    F(cuMemPoolTrimTo)                                                                             \
    F(cuMemPoolExportToShareableHandle)                                                            \
    F(cuMemPoolImportFromShareableHandle)                                                          \
    F(cuMemPoolExportPointer)                                                                      \
    F(cuMemPoolImportPointer)                                                                      \
    F(cuMemAddressReserve)                                                                         \
    F(cuMemAddressFree)                                                                            \
    F(cuMemCreate)                                                                                 \
    F(cuMemRelease)                                                                                \
    F(cuMemMap)                                                                                    \
    F(cuMemUnmap)                                                                                  \
    F(cuMemRetainAllocationHandle)                                                                 \
    F(cuMemExportToShareableHandle)                                                                \
    F(cuMemImportFromShareableHandle)                                                              \
    F(cuIpcGetMemHandle)                                                                           \
    F(cuIpcOpenMemHandle_v2)                                                                       \
    F(cuIpcCloseMemHandle)                                                                         \
    F(cuArrayCreate)                                                                               \
    F(cuArrayCreate_v2)                                                                            \
    F(cuArray3DCreate)                                                                             \
    F(cuArray3DCreate_v2)                                                                          \
    F(cuArrayDestroy)                                                                              \
    F(cuMipmappedArrayCreate)                                                                      \
    F(cuMipmappedArrayDestroy)                                                                     \
    F(cuImportExternalMemory)                                                                      \
    F(cuDestroyExternalMemory)                                                                     \
    F(cuGraphCreate)                                                                               \
    F(cuGraphDestroy)                                                                              \
    F(cuGraphAddMemAllocNode)                                                                      \
    F(cuGraphAddNode)                                                                              \
    F(cuGraphAddNode_v2)                                                                           \
    F(cuGraphInstantiate)                                                                          \
    F(cuGraphInstantiate_v2)                                                                       \
    F(cuGraphInstantiateWithFlags)                                                                 \
    F(cuGraphInstantiateWithParams)                                                                \
    F(cuGraphInstantiateWithParams_ptsz)                                                           \
    F(cuGraphUpload)                                                                               \
    F(cuGraphLaunch)                                                                               \
    F(cuGraphLaunch_ptsz)                                                                          \
    F(cuGraphExecDestroy)

struct test_api {
#define TEST_API_MEMBER(name) __typeof__(&name) name;
    TEST_API(TEST_API_MEMBER)
#undef TEST_API_MEMBER
};

extern struct test_api cu;

/* "direct", "dlsym", "dlsym-default", "proc" (cuGetProcAddress_v2) or "proc-v1". False: unknown. */
bool test_api_load(const char *lookup);

#endif
