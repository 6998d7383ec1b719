/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks once a second whether the arbiter still answers. The parent notices when the process ends;
 * nobody notices when the process hangs or was stopped, and then every pod on the node waits.
 */
#ifndef SLUICE_AGENT_ARBITER_WATCH_H
#define SLUICE_AGENT_ARBITER_WATCH_H

#include <sys/types.h>

#include "base/err.h"
#include "base/loop.h"

/* After this many questions in a row without an answer, one each second, the arbiter counts as
 * stuck. Seconds in which this process itself did not run are not counted. */
#define SL_ARBITER_SILENT_S 10

struct sl_arbiter_watch {
    struct sl_loop *loop;
    struct sl_source conn; /* fd -1: not connected */
    struct sl_timer timer;
    bool asked;
    unsigned silent_s; /* since a question that is not answered yet */
    char path[108];    /* its control socket */
    /* `pid` is at the other end, 0 if that is not known. Watching goes on. */
    void (*stuck)(void *data, pid_t pid);
    void *data;
};

int sl_arbiter_watch_init(struct sl_arbiter_watch *w, struct sl_loop *loop, const char *arbiter_dir,
                          void (*stuck)(void *data, pid_t pid), void *data,
                          struct sl_err *err) SL_MUST_CHECK;
void sl_arbiter_watch_begin(struct sl_arbiter_watch *w); /* it is up */
void sl_arbiter_watch_end(struct sl_arbiter_watch *w);   /* it is not; harmless to repeat */

#endif
