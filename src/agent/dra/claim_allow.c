/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/dra/dra_internal.h"

#include <errno.h>

#include "agent/dra/errors.h"
#include "agent/tenant/allow.h"
#include "base/units.h"

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The administrator wrote the class; only the claim's additions are checked. */
static int check_result(const struct sl_config_allow *allow, const char *name_space,
                        struct sl_claim_result *r, struct sl_err *err)
{
    const struct sl_share *s = &r->share, *class = &r->by_class;
    char what[80];
    (void)snprintf(what, sizeof(what), "request %s", r->request);
    if (s->strategy != class->strategy && !(allow->strategies & 1u << s->strategy))
        return sl_err_set(err, -EPERM, SL_E_ALLOW_STRATEGY, r->request,
                          sl_strategy_words[s->strategy], name_space, SL_ALLOW_ASK_WHOM);
    if (s->compute != class->compute) /* it changes all tenants of the GPU */
        return sl_err_set(err, -EPERM, SL_E_ALLOW_COMPUTE, r->request,
                          sl_compute_words[s->compute]);
    unsigned highest = larger(allow->priority, class->priority);
    int rc = sl_allow_priority(what, name_space, s->priority, highest, err);
    uint32_t furthest = larger(larger(allow->burst * 10, class->limit_permille), s->cores_permille);
    if (rc == 0 && r->idle)
        r->share.limit_permille = furthest;
    else if (rc == 0)
        rc = sl_allow_burst(what, name_space, s->limit_permille, furthest, err);
    return rc;
}

int sl_allow_claim(const struct sl_config *config, struct sl_claim *claim, struct sl_err *err)
{
    for (size_t i = 0; i < claim->result_count; i++) {
        struct sl_claim_result *r = &claim->result[i];
        struct sl_config_allow allow = sl_config_allowed(config, claim->name_space);
        if (r->name.kind != SL_DEVICE_SHARE || r->admin)
            continue;
        sl_config_allow_add(&allow, &r->allow);
        int rc = check_result(&allow, claim->name_space, r, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

struct sl_config_allow sl_allow_resizes(const struct sl_config *config,
                                        const struct sl_claim *claim)
{
    struct sl_config_allow least = sl_config_allowed(config, claim->name_space);
    bool first = true;
    for (size_t i = 0; i < claim->result_count; i++) {
        struct sl_config_allow one = sl_config_allowed(config, claim->name_space);
        if (claim->result[i].name.kind != SL_DEVICE_SHARE || claim->result[i].admin)
            continue;
        sl_config_allow_add(&one, &claim->result[i].allow);
        if (first || one.resize < least.resize)
            least.resize = one.resize;
        if (first || one.resize_to < least.resize_to)
            least.resize_to = one.resize_to;
        if (first || one.burst < least.burst)
            least.burst = one.burst;
        first = false;
    }
    return least;
}

int sl_allow_resize(const struct sl_config_allow *allow, const struct sl_prepared_device *device,
                    const struct sl_resize *wanted, uint64_t card_bytes, struct sl_err *err)
{
    bool asks = wanted->memory_bytes || wanted->cores_permille;
    bool beyond = allow->resize == SL_ALLOW_FREE;
    uint64_t memory = beyond ? card_bytes / 100 * allow->resize_to : 0;
    uint32_t cores = beyond ? allow->resize_to * 10 : 0;
    char most[32];
    if (asks && allow->resize == SL_ALLOW_NEVER)
        return sl_err_set(err, -EPERM, SL_E_RESIZE_OFF, SL_ALLOW_ASK_WHOM);
    if (memory < device->share.memory_bytes)
        memory = device->share.memory_bytes;
    if (wanted->memory_bytes > memory)
        return sl_err_set(
            err, -EPERM, SL_E_RESIZE_MEMORY, sl_format_bytes(memory, most, sizeof(most)),
            beyond ? "the limit of resizes" : "the amount that was allocated", SL_ALLOW_ASK_WHOM);
    cores = larger(cores, device->share.cores_permille);
    if (wanted->cores_permille > cores)
        return sl_err_set(err, -EPERM, SL_E_RESIZE_CORES, cores / 10,
                          beyond ? "the limit of resizes" : "the amount that was allocated",
                          SL_ALLOW_ASK_WHOM);
    uint32_t limit = larger(larger(cores, allow->burst * 10), device->share.limit_permille);
    if (wanted->limit_permille > limit)
        return sl_err_set(err, -EPERM, SL_E_RESIZE_LIMIT, limit / 10, SL_ALLOW_ASK_WHOM);
    return 0;
}
