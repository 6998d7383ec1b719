/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An honest tenant: takes memory, runs a kernel, gives the memory back, again and again, until its input ends.
 *
 *   victim [ROUNDS]
 *
 * Each round is a line: when it ended (s, CLOCK_MONOTONIC). A refused allocation is the line "refused CODE". The
 * first line is "ready". With ROUNDS it ends by itself after so many.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <unistd.h>

#include "common/tenant.h"

#define BYTES       ((size_t)256 << 20)
#define KERNEL_NS   2000000ULL /* on the simulated GPU an iteration takes 1 ns */

static bool input_ended(void)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    char c;
    return poll(&p, 1, 0) == 1 && read(STDIN_FILENO, &c, 1) <= 0;
}

int main(int argc, char **argv)
{
    struct sl_tenant t;
    unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    sl_tenant_open(&t, 0);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)puts("ready");
    for (unsigned long i = 0; rounds ? i < rounds : !input_ended(); i++) {
        CUdeviceptr p;
        CUresult rc = cuMemAlloc_v2(&p, BYTES);
        if (rc != CUDA_SUCCESS) {
            (void)printf("refused %d\n", (int)rc);
            continue;
        }
        sl_tenant_fma(&t, NULL, KERNEL_NS);
        CU_OK(cuCtxSynchronize());
        CU_OK(cuMemFree_v2(p));
        (void)printf("%.4f\n", sl_tenant_now_ms() / 1000);
    }
    sl_tenant_close(&t);
    return 0;
}
