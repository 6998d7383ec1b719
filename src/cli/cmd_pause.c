/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice pause` and `sluice resume`. */
#include <errno.h>
#include <string.h>

#include "base/units.h"
#include "cli/change.h"
#include "cli/errors.h"

static uint64_t memory_of(const struct sl_msg_tenant *t)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->gpu_count; i++)
        sum += t->gpu[i].used_bytes + t->gpu[i].overhead_bytes;
    return sum;
}

static int say_paused(const struct sl_msg_tenant *old, const struct sl_msg_tenant *now,
                      uint32_t fields, struct sl_err *err)
{
    char held[32];
    (void)fields;
    if (!(now->flags & SL_LEASE_PAUSED))
        return sl_err_set(err, -ENOTSUP, SL_E_PAUSE_OLD_ARBITER);
    if (old->flags & SL_LEASE_PAUSED)
        (void)printf("%s: is paused already\n", now->name);
    else
        (void)printf("%s: paused; it keeps %s of GPU memory\n", now->name,
                     sl_format_bytes(memory_of(now), held, sizeof(held)));
    return 0;
}

static int say_resumed(const struct sl_msg_tenant *old, const struct sl_msg_tenant *now,
                       uint32_t fields, struct sl_err *err)
{
    (void)fields;
    (void)err;
    (void)printf(old->flags & SL_LEASE_PAUSED ? "%s: goes on\n" : "%s: is not paused\n", now->name);
    return 0;
}

int sl_cmd_pause(const struct sl_cli_args *args)
{
    struct sl_msg_lease lease = {.fields = SL_FIELD_PAUSE, .flags = SL_LEASE_PAUSED};
    if (!sl_change_named(args, "sluice pause NAME"))
        return SL_EXIT_USAGE;
    return sl_change(args, &lease, say_paused);
}

int sl_cmd_resume(const struct sl_cli_args *args)
{
    struct sl_msg_lease lease = {.fields = SL_FIELD_PAUSE};
    if (!sl_change_named(args, "sluice resume NAME"))
        return SL_EXIT_USAGE;
    return sl_change(args, &lease, say_resumed);
}
