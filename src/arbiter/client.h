/* SPDX-License-Identifier: Apache-2.0 */
/* Talking to an arbiter over its control socket, and starting one where none is. */
#ifndef SLUICE_ARBITER_CLIENT_H
#define SLUICE_ARBITER_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "arbiter/dir.h"
#include "base/err.h"
#include "sluice/attach.h"

/* What the hidden `arbiter` verb exits with when another arbiter has the directory already. */
#define SL_ARBITER_EXIT_TAKEN 75

/* What a freshly started arbiter writes to its ready descriptor. */
#define SL_READY_YES 'R'
#define SL_READY_NO  'E' /* the reason follows */

struct sl_client_start {
    const char *program;  /* the sluice binary, absolute */
    unsigned idle_exit_s; /* it leaves after this long without tenants and clients; 0: never */
};

/* Connects. -ENOENT: no arbiter runs there (never started, left, or died without its socket). */
int sl_client_connect(const struct sl_arbiter_dir *place,
                      struct sl_err *err) SL_MUST_CHECK; /* fd */

/*
 * Connects, starting an arbiter first where none runs. Any number of callers may do this at once:
 * one arbiter results and all of them are connected to it. The arbiter outlives the caller.
 */
int sl_client_start(const struct sl_arbiter_dir *place, const struct sl_client_start *how,
                    struct sl_err *err) SL_MUST_CHECK; /* fd */

/* The arbiter's refusals are returned with the text of the arbiter. -ECONNRESET: the arbiter
 * ended before it answered; nothing was done, try a new connection. */
int sl_client_create(int fd, const struct sl_msg_lease *lease, struct sl_msg_created *ret,
                     struct sl_err *err) SL_MUST_CHECK;
int sl_client_set(int fd, const struct sl_msg_lease *lease, struct sl_msg_text *ret_remark,
                  struct sl_err *err) SL_MUST_CHECK;

/* One value of a tenant's `about`; false and an empty text when it is not in there. */
bool sl_client_about(const char *about, const char *key, char *buf, size_t size);

/* Everything `status` knows. Free with sl_client_status_free. */
struct sl_client_status {
    struct sl_msg_gpu *gpu;
    size_t gpu_count;
    struct sl_msg_tenant *tenant;
    size_t tenant_count;
    struct sl_msg_audit *audit;
    size_t audit_count;
};

int sl_client_status(int fd, struct sl_client_status *ret, struct sl_err *err) SL_MUST_CHECK;
/* One packet of the answer, for a caller with an event loop. 1: *status is complete. 0: more is coming. *status begins
 * zeroed and is the caller's to free, also after an error. */
union sl_packet;
int sl_client_status_take(struct sl_client_status *status, union sl_packet *got,
                          struct sl_err *err) SL_MUST_CHECK;
void sl_client_status_free(struct sl_client_status *status);

/* The processes of a tenant; free *ret. -ENOENT: no tenant has that name. -ECONNRESET: the arbiter ended, or is one of
 * an older version, which cannot tell. */
int sl_client_processes(int fd, const char *name, struct sl_msg_process **ret, size_t *ret_count,
                        struct sl_err *err) SL_MUST_CHECK;

/* The process at the other end, 0 if the kernel does not say. */
int sl_client_peer_pid(int fd);

#endif
