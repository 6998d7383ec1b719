/* SPDX-License-Identifier: Apache-2.0 */
/* One spec a slot, and what specs of claims and of slots have in common as files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/container/cdi_internal.h"
#include "agent/container/errors.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/xalloc.h"

#define SLOT_PREFIX "k8s.gpu.sluice.io-slot_"

int sl_cdi_remove_file(const char *dir, const char *file, struct sl_err *err)
{
    SL_CLEANUP(close) int dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dirfd >= 0 && unlinkat(dirfd, file, 0) == 0)
        return 0;
    return errno == ENOENT ? 0 : sl_err_errno(err, errno, "cannot remove %s/%s", dir, file);
}

static bool is_ours(const char *name, const char *prefix)
{
    size_t n = strlen(name), fixed = strlen(prefix) + strlen(CDI_SUFFIX);
    return n > fixed && strncmp(name, prefix, strlen(prefix)) == 0 &&
           strcmp(name + n - strlen(CDI_SUFFIX), CDI_SUFFIX) == 0;
}

int sl_cdi_list_files(const char *dir, const char *prefix, char ***ret, size_t *ret_count,
                      struct sl_err *err)
{
    struct dirent **found = NULL;
    int count = scandir(dir, &found, NULL, alphasort);
    if (count < 0 && errno != ENOENT)
        return sl_err_errno(err, errno, "cannot list %s", dir);
    size_t n = count < 0 ? 0 : (size_t)count, done = 0;
    char **names = sl_xcalloc(n + 1, sizeof(*names));
    for (size_t i = 0; i < n; i++) {
        const char *name = found[i]->d_name;
        if (is_ours(name, prefix))
            names[done++] = sl_xstrndup(name + strlen(prefix),
                                        strlen(name) - strlen(prefix) - strlen(CDI_SUFFIX));
        free(found[i]);
    }
    free(found);
    *ret = names;
    *ret_count = done;
    return 0;
}

/* The slot goes into a file's name: nothing in it may lead elsewhere. */
static int slot_file(const char *slot, char buf[NAME_MAX + 1], struct sl_err *err)
{
    if (!sl_cdi_name_valid(slot) || strlen(slot) > 128)
        return sl_err_set(err, -EINVAL, SL_E_CDI_SLOT_NAME, slot);
    (void)snprintf(buf, NAME_MAX + 1, SLOT_PREFIX "%s" CDI_SUFFIX, slot);
    return 0;
}

int sl_cdi_slot_name(const char *slot, char *buf, size_t size, struct sl_err *err)
{
    if (!sl_cdi_name_valid(slot))
        return sl_err_set(err, -EINVAL, SL_E_CDI_SLOT_NAME, slot);
    if ((size_t)snprintf(buf, size, "%s=%s", SL_CDI_SLOT_KIND, slot) >= size)
        return sl_err_set(err, -ENAMETOOLONG, SL_E_CDI_NAME_LONG, slot);
    return 0;
}

int sl_cdi_write_slot(const char *dir, const char *slot, const struct sl_edits *edits,
                      struct sl_err *err)
{
    char file[NAME_MAX + 1];
    int rc = slot_file(slot, file, err);
    if (rc < 0)
        return rc;
    SL_CLEANUP(json) json_t *spec = sl_cdi_spec_new(SL_CDI_SLOT_KIND);
    rc = sl_cdi_spec_device(spec, slot, edits, err);
    SL_FAULT("cdi.slot.made");
    if (rc == 0)
        rc = sl_cdi_spec_write(dir, file, spec, NULL, err);
    SL_FAULT("cdi.slot.written");
    return rc;
}

int sl_cdi_remove_slot(const char *dir, const char *slot, struct sl_err *err)
{
    char file[NAME_MAX + 1];
    int rc = slot_file(slot, file, err);
    if (rc == 0)
        rc = sl_cdi_remove_file(dir, file, err);
    SL_FAULT("cdi.slot.removed");
    return rc;
}

int sl_cdi_list_slots(const char *dir, char ***ret, size_t *ret_count, struct sl_err *err)
{
    return sl_cdi_list_files(dir, SLOT_PREFIX, ret, ret_count, err);
}
