/* SPDX-License-Identifier: Apache-2.0 */
/* Every way to get device memory, behind one shape: take a piece, give it back. */
#ifndef SLUICE_TESTS_MEMORY_PATHS_H
#define SLUICE_TESTS_MEMORY_PATHS_H

#include "memory_api.h"

/* The driver's own steps, so that nothing is rounded: blocks of 2 MiB, pools by 32 MiB. */
#define PIECE_BYTES      ((size_t)2 << 20)
#define POOL_PIECE_BYTES ((size_t)32 << 20)

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
    size_t piece_bytes;
};

extern const struct memory_path memory_paths[];
const struct memory_path *memory_path_find(const char *name);

extern CUdevice path_device;
extern CUstream path_stream;
extern CUmemoryPool path_pool;

#endif
