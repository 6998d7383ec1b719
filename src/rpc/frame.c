/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/frame.h"

#include "rpc/errors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int prefix_complete(struct sl_rpc_reader *r, struct sl_err *err)
{
    const uint8_t *p = r->prefix;
    if (p[0] == 1)
        return sl_err_set(err, -EOPNOTSUPP, SL_E_RPC_COMPRESSED);
    if (p[0] != 0)
        return sl_err_set(err, -EPROTO, SL_E_RPC_FLAG, p[0]);
    r->want = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
    if (r->want > r->max_bytes)
        return sl_err_set(err, -EMSGSIZE, SL_E_RPC_RECEIVED_LARGE, r->want, r->max_bytes);
    return 0;
}

static int make_room(struct sl_rpc_reader *r, size_t arriving, struct sl_err *err)
{
    size_t need = r->have + arriving;
    if (need <= r->capacity)
        return 0;
    size_t grown = r->capacity * 2 > need ? r->capacity * 2 : need;
    if (grown > r->want)
        grown = r->want;
    uint8_t *body = realloc(r->body, grown);
    if (!body)
        return sl_err_set(err, -ENOMEM, "out of memory for a message of %" PRIu32 " bytes",
                          r->want);
    r->body = body;
    r->capacity = grown;
    return 0;
}

int sl_rpc_reader_feed(struct sl_rpc_reader *r, const uint8_t **data, size_t *size,
                       struct sl_err *err)
{
    while (*size > 0 && r->prefix_have < SL_RPC_PREFIX) {
        r->prefix[r->prefix_have++] = *(*data)++;
        (*size)--;
        if (r->prefix_have == SL_RPC_PREFIX) {
            int rc = prefix_complete(r, err);
            if (rc < 0)
                return rc;
        }
    }
    if (r->prefix_have < SL_RPC_PREFIX)
        return 0;

    size_t take = r->want - r->have;
    if (take > *size)
        take = *size;
    if (take > 0) {
        int rc = make_room(r, take, err);
        if (rc < 0)
            return rc;
        memcpy(r->body + r->have, *data, take);
        r->have += take;
        *data += take;
        *size -= take;
    }
    return r->have == r->want ? 1 : 0;
}

void sl_rpc_reader_next(struct sl_rpc_reader *r)
{
    free(r->body);
    *r = (struct sl_rpc_reader){.max_bytes = r->max_bytes};
}

bool sl_rpc_reader_idle(const struct sl_rpc_reader *r)
{
    return r->prefix_have == 0;
}

void sl_rpc_prefix_write(uint8_t prefix[SL_RPC_PREFIX], uint32_t size)
{
    prefix[0] = 0;
    prefix[1] = (uint8_t)(size >> 24);
    prefix[2] = (uint8_t)(size >> 16);
    prefix[3] = (uint8_t)(size >> 8);
    prefix[4] = (uint8_t)size;
}
