/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/limits.h"

struct sl_limits sl_limits_none(void)
{
    struct sl_limits l;
    for (int k = 0; k < SL_LIMITS; k++)
        l.of[k] = (struct sl_limit){SL_LIMIT_NONE, 0};
    return l;
}

void sl_limits_lay(struct sl_limits *base, const struct sl_limits *over)
{
    for (int k = 0; k < SL_LIMITS; k++)
        if (over->of[k].line)
            base->of[k] = over->of[k];
}

struct sl_limits_verdict sl_limits_check(const struct sl_limits *limits,
                                         const struct sl_limits_use *others,
                                         const struct sl_limits_use *before,
                                         const struct sl_limits_use *asked)
{
    struct sl_limits_verdict later = {.answer = SL_LIMITS_FINE};
    for (int k = 0; k < SL_LIMITS; k++) {
        uint64_t most = limits->of[k].most, want = asked->of[k];
        uint64_t used = k == SL_LIMIT_PRIORITY ? 0 : others->of[k];
        if (most == SL_LIMIT_NONE || want <= before->of[k] || (want <= most && used <= most - want))
            continue;
        struct sl_limits_verdict v = {.answer = want > most ? SL_LIMITS_NEVER : SL_LIMITS_LATER,
                                      .kind = (enum sl_limit_kind)k,
                                      .limit = limits->of[k],
                                      .used = used,
                                      .asked = want};
        if (v.answer == SL_LIMITS_NEVER) /* no end of another tenant helps */
            return v;
        if (later.answer == SL_LIMITS_FINE)
            later = v;
    }
    return later;
}
