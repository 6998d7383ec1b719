/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice forget`: ends the promise to a tenant that nobody uses and whose maker does not end it. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "cli/change.h"
#include "cli/errors.h"
#include "cli/status_words.h"

static uint64_t promised(const struct sl_msg_tenant *t)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->gpu_count; i++)
        sum += t->gpu[i].limit_bytes == SL_NO_LIMIT ? 0 : t->gpu[i].limit_bytes;
    return sum;
}

/* Only what an agent promised to a pod: a command's promise ends with the command, and a lease is deleted. */
static int check(const struct sl_msg_tenant *t, struct sl_err *err)
{
    char pod[256];
    if (!(t->flags & SL_LEASE_KEEP))
        return sl_err_set(err, -EBUSY, SL_E_FORGET_COMMAND, t->name);
    if (!sl_client_about(t->about, "pod", pod, sizeof(pod)))
        return sl_err_set(err, -EINVAL, SL_E_FORGET_LEASE, t->name, t->name);
    if (t->processes)
        return sl_err_set(err, -EBUSY, SL_E_FORGET_USED, t->name, t->processes, t->name);
    return 0;
}

static int forget(int fd, const char *name, struct sl_err *err)
{
    struct sl_client_status status = {0};
    char space[64] = "", pod[256] = "", bytes[32];
    int rc = sl_client_status(fd, &status, err);
    const struct sl_msg_tenant *t = rc == 0 ? sl_status_tenant(&status, name) : NULL;
    if (t)
        rc = check(t, err);
    if (rc == 0)
        rc = sl_client_remove(fd, name, err); /* of no such tenant: its own words */
    if (rc == 0 && t) {
        (void)sl_client_about(t->about, "namespace", space, sizeof(space));
        (void)sl_client_about(t->about, "pod", pod, sizeof(pod));
        (void)printf("%s: forgotten; %s of GPU memory were promised to pod %s/%s\n", name,
                     sl_format_bytes(promised(t), bytes, sizeof(bytes)), space, pod);
    }
    sl_client_status_free(&status);
    return rc;
}

int sl_cmd_forget(const struct sl_cli_args *args)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_world world;
    if (!sl_change_named(args, "sluice forget NAME"))
        return SL_EXIT_USAGE;
    int rc = sl_world_find(args, &world, &err);
    SL_CLEANUP(close) int fd = rc < 0 ? rc : sl_client_connect(&world.place, &err);
    if (fd < 0 || forget(fd, args->rest[0], &err) < 0) {
        sl_cli_complain("forget: %s", err.msg);
        return SL_EXIT_FAILED;
    }
    return sl_cli_finish(SL_EXIT_OK);
}
