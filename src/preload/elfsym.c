/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/elfsym.h"

#include <dlfcn.h>
#include <elf.h>
#include <stddef.h>

/* Not strcmp: the caller may be a sanitizer that is looking for the real strcmp. */
static bool same(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

struct tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const ElfW(Word) * sysv_hash;
    const ElfW(Half) * versions;
    const ElfW(Verdef) * definitions;
    const char *soname;
};

/* Most loaders relocate the addresses in the dynamic section, some leave them as in the file. */
static const void *address_of(const struct sl_elf *object, ElfW(Addr) value)
{
    return (const void *)(value < object->base ? value + object->base : value);
}

static void read_tables(const struct sl_elf *object, struct tables *t)
{
    *t = (struct tables){0};
    ElfW(Addr) soname = 0;
    bool named = false;
    for (const ElfW(Dyn) *d = object->dynamic; d && d->d_tag != DT_NULL; d++) {
        switch (d->d_tag) {
        case DT_SYMTAB:
            t->symbols = address_of(object, d->d_un.d_ptr);
            break;
        case DT_STRTAB:
            t->strings = address_of(object, d->d_un.d_ptr);
            break;
        case DT_GNU_HASH:
            t->gnu_hash = address_of(object, d->d_un.d_ptr);
            break;
        case DT_HASH:
            t->sysv_hash = address_of(object, d->d_un.d_ptr);
            break;
        case DT_VERSYM:
            t->versions = address_of(object, d->d_un.d_ptr);
            break;
        case DT_VERDEF:
            t->definitions = address_of(object, d->d_un.d_ptr);
            break;
        case DT_SONAME:
            soname = d->d_un.d_val;
            named = true;
            break;
        default:
            break;
        }
    }
    if (named && t->strings)
        t->soname = t->strings + soname;
}

struct each {
    int (*visit)(const struct sl_elf *, void *);
    void *arg;
};

static int fill(struct dl_phdr_info *info, size_t size, void *arg)
{
    const struct each *call = arg;
    (void)size;
    struct sl_elf object = {.path = info->dlpi_name ? info->dlpi_name : "",
                            .base = info->dlpi_addr,
                            .low = UINTPTR_MAX};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_DYNAMIC)
            object.dynamic = (const ElfW(Dyn) *)start;
        if (p->p_type != PT_LOAD)
            continue;
        if (start < object.low)
            object.low = start;
        if (start + p->p_memsz > object.high)
            object.high = start + p->p_memsz;
    }
    return call->visit(&object, call->arg);
}

int sl_elf_each(int (*visit)(const struct sl_elf *, void *), void *arg)
{
    struct each call = {visit, arg};
    return dl_iterate_phdr(fill, &call);
}

static bool version_matches(const struct tables *t, size_t index, const char *version)
{
    if (!t->versions)
        return true;
    unsigned int v = t->versions[index];
    if (!version)
        return (v & 0x8000U) == 0; /* hidden: an old version kept for old programs */
    for (const ElfW(Verdef) *d = t->definitions; d;
         d = d->vd_next ? (const ElfW(Verdef) *)((const char *)d + d->vd_next) : NULL) {
        const ElfW(Verdaux) *name = (const ElfW(Verdaux) *)((const char *)d + d->vd_aux);
        if (d->vd_ndx == (v & 0x7fffU))
            return same(t->strings + name->vda_name, version);
    }
    return false;
}

static bool symbol_is(const struct tables *t, size_t index, const char *name, const char *version)
{
    const ElfW(Sym) *s = &t->symbols[index];
    unsigned int type = s->st_info & 0xfU;
    return s->st_shndx != SHN_UNDEF &&
           (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE) &&
           same(t->strings + s->st_name, name) && version_matches(t, index, version);
}

static const ElfW(Sym) * find_gnu(const struct tables *t, const char *name, const char *version)
{
    uint32_t buckets = t->gnu_hash[0], first = t->gnu_hash[1], words = t->gnu_hash[2];
    if (buckets == 0)
        return NULL;
    const uint32_t *bucket = t->gnu_hash + 4 + words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = bucket + buckets;
    uint32_t h = 5381;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        h = h * 33 + *c;
    uint32_t i = bucket[h % buckets];
    if (i < first)
        return NULL;
    for (;; i++) {
        uint32_t link = chain[i - first];
        if ((link | 1U) == (h | 1U) && symbol_is(t, i, name, version))
            return &t->symbols[i];
        if (link & 1U)
            return NULL;
    }
}

static const ElfW(Sym) * find_sysv(const struct tables *t, const char *name, const char *version)
{
    uint32_t h = 0;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        h = (h << 4) + *c;
        uint32_t g = h & 0xf0000000U;
        h = (h ^ (g >> 24)) & ~g;
    }
    uint32_t buckets = t->sysv_hash[0];
    if (buckets == 0)
        return NULL;
    const ElfW(Word) *chain = t->sysv_hash + 2 + buckets;
    for (uint32_t i = t->sysv_hash[2 + h % buckets]; i != 0; i = chain[i])
        if (symbol_is(t, i, name, version))
            return &t->symbols[i];
    return NULL;
}

void *sl_elf_symbol(const struct sl_elf *object, const char *name, const char *version)
{
    struct tables t;
    read_tables(object, &t);
    if (!t.symbols || !t.strings)
        return NULL;
    const ElfW(Sym) *s = NULL;
    if (t.gnu_hash)
        s = find_gnu(&t, name, version);
    else if (t.sysv_hash)
        s = find_sysv(&t, name, version);
    if (!s)
        return NULL;
    uintptr_t address = object->base + s->st_value;
    if ((s->st_info & 0xfU) == STT_GNU_IFUNC)
        return ((void *(*)(void))address)();
    return (void *)address;
}

bool sl_elf_has_soname(const struct sl_elf *object, const char *soname)
{
    struct tables t;
    read_tables(object, &t);
    return t.soname && same(t.soname, soname);
}

bool sl_elf_is_self(const struct sl_elf *object)
{
    return sl_elf_contains(object, (const void *)(uintptr_t)sl_elf_is_self);
}

static bool is_libc(const struct sl_elf *object)
{
    return sl_elf_has_soname(object, "libc.so.6") || sl_elf_has_soname(object, "libdl.so.2") ||
           sl_elf_has_soname(object, "libpthread.so.0");
}

/*
 * Walks the loader's own list instead of dl_iterate_phdr: ThreadSanitizer replaces that function, and its version does
 * not work yet when the sanitizer looks for functions. The C library was loaded at the start, so it comes before all
 * objects that may be loaded or unloaded meanwhile.
 */
void *sl_elf_libc(const char *name)
{
    void *found = NULL;
    for (const struct link_map *m = _r_debug.r_map; m && !found; m = m->l_next) {
        struct sl_elf object = {.path = m->l_name, .base = m->l_addr, .dynamic = m->l_ld};
        if (is_libc(&object))
            found = sl_elf_symbol(&object, name, NULL);
    }
    return found;
}

void *sl_elf_process(const char *name)
{
    void *(*find)(void *, const char *) =
        (void *(*)(void *, const char *))(uintptr_t)sl_elf_libc("dlsym");
    void *found = find ? find(RTLD_DEFAULT, name) : NULL;
    return found ? found : sl_elf_libc(name);
}
