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

/* Calls a function if the library has it: 0, -ENOSYS, or what sl_nvml_check makes of the result. */
#define NVML_CALL(g, err, fn, ...)                                                                 \
    ((g)->api.fn ? sl_nvml_check((g), (g)->api.fn(__VA_ARGS__), #fn, (err))                        \
                 : sl_nvml_missing(#fn, (err)))

int sl_nvml_handle(struct nvml_gpu *g, size_t i, nvmlDevice_t *ret, struct sl_err *err);

int sl_nvml_processes(struct sl_gpu *gpu, size_t i, struct sl_gpu_process **ret, size_t *ret_count,
                      struct sl_err *err);
int sl_nvml_utilization(struct sl_gpu *gpu, size_t i, uint64_t since_us,
                        struct sl_gpu_utilization **ret, size_t *ret_count, struct sl_err *err);
int sl_nvml_mig_info(struct sl_gpu *gpu, size_t i, uint32_t slot, struct sl_gpu_mig_info *ret,
                     struct sl_err *err);
int sl_nvml_wait_event(struct sl_gpu *gpu, int timeout_ms, struct sl_gpu_event *ret,
                       struct sl_err *err);

/* nvml_place.c */
int sl_nvml_sample(struct sl_gpu *gpu, size_t i, struct sl_gpu_sample *ret, struct sl_err *err);
int sl_nvml_place(struct sl_gpu *gpu, size_t i, struct sl_gpu_place *ret, struct sl_err *err);
int sl_nvml_nvlinks(struct sl_gpu *gpu, uint8_t *matrix, size_t n, struct sl_err *err);
int sl_nvml_compute_mode(struct sl_gpu *gpu, size_t i, enum sl_gpu_compute_mode *ret,
                         struct sl_err *err);

/* nvml_mig.c */
int sl_nvml_mig_mode(struct sl_gpu *gpu, size_t i, bool *ret_on, bool *ret_pending_on,
                     struct sl_err *err);
int sl_nvml_mig_set_mode(struct sl_gpu *gpu, size_t i, bool on, bool *ret_pending,
                         struct sl_err *err);
int sl_nvml_mig_profiles(struct sl_gpu *gpu, size_t i, struct sl_gpu_mig_profile **ret,
                         size_t *ret_count, struct sl_err *err);
int sl_nvml_mig_instances(struct sl_gpu *gpu, size_t i, struct sl_gpu_mig_instance **ret,
                          size_t *ret_count, struct sl_err *err);
int sl_nvml_mig_create(struct sl_gpu *gpu, size_t i, uint32_t profile_id, uint32_t start,
                       struct sl_gpu_mig_info *ret, struct sl_err *err);
int sl_nvml_mig_destroy(struct sl_gpu *gpu, size_t i, uint32_t gpu_instance,
                        uint32_t compute_instance, struct sl_err *err);

#endif
