/* SPDX-License-Identifier: Apache-2.0 */
/* Several processes on one simulated machine: time, memory, death, sharing. */
#include "cuda_case.h"

#include <math.h>
#include <poll.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "sim/state.h"

#define MIB   (1ULL << 20)
#define DEPTH 40 /* rounds in flight: a busy machine must not leave the card idle */

struct shared {
    _Atomic int ready, go, stop;
    double ms[4][400];
    _Atomic int count[4];
    CUipcMemHandle mem[2];
    CUmemPoolPtrExportData piece;
    CUipcEventHandle event;
    _Atomic uint32_t value;
};
static struct shared *sh;

static void wait_for(_Atomic int *what, int value)
{
    for (int i = 0; *what < value; i++) {
        CHECK(i < 20000);
        (void)usleep(1000);
    }
}

/* Keeps the card full with 170 us kernels. */
static void saturate(void *arg)
{
    struct sl_tenant t;
    (void)arg;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    sl_tenant_open(&t, 0);
    CUevent e[DEPTH];
    for (int i = 0; i < DEPTH; i++)
        CU_OK(cuEventCreate(&e[i], CU_EVENT_DISABLE_TIMING));
    sh->ready++;
    wait_for(&sh->go, 1);
    for (unsigned int round = 0; !sh->stop; round++) {
        if (round >= DEPTH)
            CU_OK(cuEventSynchronize(e[round % DEPTH]));
        for (int i = 0; i < 20; i++)
            sl_tenant_fma(&t, NULL, 170000);
        CU_OK(cuEventRecord(e[round % DEPTH], NULL));
    }
}

#define KERNELS 900 /* as many as a queue holds, beside the rest */
#define PART    (KERNELS / 4)

/* Both queues are full before either begins, and the card's clock tells: how often these processes get a
 * processor meanwhile changes nothing. What is measured is the half in the middle, when the other is there. */
static void one_of_two(void *arg)
{
    struct sl_tenant t;
    CUevent begin, end;
    CUdeviceptr go;
    float ms = 0;
    sl_tenant_open(&t, 0);
    CU_OK(cuEventCreate(&begin, 0));
    CU_OK(cuEventCreate(&end, 0));
    CU_OK(cuMemHostRegister_v2(sh, sizeof(*sh), CU_MEMHOSTREGISTER_DEVICEMAP));
    CU_OK(cuMemHostGetDevicePointer_v2(&go, sh, 0));
    CU_OK(cuStreamWaitValue32(NULL, go + offsetof(struct shared, go), 1, CU_STREAM_WAIT_VALUE_EQ));
    for (int i = 0; i < KERNELS; i++) {
        if (i == PART)
            CU_OK(cuEventRecord(begin, NULL));
        if (i == KERNELS - PART)
            CU_OK(cuEventRecord(end, NULL));
        sl_tenant_fma(&t, NULL, 1700000);
    }
    sh->ready++;
    CU_OK(cuCtxSynchronize());
    CU_OK(cuEventElapsedTime(&ms, begin, end));
    sh->ms[(intptr_t)arg][0] = (double)ms;
}

static void two_saturate(void)
{
    pid_t pid[2];
    double share[2];
    sh = case_shared(sizeof(*sh));
    for (int i = 0; i < 2; i++)
        pid[i] = case_child(one_of_two, (void *)(intptr_t)i);
    wait_for(&sh->ready, 2);
    sh->go = 1;
    for (int i = 0; i < 2; i++) {
        case_join(pid[i]);
        share[i] = 100 * 1.7 * (KERNELS - 2 * PART) / sh->ms[i][0];
    }
    (void)fprintf(stderr, "shares %.1f %.1f\n", share[0], share[1]);
    CHECK(fabs(share[0] - 46.8) < 5 && fabs(share[1] - 46.8) < 5);
}

/* 2 ms requests of 20 kernels, from submission to the end. */
static void requests(int slot, int n)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    for (int i = 0; i < n; i++) {
        double t0 = sl_tenant_now_ms();
        for (int k = 0; k < 20; k++)
            sl_tenant_fma(&t, NULL, 100000);
        CU_OK(cuCtxSynchronize());
        sh->ms[slot][i] = sl_tenant_now_ms() - t0;
        (void)usleep((useconds_t)(5000 + i * 1931 % 4400)); /* at all phases of the other's turn */
    }
    sh->count[slot] = n;
    sl_tenant_close(&t);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(int slot)
{
    qsort(sh->ms[slot], (size_t)sh->count[slot], sizeof(double), by_size);
    return sh->ms[slot][sh->count[slot] / 2];
}

static void requests_child(void *arg)
{
    requests((int)(intptr_t)arg, 150);
}

/* 2.05 ms alone and 3.28 beside a saturating tenant, on an H200: a factor of 1.6. */
static void request_beside(void)
{
    sh = case_shared(sizeof(*sh));
    case_join(case_child(requests_child, (void *)(intptr_t)1));
    pid_t busy = case_child(saturate, NULL);
    wait_for(&sh->ready, 1);
    sh->go = 1;
    case_join(case_child(requests_child, (void *)(intptr_t)2));
    double alone = median(1), beside = median(2);
    (void)fprintf(stderr, "alone %.2f beside %.2f ratio %.2f p99 %.2f\n", alone, beside,
                  beside / alone, sh->ms[2][148]);
    CHECK(alone >= 2.0);
    /* In an instrumented build most of a request is the host's part, which the neighbour does not change. */
    CHECK(INSTRUMENTED || (beside / alone > 1.3 && beside / alone < 2.0));
    sh->stop = 1;
    case_join(busy);
}

static uint64_t used_now(void)
{
    struct sl_sim_state *st;
    CHECK(sl_sim_open(&st, NULL) == 0);
    sl_sim_lock(st);
    sl_sim_reap(st, true);
    uint64_t used = sl_sim_used_bytes(st, 0);
    sl_sim_unlock(st);
    return used;
}

static void hog(void *arg)
{
    (void)arg;
    struct sl_tenant t;
    CUdeviceptr p;
    CUstream s;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    sl_tenant_open(&t, 0);
    CU_OK(cuMemAlloc_v2(&p, 100ULL << 30));
    CU_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    sl_tenant_forever(&t, s);
    sh->ready++;
    for (;;) /* always in or near the locks */
        sl_tenant_fma(&t, NULL, 1000);
}

/* Killed at any moment, a process leaves nothing behind, and nobody stuck. */
static void killed(void)
{
    sh = case_shared(sizeof(*sh));
    struct sl_tenant t;
    CHECK(used_now() == 0);
    for (int i = 0; i < 40; i++) {
        pid_t pid = case_child(hog, NULL);
        wait_for(&sh->ready, i + 1);
        CHECK(used_now() > (100ULL << 30));
        (void)usleep((useconds_t)(137 * i % 1500));
        CHECK(kill(pid, SIGKILL) == 0);
        CHECK(waitpid(pid, NULL, 0) == pid);
        CHECK(used_now() == 0);
    }
    sl_tenant_open(&t, 0);
    sl_tenant_fma(&t, NULL, 1000000);
    CU_OK(cuCtxSynchronize());
    sl_tenant_close(&t);
    CHECK(used_now() == 0);
}

static void exporter(void *arg)
{
    (void)arg;
    struct sl_tenant t;
    CUdeviceptr p;
    CUevent e;
    uint32_t v;
    sl_tenant_open(&t, 0);
    CU_OK(cuMemAlloc_v2(&p, 8 * MIB));
    CU_OK(cuMemsetD32_v2(p, 0, 2 * MIB));
    sl_tenant_fill(&t, NULL, p, 77, 10);
    CU_OK(cuEventCreate(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    CU_OK(cuEventRecord(e, NULL));
    CU_OK(cuIpcGetEventHandle(&sh->event, e));
    CU_OK(cuCtxSynchronize());
    CU_OK(cuIpcGetMemHandle(&sh->mem[0], p));
    CUdeviceptr own;
    CU_IS(CUDA_ERROR_INVALID_CONTEXT,
          cuIpcOpenMemHandle_v2(&own, sh->mem[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    sh->ready = 1;
    wait_for(&sh->go, 1);
    CU_OK(cuMemcpyDtoH_v2(&v, p + 4, 4)); /* the importer wrote there */
    sh->value = v;
    CU_OK(cuMemFree_v2(p));
    sh->ready = 2;
    wait_for(&sh->go, 2);
}

static void ipc(void)
{
    sh = case_shared(sizeof(*sh));
    pid_t pid = case_child(exporter, NULL);
    wait_for(&sh->ready, 1);
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    uint64_t before = used_now();
    CUdeviceptr p;
    CUevent e;
    uint32_t v[2];
    CU_OK(cuIpcOpenEventHandle(&e, sh->event));
    CU_OK(cuEventSynchronize(e));
    CU_OK(cuStreamWaitEvent(NULL, e, 0));
    CU_OK(cuIpcOpenMemHandle_v2(&p, sh->mem[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK(used_now() == before); /* once, however many hold it */
    CU_OK(cuMemcpyDtoH_v2(v, p, 8));
    CHECK(v[0] == 77 && v[1] == 77);
    sl_tenant_fill(&t, NULL, p + 4, 5, 1);
    CU_OK(cuCtxSynchronize());
    sh->go = 1;
    wait_for(&sh->ready, 2);
    CHECK(sh->value == 5);
    CHECK(used_now() == before); /* freed there, held here: still charged */
    sh->go = 2;
    case_join(pid);
    uint64_t alone = used_now();
    CU_OK(cuIpcCloseMemHandle(p));
    CHECK(used_now() == alone - 8 * MIB);
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cuIpcOpenMemHandle_v2(&p, sh->mem[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

static void meeter(void *arg)
{
    (void)arg;
    struct sl_tenant t;
    CUdeviceptr p;
    sl_tenant_open(&t, 1);
    wait_for(&sh->ready, 1);
    CU_OK(cuIpcOpenMemHandle_v2(&p, sh->mem[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    sl_tenant_meet(&t, NULL, p + 4, p);
    CU_OK(cuCtxSynchronize());
}

/* Two kernels that wait for each other: in one process on two cards, then in two processes. */
static void meet(void)
{
    sh = case_shared(sizeof(*sh));
    pid_t pid = case_child(meeter, NULL);
    struct sl_tenant a, b;
    CUdeviceptr p, q;
    sl_tenant_open(&a, 0);
    CU_OK(cuMemAlloc_v2(&p, 4096));
    CU_OK(cuMemsetD32_v2(p, 0, 1024));
    CU_OK(cuCtxSynchronize());
    sl_tenant_open(&b, 1);
    CU_OK(cuMemAlloc_v2(&q, 4096));
    CU_OK(cuMemsetD32_v2(q, 0, 1024));
    CU_OK(cuCtxSynchronize());
    sl_tenant_meet(&b, NULL, q, p);
    CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    CU_OK(cuCtxSetCurrent(a.ctx));
    sl_tenant_meet(&a, NULL, p, q);
    CU_OK(cuCtxSynchronize());
    CU_OK(cuCtxSetCurrent(b.ctx));
    CU_OK(cuCtxSynchronize());

    CU_OK(cuCtxSetCurrent(a.ctx));
    CU_OK(cuMemsetD32_v2(p, 0, 1024));
    CU_OK(cuCtxSynchronize());
    CU_OK(cuIpcGetMemHandle(&sh->mem[0], p));
    sh->ready = 1;
    sl_tenant_meet(&a, NULL, p, p + 4);
    CU_OK(cuCtxSynchronize());
    case_join(pid);
}

static void send_fd(int sock, int fd)
{
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec io = {.iov_base = &byte, .iov_len = 1};
    struct msghdr m = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    CHECK(sendmsg(sock, &m, 0) == 1);
}

static int receive_fd(int sock)
{
    char byte, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec io = {.iov_base = &byte, .iov_len = 1};
    struct msghdr m = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    int fd;
    CHECK(recvmsg(sock, &m, 0) == 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
    return fd;
}

static CUdeviceptr map_handle(CUmemGenericAllocationHandle h, size_t bytes)
{
    CUdeviceptr va;
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CU_OK(cuMemAddressReserve(&va, bytes, 0, 0, 0));
    CU_OK(cuMemMap(va, bytes, 0, h, 0));
    CU_OK(cuMemSetAccess(va, bytes, &access, 1));
    return va;
}

static void fd_owner(void *arg)
{
    struct sl_tenant t;
    CUmemGenericAllocationHandle h;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    int fd;
    sl_tenant_open(&t, 0);
    CU_OK(cuMemCreate(&h, 4 * MIB, &prop, 0));
    CUdeviceptr va = map_handle(h, 4 * MIB);
    CU_OK(cuMemsetD32_v2(va, 123, MIB));
    CU_OK(cuCtxSynchronize());
    CU_OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_fd((int)(intptr_t)arg, fd);
    sh->ready = 1;
    wait_for(&sh->go, 1);
}

static void shared_by_fd(void)
{
    int pair[2];
    sh = case_shared(sizeof(*sh));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t pid = case_child(fd_owner, (void *)(intptr_t)pair[1]);
    int fd = receive_fd(pair[0]);
    wait_for(&sh->ready, 1);
    struct sl_tenant t;
    CUmemGenericAllocationHandle h;
    uint32_t v;
    sl_tenant_open(&t, 0);
    uint64_t before = used_now();
    CU_OK(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CUdeviceptr va = map_handle(h, 4 * MIB);
    CU_OK(cuMemcpyDtoH_v2(&v, va + 2 * MIB, 4));
    CHECK(v == 123 && used_now() == before);
    sh->go = 1;
    case_join(pid);
    uint64_t mine = used_now(); /* the owner is gone: its 4 MiB stay */
    CU_OK(cuMemUnmap(va, 4 * MIB));
    CHECK(used_now() == mine);
    CU_OK(cuMemRelease(h));
    CHECK(used_now() == mine - 4 * MIB);
}

/* Pieces of a pool: the importer has them, and they count, after their maker has ended. */
static void pool_exporter(void *arg)
{
    int sock = (int)(intptr_t)arg;
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    CUdeviceptr p;
    int fd;
    CU_OK(cuMemPoolCreate(&pool, &props));
    CU_OK(cuMemAllocFromPoolAsync(&p, 4 * MIB, pool, NULL));
    CU_OK(cuMemsetD32_v2(p, 0x5eed, MIB));
    CU_OK(cuCtxSynchronize());
    CU_OK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CU_OK(cuMemPoolExportPointer(&sh->piece, p));
    send_fd(sock, fd);
    wait_for(&sh->go, 1);
}

static void pool_pieces(void)
{
    int pair[2];
    sh = case_shared(sizeof(*sh));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = case_child(pool_exporter, (void *)(intptr_t)pair[1]);
    struct sl_tenant t;
    int fd = receive_fd(pair[0]);
    sl_tenant_open(&t, 0);
    CUmemoryPool pool;
    CUdeviceptr p, none;
    uint32_t word = 0;
    CU_OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&none, 4 * MIB, pool, NULL));
    CU_OK(cuMemPoolImportPointer(&p, pool, &sh->piece));
    CU_OK(cuMemcpyDtoH_v2(&word, p + 4 * 1000, 4));
    CHECK(word == 0x5eed);
    sh->go = 1;
    case_join(child);
    uint64_t alone = used_now();
    CU_OK(cuMemFreeAsync(p, NULL));
    CU_OK(cuCtxSynchronize());
    CHECK(used_now() == alone - 4 * MIB);
}

static void filler(void *arg)
{
    (void)arg;
    struct sl_tenant t;
    CUdeviceptr p;
    sl_tenant_open(&t, 0);
    CU_OK(cuMemAlloc_v2(&p, 100ULL << 30));
    sh->ready++;
    wait_for(&sh->go, 1);
}

static void card_is_shared(void)
{
    sh = case_shared(sizeof(*sh));
    pid_t pid = case_child(filler, NULL);
    wait_for(&sh->ready, 1);
    struct sl_tenant t;
    CUdeviceptr p;
    size_t free_bytes, total;
    sl_tenant_open(&t, 0);
    CU_OK(cuMemGetInfo_v2(&free_bytes, &total));
    CHECK(free_bytes < total - (100ULL << 30));
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&p, 50ULL << 30));
    sh->go = 1;
    case_join(pid);
    CU_OK(cuMemAlloc_v2(&p, 50ULL << 30));
}

int main(int argc, char **argv)
{
    static const struct cuda_case cases[] = {
        {.name = "card_is_shared", .run = card_is_shared},
        {.name = "killed", .run = killed},
        {.name = "ipc", .run = ipc},
        {.name = "shared_by_fd", .run = shared_by_fd},
        {.name = "pool_pieces", .run = pool_pieces},
        {.name = "meet", .run = meet, .sim = "h200x2"},
        {.name = "two_saturate", .run = two_saturate},
        {.name = "request_beside", .run = request_beside},
    };
    return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
