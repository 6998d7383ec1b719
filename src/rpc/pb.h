/* SPDX-License-Identifier: Apache-2.0 */
/* Protocol buffers (protobuf-c) over calls. */
#ifndef SLUICE_RPC_PB_H
#define SLUICE_RPC_PB_H

#include <protobuf-c/protobuf-c.h>

#include "rpc/client.h"
#include "rpc/server.h"

/* Bytes into a message; free it with sl_rpc_pb_free(). -EBADMSG: not a message of this type, or one whose unpacked form
 * would need more than 64 MiB (a few bytes on the wire can be many in memory). */
int sl_rpc_pb_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                     ProtobufCMessage **ret, struct sl_err *err) SL_MUST_CHECK;
void sl_rpc_pb_free(ProtobufCMessage *message);

/* A new, empty message; free it with sl_rpc_pb_free(). Strings and lists put into it must come from malloc(). */
void *sl_rpc_pb_new(const ProtobufCMessageDescriptor *type);
/* Adds an empty message to the end of a list: sl_rpc_pb_add(&m->items, &m->n_items, &item__descriptor). */
void *sl_rpc_pb_add(void *list, size_t *count, const ProtobufCMessageDescriptor *type);

/* Unpacks the request of a handler. On failure the call has been finished with INTERNAL. */
int sl_rpc_pb_request(struct sl_rpc_call *call, const ProtobufCMessageDescriptor *type,
                      const uint8_t *data, size_t size, ProtobufCMessage **ret) SL_MUST_CHECK;

/* As sl_rpc_call_send, sl_rpc_call_reply and sl_rpc_client_call. */
int sl_rpc_pb_send(struct sl_rpc_call *call, const ProtobufCMessage *message,
                   struct sl_err *err) SL_MUST_CHECK;
void sl_rpc_pb_reply(struct sl_rpc_call *call, const ProtobufCMessage *message);
int sl_rpc_pb_call(struct sl_rpc_client *client, const char *path, const ProtobufCMessage *message,
                   uint64_t timeout_ns, const struct sl_rpc_call_ops *ops, void *data,
                   struct sl_rpc_call **ret, struct sl_err *err) SL_MUST_CHECK;

#endif
