/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_SHM_ERRORS_H
#define SLUICE_SHM_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("versions");

SL_ERROR(PAGE_SIZE,
    "the %s page has %lld bytes, but this build expects %zu: libsluice and the arbiter are of different versions; "
    "install the same version on both sides",
    "`libsluice.so` and the arbiter are of different builds",
    "install the same version on both sides and restart the tenants");
SL_ERROR_ALSO(PAGE_VERSION,
    "the %s page has version %u, but this build expects %u: install the same version of Sluice on both sides");
SL_ERROR_ALSO(PAGE_MAGIC, "the %s page is not a page of Sluice (wrong magic number)");
SL_ERROR_ALSO(PAGE_UNSEALED, "the %s page is not a sealed memfd");
SL_ERROR_ALSO(PAGE_GPUS, "the lease page names %u GPUs, more than this build allows");
SL_ERROR_ALSO(PAGE_OTHER_LEASE, "the ledger page belongs to another lease");
SL_ERROR_ALSO(PAGE_UNREADABLE, "the %s page cannot be examined");
SL_ERROR(PEER_VERSION,
    "the peer uses messages of version %u, but this build uses %u: install the same version of Sluice on both sides",
    "two builds, or another program listens on that socket", "install the same version on both sides");
SL_ERROR_ALSO(PEER_PACKET, "the peer sent a packet that is not part of the protocol");
SL_ERROR_ALSO(PEER_DESCRIPTORS, "the peer sent file descriptors with a packet that takes none");
SL_ERROR(PROTOCOL_TOO_OLD,
    "libsluice in this process speaks protocol %u, and the arbiter speaks %u to %u: the process began with a version of "
    "Sluice that is too old for this agent; start the pod or the command again",
    "the pod or command runs since more than two versions of Sluice, and was not started again in between",
    "start it again: it gets the libsluice of today (docs/upgrade.md)");
SL_ERROR(PROTOCOL_TOO_NEW,
    "libsluice in this process speaks protocol %u to %u, and the arbiter speaks up to %u only: the agent was taken back too "
    "far; install a newer one, or start the pod or the command again",
    "Sluice was taken back by more than two versions under a pod or command that runs",
    "install a newer agent again, or start the pod or command again (docs/upgrade.md)");
SL_ERROR(PROTOCOL_ARBITER,
    "the arbiter speaks protocol %u with this process, and libsluice in it knows %u to %u: install versions of Sluice that are "
    "at most two apart on both sides",
    "`libsluice.so` and the arbiter are of versions that are too far apart",
    "install versions that are at most two apart, then start the pod or command again (docs/upgrade.md)");
SL_ERROR(PEER_CLOSED, "the peer closed the connection",
    "the other side ended, or is busy", "try again; `sluice doctor`");
SL_ERROR_ALSO(PEER_SILENT, "the peer did not answer within %d ms");
SL_ERROR_ALSO(PEER_WAIT, "cannot wait for the peer");

SL_ERROR_PART("arbiter");

SL_ERROR(SOCKET_PATH,
    "socket path \"%.200s\" is longer than %zu bytes, the most that unix sockets allow: choose a shorter directory",
    "unix sockets allow 107 bytes", "a shorter `--dir`");
SL_ERROR(ARBITER_UNREACHABLE, "cannot reach the arbiter at %s",
    "the reason of the system follows", "check permissions and whether the arbiter runs");

#endif
