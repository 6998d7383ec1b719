/* SPDX-License-Identifier: Apache-2.0 */
/* Launching graphs: their memory first, then the driver. */
#include "preload/charge.h"
#include "preload/gate.h"
#include "preload/graph_mem.h"
#include "policy/cost.h"

/* `named` is the stream by its explicit name: the default stream differs between the variants. */
static CUresult launch(struct sl_process *p, CUresult (*real)(CUgraphExec, CUstream),
                       CUgraphExec exec, CUstream stream, CUstream named)
{
    struct sl_graph_claim claim;
    struct sl_launch l = {.after = false};
    CUresult rc = CUDA_SUCCESS;
    if (!sl_gate_is_free())
        rc = sl_gate_enter(&l, sl_cost_key_graph(exec), named);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = sl_graph_mem_begin(p, exec, &claim);
    if (rc == CUDA_SUCCESS) {
        rc = real(exec, stream);
        sl_graph_mem_end(p, &claim);
    }
    return l.after ? sl_gate_leave(&l, rc) : rc;
}

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    SL_ENTER(cuGraphLaunch, real, p, (hGraphExec, hStream));
    return launch(p, real, hGraphExec, hStream, hStream ? hStream : CU_STREAM_LEGACY);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
    SL_ENTER(cuGraphLaunch_ptsz, real, p, (hGraphExec, hStream));
    return launch(p, real, hGraphExec, hStream, hStream ? hStream : CU_STREAM_PER_THREAD);
}
