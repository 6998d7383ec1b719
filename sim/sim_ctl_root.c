/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-sim-ctl make-root: a driver's files in a directory, as an agent finds them under
 * --driver-root. */
#include "sim/sim_ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "sim/tree.h"

static int failed(const char *what, const char *why)
{
    (void)fprintf(stderr, "sluice-sim-ctl: make-root: %s: %s\n", what, why);
    return 1;
}

/* Where our own libraries and programs are: beside us in a build, under lib/sluice/sim
 * installed. */
static int open_ours(const char *name)
{
    static const char *const places[] = {"", "../" SIM_LIBDIR "/sluice/sim/", "../lib/sluice/sim/"};
    char exe[PATH_MAX], path[2 * PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (n <= 0)
        return -errno;
    exe[n] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash)
        slash[1] = '\0';
    for (size_t i = 0; i < SL_ARRAY_LEN(places); i++) {
        (void)snprintf(path, sizeof(path), "%s%s%s", exe, places[i], name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
            return fd;
    }
    return -ENOENT;
}

/* Copies `ours` to `path`, replacing it whole: processes may have the old one mapped. */
static int copy_file(int root, const char *ours, const char *path)
{
    char tmp[256], buf[65536];
    SL_CLEANUP(close)
    int in = strcmp(ours, "sluice-sim-ctl") == 0 ? open("/proc/self/exe", O_RDONLY | O_CLOEXEC)
                                                 : open_ours(ours);
    if (in < 0)
        return failed(ours, "it is not beside sluice-sim-ctl; build or install the simulated GPUs");
    (void)snprintf(tmp, sizeof(tmp), "%s.new", path);
    SL_CLEANUP(close) int out = openat(root, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    ssize_t n = out < 0 ? -1 : 0;
    while (out >= 0 && (n = read(in, buf, sizeof(buf))) > 0)
        if (write(out, buf, (size_t)n) != n) {
            n = -1;
            break;
        }
    if (n < 0 || fchmod(out, 0755) != 0 || renameat(root, tmp, root, path) != 0)
        return failed(path, strerror(errno));
    return 0;
}

static int put_text(int root, const char *path, const char *text)
{
    struct sl_err err = SL_ERR_INIT;
    return sl_fs_replace(root, path, text, strlen(text), 0644, &err) < 0 ? failed(path, err.msg)
                                                                         : 0;
}

static int put_node(int root, const char *name)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "dev/%s", name);
    SL_CLEANUP(close) int fd = openat(root, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    return fd < 0 || fchmod(fd, 0666) != 0 ? failed(path, strerror(errno)) : 0;
}

/* lib<name>.so.<version>, and the names the loader and the linker look for. */
static int put_library(int root, const char *name, const char *version)
{
    char file[96], path[112], link[112];
    (void)snprintf(file, sizeof(file), "lib%s.so.%s", name, version);
    (void)snprintf(path, sizeof(path), "lib/%s", file);
    (void)snprintf(link, sizeof(link), "lib%s.so.1", name);
    int r = copy_file(root, link, path);
    (void)snprintf(link, sizeof(link), "lib/lib%s.so.1", name);
    if (r == 0 && unlinkat(root, link, 0) != 0 && errno != ENOENT)
        r = failed(link, strerror(errno));
    if (r == 0 && symlinkat(file, root, link) != 0)
        r = failed(link, strerror(errno));
    return r;
}

static int make_dirs(int root)
{
    static const char *const dirs[] = {
        "lib",
        "bin",
        "dev",
        "dev/nvidia-caps",
        "state",
        "proc",
        "proc/driver",
        "proc/driver/nvidia",
        "proc/driver/nvidia/capabilities",
        "proc/driver/nvidia/capabilities/mig",
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(dirs); i++)
        if (mkdirat(root, dirs[i], 0755) != 0 && errno != EEXIST)
            return failed(dirs[i], strerror(errno));
    return 0;
}

static int put_cards(int root, struct sl_sim_state *st)
{
    char path[80];
    int r = 0;
    for (uint32_t i = 0; i < st->card_count && r == 0; i++) {
        (void)snprintf(path, sizeof(path), "nvidia%u", i);
        r = put_node(root, path);
        for (int mig = 0; mig < 2 && r == 0; mig++) {
            (void)snprintf(path, sizeof(path), "proc/driver/nvidia/capabilities/gpu%u%s", i,
                           mig ? "/mig" : "");
            if (mkdirat(root, path, 0755) != 0 && errno != EEXIST)
                r = failed(path, strerror(errno));
        }
    }
    return r;
}

static int put_driver(int root, struct sl_sim_state *st, const char *state_path)
{
    static const char *const nodes[] = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools",
                                        "nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap2"};
    static const char cap[] = "DeviceFileMinor: %d\nDeviceFileMode: 256\nDeviceFileModify: 1\n";
    const char *version = st->spec_parsed.driver_version;
    char text[2048];
    int r = put_library(root, "cuda", version);
    if (r == 0)
        r = put_library(root, "nvidia-ml", version);
    if (r == 0)
        r = copy_file(root, "sluice-sim-ctl", "bin/nvidia-smi");
    if (r == 0)
        r = copy_file(root, "nvidia-cuda-mps-control", "bin/nvidia-cuda-mps-control");
    for (size_t i = 0; i < SL_ARRAY_LEN(nodes) && r == 0; i++)
        r = put_node(root, nodes[i]);
    for (int i = 1; i <= 2 && r == 0; i++) {
        (void)snprintf(text, sizeof(text), cap, i);
        r = put_text(root,
                     i == 1 ? "proc/driver/nvidia/capabilities/mig/config"
                            : "proc/driver/nvidia/capabilities/mig/monitor",
                     text);
    }
    (void)snprintf(text, sizeof(text),
                   "NVRM version: NVIDIA UNIX simulated Kernel Module  %s  Release Build\n",
                   version);
    if (r == 0)
        r = put_text(root, "proc/driver/nvidia/version", text);
    if (r == 0)
        r = put_cards(root, st);
    (void)snprintf(text, sizeof(text), "SLUICE_SIM=%s\nSLUICE_SIM_STATE=%s\n", st->spec,
                   state_path);
    return r == 0 ? put_text(root, SL_SIM_TREE_MARK, text) : r; /* last: now it is one */
}

int sl_sim_ctl_make_root(int argc, char **argv)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_sim_state *st;
    char dir[512], path[PATH_MAX];
    const char *given = getenv("SLUICE_SIM_STATE");
    if (argc < 1 || argc > 2)
        return sl_sim_ctl_bad("wrong number of words after", "make-root");
    /* Any user's container must be able to take part: the libraries, the state, and the files
     * beside it for memory that processes share. */
    (void)umask(0);
    if (sl_fs_mkdirs(argv[0], 0755, &err) < 0)
        return failed(argv[0], err.msg);
    if (!realpath(argv[0], path))
        return failed(argv[0], strerror(errno));
    if (strlen(path) >= sizeof(dir))
        return failed(argv[0], "the name is too long");
    (void)snprintf(dir, sizeof(dir), "%.511s", path);
    SL_CLEANUP(close) int root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return failed(dir, strerror(errno));
    if (make_dirs(root) != 0)
        return 1;
    if (fchmodat(root, "state", 0777, 0) != 0)
        return failed("state", strerror(errno));
    (void)snprintf(path, sizeof(path), "%s/" SL_SIM_TREE_STATE, dir);
    bool own = !given || !*given;
    if ((own && setenv("SLUICE_SIM_STATE", path, 1) != 0) ||
        (argc == 2 && setenv("SLUICE_SIM", argv[1], 1) != 0))
        return failed(dir, strerror(errno));
    if (sl_sim_open(&st, &err) < 0)
        return failed(dir, err.msg);
    if (argc == 2 && strcmp(argv[1], st->spec) != 0) {
        (void)fprintf(stderr,
                      "sluice-sim-ctl: make-root: the machine is there already, with %s; remove %s "
                      "for another one\n",
                      st->spec, sl_sim_path());
        return 1;
    }
    /* Asked for again: setenv() may have moved what the first answer points into. */
    int r = put_driver(root, st, own ? SL_SIM_TREE_STATE : getenv("SLUICE_SIM_STATE"));
    if (r != 0)
        return r;
    sl_sim_lock(st);
    (void)snprintf(st->root, sizeof(st->root), "%s", dir);
    for (uint32_t i = 0; i < st->card_count; i++)
        sl_sim_tree_sync(st, i);
    sl_sim_unlock(st);
    return 0;
}
