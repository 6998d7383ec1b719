/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that implement struct sl_gpu_ops over NVML. */
#ifndef SLUICE_GPU_NVML_INTERNAL_H
#define SLUICE_GPU_NVML_INTERNAL_H

#include "abi/nvml.h"
#include "gpu/gpu.h"

/* One typed pointer per function of the ABI table, NULL where the library has none. */
struct nvml_api {
#define NVML_FN(name, since, params) __typeof__(&(name)) name;
    NVML_FUNCTIONS(NVML_FN)
#undef NVML_FN
    __typeof__(&nvmlErrorString) nvmlErrorString;
};

struct nvml_gpu {
    struct sl_gpu base;
    void *library;
    struct nvml_api api;
    nvmlEventSet_t events; /* made by the first wait_event */
};

static inline struct nvml_gpu *nvml_of(struct sl_gpu *gpu)
{
    return (struct nvml_gpu *)(void *)gpu; /* base is the first member */
}

/* 0, or the errno for an NVML result with "what: NVML's words" in err. */
int sl_nvml_check(const struct nvml_gpu *g, nvmlReturn_t result, const char *what,
                  struct sl_err *err);
int sl_nvml_missing(const char *function, struct sl_err *err);

/* Calls a function if the library has it: 0, -ENOSYS, or the code of sl_nvml_check for the result. */
#define NVML_CALL(g, err, fn, ...)                                                                 \
    ((g)->api.fn ? sl_nvml_check((g), (g)->api.fn(__VA_ARGS__), #fn, (err))                        \
                 : sl_nvml_missing(#fn, (err)))

int sl_nvml_handle(struct nvml_gpu *g, size_t i, nvmlDevice_t *ret, struct sl_err *err);

/* The operations of gpu.h. */
#define OP(name, params, args) int sl_nvml_##name params;
#include "gpu/ops.def"
#undef OP

#endif
