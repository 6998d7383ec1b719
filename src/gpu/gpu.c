/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu.h"

#include <errno.h>

#include "gpu/errors.h"

/* An implementation that lacks an operation says so; nobody calls through NULL. */
#define DISPATCH(gpu, op, err, ...)                                                                \
    ((gpu)->ops->op ? (gpu)->ops->op((gpu), __VA_ARGS__, (err))                                    \
                    : sl_err_set((err), -ENOSYS, SL_E_BACKEND_LACKS, #op))

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

int sl_gpu_sample(struct sl_gpu *gpu, size_t i, struct sl_gpu_sample *ret, struct sl_err *err)
{
    return DISPATCH(gpu, sample, err, i, ret);
}

int sl_gpu_place(struct sl_gpu *gpu, size_t i, struct sl_gpu_place *ret, struct sl_err *err)
{
    return DISPATCH(gpu, place, err, i, ret);
}

int sl_gpu_nvlinks(struct sl_gpu *gpu, uint8_t *matrix, size_t n, struct sl_err *err)
{
    return DISPATCH(gpu, nvlinks, err, matrix, n);
}

int sl_gpu_compute_mode(struct sl_gpu *gpu, size_t i, enum sl_gpu_compute_mode *ret,
                        struct sl_err *err)
{
    return DISPATCH(gpu, compute_mode, err, i, ret);
}

int sl_gpu_mig_mode(struct sl_gpu *gpu, size_t i, bool *ret_on, bool *ret_pending_on,
                    struct sl_err *err)
{
    return DISPATCH(gpu, mig_mode, err, i, ret_on, ret_pending_on);
}

int sl_gpu_mig_set_mode(struct sl_gpu *gpu, size_t i, bool on, bool *ret_pending,
                        struct sl_err *err)
{
    return DISPATCH(gpu, mig_set_mode, err, i, on, ret_pending);
}

int sl_gpu_mig_profiles(struct sl_gpu *gpu, size_t i, struct sl_gpu_mig_profile **ret,
                        size_t *ret_count, struct sl_err *err)
{
    return DISPATCH(gpu, mig_profiles, err, i, ret, ret_count);
}

int sl_gpu_mig_instances(struct sl_gpu *gpu, size_t i, struct sl_gpu_mig_instance **ret,
                         size_t *ret_count, struct sl_err *err)
{
    return DISPATCH(gpu, mig_instances, err, i, ret, ret_count);
}

int sl_gpu_mig_create(struct sl_gpu *gpu, size_t i, uint32_t profile_id, uint32_t start,
                      struct sl_gpu_mig_info *ret, struct sl_err *err)
{
    return DISPATCH(gpu, mig_create, err, i, profile_id, start, ret);
}

int sl_gpu_mig_destroy(struct sl_gpu *gpu, size_t i, uint32_t gpu_instance,
                       uint32_t compute_instance, struct sl_err *err)
{
    return DISPATCH(gpu, mig_destroy, err, i, gpu_instance, compute_instance);
}
