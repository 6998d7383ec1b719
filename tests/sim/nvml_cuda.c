/* SPDX-License-Identifier: Apache-2.0 */
/* The two simulated libraries are one machine: what CUDA programs do, NVML tells. */
#include "cuda_case.h"

#include <dlfcn.h>
#include <sys/syscall.h>

#include "abi/nvml.h"

#define GIB (1ULL << 30)

static struct {
#define NVML_FN(name, since, params) __typeof__(&(name)) name;
    NVML_FUNCTIONS(NVML_FN)
#undef NVML_FN
} nv;

#define NV_IS(want, call) CHECK((call) == (want))
#define NV_OK(call)       NV_IS(NVML_SUCCESS, call)

static nvmlDevice_t card0(void)
{
    void *lib = dlopen(SIM_NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    CHECK(lib);
#define NVML_FN(name, since, params)                                                               \
    do {                                                                                           \
        void *symbol = dlsym(lib, #name);                                                          \
        CHECK(symbol);                                                                             \
        memcpy(&nv.name, &symbol, sizeof(symbol));                                                 \
    } while (0);
    NVML_FUNCTIONS(NVML_FN)
#undef NVML_FN
    nvmlDevice_t d;
    NV_OK(nv.nvmlInit_v2());
    NV_OK(nv.nvmlDeviceGetHandleByIndex_v2(0, &d));
    return d;
}

static uint64_t used(nvmlDevice_t d)
{
    nvmlMemory_t m;
    NV_OK(nv.nvmlDeviceGetMemoryInfo(d, &m));
    return m.used;
}

/* In one process, CUDA and NVML agree on the card, its memory, and who has it. */
static void one_process(void)
{
    struct sl_tenant t;
    nvmlDevice_t d = card0();
    CHECK(used(d) == 0);
    sl_tenant_open(&t, 0);
    CUdeviceptr p;
    size_t cuda_free, cuda_total;
    CU_OK(cuMemAlloc_v2(&p, 3 * GIB));
    CU_OK(cuMemGetInfo_v2(&cuda_free, &cuda_total));
    nvmlMemory_t m;
    NV_OK(nv.nvmlDeviceGetMemoryInfo(d, &m));
    CHECK(m.total == cuda_total && m.free == cuda_free);
    CHECK(m.used > 3 * GIB + 400 * (1ULL << 20)); /* with the context */

    nvmlProcessInfo_t list[4];
    unsigned int n = 4;
    NV_OK(nv.nvmlDeviceGetComputeRunningProcesses_v3(d, &n, list));
    CHECK(n == 1 && list[0].pid == (unsigned int)getpid() && list[0].usedGpuMemory == m.used);

    CUuuid uuid;
    char text[96], cuda_name[96];
    CU_OK(cuDeviceGetUuid(&uuid, t.dev));
    NV_OK(nv.nvmlDeviceGetUUID(d, text, sizeof(text)));
    char want[48];
    const unsigned char *u = (const unsigned char *)&uuid;
    (void)snprintf(want, sizeof(want), "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-", u[0], u[1], u[2],
                   u[3], u[4], u[5], u[6], u[7]);
    CHECK(strncmp(text, want, strlen(want)) == 0);
    CU_OK(cuDeviceGetName(cuda_name, sizeof(cuda_name), t.dev));
    NV_OK(nv.nvmlDeviceGetName(d, text, sizeof(text)));
    CHECK(strcmp(text, cuda_name) == 0);
    CU_OK(cuMemFree_v2(p));
    sl_tenant_close(&t);
    CHECK(used(d) == 0);
}

struct shared {
    volatile int ready[2];
    volatile int done;
};

static void hold(struct shared *s, int which, uint64_t bytes)
{
    struct sl_tenant t;
    CUdeviceptr p;
    sl_tenant_open(&t, 0);
    CU_OK(cuMemAlloc_v2(&p, bytes));
    s->ready[which] = 1;
    while (!s->done)
        (void)usleep(1000);
}

static void hold_small(void *arg)
{
    hold(arg, 0, GIB);
}

static void hold_large(void *arg)
{
    hold(arg, 1, 20 * GIB);
}

static void two_processes(void)
{
    struct shared *s = case_shared(sizeof(*s));
    nvmlDevice_t d = card0();
    pid_t a = case_child(hold_small, s), b = case_child(hold_large, s);
    while (!s->ready[0] || !s->ready[1])
        (void)usleep(1000);
    nvmlProcessInfo_t list[4];
    unsigned int n = 4;
    NV_OK(nv.nvmlDeviceGetComputeRunningProcesses_v3(d, &n, list));
    CHECK(n == 2);
    uint64_t sum = 0;
    for (unsigned int i = 0; i < n; i++) {
        CHECK(list[i].pid == (unsigned int)a || list[i].pid == (unsigned int)b);
        CHECK(list[i].usedGpuMemory > (list[i].pid == (unsigned int)a ? GIB : 20 * GIB));
        sum += list[i].usedGpuMemory;
    }
    CHECK(used(d) == sum);
    CHECK(kill(b, SIGKILL) == 0 && waitpid(b, NULL, 0) == b);
    n = 4;
    NV_OK(nv.nvmlDeviceGetComputeRunningProcesses_v3(d, &n, list));
    CHECK(n == 1 && list[0].pid == (unsigned int)a && used(d) == list[0].usedGpuMemory);
    s->done = 1;
    case_join(a);
    CHECK(used(d) == 0);
}

static uint64_t used_by(nvmlDevice_t d, pid_t pid)
{
    nvmlProcessInfo_t list[8];
    unsigned int n = 8;
    NV_OK(nv.nvmlDeviceGetComputeRunningProcesses_v3(d, &n, list));
    for (unsigned int i = 0; i < n; i++)
        if (list[i].pid == (unsigned int)pid)
            return list[i].usedGpuMemory;
    return 0;
}

static CUmemGenericAllocationHandle exportable(int *ret_fd)
{
    CUmemGenericAllocationHandle h;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CU_OK(cuMemCreate(&h, 4 * GIB, &prop, 0));
    CU_OK(cuMemExportToShareableHandle(ret_fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return h;
}

static CUmemGenericAllocationHandle import(int fd)
{
    CUmemGenericAllocationHandle h;
    CU_OK(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    return h;
}

/* What a process imported is its own once nobody else has it. The steps are those an H200 was
 * asked, with the answers it gave. */
static void imported_by_oneself(void)
{
    struct sl_tenant t;
    int fd;
    nvmlDevice_t d = card0();
    sl_tenant_open(&t, 0);
    uint64_t before = used_by(d, getpid());
    CUmemGenericAllocationHandle first = exportable(&fd);
    CUmemGenericAllocationHandle second = import(fd), third = import(fd);
    (void)close(fd);
    CHECK(used_by(d, getpid()) == before + 4 * GIB);
    CU_OK(cuMemRelease(first));
    CHECK(used_by(d, getpid()) == before + 4 * GIB);
    CU_OK(cuMemRelease(second));
    CHECK(used_by(d, getpid()) == before + 4 * GIB && used(d) == before + 4 * GIB);
    CU_OK(cuMemRelease(third));
    CHECK(used_by(d, getpid()) == before && used(d) == before);
}

struct handed {
    volatile int fd_maker, released, done;
    volatile pid_t pid;
};

static void make_and_hand_over(void *arg)
{
    struct handed *s = arg;
    struct sl_tenant t;
    int fd;
    sl_tenant_open(&t, 0);
    CUmemGenericAllocationHandle h = exportable(&fd);
    s->fd_maker = fd;
    while (!s->released)
        (void)usleep(1000);
    CU_OK(cuMemRelease(h));
    (void)close(fd);
    s->released = 2;
    while (!s->done)
        (void)usleep(1000);
}

static int descriptor_of(pid_t pid, int fd)
{
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    int mine = (int)syscall(SYS_pidfd_getfd, process, fd, 0);
    CHECK(process >= 0 && mine >= 0);
    (void)close(process);
    return mine;
}

/* Shared between two: shown once, under its maker, then under who is left. */
static void imported_from_another(void)
{
    struct handed *s = case_shared(sizeof(*s));
    nvmlDevice_t d = card0();
    pid_t maker = case_child(make_and_hand_over, s);
    while (!s->fd_maker)
        (void)usleep(1000);
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    uint64_t before = used_by(d, getpid()), all = used(d);
    CHECK(used_by(d, maker) > 4 * GIB);
    int fd = descriptor_of(maker, s->fd_maker);
    CUmemGenericAllocationHandle h = import(fd);
    (void)close(fd);
    CHECK(used_by(d, getpid()) == before && used_by(d, maker) > 4 * GIB && used(d) == all);
    s->released = 1;
    while (s->released != 2)
        (void)usleep(1000);
    CHECK(used_by(d, getpid()) == before + 4 * GIB && used_by(d, maker) < GIB && used(d) == all);
    s->done = 1;
    case_join(maker);
    CHECK(used_by(d, getpid()) == before + 4 * GIB);
    CU_OK(cuMemRelease(h));
    CHECK(used_by(d, getpid()) == before);
}

static void run_forever(void *arg)
{
    struct sl_tenant t;
    (void)arg;
    sl_tenant_open(&t, 0);
    sl_tenant_forever(&t, NULL);
    (void)cuCtxSynchronize();
}

/* A kernel that does not end makes the card, and its process, busy. */
static void load(void)
{
    nvmlDevice_t d = card0();
    nvmlUtilization_t rate;
    NV_OK(nv.nvmlDeviceGetUtilizationRates(d, &rate));
    CHECK(rate.gpu == 0);
    pid_t pid = case_child(run_forever, NULL);
    nvmlProcessUtilizationSample_t sample;
    unsigned int n = 0;
    for (int i = 0; i < 3000; i++) {
        n = 1;
        nvmlReturn_t r = nv.nvmlDeviceGetProcessUtilization(d, &sample, &n, 0);
        CHECK(r == NVML_SUCCESS || r == NVML_ERROR_NOT_FOUND);
        NV_OK(nv.nvmlDeviceGetUtilizationRates(d, &rate));
        if (r == NVML_SUCCESS && sample.smUtil >= 90 && rate.gpu >= 90)
            break;
        (void)usleep(10000);
    }
    CHECK(n == 1 && sample.pid == (unsigned int)pid && sample.smUtil >= 90 && rate.gpu >= 90);
    unsigned int mw = 0;
    NV_OK(nv.nvmlDeviceGetPowerUsage(d, &mw));
    CHECK(mw > 500000);
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
}

int main(int argc, char **argv)
{
    static const struct cuda_case cases[] = {
        {"one_process", one_process, NULL, NULL},
        {"two_processes", two_processes, "h200x2", NULL},
        {"imported_by_oneself", imported_by_oneself, NULL, NULL},
        {"imported_from_another", imported_from_another, NULL, NULL},
        {"load", load, NULL, NULL},
    };
    return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
