/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol of the arbiter's unix sockets (SOCK_SEQPACKET: one packet is one message).
 *
 * There are two kinds of socket. The *control* socket serves people and programs of the user who
 * runs the arbiter: they create, change and list tenants. Each tenant has an *attach* socket of its
 * own. A process that connects to it becomes a process of that tenant. So no message and no
 * environment variable states the identity of a process: the socket states the tenant, and the peer
 * credentials of the kernel state the host PID.
 *
 * Every message starts with struct sl_msg. Unknown types and wrong sizes end the connection.
 */
#ifndef SLUICE_ATTACH_H
#define SLUICE_ATTACH_H

#include <stdint.h>

#include "sluice/pages.h"

#define SL_MSG_MAGIC   0x53434c53U /* "SLCS" */
#define SL_MSG_VERSION 1U

/*
 * Versions. A pod keeps the libsluice it began with while agents around it are replaced, so the two sides of a socket
 * are often of different builds. Two kinds of number say whether they fit (docs/upgrade.md has it for operators).
 *
 * SL_MSG_VERSION and SL_PAGE_VERSION number the layouts: where things are. They change only when something moves that
 * was there before, and then nothing fits any more. Whoever meets another layout says so in a sentence: the header, ERROR
 * and its text never move, so that any build can read them; ERROR carries the version of the one who asked.
 *
 * SL_PROTOCOL numbers what a build knows. A new message, a new flag and a new field (in the place of zeros, never in
 * between) raise it. Each build knows its own protocol and the SL_PROTOCOL_BACK before. HELLO says in `option` which ones
 * the process knows, WELCOME says which one the arbiter took: the newest that both know. Both sides then use nothing newer
 * than that. Where there is none, the process is refused: it never runs without its limits.
 *
 *   1  Sluice 0.1.0. It tells nothing: `option` is 0.
 *   2  The lease page has `settling`, and the ledger `peak_bytes`. It tells nothing, and is treated as 1.
 *   3  HELLO and WELCOME tell the protocol.
 */
#define SL_PROTOCOL        3U
#define SL_PROTOCOL_BACK   2U
#define SL_PROTOCOL_OLDEST (SL_PROTOCOL > SL_PROTOCOL_BACK ? SL_PROTOCOL - SL_PROTOCOL_BACK : 1U)

#define SL_CONTROL_SOCKET "arbiter.sock"
/* Where a process finds its tenant's attach socket. In a container the agent mounts it at
 * SL_ATTACH_DEFAULT; `sluice run` names it in the environment (a place, never a limit). */
#define SL_ATTACH_ENV     "SLUICE_ATTACH"
#define SL_ATTACH_DEFAULT "/run/sluice/attach.sock"
#define SL_ATTACH_FILE    "attach.sock" /* in a kept tenant's own directory */
/*
 * Beside it, while a process may start without an arbiter: a copy of the lease page, with the cost of one context as
 * overhead. Every process of the tenant holds a shared flock() on the directory, and says so in its slot (`stays`). The
 * file exists only while all of them do. So a process that finds no arbiter, gets the exclusive lock and reads this file
 * is the tenant's only process, and may use all of its limit. Builds that do not know the file leave `stays` 0.
 */
#define SL_LEASE_FILE     "lease"

enum sl_msg_type {
    /* attach socket, process → arbiter */
    SL_MSG_HELLO = 1, /* sl_msg_hello; after an arbiter restart it carries the old ledger's fd */
    SL_MSG_MEASURE,   /* sl_msg_measure: a context came or went, measure my overhead now */
    /* attach socket, arbiter → process */
    SL_MSG_WELCOME,  /* sl_msg_welcome + fds: lease (read-only), ledger, doorbell (eventfd) */
    SL_MSG_MEASURED, /* sl_msg_measure */
    SL_MSG_GATE,     /* bare: a free gate was closed; wakes processes that do not watch it */
    /* control socket, client → arbiter */
    SL_MSG_CREATE, /* sl_msg_lease; the tenant lives while this connection or a process does */
    SL_MSG_SET,    /* sl_msg_lease: name, and the fields named in `fields` */
    SL_MSG_STATUS, /* bare: answered by TENANT*, GPU*, AUDIT*, WAITER* (see SL_STATUS_LINE), END */
    /* control socket, arbiter → client */
    SL_MSG_CREATED, /* sl_msg_created */
    SL_MSG_OK,      /* sl_msg_text: a remark for the user, may be empty */
    SL_MSG_TENANT,  /* sl_msg_tenant */
    SL_MSG_GPU,     /* sl_msg_gpu */
    SL_MSG_AUDIT,   /* sl_msg_audit: GPU memory in use that no ledger contains */
    SL_MSG_END,     /* bare */
    /* either socket, arbiter → peer */
    SL_MSG_ERROR, /* sl_msg_text: cause and cure */
    /* control socket, client → arbiter; later than the others, whose numbers stay */
    SL_MSG_REMOVE,    /* sl_msg_lease: name of a kept tenant; answered by OK */
    SL_MSG_PING,      /* bare: answered by OK; sent to check whether the arbiter answers */
    SL_MSG_PROCESSES, /* sl_msg_lease: name of a tenant; answered by PROCESS*, END */
    SL_MSG_PROCESS,   /* arbiter → client: sl_msg_process */
    SL_MSG_WAITING,   /* arbiter → client: sl_msg_waiting, after a CREATE with SL_LEASE_WAIT */
    SL_MSG_WAITER,    /* arbiter → client: sl_msg_waiter */
    SL_MSG_ENDED,     /* sl_msg_ended: the command of a tenant has ended; no answer */
    SL_MSG_HISTORY,   /* bare: answered by HISTORY_LINES*, END */
    /* arbiter → client: sl_msg_history */
    SL_MSG_HISTORY_LINES,
    SL_MSG_LAST = SL_MSG_HISTORY_LINES,
};

/* In `option` of STATUS: the client knows WAITER. An older arbiter ignores it, an older client does not set it. */
#define SL_STATUS_LINE 1U

struct sl_msg {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint32_t size; /* of the whole message */
    /* In HELLO: the protocols of the process, the oldest in the upper half, the newest in the lower; in WELCOME: the one
     * that is used; in PROCESS: the one of that process, 0 where nothing is told; in TENANT: SL_OWNER_TOLD of the user who
     * made the tenant; in STATUS: what is asked for; else 0 */
    uint32_t option;
};

/* A uid in a field that is 0 where nothing is told (by an arbiter of an earlier version). */
#define SL_OWNER_TOLD(uid) ((uint32_t)(uid) + 1U)

#define SL_NO_SLOT UINT32_MAX

struct sl_msg_hello {
    struct sl_msg h;
    uint32_t slot;    /* the slot held before an arbiter restart, or SL_NO_SLOT */
    uint32_t own_pid; /* as the process sees itself: for `status`, never for decisions */
    char command[32];
};

struct sl_msg_welcome {
    struct sl_msg h;
    uint32_t slot;
    uint32_t host_pid;
};

struct sl_msg_measure {
    struct sl_msg h;
    uint32_t gpu; /* index in the lease */
    uint32_t reserved;
    /* Answer: of the asking process. Question: so much of its ledger stands for what is measured. */
    uint64_t overhead_bytes;
};

enum sl_lease_field {
    SL_FIELD_MEMORY = 1,
    SL_FIELD_CORES = 2,
    SL_FIELD_PRIORITY = 4,
    SL_FIELD_PAUSE = 8, /* whether SL_LEASE_PAUSED is among the flags */
};

enum sl_lease_flag {
    /* The tenant lives until REMOVE, whichever processes come and go, and also while the arbiter
     * restarts. A second request with the same name and the same lease gets the same answer as
     * the first, whatever SET changed meanwhile (`about` and the two flags below are taken from
     * the latest request). Another lease under that name is an error. The socket is open to
     * every uid and alone in its directory, which can be mounted into a container. */
    SL_LEASE_KEEP = 1,
    /* How GPU time is to be shared (enum sl_compute); none of the two: as the driver allows. */
    SL_LEASE_SLICES = 2,
    SL_LEASE_TURNS = 4,
    /* The arbiter chooses: of the named GPUs, or of all GPUs when none is named, one that has room,
     * or as many as sl_lease_wanted says. GPUs are named as in CUDA_VISIBLE_DEVICES: also by the
     * beginning of a UUID, and names after one that does not exist do not count. */
    SL_LEASE_ANY = 8,
    /* Where there is no room now, stand in line instead of being refused (not with SL_LEASE_KEEP, and one tenant of a
     * process at a time). CREATE is then answered by WAITING, again whenever place or reason change. When WAITING says
     * `turn`, the client sends the same CREATE again within five seconds, or is passed over until it does. Closing the
     * connection leaves the line. After a restart of the arbiter, the same process gets its place again with the same
     * CREATE, or the tenant that was made for it meanwhile. An arbiter that has no line ignores this flag, and refuses
     * with -ENOSPC or -EAGAIN; with a line it refuses with -EFBIG what could never fit. */
    SL_LEASE_WAIT = 16,
    /* The tenant is off the GPU. It keeps its memory, and goes on when this flag is taken away. */
    SL_LEASE_PAUSED = 32,
    /* With KEEP: a tenant of this name is an error, also one with the same lease. GPUs are named
     * as without KEEP. */
    SL_LEASE_NEW = 64,
    /* Only in TENANT: the arbiter has just restarted, and processes of this tenant may be on their
     * way back to it. */
    SL_LEASE_RETURNING = 128,
};

/* With SL_LEASE_ANY: the top byte of the flags says how many GPUs, less one. An arbiter that does not know this gives
 * one GPU. */
#define SL_LEASE_MORE_SHIFT 24

static inline uint32_t sl_lease_wanted(uint32_t flags)
{
    return (flags >> SL_LEASE_MORE_SHIFT) + 1;
}

/* The identity of a tenant for people and metrics: "namespace=… pod=… container=… claim=… uid=…
 * request=…", as far as known, without spaces in values. */
#define SL_ABOUT_MAX 640

struct sl_msg_lease {
    struct sl_msg h;
    uint32_t fields;        /* enum sl_lease_field: what was asked for */
    char name[SL_NAME_MAX]; /* empty in CREATE: the arbiter chooses */
    uint32_t gpu_count;     /* 0 in CREATE: the first GPU, or see SL_LEASE_ANY */
    uint32_t memory_percent;
    uint64_t memory_bytes; /* per GPU, when memory_percent is 0 */
    uint32_t cores_request_permille;
    uint32_t cores_limit_permille;
    uint32_t priority;
    uint32_t flags;                         /* enum sl_lease_flag */
    char gpu[SL_MAX_GPUS][SL_UUID_MAX];     /* UUIDs, or decimal indices as nvidia-smi counts */
    char about[SL_ABOUT_MAX];               /* may be empty */
    uint64_t gpu_memory_bytes[SL_MAX_GPUS]; /* of this GPU instead of memory_bytes, unless 0 */
};

struct sl_msg_created {
    struct sl_msg h;
    char name[SL_NAME_MAX];
    char attach_path[256];
    uint32_t gpu_count;
    uint32_t reserved;
    char gpu[SL_MAX_GPUS][SL_UUID_MAX]; /* resolved */
    uint64_t memory_limit_bytes[SL_MAX_GPUS];
};

struct sl_msg_text {
    struct sl_msg h;
    int32_t code; /* negative errno in SL_MSG_ERROR */
    char text[404];
};

/* The place of a client in line. */
struct sl_msg_waiting {
    struct sl_msg h;
    uint32_t place; /* 1 is the first … */
    uint32_t count; /* … of so many */
    uint32_t turn;  /* not 0: there is room; send CREATE again */
    uint32_t reserved;
    char why[144]; /* what is asked for and what is left */
};

enum sl_waiter_state {
    SL_WAITER_WAITS = 1,
    SL_WAITER_CALLED, /* there is room, and it was told so */
    SL_WAITER_ASLEEP, /* it did not answer when there was room: others pass */
    SL_WAITER_ABSENT, /* it stood here before a restart, and may come back; its request is not known */
};

/* A command that waits in line, in STATUS. */
struct sl_msg_waiter {
    struct sl_msg h;
    uint32_t place; /* 1 is the first */
    uint32_t state; /* enum sl_waiter_state */
    uint32_t pid;
    uint32_t priority;
    uint64_t waited_ns;
    uint32_t fields; /* enum sl_lease_field: what was asked for */
    uint32_t memory_percent;
    uint64_t memory_bytes; /* per GPU, when memory_percent is 0 */
    uint32_t cores_request_permille;
    uint32_t cores_limit_permille;
    uint32_t wanted;        /* GPUs */
    uint32_t gpu_count;     /* of so many named ones; 0: of all */
    char name[SL_NAME_MAX]; /* may be empty */
    char gpu[SL_MAX_GPUS][SL_UUID_MAX];
    char why[144];
};

/* The end of a tenant's command, from the process that created the tenant. */
struct sl_msg_ended {
    struct sl_msg h;
    int32_t status; /* as wait(2) has it */
    uint32_t reserved;
    char name[SL_NAME_MAX];
};

/* Entries of the history, oldest first, of those that the client may see. */
#define SL_HISTORY_TEXT_MAX 2304
struct sl_msg_history {
    struct sl_msg h;
    uint32_t used;                  /* bytes of `text` */
    uint32_t damaged;               /* lines of the file that could not be read */
    char text[SL_HISTORY_TEXT_MAX]; /* whole lines, each with its line feed: src/policy/history.h */
};

struct sl_msg_tenant {
    struct sl_msg h;
    char name[SL_NAME_MAX];
    uint32_t processes;
    uint32_t priority;
    uint32_t cores_request_permille;
    uint32_t cores_limit_permille;
    uint32_t share_1s_permille; /* of GPU time got, last second */
    uint32_t share_60s_permille;
    uint32_t gate; /* enum sl_gate */
    uint32_t creator_pid;
    uint64_t used_ns; /* GPU time that it got in all, on each of its GPUs */
    int64_t debt_ns;
    uint64_t waited_ns;
    uint64_t launches;
    uint64_t oom_count;
    uint64_t age_ns;
    uint32_t gpu_count;
    uint32_t flags; /* enum sl_lease_flag */
    char about[SL_ABOUT_MAX];
    struct {
        char uuid[SL_UUID_MAX];
        uint64_t limit_bytes;
        uint64_t used_bytes;     /* allocations in the ledger */
        uint64_t overhead_bytes; /* contexts and modules */
    } gpu[SL_MAX_GPUS];
    uint32_t compute;  /* enum sl_compute: how its GPU time is shared now */
    uint32_t slice_us; /* its time slice, where slices share */
};

/* One process of a tenant. */
struct sl_msg_process {
    struct sl_msg h;
    uint32_t pid; /* on the host */
    uint32_t gpu_count;
    char command[32];
    uint64_t launches;
    uint64_t waited_ns;
    struct {
        uint64_t used_bytes;     /* allocations in the ledger */
        uint64_t overhead_bytes; /* contexts and modules */
    } gpu[SL_MAX_GPUS];          /* in the order of the tenant's GPUs */
};

struct sl_msg_gpu {
    struct sl_msg h;
    uint32_t index;
    uint32_t tenants;
    char uuid[SL_UUID_MAX];
    char name[SL_NAME_MAX];
    uint64_t total_bytes;
    uint64_t used_bytes;        /* as NVML says */
    uint64_t promised_bytes;    /* sum of the tenants' limits */
    uint32_t promised_permille; /* sum of the tenants' core requests */
    uint32_t compute;           /* enum sl_compute: how its time is shared */
    char compute_why[96];       /* why by turns; empty where slices share */
};

enum sl_audit_kind {
    SL_AUDIT_STRANGER = 1, /* a process of no tenant */
    SL_AUDIT_UNATTACHED,   /* a child of a tenant that did not attach: LD_PRELOAD was removed, or
                            * the program is static */
    SL_AUDIT_UNACCOUNTED,  /* attached, but uses far more than it accounts for */
};

struct sl_msg_audit {
    struct sl_msg h;
    uint32_t pid;
    uint32_t kind; /* enum sl_audit_kind */
    char uuid[SL_UUID_MAX];
    char tenant[SL_NAME_MAX]; /* whose member or descendant it is; may be empty */
    char command[32];
    uint64_t bytes;
};

/* Messages that builds of different versions exchange. A message of another size is another message, with a number of its
 * own. */
static_assert(sizeof(struct sl_msg) == 16, "the header never changes");
static_assert(sizeof(struct sl_msg_text) == 424, "ERROR never changes");
static_assert(sizeof(struct sl_msg_hello) == 56, "layout is a contract");
static_assert(sizeof(struct sl_msg_welcome) == 24, "layout is a contract");
static_assert(sizeof(struct sl_msg_measure) == 32, "layout is a contract");
static_assert(sizeof(struct sl_msg_lease) == 1912, "layout is a contract");
static_assert(sizeof(struct sl_msg_created) == 1496, "layout is a contract");
static_assert(sizeof(struct sl_msg_tenant) == 2224, "layout is a contract");
static_assert(sizeof(struct sl_msg_gpu) == 280, "layout is a contract");
static_assert(sizeof(struct sl_msg_process) == 328, "layout is a contract");
static_assert(sizeof(struct sl_msg_audit) == 192, "layout is a contract");
static_assert(sizeof(struct sl_msg_waiting) == 176, "layout is a contract");
static_assert(sizeof(struct sl_msg_waiter) == 1304, "layout is a contract");
static_assert(sizeof(struct sl_msg_ended) == 88, "layout is a contract");
static_assert(sizeof(struct sl_msg_history) == 2328, "layout is a contract");

#endif
