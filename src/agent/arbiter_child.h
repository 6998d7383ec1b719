/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the arbiter as a separate process beside the agent: decisions about GPU time must not wait
 * for a label, and tenants must keep their turns when the agent dies. The agent starts the arbiter,
 * watches it, and starts it again.
 */
#ifndef SLUICE_AGENT_ARBITER_CHILD_H
#define SLUICE_AGENT_ARBITER_CHILD_H

#include <stdbool.h>

#include "base/err.h"
#include "base/loop.h"

struct sl_arbiter_child;

struct sl_arbiter_child_options {
    const char *dir;          /* where its sockets are */
    const char *nvml_library; /* NULL: as the loader finds it */
    bool simulated;
    void (*state)(void *data, bool up, const char *words); /* may be NULL */
    void *data;
};

int sl_arbiter_child_create(struct sl_loop *loop, const struct sl_arbiter_child_options *opt,
                            struct sl_arbiter_child **ret, struct sl_err *err) SL_MUST_CHECK;
/* Ends it: tenants run on under their last limits until the next one is there. NULL is fine. */
void sl_arbiter_child_destroy(struct sl_arbiter_child *child);

/* The child's side, from main(): argv after the word "arbiter". Returns the exit status. */
int sl_arbiter_child_main(int argc, char **argv);

#endif
