/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of parts still to come: no captures, no pools, no shared memory yet. */
#include "sim/cuda_int.h"
CUresult sim_capture_unsafe(void) { return CUDA_SUCCESS; }
CUresult sim_capture_add(CUstream s, const struct sim_work *w, CUgraphNode *ret) { (void)s; (void)w; (void)ret; return CUDA_ERROR_NOT_SUPPORTED; }
CUresult sim_capture_stream_ok(CUstream s) { (void)s; return CUDA_SUCCESS; }
CUresult sim_capture_forbid(CUstream s) { (void)s; return CUDA_SUCCESS; }
CUresult sim_capture_record(CUevent e, CUstream s) { (void)e; (void)s; return CUDA_ERROR_NOT_SUPPORTED; }
CUresult sim_capture_wait(CUstream s, CUevent e) { (void)e; (void)s; return CUDA_ERROR_NOT_SUPPORTED; }
void sim_capture_invalidate(struct sim_capture *c) { (void)c; }
void sim_pool_work(struct sim_work *w) { (void)w; }
void sim_pool_sync(void) {}
void sim_pools_of_ctx_gone(uint32_t card) { (void)card; }
bool sim_pool_free(struct sim_alloc *a) { (void)a; return false; }
void sim_block_disown(uint32_t index) { (void)index; }
CUresult sim_array_place(CUarray a, uint64_t *x, size_t *y, size_t *z) { (void)a; (void)x; (void)y; (void)z; return CUDA_ERROR_INVALID_HANDLE; }
uint64_t sim_program_ns(const struct sim_graph_program *p, uint32_t card) { (void)p; (void)card; return 1; }
void sim_program_apply(CUcontext ctx, struct sim_graph_program *p, uint64_t end_ns) { (void)ctx; (void)p; (void)end_ns; }
