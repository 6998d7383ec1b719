/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soak_tenant: one process of a tenant in the soak. One line on stdin is one request, one line on stdout
 * its answer: "RESULT VALUE". It checks nothing; soak.py knows what the answers must be.
 *
 *   alloc I MIB | managed I MIB | create I MIB   take memory, keep it in place I
 *   free I                                      give back what place I has
 *   export I                                    VALUE: a descriptor
 *   import I PID FD                             that descriptor of process PID
 *   close FD
 *   fill MIB N                                  take pieces until refused, N at most; VALUE: how many
 *   drain                                       give those back
 *   launch N                                    N kernels of 50 us, and wait for them
 *   fork                                        a child that does nothing for three seconds
 *   closeall                                    close every descriptor but the first three
 *
 * With the argument "hold" it makes no CUDA call: it prints its environment, an empty line, and
 * waits for the end of stdin.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/tenant.h"

#define PLACES 256
#define PIECES 4096
#define MIB    ((size_t)1 << 20)
#define FD     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

enum what { NOTHING, LINEAR, PHYSICAL };

static struct {
    enum what what;
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
} place[PLACES];
static CUdeviceptr piece[PIECES];
static int pieces;
static struct sl_tenant tenant;

static void answer(CUresult rc, long long value)
{
    (void)printf("%d %lld\n", (int)rc, value);
}

static void take(const char *how, int i, size_t bytes)
{
    CUresult rc;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = FD,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    bool physical = strcmp(how, "create") == 0;
    if (physical)
        rc = cuMemCreate(&place[i].handle, bytes, &prop, 0);
    else if (strcmp(how, "managed") == 0)
        rc = cuMemAllocManaged(&place[i].address, bytes, CU_MEM_ATTACH_GLOBAL);
    else
        rc = cuMemAlloc_v2(&place[i].address, bytes);
    if (rc == CUDA_SUCCESS)
        place[i].what = physical ? PHYSICAL : LINEAR;
    answer(rc, 0);
}

static void give(int i)
{
    CUresult rc =
        place[i].what == PHYSICAL ? cuMemRelease(place[i].handle) : cuMemFree_v2(place[i].address);
    if (rc == CUDA_SUCCESS)
        place[i].what = NOTHING;
    answer(rc, 0);
}

static void import(int i, int pid, int fd)
{
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    int mine = (int)syscall(SYS_pidfd_getfd, process, fd, 0);
    CUresult rc = cuMemImportFromShareableHandle(&place[i].handle, (void *)(intptr_t)mine, FD);
    if (rc == CUDA_SUCCESS)
        place[i].what = PHYSICAL;
    (void)close(process);
    (void)close(mine);
    answer(rc, mine);
}

static void fill(size_t bytes, int most)
{
    CUresult rc = CUDA_SUCCESS;
    for (int i = 0; i < most && pieces < PIECES && rc == CUDA_SUCCESS; i++) {
        rc = cuMemAlloc_v2(&piece[pieces], bytes);
        pieces += rc == CUDA_SUCCESS;
    }
    answer(rc, pieces);
}

static void drain(void)
{
    CUresult rc = CUDA_SUCCESS;
    while (pieces > 0 && rc == CUDA_SUCCESS) {
        rc = cuMemFree_v2(piece[pieces - 1]);
        pieces -= rc == CUDA_SUCCESS;
    }
    answer(rc, pieces);
}

static void launch(int count)
{
    for (int i = 0; i < count; i++)
        sl_tenant_fma(&tenant, NULL, 50000);
    answer(cuCtxSynchronize(), count);
}

/* Answers when the child has closed its files: until then they keep exported memory that others give back. */
static void fork_idle(void)
{
    int ends[2];
    char ignored;
    if (pipe(ends) != 0) {
        answer(CUDA_ERROR_UNKNOWN, 0);
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        (void)syscall(SYS_close_range, 0U, ~0U, 0U); /* as daemons do */
        (void)sleep(3);
        _exit(0);
    }
    (void)close(ends[1]);
    ssize_t end = read(ends[0], &ignored, 1);
    (void)end;
    (void)close(ends[0]);
    answer(CUDA_SUCCESS, pid);
}

static bool serve(const char *verb, const int *a)
{
    if (strcmp(verb, "alloc") == 0 || strcmp(verb, "managed") == 0 || strcmp(verb, "create") == 0)
        take(verb, a[0] % PLACES, (size_t)a[1] * MIB);
    else if (strcmp(verb, "free") == 0)
        give(a[0] % PLACES);
    else if (strcmp(verb, "import") == 0)
        import(a[0] % PLACES, a[1], a[2]);
    else if (strcmp(verb, "fill") == 0)
        fill((size_t)a[0] * MIB, a[1]);
    else if (strcmp(verb, "drain") == 0)
        drain();
    else if (strcmp(verb, "launch") == 0)
        launch(a[0]);
    else if (strcmp(verb, "fork") == 0)
        fork_idle();
    else if (strcmp(verb, "closeall") == 0)
        answer(syscall(SYS_close_range, 3U, ~0U, 0U) == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, 0);
    else if (strcmp(verb, "close") == 0)
        answer(close(a[0]) == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, 0);
    else if (strcmp(verb, "export") == 0) {
        int fd = -1;
        CUresult rc = cuMemExportToShareableHandle(&fd, place[a[0] % PLACES].handle, FD, 0);
        answer(rc, fd);
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    char line[128], verb[16];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && strcmp(argv[1], "hold") == 0) {
        for (char **e = environ; *e; e++)
            (void)printf("%s\n", *e);
        (void)printf("\n");
        while (getchar() != EOF)
            ;
        return 0;
    }
    sl_tenant_open(&tenant, 0);
    (void)printf("ready\n");
    while (fgets(line, sizeof(line), stdin)) {
        int a[3] = {0};
        if (sscanf(line, "%15s %d %d %d", verb, &a[0], &a[1], &a[2]) < 1 || !serve(verb, a))
            return 2;
    }
    return 0;
}
