/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arbiter's status without waiting for it: one connection, kept, watched by the loop. A connection that
 * does not come about at once, or an answer that does not end in time, is given up; the next question
 * begins anew.
 */
#ifndef SLUICE_AGENT_METRICS_METRICS_ARBITER_H
#define SLUICE_AGENT_METRICS_METRICS_ARBITER_H

#include "arbiter/client.h"
#include "base/loop.h"

struct sl_arbiter_query;

/* status is handed over (free it with sl_client_status_free); NULL with err: there is none. */
typedef void sl_arbiter_query_done(void *data, struct sl_client_status *status,
                                   const struct sl_err *err);

int sl_arbiter_query_create(struct sl_loop *loop, const struct sl_place *place,
                            sl_arbiter_query_done *done, void *data, struct sl_arbiter_query **ret,
                            struct sl_err *err) SL_MUST_CHECK;
void sl_arbiter_query_destroy(struct sl_arbiter_query *query); /* NULL is fine */
/* done comes once, perhaps from inside this call. Not while a question is open. */
void sl_arbiter_query_ask(struct sl_arbiter_query *query);
/* done will not come. */
void sl_arbiter_query_give_up(struct sl_arbiter_query *query);

#endif
