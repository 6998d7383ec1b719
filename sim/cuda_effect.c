/* SPDX-License-Identifier: Apache-2.0 */
/* What work does to memory when it is over, in this process's address space. */
#include "sim/cuda_int.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *at(uint64_t address)
{
    return (void *)(uintptr_t)address; /* device memory is host memory here */
}

uint64_t sim_copy_bytes(const struct sim_copy *c)
{
    return (uint64_t)c->width * c->height * c->depth;
}

void sim_copy_run(const struct sim_copy *c)
{
    if (c->height == 1 && c->depth == 1) {
        memmove(at(c->dst), at(c->src), c->width);
        return;
    }
    for (size_t z = 0; z < c->depth; z++)
        for (size_t y = 0; y < c->height; y++)
            memmove(at(c->dst + z * c->dst_plane + y * c->dst_pitch),
                    at(c->src + z * c->src_plane + y * c->src_pitch), c->width);
}

static void fill(uint64_t dst, uint32_t value, uint32_t element, size_t n)
{
    if (element == 1) {
        memset(at(dst), (int)(value & 0xff), n);
    } else if (element == 2) {
        uint16_t *p = at(dst);
        for (size_t i = 0; i < n; i++)
            p[i] = (uint16_t)value;
    } else {
        uint32_t *p = at(dst);
        for (size_t i = 0; i < n; i++)
            p[i] = value;
    }
}

/* Zeroing private memory by giving its pages back keeps a card full of zeros free of RAM. */
static bool zero_cheaply(uint64_t dst, uint64_t bytes)
{
    uint64_t lo = (dst + 4095) & ~4095ULL, hi = (dst + bytes) & ~4095ULL;
    const struct sim_alloc *a = sim_alloc_find(dst);
    if (!a || (a->kind != SIM_DEVICE && a->kind != SIM_POOL) || a->block || a->chunk || hi <= lo ||
        hi - lo < SIM_BLOCK)
        return false;
    memset(at(dst), 0, lo - dst);
    (void)madvise(at(lo), hi - lo, MADV_DONTNEED);
    memset(at(hi), 0, dst + bytes - hi);
    return true;
}

void sim_memset_run(const struct sim_work *w)
{
    uint64_t row = (uint64_t)w->memset.width * w->memset.element;
    if (w->memset.height == 1) {
        if (w->memset.value != 0 || !zero_cheaply(w->memset.dst, row))
            fill(w->memset.dst, w->memset.value, w->memset.element, w->memset.width);
        return;
    }
    for (size_t y = 0; y < w->memset.height; y++)
        fill(w->memset.dst + y * w->memset.pitch, w->memset.value, w->memset.element,
             w->memset.width);
}

static void fault(CUcontext ctx)
{
    if (ctx->sticky != CUDA_SUCCESS)
        return;
    ctx->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
    sl_sim_lock(sim_p.st);
    sl_sim_event_add(sim_p.st, ctx->card, 0x8 /* critical XID */, 31, SL_SIM_NONE, SL_SIM_NONE);
    sl_sim_unlock(sim_p.st);
}

static void kernel_run(CUcontext ctx, const struct sim_work *w)
{
    const uint64_t *arg = w->kernel.arg;
    uint32_t value = (uint32_t)arg[1];
    size_t count = (size_t)(uint32_t)arg[2];
    switch (w->kernel.f->id) {
    case SIM_K_FILL:
        if (count && !sim_range_ok(arg[0], count * 4))
            fault(ctx);
        else
            fill(arg[0], value, 4, count);
        break;
    case SIM_K_ADD:
        if (count && !sim_range_ok(arg[0], count * 4)) {
            fault(ctx);
            break;
        }
        for (size_t i = 0; i < count; i++)
            ((uint32_t *)at(arg[0]))[i] += value;
        break;
    case SIM_K_OTHER:
    case SIM_K_EMPTY:
    case SIM_K_FMA: /* its output store never happens: the condition in the PTX is never true */
    case SIM_K_SPIN:
    case SIM_K_FOREVER:
    case SIM_K_MEET:
        break;
    }
}

static void store_word(const struct sim_work *w)
{
    if (w->word.bytes == 4)
        atomic_store((_Atomic uint32_t *)at(w->word.address), (uint32_t)w->word.value);
    else
        atomic_store((_Atomic uint64_t *)at(w->word.address), w->word.value);
}

void sim_apply(CUcontext ctx, struct sim_work *w, uint64_t end_ns)
{
    if (ctx->sticky != CUDA_SUCCESS && w->type != SIM_WORK_RECORD)
        return;
    switch ((enum sim_work_type)w->type) {
    case SIM_WORK_KERNEL:
        kernel_run(ctx, w);
        break;
    case SIM_WORK_COPY:
        if (w->copy.engine != SIM_COPY_WITHIN || !sim_p.copies_empty)
            sim_copy_run(&w->copy);
        free(w->copy.staging);
        w->copy.staging = NULL;
        break;
    case SIM_WORK_MEMSET:
        sim_memset_run(w);
        break;
    case SIM_WORK_RECORD:
        sim_event_done(w->record.event, w->record.generation, end_ns);
        break;
    case SIM_WORK_ALLOC:
    case SIM_WORK_FREE:
        sim_pool_work(w);
        break;
    case SIM_WORK_WRITE_VALUE:
        store_word(w);
        break;
    case SIM_WORK_GRAPH:
        sim_program_apply(ctx, w->program, end_ns);
        break;
    case SIM_WORK_HOST:
    case SIM_WORK_CALLBACK:
    case SIM_WORK_WAIT:
    case SIM_WORK_WAIT_VALUE:
    case SIM_WORK_EMPTY:
        break;
    }
}

static uint32_t load32(uint64_t address)
{
    return atomic_load((_Atomic uint32_t *)at(address));
}

static bool kernel_over(struct sim_work *w)
{
    const uint64_t *arg = w->kernel.arg;
    switch (w->kernel.f->id) {
    case SIM_K_SPIN:
        return !sim_range_ok(arg[0], 4) || load32(arg[0]) >= (uint32_t)arg[1];
    case SIM_K_MEET:
        if (!sim_range_ok(arg[0], 4) || !sim_range_ok(arg[1], 4))
            return true;
        if (!w->begun) {
            atomic_store((_Atomic uint32_t *)at(arg[0]), 1);
            w->begun = true;
        }
        return load32(arg[1]) == 1;
    case SIM_K_FOREVER:
        return false;
    case SIM_K_OTHER:
    case SIM_K_EMPTY:
    case SIM_K_FMA:
    case SIM_K_FILL:
    case SIM_K_ADD:
        break;
    }
    return true;
}

bool sim_watch_over(struct sim_work *w)
{
    if (w->type == SIM_WORK_KERNEL)
        return kernel_over(w);
    if (w->type != SIM_WORK_WAIT_VALUE)
        return false;
    uint64_t have = w->word.bytes == 4 ? load32(w->word.address)
                                       : atomic_load((_Atomic uint64_t *)at(w->word.address));
    uint64_t mask = w->word.bytes == 4 ? 0xffffffffULL : UINT64_MAX;
    uint64_t want = w->word.value & mask;
    switch (w->word.flags & 3) {
    case CU_STREAM_WAIT_VALUE_EQ:
        return have == want;
    case CU_STREAM_WAIT_VALUE_AND:
        return (have & want) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
        return (~(have | want) & mask) != 0;
    default: /* cyclic: have - want, as a signed number of that width, is not negative */
        return w->word.bytes == 4 ? (int32_t)((uint32_t)have - (uint32_t)want) >= 0
                                  : (int64_t)(have - want) >= 0;
    }
}
