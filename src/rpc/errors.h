/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_RPC_ERRORS_H
#define SLUICE_RPC_ERRORS_H

#include <inttypes.h>

#include "base/errtable.h"

SL_ERROR_PART("rpc");

SL_ERROR(RPC_CLOSED, "the connection is closed, or is being closed",
    "kubelet or the agent ended, or restarts", "nothing: Sluice tries again by itself");
SL_ERROR_ALSO(RPC_CALL_OVER, "the call has ended already");
SL_ERROR_ALSO(RPC_STOPPING, "the server is stopping");
SL_ERROR(RPC_MANY_CONNECTIONS, "there are too many connections",
    "the peer opens more connections or calls than it may", "look for a program that calls the agent in a loop");
SL_ERROR_ALSO(RPC_MANY_CALLS, "%zu calls are in progress already: wait until one ends");
SL_ERROR(RPC_FULL, "the connection holds too many unsent bytes already",
    "the peer does not read the answers, or reads too slowly", "look whether the peer hangs");
SL_ERROR_ALSO(RPC_UNREAD, "the peer has not yet read %zu bytes");
SL_ERROR(RPC_SEND_LARGE, "a message of %zu bytes is too large: at most %zu bytes can be sent",
    "the message does not follow the gRPC protocol, or the limits of this program",
    "use a client of the same protocol version");
SL_ERROR_ALSO(RPC_RECEIVED_LARGE, "the message has %" PRIu32 " bytes: at most %zu are accepted");
SL_ERROR_ALSO(RPC_COMPRESSED, "the message is compressed, which is not supported");
SL_ERROR_ALSO(RPC_FLAG, "the message starts with flag %u instead of 0 or 1");
SL_ERROR_ALSO(RPC_NOT_PROTOBUF, "the bytes are not a message of type %s");
SL_ERROR(RPC_SOCKET_PATH, "a socket path must have 1 to %zu bytes, but this path has %zu: %s",
    "unix sockets allow 107 bytes", "a shorter directory");
SL_ERROR(RPC_NOT_A_SOCKET, "%s is in the way and is not a socket: remove it",
    "another file has the name of the socket", "remove that file");
SL_ERROR(RPC_START_CALL, "cannot start the call: %s",
    "nghttp2 refused; its text is in the message", "nothing: Sluice tries again by itself");
SL_ERROR_ALSO(RPC_START, "cannot start HTTP/2: %s");

#endif
