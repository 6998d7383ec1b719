/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the arbiter's files share. One thread runs the loop and owns everything here; only the NVML
 * worker (measure.c) is a second thread, and it talks through a queue.
 */
#ifndef SLUICE_ARBITER_INTERNAL_H
#define SLUICE_ARBITER_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "arbiter/arbiter.h"
#include "shm/packet.h"
#include "shm/pages.h"

#define SL_ARB_MAX_GPUS 128 /* sixteen cards, each cut into seven instances and more */

struct arbiter;
struct tenant;
struct member;
struct measure;
struct turnstile;

/* Something epoll watches. `ready` runs in the loop; it may free its own source. */
struct source {
    int fd;
    void (*ready)(struct arbiter *a, struct source *s, uint32_t events);
};

#define container_of(ptr, type, field) ((type *)(void *)((char *)(ptr)-offsetof(type, field)))

/* A whole card, or one MIG instance of a card that is cut up. */
struct gpu {
    uint32_t index;    /* as nvidia-smi counts; an instance has its card's */
    uint32_t instance; /* GPU instance, or UINT32_MAX for a whole card */
    char uuid[SL_UUID_MAX];
    char name[SL_NAME_MAX];
    uint64_t total_bytes;
    uint64_t used_bytes; /* at the last measurement */
};

/* One process of a tenant. Lives from HELLO until the kernel says the process is gone. */
struct member {
    struct source conn;  /* its attach connection; fd -1 while it has none */
    struct source pidfd; /* readable when the process is gone; fd -1 on kernels before 5.3 */
    struct tenant *tenant;
    struct member *next;
    pid_t pid; /* host PID, from the socket's peer credentials */
    uint32_t slot;
    char command[32];
    uint32_t measure_pending;  /* bit per lease GPU: a MEASURED is owed */
    uint64_t measure_asked_ns; /* a snapshot begun after this answers it */
    uint64_t overhead_bytes[SL_MAX_GPUS];
    uint64_t base_bytes[SL_MAX_GPUS];     /* its overhead when its context was made */
    uint64_t reading_bytes[SL_MAX_GPUS];  /* overhead as the driver showed it */
    uint64_t lower_since_ns[SL_MAX_GPUS]; /* it shows less since; 0: it does not */
    uint64_t used_before[SL_MAX_GPUS];    /* ledger usage when the running snapshot was asked for */
    uint64_t operations_before[SL_MAX_GPUS]; /* … and how often it had changed */
    uint64_t least_bytes[SL_MAX_GPUS];    /* the least overhead those unsteady snapshots showed */
    uint64_t seen_bytes[SL_MAX_GPUS];     /* what the last snapshot showed, as far as it is believed */
    uint8_t unsteady[SL_MAX_GPUS];        /* snapshots in a row that found it moving */
};

/* A process that connected but has not said HELLO, or must wait for a recovery to end. */
struct visitor {
    struct source conn;
    struct tenant *tenant;
    struct visitor *next;
    pid_t pid;
    bool watched; /* in the epoll set */
    bool parked;
    struct sl_msg_hello hello;
};

/* What a kept tenant was first asked for: the same again is the same tenant. */
struct asked {
    uint32_t fields, memory_percent;
    uint64_t memory_bytes;
    uint32_t cores_request_permille, cores_limit_permille, priority;
    uint64_t gpu_memory_bytes[SL_MAX_GPUS];
};

struct tenant {
    char name[SL_NAME_MAX];
    char about[SL_ABOUT_MAX];
    bool kept; /* lives until it is removed */
    struct asked asked;
    struct {
        uint32_t id;          /* in the turn-taking; UINT32_MAX: not taking part */
        uint64_t granted_ns;  /* when its current turn began */
        bool waiting_release; /* told to stop, not drained yet */
        bool running;         /* one of its processes has begun this turn */
        bool absent;          /* was given a turn and did not come: asks again before the next */
        uint32_t rings;       /* of its doorbell, since rings_since_ns */
        uint64_t rings_since_ns;
        bool muted; /* rang too often: not listened to for a moment */
    } turn;
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
    uint32_t member_count;
    struct {
        uint64_t waited_ns, launches, oom_count;
    } past; /* of members that are gone: what is counted never goes down */
    uint64_t created_ns;
    uint64_t recover_until_ns; /* after a restart: until then old members may bring the ledger */
    uint64_t reap_retry_ns;    /* 0, or when to try a stuck reaping again */
    uint32_t gpu_count;
    uint32_t gpu[SL_MAX_GPUS];              /* index into arbiter.gpu */
    uint64_t total_before[SL_MAX_GPUS];     /* its ledger when the running snapshot was asked for */
    uint64_t unattached_bytes[SL_MAX_GPUS]; /* used by its children that did not attach */
    uint64_t unexplained_bytes[SL_MAX_GPUS]; /* beyond ledger and overheads, of the tenant as a whole */
    uint64_t slots[SL_MAX_SLOTS / 64];      /* taken slots */
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
    struct source signals;
    struct source timer;
    struct tenant *tenants;
    struct client *clients;
    uint32_t tenant_count;
    uint32_t next_tenant_id;
    struct gpu gpu[SL_ARB_MAX_GPUS];
    uint32_t gpu_count;
    struct audit_finding *findings;
    uint64_t changes; /* tenants and processes that came or went */
    struct measure *measure;
    struct turnstile *turnstile;
    uint64_t now_ns; /* read once per wake-up */
    uint64_t quiet_since_ns;
    bool stopping;
};

/* loop.c */
int sl_arb_watch(struct arbiter *a, struct source *s, uint32_t events,
                 struct sl_err *err) SL_MUST_CHECK;
void sl_arb_unwatch(struct arbiter *a, struct source *s); /* closes the fd too; fd -1 is fine */

/* tenant.c */
int sl_arb_tenant_create(struct arbiter *a, const struct sl_msg_lease *ask, pid_t creator,
                         struct tenant **ret, struct sl_err *err) SL_MUST_CHECK;
int sl_arb_tenant_set(struct arbiter *a, const struct sl_msg_lease *ask, char *remark,
                      size_t remark_size, struct sl_err *err) SL_MUST_CHECK;
struct tenant *sl_arb_tenant_alloc(void); /* empty: no descriptors, no pages; NULL: no memory */
struct tenant *sl_arb_tenant_find(struct arbiter *a, const char *name);
void sl_arb_tenant_destroy(struct arbiter *a, struct tenant *t);   /* sockets, state file and all */
void sl_arb_tenant_drop(struct arbiter *a, struct tenant *t);      /* forget it, leave its state */
void sl_arb_tenant_maybe_end(struct arbiter *a, struct tenant *t); /* nobody left: destroy */
void sl_arb_tenant_overhead(struct tenant *t); /* members' sums → lease page */
void sl_arb_attach_path(const struct arbiter *a, const struct tenant *t, char *buf, size_t size);
int sl_arb_tenant_remove(struct arbiter *a, const struct sl_msg_lease *ask,
                         struct sl_err *err) SL_MUST_CHECK;
int sl_arb_tenant_open(struct arbiter *a, struct tenant *t, struct sl_err *err) SL_MUST_CHECK;

/* kept.c: the parts that only tenants that stay have */
struct asked sl_arb_asked(const struct sl_msg_lease *ask);
/* 0 with *ret: the kept tenant that this asks for is there already; *ret NULL: it is new. */
int sl_arb_kept_find(struct arbiter *a, const struct sl_msg_lease *ask, struct tenant **ret,
                     struct sl_err *err) SL_MUST_CHECK;
int sl_arb_kept_mkdir(struct arbiter *a, const char *name, struct sl_err *err) SL_MUST_CHECK;
int sl_arb_kept_open_to_all(const char *socket_path, struct sl_err *err) SL_MUST_CHECK;
void sl_arb_kept_rmdir(struct arbiter *a, const char *name);
void sl_arb_kept_sweep(struct arbiter *a); /* directories whose tenant is gone */

/* state.c */
int sl_arb_state_save(struct arbiter *a, const struct tenant *t, struct sl_err *err) SL_MUST_CHECK;
void sl_arb_state_load(struct arbiter *a); /* all tenants of before; bad files are set aside */
uint64_t sl_arb_process_start(pid_t pid);  /* 0: no such process */

/* member.c */
void sl_arb_attach_ready(struct arbiter *a, struct source *s, uint32_t events);
void sl_arb_member_remove(struct arbiter *a, struct member *m);
void sl_arb_visitor_remove(struct arbiter *a, struct visitor *v);
void sl_arb_recovery_end(struct arbiter *a, struct tenant *t);
void sl_arb_reap_orphans(struct arbiter *a, struct tenant *t);

/* tags.c: an exported descriptor with this id is open somewhere. */
bool sl_arb_descriptor_exists(uint64_t id);

/* control.c */
void sl_arb_control_ready(struct arbiter *a, struct source *s, uint32_t events);
void sl_arb_client_remove(struct arbiter *a, struct client *c);

/* measure.c */
int sl_arb_measure_open(struct arbiter *a, struct sl_err *err) SL_MUST_CHECK; /* fills a->gpu */
void sl_arb_measure_close(struct arbiter *a);
void sl_arb_measure_ask(struct arbiter *a, struct member *m, uint32_t lease_gpu);
uint64_t sl_arb_measure_tick(struct arbiter *a); /* starts a due audit; returns the next due time */

/* turnstile.c */
int sl_arb_turnstile_open(struct arbiter *a, struct sl_err *err) SL_MUST_CHECK;
void sl_arb_turnstile_close(struct arbiter *a);
void sl_arb_turnstile_add(struct arbiter *a, struct tenant *t);
void sl_arb_turnstile_set(struct arbiter *a, struct tenant *t);
void sl_arb_turnstile_remove(struct arbiter *a, struct tenant *t);
void sl_arb_turnstile_member_gone(struct arbiter *a, struct tenant *t);
void sl_arb_doorbell_ready(struct arbiter *a, struct source *s, uint32_t events);
/* Is a tenant of high priority about to come back, so that sleeping would cost it time? */
bool sl_arb_turnstile_awake(const struct arbiter *a);
/* Looks at the pages of tenants of high priority without waiting for their bells; true: one came. */
bool sl_arb_turnstile_glance(struct arbiter *a);
uint64_t sl_arb_turnstile_tick(struct arbiter *a); /* decides; returns when to be called again */
void sl_arb_turnstile_status(struct arbiter *a, const struct tenant *t, struct sl_msg_tenant *m);

#endif
