/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tenant/allow.h"

#include <errno.h>

#include "agent/tenant/errors.h"
#include "share/share.h"

int sl_allow_priority(const char *what, const char *name_space, unsigned asked, unsigned highest,
                      struct sl_err *err)
{
    if (asked <= highest)
        return 0;
    return sl_err_set(err, -EPERM, SL_E_ALLOW_PRIORITY, what, sl_priority_name(asked), name_space,
                      sl_priority_name(highest), SL_ALLOW_ASK_WHOM);
}

int sl_allow_burst(const char *what, const char *name_space, uint32_t asked_permille,
                   uint32_t highest_permille, struct sl_err *err)
{
    if (asked_permille <= highest_permille)
        return 0;
    return sl_err_set(err, -EPERM, SL_E_ALLOW_BURST, what, asked_permille / 10, name_space,
                      highest_permille / 10, SL_ALLOW_ASK_WHOM);
}

int sl_allow_lease(const struct sl_config *config, const char *name_space, unsigned priority,
                   uint32_t request_permille, uint32_t limit_permille, struct sl_err *err)
{
    struct sl_config_allow allow = sl_config_allowed(config, name_space);
    uint32_t furthest = allow.burst * 10 > request_permille ? allow.burst * 10 : request_permille;
    int rc = sl_allow_priority("the pod", name_space, priority, allow.priority, err);
    if (rc == 0)
        rc = sl_allow_burst("the pod", name_space, limit_permille, furthest, err);
    return rc;
}
