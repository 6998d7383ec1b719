/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/units.h"
#include "cli/doctor.h"
#include "gpu/gpu.h"

/* Returns whether there is a kernel module. */
static bool check_module(struct sl_doctor *d)
{
    SL_CLEANUP(free) char *text = NULL;
    if (sl_fs_read(AT_FDCWD, "/proc/driver/nvidia/version", 4096, &text, NULL, NULL) < 0) {
        sl_doctor_add(d, "driver", SL_DOCTOR_PROBLEM,
                      "install the NVIDIA driver (and `modprobe nvidia`), or try --sim h200",
                      "the NVIDIA kernel module is not loaded");
        return false;
    }
    /* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  <date>": the dotted number. */
    const char *p = text;
    while (*p && !(isdigit((unsigned char)*p) && strspn(p, "0123456789") >= 3 &&
                   p[strspn(p, "0123456789")] == '.'))
        p++;
    sl_doctor_add(d, "driver", SL_DOCTOR_OK, NULL, "kernel module %.*s",
                  (int)strspn(p, "0123456789."), p);
    return true;
}

/* Device files that a program needs and cannot open, by the reason. */
struct nodes {
    char missing[120];
    char closed[200];
    int closed_errno;
    size_t cards; /* that can be opened */
};

static bool check_node(struct nodes *n, const char *path)
{
    if (faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) == 0)
        return true;
    bool missing = errno == ENOENT;
    char *list = missing ? n->missing : n->closed;
    size_t size = missing ? sizeof(n->missing) : sizeof(n->closed);
    if (!missing)
        n->closed_errno = errno;
    (void)snprintf(list + strlen(list), size - strlen(list), "%s%s", list[0] ? ", " : "", path);
    return false;
}

static void look_at_nodes(struct nodes *n)
{
    (void)check_node(n, "/dev/nvidiactl");
    (void)check_node(n, "/dev/nvidia-uvm");
    SL_CLEANUP(closedir) DIR *dev = opendir("/dev");
    const struct dirent *e;
    while (dev && (e = readdir(dev))) {
        char path[300];
        if (strncmp(e->d_name, "nvidia", 6) != 0 || !isdigit((unsigned char)e->d_name[6]))
            continue;
        (void)snprintf(path, sizeof(path), "/dev/%s", e->d_name);
        n->cards += check_node(n, path);
    }
}

/* One line for each thing that has to be done. Returns whether all is well. */
static bool check_nodes(struct sl_doctor *d)
{
    struct nodes n = {.cards = 0};
    look_at_nodes(&n);
    if (n.missing[0])
        sl_doctor_add(d, "devices", SL_DOCTOR_PROBLEM,
                      "run `nvidia-modprobe -u -c 0` as root, or start the container with its GPUs",
                      "missing: %s", n.missing);
    if (n.closed[0])
        sl_doctor_add(d, "devices", SL_DOCTOR_PROBLEM,
                      "give yourself access (often: the group `video` or `render`)",
                      "may not be opened (%s): %s", strerror(n.closed_errno), n.closed);
    bool fine = !n.missing[0] && !n.closed[0];
    if (fine && n.cards == 0)
        sl_doctor_add(d, "devices", SL_DOCTOR_PROBLEM,
                      "start the container with its GPUs, or run nvidia-modprobe",
                      "there is no /dev/nvidia0");
    else if (fine)
        sl_doctor_add(d, "devices", SL_DOCTOR_OK, NULL, "%zu card%s, control and uvm may be opened",
                      n.cards, n.cards == 1 ? "" : "s");
    return fine && n.cards > 0;
}

/* The answers of cuInit; the last row stands for all others. */
static const struct cuda_trouble {
    int code;
    const char *what, *cure;
} cuda_troubles[] = {
    {100, "finds no GPU", "check CUDA_VISIBLE_DEVICES and the GPUs of the container"},
    {802, "says the system is not ready yet", "start nvidia-fabricmanager"},
    {803, "is of another version than the kernel module",
     "reboot, or reload the kernel module after a driver upgrade"},
    {804, "is a compatibility build this card does not support",
     "take the CUDA compatibility folder out of LD_LIBRARY_PATH"},
    {0, "does not start", "look at `dmesg | grep -i nvrm`"},
};

/* Returns whether CUDA starts. */
static bool check_cuda(struct sl_doctor *d)
{
    char path[PATH_MAX + 32] = "libcuda.so.1";
    struct sl_load_result r;
    if (d->world->sim_lib[0])
        (void)snprintf(path, sizeof(path), "%s/libcuda.so.1", d->world->sim_lib);
    sl_doctor_load(path, true, &r);
    if (r.crashed)
        sl_doctor_add(d, "cuda", SL_DOCTOR_PROBLEM, "look at `dmesg | grep -i nvrm`",
                      "libcuda.so.1 crashed or did not answer");
    else if (!r.loaded)
        sl_doctor_add(d, "cuda", SL_DOCTOR_PROBLEM,
                      "install the driver's user library (libcuda1), or try --sim h200",
                      "libcuda.so.1 cannot be loaded: %s", r.message);
    else if (r.cu_init != 0) {
        const struct cuda_trouble *t = cuda_troubles;
        while (t->code && t->code != r.cu_init)
            t++;
        sl_doctor_add(d, "cuda", SL_DOCTOR_PROBLEM, t->cure, "libcuda.so.1 %s (error %d)", t->what,
                      r.cu_init);
    } else
        sl_doctor_add(d, "cuda", SL_DOCTOR_OK, NULL, "CUDA %d.%d", r.cuda_version / 1000,
                      r.cuda_version % 1000 / 10);
    return r.loaded && r.cu_init == 0;
}

/* The cards as NVML lists them, kept until CUDA has been tried. */
struct cards {
    char driver[96];
    char uuid[SL_MAX_GPUS]
             [SL_GPU_UUID_SIZE]; /* "" for a card that is divided, or does not answer */
    size_t count;
};

/* A vGPU works without a licence, but more slowly after a while: worth a line where NVML tells. */
static void check_vgpu(struct sl_doctor *d, struct sl_gpu *gpu, size_t i)
{
    struct sl_gpu_vgpu v = {0};
    if (sl_gpu_vgpu(gpu, i, &v, NULL) < 0 || !v.guest)
        return;
    if (v.licence == SL_GPU_LICENCE_NONE)
        sl_doctor_add(d, "vgpu", SL_DOCTOR_WARNING,
                      "give the machine its licence (nvidia-gridd), then look at `nvidia-smi -q`",
                      "GPU %zu is a vGPU without a licence%s%s: its driver slows it down", i,
                      v.product[0] ? " for " : "", v.product);
    else if (v.licence == SL_GPU_LICENCE_VALID)
        sl_doctor_add(d, "vgpu", SL_DOCTOR_OK, NULL, "GPU %zu is a vGPU, licensed%s%s%s%s", i,
                      v.product[0] ? " for " : "", v.product, v.until[0] ? " until " : "", v.until);
    else
        sl_doctor_add(d, "vgpu", SL_DOCTOR_SKIPPED, NULL,
                      "GPU %zu is a vGPU; its driver does not tell whether it has a licence", i);
}

static void check_card(struct sl_doctor *d, struct sl_gpu *gpu, size_t i, char *ret_uuid)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_gpu_info info;
    char total[32];
    if (sl_gpu_info(gpu, i, &info, &err) < 0) {
        sl_doctor_add(d, "gpu", SL_DOCTOR_PROBLEM, "look at `dmesg | grep -i xid`", "GPU %zu: %s",
                      i, err.msg);
        return;
    }
    (void)sl_format_bytes(info.memory_total_bytes, total, sizeof(total));
    if (info.mig_enabled)
        sl_doctor_add(d, "gpu", SL_DOCTOR_WARNING,
                      "to share the whole card, switch MIG off: nvidia-smi -mig 0",
                      "GPU %zu: %s, %s: MIG is on, the card itself cannot be shared", i, info.name,
                      total);
    else
        sl_doctor_add(d, "gpu", SL_DOCTOR_OK, NULL, "GPU %zu: %s, %s%s", i, info.name, total,
                      info.mig_capable ? ", MIG off" : "");
    check_vgpu(d, gpu, i);
    if (!info.mig_enabled)
        memcpy(ret_uuid, info.uuid, sizeof(info.uuid));
}

static void check_nvml(struct sl_doctor *d, struct cards *ret)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_gpu *gpu = NULL;
    size_t count = 0;
    int rc = sl_world_gpus(d->world, &gpu, &err);
    if (rc == 0)
        rc = sl_gpu_driver_version(gpu, ret->driver, sizeof(ret->driver), &err);
    if (rc == 0)
        rc = sl_gpu_count(gpu, &count, &err);
    if (rc < 0)
        sl_doctor_add(d, "nvml", SL_DOCTOR_PROBLEM, "check whether `nvidia-smi` works", "%s",
                      err.msg);
    else if (count == 0)
        sl_doctor_add(d, "nvml", SL_DOCTOR_PROBLEM, "check whether `nvidia-smi -L` lists a GPU",
                      "driver %s has no GPU", ret->driver);
    else
        sl_doctor_add(d, "nvml", SL_DOCTOR_OK, NULL, "driver %s, %zu GPU%s", ret->driver, count,
                      count == 1 ? "" : "s");
    for (; rc == 0 && ret->count < count && ret->count < SL_MAX_GPUS; ret->count++)
        check_card(d, gpu, ret->count, ret->uuid[ret->count]);
    sl_gpu_close(gpu);
}

static void check_mps(struct sl_doctor *d)
{
    SL_CLEANUP(closedir) DIR *proc = opendir("/proc");
    const struct dirent *e;
    while (proc && (e = readdir(proc))) {
        char path[300];
        SL_CLEANUP(free) char *comm = NULL;
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        (void)snprintf(path, sizeof(path), "/proc/%s/comm", e->d_name);
        if (sl_fs_read(AT_FDCWD, path, 64, &comm, NULL, NULL) == 0 &&
            strncmp(comm, "nvidia-cuda-mps", 15) == 0) {
            sl_doctor_add(
                d, "mps", SL_DOCTOR_WARNING, "stop MPS: echo quit | nvidia-cuda-mps-control",
                "MPS is running (process %s): its clients share one context, so a fault in "
                "one ends all",
                e->d_name);
            return;
        }
    }
    sl_doctor_add(d, "mps", SL_DOCTOR_OK, NULL, "not running");
}

/* The libraries of the driver, and what they say of the cards. */
static void check_libraries(struct sl_doctor *d)
{
    struct cards cards = {.count = 0};
    check_nvml(d, &cards);
    bool cuda = check_cuda(d);
    for (size_t i = 0; cuda && i < cards.count; i++)
        if (cards.uuid[i][0])
            sl_doctor_slices(d, i, cards.uuid[i], cards.driver);
}

static void skip(struct sl_doctor *d, const char *name)
{
    sl_doctor_add(d, name, SL_DOCTOR_SKIPPED, NULL, "not checked: there is no driver");
}

static void check_real(struct sl_doctor *d)
{
    bool module = check_module(d);
    /* A container may have its device files and hide /proc/driver. */
    if (!module && access("/dev/nvidiactl", F_OK) != 0) {
        skip(d, "devices");
        skip(d, "nvml");
        skip(d, "cuda");
        return;
    }
    d->root = module ? NULL : "driver";
    if (!check_nodes(d) && !d->root)
        d->root = "device files";
    check_libraries(d);
    d->root = NULL;
    check_mps(d);
}

static void check_simulated(struct sl_doctor *d)
{
    struct sl_err err = SL_ERR_INIT;
    if (sl_doctor_scratch_begin(d->world->place.sim, &err) < 0) {
        sl_doctor_add(d, "driver", SL_DOCTOR_PROBLEM, "make room in /tmp", "%s", err.msg);
        skip(d, "nvml");
        skip(d, "cuda");
    } else {
        sl_doctor_add(d, "driver", SL_DOCTOR_OK, NULL, "simulated: %s", d->world->place.sim);
        check_libraries(d);
    }
    sl_doctor_scratch_end();
}

void sl_doctor_gpu(struct sl_doctor *d)
{
    if (d->world->place.sim[0])
        check_simulated(d);
    else
        check_real(d);
}
