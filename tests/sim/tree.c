/* SPDX-License-Identifier: Apache-2.0 */
/* A driver root, what a process with only some of its nodes sees, and PID namespaces. */
#include "nvml_test.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>

#include "abi/cuda.h"

static char root[64], dev[96];

static void SL_PRINTF(1, 2) shell(const char *format, ...)
{
    char command[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    if (system(command) != 0)
        fail_msg("%s", command);
}

static void ctl(const char *words)
{
    shell("'" SIM_CTL "' %s", words);
}

static bool in_root(const char *path)
{
    char full[256];
    (void)snprintf(full, sizeof(full), "%s/%s", root, path);
    return access(full, F_OK) == 0;
}

static void slurp(const char *path, char *buf, size_t size)
{
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    size_t n = fread(buf, 1, size - 1, f);
    buf[n] = '\0';
    (void)fclose(f);
}

static void give(const char *node)
{
    char path[160];
    (void)snprintf(path, sizeof(path), "%s/%s", dev, node);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    (void)close(fd);
}

static void take(const char *node)
{
    char path[160];
    (void)snprintf(path, sizeof(path), "%s/%s", dev, node);
    assert_int_equal(unlink(path), 0);
}

/* What a fresh process with these nodes finds: "nvml 1: 1 mig 0; cuda 1" or errors. */
static void sees(const char *want)
{
    char out[128], got[256];
    (void)snprintf(out, sizeof(out), "%s/out", sim_dir);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int fd = open(out, O_CREAT | O_TRUNC | O_WRONLY, 0600);
        if (fd < 0 || dup2(fd, 1) < 0)
            _exit(98);
        (void)setenv("SLUICE_SIM_DEV", dev, 1);
        (void)execl("/proc/self/exe", "sim_tree", "see", (char *)NULL);
        _exit(99);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    slurp(out, got, sizeof(got));
    assert_string_equal(got, want);
}

static int see(void)
{
    unsigned int n = 0;
    nvml_load();
    nvmlReturn_t r = nv.nvmlInit_v2();
    if (r != NVML_SUCCESS) {
        (void)printf("nvml error %d", (int)r);
    } else {
        (void)nv.nvmlDeviceGetCount_v2(&n);
        (void)printf("nvml %u:", n);
        for (unsigned int i = 0; i < n; i++) {
            nvmlDevice_t d, mig;
            unsigned int minor = 99, index = 99, migs = 0;
            (void)nv.nvmlDeviceGetHandleByIndex_v2(i, &d);
            (void)nv.nvmlDeviceGetMinorNumber(d, &minor);
            (void)nv.nvmlDeviceGetIndex(d, &index);
            for (unsigned int k = 0; k < 7; k++)
                migs += nv.nvmlDeviceGetMigDeviceHandleByIndex(d, k, &mig) == NVML_SUCCESS;
            (void)printf(" %u=nvidia%u migs %u", index, minor, migs);
        }
    }
    void *cuda = dlopen(SIM_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    CUresult (*init)(unsigned int) = NULL;
    CUresult (*count)(int *) = NULL;
    int devices = 0;
    void *symbol = cuda ? dlsym(cuda, "cuInit") : NULL;
    memcpy(&init, &symbol, sizeof(symbol));
    symbol = cuda ? dlsym(cuda, "cuDeviceGetCount") : NULL;
    memcpy(&count, &symbol, sizeof(symbol));
    if (!init || !count)
        return 1;
    CUresult c = init(0);
    if (c == CUDA_SUCCESS && count(&devices) == CUDA_SUCCESS)
        (void)printf("; cuda %d\n", devices);
    else
        (void)printf("; cuda error %d\n", (int)c);
    return 0;
}

static void test_root(void **state)
{
    (void)state;
    static const char *const files[] = {
        "lib/libcuda.so.1",
        "lib/libnvidia-ml.so.1",
        "bin/nvidia-smi",
        "dev/nvidiactl",
        "dev/nvidia-uvm",
        "dev/nvidia0",
        "dev/nvidia2",
        "dev/nvidia-caps/nvidia-cap1",
        "proc/driver/nvidia/version",
    };
    char text[512], path[128];
    for (size_t i = 0; i < SL_ARRAY_LEN(files); i++)
        if (!in_root(files[i]))
            fail_msg("%s", files[i]);
    assert_false(in_root("dev/nvidia3"));
    (void)snprintf(path, sizeof(path), "%s/sluice-sim", root);
    slurp(path, text, sizeof(text));
    assert_non_null(strstr(text, "SLUICE_SIM=h200x3\n"));
    assert_non_null(strstr(text, "SLUICE_SIM_STATE="));
    /* Again is no harm; another machine in the same root is refused. */
    (void)snprintf(text, sizeof(text), "make-root %s h200x3", root);
    ctl(text);
    (void)snprintf(text, sizeof(text), "! '%s' make-root %s l4 2>/dev/null", SIM_CTL, root);
    shell("%s", text);
}

/* A root with a state of its own needs no environment at all. */
static void test_root_alone(void **state)
{
    (void)state;
    char command[512];
    (void)snprintf(command, sizeof(command),
                   "unset SLUICE_SIM SLUICE_SIM_STATE; '%s' make-root '%s/own' l4x2 && "
                   "mv '%s/own' '%s/moved' && '%s/moved/bin/nvidia-smi' -L | grep -c 'NVIDIA L4' | "
                   "grep -qx 2",
                   SIM_CTL, sim_dir, sim_dir, sim_dir, sim_dir);
    shell("%s", command);
}

static void test_capabilities(void **state)
{
    (void)state;
    char text[256], path[160];
    nvmlGpuInstance_t gi;
    nvmlComputeInstance_t ci;
    nvmlReturn_t activation;
    nvmlGpuInstanceInfo_t info;
    unsigned int cap = 0;
    assert_nv_ok(nv.nvmlDeviceSetMigMode(card(1), 1, &activation));
    assert_nv_ok(nv.nvmlDeviceCreateGpuInstance(card(1), 9, &gi));
    assert_nv_ok(nv.nvmlGpuInstanceGetInfo(gi, &info));
    (void)snprintf(path, sizeof(path), "%s/proc/driver/nvidia/capabilities/gpu1/mig/gi%u/access",
                   root, info.id);
    slurp(path, text, sizeof(text));
    assert_int_equal(sscanf(text, "DeviceFileMinor: %u", &cap), 1);
    assert_int_equal(cap, 3 + 135 + info.id * 9);
    assert_nv_ok(nv.nvmlGpuInstanceCreateComputeInstance(gi, 2, &ci));
    (void)snprintf(path, sizeof(path), "dev/nvidia-caps/nvidia-cap%u", cap + 1);
    assert_true(in_root(path));
    assert_nv_ok(nv.nvmlComputeInstanceDestroy(ci));
    assert_false(in_root(path));
    assert_nv_ok(nv.nvmlGpuInstanceDestroy(gi));
    (void)snprintf(path, sizeof(path), "dev/nvidia-caps/nvidia-cap%u", cap);
    assert_false(in_root(path));
    (void)snprintf(path, sizeof(path), "proc/driver/nvidia/capabilities/gpu1/mig/gi%u", info.id);
    assert_false(in_root(path));
    assert_nv_ok(nv.nvmlDeviceSetMigMode(card(1), 0, &activation));
}

static void test_nodes(void **state)
{
    (void)state;
    sees("nvml error 9; cuda error 100\n");
    give("nvidiactl");
    sees("nvml 0:; cuda error 999\n");
    give("nvidia-uvm");
    sees("nvml 0:; cuda error 100\n");
    give("nvidia2");
    sees("nvml 1: 0=nvidia2 migs 0; cuda 1\n");
    give("nvidia0");
    sees("nvml 2: 0=nvidia0 migs 0 1=nvidia2 migs 0; cuda 2\n");

    /* MIG devices need both of their capabilities. */
    ctl("mig 0 1g.18gb 1g.18gb");
    take("nvidia2");
    sees("nvml 1: 0=nvidia0 migs 0; cuda error 100\n");
    give("nvidia-caps/nvidia-cap66"); /* the first 1g is instance 7 */
    sees("nvml 1: 0=nvidia0 migs 0; cuda error 100\n");
    give("nvidia-caps/nvidia-cap67");
    sees("nvml 1: 0=nvidia0 migs 1; cuda 1\n");
    ctl("mig 0 off");
    sees("nvml 1: 0=nvidia0 migs 0; cuda 1\n");
}

/* PIDs are the reader's, and the dead are noticed, from one PID namespace to another. */
static void test_pid_namespace(void **state)
{
    (void)state;
    int ready[2], go[2], pids[2];
    pid_t inner = 0;
    char c;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(pids), 0);
    pid_t outer = fork();
    assert_true(outer >= 0);
    if (outer == 0) {
        if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
            _exit(77);
        pid_t pid = fork();
        if (pid == 0) {
            if (getpid() != 1)
                _exit(1);
            user_body(0, 1ULL << 30, 0, ready[1], go[0]);
        }
        int status = -1;
        if (write(pids[1], &pid, sizeof(pid)) != sizeof(pid) || waitpid(pid, &status, 0) != pid)
            _exit(1);
        _exit(0);
    }
    (void)close(pids[1]);
    if (read(pids[0], &inner, sizeof(inner)) != sizeof(inner)) {
        int status = 0;
        (void)waitpid(outer, &status, 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 77);
        print_message("no PID namespaces here: not tested\n");
        skip();
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    nvmlProcessInfo_t list[8];
    unsigned int n = 8;
    assert_nv_ok(nv.nvmlDeviceGetComputeRunningProcesses_v3(card(0), &n, list));
    assert_int_equal(n, 1);
    assert_int_equal(list[0].pid, inner); /* as we know it, not the 1 that it is to itself */
    assert_int_equal(list[0].usedGpuMemory, 1ULL << 30);
    (void)kill(inner, SIGKILL);
    assert_int_equal(waitpid(outer, NULL, 0), outer);
    n = 8;
    assert_nv_ok(nv.nvmlDeviceGetComputeRunningProcesses_v3(card(0), &n, list));
    assert_int_equal(n, 0);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "see") == 0)
        return see();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_root),          cmocka_unit_test(test_root_alone),
        cmocka_unit_test(test_capabilities),  cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_pid_namespace),
    };
    char words[128];
    sim_start("h200x3");
    (void)snprintf(root, sizeof(root), "%s/root", sim_dir);
    (void)snprintf(dev, sizeof(dev), "%s/container", sim_dir);
    (void)snprintf(words, sizeof(words), "make-root %s h200x3", root);
    ctl(words);
    shell("mkdir -p '%s/nvidia-caps'", dev);
    nvml_load();
    assert_nv_ok(nv.nvmlInit_v2());
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    shell("rm -rf '%s'", sim_dir);
    return r;
}
