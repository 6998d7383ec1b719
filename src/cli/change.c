/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/change.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "cli/errors.h"
#include "cli/status_words.h"

bool sl_change_named(const struct sl_cli_args *args, const char *usage)
{
    if (args->rest_count > 1)
        sl_cli_complain(SL_E_CHANGE_TWO_NAMES, args->verb->name, usage);
    else if (args->rest_count == 0)
        sl_cli_complain(SL_E_CHANGE_NO_NAME, args->verb->name, usage);
    return args->rest_count == 1;
}

/* "memory=8Gi,cores=20", as the resize annotation has it; what is not changed is not named. */
static const char *resize_text(const struct sl_msg_lease *lease, char *buf, size_t size)
{
    char memory[32] = "", cores[24] = "";
    if (lease->fields & SL_FIELD_MEMORY)
        (void)snprintf(memory, sizeof(memory), "%lluMi",
                       (unsigned long long)(lease->memory_bytes >> 20));
    if (lease->memory_percent)
        (void)snprintf(memory, sizeof(memory), "AMOUNT");
    if (lease->fields & SL_FIELD_CORES)
        (void)sl_format_cores(lease->cores_request_permille, lease->cores_limit_permille, cores,
                              sizeof(cores));
    (void)snprintf(buf, size, "%s%s%s%s%s", memory[0] ? "memory=" : "", memory,
                   memory[0] && cores[0] ? "," : "", cores[0] ? "cores=" : "", cores);
    return buf;
}

/* The amounts of a pod that sluice-controller placed are in its books: changed here alone, they would be promised to
 * other pods too. */
static int check_books(const struct sl_msg_tenant *t, const struct sl_msg_lease *lease,
                       struct sl_err *err)
{
    char space[64], pod[254], text[96];
    if (!t || !(lease->fields & (SL_FIELD_MEMORY | SL_FIELD_CORES)) ||
        !sl_client_about(t->about, "slot", NULL, 0) ||
        !sl_client_about(t->about, "namespace", space, sizeof(space)) ||
        !sl_client_about(t->about, "pod", pod, sizeof(pod)))
        return 0;
    return sl_err_set(err, -EPERM, SL_E_SET_PROMISED, lease->name, space, pod, space, pod,
                      resize_text(lease, text, sizeof(text)));
}

static int change(int fd, const struct sl_msg_lease *lease, sl_change_report report,
                  struct sl_err *err)
{
    struct sl_client_status before = {0}, after = {0};
    struct sl_msg_text remark;
    int rc = sl_client_status(fd, &before, err);
    if (rc == 0)
        rc = check_books(sl_status_tenant(&before, lease->name), lease, err);
    if (rc == 0)
        rc = sl_client_set(fd, lease, &remark, err);
    if (rc == 0)
        rc = sl_client_status(fd, &after, err);
    if (rc == 0) {
        const struct sl_msg_tenant *old = sl_status_tenant(&before, lease->name);
        const struct sl_msg_tenant *now = sl_status_tenant(&after, lease->name);
        if (old && now)
            rc = report(old, now, lease->fields, err);
        else
            (void)printf("%s: changed\n", lease->name);
        if (rc == 0 && remark.text[0])
            (void)printf("%s\n", remark.text);
    }
    sl_client_status_free(&before);
    sl_client_status_free(&after);
    return rc;
}

int sl_change(const struct sl_cli_args *args, struct sl_msg_lease *lease, sl_change_report report)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_world world;
    const char *name = args->rest[0], *verb = args->verb->name;
    if (strlen(name) >= sizeof(lease->name)) {
        sl_cli_complain(SL_E_CHANGE_NAME_LONG, verb, name);
        return SL_EXIT_FAILED;
    }
    memcpy(lease->name, name, strlen(name) + 1);
    int rc = sl_world_find(args, &world, &err);
    SL_CLEANUP(close) int fd = rc < 0 ? rc : sl_client_connect(&world.place, &err);
    if (fd == -ENOENT) {
        struct sl_err why = err;
        (void)sl_err_set(&err, fd, SL_E_TENANT_NO_ARBITER, why.msg, name);
    }
    if (fd < 0 || change(fd, lease, report, &err) < 0)
        sl_cli_complain("%s: %s", verb, err.msg);
    else
        return sl_cli_finish(SL_EXIT_OK);
    return SL_EXIT_FAILED;
}
