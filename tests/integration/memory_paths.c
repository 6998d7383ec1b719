/* SPDX-License-Identifier: Apache-2.0 */
#include "memory_paths.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

CUdevice path_device;
CUstream path_stream;
CUmemoryPool path_pool;

/* A step that undoes something, or stands in the middle: with faults injected it may fail once. */
#define TWICE(call)                                                                                \
    __extension__({                                                                                \
        CUresult once_ = (call);                                                                   \
        once_ == CUDA_SUCCESS || once_ == CUDA_ERROR_OUT_OF_MEMORY ? once_ : (call);               \
    })

/* ---- linear ---- */

static CUresult take_alloc(struct piece *p)
{
    return cu.cuMemAlloc_v2(&p->address, PIECE_BYTES);
}

static CUresult take_alloc_v1(struct piece *p)
{
    CUdeviceptr_v1 address = 0;
    CUresult rc = cu.cuMemAlloc(&address, (unsigned int)PIECE_BYTES);
    p->address = address;
    return rc;
}

static CUresult take_pitch(struct piece *p)
{
    size_t pitch;
    return cu.cuMemAllocPitch_v2(&p->address, &pitch, 4096, PIECE_BYTES / 4096, 4);
}

static CUresult take_pitch_v1(struct piece *p)
{
    CUdeviceptr_v1 address = 0;
    unsigned int pitch;
    CUresult rc = cu.cuMemAllocPitch(&address, &pitch, 4096, (unsigned int)(PIECE_BYTES / 4096), 4);
    p->address = address;
    return rc;
}

static CUresult take_managed(struct piece *p)
{
    return cu.cuMemAllocManaged(&p->address, PIECE_BYTES, CU_MEM_ATTACH_GLOBAL);
}

static CUresult give_free(struct piece *p)
{
    return TWICE(cu.cuMemFree_v2(p->address));
}

static CUresult give_free_v1(struct piece *p)
{
    return TWICE(cu.cuMemFree((CUdeviceptr_v1)p->address));
}

/* ---- stream-ordered ---- */

static CUresult take_async(struct piece *p)
{
    return cu.cuMemAllocAsync(&p->address, POOL_PIECE_BYTES, path_stream);
}

static CUresult take_async_ptsz(struct piece *p)
{
    return cu.cuMemAllocAsync_ptsz(&p->address, POOL_PIECE_BYTES, NULL);
}

static CUresult make_pool(void)
{
    CUmemPoolProps props;
    memset(&props, 0, sizeof(props));
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = path_device;
    return path_pool ? CUDA_SUCCESS : TWICE(cu.cuMemPoolCreate(&path_pool, &props));
}

static CUresult take_pool(struct piece *p)
{
    CUresult rc = make_pool();
    return rc ? rc
              : cu.cuMemAllocFromPoolAsync(&p->address, POOL_PIECE_BYTES, path_pool, path_stream);
}

static CUresult take_pool_ptsz(struct piece *p)
{
    CUresult rc = make_pool();
    return rc ? rc
              : cu.cuMemAllocFromPoolAsync_ptsz(&p->address, POOL_PIECE_BYTES, path_pool, NULL);
}

static CUresult give_async(struct piece *p)
{
    return TWICE(cu.cuMemFreeAsync(p->address, path_stream));
}

static CUresult give_async_ptsz(struct piece *p)
{
    return TWICE(cu.cuMemFreeAsync_ptsz(p->address, NULL));
}

/* ---- virtual memory management ---- */

static CUmemAllocationProp device_prop(void)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof(prop));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = path_device;
    return prop;
}

static CUresult take_create(struct piece *p)
{
    CUmemAllocationProp prop = device_prop();
    return cu.cuMemCreate(&p->handle, PIECE_BYTES, &prop, 0);
}

static CUresult give_release(struct piece *p)
{
    return TWICE(cu.cuMemRelease(p->handle));
}

/* The handle goes at once, the mapping keeps the memory: what PyTorch's expandable segments do. */
static CUresult take_mapped(struct piece *p)
{
    CUresult rc = take_create(p);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = TWICE(cu.cuMemAddressReserve(&p->address, PIECE_BYTES, 0, 0, 0));
    if (rc == CUDA_SUCCESS)
        rc = TWICE(cu.cuMemMap(p->address, PIECE_BYTES, 0, p->handle, 0));
    CUresult released = TWICE(cu.cuMemRelease(p->handle));
    return rc ? rc : released;
}

static CUresult give_unmap(struct piece *p)
{
    CUresult rc = TWICE(cu.cuMemUnmap(p->address, PIECE_BYTES));
    return rc ? rc : TWICE(cu.cuMemAddressFree(p->address, PIECE_BYTES));
}

/* Mapped, handle released, and taken again from the address: three references, one charge. */
static CUresult take_retained(struct piece *p)
{
    CUresult rc = take_mapped(p);
    void *inside = (void *)(uintptr_t)(p->address + 4096);
    return rc ? rc : TWICE(cu.cuMemRetainAllocationHandle(&p->handle, inside));
}

static CUresult give_retained(struct piece *p)
{
    CUresult rc = give_unmap(p);
    return rc ? rc : TWICE(cu.cuMemRelease(p->handle));
}

/* Exported and imported again: the importer is not charged a second time. */
static CUresult take_imported(struct piece *p)
{
    int fd = -1;
    CUmemGenericAllocationHandle other = 0;
    CUresult rc = take_create(p);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = TWICE(cu.cuMemExportToShareableHandle(&fd, p->handle,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    if (rc == CUDA_SUCCESS)
        rc = TWICE(cu.cuMemImportFromShareableHandle(&other, (void *)(intptr_t)fd,
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    if (fd >= 0)
        (void)close(fd);
    p->object = (void *)(uintptr_t)other;
    return rc;
}

static CUresult give_imported(struct piece *p)
{
    CUmemGenericAllocationHandle other = (CUmemGenericAllocationHandle)(uintptr_t)p->object;
    CUresult rc = other != p->handle ? TWICE(cu.cuMemRelease(other)) : CUDA_SUCCESS;
    return rc ? rc : TWICE(cu.cuMemRelease(p->handle));
}

/* ---- arrays ---- */

static CUresult take_array(struct piece *p)
{
    CUDA_ARRAY_DESCRIPTOR d = {1024, PIECE_BYTES / 4096, CU_AD_FORMAT_FLOAT, 1};
    return cu.cuArrayCreate_v2((CUarray *)&p->object, &d);
}

static CUresult take_array_v1(struct piece *p)
{
    CUDA_ARRAY_DESCRIPTOR_v1 d = {1024, (unsigned int)(PIECE_BYTES / 4096), CU_AD_FORMAT_FLOAT, 1};
    return cu.cuArrayCreate((CUarray *)&p->object, &d);
}

static CUresult take_array3d(struct piece *p)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {256, 64, PIECE_BYTES / (256 * 64 * 8), CU_AD_FORMAT_HALF, 4, 0};
    return cu.cuArray3DCreate_v2((CUarray *)&p->object, &d);
}

static CUresult take_array3d_v1(struct piece *p)
{
    CUDA_ARRAY3D_DESCRIPTOR_v1 d = {
        256, 64, (unsigned int)(PIECE_BYTES / (256 * 64 * 8)), CU_AD_FORMAT_HALF, 4, 0};
    return cu.cuArray3DCreate((CUarray *)&p->object, &d);
}

static CUresult give_array(struct piece *p)
{
    return TWICE(cu.cuArrayDestroy((CUarray)p->object));
}

static CUresult take_mipmap(struct piece *p)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {1024, PIECE_BYTES / 4096, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0};
    return cu.cuMipmappedArrayCreate((CUmipmappedArray *)&p->object, &d, 1);
}

static CUresult give_mipmap(struct piece *p)
{
    return TWICE(cu.cuMipmappedArrayDestroy((CUmipmappedArray)p->object));
}

/* ---- graphs: the memory exists from the launch until the graph's memory is freed and trimmed ---- */

static void fill_node(CUDA_MEM_ALLOC_NODE_PARAMS *a)
{
    memset(a, 0, sizeof(*a));
    a->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    a->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    a->poolProps.location.id = path_device;
    a->bytesize = POOL_PIECE_BYTES; /* a real driver gives each graph this much at least */
}

static CUresult run_graph(struct piece *p, CUgraph graph)
{
    CUgraphExec exec = NULL;
    CUresult rc = TWICE(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    if (rc == CUDA_SUCCESS)
        rc = TWICE(cu.cuGraphLaunch(exec, path_stream));
    if (rc == CUDA_SUCCESS)
        rc = TWICE(cu.cuStreamSynchronize(path_stream));
    p->object = exec;
    p->other = graph;
    if (rc != CUDA_SUCCESS) {
        if (exec)
            (void)TWICE(cu.cuGraphExecDestroy(exec));
        (void)TWICE(cu.cuGraphDestroy(graph));
    }
    return rc;
}

static CUresult take_graph_with(struct piece *p, int how)
{
    CUgraph graph;
    CUgraphNode node;
    CUresult rc = cu.cuGraphCreate(&graph, 0);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (how == 0) {
        CUDA_MEM_ALLOC_NODE_PARAMS a;
        fill_node(&a);
        rc = cu.cuGraphAddMemAllocNode(&node, graph, NULL, 0, &a);
        p->address = a.dptr;
    } else {
        CUgraphNodeParams params;
        memset(&params, 0, sizeof(params));
        params.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        fill_node(&params.alloc);
        rc = how == 1 ? cu.cuGraphAddNode(&node, graph, NULL, 0, &params)
                      : cu.cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params);
        p->address = params.alloc.dptr;
    }
    if (rc != CUDA_SUCCESS) {
        (void)cu.cuGraphDestroy(graph);
        return rc;
    }
    return run_graph(p, graph);
}

static CUresult take_graph(struct piece *p)
{
    return take_graph_with(p, 0);
}

static CUresult take_graph_addnode(struct piece *p)
{
    return take_graph_with(p, 1);
}

static CUresult take_graph_addnode_v2(struct piece *p)
{
    return take_graph_with(p, 2);
}

static CUresult take_capture(struct piece *p)
{
    CUgraph graph;
    CUresult rc = cu.cuStreamBeginCapture_v2(path_stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (rc == CUDA_SUCCESS)
        rc = TWICE(cu.cuMemAllocAsync(&p->address, POOL_PIECE_BYTES, path_stream));
    CUresult ended = TWICE(cu.cuStreamEndCapture(path_stream, &graph));
    if (rc != CUDA_SUCCESS || ended != CUDA_SUCCESS)
        return rc ? rc : ended;
    return run_graph(p, graph);
}

static CUresult give_graph(struct piece *p)
{
    CUresult rc = TWICE(cu.cuMemFreeAsync(p->address, path_stream));
    if (rc == CUDA_SUCCESS)
        rc = TWICE(cu.cuStreamSynchronize(path_stream));
    if (rc == CUDA_SUCCESS)
        rc = TWICE(cu.cuGraphExecDestroy((CUgraphExec)p->object));
    if (rc == CUDA_SUCCESS)
        rc = TWICE(cu.cuGraphDestroy((CUgraph)p->other));
    return rc ? rc : TWICE(cu.cuDeviceGraphMemTrim(path_device));
}

const struct memory_path memory_paths[] = {
    {"alloc", take_alloc, give_free, PIECE_BYTES},
    {"alloc-v1", take_alloc_v1, give_free_v1, PIECE_BYTES},
    {"pitch", take_pitch, give_free, PIECE_BYTES},
    {"pitch-v1", take_pitch_v1, give_free_v1, PIECE_BYTES},
    {"managed", take_managed, give_free, PIECE_BYTES},
    {"async", take_async, give_async, POOL_PIECE_BYTES},
    {"async-freed", take_async, give_free, POOL_PIECE_BYTES},
    {"async-ptsz", take_async_ptsz, give_async_ptsz, POOL_PIECE_BYTES},
    {"pool", take_pool, give_async, POOL_PIECE_BYTES},
    {"pool-ptsz", take_pool_ptsz, give_async_ptsz, POOL_PIECE_BYTES},
    {"create", take_create, give_release, PIECE_BYTES},
    {"mapped", take_mapped, give_unmap, PIECE_BYTES},
    {"retained", take_retained, give_retained, PIECE_BYTES},
    {"imported", take_imported, give_imported, PIECE_BYTES},
    {"array", take_array, give_array, PIECE_BYTES},
    {"array-v1", take_array_v1, give_array, PIECE_BYTES},
    {"array3d", take_array3d, give_array, PIECE_BYTES},
    {"array3d-v1", take_array3d_v1, give_array, PIECE_BYTES},
    {"mipmap", take_mipmap, give_mipmap, PIECE_BYTES},
    {"graph", take_graph, give_graph, POOL_PIECE_BYTES},
    {"graph-addnode", take_graph_addnode, give_graph, POOL_PIECE_BYTES},
    {"graph-addnode-v2", take_graph_addnode_v2, give_graph, POOL_PIECE_BYTES},
    {"capture", take_capture, give_graph, POOL_PIECE_BYTES},
    {NULL, NULL, NULL, 0},
};

const struct memory_path *memory_path_find(const char *name)
{
    for (const struct memory_path *m = memory_paths; m->name; m++)
        if (strcmp(m->name, name) == 0)
            return m;
    return NULL;
}
