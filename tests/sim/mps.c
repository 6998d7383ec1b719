/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated MPS: its control program, limits and shares of clients, and ends of all kinds. */
#include "cuda_case.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "abi/nvml.h"
#include "sim/state.h"

#define MIB (1ULL << 20)

static char dir[] = "/tmp/sluice-sim-mps-XXXXXX", pipe_dir[64];

static void setup(void)
{
    CHECK(mkdtemp(dir));
    (void)snprintf(pipe_dir, sizeof(pipe_dir), "%s/pipe", dir);
    (void)setenv("CUDA_MPS_PIPE_DIRECTORY", pipe_dir, 1);
    (void)setenv("CUDA_MPS_LOG_DIRECTORY", dir, 1);
}

static void cleanup(void)
{
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    CHECK(system(command) == 0);
}

/* What the control program prints for these lines. */
static const char *ask(const char *lines)
{
    static char out[1024];
    char command[512];
    (void)snprintf(command, sizeof(command), "printf '%s\\n' | '" SIM_MPS "'", lines);
    FILE *f = popen(command, "r");
    CHECK(f);
    size_t n = fread(out, 1, sizeof(out) - 1, f);
    out[n] = '\0';
    (void)pclose(f);
    return out;
}

static void expect(const char *lines, const char *want)
{
    const char *got = ask(lines);
    if (strcmp(got, want) != 0)
        (void)fprintf(stderr, "%s: \"%s\", not \"%s\"\n", lines, got, want);
    CHECK(strcmp(got, want) == 0);
}

/* A daemon that ends with us, whatever happens. */
static pid_t start(const char *visible, const char *option)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        char log[96];
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)snprintf(log, sizeof(log), "%s/daemon.out", dir);
        int fd = open(log, O_CREAT | O_WRONLY | O_APPEND, 0600);
        if (fd < 0 || dup2(fd, 1) < 0)
            _exit(98);
        if (visible)
            (void)setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        (void)execl(SIM_MPS, SIM_MPS, "-f", option, (char *)NULL);
        _exit(99);
    }
    for (int i = 0; strncmp(ask("get_default_active_thread_percentage"), "100.0", 5) != 0; i++) {
        CHECK(i < 6000);
        (void)usleep(10000);
    }
    return pid;
}

static void stop(pid_t pid)
{
    (void)ask("quit");
    case_join(pid);
}

static pid_t server(void)
{
    return (pid_t)atoi(ask("get_server_list"));
}

static void commands(void)
{
    setup();
    expect("get_server_list", "Cannot find MPS control daemon process\n");
    CHECK(system("'" SIM_MPS "' -d") == 0);
    CHECK(system("'" SIM_MPS "' -d >/dev/null") != 0); /* one to a directory */
    CHECK(system("'" SIM_MPS "' -x 2>/dev/null") != 0);
    expect("get_default_active_thread_percentage", "100.0\n");
    expect("set_default_active_thread_percentage 30", "30.0\n");
    expect("set_default_active_thread_percentage 0", "Invalid percentage value: 0\n");
    expect("get_default_active_thread_percentage", "30.0\n");
    expect("set_default_device_pinned_mem_limit 0 2G\\nget_default_device_pinned_mem_limit 0",
           "2048M\n");
    expect("set_default_device_pinned_mem_limit 7 2G", "Invalid device ordinal: 7\n");
    expect("set_default_device_pinned_mem_limit 0 lots", "Invalid memory limit: lots\n");
    expect("get_server_list", "");
    expect("start_server -uid 1000", "");
    pid_t s = server();
    CHECK(s > 1 && kill(s, 0) == 0);
    char line[128], want[32];
    (void)snprintf(line, sizeof(line),
                   "get_server_status %d\\nget_client_list %d\\nset_active_thread_percentage %d 50",
                   (int)s, (int)s, (int)s);
    expect(line, "ACTIVE\n50.0\n");
    expect("get_client_list 1", "Failed to find server 1\n");
    expect("dance", "Unknown command: dance\n");
    (void)snprintf(line, sizeof(line),
                   "grep -q 'Starting new server %d for user 1000' %s/control.log", (int)s, dir);
    CHECK(system(line) == 0);
    (void)snprintf(line, sizeof(line),
                   "grep -q 'Active Threads Percentage set to 30.0' %s/server.log", dir);
    CHECK(system(line) == 0);
    (void)snprintf(want, sizeof(want), "%d\n", (int)s);
    expect("get_server_list", want);
    expect("quit", "");
    for (int i = 0; kill(s, 0) == 0; i++) { /* our init, or whoever has it, reaps it */
        CHECK(i < 6000);
        (void)usleep(10000);
    }
    expect("get_server_list", "Cannot find MPS control daemon process\n");
    cleanup();
}

/* Channels in compute groups of this process. */
static int compute_channels(void)
{
    struct sl_sim_state *st;
    int n = 0;
    CHECK(sl_sim_open(&st, NULL) == 0);
    sl_sim_lock(st);
    for (uint32_t i = 0; i < st->queue_high; i++)
        if (st->queues[i].used && st->procs[st->queues[i].proc].pid == getpid())
            n += __builtin_popcount(st->queues[i].channels);
    sl_sim_unlock(st);
    return n;
}

static void limited(void *arg)
{
    struct sl_tenant t;
    size_t left, total;
    int sms = 0, mps = 0;
    CUdeviceptr p;
    (void)arg;
    sl_tenant_open(&t, 0);
    CU_OK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, t.dev));
    CU_OK(cuDeviceGetAttribute(&mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, t.dev));
    CHECK(sms == 33 && mps == 1);
    CHECK(compute_channels() == 0); /* the compute group is the server's */
    CU_OK(cuMemGetInfo_v2(&left, &total));
    CHECK(total > 130ULL << 30); /* the card's, as the real one says */
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&p, 4096 * MIB));
    CU_OK(cuMemAlloc_v2(&p, 3000 * MIB));
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&p, 1024 * MIB)); /* with the context, too much */
}

/* Each client process has the limit to itself; a client may lower its own, not raise it. */
static void limits(void)
{
    setup();
    pid_t d = start(NULL, NULL);
    expect("set_default_device_pinned_mem_limit 0 4G", "");
    expect("set_default_active_thread_percentage 25", "25.0\n");
    pid_t a = case_child(limited, NULL), b = case_child(limited, NULL);
    case_join(a);
    case_join(b);
    (void)setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "90", 1);
    (void)setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=100G", 1);
    case_join(case_child(limited, NULL));
    (void)setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G", 1);
    struct sl_tenant t;
    CUdeviceptr p;
    sl_tenant_open(&t, 0);
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&p, 1000 * MIB));
    stop(d);
    cleanup();
}

struct shared {
    _Atomic int ready, stop;
};
static struct shared *sh;

static void busy(void *arg)
{
    struct sl_tenant t;
    (void)arg;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    sl_tenant_open(&t, 0);
    while (!sh->stop) {
        for (int i = 0; i < 50; i++)
            sl_tenant_fma(&t, NULL, 100000);
        sh->ready = 1;
        CU_OK(cuCtxSynchronize());
    }
}

/* A quarter of the threads is a quarter of the speed, beside another client as well as alone. */
static void shares(void)
{
    struct sl_tenant t;
    setup();
    sh = case_shared(sizeof(*sh));
    pid_t d = start(NULL, NULL);
    expect("set_default_active_thread_percentage 25", "25.0\n");
    pid_t other = case_child(busy, NULL);
    for (int i = 0; !sh->ready && i < 10000; i++)
        (void)usleep(1000);
    sl_tenant_open(&t, 0);
    float beside = case_kernel_ms(&t, 5000000);
    sh->stop = 1;
    case_join(other);
    float alone = case_kernel_ms(&t, 5000000);
    CHECK(alone > 19.9f && alone < 20.2f);
    CHECK(beside > 19.9f && beside < 20.2f);
    stop(d);
    cleanup();
}

/* The daemon's cards are all there is for a client, in the daemon's order. */
static void cards(void)
{
    struct sl_tenant t;
    char bus[32];
    int count = 0;
    setup();
    pid_t d = start("2,0", NULL);
    expect("set_default_device_pinned_mem_limit 2 1G", "Invalid device ordinal: 2\n");
    sl_tenant_open(&t, 0);
    CU_OK(cuDeviceGetCount(&count));
    CHECK(count == 2);
    CU_OK(cuDeviceGetPCIBusId(bus, sizeof(bus), 0));
    char first[32];
    CU_OK(cuDeviceGetPCIBusId(first, sizeof(first), 1));
    CHECK(strcmp(first, bus) < 0); /* card 0 comes second */
    stop(d);
    cleanup();
}

static void joins(void *code)
{
    CU_IS((CUresult)(intptr_t)code, cuInit(0));
}

static void may_join(CUresult code)
{
    case_join(case_child(joins, (void *)(intptr_t)code));
}

/* A client whose server dies under it: waiting for a kernel, and in calls of all kinds after
 * that. */
static void bereft(void *arg)
{
    struct sl_tenant t;
    CUdeviceptr p;
    (void)arg;
    sl_tenant_open(&t, 0);
    CU_OK(cuMemAlloc_v2(&p, MIB));
    sl_tenant_forever(&t, NULL);
    sh->ready = 1;
    CU_IS(CUDA_ERROR_MPS_CONNECTION_FAILED, cuCtxSynchronize());
    CU_IS(CUDA_ERROR_MPS_CONNECTION_FAILED, cuMemAlloc_v2(&p, MIB));
    CU_IS(CUDA_ERROR_MPS_CONNECTION_FAILED, cuMemFree_v2(p));
}

static void bereave(pid_t whom)
{
    sh->ready = 0;
    pid_t client = case_child(bereft, NULL);
    for (int i = 0; !sh->ready; i++) {
        CHECK(i < 10000);
        (void)usleep(1000);
    }
    if (whom == 0)
        whom = server();
    CHECK(whom > 1 && kill(whom, SIGKILL) == 0);
    case_join(client);
}

static void ends(void)
{
    setup();
    sh = case_shared(sizeof(*sh));
    may_join(CUDA_SUCCESS); /* no daemon: no MPS */
    pid_t d = start(NULL, NULL);
    expect("start_server -uid 0", "");
    pid_t s = server();
    /* The server dies: its clients are lost, the daemon makes a new one for the next. */
    bereave(0);
    may_join(CUDA_SUCCESS);
    CHECK(server() != s && server() > 1);
    /* The daemon dies: its socket stays behind, and nobody is there. */
    bereave(d);
    CHECK(waitpid(d, NULL, 0) == d);
    may_join(CUDA_ERROR_MPS_CONNECTION_FAILED);
    d = start(NULL, NULL);
    may_join(CUDA_SUCCESS);
    stop(d);
    may_join(CUDA_SUCCESS);
    cleanup();
}

static void holder(void *arg)
{
    struct sl_tenant t;
    (void)arg;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    sl_tenant_open(&t, 0);
    sh->ready++;
    while (!sh->stop)
        (void)usleep(1000);
}

static void wait_ready(int n)
{
    for (int i = 0; sh->ready < n; i++) {
        CHECK(i < 10000);
        (void)usleep(1000);
    }
}

/* A fault closes the server to newcomers until the clients it hit are gone. */
static void fault(void)
{
    char line[64];
    setup();
    sh = case_shared(sizeof(*sh));
    pid_t d = start(NULL, "-multiuser-server");
    pid_t a = case_child(holder, NULL);
    wait_ready(1);
    (void)snprintf(line, sizeof(line), "simulate_fault %d\\nget_server_status %d", (int)server(),
                   (int)server());
    expect(line, "FAULT\n");
    may_join(CUDA_ERROR_MPS_SERVER_NOT_READY);
    sh->stop = 1;
    case_join(a);
    for (int i = 0; i < 500; i++) {
        (void)snprintf(line, sizeof(line), "get_server_status %d", (int)server());
        if (strcmp(ask(line), "ACTIVE\n") == 0)
            break;
        (void)usleep(10000);
    }
    may_join(CUDA_SUCCESS);
    stop(d);
    cleanup();
}

static void no_client(void *arg)
{
    CUdevice dev;
    CUcontext ctx;
    (void)arg;
    (void)unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    CU_OK(cuInit(0));
    CU_OK(cuDeviceGet(&dev, 0));
    CU_IS(CUDA_ERROR_DEVICE_UNAVAILABLE, cuCtxCreate_v2(&ctx, 0, dev));
}

#define SYMBOL(lib, fn)                                                                            \
    do {                                                                                           \
        void *symbol_ = dlsym(lib, #fn);                                                           \
        CHECK(symbol_);                                                                            \
        memcpy(&(p_##fn), &symbol_, sizeof(symbol_));                                              \
    } while (0)

/* NVML tells clients from others; in exclusive mode the card is the server's, and its clients'. */
static void seen_from_outside(void)
{
    __typeof__(&nvmlInit_v2) p_nvmlInit_v2;
    __typeof__(&nvmlDeviceGetHandleByIndex_v2) p_nvmlDeviceGetHandleByIndex_v2;
    __typeof__(&nvmlDeviceGetComputeRunningProcesses_v3) p_nvmlDeviceGetComputeRunningProcesses_v3;
    __typeof__(&nvmlDeviceGetMPSComputeRunningProcesses_v3)
        p_nvmlDeviceGetMPSComputeRunningProcesses_v3;
    __typeof__(&nvmlDeviceSetComputeMode) p_nvmlDeviceSetComputeMode;
    nvmlDevice_t card;
    nvmlProcessInfo_t list[8];
    unsigned int n = 8;
    setup();
    sh = case_shared(sizeof(*sh));
    void *lib = dlopen(SIM_NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    CHECK(lib);
    SYMBOL(lib, nvmlInit_v2);
    SYMBOL(lib, nvmlDeviceGetHandleByIndex_v2);
    SYMBOL(lib, nvmlDeviceGetComputeRunningProcesses_v3);
    SYMBOL(lib, nvmlDeviceGetMPSComputeRunningProcesses_v3);
    SYMBOL(lib, nvmlDeviceSetComputeMode);
    CHECK(p_nvmlInit_v2() == NVML_SUCCESS);
    CHECK(p_nvmlDeviceGetHandleByIndex_v2(0, &card) == NVML_SUCCESS);
    CHECK(p_nvmlDeviceSetComputeMode(card, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS) == NVML_SUCCESS);
    pid_t d = start(NULL, NULL);
    pid_t a = case_child(holder, NULL), b = case_child(holder, NULL);
    wait_ready(2);
    CHECK(p_nvmlDeviceGetMPSComputeRunningProcesses_v3(card, &n, list) == NVML_SUCCESS);
    CHECK(n == 2 && ((pid_t)list[0].pid == a || (pid_t)list[0].pid == b));
    n = 8;
    CHECK(p_nvmlDeviceGetComputeRunningProcesses_v3(card, &n, list) == NVML_SUCCESS);
    CHECK(n == 3); /* and the server */
    case_join(case_child(no_client, NULL));
    char line[64];
    (void)snprintf(line, sizeof(line), "get_client_list %d", (int)server());
    const char *got = ask(line);
    int x = 0, y = 0;
    CHECK(sscanf(got, "%d %d", &x, &y) == 2 && ((x == a && y == b) || (x == b && y == a)));
    CHECK(strncmp(ask("get_device_client_list"), "GPU-", 4) == 0);
    sh->stop = 1;
    case_join(a);
    case_join(b);
    stop(d);
    cleanup();
}

int main(int argc, char **argv)
{
    static const struct cuda_case cases[] = {
        {"commands", commands, "h200", NULL},
        {"limits", limits, "h200", NULL},
        {"shares", shares, "h200", NULL},
        {"cards", cards, "h200x3", NULL},
        {"ends", ends, "h200", NULL},
        {"fault", fault, "h200", NULL},
        {"seen from outside", seen_from_outside, "h200", NULL},
    };
    return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
