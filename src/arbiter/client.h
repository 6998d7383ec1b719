/* SPDX-License-Identifier: Apache-2.0 */
/* Talks to an arbiter over its control socket, and starts an arbiter where none runs. */
#ifndef SLUICE_ARBITER_CLIENT_H
#define SLUICE_ARBITER_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arbiter/dir.h"
#include "base/err.h"
#include "sluice/attach.h"

/* The exit status of the hidden `arbiter` verb when another arbiter has the directory already. */
#define SL_ARBITER_EXIT_TAKEN 75

/* The first byte that a new arbiter writes to its ready descriptor. */
#define SL_READY_YES 'R'
#define SL_READY_NO  'E' /* the reason follows */

struct sl_client_start {
    const char *program;  /* the sluice binary, absolute */
    unsigned idle_exit_s; /* idle time after which the arbiter ends; 0: never */
};

/* Connects. -ENOENT: no arbiter runs there (never started, ended, or died without removing its socket). */
int sl_client_connect(const struct sl_arbiter_dir *place,
                      struct sl_err *err) SL_MUST_CHECK; /* fd */

/*
 * Connects; starts an arbiter first where none runs. Any number of callers may do this at once: one arbiter starts, and
 * all callers are connected to it. The arbiter outlives the caller.
 */
int sl_client_start(const struct sl_arbiter_dir *place, const struct sl_client_start *how,
                    struct sl_err *err) SL_MUST_CHECK; /* fd */

/* A refusal is returned with the arbiter's text. -ECONNRESET: the arbiter ended before it answered; nothing was done,
 * try a new connection. */
int sl_client_create(int fd, const struct sl_msg_lease *lease, struct sl_msg_created *ret,
                     struct sl_err *err) SL_MUST_CHECK;
/* How to wait in line. */
struct sl_client_wait {
    uint64_t deadline_ns;                                          /* UINT64_MAX: none */
    void (*notice)(void *arg, const struct sl_msg_waiting *place); /* what the arbiter says */
    void *arg;
};
/* As sl_client_create, but waits until there is room. -ETIME: not before the deadline. -ECONNRESET: the arbiter ended,
 * and a new connection gets the same place again. -EFBIG: there can never be room. */
int sl_client_create_waiting(int fd, const struct sl_msg_lease *lease,
                             const struct sl_client_wait *how, struct sl_msg_created *ret,
                             struct sl_err *err) SL_MUST_CHECK;
int sl_client_set(int fd, const struct sl_msg_lease *lease, struct sl_msg_text *ret_remark,
                  struct sl_err *err) SL_MUST_CHECK;

/* Ends a kept tenant. -ENOENT: no tenant has that name. */
int sl_client_remove(int fd, const char *name, struct sl_err *err) SL_MUST_CHECK;

/* One value of a tenant's `about`; false and an empty text when `about` does not have the key. */
bool sl_client_about(const char *about, const char *key, char *buf, size_t size);

/* The whole status. Free with sl_client_status_free. */
struct sl_client_status {
    struct sl_msg_gpu *gpu;
    size_t gpu_count;
    struct sl_msg_tenant *tenant;
    size_t tenant_count;
    struct sl_msg_audit *audit;
    size_t audit_count;
    struct sl_msg_waiter *waiter; /* in line, the first first; an older arbiter tells none */
    size_t waiter_count;
};

int sl_client_status(int fd, struct sl_client_status *ret, struct sl_err *err) SL_MUST_CHECK;
/* One packet of the answer, for a caller with an event loop. 1: *status is complete. 0: more is coming. *status begins
 * zeroed; the caller frees it, also after an error. */
union sl_packet;
int sl_client_status_take(struct sl_client_status *status, union sl_packet *got,
                          struct sl_err *err) SL_MUST_CHECK;
void sl_client_status_free(struct sl_client_status *status);

/* The processes of a tenant; free *ret. -ENOENT: no tenant has that name. -ECONNRESET: the arbiter ended, or is too old
 * to list processes. */
int sl_client_processes(int fd, const char *name, struct sl_msg_process **ret, size_t *ret_count,
                        struct sl_err *err) SL_MUST_CHECK;

/* The command of a tenant that this process created has ended, with this status of wait(2). The arbiter does not
 * answer. */
void sl_client_ended(int fd, const char *name, int status);

/* The history of ended tenants that this user may see: the lines of policy/history.h, oldest first; free *ret_text.
 * -ECONNRESET: the arbiter ended, or is too old to keep a history. */
int sl_client_history(int fd, char **ret_text, size_t *ret_size, uint32_t *ret_damaged,
                      struct sl_err *err) SL_MUST_CHECK;

/* For the files of the client: sends a question and takes the first answer; takes the next one. A refusal is an
 * error. */
int sl_client_ask(int fd, const struct sl_msg *question, union sl_packet *ret,
                  struct sl_err *err) SL_MUST_CHECK;
int sl_client_receive(int fd, union sl_packet *ret, struct sl_err *err) SL_MUST_CHECK;

/* The process at the other end; 0: the kernel does not tell. */
int sl_client_peer_pid(int fd);

#endif
