/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/resolve.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>

#include "preload/elfsym.h"
#include "preload/hooks.h"
#include "preload/lock.h"

void *_Atomic sl_real_cache[SL_SYMBOL_COUNT];

static const struct {
    const char *name;
    enum sl_library library;
} symbols[SL_SYMBOL_COUNT] = {
#define SL_HOOK(symbol, lib) [SL_SYMBOL_##symbol] = {#symbol, SL_LIBRARY_##lib},
#include "preload/hooks.def"
#define SL_USE(symbol, lib) [SL_SYMBOL_##symbol] = {#symbol, SL_LIBRARY_##lib},
#include "preload/hooks.def"
};

static const char *const sonames[SL_LIBRARY_COUNT] = {
    [SL_LIBRARY_CUDA] = "libcuda.so.1",
    [SL_LIBRARY_NVML] = "libnvidia-ml.so.1",
};

/* A driver library that was found. `pinned`: we hold a reference, so our addresses stay valid when the program closes
 * the library and opens it again. Written under `lock`, then constant. */
static struct driver {
    _Atomic bool pinned;
    struct sl_elf object;
} drivers[SL_LIBRARY_COUNT];
static struct sl_lock lock;

struct driver_search {
    enum sl_library library;
    struct sl_elf object;
    char path[PATH_MAX];
};

static int visit_driver(const struct sl_elf *object, void *arg)
{
    struct driver_search *s = arg;
    if (sl_elf_is_self(object) || !sl_elf_has_soname(object, sonames[s->library]))
        return 0;
    s->object = *object;
    size_t n = strlen(object->path);
    if (n >= sizeof(s->path))
        return 0;
    memcpy(s->path, object->path, n + 1);
    return 1;
}

static bool pin(enum sl_library library)
{
    struct driver *d = &drivers[library];
    if (atomic_load_explicit(&d->pinned, memory_order_acquire))
        return true;
    void *(*open)(const char *, int) =
        (void *(*)(const char *, int))(uintptr_t)sl_elf_libc("dlopen");
    struct driver_search s = {.library = library};
    if (!open || !sl_elf_each(visit_driver, &s) || !open(s.path, RTLD_LAZY | RTLD_NOLOAD))
        return false;
    /* No lock across dlopen: another thread may hold the loader's and wait for ours. */
    sl_lock_take(&lock);
    if (!atomic_load_explicit(&d->pinned, memory_order_relaxed)) {
        d->object = s.object;
        atomic_store_explicit(&d->pinned, true, memory_order_release);
    }
    sl_lock_drop(&lock);
    return true;
}

void *sl_real_slow(enum sl_symbol symbol)
{
    bool loaded;
    void *found = sl_driver_symbol(symbols[symbol].library, symbols[symbol].name, &loaded);
    if (loaded)
        atomic_store_explicit(&sl_real_cache[symbol], found ? found : SL_REAL_MISSING,
                              memory_order_release);
    return found;
}

void *sl_driver_symbol(enum sl_library library, const char *name, bool *ret_loaded)
{
    int saved = errno;
    *ret_loaded = pin(library);
    void *found = *ret_loaded ? sl_elf_symbol(&drivers[library].object, name, NULL) : NULL;
    errno = saved;
    return found;
}

/* ---- dlsym ---- */

static void *libc_function(void *_Atomic *cache, const char *name)
{
    void *p = atomic_load_explicit(cache, memory_order_acquire);
    if (!p) {
        p = sl_elf_libc(name);
        atomic_store_explicit(cache, p, memory_order_release);
    }
    return p;
}

static void *_Atomic libc_dlsym, *_Atomic libc_dlvsym;

/* Is this address the driver's function of that name, or our wrapper of it? */
struct owner_search {
    const void *address;
    bool ours;
    bool drivers;
};

static int visit_owner(const struct sl_elf *object, void *arg)
{
    struct owner_search *s = arg;
    if (!sl_elf_contains(object, s->address))
        return 0;
    s->ours = sl_elf_is_self(object);
    for (int i = 0; i < SL_LIBRARY_COUNT; i++)
        s->drivers = s->drivers || sl_elf_has_soname(object, sonames[i]);
    return 1;
}

/* The result of dlsym(RTLD_NEXT) for a caller: the first definition after the caller's object. */
struct next_search {
    const struct sl_hook *hook;
    const void *caller;
    bool past_caller;
    bool past_us;
    bool found;
    bool found_driver;
};

static int visit_next(const struct sl_elf *object, void *arg)
{
    struct next_search *s = arg;
    if (!s->past_caller) {
        s->past_caller = sl_elf_contains(object, s->caller);
        return 0;
    }
    if (sl_elf_is_self(object)) {
        s->past_us = true;
        return 0;
    }
    if (!sl_elf_symbol(object, s->hook->name, NULL))
        return 0;
    s->found = true;
    s->found_driver = sl_elf_has_soname(object, sonames[s->hook->library]);
    return 1;
}

static struct sl_lookup answer(void *address)
{
    return (struct sl_lookup){.target = address, .jump = 0};
}

static struct sl_lookup go_on(void *function)
{
    return (struct sl_lookup){.target = function, .jump = function != NULL};
}

/* The driver's function of that name is in the process, so our wrapper may stand for it. */
static bool driver_has(const struct sl_hook *hook)
{
    return sl_real((enum sl_symbol)(hook - sl_hooks)) != NULL;
}

static struct sl_lookup resolve_default(const struct sl_hook *hook, void *real)
{
    if (driver_has(hook))
        return answer(hook->wrapper);
    /* Without a driver our own export would be found. A search behind libsluice gives the program the same result as
     * without libsluice: NULL, and a message from dlerror. */
    return answer(((void *(*)(void *, const char *))(uintptr_t)real)(RTLD_NEXT, hook->name));
}

static struct sl_lookup resolve_next(const struct sl_hook *hook, void *real, const void *caller)
{
    struct next_search s = {.hook = hook, .caller = caller};
    (void)sl_elf_each(visit_next, &s);
    if (!s.found && s.past_us) /* only our own export would be found */
        return resolve_default(hook, real);
    return s.found_driver && driver_has(hook) ? answer(hook->wrapper) : go_on(real);
}

/* An explicit handle: take its result, and replace the driver's function by the wrapper. */
static struct sl_lookup resolve_found(const struct sl_hook *hook, void *real, void *found)
{
    struct owner_search owner = {.address = found};
    if (!found)
        return answer(NULL);
    (void)sl_elf_each(visit_owner, &owner);
    if (owner.ours)
        return resolve_default(hook, real);
    return answer(owner.drivers ? hook->wrapper : found);
}

struct sl_lookup sl_resolve_dlsym(void *handle, const char *name, void *caller)
{
    void *real = libc_function(&libc_dlsym, "dlsym");
    const struct sl_hook *hook = name ? sl_hook_by_name(name) : NULL;
    if (!hook || !real)
        return go_on(real);
    if (handle == RTLD_DEFAULT)
        return resolve_default(hook, real);
    if (handle == RTLD_NEXT)
        return resolve_next(hook, real, caller);
    return resolve_found(hook, real,
                         ((void *(*)(void *, const char *))(uintptr_t)real)(handle, name));
}

struct sl_lookup sl_resolve_dlvsym(void *handle, const char *name, const char *version,
                                   void *caller)
{
    void *real = libc_function(&libc_dlvsym, "dlvsym");
    const struct sl_hook *hook = name ? sl_hook_by_name(name) : NULL;
    if (!hook || !real || handle == RTLD_DEFAULT || handle == RTLD_NEXT) {
        /* The driver has no versioned names; libsluice exports none either. */
        (void)caller;
        return go_on(real);
    }
    return resolve_found(
        hook, real,
        ((void *(*)(void *, const char *, const char *))(uintptr_t)real)(handle, name, version));
}
