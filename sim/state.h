/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all processes of one simulated machine share: one file, mapped by each. It holds the cards, the
 * processes on them, their queues of work, and the faults someone asked for. There is no server:
 * whoever looks plays time forward (engine.h) and clears away the dead.
 *
 * Rules
 *  - Everything below `lock` is read and written under sl_sim_lock(). Nobody sleeps holding it.
 *  - A process is alive while it holds a POSIX record lock on its slot's byte of the file: the kernel
 *    drops it however the process ends, and it works across PID namespaces. Closing *any*
 *    descriptor of the file would drop it too, so a descriptor of the state file is never closed.
 *  - Sums are computed, not kept: a process killed inside the lock leaves nothing to disagree with.
 */
#ifndef SLUICE_SIM_STATE_H
#define SLUICE_SIM_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "sim/mig.h"
#include "sim/profiles.h"

#define SL_SIM_MAGIC          0x534c53494d535431ULL
#define SL_SIM_VERSION        12
#define SL_SIM_MAX_PROCS      512
#define SL_SIM_MAX_QUEUES     1024
#define SL_SIM_DOORS          512
#define SL_SIM_RING           1024 /* operations a queue holds: as many as a real channel */
#define SL_SIM_STREAM_SLOTS   256
#define SL_SIM_MAX_BLOCKS     2048
#define SL_SIM_MAX_IPC_EVENTS 512
#define SL_SIM_EVENTS         64
#define SL_SIM_HISTORY        64           /* utilisation buckets kept */
#define SL_SIM_BUCKET_NS      100000000ULL /* 100 ms each */
#define SL_SIM_NONE           UINT32_MAX
#define SL_SIM_RESIDENT       32      /* kernels of one context that can be on a card at once */
#define SL_SIM_SLICE_UNIT_NS  1024ULL /* a card counts slices in these: a "microsecond" of slice */
#define SL_SIM_ROOM           1000    /* all of a card's places for blocks */

/* GPU time used in the recent past. Bucket b covers [b*BUCKET, (b+1)*BUCKET) of CLOCK_MONOTONIC;
 * bucket b is at index b % HISTORY, and is of that time only if its number says so. */
struct sl_sim_usage {
    uint64_t busy_ns; /* since the beginning */
    struct {
        uint64_t bucket;
        uint64_t busy_ns;
    } history[SL_SIM_HISTORY];
};

/* Things NVML reports: XIDs, ECC errors, and whatever else the injector wants. */
struct sl_sim_event {
    uint64_t seq; /* 1, 2, …; an entry holds event seq at index seq % SL_SIM_EVENTS */
    uint64_t time_ns;
    uint64_t type;   /* an NVML event-type bit */
    uint64_t data;   /* the XID, for critical errors */
    uint32_t gi, ci; /* MIG instance it belongs to, or SL_SIM_NONE */
};

/*
 * Contexts that take turns with each other share a lane; lanes of a card run at the same time, each on
 * its part of it. Lane 0 is the whole card's; every MIG device with contexts on it has one, and every
 * MPS client. A lane is in use while a queue is in it.
 */
#define SL_SIM_LANES 64

enum sl_sim_lane_kind { SL_SIM_LANE_CARD, SL_SIM_LANE_MIG, SL_SIM_LANE_MPS };

struct sl_sim_lane {
    uint32_t kind;
    uint32_t gi, ci;         /* MIG: ids of the instances. MPS: the client's process slot in gi */
    uint32_t share_permille; /* of the card's SMs */
    uint32_t rate_permille; /* at which it runs until something changes: its part of a whole card */
    uint32_t running;       /* queue on the lane now, or SL_SIM_NONE */
    uint64_t switch_until_ns; /* while changing contexts: when that is done */
    uint64_t slice_start_ns;  /* when `running` began its slice */
};

struct sl_sim_card {
    struct sl_sim_device desc;
    uint32_t lost;          /* fell off the bus */
    uint32_t slow_permille; /* 0 or 1000: normal speed; 3000: kernels take three times as long */
    uint32_t groups_fault;  /* SL_SIM_GROUPS_* bits: what the driver does with controls on groups */
    uint64_t lost_at_ns;    /* 0, or the time at which it will be lost */
    uint64_t foreign_bytes; /* memory in use by nobody here (injected) */
    uint32_t compute_mode;  /* as NVML: 0 default, 2 prohibited, 3 exclusive process */
    uint64_t lanes_used;    /* bit n: lane n has queues; 0 counts always */
    struct sl_sim_lane lanes[SL_SIM_LANES];
    uint64_t copy_free_ns[3]; /* when each copy engine (in, out, between others) is free */
    uint64_t event_seq;       /* last one written */
    struct sl_sim_event events[SL_SIM_EVENTS];
    struct sl_sim_usage usage; /* kernels running */
    uint64_t copied_bytes[2];  /* PCIe: to the card, from the card */
    struct sl_sim_mig_state mig;
    /* For the NVML half alone: clocks, limits, ECC counters. Zero at creation. */
    uint64_t nvml_private[256];
};

struct sl_sim_proc_card {
    uint64_t memory_bytes; /* all it holds, contexts included */
    uint32_t contexts;
    uint32_t mig; /* 1: inside the MIG device (gi, ci), by ids */
    uint32_t gi, ci;
    uint32_t mps; /* SL_SIM_MPS_*: nothing, a client, a server */
    uint32_t pad;
    struct sl_sim_usage usage;
};

struct sl_sim_proc {
    uint32_t used;
    int32_t pid;         /* as the process sees itself; ask sl_sim_proc_pid() for your own view */
    uint64_t generation; /* tells two tenants of a slot apart */
    uint64_t start_ns;
    uint64_t identity; /* of the process itself: its PID alone is another's in another namespace */
    char name[32];
    struct sl_sim_proc_card card[SL_SIM_MAX_DEVICES];
};

/* What may be wrong with a driver's controls on channel groups. */
enum {
    SL_SIM_GROUPS_REFUSE_SLICE = 1,   /* set slice answers "not supported" */
    SL_SIM_GROUPS_REFUSE_DISABLE = 2, /* so do disable and enable */
    SL_SIM_GROUPS_REFUSE_OTHERS = 4,  /* and get slice, preempt, schedule */
    SL_SIM_GROUPS_REFUSE = 7,
    SL_SIM_GROUPS_INERT = 8,        /* all are accepted, read back, and change nothing */
    SL_SIM_GROUPS_INERT_SLICE = 16, /* only slices are */
};

enum sl_sim_op_kind {
    SL_SIM_OP_MARK,   /* takes no time: event record, word written, memory bookkeeping */
    SL_SIM_OP_KERNEL, /* takes `left_ns` of the card */
    SL_SIM_OP_SPIN,   /* on the card until its owner says it is over; lets other streams by */
    SL_SIM_OP_COPY,   /* takes `left_ns` of a copy engine */
    SL_SIM_OP_WAIT,   /* takes no time, once (dep_queue, dep_generation, dep_seq) is done */
    SL_SIM_OP_HOST,   /* its owner runs a function on the CPU, then says it is over */
    SL_SIM_OP_POLL,   /* off the card, until its owner says a memory word has the value */
};

enum sl_sim_op_state {
    SL_SIM_OP_PENDING,
    SL_SIM_OP_READY,   /* could run */
    SL_SIM_OP_RUNNING, /* has been on the card, or: its owner has to act */
    SL_SIM_OP_DONE,
};

enum {
    SL_SIM_OPF_LEGACY =
        1, /* in the legacy default stream: waits for, and holds up, blocking ones */
    SL_SIM_OPF_BLOCKING = 2, /* in a stream that synchronises with the legacy one */
    SL_SIM_OPF_LANE = 4, /* a MARK of the compute channels: done while their group has its turn */
    SL_SIM_OPF_MET = 8,  /* a POLL whose value is there before its turn comes */
};

struct sl_sim_op {
    uint8_t kind;
    uint8_t state;
    uint8_t flags;
    uint8_t engine;   /* copies: 0 in, 1 out, 2 between other places */
    int16_t priority; /* smaller is more urgent, as in CUDA */
    uint16_t stream;  /* stream slot: operations with one slot run in order */
    uint32_t room;    /* kernels: of SL_SIM_ROOM, what their blocks take; 0 is all */
    uint32_t dep_queue, dep_generation;
    uint64_t dep_seq;
    uint64_t left_ns;
    uint64_t ready_ns, start_ns, end_ns;
};

/* One context's work. Operation seq (1, 2, …) is at ring[seq % RING]; those in (head, tail] are
 * the owner's to look at; it moves head when it has seen them done. */
struct sl_sim_queue {
    uint32_t used;
    uint32_t generation;
    uint32_t proc;
    uint32_t card;
    uint32_t lane, pad2;
    uint64_t head, tail;
    uint64_t first; /* no operation up to and including this one is unfinished */
    uint32_t ahead; /* finished operations beyond `first` */
    uint32_t pad;
    uint64_t run[SL_SIM_RESIDENT];         /* kernels begun and not finished … */
    uint32_t run_count, run_room;          /* … how many, and the room they take together */
    uint32_t ready;                        /* kernels that could begin */
    uint32_t slice_us;                     /* of its compute group, as last set; 0: never set */
    uint64_t slice_ns;                     /* the one in effect; 0: the state's */
    uint32_t channels;                     /* bit n: compute channel n exists … */
    uint32_t channels_off;                 /* … and is disabled */
    uint32_t pending[SL_SIM_STREAM_SLOTS]; /* unfinished operations by stream slot */
    uint32_t active_slots;                 /* how many of those are not zero */
    uint32_t spinning;                     /* SPIN operations that can run, or do */
    uint32_t marks;                        /* MARKs that wait for the group's turn */
    uint32_t pad3;
    uint64_t running_ns; /* card time used */
};

/* Memory that has left its process: exported or opened by another. Charged to its owner while that
 * lives and holds it, then to the card, until the last holder lets go. */
/* In front of the lock: one for each PID namespace, so the number of a door's owner means a process that the others at
 * this door can see. The last door is for all who find no other free; there nobody can be told by a number. */
struct sl_sim_door {
    _Atomic uint64_t space; /* the namespace; 0: free */
    /* This thread was stopped behind the door, and was let go on: it stops itself again when it has left. 0: none. */
    _Atomic pid_t stops;
    pthread_mutex_t lock;
};

struct sl_sim_block {
    uint32_t used;
    uint32_t card;
    uint32_t owner; /* process slot, or SL_SIM_NONE */
    uint32_t pad;
    uint64_t id;            /* never reused */
    uint64_t bytes;         /* charged */
    uint64_t inode, device; /* of the file behind it */
    uint64_t cookie;        /* in handles: a guess does not open it */
    uint64_t holders[SL_SIM_MAX_PROCS / 64];
};

struct sl_sim_ipc_event {
    uint32_t used, owner;
    uint64_t id;
    uint32_t queue, generation; /* of the last record */
    uint64_t seq;               /* 0: never recorded */
};

struct sl_sim_state {
    uint64_t magic;
    uint32_t version;
    uint32_t size_check; /* sizeof(struct sl_sim_state), truncated */
    _Atomic uint32_t ready;
    uint32_t card_count;
    char spec[256];
    char root[512]; /* the driver root made for it (sim/tree.h), or "" */
    struct sl_sim_spec spec_parsed;
    struct sl_sim_door doors[SL_SIM_DOORS];
    pthread_mutex_t lock; /* only behind a door */
    uint64_t created_ns;
    uint64_t now_ns;    /* time played so far */
    uint64_t reaped_ns; /* when the dead were last looked for */
    uint64_t next_id;
    uint32_t proc_high, queue_high; /* slots from here on were never used */
    /* A change of contexts in the middle of a kernel; the last part of it, putting the next context
     * on, which counts in that one's slice and is all there is after an idle one; and the slice of
     * contexts that set none. */
    uint32_t switch_ns, switch_in_ns, slice_ns;
    uint32_t driver_version_override; /* 0, or what cuDriverGetVersion answers */
    uint32_t repairs;                 /* how often a process died inside the lock */
    struct sl_sim_card cards[SL_SIM_MAX_DEVICES];
    struct sl_sim_proc procs[SL_SIM_MAX_PROCS];
    struct sl_sim_block blocks[SL_SIM_MAX_BLOCKS];
    struct sl_sim_ipc_event ipc_events[SL_SIM_MAX_IPC_EVENTS];
    struct sl_sim_queue queues[SL_SIM_MAX_QUEUES];
    struct sl_sim_op rings[SL_SIM_MAX_QUEUES][SL_SIM_RING]; /* sparse: touched where used */
};

/*
 * Maps the state named by SLUICE_SIM_STATE (else that of the driver root this library lies in, else a
 * file of this user's and of the spec's, in XDG_RUNTIME_DIR or /tmp) and creates it from SLUICE_SIM
 * (else the root's spec, else "h200") if it is new. Once per process and library; later calls return
 * the same. Does not register the process.
 */
int sl_sim_open(struct sl_sim_state **ret, struct sl_err *err) SL_MUST_CHECK;

/* The path sl_sim_open() used; "" before. */
const char *sl_sim_path(void);

/* Never fails: an owner that died inside is noted and what it left is repaired. One that was stopped inside
 * goes on until it has left, and is stopped again. */
void sl_sim_lock(struct sl_sim_state *st);
void sl_sim_unlock(struct sl_sim_state *st);
struct sl_sim_door *sl_sim_door(struct sl_sim_state *st); /* of this process */

/* Takes a process slot for the caller. Lock held. Returns the slot or -errno. */
int sl_sim_register(struct sl_sim_state *st);

/* Whether the slot's process lives. Works from any namespace. Lock held. */
bool sl_sim_alive(struct sl_sim_state *st, uint32_t slot);

/* The slot's PID as seen from here; 0 when it is not visible from this PID namespace. Lock held. */
pid_t sl_sim_proc_pid(struct sl_sim_state *st, uint32_t slot);

/* Clears away the dead: their memory, queues, blocks. `force` skips the few-ms rate limit. Lock held. */
void sl_sim_reap(struct sl_sim_state *st, bool force);

/*
 * Device memory of one process on a card, as NVML tells it: what it allocated, and shared memory that its
 * maker has let go of and that this process is the first to hold. So shared memory is shown once,
 * under its maker while that holds it, then under one of the others. Measured on an H200 (driver
 * 580.159): the same, but the real driver shows it under nobody while an exported descriptor is
 * open. Lock held.
 */
uint64_t sl_sim_proc_bytes(const struct sl_sim_state *st, uint32_t slot, uint32_t card);

/* Device memory in use on a card by everybody. Lock held. */
uint64_t sl_sim_used_bytes(const struct sl_sim_state *st, uint32_t card);

/* The same inside one GPU instance, by its id. Lock held. */
uint64_t sl_sim_used_bytes_in(const struct sl_sim_state *st, uint32_t card, uint32_t gi_id);

/* Appends to a card's event ring. Lock held. */
void sl_sim_event_add(struct sl_sim_state *st, uint32_t card, uint64_t type, uint64_t data,
                      uint32_t gi, uint32_t ci);

/* Busy time in [from_ns, to_ns), by 100 ms buckets. Lock held. */
uint64_t sl_sim_usage_between(const struct sl_sim_usage *u, uint64_t from_ns, uint64_t to_ns);

/* Monotonic now. */
uint64_t sl_sim_now_ns(void);

#endif
