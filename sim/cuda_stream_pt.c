/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that take a stream. Compiled twice: with the legacy and the per-thread default stream. */
#include "sim/cuda_int.h"

#include <string.h>

/* Looks the stream up and runs `body` under the lock with it. */
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

static CUresult get_priority(CUstream s, int *out)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = s->priority;
    return CUDA_SUCCESS;
}

CUresult PTSZ(cuStreamGetPriority)(CUstream hStream, int *priority)
{
    WITH_STREAM(hStream, s, get_priority(s, priority));
}

static CUresult get_flags(CUstream s, unsigned int *out)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = s->flags;
    return CUDA_SUCCESS;
}

CUresult PTSZ(cuStreamGetFlags)(CUstream hStream, unsigned int *flags)
{
    WITH_STREAM(hStream, s, get_flags(s, flags));
}

static CUresult get_id(CUstream s, unsigned long long *out)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = s->id;
    return CUDA_SUCCESS;
}

CUresult PTSZ(cuStreamGetId)(CUstream hStream, unsigned long long *id)
{
    WITH_STREAM(hStream, s, get_id(s, id));
}

static CUresult get_ctx(CUstream s, CUcontext *out)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = s->ctx;
    return CUDA_SUCCESS;
}

CUresult PTSZ(cuStreamGetCtx)(CUstream hStream, CUcontext *pctx)
{
    WITH_STREAM(hStream, s, get_ctx(s, pctx));
}

static CUresult get_device(CUstream s, CUdevice *out)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = s->ctx->ordinal;
    return CUDA_SUCCESS;
}

CUresult PTSZ(cuStreamGetDevice)(CUstream hStream, CUdevice *dev)
{
    WITH_STREAM(hStream, s, get_device(s, dev));
}

CUresult PTSZ(cuStreamWaitEvent)(CUstream hStream, CUevent hEvent, unsigned int flags)
{
    WITH_STREAM(hStream, s,
                flags & ~1u ? CUDA_ERROR_INVALID_VALUE
                            : sim_event_wait(s, hEvent, flags & CU_EVENT_WAIT_EXTERNAL));
}

CUresult PTSZ(cuEventRecord)(CUevent hEvent, CUstream hStream)
{
    WITH_STREAM(hStream, s, sim_event_record(hEvent, s, false));
}

CUresult PTSZ(cuEventRecordWithFlags)(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    WITH_STREAM(hStream, s,
                flags & ~1u ? CUDA_ERROR_INVALID_VALUE
                            : sim_event_record(hEvent, s, flags & CU_EVENT_RECORD_EXTERNAL));
}

static CUresult query(CUstream s)
{
    CUresult r = sim_capture_forbid(s);
    if (r != CUDA_SUCCESS)
        return r;
    sim_poll();
    if (s->ctx->sticky != CUDA_SUCCESS)
        return s->ctx->sticky;
    return sim_seq_done(s->ctx, s->last_seq) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult PTSZ(cuStreamQuery)(CUstream hStream)
{
    WITH_STREAM(hStream, s, query(s));
}

static CUresult synchronize(CUstream s)
{
    CUresult r = sim_capture_forbid(s);
    if (r != CUDA_SUCCESS)
        return r;
    r = sim_wait_seq(s->ctx, s->last_seq);
    sim_pool_sync();
    return r;
}

CUresult PTSZ(cuStreamSynchronize)(CUstream hStream)
{
    WITH_STREAM(hStream, s, synchronize(s));
}

CUresult PTSZ(cuLaunchHostFunc)(CUstream hStream, CUhostFn fn, void *userData)
{
    struct sim_work w = {.type = SIM_WORK_HOST};
    w.host.fn = fn;
    w.host.arg = userData;
    WITH_STREAM(hStream, s, fn ? sim_stream_do(s, &w) : CUDA_ERROR_INVALID_VALUE);
}

static CUresult add_callback(CUstream s, CUstream given, CUstreamCallback callback, void *arg)
{
    struct sim_work w = {.type = SIM_WORK_CALLBACK};
    CUresult r = sim_capture_forbid(s);
    w.host.callback = callback;
    w.host.stream = given;
    w.host.arg = arg;
    return r == CUDA_SUCCESS ? sim_submit(s, &w, NULL) : r;
}

CUresult PTSZ(cuStreamAddCallback)(CUstream hStream, CUstreamCallback callback, void *userData,
                                   unsigned int flags)
{
    WITH_STREAM(hStream, s,
                callback && !flags ? add_callback(s, hStream, callback, userData)
                                   : CUDA_ERROR_INVALID_VALUE);
}

static CUresult nothing(CUstream s)
{
    struct sim_work w = {.type = SIM_WORK_EMPTY};
    return sim_stream_do(s, &w);
}

static CUresult attach(CUstream s, CUdeviceptr dptr)
{
    const struct sim_alloc *a = sim_alloc_find(dptr);
    return a && a->kind == SIM_MANAGED ? nothing(s) : CUDA_ERROR_INVALID_VALUE;
}

CUresult PTSZ(cuStreamAttachMemAsync)(CUstream hStream, CUdeviceptr dptr, size_t length,
                                      unsigned int flags)
{
    (void)length;
    WITH_STREAM(hStream, s,
                flags != 1 && flags != 2 && flags != 4 ? CUDA_ERROR_INVALID_VALUE
                                                       : attach(s, dptr));
}

/* Managed memory is always everywhere here: a prefetch only keeps its place in the stream. */
static CUresult prefetch(CUstream s, CUdeviceptr ptr, size_t bytes)
{
    const struct sim_alloc *a = sim_alloc_find(ptr);
    if (!a || a->kind != SIM_MANAGED || bytes == 0 || ptr + bytes > a->address + a->size)
        return CUDA_ERROR_INVALID_VALUE;
    return nothing(s);
}

CUresult PTSZ(cuMemPrefetchAsync)(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                                  CUstream hStream)
{
    WITH_STREAM(hStream, s,
                dstDevice < -1 || dstDevice >= sim_p.count ? CUDA_ERROR_INVALID_DEVICE
                                                           : prefetch(s, devPtr, count));
}

CUresult PTSZ(cuMemPrefetchAsync_v2)(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                     unsigned int flags, CUstream hStream)
{
    (void)location;
    WITH_STREAM(hStream, s, flags ? CUDA_ERROR_INVALID_VALUE : prefetch(s, devPtr, count));
}

static CUresult copy_attributes(CUstream d, CUstream src)
{
    CUstream s;
    CUresult r = sim_stream(src, SIM_PT, &s);
    if (r == CUDA_SUCCESS)
        memcpy(d->attrs, s->attrs, sizeof(d->attrs));
    return r;
}

CUresult PTSZ(cuStreamCopyAttributes)(CUstream dst, CUstream src)
{
    WITH_STREAM(dst, s, copy_attributes(s, src));
}

static CUresult attribute(CUstream s, CUstreamAttrID id, CUstreamAttrValue *out,
                          const CUstreamAttrValue *in)
{
    if ((unsigned int)id >= 16 || (!out && !in))
        return CUDA_ERROR_INVALID_VALUE;
    if (in && id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        s->priority = in->priority;
    if (in)
        s->attrs[id] = *in;
    if (out) {
        *out = s->attrs[id];
        if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
            out->priority = s->priority;
    }
    return CUDA_SUCCESS;
}

CUresult PTSZ(cuStreamGetAttribute)(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value)
{
    WITH_STREAM(hStream, s, attribute(s, attr, value, NULL));
}

CUresult PTSZ(cuStreamSetAttribute)(CUstream hStream, CUstreamAttrID attr,
                                    const CUstreamAttrValue *value)
{
    WITH_STREAM(hStream, s, attribute(s, attr, NULL, value));
}

/* ---- words of memory ---- */

static CUresult word(CUstream s, bool wait, CUdeviceptr addr, uint64_t value, uint32_t bytes,
                     unsigned int flags)
{
    if (addr % bytes || !sim_range_ok(addr, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work w = {.type = wait ? SIM_WORK_WAIT_VALUE : SIM_WORK_WRITE_VALUE};
    w.word.address = addr;
    w.word.value = value;
    w.word.bytes = bytes;
    w.word.flags = flags;
    return sim_stream_do(s, &w);
}

#define WORD_CALLS(suffix)                                                                         \
    CUresult PTSZ(cuStreamWaitValue32##suffix)(CUstream stream, CUdeviceptr addr,                  \
                                               cuuint32_t value, unsigned int flags)               \
    {                                                                                              \
        WITH_STREAM(stream, s, word(s, true, addr, value, 4, flags));                              \
    }                                                                                              \
    CUresult PTSZ(cuStreamWaitValue64##suffix)(CUstream stream, CUdeviceptr addr,                  \
                                               cuuint64_t value, unsigned int flags)               \
    {                                                                                              \
        WITH_STREAM(stream, s, word(s, true, addr, value, 8, flags));                              \
    }                                                                                              \
    CUresult PTSZ(cuStreamWriteValue32##suffix)(CUstream stream, CUdeviceptr addr,                 \
                                                cuuint32_t value, unsigned int flags)              \
    {                                                                                              \
        WITH_STREAM(stream, s, word(s, false, addr, value, 4, flags));                             \
    }                                                                                              \
    CUresult PTSZ(cuStreamWriteValue64##suffix)(CUstream stream, CUdeviceptr addr,                 \
                                                cuuint64_t value, unsigned int flags)              \
    {                                                                                              \
        WITH_STREAM(stream, s, word(s, false, addr, value, 8, flags));                             \
    }                                                                                              \
    CUresult PTSZ(cuStreamBatchMemOp##suffix)(CUstream stream, unsigned int count,                 \
                                              CUstreamBatchMemOpParams *paramArray,                \
                                              unsigned int flags)                                  \
    {                                                                                              \
        WITH_STREAM(stream, s, flags ? CUDA_ERROR_INVALID_VALUE : batch(s, count, paramArray));    \
    }

static CUresult batch(CUstream s, unsigned int count, const CUstreamBatchMemOpParams *p)
{
    CUresult r = count > 0 && count <= 256 && p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < count && r == CUDA_SUCCESS; i++) {
        switch (p[i].operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            r = word(s, true, p[i].waitValue.address, p[i].waitValue.value, 4,
                     p[i].waitValue.flags);
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            r = word(s, true, p[i].waitValue.address, p[i].waitValue.value64, 8,
                     p[i].waitValue.flags);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            r = word(s, false, p[i].writeValue.address, p[i].writeValue.value, 4, 0);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            r = word(s, false, p[i].writeValue.address, p[i].writeValue.value64, 8, 0);
            break;
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        case CU_STREAM_MEM_OP_BARRIER:
            break;
        default:
            r = CUDA_ERROR_INVALID_VALUE;
        }
    }
    return r;
}

WORD_CALLS()
WORD_CALLS(_v2)
