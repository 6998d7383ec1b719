/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA programs on MIG devices: which one they get, its memory, its time, and what NVML says. */
#include "cuda_case.h"

#include <dlfcn.h>
#include <sys/prctl.h>

#include "abi/nvml.h"

#define MIB (1ULL << 20)

static void ctl(const char *words)
{
    char command[512];
    (void)snprintf(command, sizeof(command), "'" SIM_CTL "' %s", words);
    CHECK(system(command) == 0);
}

/* The n-th MIG device as `sluice-sim-ctl list` has them, with its 36 characters. */
static void mig_uuid(int n, char uuid[64])
{
    char line[256];
    FILE *f = popen("'" SIM_CTL "' list", "r");
    CHECK(f);
    uuid[0] = '\0';
    while (fgets(line, sizeof(line), f)) {
        const char *p = strstr(line, "UUID: MIG-");
        if (p && n-- == 0)
            CHECK(sscanf(p, "UUID: %63[^)]", uuid) == 1);
    }
    CHECK(pclose(f) == 0 && uuid[0]);
}

static void choose(int n)
{
    char uuid[64];
    mig_uuid(n, uuid);
    CHECK(setenv("CUDA_VISIBLE_DEVICES", uuid, 1) == 0);
}

static void the_device(void)
{
    struct sl_tenant t;
    char uuid[64], name[96], text[64];
    int count = 0, sms = 0;
    size_t total = 0, left = 0;
    CUuuid id;
    CUdeviceptr p;
    ctl("mig 1 1g.18gb 3g.71gb");
    choose(1);
    mig_uuid(1, uuid);
    sl_tenant_open(&t, 0);
    CU_OK(cuDeviceGetCount(&count));
    CHECK(count == 1);
    CU_OK(cuDeviceGetName(name, sizeof(name), t.dev));
    CHECK(strcmp(name, "NVIDIA H200 MIG 3g.71gb") == 0);
    CU_OK(cuDeviceGetUuid_v2(&id, t.dev));
    const unsigned char *b = (const unsigned char *)id.bytes;
    (void)snprintf(text, sizeof(text), "MIG-%02x%02x%02x%02x-", b[0], b[1], b[2], b[3]);
    CHECK(strncmp(text, uuid, strlen(text)) == 0);
    CU_OK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, t.dev));
    CHECK(sms == 60);
    CU_OK(cuDeviceTotalMem_v2(&total, t.dev));
    CHECK(total > 60ULL << 30 && total < 72ULL << 30);
    CU_OK(cuMemGetInfo_v2(&left, &total));
    CHECK(left < total && left > total - 400 * MIB);
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&p, left + 2 * MIB));
    CU_OK(cuMemAlloc_v2(&p, left));
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&p, 4 * MIB));
}

/* A MIG device hides everything else; a card in MIG mode is none itself; names that are not
 * there. */
static void which(void *arg)
{
    static const struct {
        const char *visible;
        int devices;
    } all[] = {{NULL, 1}, {"0", 1}, {"1", 0}, {"MIG-ffff", 0}, {"", 0}, {"MIG-old/7/0", 0}};
    size_t i = (size_t)(intptr_t)arg;
    int count = 0;
    if (all[i].visible)
        (void)setenv("CUDA_VISIBLE_DEVICES", all[i].visible, 1);
    CUresult r = cuInit(0);
    CHECK(r == (all[i].devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE));
    if (r == CUDA_SUCCESS)
        CU_OK(cuDeviceGetCount(&count));
    CHECK(count == all[i].devices);
}

static void choice(void)
{
    ctl("mig 1 1g.18gb 1g.18gb");
    for (intptr_t i = 0; i < 6; i++)
        case_join(case_child(which, (void *)i));
    /* The old way to name one: card, GPU instance, compute instance. */
    char old[96], line[256];
    FILE *f = popen("'" SIM_CTL "' list | grep 'GPU 1'", "r");
    CHECK(f && fgets(line, sizeof(line), f));
    (void)pclose(f);
    char card[64];
    CHECK(sscanf(strstr(line, "UUID: "), "UUID: %63[^)]", card) == 1);
    (void)snprintf(old, sizeof(old), "MIG-%s/8/0", card);
    ctl("mig 0 7g.141gb");
    ctl("mig 0 off");
    (void)setenv("CUDA_VISIBLE_DEVICES", old, 1);
    CU_OK(cuInit(0));
}

static void without_instances(void)
{
    CHECK(system("'" SIM_CTL "' mig 1 1g.18gb && '" SIM_CTL "' mig 1 off") == 0);
    int count = 0;
    CU_OK(cuInit(0));
    CU_OK(cuDeviceGetCount(&count));
    CHECK(count == 3);
}

struct shared {
    _Atomic int ready, stop;
};
static struct shared *sh;

static void neighbour(void *arg)
{
    struct sl_tenant t;
    (void)arg;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    choose(0);
    sl_tenant_open(&t, 0);
    CUdeviceptr p;
    size_t left, total;
    CU_OK(cuMemGetInfo_v2(&left, &total));
    CU_OK(cuMemAlloc_v2(&p, left)); /* all the memory it has, and all the time */
    while (!sh->stop) {
        for (int i = 0; i < 50; i++)
            sl_tenant_fma(&t, NULL, 200000);
        sh->ready = 1;
        CU_OK(cuCtxSynchronize());
    }
}

/* A slice of the card runs at its own speed, whatever is on the others. */
static void time_and_memory_apart(void)
{
    struct sl_tenant t;
    size_t left, total;
    sh = case_shared(sizeof(*sh));
    ctl("mig 0 4g.71gb 3g.71gb");
    pid_t pid = case_child(neighbour, NULL);
    for (int i = 0; !sh->ready && i < 10000; i++)
        (void)usleep(1000);
    choose(1);
    sl_tenant_open(&t, 0);
    CU_OK(cuMemGetInfo_v2(&left, &total));
    CHECK(left > total - 400 * MIB);
    float beside = case_kernel_ms(&t, 10000000);
    sh->stop = 1;
    case_join(pid);
    float alone = case_kernel_ms(&t, 10000000);
    /* 60 of 132 SMs: ten milliseconds of a card take 22. */
    CHECK(alone > 21.9f && alone < 22.2f);
    CHECK(beside > 21.9f && beside < 22.2f);
}

#define SYMBOL(lib, fn)                                                                            \
    do {                                                                                           \
        void *symbol_ = dlsym(lib, #fn);                                                           \
        CHECK(symbol_);                                                                            \
        memcpy(&(p_##fn), &symbol_, sizeof(symbol_));                                              \
    } while (0)

static void nvml_agrees(void)
{
    __typeof__(&nvmlInit_v2) p_nvmlInit_v2;
    __typeof__(&nvmlDeviceGetHandleByUUID) p_nvmlDeviceGetHandleByUUID;
    __typeof__(&nvmlDeviceGetComputeRunningProcesses_v3) p_nvmlDeviceGetComputeRunningProcesses_v3;
    __typeof__(&nvmlDeviceGetMemoryInfo) p_nvmlDeviceGetMemoryInfo;
    __typeof__(&nvmlDeviceGetGpuInstanceId) p_nvmlDeviceGetGpuInstanceId;
    struct sl_tenant t;
    char uuid[64], other[64];
    nvmlDevice_t mine, theirs;
    nvmlProcessInfo_t list[4];
    nvmlMemory_t m;
    unsigned int n = 4, gi = 99;
    void *lib = dlopen(SIM_NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    CHECK(lib);
    SYMBOL(lib, nvmlInit_v2);
    SYMBOL(lib, nvmlDeviceGetHandleByUUID);
    SYMBOL(lib, nvmlDeviceGetComputeRunningProcesses_v3);
    SYMBOL(lib, nvmlDeviceGetMemoryInfo);
    SYMBOL(lib, nvmlDeviceGetGpuInstanceId);
    ctl("mig 0 1g.18gb 1g.18gb");
    choose(1);
    mig_uuid(1, uuid);
    mig_uuid(0, other);
    sl_tenant_open(&t, 0);
    CUdeviceptr p;
    CU_OK(cuMemAlloc_v2(&p, 1024 * MIB));
    CHECK(p_nvmlInit_v2() == NVML_SUCCESS);
    CHECK(p_nvmlDeviceGetHandleByUUID(uuid, &mine) == NVML_SUCCESS);
    CHECK(p_nvmlDeviceGetHandleByUUID(other, &theirs) == NVML_SUCCESS);
    CHECK(p_nvmlDeviceGetGpuInstanceId(mine, &gi) == NVML_SUCCESS);
    CHECK(p_nvmlDeviceGetComputeRunningProcesses_v3(mine, &n, list) == NVML_SUCCESS);
    CHECK(n == 1 && list[0].pid == (unsigned int)getpid() && list[0].gpuInstanceId == gi);
    n = 4;
    CHECK(p_nvmlDeviceGetComputeRunningProcesses_v3(theirs, &n, list) == NVML_SUCCESS && n == 0);
    CHECK(p_nvmlDeviceGetMemoryInfo(mine, &m) == NVML_SUCCESS);
    CHECK(m.used > 1024 * MIB && m.used < 1200 * MIB);
    CHECK(p_nvmlDeviceGetMemoryInfo(theirs, &m) == NVML_SUCCESS && m.used == 0);
    /* In use: it cannot be taken away. */
    CHECK(system("'" SIM_CTL "' mig 0 off 2>/dev/null") != 0);
}

int main(int argc, char **argv)
{
    static const struct cuda_case cases[] = {
        {"the device", the_device, "h200x2", NULL},
        {"choice", choice, "h200x3", NULL},
        {"without instances", without_instances, "h200x3", NULL},
        {"time and memory apart", time_and_memory_apart, "h200", NULL},
        {"nvml agrees", nvml_agrees, "h200", NULL},
    };
    return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
