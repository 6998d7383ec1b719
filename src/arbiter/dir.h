/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of an arbiter, with its socket and its lock.
 *
 * Real GPUs: /run/sluice for root, else $XDG_RUNTIME_DIR/sluice, else /tmp/sluice-<uid>. Simulated GPUs: sim-<cards>
 * below that, so all commands of a user with `--sim h200` share one card. --dir or $SLUICE_DIR names the directory itself.
 *
 * Where the system has an arbiter for several users, every user's directory is that of the system: /run/sluice, or
 * sim-<cards> below it. Its control socket belongs to root and to a group that may write to it; no other arbiter's does.
 */
#ifndef SLUICE_ARBITER_DIR_H
#define SLUICE_ARBITER_DIR_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

#define SL_DIR_ENV    "SLUICE_DIR"
#define SL_SYSTEM_DIR "/run/sluice"

struct sl_arbiter_dir {
    char dir[256];       /* absolute */
    char parent[256];    /* also made if missing; empty when the user named `dir` */
    char socket[108];    /* the control socket */
    char sim[256];       /* the simulated cards, a file by its absolute path; empty: real GPUs */
    char sim_state[320]; /* the file that their drivers share; empty: real GPUs */
    bool system;         /* the system's arbiter: it is used, and never started */
    gid_t group;         /* … for the users of this group */
    char own[256];       /* for files of this user: `dir`, unless that is the system's */
};

/* Does the system's arbiter serve this directory? Then ret_group (may be NULL) is whom it is for. */
bool sl_arbiter_dir_is_system(const char *dir, gid_t *ret_group);

/* Finds the paths; changes nothing. `dir` and `sim` may be NULL. */
int sl_arbiter_dir_find(const char *dir, const char *sim, struct sl_arbiter_dir *ret,
                        struct sl_err *err) SL_MUST_CHECK;

/*
 * Checks that the directory exists and can be trusted: a real directory (not a link) that belongs
 * to this user or to root, and that no other user can write to. -ENOENT: it does not exist.
 */
int sl_arbiter_dir_check(const struct sl_arbiter_dir *place, struct sl_err *err) SL_MUST_CHECK;

/* Makes the directory (mode 0700) where it is missing, checks it, and checks that we may write there. */
int sl_arbiter_dir_make(const struct sl_arbiter_dir *place, struct sl_err *err) SL_MUST_CHECK;

/* Makes `own` (mode 0700) where it is missing, and checks it. */
int sl_arbiter_dir_own(const struct sl_arbiter_dir *place, struct sl_err *err) SL_MUST_CHECK;

#endif
