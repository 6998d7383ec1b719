/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every function of the table exists. Those that nothing here implements answer
 * CUDA_ERROR_NOT_SUPPORTED; a definition elsewhere in the library replaces the weak one.
 */
#include "sim/cuda_int.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define WEAK __attribute__((weak))
#define SL_CUDA_FN(name, base, since, args)                                                        \
    WEAK CUresult name args                                                                        \
    {                                                                                              \
        return CUDA_ERROR_NOT_SUPPORTED;                                                           \
    }
#define SL_CUDA_FN_PT(name, suf, base, since, args)                                                \
    SL_CUDA_FN(name, base, since, args)                                                            \
    SL_CUDA_FN(name##suf, base, since, args)
#include "abi/cuda_api.def"
