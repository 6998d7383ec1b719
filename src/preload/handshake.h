/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to the arbiter: one handshake, and descriptors that stay out of the program's way. */
#ifndef SLUICE_PRELOAD_HANDSHAKE_H
#define SLUICE_PRELOAD_HANDSHAKE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "shm/pages.h"

/* A descriptor and the identity of its file: a program may close every descriptor and open its own file under the same
 * number. Such a file must not be taken for ours. */
struct sl_own_fd {
    int fd; /* -1: none */
    dev_t device;
    ino_t inode;
};
#define SL_OWN_FD_INIT {-1, 0, 0}

/* Takes fd, and moves it out of the range that programs use (500 and up, where the limit allows). */
struct sl_own_fd sl_own_fd_take(int fd);
bool sl_own_fd_valid(const struct sl_own_fd *own);
bool sl_own_fd_same_file(const struct sl_own_fd *own, int fd);
/* Puts a new file under the old number if that number is still ours, else under a new number. */
void sl_own_fd_replace(struct sl_own_fd *own, int fd);
void sl_own_fd_close(struct sl_own_fd *own); /* only if still ours */

/* The result of a handshake. Descriptors are plain numbers here: the caller moves them. */
struct sl_link {
    int sock;
    int doorbell;
    struct sl_lease_map lease;
    struct sl_ledger_map ledger;
    uint32_t slot;
    uint32_t host_pid;
    uint32_t protocol; /* what both sides know: SL_PROTOCOL */
};

/* old_slot SL_NO_SLOT and old_ledger -1 at the first attach. */
int sl_link_open(const char *path, uint32_t old_slot, int old_ledger, int timeout_ms,
                 struct sl_link *ret, struct sl_err *err) SL_MUST_CHECK;
void sl_link_close(struct sl_link *link);

#endif
