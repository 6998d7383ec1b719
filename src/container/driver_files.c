/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Libraries go into the loader's own directories under the names that programs ask for, so no hook has to run ldconfig
 * in the container: docs/agent.md, "Containers get GPUs", has the reasons.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "container/driver_internal.h"
#include "container/errors.h"
#include "base/cleanup.h"
#include "base/xalloc.h"

#if defined(__x86_64__)
#define MULTIARCH "x86_64-linux-gnu"
#else
#define MULTIARCH "aarch64-linux-gnu"
#endif

/* The directories of drivers' libraries, by installer. The first directory that has a name wins. */
static const char *const library_dirs[] = {
    "usr/lib/" MULTIARCH, /* Debian, Ubuntu; the driver container of NVIDIA's operator */
    "usr/lib64",          /* Red Hat, SUSE, Amazon; NVIDIA's installer there */
    "usr/lib/" MULTIARCH "/nvidia/current", /* Debian's packages, behind alternatives */
    "usr/lib/" MULTIARCH "/nvidia",
    "usr/lib64/nvidia",
    "usr/lib/nvidia",
    "usr/local/nvidia/lib64", /* COS, and others that keep the driver apart */
    "lib/" MULTIARCH,         /* systems where /lib is not /usr/lib */
    "lib64",
    "usr/lib",
    "lib",
};

/* The directories that glibc searches by itself, after its cache: Debian's and Ubuntu's search the first, Red Hat's,
 * SUSE's and Amazon's the second. The other directory does no harm. */
static const char *const container_dirs[] = {"/usr/lib/" MULTIARCH, "/usr/lib64"};

/* Left out, by the beginning of the name: graphics also needs vendor files and a display. */
static const char *const graphics[] = {
    "libGL",          "libEGL",        "libOpenGL",        "libglx",
    "libnvidia-gl",   "libnvidia-egl", "libnvidia-tls",    "libnvidia-rtcore",
    "libnvoptix",     "libnvidia-fbc", "libnvidia-gtk",    "libnvidia-wayland",
    "libnvidia-ngx",  "libvdpau",      "libnvidia-vulkan", "libnvidia-present",
    "libnvidia-vksc",
};

/* All other libraries of the driver's version are mounted: the next libcuda may need a library that no list of today
 * has. A missing library of this list gives a warning. */
static const struct {
    const char *stem, *without;
} expected[] = {
    {"libnvidia-ml", "nvidia-smi and whatever asks NVML fail in containers"},
    {"libnvidia-ptxjitcompiler", "programs that bring PTX for the driver to compile do not start"},
};

static const char *const programs[] = {
    "nvidia-smi",              /* the first command that people type */
    "nvidia-debugdump",        /* support asks for its output */
    "nvidia-persistenced",     /* for images that manage the node */
    "nvidia-cuda-mps-control", /* a tenant with a whole card may run MPS of its own */
    "nvidia-cuda-mps-server",  /* the control daemon starts it */
    "nvidia-imex",             /* multi-node NVLink */
    "nvidia-imex-ctl",
};
static const char *const program_dirs[] = {
    "usr/bin", "usr/sbin", "usr/local/nvidia/bin",   "usr/local/bin", "opt/bin",
    "bin",     "sbin",     "usr/lib/nvidia/current",
};

/* Single files and directories, with the same path in the container as in the root. %s is the version. */
static const char *const others[] = {
    "run/nvidia-persistenced/socket",  /* NVML asks the daemon to keep a card awake */
    "run/nvidia-fabricmanager/socket", /* NVSwitch partitions */
    "lib/firmware/nvidia/%s",          /* GSP images that debuggers and resets read */
    "etc/OpenCL/vendors/nvidia.icd",   /* the OpenCL loader finds the driver by it */
};

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* The version in "libcuda.so.580.65.06", or NULL. */
static const char *version_of(const char *name)
{
    const char *so = begins(name, "lib") ? strstr(name, ".so.") : NULL;
    return so && so[4] ? so + 4 : NULL;
}

static bool wanted(const struct sl_driver *d, const char *name)
{
    if (d->simulated)
        return strcmp(name, "libcuda.so.1") == 0 || strcmp(name, "libnvidia-ml.so.1") == 0;
    const char *version = version_of(name);
    if (!version || strcmp(version, d->version) != 0)
        return false;
    for (size_t i = 0; i < SL_ARRAY_LEN(graphics); i++) {
        if (begins(name, graphics[i]))
            return false;
    }
    return true;
}

static bool have_mount(const struct sl_edits *e, const char *container)
{
    for (size_t i = 0; i < e->mount_count; i++) {
        if (strcmp(e->mount[i].container, container) == 0)
            return true;
    }
    return false;
}

int sl_driver_mount_library(struct sl_edits *edits, const char *host, const char *name,
                            struct sl_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < SL_ARRAY_LEN(container_dirs); i++) {
        char path[PATH_MAX];
        rc = sl_driver_join(path, container_dirs[i], name, err);
        if (rc == 0 && !have_mount(edits, path))
            sl_edits_mount(edits, host, path, true);
    }
    return rc;
}

static int add_library(struct sl_driver *d, const char *dir, const char *name, struct sl_err *err)
{
    char path[PATH_MAX], real[PATH_MAX], link[64];
    struct driver_elf elf;
    if (sl_driver_join(path, container_dirs[0], name, NULL) < 0 || have_mount(&d->files, path) ||
        sl_driver_join(path, dir, name, NULL) < 0)
        return 0;
    SL_CLEANUP(close) int found = sl_driver_open_in_root(d->root, path, real);
    if (found < 0)
        return 0;
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", found);
    SL_CLEANUP(close) int fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || sl_driver_elf_read(fd, &elf) < 0) {
        sl_driver_warn(d, SL_E_DRIVER_BAD_LIBRARY_LOG, path);
        return 0;
    }
    if (!elf.native)
        return 0;
    int rc = sl_driver_join(path, d->root_host, real, err);
    if (rc == 0)
        rc = sl_driver_mount_library(&d->files, path, name, err);
    if (rc == 0 && elf.soname[0])
        rc = sl_driver_mount_library(&d->files, path, elf.soname, err);
    if (rc == 0 && begins(name, "libcuda.so."))
        rc = sl_driver_mount_library(&d->files, path, "libcuda.so",
                                     err); /* Python's ctypes and numba open this name */
    return rc;
}

/* Every name in root/dir, sorted, so that the same driver always gives the same spec; returns their number. A directory
 * that is missing or unreadable has none. */
static int list(const struct sl_driver *d, const char *dir, struct dirent ***ret)
{
    char real[PATH_MAX];
    SL_CLEANUP(close) int fd = sl_driver_open_in_root(d->root, dir, real);
    int count = fd < 0 ? 0 : scandirat(fd, ".", ret, NULL, alphasort);
    if (count < 0 && errno == ENOMEM)
        sl_out_of_memory();
    return count < 0 ? 0 : count;
}

static void unlist(struct dirent **names, int count)
{
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

/* If NVML did not tell the version: that of the libcuda found. */
static void guess_version(struct sl_driver *d)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(library_dirs) && !d->version[0]; i++) {
        struct dirent **names = NULL;
        int count = list(d, library_dirs[i], &names);
        for (int k = 0; k < count; k++) {
            const char *v = version_of(names[k]->d_name);
            if (v && begins(names[k]->d_name, "libcuda.so.") && strchr(v, '.'))
                (void)snprintf(d->version, sizeof(d->version), "%.79s", v);
        }
        unlist(names, count);
    }
}

static int find_libraries(struct sl_driver *d, struct sl_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < SL_ARRAY_LEN(library_dirs); i++) {
        struct dirent **names = NULL;
        int count = list(d, library_dirs[i], &names);
        for (int k = 0; k < count && rc == 0; k++) {
            if (wanted(d, names[k]->d_name))
                rc = add_library(d, library_dirs[i], names[k]->d_name, err);
        }
        unlist(names, count);
    }
    if (rc < 0)
        return rc;
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/libcuda.so", container_dirs[0]);
    if (!have_mount(&d->files, path))
        return sl_err_set(err, -ENOENT, SL_E_DRIVER_NO_LIBCUDA, d->version[0] ? ".so." : "",
                          d->version, d->root);
    for (size_t i = 0; !d->simulated && i < SL_ARRAY_LEN(expected); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s.so.%s", container_dirs[0], expected[i].stem,
                       d->version);
        if (!have_mount(&d->files, path))
            sl_driver_warn(d, SL_E_DRIVER_NO_LIBRARY_LOG, expected[i].stem, d->version, d->root,
                           expected[i].without);
    }
    return 0;
}

/* Mounts the file root/rel, if it exists, as `container`. */
static int add_file(struct sl_driver *d, const char *rel, const char *container, struct sl_err *err)
{
    char real[PATH_MAX], host[PATH_MAX];
    int fd = sl_driver_open_in_root(d->root, rel, real);
    if (fd < 0)
        return 0;
    (void)close(fd);
    int rc = sl_driver_join(host, d->root_host, real, err);
    if (rc == 0)
        sl_edits_mount(&d->files, host, container, true);
    return rc;
}

static int find_programs(struct sl_driver *d, struct sl_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < SL_ARRAY_LEN(programs); i++) {
        char container[PATH_MAX], rel[PATH_MAX];
        (void)snprintf(container, sizeof(container), "/usr/bin/%s", programs[i]);
        for (size_t k = 0; rc == 0 && k < SL_ARRAY_LEN(program_dirs); k++) {
            (void)snprintf(rel, sizeof(rel), "%s/%s", program_dirs[k], programs[i]);
            if (!have_mount(&d->files, container))
                rc = add_file(d, rel, container, err);
        }
    }
    return rc;
}

int sl_driver_find_files(struct sl_driver *d, struct sl_err *err)
{
    if (!d->version[0] && !d->simulated)
        guess_version(d);
    int rc = find_libraries(d, err);
    if (rc == 0)
        rc = find_programs(d, err);
    for (size_t i = 0; rc == 0 && !d->simulated && i < SL_ARRAY_LEN(others); i++) {
        char container[PATH_MAX];
        const char *version = strstr(others[i], "%s");
        int stem = version ? (int)(version - others[i]) : (int)strlen(others[i]);
        (void)snprintf(container, sizeof(container), "/%.*s%s", stem, others[i],
                       version ? d->version : "");
        rc = add_file(d, container + 1, container, err);
    }
    return rc;
}

int sl_driver_locate(const char *root, const char *name, char *path, size_t size,
                     struct sl_err *err)
{
    bool library = strstr(name, ".so") != NULL;
    const char *const *dirs = library ? library_dirs : program_dirs;
    size_t count = library ? SL_ARRAY_LEN(library_dirs) : SL_ARRAY_LEN(program_dirs);
    for (size_t i = 0; i < count; i++) {
        char rel[PATH_MAX], real[PATH_MAX], whole[PATH_MAX];
        if ((size_t)snprintf(rel, sizeof(rel), "%s/%s", dirs[i], name) >= sizeof(rel))
            break;
        int fd = sl_driver_open_in_root(root, rel, real);
        if (fd < 0)
            continue;
        (void)close(fd);
        int rc = sl_driver_join(whole, root, real, err);
        if (rc == 0 && (size_t)snprintf(path, size, "%s", whole) >= size)
            rc = sl_err_set(err, -ENAMETOOLONG, SL_E_CDI_PATH_LONG, whole);
        return rc;
    }
    return sl_err_set(err, -ENOENT, SL_E_DRIVER_NO_FILE, name, root);
}
