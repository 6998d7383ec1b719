/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu.h"

#include <errno.h>

/* An implementation that lacks an operation says so; nobody calls through NULL. */
#define DISPATCH(gpu, op, err, ...)                                                                \
    ((gpu)->ops->op ? (gpu)->ops->op((gpu), __VA_ARGS__, (err))                                    \
                    : sl_err_set((err), -ENOSYS, "this GPU backend has no " #op))

void sl_gpu_close(struct sl_gpu *gpu)
{
    if (gpu && gpu->ops->close)
        gpu->ops->close(gpu);
}

int sl_gpu_count(struct sl_gpu *gpu, size_t *ret, struct sl_err *err)
{
    return DISPATCH(gpu, count, err, ret);
}

int sl_gpu_info(struct sl_gpu *gpu, size_t i, struct sl_gpu_info *ret, struct sl_err *err)
{
    return DISPATCH(gpu, info, err, i, ret);
}

int sl_gpu_memory(struct sl_gpu *gpu, size_t i, struct sl_gpu_memory *ret, struct sl_err *err)
{
    return DISPATCH(gpu, memory, err, i, ret);
}

int sl_gpu_processes(struct sl_gpu *gpu, size_t i, struct sl_gpu_process **ret, size_t *ret_count,
                     struct sl_err *err)
{
    return DISPATCH(gpu, processes, err, i, ret, ret_count);
}

int sl_gpu_utilization(struct sl_gpu *gpu, size_t i, uint64_t since_us,
                       struct sl_gpu_utilization **ret, size_t *ret_count, struct sl_err *err)
{
    return DISPATCH(gpu, utilization, err, i, since_us, ret, ret_count);
}

int sl_gpu_driver_version(struct sl_gpu *gpu, char *buf, size_t size, struct sl_err *err)
{
    return DISPATCH(gpu, driver_version, err, buf, size);
}

int sl_gpu_cuda_version(struct sl_gpu *gpu, int *ret, struct sl_err *err)
{
    return DISPATCH(gpu, cuda_version, err, ret);
}

int sl_gpu_mig_info(struct sl_gpu *gpu, size_t i, uint32_t slot, struct sl_gpu_mig_info *ret,
                    struct sl_err *err)
{
    return DISPATCH(gpu, mig_info, err, i, slot, ret);
}

int sl_gpu_wait_event(struct sl_gpu *gpu, int timeout_ms, struct sl_gpu_event *ret,
                      struct sl_err *err)
{
    return DISPATCH(gpu, wait_event, err, timeout_ms, ret);
}
