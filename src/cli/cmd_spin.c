/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sluice spin FD INDEX`: keeps the first visible GPU busy with kernels of half a millisecond and counts the finished
 * loops, until told to stop. Only `sluice doctor` starts it (doctor_slices.c), with libsluice preloaded.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/errors.h"
#include "cli/slices_probe.h"

#define KERNEL_NS            (SL_NS_PER_MS / 2)
#define DEPTH                64 /* kernels queued, so that a busy host leaves no gaps */
#define THREADS              256U
#define MOST_ITERS           (1ULL << 40)
/* CUdevice_attribute, CUevent_flags: this room has no CUDA header. */
#define ATTRIBUTE_SMS        16
#define ATTRIBUTE_THREADS    39
#define EVENT_QUIET_BLOCKING 3U /* no timing, and waiting sleeps */

/* The kernels' PTX, as text with its terminating zero. */
__asm__(".section .rodata\n.local sl_spin_ptx\nsl_spin_ptx:\n.incbin \"" KERNELS_PTX
        "\"\n.byte 0\n.previous\n");
extern const char sl_spin_ptx[] __attribute__((visibility("hidden")));

typedef struct handle *handle;

/* The functions of CUDA that are used here. */
#define CUDA(FN)                                                                                   \
    FN(cuInit, unsigned)                                                                           \
    FN(cuDeviceGet, int *, int)                                                                    \
    FN(cuDeviceGetAttribute, int *, int, int)                                                      \
    FN(cuDevicePrimaryCtxRetain, handle *, int)                                                    \
    FN(cuCtxSetCurrent, handle)                                                                    \
    FN(cuCtxSynchronize, void)                                                                     \
    FN(cuModuleLoadData, handle *, const void *)                                                   \
    FN(cuModuleGetFunction, handle *, handle, const char *)                                        \
    FN(cuEventCreate, handle *, unsigned)                                                          \
    FN(cuEventRecord, handle, handle)                                                              \
    FN(cuEventSynchronize, handle)                                                                 \
    FN(cuLaunchKernel, handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,         \
       unsigned, handle, void **, void **)

#define FN(name, ...) int (*name)(__VA_ARGS__);
static struct {
    CUDA(FN)
} cu;
#undef FN

static struct sl_spin_page *page;
static handle kernel;
static unsigned blocks;
static uint64_t iters = 4096; /* of the kernel's loop */

static bool failed(int code, const char *what)
{
    if (code == 0)
        return false;
    page->code = code;
    (void)snprintf(page->what, sizeof(page->what), "%s", what);
    atomic_store(&page->state, SL_SPIN_FAILED);
    return true;
}

#define TRY(name, ...)                                                                             \
    if (failed(cu.name(__VA_ARGS__), #name))                                                       \
    return false

static bool look_up(void)
{
#define FN(name, ...) {#name, &cu.name},
    static const struct {
        const char *name;
        void *to;
    } wanted[] = {CUDA(FN)};
#undef FN
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!lib)
        return !failed(-1, "dlopen");
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *p = dlsym(lib, wanted[i].name);
        if (!p)
            return !failed(-1, wanted[i].name);
        memcpy(wanted[i].to, &p, sizeof(p));
    }
    return true;
}

static bool launch(void)
{
    uint64_t nowhere = 0;
    void *params[] = {&iters, &nowhere};
    TRY(cuLaunchKernel, kernel, blocks, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL);
    return true;
}

/* The shortest of several measurements: a busy host can make a kernel look longer, never shorter. */
static bool time_kernel(uint64_t *ret_ns)
{
    *ret_ns = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        uint64_t begin = sl_now_ns();
        if (!launch())
            return false;
        TRY(cuCtxSynchronize);
        uint64_t took = sl_now_ns() - begin;
        *ret_ns = took < *ret_ns ? took : *ret_ns;
    }
    return true;
}

/* Kernels of KERNEL_NS to twice that, with every multiprocessor full. */
static bool calibrate(void)
{
    uint64_t ns = 0;
    for (; ns < KERNEL_NS && iters < MOST_ITERS; iters *= 2)
        if (!time_kernel(&ns))
            return false;
    return true;
}

static bool open_gpu(void)
{
    handle context, module;
    int device, sms, threads;
    TRY(cuInit, 0);
    TRY(cuDeviceGet, &device, 0);
    TRY(cuDeviceGetAttribute, &sms, ATTRIBUTE_SMS, device);
    TRY(cuDeviceGetAttribute, &threads, ATTRIBUTE_THREADS, device);
    TRY(cuDevicePrimaryCtxRetain, &context, device);
    TRY(cuCtxSetCurrent, context);
    TRY(cuModuleLoadData, &module, sl_spin_ptx);
    TRY(cuModuleGetFunction, &kernel, module, "sluice_fma");
    blocks = (unsigned)sms * ((unsigned)threads / THREADS);
    return calibrate();
}

static bool spin(void)
{
    handle event[DEPTH];
    for (size_t i = 0; i < DEPTH; i++)
        TRY(cuEventCreate, &event[i], EVENT_QUIET_BLOCKING);
    atomic_store(&page->state, SL_SPIN_READY);
    while (!atomic_load(&page->go) && !atomic_load(&page->stop))
        sl_sleep_ns(SL_NS_PER_MS);
    for (size_t n = 0; !atomic_load(&page->stop); n++) {
        if (n >= DEPTH) {
            TRY(cuEventSynchronize, event[n % DEPTH]);
            atomic_fetch_add(&page->done, iters);
        }
        if (!launch())
            return false;
        TRY(cuEventRecord, event[n % DEPTH], NULL);
    }
    return true;
}

int sl_cmd_spin(const struct sl_cli_args *args)
{
    if (args->rest_count != 2) {
        sl_cli_complain(SL_E_SPIN_BY_HAND);
        return SL_EXIT_USAGE;
    }
    int fd = (int)strtol(args->rest[0], NULL, 10), index = (int)strtol(args->rest[1], NULL, 10);
    struct sl_spin_page *pages =
        mmap(NULL, 2 * sizeof(*pages), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pages == MAP_FAILED || index < 0 || index > 1) {
        sl_cli_complain(SL_E_SPIN_BY_HAND);
        return SL_EXIT_USAGE;
    }
    page = &pages[index];
    return look_up() && open_gpu() && spin() ? SL_EXIT_OK : SL_EXIT_FAILED;
}
