/* SPDX-License-Identifier: Apache-2.0 */
/* Every way to get device memory, behind one shape: take a piece, give it back. */
#ifndef SLUICE_TESTS_MEMORY_PATHS_H
#define SLUICE_TESTS_MEMORY_PATHS_H

#include "memory_api.h"

#define PIECE_BYTES ((size_t)2 << 20) /* the driver's block, so that nothing is rounded */

struct piece {
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    void *object; /* array, graph exec, imported memory */
    void *other;  /* the graph */
};

struct memory_path {
    const char *name;
    CUresult (*take)(struct piece *piece);
    CUresult (*give)(struct piece *piece);
};

extern const struct memory_path memory_paths[];
const struct memory_path *memory_path_find(const char *name);

extern CUdevice path_device;
extern CUstream path_stream;
extern CUmemoryPool path_pool;

#endif
