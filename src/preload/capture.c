/* SPDX-License-Identifier: Apache-2.0 */
/*
 * While a stream records a graph, the watch thread keeps away from the contexts of the process: marking a
 * context at that moment is refused by the driver, and was seen to end a program.
 */
#include "preload/gate.h"
#include "preload/hooks.h"

/* An invalid capture ends, too. One of another stream or thread goes on, and where there is none, none ends. */
static bool ended(CUresult rc)
{
    return rc != CUDA_ERROR_ILLEGAL_STATE && rc != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD &&
           rc != CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
}

#define BEGIN(symbol, ...)                                                                         \
    do {                                                                                           \
        SL_REAL_OR_RETURN(symbol, real);                                                           \
        sl_gate_capture(true);                                                                     \
        CUresult rc_ = real(__VA_ARGS__);                                                          \
        if (rc_ != CUDA_SUCCESS)                                                                   \
            sl_gate_capture(false);                                                                \
        return rc_;                                                                                \
    } while (0)

#define END(symbol, ...)                                                                           \
    do {                                                                                           \
        SL_REAL_OR_RETURN(symbol, real);                                                           \
        CUresult rc_ = real(__VA_ARGS__);                                                          \
        if (ended(rc_))                                                                            \
            sl_gate_capture(false);                                                                \
        return rc_;                                                                                \
    } while (0)

CUresult cuStreamBeginCapture(CUstream s)
{
    BEGIN(cuStreamBeginCapture, s);
}

CUresult cuStreamBeginCapture_ptsz(CUstream s)
{
    BEGIN(cuStreamBeginCapture_ptsz, s);
}

CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
    BEGIN(cuStreamBeginCapture_v2, s, mode);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream s, CUstreamCaptureMode mode)
{
    BEGIN(cuStreamBeginCapture_v2_ptsz, s, mode);
}

#define TO_GRAPH_ARGS                                                                              \
    CUstream s, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t n,   \
        CUstreamCaptureMode mode

CUresult cuStreamBeginCaptureToGraph(TO_GRAPH_ARGS)
{
    BEGIN(cuStreamBeginCaptureToGraph, s, graph, nodes, edges, n, mode);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(TO_GRAPH_ARGS)
{
    BEGIN(cuStreamBeginCaptureToGraph_ptsz, s, graph, nodes, edges, n, mode);
}

CUresult cuStreamEndCapture(CUstream s, CUgraph *graph)
{
    END(cuStreamEndCapture, s, graph);
}

CUresult cuStreamEndCapture_ptsz(CUstream s, CUgraph *graph)
{
    END(cuStreamEndCapture_ptsz, s, graph);
}
