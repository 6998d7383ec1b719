/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/channels.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "policy/steer.h"
#include "preload/hooks.h"
#include "preload/lock.h"

/* Requests on NVIDIA's control device; each has its own type, number and size. */
#define REQUEST_FREE     0xC0104629UL
#define REQUEST_CONTROL  0xC020462AUL
#define REQUEST_ALLOC    0xC030462BUL
#define REQUEST_ALLOC_32 0xC020462BUL /* of older drivers */

#define CLASS_SUBDEVICE      0x2080U
#define CLASS_GROUP          0xA06CU
#define CLASS_CHANNEL_END    0x6FU /* every channel class ends with this */
#define CONTROL_SET_SLICE    0xA06C0103U
#define CONTROL_SET_OFF      0x2080110BU
/* Graphics and compute engines; copy engines come after them. */
#define ENGINE_COMPUTE_FIRST 1U
#define ENGINE_COMPUTE_LAST  8U

/* No status of the driver: the call itself failed, errno is in the low bits. */
#define STATUS_CALL_FAILED 0x10000U
#define STATUS_NO_OBJECT   0x57U

#define MAX_GROUPS     128
#define MAX_SUBDEVICES 128
#define MAX_CHANNELS   64 /* in one group, and in one call */

struct request_alloc {
    uint32_t root, parent, object, class;
    uint64_t params;
    union {
        struct {
            uint32_t params_size, status;
        } old;
        struct {
            uint64_t rights;
            uint32_t params_size, flags, status, pad;
        } now;
    };
};

struct request_control {
    uint32_t client, object, command, flags;
    uint64_t params;
    uint32_t params_size, status;
};

struct request_free {
    uint32_t root, parent, object, status;
};

struct params_off {
    uint8_t off;
    uint32_t count;
    uint8_t only_scheduling, rewind;
    uint64_t event;
    uint32_t client[MAX_CHANNELS], channel[MAX_CHANNELS];
};

_Static_assert(sizeof(struct request_alloc) == 48, "the driver's layout");
_Static_assert(sizeof(struct request_control) == 32, "the driver's layout");
_Static_assert(sizeof(struct request_free) == 16, "the driver's layout");
_Static_assert(sizeof(struct params_off) == 536, "the driver's layout");

/* A group on the compute engine; groups of the copy engines are left alone. */
struct group {
    uint64_t serial; /* in the order of creation */
    int fd;
    uint32_t client, device, handle;
    uint32_t count;
    uint32_t channel[MAX_CHANNELS];
};

struct subdevice {
    uint32_t client, device, handle;
};

static struct {
    struct sl_lock lock;
    uint64_t serials;
    uint32_t groups, subdevices;
    struct group group[MAX_GROUPS];
    struct subdevice subdevice[MAX_SUBDEVICES];
    _Atomic uint32_t slice_us; /* for new groups; 0: the driver's own */
} known;

/* --- passing on -------------------------------------------------------------------------------- */

typedef int ioctl_function(int, unsigned long, ...);

static int kernel_ioctl(int fd, unsigned long request, ...)
{
    va_list ap;
    va_start(ap, request);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    return (int)syscall(SYS_ioctl, fd, request, arg);
}

/* A driver outside the kernel (the simulated one) serves its requests itself. */
static ioctl_function *driver_ioctl(void)
{
    static ioctl_function *_Atomic found;
    ioctl_function *f = atomic_load_explicit(&found, memory_order_acquire);
    if (f)
        return f;
    bool loaded;
    f = (ioctl_function *)(uintptr_t)sl_driver_symbol(SL_LIBRARY_CUDA, "ioctl", &loaded);
    if (!f)
        f = kernel_ioctl;
    if (loaded)
        atomic_store_explicit(&found, f, memory_order_release);
    return f;
}

/* --- groups are made and destroyed ------------------------------------------------------------ */

static void channel_came(const struct request_alloc *r)
{
    for (uint32_t i = 0; i < known.groups; i++) {
        struct group *g = &known.group[i];
        if (g->client == r->root && g->handle == r->parent && g->count < MAX_CHANNELS)
            g->channel[g->count++] = r->object;
    }
}

static bool is_for_compute(const struct request_alloc *r)
{
    const uint32_t *params = (const uint32_t *)(uintptr_t)r->params;
    return r->class == CLASS_GROUP && params && params[3] >= ENGINE_COMPUTE_FIRST &&
           params[3] <= ENGINE_COMPUTE_LAST;
}

static void object_came(int fd, const struct request_alloc *r)
{
    sl_lock_take(&known.lock);
    if (r->class == CLASS_SUBDEVICE && known.subdevices < MAX_SUBDEVICES)
        known.subdevice[known.subdevices++] =
            (struct subdevice){.client = r->root, .device = r->parent, .handle = r->object};
    else if (is_for_compute(r) && known.groups < MAX_GROUPS)
        known.group[known.groups++] = (struct group){
            .serial = ++known.serials,
            .fd = fd,
            .client = r->root,
            .device = r->parent,
            .handle = r->object,
        };
    else if ((r->class & 0xFFU) == CLASS_CHANNEL_END)
        channel_came(r);
    sl_lock_drop(&known.lock);
}

static void channel_gone(struct group *g, uint32_t channel)
{
    for (uint32_t i = 0; i < g->count; i++)
        if (g->channel[i] == channel)
            g->channel[i--] = g->channel[--g->count];
}

/* An object takes its child objects with it. */
static void object_gone(const struct request_free *r)
{
    sl_lock_take(&known.lock);
    for (uint32_t i = 0; i < known.groups; i++) {
        struct group *g = &known.group[i];
        if (g->client != r->root)
            continue;
        channel_gone(g, r->object);
        if (r->object == g->handle || r->object == g->device || r->object == r->root)
            known.group[i--] = known.group[--known.groups];
    }
    for (uint32_t i = 0; i < known.subdevices; i++) {
        const struct subdevice *s = &known.subdevice[i];
        if (s->client == r->root &&
            (r->object == s->handle || r->object == s->device || r->object == r->root))
            known.subdevice[i--] = known.subdevice[--known.subdevices];
    }
    sl_lock_drop(&known.lock);
}

static bool is_compute(uint32_t client, uint32_t handle)
{
    bool found = false;
    sl_lock_take(&known.lock);
    for (uint32_t i = 0; i < known.groups; i++)
        found |= known.group[i].client == client && known.group[i].handle == handle;
    sl_lock_drop(&known.lock);
    return found;
}

/* The driver sets a slice when it makes a context: replace the value in its own call. */
static int control(int fd, struct request_control *r)
{
    uint64_t wanted = atomic_load(&known.slice_us);
    if (r->command != CONTROL_SET_SLICE || r->params_size != sizeof(uint64_t) || !r->params ||
        !wanted || !is_compute(r->client, r->object))
        return driver_ioctl()(fd, REQUEST_CONTROL, r);
    uint64_t params = r->params;
    r->params = (uint64_t)(uintptr_t)&wanted;
    int rc = driver_ioctl()(fd, REQUEST_CONTROL, r);
    r->params = params;
    return rc;
}

static int driver_request(int fd, unsigned long request, void *arg)
{
    if (request == REQUEST_CONTROL)
        return control(fd, arg);
    if (request == REQUEST_FREE)
        object_gone(arg); /* first: from here on no thread may use it */
    int rc = driver_ioctl()(fd, request, arg);
    if (rc != 0)
        return rc;
    const struct request_alloc *r = arg;
    if (request == REQUEST_ALLOC_32 && r->old.status == 0)
        object_came(fd, r);
    else if (request == REQUEST_ALLOC && r->now.status == 0)
        object_came(fd, r);
    return rc;
}

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
    va_list ap;
    va_start(ap, request);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    if (__builtin_expect((request >> 8 & 0xFF) != 'F', 1))
        return (int)syscall(SYS_ioctl, fd, request, arg);
    return driver_request(fd, request, arg);
}

/* --- steering ---------------------------------------------------------------------------------- */

static uint32_t send_control(int fd, uint32_t client, uint32_t object, uint32_t command,
                             void *params, uint32_t size)
{
    int saved = errno;
    struct request_control r = {.client = client,
                                .object = object,
                                .command = command,
                                .params = (uint64_t)(uintptr_t)params,
                                .params_size = size};
    int rc = driver_ioctl()(fd, REQUEST_CONTROL, &r);
    uint32_t status = rc != 0 ? STATUS_CALL_FAILED | (uint32_t)errno : r.status;
    errno = saved;
    return status;
}

/* The group that was made next after this one, copied: no lock is held in the driver, and groups may come and go
 * meanwhile without another group being skipped. Begin with a serial of 0. */
static bool next_group(struct group *g)
{
    const struct group *next = NULL;
    sl_lock_take(&known.lock);
    for (uint32_t i = 0; i < known.groups; i++)
        if (known.group[i].serial > g->serial && (!next || known.group[i].serial < next->serial))
            next = &known.group[i];
    if (next)
        *g = *next;
    sl_lock_drop(&known.lock);
    return next != NULL;
}

/* An error about an object that was destroyed meanwhile is no refusal. */
static uint32_t refusal(const struct group *g, uint32_t status)
{
    if (status == 0)
        return 0;
    return is_compute(g->client, g->handle) && status != STATUS_NO_OBJECT ? status : 0;
}

uint32_t sl_channels_groups(void)
{
    sl_lock_take(&known.lock);
    uint32_t n = known.groups;
    sl_lock_drop(&known.lock);
    return n;
}

uint32_t sl_channels_slice(uint32_t slice_us)
{
    struct group g = {.serial = 0};
    uint32_t worst = 0;
    uint64_t us = slice_us ? slice_us : SL_STEER_DEFAULT_US;
    atomic_store(&known.slice_us, slice_us);
    while (next_group(&g)) {
        uint32_t status =
            refusal(&g, send_control(g.fd, g.client, g.handle, CONTROL_SET_SLICE, &us, sizeof(us)));
        worst = status ? status : worst;
    }
    return worst;
}

static uint32_t subdevice_of(const struct group *g)
{
    uint32_t handle = 0;
    sl_lock_take(&known.lock);
    for (uint32_t i = 0; i < known.subdevices; i++)
        if (known.subdevice[i].client == g->client && known.subdevice[i].device == g->device)
            handle = known.subdevice[i].handle;
    sl_lock_drop(&known.lock);
    return handle;
}

uint32_t sl_channels_set_off(bool off)
{
    struct group g = {.serial = 0};
    uint32_t worst = 0;
    while (next_group(&g)) {
        struct params_off p = {.off = off, .count = g.count};
        for (uint32_t k = 0; k < g.count; k++) {
            p.client[k] = g.client;
            p.channel[k] = g.channel[k];
        }
        if (g.count == 0)
            continue;
        uint32_t status = refusal(
            &g, send_control(g.fd, g.client, subdevice_of(&g), CONTROL_SET_OFF, &p, sizeof(p)));
        worst = status ? status : worst;
    }
    return worst;
}

void sl_channels_forget(void)
{
    sl_lock_reset(&known.lock);
    known.groups = known.subdevices = 0;
}
