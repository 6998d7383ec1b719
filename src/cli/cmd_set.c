/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "cli/errors.h"
#include "cli/world.h"
#include "share/share.h"

static const struct sl_msg_tenant *find_tenant(const struct sl_client_status *s, const char *name)
{
    for (size_t i = 0; i < s->tenant_count; i++)
        if (strcmp(s->tenant[i].name, name) == 0)
            return &s->tenant[i];
    return NULL;
}

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

/* One line for what is different now, or that nothing is. */
static void print_changes(const struct sl_msg_tenant *old, const struct sl_msg_tenant *now,
                          uint32_t fields)
{
    char a[40], b[40];
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
}

static int change(int fd, const struct sl_msg_lease *lease, struct sl_err *err)
{
    struct sl_client_status before = {0}, after = {0};
    struct sl_msg_text remark;
    int rc = sl_client_status(fd, &before, err);
    if (rc == 0)
        rc = sl_client_set(fd, lease, &remark, err);
    if (rc == 0)
        rc = sl_client_status(fd, &after, err);
    if (rc == 0) {
        const struct sl_msg_tenant *old = find_tenant(&before, lease->name);
        const struct sl_msg_tenant *now = find_tenant(&after, lease->name);
        if (old && now)
            print_changes(old, now, lease->fields);
        else
            (void)printf("%s: changed\n", lease->name);
        if (remark.text[0])
            (void)printf("%s\n", remark.text);
    }
    sl_client_status_free(&before);
    sl_client_status_free(&after);
    return rc;
}

int sl_cmd_set(const struct sl_cli_args *args)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_world world;
    struct sl_msg_lease lease;
    if (args->rest_count != 1) {
        if (args->rest_count)
            sl_cli_complain(SL_E_SET_TWO_NAMES);
        else
            sl_cli_complain(SL_E_SET_NO_NAME);
        return SL_EXIT_USAGE;
    }
    int rc = sl_world_lease(args, &lease, &err);
    if (rc < 0 || lease.fields == 0) {
        if (rc < 0)
            sl_cli_complain("set: %s", err.msg);
        else
            sl_cli_complain(SL_E_SET_NOTHING);
        return SL_EXIT_USAGE;
    }
    const char *name = args->rest[0];
    if (strlen(name) >= sizeof(lease.name)) {
        sl_cli_complain(SL_E_SET_NAME_LONG, name);
        return SL_EXIT_FAILED;
    }
    memcpy(lease.name, name, strlen(name) + 1);
    rc = sl_world_find(args, &world, &err);
    SL_CLEANUP(close) int fd = rc < 0 ? rc : sl_client_connect(&world.place, &err);
    if (fd == -ENOENT)
        sl_cli_complain(SL_E_SET_NO_ARBITER, err.msg, name);
    else if (fd < 0 || change(fd, &lease, &err) < 0)
        sl_cli_complain("set: %s", err.msg);
    else
        return sl_cli_finish(SL_EXIT_OK);
    return SL_EXIT_FAILED;
}
