/* SPDX-License-Identifier: Apache-2.0 */
/* Finding symbols: in libraries with either kind of hash table, by version, through a driver whose
 * cuGetProcAddress hands out addresses that are not its exports. */
#include "world.h"

#include <dlfcn.h>

#include "preload/elfsym.h"
#include "preload/resolve.h"

struct search {
    const char *soname;
    struct sl_elf found;
};

static int visit(const struct sl_elf *object, void *arg)
{
    struct search *s = arg;
    if (!sl_elf_has_soname(object, s->soname))
        return 0;
    s->found = *object;
    return 1;
}

static struct sl_elf object(const char *soname)
{
    struct search s = {.soname = soname};
    if (!sl_elf_each(visit, &s))
        fail_msg("%s is not loaded", soname);
    return s.found;
}

static void check_library(const char *file, const char *soname)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(handle);
    struct sl_elf o = object(soname);
    int (*answer)(void) = (int (*)(void))(uintptr_t)sl_elf_symbol(&o, "lookup_answer", NULL);
    assert_non_null(answer);
    assert_int_equal(answer(), 42);
    int (*chosen)(void) = (int (*)(void))(uintptr_t)sl_elf_symbol(&o, "lookup_chosen", NULL);
    assert_non_null(chosen);
    assert_int_equal(chosen(), 43); /* an indirect function: what its resolver chose */
    assert_null(sl_elf_symbol(&o, "lookup_data", NULL)); /* no function */
    assert_null(sl_elf_symbol(&o, "getpid", NULL));      /* used there, not defined there */
    assert_null(sl_elf_symbol(&o, "no_such_name", NULL));
    assert_null(sl_elf_symbol(&o, "lookup_answer_", NULL));
    int (*versioned)(void) = (int (*)(void))(uintptr_t)sl_elf_symbol(&o, "lookup_versioned", NULL);
    assert_non_null(versioned);
    assert_int_equal(versioned(), 2);
    versioned = (int (*)(void))(uintptr_t)sl_elf_symbol(&o, "lookup_versioned", "LOOKUP_1");
    assert_non_null(versioned);
    assert_int_equal(versioned(), 1);
    assert_null(sl_elf_symbol(&o, "lookup_versioned", "LOOKUP_9"));
    assert_ptr_equal(dlsym(handle, "lookup_answer"), (void *)(uintptr_t)answer);
    assert_int_equal(dlclose(handle), 0);
}

static void test_hash_tables(void **state)
{
    (void)state;
    check_library(LOOKUP_GNU, "liblookup_gnu.so");
    check_library(LOOKUP_SYSV, "liblookup_sysv.so");
}

static void test_no_tables(void **state)
{
    (void)state;
    const ElfW(Dyn) none[] = {{.d_tag = DT_NULL}};
    struct sl_elf o = {.path = "", .dynamic = none};
    assert_null(sl_elf_symbol(&o, "x", NULL));
    assert_false(sl_elf_has_soname(&o, "x"));
    o.dynamic = NULL;
    assert_null(sl_elf_symbol(&o, "x", NULL));
    /* Tables without a bucket, and symbols without any table. */
    static const uint32_t empty_gnu[8], empty_sysv[4];
    static const ElfW(Sym) symbols[1];
    ElfW(Dyn) d[] = {{.d_tag = DT_SYMTAB, .d_un.d_ptr = (ElfW(Addr))symbols},
                     {.d_tag = DT_STRTAB, .d_un.d_ptr = (ElfW(Addr)) ""},
                     {.d_tag = DT_GNU_HASH, .d_un.d_ptr = (ElfW(Addr))empty_gnu},
                     {.d_tag = DT_NULL}};
    o.dynamic = d;
    assert_null(sl_elf_symbol(&o, "x", NULL));
    d[2] = (ElfW(Dyn)){.d_tag = DT_HASH, .d_un.d_ptr = (ElfW(Addr))empty_sysv};
    assert_null(sl_elf_symbol(&o, "x", NULL));
    d[2].d_tag = DT_NULL;
    assert_null(sl_elf_symbol(&o, "x", NULL));
    assert_null(sl_elf_libc("no_such_function_anywhere"));
    assert_null(sl_elf_process("no_such_function_anywhere"));
    assert_non_null(sl_elf_process("pthread_create"));
}

static void test_dlsym(void **state)
{
    (void)state;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    assert_non_null(driver);
    assert_ptr_equal(dlsym(driver, "cuMemAlloc_v2"), (void *)(uintptr_t)cuMemAlloc_v2);
    assert_ptr_equal(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), (void *)(uintptr_t)cuMemAlloc_v2);
    assert_ptr_equal(dlsym(RTLD_NEXT, "cuMemAlloc_v2"), (void *)(uintptr_t)cuMemAlloc_v2);
    assert_null(dlsym(driver, "cuNoSuchFunction"));
    assert_null(dlsym(driver, "nvmlDeviceGetMemoryInfo")); /* ours by name, not this library's */
    assert_null(dlvsym(driver, "cuMemAlloc_v2", "NO_VERSION"));
    assert_null(dlvsym(RTLD_DEFAULT, "cuMemAlloc_v2", "NO_VERSION"));
    assert_null(dlvsym(RTLD_NEXT, "cuMemAlloc_v2", "NO_VERSION"));
    assert_non_null(dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.14"));
    struct sl_lookup l = sl_resolve_dlsym(RTLD_DEFAULT, NULL, NULL);
    assert_true(l.jump);
    l = sl_resolve_dlvsym(RTLD_DEFAULT, NULL, NULL, NULL);
    assert_true(l.jump);
    /* A caller nobody has heard of: nothing comes after it. */
    l = sl_resolve_dlsym(RTLD_NEXT, "cuMemAlloc_v2", NULL);
    assert_true(l.jump);
    assert_null(sl_hook_by_name("cuNothing"));
    assert_null(sl_hook_by_name("nvNothing"));
    assert_null(sl_hook_by_name("nothing"));
    assert_null(sl_hook_by_name("xu"));
    /* A driver without the name: then neither have we one. */
    world_missing(SL_SYMBOL_cuMemAlloc_v2);
    (void)sl_resolve_dlsym(RTLD_DEFAULT, "cuMemAlloc_v2", NULL);
    world_restore();
    assert_int_equal(dlclose(driver), 0);
}

/* A driver with private entries: the address of a version is its own, not the export's. */
static char entry_v1, entry_v2, entry_v2_per_thread, entry_new;

static void *private_entry(const char *symbol, int version, cuuint64_t flags)
{
    bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    if (strcmp(symbol, "cuMemAlloc") == 0)
        return version >= 13000 ? &entry_new : version >= 3020 ? &entry_v2 : &entry_v1;
    if (strcmp(symbol, "cuLaunchKernel") == 0)
        return per_thread ? &entry_v2_per_thread : &entry_v2;
    return NULL;
}

static CUresult ask_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult *status)
{
    if (status)
        *status = CU_GET_PROC_ADDRESS_SUCCESS;
    *pfn = private_entry(symbol, version, flags);
    return *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static CUresult ask_v1(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    return ask_v2(symbol, pfn, version, flags, NULL);
}

static void check_private(bool with_v1)
{
    void *p = NULL;
    const cuuint64_t legacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
#define ASK(symbol, version, flags)                                                                \
    (with_v1 ? cuGetProcAddress(symbol, &p, version, flags)                                        \
             : cuGetProcAddress_v2(symbol, &p, version, flags, NULL))
    assert_int_equal(ASK("cuMemAlloc", 12000, legacy), CUDA_SUCCESS);
    assert_ptr_equal(p, (void *)(uintptr_t)cuMemAlloc_v2);
    assert_int_equal(ASK("cuMemAlloc", 3000, legacy), CUDA_SUCCESS);
    assert_ptr_equal(p, (void *)(uintptr_t)cuMemAlloc);
    /* Newer than anything we know: the driver's own, never an older ABI in its place. */
    assert_int_equal(ASK("cuMemAlloc", 13000, legacy), CUDA_SUCCESS);
    assert_ptr_equal(p, &entry_new);
    assert_int_equal(ASK("cuLaunchKernel", 12000, legacy), CUDA_SUCCESS);
    assert_ptr_equal(p, (void *)(uintptr_t)cuLaunchKernel);
    assert_int_equal(ASK("cuLaunchKernel", 12000, per_thread), CUDA_SUCCESS);
    assert_ptr_equal(p, (void *)(uintptr_t)cuLaunchKernel_ptsz);
    assert_int_equal(ASK("cuNothing", 12000, legacy), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(ASK("cuLaunchKernel", 1000, legacy), CUDA_SUCCESS);
    assert_ptr_equal(p, &entry_v2); /* asked as of a version that had none */
}

static void test_proc_address(void **state)
{
    (void)state;
    WORLD_ANSWER(cuGetProcAddress, ask_v1);
    WORLD_ANSWER(cuGetProcAddress_v2, ask_v2);
    check_private(false);
    check_private(true);
    world_missing(SL_SYMBOL_cuGetProcAddress_v2);
    check_private(true);
    void *p = NULL;
    assert_int_equal(cuGetProcAddress_v2("cuMemAlloc", &p, 12000, 0, NULL),
                     CUDA_ERROR_NOT_SUPPORTED);
    world_missing(SL_SYMBOL_cuGetProcAddress);
    assert_int_equal(cuGetProcAddress("cuMemAlloc", &p, 12000, 0), CUDA_ERROR_NOT_SUPPORTED);
    assert_null(sl_hook_wrapper_for("cuMemAlloc", &entry_v2, 12000, 0));
    world_restore();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash_tables),
        cmocka_unit_test(test_no_tables),
        cmocka_unit_test(test_dlsym),
        cmocka_unit_test(test_proc_address),
    };
    world_open("h200", 4 * GIB);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    world_close();
    return rc;
}
