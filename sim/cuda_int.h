/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the simulated libcuda. One lock per process (sim_lock) guards every object below; the shared
 * state's lock is taken inside it, never the other way round, and neither is held while waiting.
 * Device memory is host memory: a CUdeviceptr is an address in this process, so copies and the few
 * known kernels really happen. They happen when the process looks (poll), in stream order.
 */
#ifndef SLUICE_SIM_CUDA_INT_H
#define SLUICE_SIM_CUDA_INT_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#include "abi/cuda.h"
#pragma GCC visibility pop

#include "sim/engine.h"
#include "sim/state.h"

#define SIM_MIB       (1ULL << 20)
#define SIM_BLOCK     (2 * SIM_MIB) /* what the card hands out */
#define SIM_UNIT      512ULL        /* what cuMemAlloc hands out of a block */
#define SIM_CTX_MAGIC 0x43545831u
#define SIM_STR_MAGIC 0x53545231u
#define SIM_EVT_MAGIC 0x45565431u

struct sim_graph_program;

/* One thing a stream does: what is submitted, captured and kept in graph nodes. */
enum sim_work_type {
    SIM_WORK_KERNEL,
    SIM_WORK_COPY,
    SIM_WORK_MEMSET,
    SIM_WORK_HOST,
    SIM_WORK_CALLBACK,
    SIM_WORK_RECORD,
    SIM_WORK_WAIT,
    SIM_WORK_ALLOC, /* pool memory becomes usable */
    SIM_WORK_FREE,  /* pool memory goes back */
    SIM_WORK_WRITE_VALUE,
    SIM_WORK_WAIT_VALUE,
    SIM_WORK_GRAPH, /* a whole graph as one operation */
    SIM_WORK_EMPTY,
};

/* The first three are copy engines; a copy within a card is done by its SMs. */
enum { SIM_COPY_IN, SIM_COPY_OUT, SIM_COPY_BETWEEN, SIM_COPY_WITHIN };

/* A copy with every address resolved: depth planes of height rows of width bytes. */
struct sim_copy {
    uint64_t dst, src;
    size_t width, height, depth;
    size_t dst_pitch, dst_plane, src_pitch, src_plane;
    uint8_t engine; /* SIM_COPY_* */
    void *staging;  /* the bytes of a pageable source, freed once copied; or NULL */
};

struct sim_work {
    uint8_t type;
    bool begun; /* a waiting kernel whose first act is done */
    union {
        struct {
            CUfunction f;
            uint64_t arg[3];
            unsigned int grid[3], block[3], shared_bytes;
        } kernel;
        struct sim_copy copy;
        struct {
            uint64_t dst;
            size_t pitch, width, height;
            uint32_t value, element;
        } memset;
        struct {
            CUhostFn fn;
            CUstreamCallback callback;
            CUstream stream;
            void *arg;
        } host;
        struct {
            CUevent event;
            uint64_t generation;
        } record;
        struct {
            uint32_t queue, generation;
            uint64_t seq;
        } wait;
        struct {
            uint64_t address, value;
            uint32_t bytes, flags;
        } word;
        uint64_t address; /* ALLOC, FREE */
        struct sim_graph_program *program;
    };
};

struct sim_local_op {
    bool done, applied;
    uint64_t end_ns;
    struct sim_work work;
};

struct sim_capture;
struct CUstream_st {
    uint32_t magic;
    uint16_t slot;
    uint8_t op_flags; /* SL_SIM_OPF_* */
    bool copied;      /* its last work was a copy between host and card */
    unsigned int flags;
    int priority;
    CUcontext ctx;
    uint64_t id, last_seq;
    struct sim_capture *capture;
    CUgraphNode *cap_deps; /* what the next captured node depends on */
    size_t cap_count;
    CUlaunchAttributeValue attrs[16];
    struct CUstream_st *next;
};

struct CUevent_st {
    uint32_t magic;
    unsigned int flags;
    CUcontext ctx;
    uint64_t generation; /* counts records */
    bool recorded, done;
    bool whole; /* stands for everything its context had up to seq, in all streams */
    uint32_t queue, queue_generation;
    uint64_t seq, time_ns;
    struct sim_capture *capture; /* last recorded in this capture … */
    CUgraphNode *cap_deps;       /* … after these */
    size_t cap_count;
    uint32_t ipc; /* index + 1 in the shared table, or 0 */
    uint64_t ipc_id;
    bool imported;
    struct CUevent_st *next, **at; /* of its context, or spare; what points to it */
};

/* Handles the kernel driver knows this context's channel groups by: compute first, then copies. */
#define SIM_GROUPS         4
#define SIM_GROUP_CHANNELS 8
struct sim_groups {
    uint32_t device, subdevice;
    uint32_t group[SIM_GROUPS];
    uint32_t channel[SIM_GROUPS][SIM_GROUP_CHANNELS];
};

struct CUctx_st {
    uint32_t magic;
    bool primary, dead;
    int refs;
    uint32_t card;
    CUdevice ordinal;
    unsigned int flags;
    uint64_t id;
    uint32_t queue, queue_generation;
    struct sim_groups groups;
    uint64_t retired;     /* every operation up to this one is applied */
    unsigned int watched; /* unfinished SPIN, HOST and POLL operations */
    struct sim_local_op *ops;
    struct CUstream_st legacy;
    struct CUstream_st *streams;
    struct CUevent_st *events; /* go with it, as a driver's do */
    uint16_t next_slot;
    uint64_t peers; /* bit: that card's memory may be used */
    size_t limits[CU_LIMIT_MAX];
    CUresult sticky;
    struct CUctx_st *next, *next_dead;
};

enum sim_alloc_kind {
    SIM_DEVICE,
    SIM_MANAGED,
    SIM_HOST,
    SIM_HOST_REGISTERED,
    SIM_POOL,
    SIM_MAPPED,        /* VMM */
    SIM_IMPORTED,      /* IPC or external */
    SIM_POOL_IMPORTED, /* of another process's pool; freed like the caller's own */
    SIM_ARRAY,
    SIM_GRAPH,
};

struct sim_chunk;
struct sim_alloc {
    uint64_t address;
    size_t size;    /* as asked for */
    size_t charged; /* on the card, for this one alone (0 inside a chunk) */
    enum sim_alloc_kind kind;
    uint32_t card;
    CUcontext ctx;
    unsigned int flags;
    uint64_t id;
    struct sim_chunk *chunk; /* NULL: has its own mapping */
    void *owner;             /* pool, VMM handle */
    uint32_t block;          /* index + 1 in the shared blocks, or 0 */
    bool pending_free;
};

/* The MIG device a process is on: with one there is nothing else. */
struct sim_mig {
    bool on;
    uint32_t card, gi_id, ci_id, generation;
    uint32_t sm_count;
    uint64_t memory_bytes; /* the GPU instance's: compute instances on it share it */
    uint8_t uuid[16];
    char name[40]; /* "1g.18gb" */
};

/* What an MPS server allows this process. */
struct sim_mps {
    bool on;
    int fd; /* open while we are its client */
    int server;
    uint32_t share_permille; /* of the SMs */
    uint32_t count;          /* cards the server has, as it numbers them */
    uint32_t card[SL_SIM_MAX_DEVICES];
    uint64_t limit_bytes[SL_SIM_MAX_DEVICES]; /* by card; 0: none */
};

/* The process. */
struct sim_process {
    struct sl_sim_state *st;
    uint32_t slot;
    bool forked;
    bool copies_empty; /* copies within the card move nothing */
    bool waits_locked; /* calls that wait for a whole card keep the process lock meanwhile */
    int version;
    int count;
    uint32_t card[SL_SIM_MAX_DEVICES]; /* of each ordinal: CUDA_VISIBLE_DEVICES */
    CUcontext primary[SL_SIM_MAX_DEVICES];
    unsigned int primary_flags[SL_SIM_MAX_DEVICES];
    CUcontext contexts;      /* those that live … */
    CUcontext dead_contexts; /* … and those that do not */
    uint64_t next_id;
    struct sim_mig mig;
    struct sim_mps mps;
};
extern struct sim_process sim_p;

/* cuda_core.c */
void sim_lock(void);
void sim_unlock(void);
/* With the lock held, by a thread that is about to wait, or has waited: with the fault waits=locked no other thread
 * gets the lock in between, though the wait drops it. */
void sim_keep_lock(bool keep);
CUresult sim_enter(const char *name, bool need_init);
#define ENTER()                                                                                    \
    do {                                                                                           \
        CUresult enter_ = sim_enter(__func__, true);                                               \
        if (enter_ != CUDA_SUCCESS)                                                                \
            return enter_;                                                                         \
    } while (0)
/* Runs `expr` under the process lock and returns its result. */
#define LOCKED(expr)                                                                               \
    __extension__({                                                                                \
        sim_lock();                                                                                \
        CUresult locked_ = (expr);                                                                 \
        sim_unlock();                                                                              \
        locked_;                                                                                   \
    })
CUresult sim_init(void);
uint64_t sim_next_id(void);

/* cuda_choose.c: the devices of this process, from its nodes, MIG and CUDA_VISIBLE_DEVICES. */
void sim_choose_devices(void);

/* cuda_mps.c. Joining: success with MPS or without. Gone: the server or its daemon ended. */
CUresult sim_mps_join(void);
void sim_mps_leave(void);
bool sim_mps_gone(void);

/* cuda_part.c: how much of a card this process has. With the state locked where they say so. */
uint32_t sim_sm_count(uint32_t card);
uint64_t sim_total_bytes(uint32_t card);
uint64_t sim_context_bytes(uint32_t card);
struct sl_sim_lane sim_lane(uint32_t card);
uint64_t sim_used_bytes(uint32_t card);       /* locked */
bool sim_fits(uint32_t card, uint64_t bytes); /* locked */
CUresult sim_may_use(uint32_t card);          /* locked: a new context */
void sim_part_enter(void);                    /* locked: says in the state where we are */

/* cuda_run.c: submission, completion, waiting. Lock held unless said otherwise. */
CUresult sim_submit(CUstream s, const struct sim_work *w, uint64_t *ret_seq);
void sim_poll(void);
bool sim_seq_done(CUcontext ctx, uint64_t seq);
CUresult sim_wait_seq(CUcontext ctx, uint64_t seq); /* drops and retakes the lock */
CUresult sim_wait_ctx(CUcontext ctx);
uint64_t sim_ctx_tail(CUcontext ctx); /* the last operation submitted to it */ /* the same */
void sim_wait_card(uint32_t card); /* the same: every context of ours on it */
bool sim_writes_memory(const struct sim_work *w);
uint64_t sim_work_ns(const struct sim_work *w, uint32_t card, uint8_t *ret_kind);
uint32_t sim_blocks_per_sm(uint64_t threads, uint64_t shared_bytes); /* of one block */
void sim_apply(CUcontext ctx, struct sim_work *w, uint64_t end_ns);
bool sim_watch_over(struct sim_work *w);
uint64_t sim_copy_bytes(const struct sim_copy *c);
void sim_copy_run(const struct sim_copy *c);
void sim_memset_run(const struct sim_work *w);

/* cuda_ctx.c */
CUcontext sim_current(void); /* NULL if none, or destroyed */
CUresult sim_need_ctx(CUcontext *ret);
bool sim_ctx_ok(CUcontext ctx);
CUresult sim_ordinal(CUdevice dev, uint32_t *ret_card);
CUresult sim_ctx_health(CUcontext ctx);

/* cuda_groups.c: channel groups of a context that has its queue. Process locked. */
bool sim_groups_make(CUcontext ctx);
void sim_groups_drop(CUcontext ctx);

/* cuda_rm.c: the kernel driver behind them. */
int sim_rm_fd(void);               /* stands for /dev/nvidiactl; -1: cannot be had */
void sim_rm_making(CUcontext ctx); /* objects this thread makes from now on are this context's */
int sim_rm_ioctl(int fd, unsigned long request, void *arg);
void sim_rm_fault(uint32_t bits, unsigned long from); /* SL_SIM_GROUPS_*, from that call on */

/* cuda_stream.c */
CUresult sim_stream(CUstream h, bool per_thread, CUstream *ret);
CUresult sim_stream_do(CUstream s, const struct sim_work *w); /* submits, or captures */
CUresult sim_event_record(CUevent e, CUstream s, bool external);
CUresult sim_event_wait(CUstream s, CUevent e, bool external);
void sim_event_done(CUevent e, uint64_t generation, uint64_t end_ns);
void sim_events_of_ctx_gone(CUcontext ctx);

/* cuda_capture.c. sim_capture_unsafe: the error of a call that a capture in progress forbids. */
CUresult sim_capture_unsafe(void);
CUresult sim_capture_add(CUstream s, const struct sim_work *w, CUgraphNode *ret);
CUresult sim_capture_stream_ok(CUstream s);
CUresult sim_capture_forbid(CUstream s);
CUresult sim_capture_record(CUevent e, CUstream s);
void sim_capture_forget(CUevent e); /* the event stands for nothing captured any more */
CUresult sim_capture_wait(CUstream s, CUevent e);
CUresult sim_capture_begin(CUstream s, CUstreamCaptureMode mode, CUgraph into,
                           const CUgraphNode *deps, size_t count);
CUresult sim_capture_end(CUstream s, CUgraph *phGraph);
CUresult sim_capture_info(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                          const CUgraphNode **deps, size_t *count);
CUresult sim_capture_update(CUstream s, const CUgraphNode *deps, size_t count, unsigned int flags);
void sim_capture_invalidate(struct sim_capture *c);
void sim_capture_stream_gone(CUstream s); /* ends the capture that began on it */

/* cuda_mem.c */
CUresult sim_charge(uint32_t card, uint64_t bytes);
void sim_uncharge(uint32_t card, uint64_t bytes);
void *sim_map_memory(uint64_t bytes);
void sim_unmap_memory(void *p, uint64_t bytes);
struct sim_alloc *sim_alloc_add(const struct sim_alloc *a); /* NULL: no host memory */
struct sim_alloc *sim_alloc_find(uint64_t address);         /* the one it lies in */
void sim_alloc_remove(struct sim_alloc *a);
CUresult sim_device_alloc(CUcontext ctx, uint64_t bytes, enum sim_alloc_kind kind, uint64_t *ret);
void sim_device_free(struct sim_alloc *a);
void sim_ctx_free_memory(CUcontext ctx);
/* Whether [address, +bytes) is device memory we know, or no device memory at all (host). */
bool sim_range_ok(uint64_t address, uint64_t bytes);
size_t sim_chunk_range(struct sim_chunk *c, uint64_t *ret_address);
uint32_t sim_chunk_block(struct sim_chunk *c, uint32_t set_block);

/* cuda_pool.c */
void sim_pool_work(struct sim_work *w); /* ALLOC and FREE reached in stream order */
void sim_pool_sync(void);               /* a synchronisation: give back what is over thresholds */
void sim_pools_of_ctx_gone(uint32_t card);
bool sim_pool_free(struct sim_alloc *a);
CUresult sim_alloc_async(CUdeviceptr *dptr, size_t bytes, CUmemoryPool p, bool any, CUstream s);
CUresult sim_free_async(CUdeviceptr dptr, CUstream s);
CUresult sim_graph_mem(uint32_t card, int64_t used_bytes);

/* cuda_ipc.c: memory that other processes hold. */
int sim_block_add(uint32_t card, uint64_t bytes, int fd); /* index or -1 */
void sim_block_hold(uint32_t index, bool hold);
void sim_block_disown(uint32_t index);
int sim_block_find_fd(int fd);
/* A handle of 64 bytes for memory with a mapping of its own, of `bytes`; a mapping of such memory of another
 * process, and its end. */
CUresult sim_ipc_export(struct sim_alloc *a, size_t bytes, void *handle);
CUresult sim_ipc_import(const void *handle, CUcontext ctx, enum sim_alloc_kind kind,
                        CUdeviceptr *ret);
void sim_ipc_close(struct sim_alloc *a);

/* cuda_module.c */
struct sim_param {
    size_t offset, size;
};
enum sim_kernel_id {
    SIM_K_OTHER,
    SIM_K_EMPTY,
    SIM_K_FMA,
    SIM_K_FILL,
    SIM_K_ADD,
    SIM_K_SPIN,
    SIM_K_FOREVER,
    SIM_K_MEET,
};
struct CUfunc_st {
    char *name;
    CUmodule module;
    enum sim_kernel_id id;
    size_t param_count;
    struct sim_param *params;
    size_t param_bytes;
    /* cuFuncSetBlockShape and friends */
    unsigned int block[3], shared_bytes;
    unsigned char legacy_args[256];
    int max_dynamic_shared;
};

/* cuda_launch.c */
CUresult sim_kernel_work(CUfunction f, const unsigned int grid[3], const unsigned int block[3],
                         unsigned int shared, void **params, void **extra, struct sim_work *ret);

/* cuda_copy.c */
CUresult sim_copy_resolve(const CUDA_MEMCPY3D *p, struct sim_work *ret);
CUresult sim_copy_linear(uint64_t dst, uint64_t src, size_t bytes, struct sim_work *ret);
CUresult sim_array_place(CUarray a, uint64_t *ret_address, size_t *ret_pitch, size_t *ret_plane);
CUresult sim_memset_check(const struct sim_work *w);

/* cuda_graph.c, cuda_graph_exec.c */
CUresult sim_graph_launch(CUgraphExec exec, CUstream s);
CUresult sim_graph_upload(CUgraphExec exec, CUstream s);
CUresult sim_graph_instantiate(CUgraphExec *ret, CUgraph g, unsigned long long flags);
uint64_t sim_program_ns(const struct sim_graph_program *p, uint32_t card);
bool sim_program_writes(const struct sim_graph_program *p);
void sim_program_apply(CUcontext ctx, struct sim_graph_program *p, uint64_t end_ns);

/* Files that are compiled twice name their functions by these. */
#ifdef SIM_PER_THREAD
#define PTSZ(name) name##_ptsz
#define PTDS(name) name##_ptds
#define SIM_PT     true
#else
#define PTSZ(name) name
#define PTDS(name) name
#define SIM_PT     false
#endif

#endif
