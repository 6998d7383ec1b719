/* SPDX-License-Identifier: Apache-2.0 */
/* Captures and graph launches. Compiled twice: with the legacy and the per-thread default stream. */
#include "sim/cuda_int.h"

#define WITH_STREAM(h, s, body)                                                                    \
    do {                                                                                           \
        ENTER();                                                                                   \
        CUstream s;                                                                                \
        sim_lock();                                                                                \
        CUresult ws_ = sim_stream(h, SIM_PT, &s);                                                  \
        if (ws_ == CUDA_SUCCESS)                                                                   \
            ws_ = (body);                                                                          \
        sim_unlock();                                                                              \
        return ws_;                                                                                \
    } while (0)

CUresult PTSZ(cuStreamBeginCapture)(CUstream hStream)
{
    WITH_STREAM(hStream, s, sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0));
}

CUresult PTSZ(cuStreamBeginCapture_v2)(CUstream hStream, CUstreamCaptureMode mode)
{
    WITH_STREAM(hStream, s, sim_capture_begin(s, mode, NULL, NULL, 0));
}

CUresult PTSZ(cuStreamBeginCaptureToGraph)(CUstream hStream, CUgraph hGraph,
                                           const CUgraphNode *dependencies,
                                           const CUgraphEdgeData *dependencyData,
                                           size_t numDependencies, CUstreamCaptureMode mode)
{
    (void)dependencyData;
    WITH_STREAM(hStream, s,
                hGraph ? sim_capture_begin(s, mode, hGraph, dependencies, numDependencies)
                       : CUDA_ERROR_INVALID_VALUE);
}

CUresult PTSZ(cuStreamEndCapture)(CUstream hStream, CUgraph *phGraph)
{
    WITH_STREAM(hStream, s, sim_capture_end(s, phGraph));
}

CUresult PTSZ(cuStreamIsCapturing)(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    WITH_STREAM(hStream, s, sim_capture_info(s, captureStatus, NULL, NULL, NULL, NULL));
}

CUresult PTSZ(cuStreamGetCaptureInfo)(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                      cuuint64_t *id_out)
{
    WITH_STREAM(hStream, s, sim_capture_info(s, captureStatus_out, id_out, NULL, NULL, NULL));
}

CUresult PTSZ(cuStreamGetCaptureInfo_v2)(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                         cuuint64_t *id_out, CUgraph *graph_out,
                                         const CUgraphNode **dependencies_out,
                                         size_t *numDependencies_out)
{
    WITH_STREAM(hStream, s,
                sim_capture_info(s, captureStatus_out, id_out, graph_out, dependencies_out,
                                 numDependencies_out));
}

CUresult PTSZ(cuStreamGetCaptureInfo_v3)(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                         cuuint64_t *id_out, CUgraph *graph_out,
                                         const CUgraphNode **dependencies_out,
                                         const CUgraphEdgeData **edgeData_out,
                                         size_t *numDependencies_out)
{
    if (edgeData_out)
        *edgeData_out = NULL; /* plain edges only */
    WITH_STREAM(hStream, s,
                sim_capture_info(s, captureStatus_out, id_out, graph_out, dependencies_out,
                                 numDependencies_out));
}

CUresult PTSZ(cuStreamUpdateCaptureDependencies)(CUstream hStream, CUgraphNode *dependencies,
                                                 size_t numDependencies, unsigned int flags)
{
    WITH_STREAM(hStream, s, sim_capture_update(s, dependencies, numDependencies, flags));
}

CUresult PTSZ(cuStreamUpdateCaptureDependencies_v2)(CUstream hStream, CUgraphNode *dependencies,
                                                    const CUgraphEdgeData *dependencyData,
                                                    size_t numDependencies, unsigned int flags)
{
    (void)dependencyData;
    WITH_STREAM(hStream, s, sim_capture_update(s, dependencies, numDependencies, flags));
}

CUresult PTSZ(cuGraphUpload)(CUgraphExec hGraphExec, CUstream hStream)
{
    WITH_STREAM(hStream, s, sim_graph_upload(hGraphExec, s));
}

CUresult PTSZ(cuGraphLaunch)(CUgraphExec hGraphExec, CUstream hStream)
{
    WITH_STREAM(hStream, s, sim_graph_launch(hGraphExec, s));
}

CUresult PTSZ(cuGraphInstantiateWithParams)(CUgraphExec *phGraphExec, CUgraph hGraph,
                                            CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    ENTER();
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = LOCKED(sim_graph_instantiate(phGraphExec, hGraph, params->flags));
    params->hErrNode_out = NULL;
    params->result_out =
        r == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return r;
}
