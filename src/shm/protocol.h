/* SPDX-License-Identifier: Apache-2.0 */
/* Which protocol two builds of Sluice speak with each other: the rule stands in include/sluice/attach.h. */
#ifndef SLUICE_SHM_PROTOCOL_H
#define SLUICE_SHM_PROTOCOL_H

#include <stdint.h>

#include "base/err.h"
#include "sluice/attach.h"

/* The protocols of one side: all from `oldest` to `newest`. */
struct sl_protocols {
    uint32_t oldest, newest;
};

#define SL_PROTOCOLS_OWN ((struct sl_protocols){SL_PROTOCOL_OLDEST, SL_PROTOCOL})

/* As `option` of HELLO has them. A process that tells nothing knows protocol 1. */
uint32_t sl_protocols_told(struct sl_protocols p);
struct sl_protocols sl_protocols_heard(uint32_t option);

/* The arbiter's side: the newest that both know, or -EPROTONOSUPPORT with a sentence for the process. */
int sl_protocol_agree(struct sl_protocols arbiter, struct sl_protocols process, uint32_t *ret,
                      struct sl_err *err) SL_MUST_CHECK;

/* The process's side: the one in `option` of WELCOME, or -EPROTONOSUPPORT with a sentence. */
int sl_protocol_accept(struct sl_protocols process, uint32_t option, uint32_t *ret,
                       struct sl_err *err) SL_MUST_CHECK;

#endif
