/* SPDX-License-Identifier: Apache-2.0 */
#include "base/units.h"
#include "cli/change.h"
#include "cli/errors.h"
#include "share/share.h"

static const char *memory_text(uint64_t bytes, char *buf, size_t size)
{
    if (bytes == SL_NO_LIMIT)
        (void)snprintf(buf, size, "no limit");
    else
        (void)sl_format_bytes(bytes, buf, size);
    return buf;
}

static const char *cores_text(const struct sl_msg_tenant *t, char *buf, size_t size)
{
    if (t->cores_request_permille == 0) {
        (void)snprintf(buf, size, "nothing asked");
        return buf;
    }
    char share[24];
    (void)snprintf(
        buf, size, "%s%%",
        sl_format_cores(t->cores_request_permille, t->cores_limit_permille, share, sizeof(share)));
    return buf;
}

/* One line that names the changes, or says that there are none. */
static int print_changes(const struct sl_msg_tenant *old, const struct sl_msg_tenant *now,
                         uint32_t fields, struct sl_err *err)
{
    char a[40], b[40];
    (void)err;
    if (fields & SL_FIELD_MEMORY) {
        bool same =
            true; /* one limit for all its GPUs, unless it is a percentage of unlike cards */
        for (uint32_t i = 1; i < now->gpu_count; i++)
            same = same && now->gpu[i].limit_bytes == now->gpu[0].limit_bytes &&
                   old->gpu[i].limit_bytes == old->gpu[0].limit_bytes;
        for (uint32_t i = 0; i < now->gpu_count && (i == 0 || !same); i++)
            (void)printf("%s: memory %s -> %s%s%s\n", now->name,
                         memory_text(old->gpu[i].limit_bytes, a, sizeof(a)),
                         memory_text(now->gpu[i].limit_bytes, b, sizeof(b)), same ? "" : " on ",
                         same ? "" : now->gpu[i].uuid);
    }
    if (fields & SL_FIELD_CORES)
        (void)printf("%s: cores %s -> %s\n", now->name, cores_text(old, a, sizeof(a)),
                     cores_text(now, b, sizeof(b)));
    if (fields & SL_FIELD_PRIORITY)
        (void)printf("%s: priority %s -> %s\n", now->name, sl_priority_name(old->priority),
                     sl_priority_name(now->priority));
    return 0;
}

int sl_cmd_set(const struct sl_cli_args *args)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_msg_lease lease;
    if (!sl_change_named(args, "sluice set NAME --memory AMOUNT"))
        return SL_EXIT_USAGE;
    int rc = sl_world_lease(args, &lease, &err);
    if (rc < 0 || lease.fields == 0) {
        if (rc < 0)
            sl_cli_complain("set: %s", err.msg);
        else
            sl_cli_complain(SL_E_SET_NOTHING);
        return SL_EXIT_USAGE;
    }
    return sl_change(args, &lease, print_changes);
}
