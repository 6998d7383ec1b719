/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arbiter's control socket from inside the loop: questions go out in order, answers come by callback,
 * and an arbiter that hangs, dies or is not there yet costs its questions a time-out and nothing else.
 * Every question is safe to ask twice, and is, when the connection breaks before its answer.
 */
#ifndef SLUICE_AGENT_TENANT_LEASES_H
#define SLUICE_AGENT_TENANT_LEASES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "arbiter/client.h"
#include "base/err.h"
#include "base/loop.h"
#include "sluice/attach.h"

struct sl_leases;

/* Once a question, never from inside the call that asks. err is set where rc < 0. For `set`, text is the
 * arbiter's remark; it may be empty. */
typedef void sl_leases_done(void *data, int rc, const char *text, const struct sl_err *err);

int sl_leases_create(struct sl_loop *loop, const char *arbiter_dir, uint64_t timeout_ns,
                     struct sl_leases **ret, struct sl_err *err) SL_MUST_CHECK;
/* Questions under way are forgotten: their done does not come. NULL is fine. */
void sl_leases_destroy(struct sl_leases *l);

/* One thing to ask: SL_MSG_CREATE, SL_MSG_SET or SL_MSG_REMOVE (of which only the name counts). */
struct sl_leases_item {
    enum sl_msg_type type;
    const struct sl_msg_lease *lease;
    const char *fault; /* the fault point behind a good answer; NULL: none */
};
/*
 * Asks for one after the other until one is refused; done comes once, with the last answer. Nothing here ever waits for
 * the arbiter, not for its accepting us either. The first lease is copied; of more than one, all are the caller's until
 * done. Without items, done comes from inside this call.
 */
void sl_leases_ask(struct sl_leases *l, const struct sl_leases_item *items, size_t count,
                   sl_leases_done *done, void *data);
/*
 * The tenants of a claim or of a slot, and the CDI spec by which containers find them. Both front ends make and undo
 * them in one order, which makes a restart safe: no spec ever names a tenant that is not there.
 *
 *   make    tenant | tenant | … | spec
 *   unmake  spec | tenant | tenant | …
 *
 * Every step may be taken twice: the arbiter answers the same question in the same way, a spec is replaced whole, and
 * what is gone is gone. After an error the caller may make it again, or unmake it.
 */
struct sl_tenancy {
    bool make;
    const struct sl_leases_item *items; /* what makes the tenants, or removes them */
    size_t count;
    int (*spec)(void *data, struct sl_err *err); /* writes the spec, or removes it */
    const char *asked_fault,
        *spec_fault; /* fault points behind the last answer and behind the spec */
};
/* As sl_leases_ask, with data for spec too. Where the spec failed, the text of done is NULL; then, and without items,
 * done may come from inside this call. */
void sl_leases_tenancy(struct sl_leases *l, const struct sl_tenancy *t, sl_leases_done *done,
                       void *data);
/* A tenant that is not there is a success. */
void sl_leases_remove(struct sl_leases *l, const char *name, sl_leases_done *done, void *data);

/* All that the arbiter knows. It is handed over: free it with sl_client_status_free. NULL: err says why. */
typedef void sl_leases_status_done(void *data, struct sl_client_status *status,
                                   const struct sl_err *err);
/* now: without patience. Where there is no arbiter done says so at once, from inside this call too. */
void sl_leases_status(struct sl_leases *l, bool now, sl_leases_status_done *done, void *data);
/* Does it live? Without patience too; an arbiter that ends the connection instead of an answer (one of an older build)
 * has answered: rc 0. */
void sl_leases_ping(struct sl_leases *l, sl_leases_done *done, void *data);
/* The process at the other end of the connection; 0: there is no connection, or the kernel does not say. */
pid_t sl_leases_peer(const struct sl_leases *l);
/* The done of these questions will not come. */
void sl_leases_forget(struct sl_leases *l, const void *data);

#endif
