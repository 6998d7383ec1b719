/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device nodes. An existing node is named. A node that is still missing (a setuid helper of the driver makes nodes on
 * first use) is described by its number, from which a CDI runtime makes it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "container/driver_internal.h"
#include "container/errors.h"
#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/xalloc.h"

#define PROC_MAX_BYTES (256u << 10)

/* Nodes every container with a GPU gets. `devices` are the driver's names in /proc/devices, old and new. */
static const struct {
    const char *name, *devices[4];
    uint32_t minor;
    bool required;
    const char *why;
} control_nodes[] = {
    {"nvidiactl",
     {"nvidiactl", "nvidia-frontend", "nvidia"},
     255,
     true,
     "every CUDA program opens it"},
    {"nvidia-uvm", {"nvidia-uvm"}, 0, true, "unified memory; cuInit fails without it"},
    {"nvidia-uvm-tools", {"nvidia-uvm"}, 1, false, "profilers"},
    {"nvidia-modeset", {NULL}, 254, false, "display; only where it is"},
};

/* Nodes of companions of the driver, when the configuration says so. */
enum companion { GDRCOPY = 1, GDS = 2, MOFED = 4 };
static const struct {
    enum companion of;
    const char *dir, *pattern; /* below dev/ */
} companion_nodes[] = {
    {GDRCOPY, "", "gdrdrv"},
    {GDS, "", "nvidia-fs*"},
    {MOFED, "infiniband", "uverbs*"},
    {MOFED, "infiniband", "rdma_cm"},
};

/* A file below proc; *ret stays NULL when it is missing. */
static int read_proc(const struct sl_driver *d, const char *rel, char **ret, struct sl_err *err)
{
    char path[PATH_MAX];
    int rc = sl_driver_join(path, d->proc, rel, err);
    if (rc == 0 && sl_fs_read(AT_FDCWD, path, PROC_MAX_BYTES, ret, NULL, NULL) == -ENOMEM)
        sl_out_of_memory();
    return rc;
}

/* The major number a driver has in <proc>/devices; 0: none. */
static int major_of(const struct sl_driver *d, const char *name, uint32_t *ret, struct sl_err *err)
{
    SL_CLEANUP(free) char *text = NULL;
    *ret = 0;
    int rc = read_proc(d, "devices", &text, err);
    char *rest = text;
    for (char *line; rest && (line = strsep(&rest, "\n"));) {
        uint32_t number;
        int end = 0;
        if (strncmp(line, "Block", 5) == 0)
            break;
        if (sscanf(line, " %" SCNu32 " %n", &number, &end) == 1 && end > 0 &&
            strcmp(line + end, name) == 0)
            *ret = number;
    }
    return rc;
}

/* Adds dev/<name>; by number where the node is missing and one of `devices` (the last is NULL) has a major for it. */
static int add_node(const struct sl_driver *d, const char *name, const char *const *devices,
                    uint32_t minor, struct sl_edits *e, struct sl_err *err)
{
    char path[PATH_MAX], host[PATH_MAX], container[PATH_MAX];
    struct stat st;
    int rc = sl_driver_join(path, d->dev, name, err);
    if (rc == 0)
        rc = sl_driver_join(host, d->dev_host, name, err);
    if (rc == 0)
        rc = sl_driver_join(container, "/dev", name, err);
    if (rc < 0)
        return rc;
    bool there = stat(path, &st) == 0;
    if (there && S_ISCHR(st.st_mode)) {
        sl_edits_node(e, host, container);
        return 0;
    }
    if (there && d->simulated && S_ISREG(st.st_mode)) {
        sl_edits_mount(e, host, container, true);
        return 0;
    }
    for (size_t i = 0; !there && devices[i]; i++) {
        uint32_t major;
        rc = major_of(d, devices[i], &major, err);
        if (rc < 0)
            return rc;
        if (major) {
            sl_edits_node_numbered(e, host, container, major, minor);
            return 0;
        }
    }
    if (there)
        return sl_err_set(err, -ENOENT, SL_E_DRIVER_NOT_A_NODE, path);
    return sl_err_set(err, -ENOENT, SL_E_DRIVER_NO_NODE, path);
}

static int add_companions(struct sl_driver *d, unsigned wanted, struct sl_err *err)
{
    static const char *const unknown[] = {NULL};
    for (size_t i = 0; i < SL_ARRAY_LEN(companion_nodes); i++) {
        char path[PATH_MAX], name[NAME_MAX + 32];
        struct dirent **found = NULL;
        if (!(wanted & companion_nodes[i].of))
            continue;
        int rc = sl_driver_join(path, d->dev, companion_nodes[i].dir, err);
        int count = rc == 0 ? scandir(path, &found, NULL, alphasort) : 0;
        if (count < 0 && errno == ENOMEM)
            sl_out_of_memory();
        for (int k = 0; k < count; k++) {
            (void)snprintf(name, sizeof(name), "%s/%s", companion_nodes[i].dir, found[k]->d_name);
            struct sl_err cause = SL_ERR_INIT;
            if (rc == 0 && fnmatch(companion_nodes[i].pattern, found[k]->d_name, 0) == 0 &&
                add_node(d, name, unknown, 0, &d->nodes, &cause) < 0 && cause.code != -ENOENT)
                rc = sl_err_set(err, cause.code, "%s", cause.msg); /* else no device: ignored */
            free(found[k]);
        }
        if (count >= 0)
            free(found);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int sl_driver_find_nodes(struct sl_driver *d, const struct sl_driver_options *options,
                         struct sl_err *err)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(control_nodes); i++) {
        struct sl_err cause = SL_ERR_INIT;
        int rc = add_node(d, control_nodes[i].name, control_nodes[i].devices,
                          control_nodes[i].minor, &d->nodes, &cause);
        if (rc == -ENOENT && control_nodes[i].required)
            sl_driver_warn(d, "%s (%s): run nvidia-modprobe -u -c=0 on the node", cause.msg,
                           control_nodes[i].why);
        else if (rc < 0 && rc != -ENOENT)
            return sl_err_set(err, rc, "%s", cause.msg);
    }
    return add_companions(d,
                          (options->gdrcopy ? GDRCOPY : 0u) | (options->gds ? GDS : 0u) |
                              (options->mofed ? MOFED : 0u),
                          err);
}

int sl_driver_gpu_node(const struct sl_driver *d, uint32_t minor, struct sl_edits *edits,
                       struct sl_err *err)
{
    static const char *const devices[] = {"nvidia", "nvidia-frontend", NULL};
    char name[32];
    (void)snprintf(name, sizeof(name), "nvidia%" PRIu32, minor);
    return add_node(d, name, devices, minor, edits, err);
}

int sl_driver_imex_node(const struct sl_driver *d, unsigned channel, struct sl_edits *edits,
                        struct sl_err *err)
{
    static const char *const devices[] = {"nvidia-caps-imex-channels", NULL};
    char name[64];
    (void)snprintf(name, sizeof(name), "nvidia-caps-imex-channels/channel%u", channel);
    return add_node(d, name, devices, channel, edits, err);
}

/* The number in a line "<key> <number>" or "<key>: <number>" of a text. */
static int number_after(const char *text, const char *key, uint32_t *ret)
{
    size_t n = strlen(key);
    for (const char *p = text; p; p = strchr(p, '\n'), p = p ? p + 1 : NULL) {
        if (strncmp(p, key, n) == 0 && sscanf(p + n, "%*[: \t]%" SCNu32, ret) == 1)
            return 0;
    }
    return -ENOENT;
}

/* The minor number of a capability: from its own file, or from the table of all capabilities. */
static int capability(const struct sl_driver *d, uint32_t minor, const char *what, uint32_t *ret,
                      struct sl_err *err)
{
    char rel[256];
    SL_CLEANUP(free) char *own = NULL;
    SL_CLEANUP(free) char *table = NULL;
    (void)snprintf(rel, sizeof(rel), "driver/nvidia/capabilities/gpu%" PRIu32 "/mig/%s/access",
                   minor, what);
    int rc = read_proc(d, rel, &own, err);
    if (rc < 0 || (own && number_after(own, "DeviceFileMinor", ret) == 0))
        return rc;
    (void)snprintf(rel, sizeof(rel), "gpu%" PRIu32 "/%s/access", minor, what);
    rc = read_proc(d, "driver/nvidia-caps/mig-minors", &table, err);
    if (rc < 0 || (table && number_after(table, rel, ret) == 0))
        return rc;
    return sl_err_set(err, -ENOENT, SL_E_DRIVER_NO_CAPABILITY, what, minor);
}

int sl_driver_mig_nodes(const struct sl_driver *d, uint32_t minor, uint32_t gpu_instance,
                        uint32_t compute_instance, struct sl_edits *edits, struct sl_err *err)
{
    static const char *const devices[] = {"nvidia-caps", NULL};
    char what[2][64], name[64];
    (void)snprintf(what[0], sizeof(what[0]), "gi%" PRIu32, gpu_instance);
    (void)snprintf(what[1], sizeof(what[1]), "gi%" PRIu32 "/ci%" PRIu32, gpu_instance,
                   compute_instance);
    for (size_t i = 0; i < 2; i++) {
        uint32_t cap;
        int rc = capability(d, minor, what[i], &cap, err);
        if (rc < 0)
            return rc;
        (void)snprintf(name, sizeof(name), "nvidia-caps/nvidia-cap%" PRIu32, cap);
        rc = add_node(d, name, devices, cap, edits, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}
