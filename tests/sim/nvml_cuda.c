/* SPDX-License-Identifier: Apache-2.0 */
/* The two simulated libraries are one machine: what CUDA programs do, NVML tells. */
#include "cuda_case.h"

#include <dlfcn.h>

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
        {"load", load, NULL, NULL},
    };
    return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
