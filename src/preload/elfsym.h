/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks up symbols in the loaded objects. dlsym cannot answer two questions: where is the *driver's* cuMemAlloc_v2 (the
 * search order finds libsluice first), and where is dlsym itself. This code needs no symbol newer than glibc 2.31 and
 * allocates nothing, so it also works when another library asks for symbols before constructors have run.
 */
#ifndef SLUICE_PRELOAD_ELFSYM_H
#define SLUICE_PRELOAD_ELFSYM_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

struct sl_elf {
    const char *path; /* of the file; "" for the program itself; the loader's, valid while loaded */
    uintptr_t base;
    const ElfW(Dyn) * dynamic;
    uintptr_t low, high; /* address range of the loaded segments */
};

/* Calls visit for each object in load order until it returns non-zero, which is then returned. */
int sl_elf_each(int (*visit)(const struct sl_elf *object, void *arg), void *arg);

/* A symbol that the object defines, at its default version (or at `version`); NULL if it does
 * not define it. */
void *sl_elf_symbol(const struct sl_elf *object, const char *name, const char *version);

bool sl_elf_has_soname(const struct sl_elf *object, const char *soname);

static inline bool sl_elf_contains(const struct sl_elf *object, const void *address)
{
    return (uintptr_t)address >= object->low && (uintptr_t)address < object->high;
}

/* Is this the object that contains this code? */
bool sl_elf_is_self(const struct sl_elf *object);

/* A function of the C library (libc, or libdl and libpthread where those are separate), never one of libsluice. */
void *sl_elf_libc(const char *name);

/* The function that the process itself would call: a sanitizer must know of a thread that we make. */
void *sl_elf_process(const char *name);

#endif
