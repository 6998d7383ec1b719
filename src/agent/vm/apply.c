/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/vm/apply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/vm/errors.h"
#include "base/cleanup.h"

/* The kernel opens a group for one user at a time. kubelet does not know of machines that were started by hand. */
static int check_free(const char *root, const struct sl_vgpu_step *step, struct sl_err *err)
{
    char path[4300];
    if (step->group == SL_NO_GROUP)
        return 0;
    (void)snprintf(path, sizeof(path), "%s/dev/vfio/%d", root, step->group);
    SL_CLEANUP(close) int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 || errno == ENOENT)
        return 0;
    int cause = errno;
    return sl_err_set(err, -cause, SL_E_VGPU_GROUP, step->id, strerror(cause));
}

static int write_text(const char *path, const char *text)
{
    SL_CLEANUP(close) int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    size_t size = strlen(text);
    if (fd < 0)
        return -errno;
    ssize_t n = write(fd, text, size);
    return n < 0 ? -errno : (size_t)n < size ? -EIO : 0;
}

int sl_vgpu_apply(const char *root, const struct sl_vgpu_step *step, struct sl_err *err)
{
    char path[4300];
    root = strcmp(root, "/") == 0 ? "" : root;
    int rc = step->kind == SL_VGPU_REMOVE ? check_free(root, step, err) : 0;
    if (rc < 0)
        return rc;
    (void)snprintf(path, sizeof(path), "%s/%s", root, step->file);
    rc = write_text(path, step->text);
    if (rc < 0)
        return sl_err_errno(err, -rc, SL_E_VGPU_WRITE, step->file, step->type, step->id,
                            step->card);
    return 0;
}
