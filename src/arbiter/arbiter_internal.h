/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the arbiter's files. One thread runs the loop and owns everything here; only the NVML worker (measure.c) is
 * a second thread, and it talks through a queue.
 */
#ifndef SLUICE_ARBITER_ARBITER_INTERNAL_H
#define SLUICE_ARBITER_ARBITER_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "arbiter/arbiter.h"
#include "arbiter/history_file.h"
#include "arbiter/peer.h"
#include "base/container.h"
#include "policy/line.h"
#include "policy/once.h"
#include "policy/steer.h"
#include "shm/packet.h"
#include "shm/pages.h"

/* How long old processes may take to return with their ledger. They retry every few hundred milliseconds at the
 * slowest. */
#define SL_ARB_RECOVER_NS (1000 * SL_NS_PER_MS)

#define SL_ARB_MAX_GPUS 128 /* sixteen cards, each cut into seven instances and more */

struct arbiter;
struct tenant;
struct member;
struct measure;
struct turnstile;
struct compute;
struct overhead_before;
struct waiter;
struct sl_lane;
struct sl_lanes;
struct sl_received;
struct sl_rules;

/* Something epoll watches. `ready` runs in the loop; it may free its own source. */
struct source {
    int fd;
    void (*ready)(struct arbiter *a, struct source *s);
};

/* A whole card, or one MIG instance of a card that is cut up. */
struct gpu {
    uint32_t index;    /* as nvidia-smi counts; an instance has the index of its card */
    uint32_t instance; /* GPU instance, or UINT32_MAX for a whole card */
    char uuid[SL_UUID_MAX];
    char name[SL_NAME_MAX];
    uint64_t total_bytes;
    uint64_t used_bytes; /* at the last measurement */
    uint8_t numa;        /* its memory node; 0 also where that is not known */
    uint8_t link_group;  /* cards with NVLinks between them have the same number */
    bool turns;          /* its time is shared by turns, not by slices … */
    bool turns_wanted;
    bool no_effect; /* `sluice doctor` measured that slices have no effect here */
    char why[96];   /* … for this reason */
};

/* The addresses of a program in memory: other addresses mean another program. */
struct image {
    uint64_t bytes, code, stack, arguments;
};

/* One process of a tenant. Lives from HELLO until the kernel reports the end of the process. */
struct member {
    struct source conn;  /* its attach connection; fd -1 while it has none */
    struct source pidfd; /* readable when the process is gone; fd -1 on kernels before 5.3 */
    struct tenant *tenant;
    struct member *next;
    pid_t pid;        /* host PID, from the socket's peer credentials */
    char command[32]; /* as the process reports it */
    uint32_t slot;
    uint32_t protocol;        /* see SL_PROTOCOL */
    uint64_t start;           /* sl_arb_process_start, 0: not asked yet */
    uint32_t measured;        /* bit per lease GPU: the driver was asked, and the answer accepted */
    uint64_t believe_from_ns; /* snapshots begun before this do not show the process */
    /* It returned, and its slot was empty: until then it may enter its memory, which counts as overhead before. */
    uint64_t unbooked_until_ns;
    uint64_t unbooked_operations; /* of its slot, on all GPUs together, when it returned */
    uint32_t whole; /* bit per lease GPU: the reading contains memory not yet entered */
    struct image image;
    uint64_t heard_ns;                  /* rate limit of its packets */
    uint64_t hear_again_ns;             /* 0, or the time until which its packets wait */
    uint32_t measure_pending;           /* bit per lease GPU: it waits for a MEASURED */
    uint64_t measure_asked_ns;          /* a snapshot begun after this answers it */
    uint64_t put_by_bytes[SL_MAX_GPUS]; /* reserved in its ledger for the context to be measured */
    uint64_t overhead_bytes[SL_MAX_GPUS];
    uint64_t base_bytes[SL_MAX_GPUS];     /* its overhead when its context was made */
    uint64_t reading_bytes[SL_MAX_GPUS];  /* overhead as the driver showed it */
    uint64_t lower_since_ns[SL_MAX_GPUS]; /* since when the readings are lower; 0: they are not */
    uint64_t used_before[SL_MAX_GPUS];    /* ledger usage when the running snapshot was asked for */
    uint64_t operations_before[SL_MAX_GPUS]; /* … and how often the ledger had changed */
    uint64_t least_bytes[SL_MAX_GPUS];       /* the least overhead in unsteady snapshots */
    uint64_t seen_bytes[SL_MAX_GPUS]; /* its usage in the last snapshot, as far as accepted */
    uint8_t unsteady[SL_MAX_GPUS];    /* snapshots in a row during which the ledger moved */
    uint64_t saturated_ns, work_ns, done_ns, launches; /* as last read from its slot */
    uint64_t distance_ns;   /* of its watched_ns from the tenant's clock (policy/once.h) */
    uint64_t busy_until_ns; /* until then it counts as keeping the GPU busy */
};

/* A process that has connected but not said HELLO, or that must wait for the end of a recovery. */
struct visitor {
    struct source conn;
    struct tenant *tenant;
    struct visitor *next;
    struct sl_peer peer;
    bool watched; /* in the epoll set */
    bool parked;
    uint64_t silent_until_ns; /* unless parked: its HELLO must come before */
    struct sl_msg_hello hello;
    uint32_t protocol; /* agreed on after its HELLO */
};

/* The first request for a kept tenant: an equal request means the same tenant. */
struct asked {
    uint32_t fields, memory_percent;
    uint64_t memory_bytes;
    uint32_t cores_request_permille, cores_limit_permille, priority;
    uint64_t gpu_memory_bytes[SL_MAX_GPUS];
};

/* The granted terms, as in the state file. The lease page is made from them. */
struct terms {
    uint64_t memory_bytes[SL_MAX_GPUS]; /* SL_NO_LIMIT: nothing was asked for */
    uint32_t cores_request_permille, cores_limit_permille, priority;
    bool paused;
};

/* What it used so far: use.c. */
struct use {
    bool counts; /* it gets an entry in the history when it ends */
    bool known;  /* who made it is known */
    uid_t uid;
    char command[32];
    uint64_t started_ms;              /* since 1970 */
    uint64_t waited_ns;               /* in line */
    uint64_t peak_bytes[SL_MAX_GPUS]; /* of ledgers that are gone */
    /* Time with work, and of that the time in which its GPU time was measured: up to looked_ns. */
    uint64_t work_ns, measured_ns, looked_ns;
    uint64_t used_ns;        /* GPU time before a restart, and in turns of before */
    bool has_work;           /* now … */
    bool had_work, measured; /* … and at the last look */
    enum sl_history_end end;
    uint32_t code;
    uint64_t saved_ns, saved_work_ns;
};

struct tenant {
    char name[SL_NAME_MAX];
    uid_t owner;          /* the user who made it: saved, and never changed */
    uint64_t id;          /* never reused, unlike its name */
    struct sl_lane *lane; /* closes the descriptors that its processes passed; NULL until there
                           * are some */
    char about[SL_ABOUT_MAX];
    bool kept;   /* lives until it is removed */
    bool untold; /* from before a restart: its creator may still wait in line for it */
    bool left;   /* a process left: run_due may end the tenant; until then it is in use */
    struct asked asked;
    struct terms terms;
    struct use use;
    struct {
        uint32_t id;          /* in the turn-taking; UINT32_MAX: it takes no turns */
        uint64_t granted_ns;  /* when its current turn began */
        bool waiting_release; /* told to stop, still on the GPU */
        uint32_t rings;       /* of its doorbell, since rings_since_ns */
        uint64_t rings_since_ns;
        bool muted; /* rang too often: ignored for a moment */
    } turn;
    uint32_t compute;  /* enum sl_compute: how its creator wants GPU time to be shared */
    uint32_t steer_id; /* in the policy; UINT32_MAX: its GPU time is not shared */
    bool by_turns;
    /* Slices were measured to have no effect between it and another tenant: its GPUs go by turns until then. */
    uint64_t turns_until_ns;
    struct sl_steer_seen seen; /* sums over its processes, also over those that ended */
    struct sl_once once;       /* the part of their busy time that counts */
    uint8_t cookie[16];
    struct sl_lease_map lease;
    struct sl_ledger_map ledger;
    struct source listener; /* attach socket */
    struct source doorbell; /* eventfd its processes ring */
    struct source creator;  /* pidfd of the process that made the tenant; fd -1 once gone */
    pid_t creator_pid;
    uint64_t creator_start; /* start time in clock ticks: a PID alone may be reused */
    struct member *members;
    struct visitor *visitors;
    uint32_t member_count, visitor_count;
    uint64_t connected_ns;    /* rate limit of its connections */
    uint64_t listen_again_ns; /* 0, or the time until which no connection is accepted */
    uint64_t measured_ns;     /* cost of the measurements that it asked for: measure.c */
    uint64_t measure_due_ns;  /* 0, or when to measure for waiting processes */
    uint64_t hear_due_ns;     /* 0, or when to read packets of talkative members again */
    uint64_t hello_due_ns;    /* 0, or when to check for silent visitors */
    struct {
        uint64_t waited_ns, launches, oom_count;
    } past; /* sums of ended members: a counter never goes down */
    uint64_t created_ns;
    uint64_t recover_until_ns; /* after a restart: until then old members may bring the ledger */
    uint32_t doubt;            /* bit per lease GPU: processes that did not return may use more */
    uint64_t doubt_since_ns;   /* ends with a snapshot that was begun later */
    uint64_t reap_retry_ns;    /* 0, or when to try a stuck reaping again */
    uint32_t gpu_count;
    uint32_t gpu[SL_MAX_GPUS];              /* index into arbiter.gpu */
    uint64_t share_bytes[SL_MAX_GPUS];      /* without a limit: its part of the rest (grant.c) */
    uint64_t total_before[SL_MAX_GPUS];     /* its ledger when the running snapshot was requested */
    uint64_t unattached_bytes[SL_MAX_GPUS]; /* used by its children that did not attach */
    uint64_t unexplained_bytes[SL_MAX_GPUS]; /* beyond ledger and overheads of all processes */
    uint64_t slots[SL_MAX_SLOTS / 64];       /* taken slots */
    /* Free slots whose process did not return after a restart. It may live, stopped, and use its slot once it goes on:
     * these slots are given away last. */
    uint64_t orphans[SL_MAX_SLOTS / 64];
    bool reaped_absent; /* such a slot of this ledger was reaped: see sl_account_true_up */
    struct {
        bool there;                       /* SL_LEASE_FILE may exist */
        uint64_t hash;                    /* of its content */
        uint64_t most_bytes[SL_MAX_GPUS]; /* the most that a process's contexts cost so far */
    } alone;
    struct overhead_before
        *overheads_before; /* after a restart: of processes that have not come back yet */
    bool overheads_new;    /* not saved yet */
    struct tenant *next;
};

struct audit_finding {
    struct audit_finding *next;
    struct sl_msg_audit msg;
};

/* A user with connections to a shared arbiter, for as long as the rates of the last moments matter. */
struct person {
    struct person *next;
    uid_t uid;
    uint64_t connected_ns, asked_ns; /* rate limits of control connections and of requests */
};

/* A control connection and its unread answers. */
struct client {
    struct source conn;
    pid_t pid;
    uid_t uid;   /* who it is: people.c */
    gid_t *gids; /* all groups of the process that connected */
    size_t gid_count;
    uint64_t hear_again_ns; /* 0, or the time until which its requests wait */
    struct waiter *waiter;  /* NULL: it does not stand in line */
    struct client *next;
    struct outgoing *out_head, *out_tail;
};

struct arbiter {
    struct sl_arbiter_options opt;
    int epoll_fd;
    int dir_fd;     /* opt.dir */
    int tenants_fd; /* opt.dir/t */
    int kept_fd;    /* opt.dir/k: a directory with its socket for each kept tenant */
    int users_fd;   /* opt.dir/u: likewise for kept tenants of other users than ours */
    int lock_fd;
    struct source control;
    struct source signals;  /* stop.c: SIGTERM and SIGINT */
    struct source reread;   /* reload.c: SIGHUP, and rules that were read */
    struct sl_rules *rules; /* who may use us, and how much each may have; NULL: our user alone */
    struct person *people;
    uint64_t ask_again_ns; /* 0, or when to read requests of talkative users again */
    struct source timer;
    struct source received; /* bell of the lanes */
    struct sl_lanes *lanes;
    struct sl_lane *own_lane; /* for descriptors of no tenant */
    struct tenant *tenants;
    struct client *clients;
    uint32_t client_count;
    struct sl_line line;       /* of commands that wait for room */
    uint64_t line_look_ns;     /* when to look at it again */
    uint64_t control_again_ns; /* 0, or the time until which no connection is accepted */
    uint32_t tenant_count;
    uint32_t next_tenant_id;
    uint64_t tenants_ever;
    char driver[80]; /* its version; empty: not known */
    struct gpu gpu[SL_ARB_MAX_GPUS];
    uint32_t gpu_count;
    struct audit_finding *findings;
    struct sl_history_store history;
    uint64_t changes; /* how often tenants and processes came or went */
    uint64_t ends;    /* … how often processes ended */
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
/* Calls `ready` when the descriptor is readable. */
int sl_arb_watch(struct arbiter *a, struct source *s, struct sl_err *err) SL_MUST_CHECK;
int sl_arb_open_to_group(struct arbiter *a, const char *socket, struct sl_err *err) SL_MUST_CHECK;
void sl_arb_unwatch(struct arbiter *a, struct source *s); /* closes the fd too; fd -1 is fine */

/* stop.c */
int sl_arb_stop_open(struct arbiter *a, struct sl_err *err) SL_MUST_CHECK;
void sl_arb_stop_close(struct arbiter *a);

/* foreign.c: descriptors that other processes passed, or may have passed */
int sl_arb_foreign_open(struct arbiter *a, struct sl_err *err) SL_MUST_CHECK;
void sl_arb_foreign_close(struct arbiter *a);
/* As sl_arb_unwatch, for a connection of a tenant (NULL: of no tenant). Never blocks. fd -1 is fine. */
void sl_arb_hang_up(struct arbiter *a, struct tenant *t, struct source *s);
void sl_arb_hang_up_listener(struct arbiter *a, struct tenant *t);
/* Takes a connection whose next packet has descriptors; sl_arb_visitor_received returns it. */
void sl_arb_receive(struct arbiter *a, struct tenant *t, int sock, const struct sl_peer *peer);

/* reload.c: reads the rules again on SIGHUP, in a thread of its own */
int sl_arb_reload_open(struct arbiter *a, struct sl_err *err) SL_MUST_CHECK;
void sl_arb_reload_close(struct arbiter *a);

/* people.c: several users */
/* Who is at the other end, and may it use this arbiter? */
int sl_arb_identify(struct arbiter *a, struct client *c, int fd, struct sl_err *err) SL_MUST_CHECK;
int sl_arb_may_change(const struct client *c, const struct tenant *t,
                      struct sl_err *err) SL_MUST_CHECK;
/* Does it belong to another user than ours? Only root serves others: an arbiter of one user serves that user and root. */
bool sl_arb_is_foreign(const struct tenant *t);
/* May a process of this user become a process of the tenant? */
bool sl_arb_may_attach(const struct tenant *t, uid_t uid);
struct person *sl_arb_person(struct arbiter *a, uid_t uid);
void sl_arb_people_forget(struct arbiter *a, bool all); /* those of whom nothing has to be known */
/* Is this user one of several? Then it may have a part only. */
bool sl_arb_is_shared(const struct arbiter *a, uid_t uid);
int sl_arb_person_room(const struct arbiter *a, uid_t uid, struct sl_err *err) SL_MUST_CHECK;
/* May the user have this? -EDQUOT: not while its other tenants run. -EFBIG: never. */
int sl_arb_limits_new(struct arbiter *a, const struct client *c, const struct sl_msg_lease *ask,
                      struct sl_err *err) SL_MUST_CHECK;
int sl_arb_limits_set(const struct arbiter *a, const struct client *c,
                      const struct sl_msg_lease *ask, const struct tenant *t,
                      struct sl_err *err) SL_MUST_CHECK;
/* Does a limit of the user keep a request from going on? `why` may be NULL. */
bool sl_arb_limits_hold(struct arbiter *a, const struct client *c, const struct sl_msg_lease *ask,
                        char *why, size_t size);
/* Nothing was asked for: not more than the user may have. */
void sl_arb_limits_priority(const struct arbiter *a, const struct client *c,
                            struct sl_msg_lease *ask);

/* admit.c: which processes may connect now */
/* How many connections the tenant may add; ≤ 0: none. */
int64_t sl_arb_room(const struct arbiter *a, const struct tenant *t);
int sl_arb_admit_client(struct arbiter *a, const struct client *c,
                        struct sl_err *err) SL_MUST_CHECK;
/* A request of the client came. If its user sends too many, the client is not heard for a while. */
void sl_arb_asked_again(struct arbiter *a, struct client *c);
void sl_arb_send_error(int sock, int code, const char *text);
void sl_arb_refuse(struct arbiter *a, struct tenant *t, int sock, int code, const char *text);
int sl_arb_accept(struct arbiter *a, struct source *listener, uint64_t *again_ns); /* fd, or < 0 */
bool sl_arb_may_connect(struct arbiter *a, struct tenant *t); /* false: the listener pauses */
void sl_arb_not_counted(struct tenant *t); /* the last connection was none of its processes */
/* A packet of the process came. If packets come too often, the process is ignored for a while. */
void sl_arb_heard(struct arbiter *a, struct member *m);
/* The visitor is silent so far: other silent visitors may have to go. */
void sl_arb_silence(struct arbiter *a, struct visitor *v);
uint64_t sl_arb_admit_tick(struct arbiter *a); /* returns when to be called again */

/* reach.c: refuses tenants among which GPU time cannot be divided, instead of ignoring the limit */
int sl_arb_reach_check(const struct arbiter *a, const struct tenant *t, bool divided,
                       struct sl_err *err) SL_MUST_CHECK;
int sl_arb_reach_room(const struct arbiter *a, struct sl_err *err) SL_MUST_CHECK;
void sl_arb_reach_warn(const struct arbiter *a, const struct tenant *t);

/* tenant.c */
int sl_arb_tenant_create(struct arbiter *a, const struct sl_msg_lease *ask, const struct client *by,
                         const struct sl_line_gpus *barred, struct tenant **ret,
                         struct sl_err *err) SL_MUST_CHECK;
/* Would it be created, or refused for good? False: there is no room now. */
bool sl_arb_tenant_fits(struct arbiter *a, const struct sl_msg_lease *ask,
                        const struct sl_line_gpus *barred);
bool sl_arb_is_for_now(int rc); /* sl_arb_tenant_create refused for a reason that may pass */
/* Made by this process, and not kept. */
struct tenant *sl_arb_tenant_of(struct arbiter *a, pid_t pid, uint64_t start);
int sl_arb_tenant_set(struct arbiter *a, const struct client *by, const struct sl_msg_lease *ask,
                      char *remark, size_t remark_size, struct sl_err *err) SL_MUST_CHECK;
struct tenant *sl_arb_tenant_alloc(void); /* empty: no descriptors, no pages */
struct tenant *sl_arb_tenant_find(struct arbiter *a, const char *name);
void sl_arb_tenant_destroy(struct arbiter *a, struct tenant *t); /* with sockets and state file */
void sl_arb_tenant_drop(struct arbiter *a, struct tenant *t);    /* forgets it, keeps its state */
/* Destroys the tenant if no process and no client is left; returns whether it did. Only called by run_due. */
bool sl_arb_tenant_maybe_end(struct arbiter *a, struct tenant *t);
void sl_arb_tenant_terms(struct tenant *t);    /* terms → lease page */
void sl_arb_tenant_overhead(struct tenant *t); /* members' sums → lease page */
void sl_arb_attach_path(const struct arbiter *a, const struct tenant *t, char *buf, size_t size);
int sl_arb_tenant_remove(struct arbiter *a, const struct client *by, const struct sl_msg_lease *ask,
                         struct sl_err *err) SL_MUST_CHECK;
int sl_arb_tenant_open(struct arbiter *a, struct tenant *t, struct sl_err *err) SL_MUST_CHECK;

/* candidates.c */
/* The GPUs that a request may mean, of which it wants so many: all of them, unless the arbiter may choose. */
struct candidates {
    uint32_t gpu[SL_ARB_MAX_GPUS];
    uint32_t count, wanted;
    bool any;
};
int sl_arb_candidates(struct arbiter *a, const struct sl_msg_lease *ask, struct candidates *ret,
                      struct sl_err *err) SL_MUST_CHECK;
/* The same for the line. */
int sl_arb_wants(struct arbiter *a, const struct sl_msg_lease *ask, struct sl_line_gpus *ret,
                 uint32_t *ret_need, struct sl_err *err) SL_MUST_CHECK;

/* choose.c */
/* Sets the GPUs of a tenant: none of those that are barred, and with room for the rest that is asked for. */
int sl_arb_choose(struct arbiter *a, const struct sl_msg_lease *ask,
                  const struct sl_line_gpus *barred, struct tenant *t,
                  struct sl_err *err) SL_MUST_CHECK;
int sl_arb_check_cores(struct arbiter *a, const struct sl_msg_lease *ask, const struct tenant *t,
                       struct sl_err *err) SL_MUST_CHECK;
/* The time of a GPU that is not promised, in permille, not counting one tenant. */
uint32_t sl_arb_cores_left(const struct arbiter *a, uint32_t gpu, const struct tenant *except);
/* The GPUs that a new tenant would have; where some of several are to be chosen, the largest. Returns how many; 0: the
 * request is wrong. */
uint32_t sl_arb_meant(struct arbiter *a, const struct sl_msg_lease *ask, uint32_t gpu[SL_MAX_GPUS]);

/* lacks.c: for people */
bool sl_arb_ever_fits(struct arbiter *a,
                      const struct sl_msg_lease *ask); /* without other tenants */
/* What a request asks for and what is left, for people. False: nothing is missing. */
bool sl_arb_lacks(struct arbiter *a, const struct sl_msg_lease *ask, char *buf, size_t size);
/* The refusal of a request that fits on `fit` of its candidates, too few: what is left, and the cure. */
int sl_arb_none_fits(struct arbiter *a, const struct sl_msg_lease *ask,
                     const struct candidates *from, uint32_t fit, struct sl_err *err);

/* line.c: commands that wait for room on a GPU */
void sl_arb_line_load(struct arbiter *a); /* the commands of before a restart keep their places */
void sl_arb_line_close(struct arbiter *a);
/* Makes the tenant, or puts its client in line: 1, with the client told of its place soon. */
int sl_arb_line_ask(struct arbiter *a, struct client *c, const struct sl_msg_lease *ask,
                    struct tenant **ret, struct sl_err *err) SL_MUST_CHECK;
/* The GPUs that waiting clients have a claim on: a client that does not wait may not take them. */
struct sl_line_gpus sl_arb_line_barred(const struct arbiter *a, const struct sl_msg_lease *ask);
void sl_arb_line_left(struct arbiter *a, struct client *c); /* the client goes away */
/* Sends everybody who waits, first come first. */
int sl_arb_line_status(struct arbiter *a, struct client *c) SL_MUST_CHECK;
void sl_arb_line_look(struct arbiter *a);     /* there may be room now */
uint64_t sl_arb_line_tick(struct arbiter *a); /* returns when to be called again */

/* grant.c: memory. Can these limits be granted? Changes nothing. */
int sl_arb_grant_memory(struct arbiter *a, const struct sl_msg_lease *ask, const struct tenant *t,
                        uint64_t ret_limit[SL_MAX_GPUS], struct sl_err *err) SL_MUST_CHECK;
/* Promises on these GPUs, or the tenants without a limit, have changed: shares out the rest again. */
void sl_arb_grant_share(struct arbiter *a, const uint32_t *gpus, uint32_t count);
/* What is asked for on the GPU, the i-th of the request; 0: no promise. False: the request is wrong. */
bool sl_arb_grant_asked(const struct arbiter *a, uint32_t gpu, const struct sl_msg_lease *ask,
                        uint32_t i, uint64_t *ret);
/* The memory that is neither promised nor used, not counting one tenant. */
uint64_t sl_arb_grant_left(const struct arbiter *a, uint32_t gpu, const struct tenant *except);
/* The part of the memory that a further tenant without a limit would get. */
uint64_t sl_arb_grant_offer(const struct arbiter *a, uint32_t gpu);
/* After a grant: checks that no other tenant has taken the memory since the first check. */
int sl_arb_grant_holds(const struct arbiter *a, const struct tenant *t,
                       struct sl_err *err) SL_MUST_CHECK;

/* kept.c: for kept tenants only */
struct asked sl_arb_asked(const struct sl_msg_lease *ask);
/* 0 with *ret: the requested tenant exists already; *ret NULL: it is new. */
int sl_arb_kept_find(struct arbiter *a, const struct sl_msg_lease *ask, struct tenant **ret,
                     struct sl_err *err) SL_MUST_CHECK;
int sl_arb_kept_dir(const struct arbiter *a, const struct tenant *t); /* kept_fd or users_fd */
int sl_arb_kept_mkdir(struct arbiter *a, const struct tenant *t, struct sl_err *err) SL_MUST_CHECK;
void sl_arb_kept_rmdir(int dir_fd, const char *name);
void sl_arb_kept_sweep(struct arbiter *a); /* directories whose tenant is gone */

/* alone.c: may a process start while no arbiter is there? */
/* Not from now on. */
void sl_arb_alone_close(struct arbiter *a, struct tenant *t);
/* After a measurement: writes or removes SL_LEASE_FILE. */
void sl_arb_alone_look(struct arbiter *a, struct tenant *t);

/* state.c */
/* Saves the tenant with these terms. */
int sl_arb_state_save(struct arbiter *a, const struct tenant *t, const struct terms *terms,
                      struct sl_err *err) SL_MUST_CHECK;
void sl_arb_state_load(struct arbiter *a); /* all saved tenants; bad files are set aside */
uint64_t sl_arb_process_stat(pid_t pid,
                             int number); /* field of /proc/PID/stat; 0: no such process */
uint64_t sl_arb_process_start(pid_t pid); /* 0: no such process */

/* overheads.c: of each process, over a restart */
void sl_arb_overheads_save(struct arbiter *a, struct tenant *t); /* if there are new ones */
void sl_arb_overheads_load(struct arbiter *a, struct tenant *t);
void sl_arb_overheads_back(struct tenant *t, struct member *m); /* for a process that returned */
void sl_arb_overheads_forget(struct tenant *t);
void sl_arb_overheads_remove(struct arbiter *a, const struct tenant *t);

/* member.c */
void sl_arb_attach_ready(struct arbiter *a, struct source *s);
void sl_arb_member_remove(struct arbiter *a, struct member *m);
void sl_arb_visitor_remove(struct arbiter *a, struct visitor *v);
/* A packet with descriptors; `page_fd` is the first of them, or -1. Takes both descriptors. */
void sl_arb_visitor_received(struct arbiter *a, struct tenant *t, const struct sl_received *r);
void sl_arb_recovery_end(struct arbiter *a, struct tenant *t);
bool sl_arb_reap_orphans(struct arbiter *a, struct tenant *t); /* true: there were some */

/* use.c: for the entry in the history */
void sl_arb_use_begin(struct arbiter *a, struct tenant *t, uid_t uid); /* a new tenant was made */
void sl_arb_use_look(struct arbiter *a, struct tenant *t);             /* after has_work was set */
bool sl_arb_use_peak(struct tenant *t);                    /* takes it from the ledger; it rose? */
void sl_arb_use_left(struct arbiter *a, struct tenant *t); /* before a process is taken out */
void sl_arb_use_entry(struct arbiter *a, struct tenant *t, struct sl_history_entry *ret);
void sl_arb_use_save(struct arbiter *a, struct tenant *t);
void sl_arb_use_load(struct arbiter *a, struct tenant *t);
void sl_arb_use_remove(struct arbiter *a, const struct tenant *t);

/* history.c */
void sl_arb_history_open(struct arbiter *a);
void sl_arb_history_close(struct arbiter *a);
void sl_arb_history_enter(struct arbiter *a, struct tenant *t); /* the tenant ends now */
void sl_arb_history_ended(struct arbiter *a, const struct client *c, const struct sl_msg_ended *m);
int sl_arb_history_send(struct arbiter *a, struct client *c) SL_MUST_CHECK;

/* tags.c: is an exported descriptor with this id open in any process? */
bool sl_arb_descriptor_exists(uint64_t id);

/* control.c */
void sl_arb_control_ready(struct arbiter *a, struct source *s);
void sl_arb_client_remove(struct arbiter *a, struct client *c);
/* The process has ended: reads what it sent before. */
void sl_arb_client_last_words(struct arbiter *a, pid_t pid);
/* Sends or queues. The client is removed by the caller when this fails. */
int sl_arb_client_send(struct arbiter *a, struct client *c, const struct sl_msg *msg) SL_MUST_CHECK;

/* measure.c */
int sl_arb_measure_open(struct arbiter *a, struct sl_err *err) SL_MUST_CHECK; /* fills a->gpu */
void sl_arb_measure_close(struct arbiter *a);
void sl_arb_measure_ask(struct arbiter *a, struct member *m, const struct sl_msg_measure *ask);
/* The process is a member now. `returns`: it was one before our start, and its ledger has its memory. */
void sl_arb_measure_joined(struct arbiter *a, struct member *m, bool returns);
/* Is the memory of a process that returned in its ledger? */
bool sl_arb_measure_entered(const struct member *m);
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
uint64_t sl_arb_compute_used(struct arbiter *a, const struct tenant *t); /* GPU time in ns */
void sl_arb_compute_status(struct arbiter *a, const struct tenant *t, struct sl_msg_tenant *m);

/* turnstile.c: only for tenants whose GPUs are shared by turns */
void sl_arb_gate_set(struct tenant *t, uint32_t turn, enum sl_gate state);
/* Tells the processes that the gate changed: a process behind a free gate does not watch it. */
void sl_arb_tell_gate(const struct tenant *t);
void sl_arb_turnstile_open(struct arbiter *a);
void sl_arb_turnstile_close(struct arbiter *a);
void sl_arb_turnstile_add(struct arbiter *a, struct tenant *t);
void sl_arb_turnstile_set(struct arbiter *a, struct tenant *t);
void sl_arb_turnstile_remove(struct arbiter *a, struct tenant *t);
/* The pages of its processes may have changed. */
void sl_arb_turnstile_look(struct arbiter *a, struct tenant *t);
void sl_arb_doorbell_ready(struct arbiter *a, struct source *s);
uint64_t sl_arb_turnstile_tick(struct arbiter *a); /* decides; returns when to be called again */
uint64_t sl_arb_turnstile_used(struct arbiter *a, const struct tenant *t); /* GPU time in ns */
void sl_arb_turnstile_status(struct arbiter *a, const struct tenant *t, struct sl_msg_tenant *m);

#endif
