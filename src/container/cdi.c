/* SPDX-License-Identifier: Apache-2.0 */
/* CDI specs as JSON, and the specs the agent writes: the node's, the IMEX channel's, one a claim, one a slot. */
#include "container/cdi.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "container/errors.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fsutil.h"
#include "base/json_dump.h"
#include "base/xalloc.h"

#define CDI_VERSION "0.5.0" /* known to podman 4.3 and all later runtimes; enough for us */

/* The file names of NVIDIA's plugin: a node that used it has no second spec of the same kind. */
#define NODE_FILE "k8s.device-plugin.nvidia.com-gpu.json"
#define IMEX_FILE "k8s.device-plugin.nvidia.com-imex-channel.json"
#define SUFFIX    ".json"

#define LIBRARY_FILE      "libsluice.so"
#define LIBRARY_MAX_BYTES (16u << 20)
#define PRELOAD_FILE      "ld.so.preload"
#define SPEC_MAX_BYTES    (1u << 20)

static void sl_cleanup_json(json_t **j)
{
    json_decref(*j);
}

/* Is this a valid device name? */
static bool name_valid(const char *name)
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

/* Appends item (takes its reference) to object[key]; makes the array if necessary. */
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

/* rprivate: later mounts of the host below a directory do not appear in the container. */
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

/* A spec of that kind without devices. */
static json_t *spec_new(const char *kind)
{
    return json_pack("{s:s, s:s, s:[]}", "cdiVersion", CDI_VERSION, "kind", kind, "devices");
}

/* Device names must be unique, and each device needs an edit: otherwise runtimes refuse the whole file. */
static int spec_device(json_t *spec, const char *name, const struct sl_edits *edits,
                       struct sl_err *err)
{
    json_t *devices = json_object_get(spec, "devices"), *device;
    size_t i;
    if (!name_valid(name))
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

static int spec_common(json_t *spec, const struct sl_edits *edits, struct sl_err *err)
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
    /* Runtimes read all specs again after each write: do not write the same text again. */
    SL_CLEANUP(free) char *old = NULL;
    size_t old_size = 0;
    if (sl_fs_read(dirfd, file, size, &old, &old_size, NULL) == 0 && old_size == size &&
        memcmp(old, data, size) == 0)
        return 0;
    rc = sl_fs_replace(dirfd, file, data, size, mode, err);
    return rc < 0 ? sl_err_wrap(err, "in %s", dir) : 0;
}

static int spec_write(const char *dir, const char *file, const json_t *spec, struct sl_err *err)
{
    SL_CLEANUP(free) char *text = sl_json_dump(spec, JSON_INDENT(2));
    return put_file(dir, file, text, strlen(text), 0644, err);
}

/* --- the node's --- */

void sl_cdi_common_edits(const struct sl_driver *driver, struct sl_edits *edits)
{
    sl_edits_add(edits, &driver->nodes);
    sl_edits_add(edits, &driver->files);
    /* "void" tells NVIDIA's runtime, where it is the default runtime, that it has nothing to do. */
    sl_edits_env(edits, "NVIDIA_VISIBLE_DEVICES", "void");
}

int sl_cdi_device_edits(const struct sl_driver *driver, const struct sl_inventory *inv, size_t gpu,
                        size_t mig, struct sl_edits *edits, struct sl_err *err)
{
    if (gpu >= inv->gpu_count || (mig != SL_NO_MIG && mig >= inv->gpu[gpu].mig_count))
        return sl_err_set(err, -ENOENT, SL_E_CDI_GPU_GONE);
    const struct sl_inv_gpu *g = &inv->gpu[gpu];
    int rc = sl_driver_gpu_node(driver, g->info.minor, edits, err);
    if (rc == 0 && mig != SL_NO_MIG)
        rc = sl_driver_mig_nodes(driver, g->info.minor, g->mig[mig].info.gpu_instance,
                                 g->mig[mig].info.compute_instance, edits, err);
    return rc;
}

/* Adds one device under its UUID and its index, and to `all`. A device without a node (yet) is left out. */
static int add_device(json_t *spec, const struct sl_driver *driver, const struct sl_inventory *inv,
                      size_t gpu, size_t mig, struct sl_edits *all, struct sl_err *err)
{
    struct sl_edits edits = {0};
    struct sl_err cause = SL_ERR_INIT;
    const char *uuid =
        mig == SL_NO_MIG ? inv->gpu[gpu].info.uuid : inv->gpu[gpu].mig[mig].info.uuid;
    char index[64];
    if (mig == SL_NO_MIG)
        (void)snprintf(index, sizeof(index), "%zu", inv->gpu[gpu].index);
    else
        (void)snprintf(index, sizeof(index), "%zu:%zu", inv->gpu[gpu].index, mig);
    int rc = sl_cdi_device_edits(driver, inv, gpu, mig, &edits, &cause);
    if (rc == 0 && name_valid(uuid)) /* drivers before 470 name MIG devices with slashes */
        rc = spec_device(spec, uuid, &edits, &cause);
    if (rc == 0)
        rc = spec_device(spec, index, &edits, &cause);
    if (rc == 0)
        sl_edits_add(all, &edits);
    sl_edits_clear(&edits);
    if (rc == -ENOENT)
        return 0;
    return rc < 0 ? sl_err_set(err, rc, "%s", cause.msg) : 0;
}

static int add_devices(json_t *spec, const struct sl_driver *driver, const struct sl_inventory *inv,
                       struct sl_edits *all, struct sl_err *err)
{
    int rc = 0;
    for (size_t g = 0; rc == 0 && g < inv->gpu_count; g++) {
        if (inv->gpu[g].lost)
            continue;
        rc = add_device(spec, driver, inv, g, SL_NO_MIG, all, err);
        for (size_t m = 0; rc == 0 && m < inv->gpu[g].mig_count; m++)
            rc = add_device(spec, driver, inv, g, m, all, err);
    }
    if (rc == 0 && all->node_count + all->mount_count > 0)
        rc = spec_device(spec, "all", all, err);
    return rc;
}

/* A missing file is a success. */
static int remove_file(const char *dir, const char *file, struct sl_err *err)
{
    SL_CLEANUP(close) int dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dirfd >= 0 && unlinkat(dirfd, file, 0) == 0)
        return 0;
    return errno == ENOENT ? 0 : sl_err_errno(err, errno, "cannot remove %s/%s", dir, file);
}

/* A spec without devices has no use, and runtimes complain about it. */
static int write_or_remove(const char *dir, const char *file, json_t *spec, struct sl_err *err)
{
    return json_array_size(json_object_get(spec, "devices")) > 0 ? spec_write(dir, file, spec, err)
                                                                 : remove_file(dir, file, err);
}

static int write_imex(const char *dir, const struct sl_driver *driver, struct sl_err *err)
{
    struct sl_edits channel = {0};
    struct sl_err cause = SL_ERR_INIT;
    SL_CLEANUP(json) json_t *spec = spec_new(SL_CDI_IMEX_KIND);
    int rc = 0;
    if (sl_driver_imex_node(driver, 0, &channel, &cause) == 0)
        rc = spec_device(spec, "0", &channel, err);
    else if (cause.code != -ENOENT)
        rc = sl_err_set(err, cause.code, "%s", cause.msg);
    if (rc == 0)
        rc = write_or_remove(dir, IMEX_FILE, spec, err);
    sl_edits_clear(&channel);
    return rc;
}

int sl_cdi_write_node(const char *dir, const struct sl_driver *driver,
                      const struct sl_inventory *inv, struct sl_err *err)
{
    struct sl_edits all = {0}, common = {0};
    SL_CLEANUP(json) json_t *spec = spec_new(SL_CDI_NODE_KIND);
    int rc = add_devices(spec, driver, inv, &all, err);
    sl_cdi_common_edits(driver, &common);
    if (rc == 0)
        rc = spec_common(spec, &common, err);
    if (rc == 0)
        rc = write_or_remove(dir, NODE_FILE, spec, err);
    if (rc == 0)
        rc = write_imex(dir, driver, err);
    sl_edits_clear(&all);
    sl_edits_clear(&common);
    return rc;
}

/* --- specs of which there are many --- */

static const struct {
    const char *kind, *prefix; /* of devices, of files */
    const char *made, *written, *removed;
} kinds[] = {
    [SL_CDI_CLAIM] = {"k8s.gpu.sluice.io/claim", "k8s.gpu.sluice.io-claim_",
                      SL_FAULT_NAME("cdi.claim.made"), SL_FAULT_NAME("cdi.claim.written"),
                      SL_FAULT_NAME("cdi.claim.removed")},
    [SL_CDI_SLOT] = {"k8s.gpu.sluice.io/slot", "k8s.gpu.sluice.io-slot_",
                     SL_FAULT_NAME("cdi.slot.made"), SL_FAULT_NAME("cdi.slot.written"),
                     SL_FAULT_NAME("cdi.slot.removed")},
    [SL_CDI_LEASE] = {"sluice.io/lease", "sluice.io-lease_", SL_FAULT_NAME("cdi.lease.made"),
                      SL_FAULT_NAME("cdi.lease.written"), SL_FAULT_NAME("cdi.lease.removed")},
};

/* The id becomes part of a file's name: it must not lead to another directory. */
static int file_name(enum sl_cdi_kind kind, const char *id, char buf[NAME_MAX + 1],
                     struct sl_err *err)
{
    if (!name_valid(id) || strlen(id) > 128)
        return kind == SL_CDI_CLAIM  ? sl_err_set(err, -EINVAL, SL_E_CDI_CLAIM_UID, id)
               : kind == SL_CDI_SLOT ? sl_err_set(err, -EINVAL, SL_E_CDI_SLOT_NAME, id)
                                     : sl_err_set(err, -EINVAL, SL_E_CDI_NAME_BAD, id);
    (void)snprintf(buf, NAME_MAX + 1, "%s%s" SUFFIX, kinds[kind].prefix, id);
    return 0;
}

int sl_cdi_name(enum sl_cdi_kind kind, const char *id, const char *device, char *buf, size_t size,
                struct sl_err *err)
{
    char file[NAME_MAX + 1];
    int rc = file_name(kind, id, file, err);
    if (rc == 0 && (size_t)snprintf(buf, size, "%s=%s%s%s", kinds[kind].kind, id,
                                    *device ? "-" : "", device) >= size)
        rc = sl_err_set(err, -ENAMETOOLONG, SL_E_CDI_NAME_LONG, *device ? device : id);
    return rc;
}

int sl_cdi_write(const char *dir, enum sl_cdi_kind kind, const char *id,
                 const struct sl_cdi_device *devices, size_t count, const struct sl_edits *common,
                 struct sl_err *err)
{
    char file[NAME_MAX + 1], name[SL_CDI_NAME_SIZE];
    int rc = file_name(kind, id, file, err);
    if (rc < 0)
        return rc;
    if (count == 0)
        return sl_err_set(err, -EINVAL, SL_E_CDI_CLAIM_EMPTY, id);
    SL_CLEANUP(json) json_t *spec = spec_new(kinds[kind].kind);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = sl_cdi_name(kind, id, devices[i].name, name, sizeof(name), err);
        if (rc == 0)
            rc = spec_device(spec, strchr(name, '=') + 1, &devices[i].edits, err);
    }
    if (rc == 0 && common)
        rc = spec_common(spec, common, err);
    SL_FAULT(kinds[kind].made);
    if (rc == 0)
        rc = spec_write(dir, file, spec, err);
    SL_FAULT(kinds[kind].written);
    return rc;
}

int sl_cdi_remove(const char *dir, enum sl_cdi_kind kind, const char *id, struct sl_err *err)
{
    char file[NAME_MAX + 1];
    int rc = file_name(kind, id, file, err);
    if (rc == 0)
        rc = remove_file(dir, file, err);
    SL_FAULT(kinds[kind].removed);
    if (rc == 0 && strlen(file) + strlen(SL_FS_HALF) < sizeof(file)) {
        memcpy(file + strlen(file), SL_FS_HALF,
               sizeof(SL_FS_HALF)); /* of a writer that was killed */
        rc = remove_file(dir, file, err);
    }
    return rc;
}

static bool is_ours(const char *name, const char *prefix)
{
    size_t n = strlen(name), fixed = strlen(prefix) + strlen(SUFFIX);
    return n > fixed && strncmp(name, prefix, strlen(prefix)) == 0 &&
           strcmp(name + n - strlen(SUFFIX), SUFFIX) == 0;
}

int sl_cdi_list(const char *dir, enum sl_cdi_kind kind, char ***ret, size_t *ret_count,
                struct sl_err *err)
{
    const char *prefix = kinds[kind].prefix;
    struct dirent **found = NULL;
    int count = scandir(dir, &found, NULL, alphasort);
    if (count < 0 && errno != ENOENT)
        return sl_err_errno(err, errno, "cannot list %s", dir);
    size_t n = count < 0 ? 0 : (size_t)count, done = 0;
    char **names = sl_xcalloc(n + 1, sizeof(*names));
    for (size_t i = 0; i < n; i++) {
        const char *name = found[i]->d_name;
        if (is_ours(name, prefix))
            names[done++] =
                sl_xstrndup(name + strlen(prefix), strlen(name) - strlen(prefix) - strlen(SUFFIX));
        free(found[i]);
    }
    free(found);
    *ret = names;
    *ret_count = done;
    return 0;
}

void sl_cdi_list_free(char **ids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(ids[i]);
    free(ids);
}

int sl_cdi_attach_dir(const char *dir, enum sl_cdi_kind kind, const char *id, char *buf,
                      size_t size, struct sl_err *err)
{
    char file[NAME_MAX + 1], path[PATH_MAX];
    SL_CLEANUP(free) char *text = NULL;
    size_t length = 0, i;
    int rc = file_name(kind, id, file, err);
    if (rc == 0 && (size_t)snprintf(path, sizeof(path), "%s/%s", dir, file) >= sizeof(path))
        rc = sl_err_set(err, -ENAMETOOLONG, SL_E_CDI_PATH_LONG, dir);
    if (rc == 0)
        rc = sl_fs_read(AT_FDCWD, path, SPEC_MAX_BYTES, &text, &length, err);
    if (rc < 0)
        return rc;
    SL_CLEANUP(json) json_t *spec = json_loadb(text, length, 0, NULL);
    json_t *device = json_array_get(json_object_get(spec, "devices"), 0), *mount;
    json_array_foreach(json_object_get(json_object_get(device, "containerEdits"), "mounts"), i,
                       mount)
    {
        const char *at = json_string_value(json_object_get(mount, "containerPath"));
        const char *host = json_string_value(json_object_get(mount, "hostPath"));
        if (at && host && strcmp(at, SL_CDI_ATTACH_DIR) == 0 &&
            (size_t)snprintf(buf, size, "%s", host) < size)
            return 0;
    }
    return sl_err_set(err, -EPROTO, SL_E_CDI_FOREIGN, path);
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

void sl_cdi_uninstall_sluice(const char *dir)
{
    static const char *const files[] = {LIBRARY_FILE, LIBRARY_FILE SL_FS_HALF, PRELOAD_FILE,
                                        PRELOAD_FILE SL_FS_HALF};
    SL_CLEANUP(close) int dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; dirfd >= 0 && i < SL_ARRAY_LEN(files); i++)
        (void)unlinkat(dirfd, files[i], 0);
    (void)rmdir(dir);
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
