/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_contexts_tenant: makes and ends contexts. One line on stdin is one request:
 *   v1 v2 v3 v4 primary   make a context that way (it becomes current) → "context RESULT"
 *   hold                  2 MiB in the current one                     → "held RESULT"
 *   end                   end the newest one                           → "ended RESULT"
 */
#include <stdio.h>
#include <string.h>

#include "memory_api.h"

#define MAX_CONTEXTS 16

static struct {
    CUcontext context;
    bool primary;
} made[MAX_CONTEXTS];
static int count;

static CUresult make(const char *how)
{
    CUcontext context = NULL;
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    bool primary = strcmp(how, "primary") == 0;
    if (primary)
        rc = cu.cuDevicePrimaryCtxRetain(&context, 0);
    else if (strcmp(how, "v1") == 0)
        rc = cu.cuCtxCreate(&context, 0, 0);
    else if (strcmp(how, "v2") == 0)
        rc = cu.cuCtxCreate_v2(&context, 0, 0);
    else if (strcmp(how, "v3") == 0)
        rc = cu.cuCtxCreate_v3(&context, NULL, 0, 0, 0);
    else if (strcmp(how, "v4") == 0)
        rc = cu.cuCtxCreate_v4(&context, NULL, 0, 0);
    if (rc == CUDA_SUCCESS && primary)
        rc = cu.cuCtxSetCurrent(context);
    if (rc == CUDA_SUCCESS && count < MAX_CONTEXTS) {
        made[count].context = context;
        made[count++].primary = primary;
    }
    return rc;
}

static CUresult end(void)
{
    if (count == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    count--;
    CUresult rc = made[count].primary ? cu.cuDevicePrimaryCtxRelease_v2(0)
                                      : cu.cuCtxDestroy_v2(made[count].context);
    (void)cu.cuCtxSetCurrent(count > 0 ? made[count - 1].context : NULL);
    return rc;
}

int main(void)
{
    char line[32];
    if (!test_api_load("direct") || cu.cuInit(0) != CUDA_SUCCESS)
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof(line), stdin)) {
        CUdeviceptr p;
        line[strcspn(line, "\n")] = '\0';
        if (strcmp(line, "quit") == 0)
            break;
        if (strcmp(line, "hold") == 0)
            (void)printf("held %d\n", (int)cu.cuMemAlloc_v2(&p, (size_t)2 << 20));
        else if (strcmp(line, "end") == 0)
            (void)printf("ended %d\n", (int)end());
        else
            (void)printf("context %d\n", (int)make(line));
    }
    return 0;
}
