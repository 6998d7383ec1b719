/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel driver's side of channel groups. The calls come in through `ioctl`, which this library
 * exports: a preloaded `ioctl` passes to it what it does not keep for itself. Objects are this
 * process's; what a control changes is in the shared state, where the engine looks.
 *
 * A caller may hold the process lock (libcuda making a context) or not (somebody's own thread), so
 * nothing here takes it. `rm_lock` is inside it, and the state's lock inside that.
 */
#include "sim/cuda_int.h"
#include "sim/rm.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SET_SLICE_NS  300000ULL
#define SWITCH_OFF_NS 500000ULL /* disable, enable, preempt */

struct object {
    uint32_t handle, parent, class;
    uint32_t engine;            /* of a group, and of a channel its group's */
    uint32_t queue, generation; /* of the context it was made for; SL_SIM_NONE: of none */
    uint32_t number;            /* a channel's, in its group */
    uint64_t slice_us;          /* a copy group's: kept, and without effect */
};

static pthread_mutex_t rm_lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects;
static size_t object_count, object_room;
static uint32_t next_root = 0xC1D00001U;
static int control_fd = -1;
static struct stat control_file;

/* The context whose objects this thread is making. */
static _Thread_local CUcontext making;

/* Faults of this process: bits, from that call on. */
static uint32_t fault_bits;
static unsigned long fault_from = 1;
static unsigned long control_calls;

void sim_rm_fault(uint32_t bits, unsigned long from)
{
    fault_bits |= bits;
    fault_from = from;
}

/* ---- objects, rm_lock held ---- */

static struct object *find(uint32_t handle)
{
    for (size_t i = 0; handle && i < object_count; i++)
        if (objects[i].handle == handle)
            return &objects[i];
    return NULL;
}

static struct object *add(const struct object *o)
{
    if (object_count == object_room) {
        size_t room = object_room ? object_room * 2 : 64;
        struct object *more = realloc(objects, room * sizeof(*more));
        if (!more)
            return NULL;
        objects = more;
        object_room = room;
    }
    objects[object_count] = *o;
    return &objects[object_count++];
}

static uint32_t children(uint32_t handle, uint32_t class)
{
    uint32_t n = 0;
    for (size_t i = 0; i < object_count; i++)
        n += objects[i].parent == handle && objects[i].class == class;
    return n;
}

/* The queue behind a group or channel of the compute engine, while it is that context's. State
 * locked. */
static struct sl_sim_queue *queue_of(const struct object *o)
{
    if (o->engine != SIM_RM_ENGINE_COMPUTE || o->queue >= SL_SIM_MAX_QUEUES)
        return NULL;
    struct sl_sim_queue *q = &sim_p.st->queues[o->queue];
    return q->used && q->generation == o->generation ? q : NULL;
}

static void channel_is(const struct object *o, bool there)
{
    sl_sim_lock(sim_p.st);
    sl_sim_advance(sim_p.st, sl_sim_now_ns());
    struct sl_sim_queue *q = queue_of(o);
    uint32_t bit = 1U << (o->number % 32);
    if (q) {
        q->channels_off &= ~bit;
        q->channels = there ? q->channels | bit : q->channels & ~bit;
    }
    sl_sim_unlock(sim_p.st);
}

static uint32_t alloc_object(struct sim_rm_alloc *a)
{
    struct object o = {
        .handle = a->object, .parent = a->parent, .class = a->class, .queue = SL_SIM_NONE};
    const struct object *parent = find(a->parent);
    if (a->class == SIM_RM_CLASS_ROOT)
        o.handle = o.handle ? o.handle : next_root++;
    else if (!parent || !find(a->root))
        return SIM_RM_NOT_FOUND;
    if (!o.handle || ((a->class == SIM_RM_CLASS_GROUP) &&
                      (!a->params || a->params_size < sizeof(struct sim_rm_group_params) - 4)))
        return SIM_RM_INVALID;
    if (find(o.handle))
        return SIM_RM_IN_USE;
    if (making) {
        o.queue = making->queue;
        o.generation = making->queue_generation;
    }
    if (a->class == SIM_RM_CLASS_GROUP)
        o.engine = ((const struct sim_rm_group_params *)(uintptr_t)a->params)->engine;
    bool channel = parent && parent->class == SIM_RM_CLASS_GROUP;
    if (channel) {
        o.engine = parent->engine;
        o.number = children(a->parent, a->class);
    }
    struct object *kept = add(&o);
    if (!kept)
        return SIM_RM_NO_MEMORY;
    if (channel)
        channel_is(kept, true);
    a->object = o.handle;
    return SIM_RM_OK;
}

/* With an object goes all that is in it. */
static void free_object(uint32_t handle)
{
    for (size_t i = 0; i < object_count;) {
        if (objects[i].parent != handle) {
            i++;
            continue;
        }
        free_object(objects[i].handle);
        i = 0; /* they moved */
    }
    struct object *o = find(handle);
    if (!o)
        return;
    if (o->class == SIM_RM_CLASS_CHANNEL)
        channel_is(o, false);
    *o = objects[--object_count];
}

/* ---- controls, rm_lock held ---- */

static uint32_t set_slice(struct object *group, uint64_t us, bool inert)
{
    if (us == 0 || us > UINT32_MAX)
        return SIM_RM_INVALID;
    group->slice_us = us;
    sl_sim_lock(sim_p.st);
    sl_sim_advance(sim_p.st, sl_sim_now_ns());
    struct sl_sim_queue *q = queue_of(group);
    if (q) {
        q->slice_us = (uint32_t)us;
        if (!inert)
            sl_sim_queue_slice(sim_p.st, group->queue, us * SL_SIM_SLICE_UNIT_NS);
    }
    sl_sim_unlock(sim_p.st);
    return SIM_RM_OK;
}

static uint32_t preempt(const struct object *group, bool inert)
{
    sl_sim_lock(sim_p.st);
    sl_sim_advance(sim_p.st, sl_sim_now_ns());
    if (queue_of(group) && !inert)
        sl_sim_queue_preempt(sim_p.st, group->queue);
    sl_sim_unlock(sim_p.st);
    return SIM_RM_OK;
}

static uint32_t on_group(struct object *group, const struct sim_rm_control *c, bool inert,
                         bool inert_slice)
{
    struct sim_rm_slice *slice = (struct sim_rm_slice *)(uintptr_t)c->params;
    switch (c->cmd) {
    case SIM_RM_GROUP_SET_SLICE:
        return slice && c->size == sizeof(*slice) ? set_slice(group, slice->us, inert_slice)
                                                  : SIM_RM_INVALID;
    case SIM_RM_GROUP_GET_SLICE:
        if (!slice || c->size != sizeof(*slice))
            return SIM_RM_INVALID;
        slice->us = group->slice_us ? group->slice_us : sim_p.st->slice_ns / SL_SIM_SLICE_UNIT_NS;
        return SIM_RM_OK;
    case SIM_RM_GROUP_PREEMPT:
        return preempt(group, inert);
    case SIM_RM_GROUP_SCHEDULE:
        return SIM_RM_OK;
    default:
        return SIM_RM_NOT_SUPPORTED;
    }
}

static uint32_t disable(const struct sim_rm_control *c, bool inert)
{
    const struct sim_rm_disable *d = (const struct sim_rm_disable *)(uintptr_t)c->params;
    if (!d || c->size != sizeof(*d) || d->count == 0 || d->count > 64 || d->event)
        return SIM_RM_INVALID;
    for (uint32_t i = 0; i < d->count; i++) {
        const struct object *o = find(d->channel[i]), *client = find(d->client[i]);
        if (!o || o->class != SIM_RM_CLASS_CHANNEL || !client || client->class != SIM_RM_CLASS_ROOT)
            return SIM_RM_NOT_FOUND;
    }
    if (inert)
        return SIM_RM_OK;
    sl_sim_lock(sim_p.st);
    sl_sim_advance(sim_p.st, sl_sim_now_ns());
    for (uint32_t i = 0; i < d->count; i++) {
        const struct object *o = find(d->channel[i]);
        struct sl_sim_queue *q = queue_of(o);
        uint32_t bit = 1U << (o->number % 32);
        if (q)
            q->channels_off = d->disable ? q->channels_off | bit : q->channels_off & ~bit;
    }
    sl_sim_unlock(sim_p.st);
    return SIM_RM_OK;
}

/* What is wrong with this driver: faults of the context's card, and of this process. */
static uint32_t faults_of(const struct object *o)
{
    uint32_t bits = 0;
    if (fault_bits && ++control_calls >= fault_from)
        bits |= fault_bits;
    if (o->queue < SL_SIM_MAX_QUEUES) {
        sl_sim_lock(sim_p.st);
        bits |= sim_p.st->cards[sim_p.st->queues[o->queue].card % SL_SIM_MAX_DEVICES].groups_fault;
        sl_sim_unlock(sim_p.st);
    }
    return bits;
}

static uint32_t control_object(const struct sim_rm_control *c)
{
    struct object *o = find(c->object);
    const struct object *client = find(c->client);
    if (!o || !client || client->class != SIM_RM_CLASS_ROOT)
        return SIM_RM_NOT_FOUND;
    bool group = o->class == SIM_RM_CLASS_GROUP && c->cmd >> 16 == SIM_RM_CLASS_GROUP;
    bool off = o->class == SIM_RM_CLASS_SUBDEVICE && c->cmd == SIM_RM_DISABLE;
    if (!group && !off)
        return SIM_RM_NOT_SUPPORTED;
    uint32_t faults = faults_of(o);
    uint32_t refuse = off                                ? SL_SIM_GROUPS_REFUSE_DISABLE
                      : c->cmd == SIM_RM_GROUP_SET_SLICE ? SL_SIM_GROUPS_REFUSE_SLICE
                                                         : SL_SIM_GROUPS_REFUSE_OTHERS;
    if (faults & refuse)
        return SIM_RM_NOT_SUPPORTED;
    bool inert = faults & SL_SIM_GROUPS_INERT;
    return off ? disable(c, inert)
               : on_group(o, c, inert, inert || faults & SL_SIM_GROUPS_INERT_SLICE);
}

/* ---- the calls ---- */

static void take(uint64_t ns)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(ns / 1000000000U);
    until.tv_nsec = (long)(ns % 1000000000U);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

static void control(struct sim_rm_control *c)
{
    /* The time passes in the caller; what the call does is done at its end. */
    if (c->cmd == SIM_RM_GROUP_SET_SLICE)
        take(SET_SLICE_NS);
    else if (c->cmd == SIM_RM_GROUP_PREEMPT || c->cmd == SIM_RM_DISABLE)
        take(SWITCH_OFF_NS);
    (void)pthread_mutex_lock(&rm_lock);
    c->status = control_object(c);
    (void)pthread_mutex_unlock(&rm_lock);
}

static void alloc32(struct sim_rm_alloc32 *a)
{
    struct sim_rm_alloc wide = {.root = a->root,
                                .parent = a->parent,
                                .object = a->object,
                                .class = a->class,
                                .params = a->params,
                                .params_size = a->params_size};
    (void)pthread_mutex_lock(&rm_lock);
    a->status = alloc_object(&wide);
    (void)pthread_mutex_unlock(&rm_lock);
    a->object = wide.object;
}

static int serve(unsigned long request, void *arg)
{
    switch (request) {
    case SIM_RM_ALLOC: {
        struct sim_rm_alloc *a = arg;
        (void)pthread_mutex_lock(&rm_lock);
        a->status = alloc_object(a);
        (void)pthread_mutex_unlock(&rm_lock);
        return 0;
    }
    case SIM_RM_ALLOC32:
        alloc32(arg);
        return 0;
    case SIM_RM_CONTROL:
        control(arg);
        return 0;
    case SIM_RM_FREE: {
        struct sim_rm_free *f = arg;
        (void)pthread_mutex_lock(&rm_lock);
        f->status = find(f->object) ? SIM_RM_OK : SIM_RM_NOT_FOUND;
        free_object(f->object);
        (void)pthread_mutex_unlock(&rm_lock);
        return 0;
    }
    default:
        errno = EINVAL;
        return -1;
    }
}

/* Whether a descriptor stands for the control device: ours, or a copy of it. A child that forked has
 * none; the number alone does not say, a program may have closed ours and opened another file. */
static bool is_control(int fd)
{
    struct stat sb;
    int saved = errno;
    bool ours = fd >= 0 && !sim_p.forked && fstat(fd, &sb) == 0;
    errno = saved;
    if (!ours)
        return false;
    (void)pthread_mutex_lock(&rm_lock);
    ours = control_fd >= 0 && sb.st_dev == control_file.st_dev && sb.st_ino == control_file.st_ino;
    (void)pthread_mutex_unlock(&rm_lock);
    return ours;
}

int sim_rm_fd(void)
{
    if (is_control(control_fd)) /* it changes here only, under the process lock */
        return control_fd;
    struct stat sb;
    int fd = memfd_create("nvidiactl", MFD_CLOEXEC);
    if (fd < 0 || fstat(fd, &sb) != 0)
        return fd;
    (void)pthread_mutex_lock(&rm_lock);
    control_fd = fd;
    control_file = sb;
    (void)pthread_mutex_unlock(&rm_lock);
    return fd;
}

void sim_rm_making(CUcontext ctx)
{
    making = ctx;
}

int sim_rm_ioctl(int fd, unsigned long request, void *arg)
{
    if (_IOC_TYPE(request) == SIM_RM_TYPE && arg && is_control(fd))
        return serve(request, arg);
    return (int)syscall(SYS_ioctl, fd, request, arg);
}

/* For whoever passes calls on to the driver, and for programs that find this one before the C
 * library's. */
__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    va_start(args, request);
    void *arg = va_arg(args, void *);
    va_end(args);
    return sim_rm_ioctl(fd, request, arg);
}
