/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu.h"

#include <errno.h>

#include "gpu/errors.h"

void sl_gpu_close(struct sl_gpu *gpu)
{
    if (gpu && gpu->ops->close)
        gpu->ops->close(gpu);
}

/* An operation that an implementation lacks returns -ENOSYS; no caller calls through NULL. */
#define OP(name, params, args)                                                                     \
    int sl_gpu_##name params                                                                       \
    {                                                                                              \
        return gpu->ops->name ? gpu->ops->name args                                                \
                              : sl_err_set(err, -ENOSYS, SL_E_BACKEND_LACKS, #name);               \
    }
#include "gpu/ops.def"
