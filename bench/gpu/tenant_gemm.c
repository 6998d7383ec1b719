/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLAS, opened at run time: a bf16 product of two 4096 x 4096 matrices, of random numbers or of ones. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tenant.h"

#define GEMM_N 4096

/* cuBLAS's own numbers, from its documentation. */
enum { BLAS_OP_N = 0, BLAS_COMPUTE_32F = 68, BLAS_ALGO_DEFAULT = -1, CUDA_R_16BF_TYPE = 14 };

struct tenant_blas {
    void *handle;
    CUstream stream; /* the one it is set to */
    CUdeviceptr a, b, c;
    int (*set_stream)(void *handle, CUstream stream);
    int (*gemm)(void *handle, int transa, int transb, int m, int n, int k, const void *alpha,
                const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                const void *beta, void *c, int c_type, int ldc, int compute, int algo);
};

static void *open_blas(const char *named)
{
    const char *const names[] = {named, "libcublas.so.13", "libcublas.so.12", NULL};
    for (int i = named ? 0 : 1; names[i]; i++) {
        /* It needs libcublasLt, which lies beside it and may be on no search path. */
        char lt[4096];
        const char *slash = strrchr(names[i], '/');
        const char *version = strstr(names[i], ".so");
        if (slash && version) {
            (void)snprintf(lt, sizeof(lt), "%.*s/libcublasLt%s", (int)(slash - names[i]), names[i],
                           version);
            (void)dlopen(lt, RTLD_NOW | RTLD_GLOBAL);
        }
        void *lib = dlopen(names[i], RTLD_NOW);
        if (lib)
            return lib;
    }
    tenant_die("no cuBLAS: %s", dlerror());
}

static void *symbol(void *lib, const char *name)
{
    void *p = dlsym(lib, name);
    if (!p)
        tenant_die("cuBLAS has no %s", name);
    return p;
}

static CUdeviceptr matrix(struct tenant *t, uint32_t seed)
{
    size_t bytes = (size_t)GEMM_N * GEMM_N * sizeof(uint16_t);
    uint16_t *host = malloc(bytes);
    CUdeviceptr p;
    if (!host)
        tenant_die("out of memory");
    for (size_t i = 0; i < (size_t)GEMM_N * GEMM_N; i++) {
        seed = seed * 1664525U + 1013904223U;
        /* bf16 in [1, 2) or its negative: sign, exponent 127, seven random bits */
        host[i] = (uint16_t)(0x3f80U | ((seed >> 9) & 0x7fU) | ((seed >> 1) & 0x8000U));
        if (t->opt.ones)
            host[i] = 0x3f80U;
    }
    CU(t, cuMemAlloc_v2, &p, bytes);
    CU(t, cuMemcpyHtoD_v2, p, host, bytes);
    free(host);
    return p;
}

struct tenant_blas *tenant_gemm_open(struct tenant *t)
{
    static struct tenant_blas blas;
    void *lib = open_blas(t->opt.cublas);
    int (*create)(void **handle);
    *(void **)&create = symbol(lib, "cublasCreate_v2");
    *(void **)&blas.set_stream = symbol(lib, "cublasSetStream_v2");
    *(void **)&blas.gemm = symbol(lib, "cublasGemmEx");
    if (create(&blas.handle) != 0)
        tenant_die("cublasCreate failed");
    blas.a = matrix(t, 1);
    blas.b = matrix(t, 2);
    CU(t, cuMemAlloc_v2, &blas.c, (size_t)GEMM_N * GEMM_N * sizeof(uint16_t));
    return &blas;
}

void tenant_gemm_launch(struct tenant *t, CUstream stream)
{
    static const float one = 1, zero = 0;
    struct tenant_blas *b = t->blas;
    int r = stream == b->stream ? 0 : b->set_stream(b->handle, stream);
    b->stream = stream;
    if (r == 0)
        r = b->gemm(b->handle, BLAS_OP_N, BLAS_OP_N, GEMM_N, GEMM_N, GEMM_N, &one,
                    (const void *)(uintptr_t)b->a, CUDA_R_16BF_TYPE, GEMM_N,
                    (const void *)(uintptr_t)b->b, CUDA_R_16BF_TYPE, GEMM_N, &zero,
                    (void *)(uintptr_t)b->c, CUDA_R_16BF_TYPE, GEMM_N, BLAS_COMPUTE_32F,
                    BLAS_ALGO_DEFAULT);
    if (r != 0)
        tenant_die("cublasGemmEx: error %d", r);
}
