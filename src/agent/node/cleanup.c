/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/node/errors.h"
#include "agent/node/node.h"
#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/log.h"

#define HAMI_REGISTER "hami.io/node-nvidia-register"
#define OUR_GPUS      "sluice.io/gpus"
#define OURS          "sluice.io/"

/* --- files ----------------------------------------------------------------------------------------- */

/* Below the node's root; in a folder, the names that are ours. A folder that is not only ours goes when it is empty. */
static const struct {
    const char *folder, *names;
} places[] = {
    {"var/lib", "sluice"},
    {"run", "sluice"},
    {"run/cdi", "k8s.gpu.sluice.io-*"},
    {"run/cdi", "k8s.device-plugin.nvidia.com-gpu.json"},
    {"run/cdi", "k8s.device-plugin.nvidia.com-imex-channel.json"},
    {"run/nvidia/mps", "GPU-*"},
    {"run/nvidia/mps", "MIG-*"},
    {"var/lib/kubelet/plugins", "gpu.sluice.io"},
    {"var/lib/kubelet/plugins_registry", "gpu.sluice.io*"},
};

/* Links are removed, never followed: the folders were writable to containers. */
static int remove_tree(int at, const char *name)
{
    if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int rc = -errno;
        if (fd >= 0)
            (void)close(fd);
        return rc;
    }
    int rc = 0;
    for (const struct dirent *e; rc == 0 && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = remove_tree(dirfd(dir), e->d_name);
    (void)closedir(dir);
    /* EBUSY: something is mounted there, which is the node's own doing; empty is all that it can be. */
    if (rc == 0 && unlinkat(at, name, AT_REMOVEDIR) != 0 && errno != ENOENT && errno != EBUSY)
        rc = -errno;
    return rc;
}

static int clean_place(int root, const char *folder, const char *names, struct sl_err *err)
{
    int fd = openat(root, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return errno == ENOENT
                   ? 0
                   : sl_err_set(err, -errno, SL_E_CLEANUP_FILE, folder, strerror(errno));
    int first = 0;
    for (const struct dirent *e; (e = readdir(dir));) {
        if (fnmatch(names, e->d_name, FNM_PERIOD) != 0)
            continue;
        char path[512];
        (void)snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        int rc = remove_tree(dirfd(dir), e->d_name);
        if (rc == 0)
            sl_info("removed /%s", path);
        else if (first == 0)
            first = sl_err_set(err, rc, SL_E_CLEANUP_FILE, path, strerror(-rc));
    }
    (void)closedir(dir);
    return first;
}

int sl_cleanup_files(const char *root, struct sl_err *err)
{
    SL_CLEANUP(close) int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return sl_err_errno(err, errno, "cannot open %s", root);
    int first = 0;
    for (size_t i = 0; i < SL_ARRAY_LEN(places); i++) {
        struct sl_err why = SL_ERR_INIT;
        int rc = clean_place(fd, places[i].folder, places[i].names, &why);
        if (rc < 0 && first == 0) {
            first = rc;
            *err = why;
        }
    }
    /* Of MPS; others' files keep them. */
    (void)unlinkat(fd, "run/nvidia/mps", AT_REMOVEDIR);
    (void)unlinkat(fd, "run/nvidia", AT_REMOVEDIR);
    return first;
}

/* --- the Node -------------------------------------------------------------------------------------- */

static bool owned(const char *list, const char *key)
{
    size_t size = strlen(key);
    for (const char *at = list ? list : ""; *at;) {
        size_t n = strcspn(at, ",");
        if (n == size && strncmp(at, key, n) == 0)
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

json_t *sl_cleanup_patch(const json_t *node)
{
    const json_t *meta = json_object_get(node, "metadata");
    json_t *labels = json_object_get(meta, "labels"), *notes = json_object_get(meta, "annotations");
    const char *list = json_string_value(json_object_get(notes, SL_NODE_OWNED_ANNOTATION));
    json_t *no_labels = json_object(), *no_notes = json_object(), *value;
    const char *key;
    json_object_foreach(labels, key, value)
    {
        if (strncmp(key, OURS, strlen(OURS)) == 0 || owned(list, key))
            (void)json_object_set_new(no_labels, key, json_null());
    }
    json_object_foreach(notes, key, value)
    {
        /* HAMi's own plugin may run here: its annotation is ours only beside ours. */
        if (strncmp(key, OURS, strlen(OURS)) == 0 ||
            (strcmp(key, HAMI_REGISTER) == 0 && json_object_get(notes, OUR_GPUS)))
            (void)json_object_set_new(no_notes, key, json_null());
    }
    json_t *patch =
        json_object_size(no_labels) + json_object_size(no_notes) == 0
            ? NULL
            : json_pack("{s:{s:O,s:O}}", "metadata", "labels", no_labels, "annotations", no_notes);
    json_decref(no_labels);
    json_decref(no_notes);
    return patch;
}

struct answer {
    bool here;
    int status;
    json_t *body;
    struct sl_err err;
};

static void answered(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct answer *a = data;
    a->here = true;
    a->status = status;
    a->body = body ? json_incref(body) : NULL;
    if (err)
        a->err = *err;
}

static int ask(struct sl_loop *loop, struct sl_kube *kube, const char *method, const char *path,
               json_t *body, struct answer *ret, struct sl_err *err)
{
    struct sl_kube_call *call = NULL;
    *ret = (struct answer){.err = SL_ERR_INIT};
    int rc = sl_kube_request(kube, method, path, body ? SL_KUBE_PATCH_MERGE : NULL, body, answered,
                             ret, &call, err);
    while (rc >= 0 && !ret->here)
        rc = sl_loop_step(loop, -1, err);
    if (rc < 0)
        return rc;
    return ret->status == 200 ? 0 : sl_err_set(err, -EIO, SL_E_CLEANUP_NODE, path, ret->err.msg);
}

int sl_cleanup_node(struct sl_loop *loop, struct sl_kube *kube, const char *node,
                    struct sl_err *err)
{
    char path[300];
    struct answer a;
    (void)snprintf(path, sizeof(path), "/api/v1/nodes/%s", node);
    int rc = ask(loop, kube, "GET", path, NULL, &a, err);
    json_t *patch = rc == 0 ? sl_cleanup_patch(a.body) : NULL;
    json_decref(a.body);
    if (!patch)
        return rc;
    size_t n = json_object_size(json_object_get(json_object_get(patch, "metadata"), "labels"));
    rc = ask(loop, kube, "PATCH", path, patch, &a, err);
    if (rc == 0)
        sl_info("took %zu labels and the annotations from node %s", n, node);
    json_decref(a.body);
    json_decref(patch);
    return rc;
}
