/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arbiter's control socket on the loop: questions are sent in order, answers come by callback. If the arbiter
 * hangs, dies or has not started, its questions time out and nothing else suffers. Every question may be asked twice:
 * it is asked again when the connection breaks before the answer.
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

/* Called once for each question, never from inside the call that asks. err is set where rc < 0. For `set`, text is the
 * arbiter's remark; it may be empty. */
typedef void sl_leases_done(void *data, int rc, const char *text, const struct sl_err *err);

int sl_leases_create(struct sl_loop *loop, const char *arbiter_dir, uint64_t timeout_ns,
                     struct sl_leases **ret, struct sl_err *err) SL_MUST_CHECK;
/* Forgets open questions: their done is not called. NULL is fine. */
void sl_leases_destroy(struct sl_leases *l);

/* One question: SL_MSG_CREATE, SL_MSG_SET or SL_MSG_REMOVE (which needs only the name). */
struct sl_leases_item {
    enum sl_msg_type type;
    const struct sl_msg_lease *lease;
    const char *fault; /* the fault point after a good answer; NULL: none */
};
/*
 * Asks one question after the other until one is refused; done is called once, with the last answer. Never waits for
 * the arbiter, not even for the connection. A single lease is copied; several leases must stay valid until done.
 * Without items, done is called from inside this call.
 */
void sl_leases_ask(struct sl_leases *l, const struct sl_leases_item *items, size_t count,
                   sl_leases_done *done, void *data);
/*
 * The tenants of a claim or of a slot, and the CDI spec by which containers find them. Both front ends make and undo
 * them in the same order, which makes a restart safe: no spec ever names a missing tenant.
 *
 *   make    tenant | tenant | … | spec
 *   unmake  spec | tenant | tenant | …
 *
 * Every step may be taken twice: the arbiter gives the same answer to the same question, a spec is replaced whole, and
 * a second removal does nothing. After an error the caller may make the tenancy again, or unmake it.
 */
struct sl_tenancy {
    bool make;
    const struct sl_leases_item *items; /* the questions that make the tenants, or remove them */
    size_t count;
    int (*spec)(void *data, struct sl_err *err); /* writes the spec, or removes it */
    const char *asked_fault,
        *spec_fault; /* fault points after the last answer and after the spec */
};
/* As sl_leases_ask, with data for spec too. If the spec failed, the text of done is NULL; then, and without items, done
 * may be called from inside this call. */
void sl_leases_tenancy(struct sl_leases *l, const struct sl_tenancy *t, sl_leases_done *done,
                       void *data);
/* Removing a missing tenant is a success. */
void sl_leases_remove(struct sl_leases *l, const char *name, sl_leases_done *done, void *data);

/* The whole state of the arbiter. The receiver owns it: free it with sl_client_status_free. NULL: err says why. */
typedef void sl_leases_status_done(void *data, struct sl_client_status *status,
                                   const struct sl_err *err);
/* now: do not wait for an arbiter. If none runs, done is called at once, maybe from inside this call. */
void sl_leases_status(struct sl_leases *l, bool now, sl_leases_status_done *done, void *data);
/* Is the arbiter alive? Does not wait for an arbiter either. An arbiter of an older build ends the connection instead
 * of an answer: that counts as an answer, rc 0. */
void sl_leases_ping(struct sl_leases *l, sl_leases_done *done, void *data);
/* The process at the other end of the connection; 0: there is no connection, or the kernel does not say. */
pid_t sl_leases_peer(const struct sl_leases *l);
/*
 * A change that failed is asked for again if the failure may pass by itself: no answer, no room on the GPU or on the
 * disk, no descriptor, a use that is not known yet. Any other failure is a refusal. After -ETIMEDOUT nobody knows the
 * tenant's amounts: the arbiter may still carry the change out.
 */
bool sl_leases_may_pass(int rc);
#define SL_LEASES_TRIES 8 /* then users are told; the agent goes on trying, at a slower pace */
/* How long to wait after so many failures in a row. */
uint64_t sl_leases_again_ns(unsigned failures);

/* The done of these questions is not called any more. */
void sl_leases_forget(struct sl_leases *l, const void *data);

#endif
