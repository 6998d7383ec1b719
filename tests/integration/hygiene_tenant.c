/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hygiene_tenant CASE: one bad or unusual day in a tenant's process. Silent and 0 when all is well;
 * says what is wrong and returns 1 otherwise. Linked directly to the driver.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "abi/cuda.h"

#define MIB ((size_t)1 << 20)

static _Atomic int failures;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stdout, "line %d: ", __LINE__);                                          \
            (void)fprintf(stdout, __VA_ARGS__);                                                    \
            (void)fprintf(stdout, "\n");                                                           \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

static CUcontext context;

static CUresult start(void)
{
    CUresult rc = cuInit(0);
    if (rc == CUDA_SUCCESS)
        rc = cuDevicePrimaryCtxRetain(&context, 0);
    if (rc == CUDA_SUCCESS)
        rc = cuCtxSetCurrent(context);
    return rc;
}

/* ---- what a program may notice of its own process ---- */

struct snapshot {
    mode_t mask;
    sigset_t blocked;
    struct sigaction actions[NSIG];
    char cwd[4096];
    char fds[256][64]; /* below 256; ours live above */
    size_t environment;
};

static size_t hash_environment(void)
{
    size_t h = 5381;
    for (char **e = environ; *e; e++)
        for (const char *c = *e; *c; c++)
            h = h * 33 + (unsigned char)*c;
    return h;
}

static void take_snapshot(struct snapshot *s)
{
    memset(s, 0, sizeof(*s));
    s->mask = umask(022);
    (void)umask(s->mask);
    (void)sigprocmask(SIG_SETMASK, NULL, &s->blocked);
    for (int i = 1; i < NSIG; i++)
        (void)sigaction(i, NULL, &s->actions[i]);
    if (!getcwd(s->cwd, sizeof(s->cwd)))
        s->cwd[0] = '\0';
    for (int fd = 0; fd < 256; fd++) {
        char link[64];
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, s->fds[fd], sizeof(s->fds[fd]) - 1);
        if (n < 0)
            s->fds[fd][0] = '\0';
    }
    s->environment = hash_environment();
}

static void case_hygiene(void)
{
    static struct snapshot before, after;
    int memory[2];
    CHECK(pipe(memory) == 0, "no pipe");
    (void)umask(027);
    (void)signal(SIGUSR1, SIG_IGN);
    take_snapshot(&before);
    errno = 77;
    CUdeviceptr p = 0;
    /* The driver itself may open files; it does so in cuInit, before what is compared. */
    CUresult rc = start();
    CHECK(rc == CUDA_SUCCESS, "start: %d", (int)rc);
    size_t free_bytes, total;
    CHECK(cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS, "no info");
    errno = 78;
    CHECK(cuMemAlloc_v2(&p, MIB) == CUDA_SUCCESS, "no memory");
    CHECK(errno == 78, "errno became %d", errno);
    CHECK(cuMemAlloc_v2(&p, (size_t)1 << 60) == CUDA_ERROR_OUT_OF_MEMORY, "too much was given");
    CHECK(errno == 78, "errno became %d", errno);
    take_snapshot(&after);
    CHECK(before.mask == after.mask, "umask changed");
    CHECK(memcmp(&before.blocked, &after.blocked, sizeof(before.blocked)) == 0,
          "signal mask changed");
    for (int i = 1; i < NSIG; i++)
        CHECK(before.actions[i].sa_handler == after.actions[i].sa_handler &&
                  before.actions[i].sa_flags == after.actions[i].sa_flags,
              "signal %d is handled by another", i);
    CHECK(strcmp(before.cwd, after.cwd) == 0, "another directory");
    CHECK(before.environment == after.environment, "another environment");
    for (int fd = 0; fd < 256; fd++)
        if (strstr(after.fds[fd], "memfd:sluice") || strstr(after.fds[fd], "eventfd") ||
            (strstr(after.fds[fd], "socket") && !before.fds[fd][0]))
            CHECK(false, "descriptor %d is %s", fd, after.fds[fd]);
}

/* All signals are blocked in the one thread we add, and it is called what it is. */
static void case_thread(void)
{
    CHECK(start() == CUDA_SUCCESS, "no start");
    DIR *d = opendir("/proc/self/task");
    int watchers = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[320], line[256];
        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
        FILE *f = fopen(path, "r");
        bool watcher = false;
        while (f && fgets(line, sizeof(line), f)) {
            watcher = watcher || strcmp(line, "Name:\tsluice-watch\n") == 0;
            unsigned long long blocked;
            if (watcher && sscanf(line, "SigBlk: %llx", &blocked) == 1)
                CHECK((blocked & (1ULL << (SIGTERM - 1))) && (blocked & (1ULL << (SIGUSR1 - 1))) &&
                          (blocked & (1ULL << (SIGCHLD - 1))),
                      "the watch thread takes signals: %llx", blocked);
        }
        watchers += watcher;
        if (f)
            (void)fclose(f);
    }
    if (d)
        (void)closedir(d);
    CHECK(watchers == 1, "%d watch threads", watchers);
}

/* ---- threads ---- */

#define THREADS 64

static void *first_call(void *arg)
{
    CUresult *rc = arg;
    CUcontext mine;
    *rc = cuInit(0);
    if (*rc == CUDA_SUCCESS)
        *rc = cuDevicePrimaryCtxRetain(&mine, 0);
    return NULL;
}

static void *alloc_and_free(void *arg)
{
    unsigned int seed = (unsigned int)(uintptr_t)arg;
    CUdeviceptr held[8] = {0};
    (void)cuCtxSetCurrent(context);
    for (int i = 0; i < 2000; i++) {
        seed = seed * 1103515245U + 12345U;
        unsigned int k = (seed >> 16) % 8;
        if (held[k]) {
            CHECK(cuMemFree_v2(held[k]) == CUDA_SUCCESS, "no free");
            held[k] = 0;
        } else {
            CUresult rc = cuMemAlloc_v2(&held[k], 512 * (1 + (seed >> 20) % 64));
            if (rc != CUDA_SUCCESS)
                held[k] = 0;
            CHECK(rc == CUDA_SUCCESS || rc == CUDA_ERROR_OUT_OF_MEMORY, "alloc: %d", (int)rc);
        }
    }
    for (int k = 0; k < 8; k++)
        if (held[k])
            (void)cuMemFree_v2(held[k]);
    return NULL;
}

/* What the arbiter measured of a process that was at it, on a slow machine, is too much until it is measured
 * again: that may take a while. */
static bool all_is_back(size_t before, size_t *after)
{
    size_t total;
    for (int i = 0; i < 400; i++, usleep(100000))
        if (cuMemGetInfo_v2(after, &total) != CUDA_SUCCESS || *after >= before)
            return *after >= before;
    return false;
}

static void case_threads(void)
{
    pthread_t t[THREADS];
    CUresult rc[THREADS];
    size_t before = 0, after = 0, total;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&t[i], NULL, first_call, &rc[i]) == 0, "no thread");
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(t[i], NULL);
        CHECK(rc[i] == CUDA_SUCCESS, "first call: %d", (int)rc[i]);
    }
    CHECK(start() == CUDA_SUCCESS, "no start");
    CHECK(cuMemGetInfo_v2(&before, &total) == CUDA_SUCCESS, "no info");
    for (uintptr_t i = 0; i < 8; i++)
        CHECK(pthread_create(&t[i], NULL, alloc_and_free, (void *)(i + 1)) == 0, "no thread");
    for (int i = 0; i < 8; i++)
        (void)pthread_join(t[i], NULL);
    CHECK(all_is_back(before, &after), "%zu bytes are missing", before - after);
}

/* Takes and gives back again and again, for about as long as measurements take: none may catch the driver with
 * a piece that the books had neither before nor after, and call it overhead for ever after. */
static void case_churn(void)
{
    CUdeviceptr p;
    CHECK(start() == CUDA_SUCCESS, "no start");
    for (time_t end = time(NULL) + 12; time(NULL) < end && !failures;)
        for (int i = 0; i < 1000 && !failures; i++) {
            CHECK(cuMemAlloc_v2(&p, 1024 * MIB) == CUDA_SUCCESS, "refused below the limit");
            usleep((useconds_t)(i % 50));
            if (!failures)
                CHECK(cuMemFree_v2(p) == CUDA_SUCCESS, "no free");
            usleep((useconds_t)(i % 70)); /* mostly, the books have nothing */
        }
}

/* ---- fork, exec ---- */

static int wait_child(pid_t pid)
{
    int status = -1;
    (void)waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* Forked before CUDA was touched: the child is a process of its own, with a context of its own. */
static void case_fork_first(void)
{
    pid_t pid = fork();
    CUdeviceptr p;
    if (pid == 0)
        _exit(start() == CUDA_SUCCESS && cuMemAlloc_v2(&p, MIB) == CUDA_SUCCESS ? 0 : 1);
    CHECK(wait_child(pid) == 0, "the child had no CUDA");
    CHECK(start() == CUDA_SUCCESS, "no start after the child");
}

/* Forked afterwards: CUDA does not survive it, we must; and the parent's books stay as they are. */
static void case_fork_later(void)
{
    CUdeviceptr p;
    size_t before, after, total;
    CHECK(start() == CUDA_SUCCESS && cuMemAlloc_v2(&p, MIB) == CUDA_SUCCESS, "no memory");
    CHECK(cuMemGetInfo_v2(&before, &total) == CUDA_SUCCESS, "no info");
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            CUdeviceptr q;
            size_t unused;
            (void)cuMemAlloc_v2(&q, MIB); /* the driver refuses; nothing hangs, nothing dies */
            (void)cuMemFree_v2(p);
            (void)cuMemGetInfo_v2(&unused, &unused);
            _exit(0);
        }
        CHECK(wait_child(pid) == 0, "the child died");
    }
    CHECK(all_is_back(before, &after) && after == before,
          "the children changed the parent's books");
    CHECK(cuMemFree_v2(p) == CUDA_SUCCESS, "no free");
}

static void case_exec(char **argv)
{
    static char hygiene[] = "hygiene";
    CUdeviceptr p;
    CHECK(start() == CUDA_SUCCESS && cuMemAlloc_v2(&p, MIB) == CUDA_SUCCESS, "no memory");
    if (!failures) {
        argv[1] = hygiene;
        (void)execv("/proc/self/exe", argv);
        CHECK(false, "no exec");
    }
}

static void *fork_often(void *arg)
{
    (void)arg;
    for (int i = 0; i < 50; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        CHECK(wait_child(pid) == 0, "a child died");
    }
    return NULL;
}

/* One thread forks while others allocate: no deadlock, no wrong books. */
static void case_fork_threads(void)
{
    pthread_t t[5];
    CHECK(start() == CUDA_SUCCESS, "no start");
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], NULL, alloc_and_free, (void *)(i + 1)) == 0, "no thread");
    CHECK(pthread_create(&t[4], NULL, fork_often, NULL) == 0, "no thread");
    for (int i = 0; i < 5; i++)
        (void)pthread_join(t[i], NULL);
}

/* ---- a program that closes everything it does not know ---- */

static void case_close_all(void)
{
    CUdeviceptr p, q;
    CHECK(start() == CUDA_SUCCESS && cuMemAlloc_v2(&p, MIB) == CUDA_SUCCESS, "no memory");
    for (int fd = 3; fd < 1024; fd++)
        (void)close(fd);
    for (int i = 0; i < 600; i++) /* and takes the numbers itself */
        CHECK(dup(STDIN_FILENO) >= 0, "no dup");
    CHECK(cuMemAlloc_v2(&q, MIB) == CUDA_SUCCESS, "no memory after closing all");
    CHECK(cuMemFree_v2(q) == CUDA_SUCCESS && cuMemFree_v2(p) == CUDA_SUCCESS, "no free");
    for (int fd = 3; fd < 600; fd++)
        CHECK(fcntl(fd, F_GETFD) >= 0 || errno == EBADF, "descriptor %d is odd", fd);
}

/* ---- RTLD_NEXT ---- */

static void case_next(void)
{
    int (*calls)(void) = (int (*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "hygiene_next_calls");
    CUdeviceptr p;
    size_t before, after, total;
    CHECK(calls, "the other library is not there");
    CHECK(start() == CUDA_SUCCESS && cuMemGetInfo_v2(&before, &total) == CUDA_SUCCESS, "no start");
    CHECK(cuMemAlloc_v2(&p, MIB) == CUDA_SUCCESS, "no memory");
    CHECK(calls && calls() == 1, "the other library was passed over");
    CHECK(cuMemGetInfo_v2(&after, &total) == CUDA_SUCCESS && before - after == MIB,
          "not charged once");
    CHECK(cuMemAlloc_v2(&p, total) == CUDA_ERROR_OUT_OF_MEMORY, "the limit was passed");
}

/* ---- what is told when there is no arbiter ---- */

static void case_expect(const char *result)
{
    CUresult rc = cuInit(0);
    CHECK((int)rc == atoi(result), "cuInit: %d", (int)rc);
    CHECK(cuInit(0) == rc, "cuInit changed its mind");
    if (rc != CUDA_SUCCESS) {
        CUdeviceptr p;
        CHECK(cuMemAlloc_v2(&p, MIB) != CUDA_SUCCESS, "memory without a tenant");
        return;
    }
    size_t bytes = 0;
    CHECK(start() == CUDA_SUCCESS && cuDeviceTotalMem_v2(&bytes, 0) == CUDA_SUCCESS, "no start");
    CHECK(bytes > ((size_t)100 << 30), "an H200 of %zu bytes", bytes);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "hygiene") == 0)
        case_hygiene();
    else if (strcmp(name, "thread") == 0)
        case_thread();
    else if (strcmp(name, "threads") == 0)
        case_threads();
    else if (strcmp(name, "churn") == 0)
        case_churn();
    else if (strcmp(name, "fork-first") == 0)
        case_fork_first();
    else if (strcmp(name, "fork-later") == 0)
        case_fork_later();
    else if (strcmp(name, "fork-threads") == 0)
        case_fork_threads();
    else if (strcmp(name, "exec") == 0)
        case_exec(argv);
    else if (strcmp(name, "close-all") == 0)
        case_close_all();
    else if (strcmp(name, "next") == 0)
        case_next();
    else if (strcmp(name, "expect") == 0 && argc > 2)
        case_expect(argv[2]);
    else
        return 2;
    return failures != 0;
}
