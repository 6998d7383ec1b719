/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An honest tenant: takes memory, runs a kernel, gives the memory back, again and again, until its input ends. Some
 * kernels are always queued, so that the GPU never waits for this process: what it runs is what it is let run.
 *
 *   victim [ROUNDS]
 *
 * Each round is a line: when its kernel was seen to have ended (s, CLOCK_MONOTONIC). A refused allocation is the line
 * "refused CODE". The first line is "ready". With ROUNDS it ends by itself after so many.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <unistd.h>

#include "common/tenant.h"

#define BYTES     ((size_t)256 << 20)
#define KERNEL_NS 2000000ULL /* on the simulated GPU an iteration takes 1 ns */
#define QUEUED    8

static bool input_ended(void)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    char c;
    return poll(&p, 1, 0) == 1 && read(STDIN_FILENO, &c, 1) <= 0;
}

/* cuMemCreate and cuMemRelease wait for no kernel, unlike cuMemFree. */
static bool take(CUmemGenericAllocationHandle *ret)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUresult rc = cuMemCreate(ret, BYTES, &prop, 0);
    if (rc != CUDA_SUCCESS)
        (void)printf("refused %d\n", (int)rc);
    return rc == CUDA_SUCCESS;
}

int main(int argc, char **argv)
{
    struct sl_tenant t;
    CUstream stream;
    CUevent end[QUEUED];
    unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    sl_tenant_open(&t, 0);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    CU_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < QUEUED; i++)
        CU_OK(cuEventCreate(&end[i], CU_EVENT_DISABLE_TIMING));
    (void)puts("ready");
    for (unsigned long i = 0; rounds ? i < rounds : !input_ended(); i++) {
        CUmemGenericAllocationHandle memory;
        bool got = take(&memory);
        if (i >= QUEUED) {
            CU_OK(cuEventSynchronize(end[i % QUEUED]));
            (void)printf("%.4f\n", sl_tenant_now_ms() / 1000);
        }
        sl_tenant_fma(&t, stream, KERNEL_NS);
        CU_OK(cuEventRecord(end[i % QUEUED], stream));
        if (got)
            CU_OK(cuMemRelease(memory));
    }
    CU_OK(cuStreamSynchronize(stream));
    sl_tenant_close(&t);
    return 0;
}
