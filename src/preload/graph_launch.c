/* SPDX-License-Identifier: Apache-2.0 */
/* Launching graphs: their memory first, then the driver. */
#include "preload/charge.h"
#include "preload/graph_mem.h"

static CUresult launch(struct sl_process *p, CUresult (*real)(CUgraphExec, CUstream),
                       CUgraphExec exec, CUstream stream)
{
    struct sl_graph_claim claim;
    CUresult rc = sl_graph_mem_begin(p, exec, &claim);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = real(exec, stream);
    sl_graph_mem_end(p, &claim);
    return rc;
}

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    SL_ENTER(cuGraphLaunch, real, p, (hGraphExec, hStream));
    return launch(p, real, hGraphExec, hStream);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
    SL_ENTER(cuGraphLaunch_ptsz, real, p, (hGraphExec, hStream));
    return launch(p, real, hGraphExec, hStream);
}
