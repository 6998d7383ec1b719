/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcuda's side of channel groups: what it asks of the kernel driver when a context is made and
 * destroyed. As with the real one, the calls go through the process's `ioctl`, where a preloaded
 * library sees them and may change them.
 */
#include "sim/cuda_int.h"
#include "sim/rm.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#define SLICE_US         2048
#define COMPUTE_CHANNELS 8
#define COPY_CHANNELS    2

typedef int (*ioctl_fn)(int fd, unsigned long request, ...);

static ioctl_fn process_ioctl;
static uint32_t root;
static uint32_t next_handle = 0x5C000001U; /* under the process lock */

/* Never this library's own directly: a preloaded one must see it. Where nobody passes the call to us
 * the kernel says ENOTTY, and we serve it here. In a link-map namespace of its own this library has its
 * own C library, and the program's sets another errno: ours stays 0. The program's own view of names is
 * asked for, not RTLD_DEFAULT: linked with -Bsymbolic, this library would find itself first. */
static bool call(int fd, unsigned long request, void *arg)
{
    if (!process_ioctl) {
        void *program = dlopen(NULL, RTLD_LAZY);
        union {
            void *object;
            ioctl_fn function;
        } found = {.object = program ? dlsym(program, "ioctl") : NULL};
        process_ioctl = found.function;
    }
    int saved = errno;
    errno = 0;
    int r = process_ioctl ? process_ioctl(fd, request, arg) : -1;
    if (r < 0 && (errno == 0 || errno == ENOTTY))
        r = sim_rm_ioctl(fd, request, arg);
    errno = saved;
    return r >= 0;
}

static uint32_t make(int fd, uint32_t parent, uint32_t class, void *params, uint32_t size)
{
    struct sim_rm_alloc a = {.root = root,
                             .parent = parent,
                             .class = class,
                             .object = class == SIM_RM_CLASS_ROOT ? 0 : next_handle++,
                             .params = (uint64_t)(uintptr_t)params,
                             .params_size = size};
    return call(fd, SIM_RM_ALLOC, &a) && a.status == SIM_RM_OK ? a.object : 0;
}

static void drop(int fd, uint32_t parent, uint32_t *object)
{
    struct sim_rm_free f = {.root = root, .parent = parent, .object = *object};
    if (*object)
        (void)call(fd, SIM_RM_FREE, &f);
    *object = 0;
}

static bool make_group(int fd, struct sim_groups *g, size_t i)
{
    uint32_t engine = i == 0 ? SIM_RM_ENGINE_COMPUTE : SIM_RM_ENGINE_COPY0 + (uint32_t)i - 1;
    struct sim_rm_group_params p = {.engine = engine};
    unsigned char channel[368] = {0};
    g->group[i] = make(fd, g->device, SIM_RM_CLASS_GROUP, &p, sizeof(p));
    if (!g->group[i])
        return false;
    for (size_t k = 0; k < (i == 0 ? COMPUTE_CHANNELS : COPY_CHANNELS); k++) {
        g->channel[i][k] = make(fd, g->group[i], SIM_RM_CLASS_CHANNEL, channel, sizeof(channel));
        if (!g->channel[i][k])
            return false;
    }
    return true;
}

static bool make_all(int fd, CUcontext ctx)
{
    struct sim_groups *g = &ctx->groups;
    uint32_t device[14] = {ctx->card}, subdevice = 0;
    if (!root)
        root = make(fd, 0, SIM_RM_CLASS_ROOT, NULL, 0);
    if (!root)
        return false;
    g->device = make(fd, root, SIM_RM_CLASS_DEVICE, device, sizeof(device));
    g->subdevice = g->device ? make(fd, g->device, SIM_RM_CLASS_SUBDEVICE, &subdevice, 4) : 0;
    bool ok = g->subdevice != 0;
    /* The compute group of an MPS client is its server's. */
    for (size_t i = sim_p.mps.on ? 1 : 0; ok && i < SIM_GROUPS; i++)
        ok = make_group(fd, g, i);
    if (ok && g->group[0]) {
        struct sim_rm_slice slice = {.us = SLICE_US};
        struct sim_rm_control c = {.client = root,
                                   .object = g->group[0],
                                   .cmd = SIM_RM_GROUP_SET_SLICE,
                                   .params = (uint64_t)(uintptr_t)&slice,
                                   .size = sizeof(slice)};
        (void)call(fd, SIM_RM_CONTROL, &c); /* refused: the driver's own slice stays */
    }
    return ok;
}

bool sim_groups_make(CUcontext ctx)
{
    int fd = sim_rm_fd();
    if (fd < 0)
        return false;
    sim_rm_making(ctx);
    bool ok = make_all(fd, ctx);
    sim_rm_making(NULL);
    if (!ok)
        sim_groups_drop(ctx);
    return ok;
}

void sim_groups_drop(CUcontext ctx)
{
    struct sim_groups *g = &ctx->groups;
    int fd = sim_rm_fd();
    for (size_t i = 0; i < SIM_GROUPS; i++) {
        for (size_t k = 0; k < SIM_GROUP_CHANNELS; k++)
            drop(fd, g->group[i], &g->channel[i][k]);
        drop(fd, g->device, &g->group[i]);
    }
    drop(fd, g->device, &g->subdevice);
    drop(fd, root, &g->device);
}
