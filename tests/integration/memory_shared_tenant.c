/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_shared_tenant: memory that goes from process to process. One line on stdin is one request, one
 * line on stdout its answer, "RESULT VALUE". Numbers I name a place for a handle or an address.
 *
 *   create I GIB      cuMemCreate, exportable
 *   export I          a descriptor of it; VALUE is its number
 *   import I PID FD   the descriptor of another process (PID 0: of this one)
 *   external I PID FD GIB   the same by cuImportExternalMemory
 *   release I         cuMemRelease            destroy I   cuDestroyExternalMemory
 *   map I GIB         reserve, map            unmap I GIB
 *   close FD          close(2)
 *   fabric I GIB      cuMemCreate, for a fabric handle    give I   that handle; VALUE is its 64 bytes in hex
 *   take I HEX        imports it
 *   cast I GIB        cuMulticastCreate       bind I M GIB   the memory of handle M, or with
 *   bindat I M GIB    of address M            unbind I GIB
 *   alloc I MIB       cuMemAlloc              free I
 *   get I             an IPC handle; VALUE is its 64 bytes in hex
 *   open I HEX        cuIpcOpenMemHandle      shut I
 *   pool I            cuMemPoolCreate, exportable     share I   a descriptor of it; VALUE is its number
 *   use I PID FD      cuMemPoolImportFromShareableHandle        drop I    cuMemPoolDestroy
 *   piece I P MIB     an address from the pool in place P       offer I   its 64 bytes in hex
 *   accept I P HEX    cuMemPoolImportPointer      back I    cuMemFreeAsync, and wait (the address in place I)
 *   churn GIB N       N times: create, export, import, release, close; VALUE: how often it worked
 *   info              VALUE: free MiB as cuMemGetInfo says
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory_api.h"

#define PLACES 64
#define GIB    ((size_t)1 << 30)
#define FD     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static CUmemGenericAllocationHandle handle[PLACES];
static CUdeviceptr address[PLACES];
static CUexternalMemory external[PLACES];
static CUmemoryPool pool[PLACES];

static void answer(CUresult rc, long long value)
{
    (void)printf("%d %lld\n", (int)rc, value);
}

static CUresult create(int i, size_t bytes, CUmemAllocationHandleType type)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = type,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    return cu.cuMemCreate(&handle[i], bytes, &prop, 0);
}

/* A descriptor of one's own, whoever had it. */
static int fetch(int pid, int fd)
{
    if (pid == 0)
        return dup(fd);
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    int mine = (int)syscall(SYS_pidfd_getfd, process, fd, 0);
    (void)close(process);
    return mine;
}

static void import(int i, int pid, int fd)
{
    int mine = fetch(pid, fd);
    answer(cu.cuMemImportFromShareableHandle(&handle[i], (void *)(intptr_t)mine, FD), 0);
    (void)close(mine);
}

static void import_external(int i, int pid, int fd, size_t bytes)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC d = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                                          .size = bytes};
    d.handle.fd = fetch(pid, fd); /* the driver's, if it takes it */
    CUresult rc = cu.cuImportExternalMemory(&external[i], &d);
    if (rc != CUDA_SUCCESS)
        (void)close(d.handle.fd);
    answer(rc, 0);
}

static void map(int i, size_t bytes)
{
    CUresult rc = cu.cuMemAddressReserve(&address[i], bytes, 0, 0, 0);
    answer(rc ? rc : cu.cuMemMap(address[i], bytes, 0, handle[i], 0), 0);
}

static void unmap(int i, size_t bytes)
{
    CUresult rc = cu.cuMemUnmap(address[i], bytes);
    answer(rc ? rc : cu.cuMemAddressFree(address[i], bytes), 0);
}

static void churn(size_t bytes, int times)
{
    CUresult rc = CUDA_SUCCESS;
    int done = 0;
    for (; done < times && rc == CUDA_SUCCESS; done += rc == CUDA_SUCCESS) {
        int fd = -1;
        rc = create(0, bytes, FD);
        if (rc != CUDA_SUCCESS)
            break;
        rc = cu.cuMemExportToShareableHandle(&fd, handle[0], FD, 0);
        if (rc == CUDA_SUCCESS)
            rc = cu.cuMemImportFromShareableHandle(&handle[1], (void *)(intptr_t)fd, FD);
        if (rc == CUDA_SUCCESS)
            rc = cu.cuMemRelease(handle[0]);
        (void)close(fd);
    }
    answer(rc, done);
}

#define HANDLE_BYTES 64 /* of either kind */

static void answer_hex(CUresult rc, const unsigned char *bytes)
{
    (void)printf("%d ", (int)rc);
    for (size_t k = 0; k < HANDLE_BYTES; k++)
        (void)printf("%02x", bytes[k]);
    (void)printf("\n");
}

static void read_hex(const char *hex, unsigned char *ret)
{
    for (size_t k = 0; k < HANDLE_BYTES; k++) {
        char byte[3] = {hex[2 * k], hex[2 * k + 1], '\0'};
        ret[k] = (unsigned char)strtoul(byte, NULL, 16);
    }
}

static void get(int i)
{
    CUipcMemHandle h;
    memset(&h, 0, sizeof(h));
    CUresult rc = cu.cuIpcGetMemHandle(&h, address[i]);
    answer_hex(rc, (unsigned char *)&h);
}

static void open_ipc(int i, const char *hex)
{
    CUipcMemHandle h;
    read_hex(hex, (unsigned char *)&h);
    answer(cu.cuIpcOpenMemHandle_v2(&address[i], h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), 0);
}

static void give(int i)
{
    unsigned char h[HANDLE_BYTES] = {0};
    CUresult rc = cu.cuMemExportToShareableHandle(h, handle[i], CU_MEM_HANDLE_TYPE_FABRIC, 0);
    answer_hex(rc, h);
}

static void take(int i, const char *hex)
{
    unsigned char h[HANDLE_BYTES];
    read_hex(hex, h);
    answer(cu.cuMemImportFromShareableHandle(&handle[i], h, CU_MEM_HANDLE_TYPE_FABRIC), 0);
}

/* ---- multicast objects: younger than the drivers that the rest runs on ---- */

#define LATER(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_DEFAULT, #name))

/* False: not one of these. */
static bool of_multicast(const char *verb, int n, const int *a)
{
    CUresult rc;
    if (strcmp(verb, "cast") == 0 && n == 2) {
        CUmulticastObjectProp prop = {.numDevices = 1, .size = (size_t)a[1] * GIB};
        rc = LATER(cuMulticastCreate)(&handle[a[0]], &prop);
        answer(rc ? rc : LATER(cuMulticastAddDevice)(handle[a[0]], 0), 0);
    } else if (strcmp(verb, "bind") == 0 && n == 3) {
        answer(LATER(cuMulticastBindMem)(handle[a[0]], 0, handle[a[1]], 0, (size_t)a[2] * GIB, 0),
               0);
    } else if (strcmp(verb, "bindat") == 0 && n == 3) {
        answer(LATER(cuMulticastBindAddr)(handle[a[0]], 0, address[a[1]], (size_t)a[2] * GIB, 0),
               0);
    } else if (strcmp(verb, "unbind") == 0 && n == 2) {
        answer(LATER(cuMulticastUnbind)(handle[a[0]], 0, 0, (size_t)a[1] * GIB), 0);
    } else {
        return false;
    }
    return true;
}

/* ---- pools ---- */

static void offer(int i)
{
    CUmemPoolPtrExportData d;
    memset(&d, 0, sizeof(d));
    CUresult rc = cu.cuMemPoolExportPointer(&d, address[i]);
    answer_hex(rc, d.reserved);
}

static void accept_piece(int i, int from, const char *hex)
{
    CUmemPoolPtrExportData d;
    read_hex(hex, d.reserved);
    answer(cu.cuMemPoolImportPointer(&address[i], pool[from], &d), 0);
}

static CUresult create_pool(int i)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = FD,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    return cu.cuMemPoolCreate(&pool[i], &props);
}

static CUresult synchronise(CUresult rc)
{
    return rc ? rc : cu.cuStreamSynchronize(NULL);
}

/* False: not one of these. */
static bool of_pools(const char *verb, int n, const int *a)
{
    if (strcmp(verb, "pool") == 0 && n == 1) {
        answer(create_pool(a[0]), 0);
    } else if (strcmp(verb, "share") == 0 && n == 1) {
        int fd = -1;
        CUresult rc = cu.cuMemPoolExportToShareableHandle(&fd, pool[a[0]], FD, 0);
        answer(rc, fd);
    } else if (strcmp(verb, "use") == 0 && n == 3) {
        int mine = fetch(a[1], a[2]);
        answer(cu.cuMemPoolImportFromShareableHandle(&pool[a[0]], (void *)(intptr_t)mine, FD, 0),
               0);
        (void)close(mine);
    } else if (strcmp(verb, "drop") == 0 && n == 1) {
        answer(cu.cuMemPoolDestroy(pool[a[0]]), 0);
    } else if (strcmp(verb, "piece") == 0 && n == 3) {
        size_t bytes = (size_t)a[2] << 20;
        answer(synchronise(cu.cuMemAllocFromPoolAsync(&address[a[0]], bytes, pool[a[1]], NULL)), 0);
    } else if (strcmp(verb, "offer") == 0 && n == 1) {
        offer(a[0]);
    } else if (strcmp(verb, "back") == 0 && n == 1) {
        answer(synchronise(cu.cuMemFreeAsync(address[a[0]], NULL)), 0);
    } else {
        return false;
    }
    return true;
}

static void info(void)
{
    size_t free_bytes = 0, total = 0;
    CUresult rc = cu.cuMemGetInfo_v2(&free_bytes, &total);
    answer(rc, (long long)(free_bytes >> 20));
}

/* False: not one of these. */
static bool between_processes(const char *verb, int n, const int *a)
{
    if (strcmp(verb, "export") == 0 && n == 1) {
        int fd = -1;
        CUresult rc = cu.cuMemExportToShareableHandle(&fd, handle[a[0]], FD, 0);
        answer(rc, fd);
    } else if (strcmp(verb, "import") == 0 && n == 3) {
        import(a[0], a[1], a[2]);
    } else if (strcmp(verb, "external") == 0 && n == 4) {
        import_external(a[0], a[1], a[2], (size_t)a[3] * GIB);
    } else if (strcmp(verb, "destroy") == 0 && n == 1) {
        answer(cu.cuDestroyExternalMemory(external[a[0]]), 0);
    } else if (strcmp(verb, "close") == 0 && n == 1) {
        answer(close(a[0]) == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, 0);
    } else if (strcmp(verb, "fabric") == 0 && n == 2) {
        answer(create(a[0], (size_t)a[1] * GIB, CU_MEM_HANDLE_TYPE_FABRIC), 0);
    } else if (strcmp(verb, "give") == 0 && n == 1) {
        give(a[0]);
    } else if (strcmp(verb, "get") == 0 && n == 1) {
        get(a[0]);
    } else if (strcmp(verb, "shut") == 0 && n == 1) {
        answer(cu.cuIpcCloseMemHandle(address[a[0]]), 0);
    } else {
        return false;
    }
    return true;
}

static bool plain(const char *verb, int n, const int *a)
{
    if (strcmp(verb, "create") == 0 && n == 2)
        answer(create(a[0], (size_t)a[1] * GIB, FD), 0);
    else if (strcmp(verb, "release") == 0 && n == 1)
        answer(cu.cuMemRelease(handle[a[0]]), 0);
    else if (strcmp(verb, "map") == 0 && n == 2)
        map(a[0], (size_t)a[1] * GIB);
    else if (strcmp(verb, "unmap") == 0 && n == 2)
        unmap(a[0], (size_t)a[1] * GIB);
    else if (strcmp(verb, "alloc") == 0 && n == 2)
        answer(cu.cuMemAlloc_v2(&address[a[0]], (size_t)a[1] << 20), 0);
    else if (strcmp(verb, "free") == 0 && n == 1)
        answer(cu.cuMemFree_v2(address[a[0]]), 0);
    else if (strcmp(verb, "churn") == 0 && n == 2)
        churn((size_t)a[0] * GIB, a[1]);
    else if (strcmp(verb, "info") == 0)
        info();
    else
        return false;
    return true;
}

int main(void)
{
    CUcontext context;
    char line[256];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!test_api_load("direct") || cu.cuInit(0) != CUDA_SUCCESS ||
        cu.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cu.cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return 1;
    (void)printf("ready\n");
    /* Its life may end by SIGKILL; a coverage build writes its counters before. */
    void (*write_coverage)(void) =
        (void (*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "sluice_coverage_write");
    while (write_coverage ? write_coverage() : (void)0, fgets(line, sizeof(line), stdin)) {
        char verb[16], hex[160];
        int a[4] = {0}, place, from;
        if (sscanf(line, "open %d %159s", &place, hex) == 2 && strlen(hex) == 128) {
            open_ipc(place % PLACES, hex);
            continue;
        }
        if (sscanf(line, "take %d %159s", &place, hex) == 2 && strlen(hex) == 128) {
            take(place % PLACES, hex);
            continue;
        }
        if (sscanf(line, "accept %d %d %159s", &place, &from, hex) == 3 && strlen(hex) == 128) {
            accept_piece(place % PLACES, from % PLACES, hex);
            continue;
        }
        int n = sscanf(line, "%15s %d %d %d %d", verb, &a[0], &a[1], &a[2], &a[3]) - 1;
        if (n < 0 || a[0] < 0 || (strcmp(verb, "close") != 0 && a[0] >= PLACES))
            return 2;
        if (!plain(verb, n, a) && !between_processes(verb, n, a) && !of_pools(verb, n, a) &&
            !of_multicast(verb, n, a))
            return 2;
    }
    return 0;
}
