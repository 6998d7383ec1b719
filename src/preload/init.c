/* SPDX-License-Identifier: Apache-2.0 */
/* cuInit, which stops a tenant without its arbiter, and cuGetProcAddress. */
#include "preload/attach.h"
#include "preload/hooks.h"

CUresult cuInit(unsigned int flags)
{
    SL_REAL_OR_RETURN(cuInit, real);
    /* Better stop the tenant than let it run without a limit. */
    if (sl_process_retry()->mode == SL_MODE_REFUSED)
        return CUDA_ERROR_NOT_PERMITTED;
    return real(flags);
}

/* The driver chooses the entry, by the program's own version and flags; we replace it by our wrapper of exactly that
 * entry. */
static CUresult substitute(CUresult rc, const char *symbol, void **pfn, int version,
                           cuuint64_t flags)
{
    if (rc != CUDA_SUCCESS || !symbol || !pfn || !*pfn)
        return rc;
    void *wrapper = sl_hook_wrapper_for(symbol, *pfn, version, flags);
    if (wrapper)
        *pfn = wrapper;
    return rc;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    SL_REAL_OR_RETURN(cuGetProcAddress, real);
    return substitute(real(symbol, pfn, cudaVersion, flags), symbol, pfn, cudaVersion, flags);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    SL_REAL_OR_RETURN(cuGetProcAddress_v2, real);
    return substitute(real(symbol, pfn, cudaVersion, flags, status), symbol, pfn, cudaVersion,
                      flags);
}
