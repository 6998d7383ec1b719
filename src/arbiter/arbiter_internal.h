/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the arbiter's files share. One thread runs the loop and owns everything here; only the NVML
 * worker (measure.c) is a second thread, and it talks through a queue.
 */
#ifndef SLUICE_ARBITER_ARBITER_INTERNAL_H
#define SLUICE_ARBITER_ARBITER_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "arbiter/arbiter.h"
#include "arbiter/peer.h"
#include "base/container.h"
#include "policy/steer.h"
#include "shm/packet.h"
#include "shm/pages.h"

#define SL_ARB_MAX_GPUS 128 /* sixteen cards, each cut into seven instances and more */

struct arbiter;
struct tenant;
struct member;
struct measure;
struct turnstile;
struct compute;
struct overhead_before;
struct sl_lane;
struct sl_lanes;
struct sl_received;

/* Something epoll watches. `ready` runs in the loop; it may free its own source. */
struct source {
    int fd;
    void (*ready)(struct arbiter *a, struct source *s);
};

/* A whole card, or one MIG instance of a card that is cut up. */
struct gpu {
    uint32_t index;    /* as nvidia-smi counts; an instance has its card's */
    uint32_t instance; /* GPU instance, or UINT32_MAX for a whole card */
    char uuid[SL_UUID_MAX];
    char name[SL_NAME_MAX];
    uint64_t total_bytes;
    uint64_t used_bytes; /* at the last measurement */
    bool turns;          /* its time is shared by turns, not by slices … */
    bool turns_wanted;
    bool no_effect; /* `sluice doctor` measured that slices have none here */
    char why[96];   /* … for this reason */
};

/* Where the kernel put a program: another place is another program. */
struct image {
    uint64_t bytes, code, stack, arguments;
};

/* One process of a tenant. Lives from HELLO until the kernel says the process is gone. */
struct member {
    struct source conn;  /* its attach connection; fd -1 while it has none */
    struct source pidfd; /* readable when the process is gone; fd -1 on kernels before 5.3 */
    struct tenant *tenant;
    struct member *next;
    pid_t pid;        /* host PID, from the socket's peer credentials */
    char command[32]; /* as the process says */
    uint32_t slot;
    uint64_t start;           /* sl_arb_process_start, 0: not asked yet */
    uint32_t measured;        /* bit per lease GPU: the driver was asked, and believed */
    uint64_t believe_from_ns; /* snapshots begun before this say nothing of it */
    struct image image;
    uint64_t heard_ns;                  /* bucket of its packets */
    uint64_t hear_again_ns;             /* 0, or it is not listened to until then */
    uint32_t measure_pending;           /* bit per lease GPU: a MEASURED is owed */
    uint64_t measure_asked_ns;          /* a snapshot begun after this answers it */
    uint64_t put_by_bytes[SL_MAX_GPUS]; /* in its ledger for what it asks us to measure */
    uint64_t overhead_bytes[SL_MAX_GPUS];
    uint64_t base_bytes[SL_MAX_GPUS];     /* its overhead when its context was made */
    uint64_t reading_bytes[SL_MAX_GPUS];  /* overhead as the driver showed it */
    uint64_t lower_since_ns[SL_MAX_GPUS]; /* it shows less since; 0: it does not */
    uint64_t used_before[SL_MAX_GPUS];    /* ledger usage when the running snapshot was asked for */
    uint64_t operations_before[SL_MAX_GPUS]; /* … and how often it had changed */
    uint64_t least_bytes[SL_MAX_GPUS]; /* the least overhead those unsteady snapshots showed */
    uint64_t seen_bytes[SL_MAX_GPUS];  /* what the last snapshot showed, as far as it is believed */
    uint8_t unsteady[SL_MAX_GPUS];     /* snapshots in a row that found it moving */
    uint64_t saturated_ns, watched_ns, work_ns, done_ns, launches; /* in its slot when last read */
    uint64_t busy_until_ns; /* it counts among those that keep the GPU busy */
};

/* A process that connected but has not said HELLO, or must wait for a recovery to end. */
struct visitor {
    struct source conn;
    struct tenant *tenant;
    struct visitor *next;
    struct sl_peer peer;
    bool watched; /* in the epoll set */
    bool parked;
    uint64_t silent_until_ns; /* unless parked: its HELLO must come before */
    struct sl_msg_hello hello;
};

/* What a kept tenant was first asked for: the same again is the same tenant. */
struct asked {
    uint32_t fields, memory_percent;
    uint64_t memory_bytes;
    uint32_t cores_request_permille, cores_limit_permille, priority;
    uint64_t gpu_memory_bytes[SL_MAX_GPUS];
};

/* What was granted, as it is written down. The lease page is made from it. */
struct terms {
    uint64_t memory_bytes[SL_MAX_GPUS]; /* SL_NO_LIMIT: nothing was asked for */
    uint32_t cores_request_permille, cores_limit_permille, priority;
    bool paused;
};

struct tenant {
    char name[SL_NAME_MAX];
    uint64_t id;          /* never used again, unlike its name */
    struct sl_lane *lane; /* closes the descriptors that its processes passed; NULL until there
                           * are some */
    char about[SL_ABOUT_MAX];
    bool kept; /* lives until it is removed */
    bool left; /* somebody left: run_due may end the tenant. Until then others use it. */
    struct asked asked;
    struct terms terms;
    struct {
        uint32_t id;          /* in the turn-taking; UINT32_MAX: not taking part */
        uint64_t granted_ns;  /* when its current turn began */
        bool waiting_release; /* told to stop, not drained yet */
        uint32_t rings;       /* of its doorbell, since rings_since_ns */
        uint64_t rings_since_ns;
        bool muted; /* rang too often: not listened to for a moment */
    } turn;
    uint32_t compute;  /* enum sl_compute: how its creator wants GPU time to be shared */
    uint32_t steer_id; /* in the policy; UINT32_MAX: its GPU time is not shared */
    bool by_turns;
    struct sl_steer_seen seen; /* of its processes, also of those gone */
    uint8_t cookie[16];
    struct sl_lease_map lease;
    struct sl_ledger_map ledger;
    struct source listener; /* attach socket */
    struct source doorbell; /* eventfd its processes ring */
    struct source creator;  /* pidfd of the process that made it; fd -1 once gone */
    pid_t creator_pid;
    uint64_t creator_start; /* start time in clock ticks: a PID alone may be reused */
    struct member *members;
    struct visitor *visitors;
    uint32_t member_count, visitor_count;
    uint64_t connected_ns;    /* bucket of its connections */
    uint64_t listen_again_ns; /* 0, or nobody is accepted until then */
    uint64_t measured_ns;     /* what the measurements cost that it asked for: measure.c */
    uint64_t measure_due_ns;  /* 0, or when to measure for those that wait */
    uint64_t hear_due_ns;     /* 0, or when to listen to members again that spoke too often */
    uint64_t hello_due_ns;    /* 0, or when to look for visitors that say nothing */
    struct {
        uint64_t waited_ns, launches, oom_count;
    } past; /* of members that are gone: what is counted never goes down */
    uint64_t created_ns;
    uint64_t recover_until_ns; /* after a restart: until then old members may bring the ledger */
    uint32_t doubt; /* bit per lease GPU: processes that did not come back may use more of it */
    uint64_t doubt_since_ns; /* until a snapshot that was begun later */
    uint64_t reap_retry_ns;  /* 0, or when to try a stuck reaping again */
    uint32_t gpu_count;
    uint32_t gpu[SL_MAX_GPUS];              /* index into arbiter.gpu */
    uint64_t share_bytes[SL_MAX_GPUS];      /* without a limit: what it may have (grant.c) */
    uint64_t total_before[SL_MAX_GPUS];     /* its ledger when the running snapshot was asked for */
    uint64_t unattached_bytes[SL_MAX_GPUS]; /* used by its children that did not attach */
    uint64_t unexplained_bytes[SL_MAX_GPUS]; /* beyond ledger and overheads of all processes */
    uint64_t slots[SL_MAX_SLOTS / 64];       /* taken slots */
    struct overhead_before
        *overheads_before; /* after a restart: of processes that have not come back yet */
    bool overheads_new;    /* not written down yet */
    struct tenant *next;
};

struct audit_finding {
    struct audit_finding *next;
    struct sl_msg_audit msg;
};

/* A control connection and what it has not read yet. */
struct client {
    struct source conn;
    pid_t pid;
    struct client *next;
    struct outgoing *out_head, *out_tail;
};

struct arbiter {
    struct sl_arbiter_options opt;
    int epoll_fd;
    int dir_fd;     /* opt.dir */
    int tenants_fd; /* opt.dir/t */
    int kept_fd;    /* opt.dir/k: a directory with its socket for each kept tenant */
    int lock_fd;
    struct source control;
    struct source signals; /* stop.c: told to end */
    struct source timer;
    struct source received; /* bell of the lanes */
    struct sl_lanes *lanes;
    struct sl_lane *own_lane; /* for what belongs to no tenant */
    struct tenant *tenants;
    struct client *clients;
    uint32_t client_count;
    uint64_t control_again_ns; /* 0, or nobody is accepted until then */
    uint32_t tenant_count;
    uint32_t next_tenant_id;
    uint64_t tenants_ever;
    char driver[80]; /* its version; empty: not known */
    struct gpu gpu[SL_ARB_MAX_GPUS];
    uint32_t gpu_count;
    struct audit_finding *findings;
    uint64_t changes; /* tenants and processes that came or went */
    uint64_t ends;    /* … processes that went */
    struct measure *measure;
    struct turnstile *turnstile;
    struct compute *compute;
    uint64_t now_ns; /* read once per wake-up */
    uint64_t born;   /* our own sl_arb_process_start */
    uint64_t quiet_since_ns;
    bool stopping;
};

static inline uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* loop.c */
/* Calls `ready` when it can be read. */
int sl_arb_watch(struct arbiter *a, struct source *s, struct sl_err *err) SL_MUST_CHECK;
void sl_arb_unwatch(struct arbiter *a, struct source *s); /* closes the fd too; fd -1 is fine */

/* stop.c */
int sl_arb_stop_open(struct arbiter *a, struct sl_err *err) SL_MUST_CHECK;
void sl_arb_stop_close(struct arbiter *a);

/* foreign.c: what others passed to us, or may have */
int sl_arb_foreign_open(struct arbiter *a, struct sl_err *err) SL_MUST_CHECK;
void sl_arb_foreign_close(struct arbiter *a);
/* As sl_arb_unwatch, for a connection of a tenant (NULL: of no tenant). Never blocks. fd -1 is
 * fine. */
void sl_arb_hang_up(struct arbiter *a, struct tenant *t, struct source *s);
void sl_arb_hang_up_listener(struct arbiter *a, struct tenant *t);
/* Takes a connection whose next packet brings descriptors; sl_arb_visitor_received has it back. */
void sl_arb_receive(struct arbiter *a, struct tenant *t, int sock, const struct sl_peer *peer);

/* admit.c: who may connect now */
/* Connections that the tenant may add; ≤ 0: none. */
int64_t sl_arb_room(const struct arbiter *a, const struct tenant *t);
bool sl_arb_room_for_client(const struct arbiter *a);
void sl_arb_send_error(int sock, int code, const char *text);
void sl_arb_refuse(struct arbiter *a, struct tenant *t, int sock, int code, const char *text);
int sl_arb_accept(struct arbiter *a, struct source *listener, uint64_t *again_ns); /* fd, or < 0 */
bool sl_arb_may_connect(struct arbiter *a, struct tenant *t); /* false: its listener rests now */
/* The process said something. If it does so too often, it is not listened to for a while. */
void sl_arb_heard(struct arbiter *a, struct member *m);
/* The visitor has said nothing yet: others that are silent may have to go. */
void sl_arb_silence(struct arbiter *a, struct visitor *v);
uint64_t sl_arb_admit_tick(struct arbiter *a); /* returns when to be called again */

/* reach.c: refuses tenants among which GPU time cannot be divided, instead of ignoring the limit */
int sl_arb_reach_check(const struct arbiter *a, const struct tenant *t, bool divided,
                       struct sl_err *err) SL_MUST_CHECK;
int sl_arb_reach_room(const struct arbiter *a, struct sl_err *err) SL_MUST_CHECK;
void sl_arb_reach_warn(const struct arbiter *a, const struct tenant *t);

/* tenant.c */
int sl_arb_tenant_create(struct arbiter *a, const struct sl_msg_lease *ask, pid_t creator,
                         struct tenant **ret, struct sl_err *err) SL_MUST_CHECK;
int sl_arb_tenant_set(struct arbiter *a, const struct sl_msg_lease *ask, char *remark,
                      size_t remark_size, struct sl_err *err) SL_MUST_CHECK;
struct tenant *sl_arb_tenant_alloc(void); /* empty: no descriptors, no pages */
struct tenant *sl_arb_tenant_find(struct arbiter *a, const char *name);
void sl_arb_tenant_destroy(struct arbiter *a, struct tenant *t); /* sockets, state file and all */
void sl_arb_tenant_drop(struct arbiter *a, struct tenant *t);    /* forget it, leave its state */
/* Destroys the tenant if no process and no client is left, and returns whether it did. Only from
 * run_due. */
bool sl_arb_tenant_maybe_end(struct arbiter *a, struct tenant *t);
void sl_arb_tenant_terms(struct tenant *t);    /* terms → lease page */
void sl_arb_tenant_overhead(struct tenant *t); /* members' sums → lease page */
void sl_arb_attach_path(const struct arbiter *a, const struct tenant *t, char *buf, size_t size);
int sl_arb_tenant_remove(struct arbiter *a, const struct sl_msg_lease *ask,
                         struct sl_err *err) SL_MUST_CHECK;
int sl_arb_tenant_open(struct arbiter *a, struct tenant *t, struct sl_err *err) SL_MUST_CHECK;

/* grant.c: memory. Checks whether these limits can be granted. Changes nothing. */
int sl_arb_grant_memory(struct arbiter *a, const struct sl_msg_lease *ask, const struct tenant *t,
                        uint64_t ret_limit[SL_MAX_GPUS], struct sl_err *err) SL_MUST_CHECK;
/* Promises on these GPUs, or the tenants without a limit, have changed: the rest is shared
 * again. */
void sl_arb_grant_share(struct arbiter *a, const uint32_t *gpus, uint32_t count);
/* The memory that is neither promised nor used, not counting one tenant. */
uint64_t sl_arb_grant_left(const struct arbiter *a, uint32_t gpu, const struct tenant *except);
/* After that: nobody took what this tenant got, between the question and now. */
int sl_arb_grant_holds(const struct arbiter *a, const struct tenant *t,
                       struct sl_err *err) SL_MUST_CHECK;

/* kept.c: the parts that only tenants that stay have */
struct asked sl_arb_asked(const struct sl_msg_lease *ask);
/* 0 with *ret: the kept tenant that this asks for is there already; *ret NULL: it is new. */
int sl_arb_kept_find(struct arbiter *a, const struct sl_msg_lease *ask, struct tenant **ret,
                     struct sl_err *err) SL_MUST_CHECK;
int sl_arb_kept_mkdir(struct arbiter *a, const char *name, struct sl_err *err) SL_MUST_CHECK;
void sl_arb_kept_rmdir(struct arbiter *a, const char *name);
void sl_arb_kept_sweep(struct arbiter *a); /* directories whose tenant is gone */

/* state.c */
/* Writes the tenant down as it would be with these terms. */
int sl_arb_state_save(struct arbiter *a, const struct tenant *t, const struct terms *terms,
                      struct sl_err *err) SL_MUST_CHECK;
void sl_arb_state_load(struct arbiter *a); /* all tenants of before; bad files are set aside */
uint64_t sl_arb_process_stat(pid_t pid,
                             int number); /* field of /proc/PID/stat; 0: no such process */
uint64_t sl_arb_process_start(pid_t pid); /* 0: no such process */

/* overheads.c: of each process, over a restart */
void sl_arb_overheads_save(struct arbiter *a, struct tenant *t); /* if there is something new */
void sl_arb_overheads_load(struct arbiter *a, struct tenant *t);
void sl_arb_overheads_back(struct tenant *t, struct member *m); /* it came back: as it was */
void sl_arb_overheads_forget(struct tenant *t);
void sl_arb_overheads_remove(struct arbiter *a, const struct tenant *t);

/* member.c */
void sl_arb_attach_ready(struct arbiter *a, struct source *s);
void sl_arb_member_remove(struct arbiter *a, struct member *m);
void sl_arb_visitor_remove(struct arbiter *a, struct visitor *v);
/* A packet that came with descriptors; `page_fd` is the first of them, or -1. Takes both descriptors. */
void sl_arb_visitor_received(struct arbiter *a, struct tenant *t, const struct sl_received *r);
void sl_arb_recovery_end(struct arbiter *a, struct tenant *t);
bool sl_arb_reap_orphans(struct arbiter *a, struct tenant *t); /* true: there were some */

/* tags.c: an exported descriptor with this id is open somewhere. */
bool sl_arb_descriptor_exists(uint64_t id);

/* control.c */
void sl_arb_control_ready(struct arbiter *a, struct source *s);
void sl_arb_client_remove(struct arbiter *a, struct client *c);

/* measure.c */
int sl_arb_measure_open(struct arbiter *a, struct sl_err *err) SL_MUST_CHECK; /* fills a->gpu */
void sl_arb_measure_close(struct arbiter *a);
void sl_arb_measure_ask(struct arbiter *a, struct member *m, const struct sl_msg_measure *ask);
/* It is a member now, and `returns` from before our start: its ledger says what it has. */
void sl_arb_measure_joined(struct arbiter *a, struct member *m, bool returns);
uint64_t sl_arb_measure_tick(struct arbiter *a); /* starts a due audit; returns the next due time */

/* compute.c */
void sl_arb_compute_open(struct arbiter *a);
void sl_arb_compute_close(struct arbiter *a);
struct sl_steer_spec sl_arb_spec_of(const struct tenant *t); /* for slices and for turns */
void sl_arb_compute_add(struct arbiter *a, struct tenant *t);
void sl_arb_compute_set(struct arbiter *a, struct tenant *t);
void sl_arb_compute_remove(struct arbiter *a, struct tenant *t);
void sl_arb_compute_member_came(struct tenant *t, struct member *m); /* its slot is chosen */
uint64_t sl_arb_compute_tick(struct arbiter *a); /* decides; returns when to be called again */
void sl_arb_compute_status(struct arbiter *a, const struct tenant *t, struct sl_msg_tenant *m);

/* turnstile.c: only for tenants whose GPUs are shared by turns */
void sl_arb_gate_set(struct tenant *t, uint32_t turn, enum sl_gate state);
/* Tells the processes that the gate changed: one that runs behind a free gate does not watch it. */
void sl_arb_tell_gate(const struct tenant *t);
void sl_arb_turnstile_open(struct arbiter *a);
void sl_arb_turnstile_close(struct arbiter *a);
void sl_arb_turnstile_add(struct arbiter *a, struct tenant *t);
void sl_arb_turnstile_set(struct arbiter *a, struct tenant *t);
void sl_arb_turnstile_remove(struct arbiter *a, struct tenant *t);
/* What its processes say may have changed. */
void sl_arb_turnstile_look(struct arbiter *a, struct tenant *t);
void sl_arb_doorbell_ready(struct arbiter *a, struct source *s);
uint64_t sl_arb_turnstile_tick(struct arbiter *a); /* decides; returns when to be called again */
void sl_arb_turnstile_status(struct arbiter *a, const struct tenant *t, struct sl_msg_tenant *m);

#endif
