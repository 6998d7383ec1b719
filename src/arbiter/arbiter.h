/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arbiter: keeps the leases, knows which process belongs to which tenant, and decides which tenant's launches go
 * through now. Runs inside `sluiced`, or by itself when `sluice run` starts it.
 */
#ifndef SLUICE_ARBITER_ARBITER_H
#define SLUICE_ARBITER_ARBITER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct sl_rules;

struct sl_arbiter_options {
    const char *dir;          /* of sockets and state; made if missing, mode 0700 */
    const char *nvml_library; /* NULL: libnvidia-ml.so.1 as the loader finds it */
    uint64_t idle_exit_ns;    /* end after this long without tenants and clients; 0 = never */
    int ready_fd;             /* 'R' is written when clients may connect, else 'E' and a text; -1 */
    struct sl_rules *rules;   /* for several users (taken over); NULL: for our own user alone */
    bool inherited;           /* listen_fd is the control socket, from a service manager */
    int listen_fd;
};

/* The directory already has a live arbiter: sl_arbiter_serve's code for "nothing to do". */
#define SL_ARBITER_TAKEN (-17) /* -EEXIST */

/* Serves until SIGTERM, SIGINT or the idle time. Handles these two signals and SIGALRM meanwhile: a blocked arbiter
 * ends a few seconds after the signal. With rules, SIGHUP reads their file again. */
int sl_arbiter_serve(const struct sl_arbiter_options *opt, struct sl_err *err) SL_MUST_CHECK;

#endif
