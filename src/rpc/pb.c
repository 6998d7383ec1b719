/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/pb.h"

#include "rpc/errors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

enum { UNPACKED_MAX = 64 * 1024 * 1024 };

static void *budget_alloc(void *data, size_t size)
{
    size_t *left = data;
    if (size > *left)
        return NULL;
    *left -= size;
    return malloc(size);
}

static void plain_free(void *data, void *ptr)
{
    (void)data;
    free(ptr);
}

int sl_rpc_pb_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                     ProtobufCMessage **ret, struct sl_err *err)
{
    size_t left = UNPACKED_MAX;
    ProtobufCAllocator allocator = {
        .alloc = budget_alloc, .free = plain_free, .allocator_data = &left};
    ProtobufCMessage *message = protobuf_c_message_unpack(type, &allocator, size, data);
    if (!message)
        return sl_err_set(err, -EBADMSG, SL_E_RPC_NOT_PROTOBUF, type->name);
    *ret = message;
    return 0;
}

void sl_rpc_pb_free(ProtobufCMessage *message)
{
    ProtobufCAllocator allocator = {.free = plain_free};
    if (message)
        protobuf_c_message_free_unpacked(message, &allocator);
}

void *sl_rpc_pb_new(const ProtobufCMessageDescriptor *type)
{
    void *message = sl_xmalloc(type->sizeof_message);
    protobuf_c_message_init(type, message);
    return message;
}

void *sl_rpc_pb_add(void *list, size_t *count, const ProtobufCMessageDescriptor *type)
{
    void **items;
    memcpy(&items, list, sizeof(items));
    if ((*count & (*count - 1)) == 0) /* doubles at powers of two */
        items = sl_xreallocarray(items, *count ? *count * 2 : 1, sizeof(*items));
    memcpy(list, &items, sizeof(items));
    return items[(*count)++] = sl_rpc_pb_new(type);
}

int sl_rpc_pb_request(struct sl_rpc_call *call, const ProtobufCMessageDescriptor *type,
                      const uint8_t *data, size_t size, ProtobufCMessage **ret)
{
    struct sl_err err = SL_ERR_INIT;
    int rc = sl_rpc_pb_unpack(type, data, size, ret, &err);
    if (rc < 0)
        sl_rpc_call_finish(call, SL_RPC_INTERNAL, err.msg);
    return rc;
}

/* Returns the message's bytes, for free(), or NULL. */
static uint8_t *pack(const ProtobufCMessage *message, size_t *ret_size, struct sl_err *err)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *data = malloc(size ? size : 1);
    if (data)
        *ret_size = protobuf_c_message_pack(message, data);
    else
        (void)sl_err_set(err, -ENOMEM, "out of memory for a message of %zu bytes", size);
    return data;
}

int sl_rpc_pb_send(struct sl_rpc_call *call, const ProtobufCMessage *message, struct sl_err *err)
{
    size_t size = 0;
    uint8_t *data = pack(message, &size, err);
    int rc = data ? sl_rpc_call_send(call, data, size, err) : -ENOMEM;
    free(data);
    return rc;
}

void sl_rpc_pb_reply(struct sl_rpc_call *call, const ProtobufCMessage *message)
{
    size_t size = 0;
    struct sl_err err = SL_ERR_INIT;
    uint8_t *data = pack(message, &size, &err);
    if (data)
        sl_rpc_call_reply(call, data, size);
    else
        sl_rpc_call_finish(call, SL_RPC_RESOURCE_EXHAUSTED, err.msg);
    free(data);
}

int sl_rpc_pb_call(struct sl_rpc_client *client, const char *path, const ProtobufCMessage *message,
                   uint64_t timeout_ns, const struct sl_rpc_call_ops *ops, void *data,
                   struct sl_rpc_call **ret, struct sl_err *err)
{
    size_t size = 0;
    uint8_t *bytes = pack(message, &size, err);
    int rc = bytes ? sl_rpc_client_call(client, path, bytes, size, timeout_ns, ops, data, ret, err)
                   : -ENOMEM;
    free(bytes);
    return rc;
}
