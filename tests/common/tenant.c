/* SPDX-License-Identifier: Apache-2.0 */
#include "common/tenant.h"

#include <time.h>

#include "common/kernels_ptx.h"

void sl_tenant_open(struct sl_tenant *t, int ordinal)
{
    CU_OK(cuInit(0));
    CU_OK(cuDeviceGet(&t->dev, ordinal));
    CU_OK(cuDevicePrimaryCtxRetain(&t->ctx, t->dev));
    CU_OK(cuCtxSetCurrent(t->ctx));
    CU_OK(cuModuleLoadData(&t->module, sluice_kernels_ptx));
    CU_OK(cuModuleGetFunction(&t->empty, t->module, "sluice_empty"));
    CU_OK(cuModuleGetFunction(&t->fma, t->module, "sluice_fma"));
    CU_OK(cuModuleGetFunction(&t->fill, t->module, "sluice_fill_u32"));
    CU_OK(cuModuleGetFunction(&t->add, t->module, "sluice_add_u32"));
    CU_OK(cuModuleGetFunction(&t->spin, t->module, "sluice_spin_until"));
    CU_OK(cuModuleGetFunction(&t->forever, t->module, "sluice_forever"));
    CU_OK(cuModuleGetFunction(&t->meet, t->module, "sluice_meet"));
}

void sl_tenant_close(struct sl_tenant *t)
{
    CU_OK(cuModuleUnload(t->module));
    CU_OK(cuDevicePrimaryCtxRelease_v2(t->dev));
}

static void launch(CUfunction f, unsigned int blocks, unsigned int threads, CUstream s, void **args)
{
    CU_OK(cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, s, args, NULL));
}

void sl_tenant_empty(struct sl_tenant *t, CUstream s)
{
    launch(t->empty, 1, 1, s, NULL);
}

void sl_tenant_fma(struct sl_tenant *t, CUstream s, uint64_t iters)
{
    CUdeviceptr nowhere = 0; /* the kernel never stores */
    void *args[] = {&iters, &nowhere};
    int sms = 132;
    CU_OK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, t->dev));
    launch(t->fma, (unsigned int)sms * 8, 256, s, args);
}

void sl_tenant_fill(struct sl_tenant *t, CUstream s, CUdeviceptr p, uint32_t value, uint32_t count)
{
    void *args[] = {&p, &value, &count};
    launch(t->fill, 256, 256, s, args);
}

void sl_tenant_add(struct sl_tenant *t, CUstream s, CUdeviceptr p, uint32_t value, uint32_t count)
{
    void *args[] = {&p, &value, &count};
    launch(t->add, 256, 256, s, args);
}

void sl_tenant_spin(struct sl_tenant *t, CUstream s, CUdeviceptr flag, uint32_t value)
{
    void *args[] = {&flag, &value};
    launch(t->spin, 1, 1, s, args);
}

void sl_tenant_forever(struct sl_tenant *t, CUstream s)
{
    launch(t->forever, 1, 1, s, NULL);
}

void sl_tenant_meet(struct sl_tenant *t, CUstream s, CUdeviceptr mine, CUdeviceptr theirs)
{
    void *args[] = {&mine, &theirs};
    launch(t->meet, 1, 1, s, args);
}

double sl_tenant_now_ms(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}
