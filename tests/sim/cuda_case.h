/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of a test program, each in a process and on a simulated machine of its own. */
#ifndef SLUICE_TESTS_SIM_CUDA_CASE_H
#define SLUICE_TESTS_SIM_CUDA_CASE_H

#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/tenant.h"

struct cuda_case {
    const char *name;
    void (*run)(void);
    const char *sim;   /* SLUICE_SIM, default "h200" */
    const char *fault; /* SLUICE_SIM_FAULT, or NULL */
};

/* In a child of its own; -1 on success, else says which way it ended. */
static inline int case_run(const struct cuda_case *c)
{
    char dir[] = "/tmp/sluice-sim-test-XXXXXX";
    char path[64];
    if (!mkdtemp(dir))
        return 1;
    (void)snprintf(path, sizeof(path), "%s/state", dir);
    pid_t pid = fork();
    if (pid == 0) {
        (void)setenv("SLUICE_SIM_STATE", path, 1);
        (void)setenv("SLUICE_SIM", c->sim ? c->sim : "h200", 1);
        (void)unsetenv("CUDA_VISIBLE_DEVICES");
        if (c->fault)
            (void)setenv("SLUICE_SIM_FAULT", c->fault, 1);
        else
            (void)unsetenv("SLUICE_SIM_FAULT");
        c->run();
        _exit(0);
    }
    int status = 0;
    (void)waitpid(pid, &status, 0);
    (void)unlink(path);
    (void)rmdir(dir);
    bool ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    (void)printf("%s %s", ok ? "ok  " : "FAIL", c->name);
    if (WIFSIGNALED(status))
        (void)printf(" (signal %d)", WTERMSIG(status));
    (void)printf("\n");
    (void)fflush(stdout);
    return ok ? 0 : 1;
}

static inline int cases_main(int argc, char **argv, const struct cuda_case *cases, size_t n)
{
    int failed = 0, seen = 0;
    for (size_t i = 0; i < n; i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name) != 0)
            continue;
        seen++;
        failed += case_run(&cases[i]);
    }
    return failed || !seen;
}

/* Words that host and card share, all 0. */
static inline _Atomic uint32_t *case_words(CUdeviceptr *ret_at)
{
    void *words;
    CU_OK(cuMemHostAlloc(&words, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CU_OK(cuMemHostGetDevicePointer_v2(ret_at, words, 0));
    memset(words, 0, 4096);
    return words;
}

/* How long a kernel takes by the card's clock. Its stream is held until all of it is queued: the time for which
 * this process has no processor meanwhile is not the kernel's. */
static inline float case_kernel_ms(struct sl_tenant *t, uint64_t iters)
{
    CUevent a, b;
    CUdeviceptr at;
    float ms = 0;
    CU_OK(cuEventCreate(&a, 0));
    CU_OK(cuEventCreate(&b, 0));
    _Atomic uint32_t *word = case_words(&at);
    CU_OK(cuStreamWaitValue32(NULL, at, 1, CU_STREAM_WAIT_VALUE_EQ));
    CU_OK(cuEventRecord(a, NULL));
    sl_tenant_fma(t, NULL, iters);
    CU_OK(cuEventRecord(b, NULL));
    *word = 1;
    CU_OK(cuEventSynchronize(b));
    CU_OK(cuEventElapsedTime(&ms, a, b));
    CU_OK(cuMemFreeHost(word));
    CU_OK(cuEventDestroy_v2(a));
    CU_OK(cuEventDestroy_v2(b));
    return ms;
}

/* Memory shared by a case and its children. */
static inline void *case_shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

static inline pid_t case_child(void (*run)(void *), void *arg)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        run(arg);
        _exit(0);
    }
    return pid;
}

static inline void case_join(pid_t pid)
{
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif
