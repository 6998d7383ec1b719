/* SPDX-License-Identifier: Apache-2.0 */
/* A CDI spec as JSON: what is in it, and how it gets on disk. */
#include "agent/container/cdi.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/container/cdi_internal.h"
#include "agent/container/errors.h"
#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/json_dump.h"

#define CDI_VERSION                                                                                \
    "0.6.0" /* what containerd 1.7 and CRI-O 1.28 know; nothing here needs a later one */

#define LIBRARY_FILE      "libsluice.so"
#define LIBRARY_MAX_BYTES (16u << 20)
#define PRELOAD_FILE      "ld.so.preload"

bool sl_cdi_name_valid(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || !isalnum((unsigned char)name[0]) || !isalnum((unsigned char)name[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)name[i]) && !strchr("_-.:", name[i]))
            return false;
    }
    return true;
}

/* Appends item (whose reference it takes) to object[key], making the array. */
static int append(json_t *object, const char *key, json_t *item, struct sl_err *err)
{
    json_t *list = json_object_get(object, key);
    if (!list)
        json_object_set_new(object, key, list = json_array());
    if (!item)
        return sl_err_set(err, -EINVAL, SL_E_CDI_UTF8);
    json_array_append_new(list, item);
    return 0;
}

static json_t *node_json(const struct sl_edit_node *n)
{
    if (n->numbered)
        return json_pack("{s:s, s:s, s:s, s:I, s:I, s:s}", "path", n->container, "hostPath",
                         n->host, "type", "c", "major", (json_int_t)n->major, "minor",
                         (json_int_t)n->minor, "permissions", "rw");
    return json_pack("{s:s, s:s, s:s}", "path", n->container, "hostPath", n->host, "permissions",
                     "rw");
}

/* rprivate: what the host mounts later below a directory stays the host's. */
static json_t *mount_json(const struct sl_edit_mount *m)
{
    return json_pack("{s:s, s:s, s:[s,s,s,s,s]}", "hostPath", m->host, "containerPath",
                     m->container, "options", m->read_only ? "ro" : "rw", "nosuid", "nodev",
                     "rbind", "rprivate");
}

static int edits_json(const struct sl_edits *e, json_t **ret, struct sl_err *err)
{
    SL_CLEANUP(json) json_t *edits = json_object();
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < e->env_count; i++)
        rc = append(edits, "env", json_sprintf("%s=%s", e->env[i].name, e->env[i].value), err);
    for (size_t i = 0; rc == 0 && i < e->node_count; i++)
        rc = append(edits, "deviceNodes", node_json(&e->node[i]), err);
    for (size_t i = 0; rc == 0 && i < e->mount_count; i++)
        rc = append(edits, "mounts", mount_json(&e->mount[i]), err);
    if (rc == 0)
        *ret = sl_take_ptr(edits);
    return rc;
}

json_t *sl_cdi_spec_new(const char *kind)
{
    return json_pack("{s:s, s:s, s:[]}", "cdiVersion", CDI_VERSION, "kind", kind, "devices");
}

int sl_cdi_spec_device(json_t *spec, const char *name, const struct sl_edits *edits,
                       struct sl_err *err)
{
    json_t *devices = json_object_get(spec, "devices"), *device;
    size_t i;
    if (!sl_cdi_name_valid(name))
        return sl_err_set(err, -EINVAL, SL_E_CDI_NAME_BAD, name);
    json_array_foreach(devices, i, device)
    {
        if (strcmp(json_string_value(json_object_get(device, "name")), name) == 0)
            return sl_err_set(err, -EEXIST, SL_E_CDI_TWICE, name);
    }
    if (edits->env_count + edits->node_count + edits->mount_count == 0)
        return sl_err_set(err, -EINVAL, SL_E_CDI_EMPTY, name);
    json_t *json = NULL;
    int rc = edits_json(edits, &json, err);
    if (rc < 0)
        return rc;
    json_array_append_new(devices, json_pack("{s:s, s:o}", "name", name, "containerEdits", json));
    return 0;
}

int sl_cdi_spec_common(json_t *spec, const struct sl_edits *edits, struct sl_err *err)
{
    json_t *json = NULL;
    int rc = edits_json(edits, &json, err);
    if (rc == 0)
        json_object_set_new(spec, "containerEdits", json);
    return rc;
}

/* Writes dir/file unless it has these bytes already. */
static int put_file(const char *dir, const char *file, const void *data, size_t size, mode_t mode,
                    struct sl_err *err)
{
    int rc = sl_fs_mkdirs(dir, 0755, err);
    if (rc < 0)
        return rc;
    SL_CLEANUP(close) int dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dirfd < 0)
        return sl_err_errno(err, errno, "cannot open directory %s", dir);
    /* Runtimes read every spec again when one is touched: the same text is not written twice. */
    SL_CLEANUP(free) char *old = NULL;
    size_t old_size = 0;
    if (sl_fs_read(dirfd, file, size, &old, &old_size, NULL) == 0 && old_size == size &&
        memcmp(old, data, size) == 0)
        return 0;
    rc = sl_fs_replace(dirfd, file, data, size, mode, err);
    return rc < 0 ? sl_err_wrap(err, "in %s", dir) : 0;
}

int sl_cdi_spec_write(const char *dir, const char *file, const json_t *spec, struct sl_err *err)
{
    SL_CLEANUP(free) char *text = sl_json_dump(spec, JSON_INDENT(2));
    return put_file(dir, file, text, strlen(text), 0644, err);
}

/* --- libsluice, for containers that are held to a share --- */

int sl_cdi_install_sluice(const char *dir, const char *libsluice, struct sl_err *err)
{
    static const char preload[] = SL_CDI_LIBSLUICE "\n";
    SL_CLEANUP(free) char *library = NULL;
    size_t size = 0;
    int rc = sl_fs_read(AT_FDCWD, libsluice, LIBRARY_MAX_BYTES, &library, &size, err);
    if (rc == 0)
        rc = put_file(dir, LIBRARY_FILE, library, size, 0755, err);
    return rc < 0 ? rc : put_file(dir, PRELOAD_FILE, preload, strlen(preload), 0644, err);
}

int sl_cdi_sluice_edits(const char *dir_host, const char *attach_dir_host, struct sl_edits *edits,
                        struct sl_err *err)
{
    char library[PATH_MAX], preload[PATH_MAX];
    if ((size_t)snprintf(library, sizeof(library), "%s/" LIBRARY_FILE, dir_host) >=
            sizeof(library) ||
        (size_t)snprintf(preload, sizeof(preload), "%s/" PRELOAD_FILE, dir_host) >= sizeof(preload))
        return sl_err_set(err, -ENAMETOOLONG, SL_E_CDI_PATH_LONG, dir_host);
    sl_edits_mount(edits, library, SL_CDI_LIBSLUICE, true);
    sl_edits_mount(edits, preload, "/etc/ld.so.preload", true);
    sl_edits_mount(edits, attach_dir_host, SL_CDI_ATTACH_DIR, true);
    return 0;
}
