/* SPDX-License-Identifier: Apache-2.0 */
/* The uids that a user's own containers run with, by /etc/subuid. */
#ifndef SLUICE_ARBITER_SUBUID_H
#define SLUICE_ARBITER_SUBUID_H

#include <stdbool.h>
#include <sys/types.h>

/* Does a line "OWNER:FIRST:COUNT" of the text give this uid to the owner, by name (NULL: not known) or number? */
bool sl_subuid_has(const char *text, const char *name, uid_t owner, uid_t uid);

/* The same by the system's files. Asks no server: only files of this machine are read. */
bool sl_subuid_of(uid_t owner, uid_t uid);

#endif
