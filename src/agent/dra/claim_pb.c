/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A claim in the API server's protobuf, with our devices put into its status. The API server compares the opaque
 * configs of an allocation byte by byte, but writes them differently whenever it parses JSON itself (patches of any
 * kind). Only an update in protobuf keeps the bytes.
 */
#include "agent/dra/dra_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/dra/errors.h"
#include "base/json_dump.h"
#include "base/xalloc.h"
#include "resourceclaim.pb-c.h"
#include "rpc/pb.h"

static const uint8_t magic[4] = {'k', '8', 's', 0};

/* For protobuf-c, which does not write to it. */
static char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return (char *)(uintptr_t)(text ? text : "");
}

static int64_t seconds_of(const char *text)
{
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return end ? (int64_t)timegm(&tm) : 0;
}

/* Packs into new memory. */
static uint8_t *pack(const ProtobufCMessage *m, size_t before, size_t *ret_size)
{
    size_t size = protobuf_c_message_get_packed_size(m);
    uint8_t *bytes = sl_xmalloc(before + size + 1);
    (void)protobuf_c_message_pack(m, bytes + before);
    *ret_size = before + size;
    return bytes;
}

#define CONDITIONS_MAX 8 /* a limit of the API */

static void pack_device(const json_t *from, ProtobufCBinaryData *ret)
{
    Claimpb__Device d = CLAIMPB__DEVICE__INIT;
    Claimpb__RawExtension data = CLAIMPB__RAW_EXTENSION__INIT;
    Claimpb__Condition condition[CONDITIONS_MAX], *list[CONDITIONS_MAX];
    Claimpb__Time when[CONDITIONS_MAX];
    const json_t *conditions = json_object_get(from, "conditions"),
                 *raw = json_object_get(from, "data");
    d.driver = text_of(from, "driver");
    d.pool = text_of(from, "pool");
    d.device = text_of(from, "device");
    d.share_id = text_of(from, "shareID");
    d.conditions = list;
    for (; d.n_conditions < json_array_size(conditions) && d.n_conditions < CONDITIONS_MAX;
         d.n_conditions++) {
        const json_t *c = json_array_get(conditions, d.n_conditions);
        Claimpb__Condition *to = list[d.n_conditions] = &condition[d.n_conditions];
        claimpb__condition__init(to);
        claimpb__time__init(&when[d.n_conditions]);
        when[d.n_conditions].seconds = seconds_of(text_of(c, "lastTransitionTime"));
        to->type = text_of(c, "type");
        to->status = text_of(c, "status");
        to->last_transition_time = &when[d.n_conditions];
        to->reason = text_of(c, "reason");
        to->message = text_of(c, "message");
    }
    char *text = raw ? sl_json_dump(raw, JSON_COMPACT) : NULL;
    if (text) {
        data.raw = (ProtobufCBinaryData){.data = (uint8_t *)text, .len = strlen(text)};
        d.data = &data;
    }
    ret->data = pack(&d.base, 0, &ret->len);
    free(text);
}

/* -EBADMSG: not a device. */
static int is_of(const ProtobufCBinaryData *device, const char *driver, bool *ret,
                 struct sl_err *err)
{
    ProtobufCMessage *m;
    int rc = sl_rpc_pb_unpack(&claimpb__device__descriptor, device->data, device->len, &m, err);
    if (rc < 0)
        return rc;
    *ret = strcmp(((const Claimpb__Device *)(const void *)m)->driver, driver) == 0;
    sl_rpc_pb_free(m);
    return 0;
}

/* Replaces the devices of the driver. */
static int put_devices(Claimpb__Status *status, const char *driver, const json_t *devices,
                       struct sl_err *err)
{
    size_t kept = 0, ours = json_array_size(devices);
    int rc = 0;
    for (size_t i = 0; i < status->n_devices; i++) {
        bool replaced = false;
        if (rc == 0)
            rc = is_of(&status->devices[i], driver, &replaced, err);
        if (replaced)
            free(status->devices[i].data);
        else
            status->devices[kept++] = status->devices[i];
    }
    status->n_devices = kept;
    status->devices = sl_xreallocarray(status->devices, kept + ours + 1, sizeof(*status->devices));
    for (size_t i = 0; i < ours && rc == 0; i++)
        pack_device(json_array_get(devices, i), &status->devices[status->n_devices++]);
    return rc;
}

/* Puts the claim back into its envelope. */
static int replace(Claimpb__Envelope *envelope, const char *uid, const char *driver,
                   const json_t *devices, struct sl_err *err)
{
    ProtobufCMessage *m;
    int rc = sl_rpc_pb_unpack(&claimpb__claim__descriptor, envelope->raw.data, envelope->raw.len,
                              &m, err);
    if (rc < 0)
        return rc;
    Claimpb__Claim *claim = (Claimpb__Claim *)(void *)m;
    if (!claim->status)
        claim->status = sl_rpc_pb_new(&claimpb__status__descriptor);
    if (!claim->metadata || strcmp(claim->metadata->uid, uid) != 0)
        rc = sl_err_set(err, -ESTALE, SL_E_CLAIM_CHANGED);
    else
        rc = put_devices(claim->status, driver, devices, err);
    if (rc == 0) {
        free(envelope->raw.data);
        envelope->raw.data = pack(m, 0, &envelope->raw.len);
    }
    sl_rpc_pb_free(m);
    return rc;
}

int sl_claim_pb_devices(const uint8_t *object, size_t size, const char *uid, const char *driver,
                        const json_t *devices, uint8_t **ret, size_t *ret_size, struct sl_err *err)
{
    ProtobufCMessage *m;
    if (size < sizeof(magic) || memcmp(object, magic, sizeof(magic)) != 0)
        return sl_err_set(err, -EBADMSG, SL_E_CLAIM_NOT_PROTOBUF);
    int rc = sl_rpc_pb_unpack(&claimpb__envelope__descriptor, object + sizeof(magic),
                              size - sizeof(magic), &m, err);
    if (rc < 0)
        return rc;
    rc = replace((Claimpb__Envelope *)(void *)m, uid, driver, devices, err);
    if (rc == 0) {
        *ret = pack(m, sizeof(magic), ret_size);
        memcpy(*ret, magic, sizeof(magic));
    }
    sl_rpc_pb_free(m);
    return rc;
}
