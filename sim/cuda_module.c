/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and libraries: entries of PTX text, known by name. */
#include "sim/cuda_int.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_global {
    char *name;
    size_t bytes;
    uint64_t address;
};

struct CUmod_st {
    uint32_t magic;
    CUcontext ctx; /* NULL: a library */
    size_t count, global_count;
    CUfunction functions;
    struct sim_global *globals;
};
#define MOD_MAGIC 0x4d4f4431u

/* A library is a module without a context, a kernel a function of one. */
struct CUlib_st;
struct CUkern_st;

static enum sim_kernel_id known(const char *name)
{
    static const char *const names[] = {
        [SIM_K_EMPTY] = "sluice_empty",     [SIM_K_FMA] = "sluice_fma",
        [SIM_K_FILL] = "sluice_fill_u32",   [SIM_K_ADD] = "sluice_add_u32",
        [SIM_K_SPIN] = "sluice_spin_until", [SIM_K_FOREVER] = "sluice_forever",
        [SIM_K_MEET] = "sluice_meet"};
    for (size_t i = SIM_K_EMPTY; i <= SIM_K_MEET; i++)
        if (strcmp(names[i], name) == 0)
            return (enum sim_kernel_id)i;
    return SIM_K_OTHER;
}

static const char *skip_space(const char *p)
{
    for (;;) {
        while (isspace((unsigned char)*p))
            p++;
        if (p[0] == '/' && p[1] == '/')
            while (*p && *p != '\n')
                p++;
        else if (p[0] == '/' && p[1] == '*') {
            const char *end = strstr(p + 2, "*/");
            p = end ? end + 2 : p + strlen(p);
        } else
            return p;
    }
}

static bool name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

static char *take_name(const char **p)
{
    const char *start = skip_space(*p);
    const char *end = start;
    while (name_char(*end))
        end++;
    *p = end;
    return end == start ? NULL : strndup(start, (size_t)(end - start));
}

/* Bytes of ".u64", ".b32", …; 0 if it is no type. */
static size_t type_bytes(const char *p)
{
    if (strchr("ubsf", p[1]) == NULL || !isdigit((unsigned char)p[2]))
        return strncmp(p, ".pred", 5) == 0 ? 1 : 0;
    return (size_t)atoi(p + 2) / 8;
}

static size_t array_count(const char *p)
{
    p = skip_space(p);
    return *p == '[' ? (size_t)strtoul(p + 1, NULL, 10) : 1;
}

/* The parameter list after an entry's name: offsets by the types' alignment. */
static bool parse_params(const char *p, CUfunction f)
{
    p = skip_space(p);
    if (*p != '(')
        return true;
    const char *end = strchr(p, ')');
    if (!end)
        return false;
    while ((p = strstr(p, ".param")) != NULL && p < end) {
        size_t bytes = 0, align = 0;
        p += 6;
        for (p = skip_space(p); *p == '.'; p = skip_space(p)) {
            size_t n = type_bytes(p);
            if (n)
                bytes = n;
            bool is_align = strncmp(p, ".align", 6) == 0;
            for (p++; name_char(*p); p++)
                ;
            if (is_align) {
                p = skip_space(p);
                align = (size_t)strtoul(p, NULL, 10);
                while (isdigit((unsigned char)*p))
                    p++;
            }
        }
        while (name_char(*p))
            p++;
        size_t total = bytes * array_count(p);
        if (align == 0)
            align = bytes ? bytes : 1;
        size_t offset = (f->param_bytes + align - 1) / align * align;
        struct sim_param *grown = realloc(f->params, (f->param_count + 1) * sizeof(*grown));
        if (!grown)
            return false;
        f->params = grown;
        f->params[f->param_count++] = (struct sim_param){.offset = offset, .size = total};
        f->param_bytes = offset + total;
    }
    return true;
}

static bool add_function(CUmodule m, char *name, const char *rest)
{
    CUfunction grown = realloc(m->functions, (m->count + 1) * sizeof(*grown));
    if (!grown)
        return false;
    m->functions = grown;
    CUfunction f = &m->functions[m->count];
    memset(f, 0, sizeof(*f));
    f->name = name;
    f->id = known(name);
    f->block[0] = f->block[1] = f->block[2] = 1;
    f->max_dynamic_shared = 49152;
    m->count++;
    return parse_params(rest, f);
}

/* ".global .align 4 .b8 name[16]" at file level. */
static bool add_global(CUmodule m, const char *p)
{
    size_t bytes = 0;
    for (p = skip_space(p); *p == '.'; p = skip_space(p)) {
        size_t n = type_bytes(p);
        if (n)
            bytes = n;
        bool is_align = strncmp(p, ".align", 6) == 0;
        for (p++; name_char(*p); p++)
            ;
        if (is_align) {
            p = skip_space(p);
            while (isdigit((unsigned char)*p))
                p++;
        }
    }
    char *name = take_name(&p);
    struct sim_global *grown = realloc(m->globals, (m->global_count + 1) * sizeof(*grown));
    if (!name || !grown || bytes == 0) {
        free(name);
        return grown != NULL;
    }
    m->globals = grown;
    m->globals[m->global_count++] =
        (struct sim_global){.name = name, .bytes = bytes * array_count(p)};
    return true;
}

static CUresult parse_ptx(CUmodule m, const char *text)
{
    if (!strstr(text, ".version"))
        return CUDA_ERROR_INVALID_IMAGE; /* not even PTX */
    if (!strstr(text, ".target"))
        return CUDA_ERROR_INVALID_PTX;
    int depth = 0;
    for (const char *p = skip_space(text); *p; p = skip_space(p)) {
        bool ok = true;
        if (*p == '{')
            depth++;
        if (*p == '}')
            depth--;
        if (depth == 0 && strncmp(p, ".entry", 6) == 0 && !name_char(p[6])) {
            p += 6;
            char *name = take_name(&p);
            ok = name && add_function(m, name, p);
        } else if (depth == 0 && strncmp(p, ".global", 7) == 0 && !name_char(p[7])) {
            ok = add_global(m, p + 7);
            p += 7;
        } else {
            p++;
        }
        if (!ok)
            return CUDA_ERROR_INVALID_PTX;
    }
    return depth == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}

static void module_free(CUmodule m)
{
    for (size_t i = 0; i < m->count; i++) {
        free(m->functions[i].name);
        free(m->functions[i].params);
    }
    for (size_t i = 0; i < m->global_count; i++) {
        struct sim_alloc *a = m->globals[i].address ? sim_alloc_find(m->globals[i].address) : NULL;
        if (a)
            sim_device_free(a);
        free(m->globals[i].name);
    }
    free(m->functions);
    free(m->globals);
    m->magic = 0;
    free(m);
}

/* Text is PTX. Binary images (ELF, fat binaries) are accepted as modules with no entries we know:
 * what they would run takes no part in the simulation. */
static CUresult load(CUcontext ctx, const void *image, CUmodule *ret)
{
    static const unsigned char elf[4] = {0x7f, 'E', 'L', 'F'}, fat[4] = {0x50, 0xed, 0x55, 0xba},
                               wrapped[4] = {0xb1, 0x43, 0x62, 0x46};
    CUmodule m = calloc(1, sizeof(*m));
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->magic = MOD_MAGIC;
    m->ctx = ctx;
    bool binary =
        memcmp(image, elf, 4) == 0 || memcmp(image, fat, 4) == 0 || memcmp(image, wrapped, 4) == 0;
    CUresult r = binary ? CUDA_SUCCESS : parse_ptx(m, image);
    if (r != CUDA_SUCCESS) {
        module_free(m);
        return r;
    }
    for (size_t i = 0; i < m->count; i++)
        m->functions[i].module = m;
    *ret = m;
    return CUDA_SUCCESS;
}

static CUresult load_checked(CUmodule *module, const void *image)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    r = sim_capture_unsafe();
    if (r != CUDA_SUCCESS)
        return r;
    return module && image ? load(ctx, image, module) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    ENTER();
    return LOCKED(load_checked(module, image));
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                            CUjit_option *options, void **values)
{
    ENTER();
    if (numOptions && (!options || !values))
        return CUDA_ERROR_INVALID_VALUE;
    return LOCKED(load_checked(module, image));
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    ENTER();
    return LOCKED(load_checked(module, fatCubin));
}

static char *read_file(const char *path)
{
    FILE *f = path ? fopen(path, "re") : NULL;
    char *text = f ? calloc(1, 16 * SIM_MIB + 1) : NULL;
    size_t n = text ? fread(text, 1, 16 * SIM_MIB, f) : 0;
    if (f)
        (void)fclose(f);
    if (n == 0) {
        free(text);
        return NULL;
    }
    return text;
}

CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
    ENTER();
    char *text = read_file(fname);
    if (!text)
        return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult r = LOCKED(load_checked(module, text));
    free(text);
    return r;
}

static CUresult unload(CUmodule m)
{
    if (!m || m->magic != MOD_MAGIC)
        return CUDA_ERROR_INVALID_HANDLE;
    /* Queued kernels point at their functions. */
    for (CUcontext c = sim_p.contexts; c; c = c->next)
        if (!c->dead)
            sim_wait_card(c->card);
    module_free(m);
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
    ENTER();
    return LOCKED(unload(module));
}

CUresult cuModuleGetLoadingMode(int *mode)
{
    ENTER();
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = 2; /* lazy */
    return CUDA_SUCCESS;
}

static CUresult get_function(CUfunction *func, CUmodule m, const char *name)
{
    if (!m || m->magic != MOD_MAGIC)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!func || !name)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < m->count; i++)
        if (strcmp(m->functions[i].name, name) == 0) {
            *func = &m->functions[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetFunction(CUfunction *func, CUmodule module, const char *name)
{
    ENTER();
    return LOCKED(get_function(func, module, name));
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module)
{
    ENTER();
    if (!module || module->magic != MOD_MAGIC || !count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (unsigned int)module->count;
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int num, CUmodule module)
{
    ENTER();
    if (!module || module->magic != MOD_MAGIC || !functions)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < num && i < module->count; i++)
        functions[i] = &module->functions[i];
    return CUDA_SUCCESS;
}

static CUresult get_global(CUdeviceptr *dptr, size_t *bytes, CUmodule m, const char *name)
{
    if (!m || m->magic != MOD_MAGIC)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < m->global_count; i++) {
        struct sim_global *g = &m->globals[i];
        if (strcmp(g->name, name) != 0)
            continue;
        CUcontext ctx = m->ctx ? m->ctx : sim_current();
        if (!g->address && !ctx)
            return CUDA_ERROR_INVALID_CONTEXT;
        if (!g->address) {
            CUresult r = sim_device_alloc(ctx, g->bytes, SIM_DEVICE, &g->address);
            if (r != CUDA_SUCCESS)
                return r;
            memset((void *)(uintptr_t)g->address, 0, g->bytes);
        }
        if (dptr)
            *dptr = g->address;
        if (bytes)
            *bytes = g->bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule module, const char *name)
{
    ENTER();
    return LOCKED(get_global(dptr, bytes, module, name));
}

/* ---- libraries: modules that belong to no context ---- */

static CUmodule as_module(CUlibrary l)
{
    return (CUmodule)(void *)l;
}

static CUfunction as_function(CUkernel k)
{
    return (CUfunction)(void *)k;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                           void **jitValues, unsigned int numJit, CUlibraryOption *libOptions,
                           void **libValues, unsigned int numLib)
{
    ENTER();
    if (!library || !code || (numJit && (!jitOptions || !jitValues)) ||
        (numLib && (!libOptions || !libValues)))
        return CUDA_ERROR_INVALID_VALUE;
    CUmodule m = NULL;
    CUresult r = LOCKED(load(NULL, code, &m));
    *library = (CUlibrary)(void *)m;
    return r;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                               void **jitValues, unsigned int numJit, CUlibraryOption *libOptions,
                               void **libValues, unsigned int numLib)
{
    ENTER();
    char *text = read_file(fileName);
    if (!text)
        return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult r = cuLibraryLoadData(library, text, jitOptions, jitValues, numJit, libOptions,
                                   libValues, numLib);
    free(text);
    return r;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    ENTER();
    return LOCKED(unload(as_module(library)));
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    ENTER();
    CUfunction f = NULL;
    if (!kernel)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = LOCKED(get_function(&f, as_module(library), name));
    *kernel = (CUkernel)(void *)f;
    return r;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary library)
{
    return cuModuleGetFunctionCount(count, as_module(library));
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int num, CUlibrary library)
{
    return cuModuleEnumerateFunctions((CUfunction *)(void *)kernels, num, as_module(library));
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    ENTER();
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!module || !library)
        return CUDA_ERROR_INVALID_VALUE;
    *module = as_module(library);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    ENTER();
    return LOCKED(get_global(dptr, bytes, as_module(library), name));
}

CUresult cuKernelGetFunction(CUfunction *func, CUkernel kernel)
{
    ENTER();
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!func || !kernel)
        return CUDA_ERROR_INVALID_VALUE;
    *func = as_function(kernel);
    return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    ENTER();
    if (!library || !kernel)
        return CUDA_ERROR_INVALID_VALUE;
    *library = (CUlibrary)(void *)as_function(kernel)->module;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
    uint32_t card;
    CUresult r = sim_ordinal(dev, &card);
    return r == CUDA_SUCCESS ? cuFuncGetAttribute(pi, attrib, as_function(kernel)) : r;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
    (void)dev;
    return cuFuncSetAttribute(as_function(kernel), attrib, val);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
    (void)dev;
    return cuFuncSetCacheConfig(as_function(kernel), config);
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    return cuFuncGetName(name, as_function(kernel));
}
