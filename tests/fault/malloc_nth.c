/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: the MALLOC_NTH-th allocation that libsluice makes fails. File descriptor 9 gets an
 * 'x' when it came to that. */
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t size);           /* NOLINT(bugprone-reserved-identifier): glibc's own */
void *__libc_calloc(size_t n, size_t size); /* NOLINT(bugprone-reserved-identifier) */
void *__libc_realloc(void *p, size_t size); /* NOLINT(bugprone-reserved-identifier) */

static uintptr_t first, last;
static _Atomic long calls;
static _Atomic int
    ending; /* what a coverage build's run-time needs at the end is not libsluice's */

static void end(void)
{
    atomic_store(&ending, 1);
}

static int find(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size, (void)arg;
    for (int i = 0; strstr(info->dlpi_name, "/libsluice") && i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X)) {
            first = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            last = first + info->dlpi_phdr[i].p_memsz;
        }
    return 0;
}

static int fails(const void *caller)
{
    const char *nth = getenv("MALLOC_NTH");
    if (!first)
        (void)dl_iterate_phdr(find, NULL);
    if (!nth || (uintptr_t)caller < first || (uintptr_t)caller >= last || atomic_load(&ending))
        return 0;
    long call = atomic_fetch_add(&calls, 1) + 1;
    if (call == 1)
        (void)atexit(end);
    if (call != atol(nth))
        return 0;
    ssize_t ignored = write(9, "x", 1);
    (void)ignored;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(p, size);
}
