/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two pages a tenant shares with the arbiter. This layout is a contract between binaries that
 * may be of different builds: anything that changes it changes SL_PAGE_VERSION.
 *
 * Lease page: written by the arbiter, mapped read-only by the tenant's processes (the memfd is
 * sealed, so not even root in a container can open it for writing). It says what the tenant may do.
 *
 * Ledger page: written by the tenant's processes, read (and, for dead processes, written) by the
 * arbiter. It says what the tenant uses. The arbiter believes nothing in it that could help the
 * tenant against others: a lie can only hurt the liar.
 */
#ifndef SLUICE_PAGES_H
#define SLUICE_PAGES_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SL_PAGE_VERSION 2U
#define SL_LEASE_MAGIC  0x455341454c4c53ULL /* "SLLEASE" */
#define SL_LEDGER_MAGIC 0x524744454c4c53ULL /* "SLLEDGR" */

#define SL_MAX_GPUS       16
#define SL_MAX_SLOTS      4096 /* accounts of one tenant: its processes, then the memory they share */
#define SL_PROCESS_SLOTS  3584 /* slots below this one are processes */
#define SL_SHARED_HOLDERS 24
#define SL_NAME_MAX       64
#define SL_UUID_MAX       64

/* Memory is accounted in units of 512 bytes, the driver's own allocation granularity. */
#define SL_UNIT_SHIFT 9
#define SL_UNIT_BYTES (1ULL << SL_UNIT_SHIFT)
#define SL_NO_LIMIT   UINT64_MAX

enum sl_priority { SL_PRIORITY_LOW, SL_PRIORITY_NORMAL, SL_PRIORITY_HIGH };

/*
 * The gate word: state in the low two bits, turn number above. It is a futex: a process that may
 * not submit waits on it. One gate per tenant, so a tenant on several GPUs gets them together.
 */
enum sl_gate {
    SL_GATE_FREE = 0,   /* submit without waiting: the hardware's slices share the GPU */
    SL_GATE_OPEN = 1,   /* by turns, our turn: submit, bounded by window_ns in flight */
    SL_GATE_CLOSED = 2, /* by turns: submit nothing, drain what is in flight */
    SL_GATE_METER = 3,  /* as free, and add up what each submission costs: there is a limit */
};

/* How GPU time is shared: the request of the user, and the result. */
enum sl_compute {
    SL_COMPUTE_AUTO = 0,   /* slices where the driver lets us set them, else turns */
    SL_COMPUTE_SLICES = 1, /* the hardware's own time slices */
    SL_COMPUTE_TURNS = 2,  /* one tenant at a time, at the gate */
};
#define SL_GATE_STATE(word)       ((enum sl_gate)((word) & 3U))
#define SL_GATE_TURN(word)        ((word) >> 2)
#define SL_GATE_WORD(turn, state) (((uint32_t)(turn) << 2) | (uint32_t)(state))

struct sl_lease_gpu {
    char uuid[SL_UUID_MAX];              /* as NVML and CUDA print it: GPU-… or MIG-… */
    uint64_t card_bytes;                 /* the whole card (or MIG instance) */
    _Atomic uint64_t memory_limit_bytes; /* SL_NO_LIMIT: only the card itself limits */
    _Atomic uint64_t overhead_bytes;     /* contexts and modules, measured by the arbiter */
};

struct sl_lease_page {
    uint64_t magic;
    uint32_t version;
    uint32_t size_bytes;
    uint8_t cookie[16]; /* ties a ledger to its lease across an arbiter restart */
    char name[SL_NAME_MAX];
    uint32_t gpu_count;
    _Atomic uint32_t revision; /* goes up with every change by `sluice set` */

    _Atomic uint32_t gate __attribute__((aligned(64)));
    _Atomic uint32_t priority;  /* enum sl_priority */
    _Atomic uint64_t window_ns; /* estimated work that may be in flight, gate open */
    /* CLOCK_MONOTONIC: where turns share, the tenant is paused until then. Its launches do not count as late. */
    _Atomic uint64_t paused_until_ns;
    _Atomic uint32_t cores_request_permille; /* 0: nothing asked */
    _Atomic uint32_t cores_limit_permille;
    uint32_t reserved_kernels; /* zero */
    _Atomic uint32_t slice_us; /* of each compute channel group; 0: the driver's own */
    /* CLOCK_MONOTONIC: its channels are off the GPU until then, which is a second from now at most. The process
     * itself takes them back at this moment, or when the arbiter is gone: whichever is first. */
    _Atomic uint64_t off_until_ns;
    _Atomic uint32_t meter; /* not 0: say in the ledger what is used */
    /* Not 0: a process came back to an arbiter that had booked less for it than it holds. Until the arbiter has measured
     * it again, its memory may count twice. */
    _Atomic uint32_t settling;

    struct sl_lease_gpu gpu[SL_MAX_GPUS] __attribute__((aligned(64)));
};

/*
 * One process's memory on one GPU. `used[applied & 1]` is its usage in units. An operation number
 * n = applied + 1 writes used[n & 1], then moves the shared total (which carries this slot and the
 * low bits of n as a tag), then sets applied = n. Whoever meets a total with a tag first completes
 * the tagged slot's `applied`. So a process may be killed between any two stores, and what it had
 * is still known exactly. The rules are in src/shm/account.h.
 */
struct sl_slot_memory {
    _Atomic uint64_t applied;
    _Atomic uint64_t used[2];
};

/* What a process tells the arbiter about its need of GPU time. */
enum sl_busy {
    SL_BUSY_IDLE = 0,    /* nothing in flight, nothing waiting */
    SL_BUSY_WAITING = 1, /* a thread stands at the closed gate */
    SL_BUSY_RUNNING = 2, /* work in flight */
};

/* Whether the process can steer its own channel groups. */
enum sl_control {
    SL_CONTROL_UNKNOWN = 0, /* no context yet */
    SL_CONTROL_WORKS = 1,
    SL_CONTROL_NO_GROUP = 2,  /* its contexts have no compute group of their own (an MPS client) */
    SL_CONTROL_REFUSED = 3,   /* the driver refuses: control_status is its status */
    SL_CONTROL_NO_EFFECT = 4, /* the driver accepts, and nothing changes */
};

/*
 * The head of a slot from SL_PROCESS_SLOTS on: one piece of memory that processes of the tenant share.
 * Its units are in the slot's memory, so they count once, whoever holds it. The rules are in
 * src/shm/shared.h.
 */
struct sl_shared {
    _Atomic uint32_t no_process; /* 0: where other slots have their pid */
    _Atomic uint32_t state;
    _Atomic uint64_t id;
    _Atomic uint16_t holder[SL_SHARED_HOLDERS]; /* slot + 1 of a process that keeps it, or 0 */
};

struct sl_slot {
    union {
        struct {
            _Atomic uint32_t pid;  /* as the process sees itself; for people, not for decisions */
            _Atomic uint32_t busy; /* enum sl_busy; rings the doorbell when it changes */
            _Atomic uint32_t drained_turn; /* the last turn this process has fully drained */
            uint32_t spare_us;
            _Atomic uint64_t started_ns; /* first submission of the current turn */
            _Atomic uint64_t launches;
            _Atomic uint64_t waited_ns; /* time threads stood at the gate */
            _Atomic uint64_t oom_count; /* allocations refused by the limit */
            uint64_t spare_ns;
            _Atomic uint64_t saturated_ns; /* time with queued work and no pause, channels on */
            _Atomic uint64_t work_ns;      /* GPU time of kernels outside that, estimated */
            _Atomic uint64_t done_ns;      /* GPU time of its kernels that are done, estimated */
            _Atomic uint64_t
                watched_ns; /* time in which the two were counted: watched, channels on */
            _Atomic uint64_t metered_ns; /* CLOCK_MONOTONIC: they are counted up to here */
            _Atomic uint32_t control;    /* enum sl_control */
            _Atomic uint32_t control_status;
            _Atomic uint32_t groups;  /* compute channel groups */
            _Atomic uint32_t off;     /* its channels are off the GPU */
            _Atomic uint32_t pending; /* it has queued work */
            _Atomic uint32_t stays;   /* it holds the lock of SL_LEASE_FILE */
        };
        struct sl_shared shared;
    };
    struct sl_slot_memory memory[SL_MAX_GPUS];
} __attribute__((aligned(64)));

/* Units in the low 40 bits (512 TiB), slot in the next 12, op number's low 12 bits on top. */
struct sl_ledger_total {
    _Atomic uint64_t word;
    /* The most that the tenant had at a time, with overhead. Builds that do not know it leave it 0. */
    _Atomic uint64_t peak_bytes;
} __attribute__((aligned(64)));

struct sl_ledger_page {
    uint64_t magic;
    uint32_t version;
    uint32_t size_bytes;
    uint8_t cookie[16];
    uint32_t gpu_count;
    uint32_t slot_count;
    struct sl_ledger_total total[SL_MAX_GPUS];
    struct sl_slot slot[SL_MAX_SLOTS];
};

static_assert(sizeof(struct sl_shared) == 64, "slot layout is a contract");
static_assert(offsetof(struct sl_slot, memory) == 120, "slot layout is a contract");
static_assert(sizeof(struct sl_slot) == 512, "slot layout is a contract");
static_assert(offsetof(struct sl_lease_page, gate) == 128, "lease layout is a contract");
static_assert(offsetof(struct sl_lease_page, gpu) == 192, "lease layout is a contract");
static_assert(sizeof(struct sl_lease_gpu) == 88, "lease layout is a contract");
static_assert(offsetof(struct sl_ledger_page, total) == 64, "ledger layout is a contract");
static_assert(offsetof(struct sl_ledger_page, slot) == 64 + 64 * SL_MAX_GPUS,
              "ledger layout is a contract");

#endif
