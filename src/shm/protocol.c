/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/protocol.h"

#include <errno.h>

#include "shm/errors.h"

#define OLDEST_SHIFT 16
#define NUMBER_MASK  0xffffU

uint32_t sl_protocols_told(struct sl_protocols p)
{
    return p.oldest << OLDEST_SHIFT | p.newest;
}

struct sl_protocols sl_protocols_heard(uint32_t option)
{
    struct sl_protocols p = {option >> OLDEST_SHIFT, option & NUMBER_MASK};
    if (p.newest == 0)
        return (struct sl_protocols){1, 1};
    if (p.oldest == 0 || p.oldest > p.newest)
        p.oldest = p.newest;
    return p;
}

int sl_protocol_agree(struct sl_protocols arbiter, struct sl_protocols process, uint32_t *ret,
                      struct sl_err *err)
{
    uint32_t both = process.newest < arbiter.newest ? process.newest : arbiter.newest;
    if (both < arbiter.oldest)
        return sl_err_set(err, -EPROTONOSUPPORT, SL_E_PROTOCOL_TOO_OLD, process.newest,
                          arbiter.oldest, arbiter.newest);
    if (both < process.oldest)
        return sl_err_set(err, -EPROTONOSUPPORT, SL_E_PROTOCOL_TOO_NEW, process.oldest,
                          process.newest, arbiter.newest);
    *ret = both;
    return 0;
}

int sl_protocol_accept(struct sl_protocols process, uint32_t option, uint32_t *ret,
                       struct sl_err *err)
{
    uint32_t chosen = option ? option : 1; /* an arbiter that tells nothing */
    if (chosen < process.oldest || chosen > process.newest)
        return sl_err_set(err, -EPROTONOSUPPORT, SL_E_PROTOCOL_ARBITER, chosen, process.oldest,
                          process.newest);
    *ret = chosen;
    return 0;
}
