/* SPDX-License-Identifier: Apache-2.0 */
#include "driver_world.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsutil.h"

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

int driver_world_make(void **state)
{
    struct driver_world *w = calloc(1, sizeof(*w));
    const char *tmp = getenv("TMPDIR");
    assert_non_null(w);
    (void)snprintf(w->dir, sizeof(w->dir), "%.200s/sluice-cdi-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(w->dir));
    (void)snprintf(w->root, sizeof(w->root), "%s/root", w->dir);
    (void)snprintf(w->proc, sizeof(w->proc), "%s/proc", w->dir);
    (void)snprintf(w->cdi, sizeof(w->cdi), "%s/cdi", w->dir);
    assert_int_equal(mkdir(w->root, 0755), 0);
    assert_int_equal(mkdir(w->proc, 0755), 0);
    *state = w;
    return 0;
}

int driver_world_remove(void **state)
{
    struct driver_world *w = *state;
    (void)nftw(w->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(w);
    return 0;
}

/* base/rel in buf, with its directory made. */
static void place(char buf[PATH_MAX], const char *base, const char *rel)
{
    assert_true(snprintf(buf, PATH_MAX, "%s/%s", base, rel) < PATH_MAX);
    char *slash = strrchr(buf, '/');
    *slash = '\0';
    assert_int_equal(sl_fs_mkdirs(buf, 0755, NULL), 0);
    *slash = '/';
}

static void put(const char *base, const char *rel, const void *data, size_t size)
{
    char path[PATH_MAX];
    place(path, base, rel);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size), (ssize_t)size);
    (void)close(fd);
}

void world_text(const struct driver_world *w, const char *rel, const char *text)
{
    put(w->root, rel, text, strlen(text));
}

void world_proc(const struct driver_world *w, const char *rel, const char *text)
{
    put(w->proc, rel, text, strlen(text));
}

void world_link(const struct driver_world *w, const char *rel, const char *target)
{
    char path[PATH_MAX];
    place(path, w->root, rel);
    assert_int_equal(symlink(target, path), 0);
}

void world_unlink(const struct driver_world *w, const char *rel)
{
    char path[PATH_MAX];
    place(path, w->root, rel);
    assert_int_equal(unlink(path), 0);
}

void world_node(const struct driver_world *w, const char *rel)
{
    world_link(w, rel, "/dev/null");
}

/* The libraries of the build: driver_library_<kind>.so. */
void world_library(const struct driver_world *w, const char *rel, const char *soname_kind)
{
    char source[PATH_MAX];
    char *data = NULL;
    size_t size = 0;
    (void)snprintf(source, sizeof(source), "%s/driver_library_%s.so", DRIVER_LIBRARY_DIR,
                   soname_kind);
    assert_int_equal(sl_fs_read(AT_FDCWD, source, 1u << 20, &data, &size, NULL), 0);
    put(w->root, rel, data, size);
    free(data);
}

#define LIB "usr/lib/" MULTIARCH "/"

void world_debian(const struct driver_world *w)
{
    world_library(w, LIB "libcuda.so." WORLD_VERSION, "cuda");
    world_link(w, LIB "libcuda.so.1", "libcuda.so." WORLD_VERSION);
    world_library(w, LIB "nvidia/current/libnvidia-ml.so." WORLD_VERSION, "ml");
    world_link(w, "etc/alternatives/nvml", "/" LIB "nvidia/current/libnvidia-ml.so." WORLD_VERSION);
    world_link(w, LIB "libnvidia-ml.so.1", "/etc/alternatives/nvml");
    world_library(w, LIB "libnvidia-ptxjitcompiler.so." WORLD_VERSION, "ptx");
    world_library(w, LIB "libnvidia-gpucomp.so." WORLD_VERSION, "gpucomp");
    world_library(w, LIB "libnvidia-glcore.so." WORLD_VERSION, "none");
    world_library(w, LIB "libcuda.so.535.104.05", "cuda");
    world_library(w, LIB "libz.so.1.2.13", "none");
    world_text(w, "usr/bin/nvidia-smi", "#!/bin/sh\n");
    world_text(w, "usr/bin/nvidia-cuda-mps-control", "#!/bin/sh\n");
    world_text(w, "run/nvidia-persistenced/socket", "");
    world_text(w, "lib/firmware/nvidia/" WORLD_VERSION "/gsp_ga10x.bin", "x");
    world_text(w, "etc/OpenCL/vendors/nvidia.icd", "libnvidia-opencl.so.1\n");
    static const char *const nodes[] = {"nvidiactl",
                                        "nvidia-uvm",
                                        "nvidia0",
                                        "nvidia1",
                                        "nvidia-caps/nvidia-cap12",
                                        "nvidia-caps/nvidia-cap13"};
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        char rel[64];
        (void)snprintf(rel, sizeof(rel), "dev/%s", nodes[i]);
        world_node(w, rel);
    }
    world_proc(w, "devices",
               "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n234 nvidia-caps\n"
               "235 nvidia-caps-imex-channels\n511 nvidia-uvm\n\nBlock devices:\n  8 sd\n");
    static const struct {
        const char *rel, *minor;
    } caps[] = {{"gi1", "12"}, {"gi1/ci0", "13"}, {"gi2", "21"}, {"gi2/ci0", "22"}};
    for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
        char rel[128], text[128];
        (void)snprintf(rel, sizeof(rel), "driver/nvidia/capabilities/gpu1/mig/%s/access",
                       caps[i].rel);
        (void)snprintf(text, sizeof(text),
                       "DeviceFileMinor: %s\nDeviceFileMode: 292\nDeviceFileModify: 1\n",
                       caps[i].minor);
        world_proc(w, rel, text);
    }
}

struct sl_driver *world_find(const struct driver_world *w)
{
    struct sl_driver_options o = {.root = w->root,
                                  .root_host = "/run/nvidia/driver",
                                  .dev_root_host = "/",
                                  .proc = w->proc,
                                  .version = WORLD_VERSION};
    struct sl_driver *d = NULL;
    struct sl_err err = SL_ERR_INIT;
    if (sl_driver_find(&o, &d, &err) < 0)
        fail_msg("%s", err.msg);
    return d;
}

struct sl_inventory *world_inventory(void)
{
    struct sl_inventory *inv = calloc(1, sizeof(*inv));
    assert_non_null(inv);
    inv->gpu = calloc(2, sizeof(*inv->gpu));
    assert_non_null(inv->gpu);
    inv->gpu_count = 2;
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(inv->gpu[i].info.uuid, SL_GPU_UUID_SIZE,
                       "GPU-%08x-0000-0000-0000-000000000000", i);
        inv->gpu[i].info.minor = i;
        inv->gpu[i].index = i;
    }
    struct sl_inv_gpu *g = &inv->gpu[1];
    g->info.mig_enabled = true;
    g->mig_count = 2;
    g->mig = calloc(2, sizeof(*g->mig));
    assert_non_null(g->mig);
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(g->mig[i].info.uuid, SL_GPU_UUID_SIZE,
                       "MIG-%08x-0000-0000-0000-000000000000", i);
        g->mig[i].info.gpu_instance = i + 1;
    }
    return inv;
}

void world_free_inventory(struct sl_inventory *inv)
{
    for (size_t i = 0; i < inv->gpu_count; i++)
        free(inv->gpu[i].mig);
    free(inv->gpu);
    free(inv);
}

const struct sl_edit_mount *world_mount(const struct sl_edits *e, const char *container)
{
    for (size_t i = 0; i < e->mount_count; i++) {
        if (strcmp(e->mount[i].container, container) == 0)
            return &e->mount[i];
    }
    return NULL;
}

const struct sl_edit_node *world_has_node(const struct sl_edits *e, const char *container)
{
    for (size_t i = 0; i < e->node_count; i++) {
        if (strcmp(e->node[i].container, container) == 0)
            return &e->node[i];
    }
    return NULL;
}

const char *world_env(const struct sl_edits *e, const char *name)
{
    for (size_t i = 0; i < e->env_count; i++) {
        if (strcmp(e->env[i].name, name) == 0)
            return e->env[i].value;
    }
    return NULL;
}
