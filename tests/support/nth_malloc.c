/* SPDX-License-Identifier: Apache-2.0 */
#include "support/nth_malloc.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>

#ifdef NTH_MALLOC_WHOLE
/* These replace the C library's own, for every library of the program. */
#define OURS(name) name
#pragma GCC visibility push(default)
#define REAL(name) __libc_##name
#else
/* The linker sends the calls of the program's own objects here (--wrap). */
#define OURS(name) __wrap_##name
#define REAL(name) __real_##name
#endif

void *REAL(malloc)(size_t size);               /* NOLINT(bugprone-reserved-identifier) */
void *REAL(calloc)(size_t count, size_t size); /* NOLINT(bugprone-reserved-identifier) */
void *REAL(realloc)(void *old, size_t size);   /* NOLINT(bugprone-reserved-identifier) */
void REAL(free)(void *p);                      /* NOLINT(bugprone-reserved-identifier) */

struct nth_malloc nth_malloc;

unsigned long nth_malloc_set(unsigned long n)
{
    unsigned long before = nth_malloc.asked;
    nth_malloc.fail_at = n;
    nth_malloc.asked = nth_malloc.failures = 0;
    return before;
}

static bool fails(void)
{
    if (nth_malloc.idle)
        return false;
    unsigned long n = ++nth_malloc.asked, at = nth_malloc.fail_at;
    if (!at || (nth_malloc.persistent ? n < at : n != at))
        return false;
    nth_malloc.failures++;
    errno = ENOMEM;
    return true;
}

static void *counted(void *p)
{
    nth_malloc.live += p != NULL;
    return p;
}

void *OURS(malloc)(size_t size);
void *OURS(malloc)(size_t size)
{
    return fails() ? NULL : counted(REAL(malloc)(size));
}

void *OURS(calloc)(size_t count, size_t size);
void *OURS(calloc)(size_t count, size_t size)
{
    return fails() ? NULL : counted(REAL(calloc)(count, size));
}

void *OURS(realloc)(void *old, size_t size);
void *OURS(realloc)(void *old, size_t size)
{
    if (fails())
        return NULL;
    void *p = REAL(realloc)(old, size);
    return old ? p : counted(p);
}

void OURS(free)(void *p);
void OURS(free)(void *p)
{
    nth_malloc.live -= p != NULL;
    REAL(free)(p);
}

/* The C library's own calls of malloc() do not pass the linker's wrappers. */
#ifndef NTH_MALLOC_WHOLE
void *__real_reallocarray(void *old, size_t count, size_t size);
char *__real_strdup(const char *text);
int __real_vasprintf(char **ret, const char *fmt, va_list ap);

void *__wrap_reallocarray(void *old, size_t count, size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
    if (fails())
        return NULL;
    void *p = __real_reallocarray(old, count, size);
    return old ? p : counted(p);
}

char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : counted(__real_strdup(text));
}

int __wrap_vasprintf(char **ret, const char *fmt, va_list ap);
int __wrap_vasprintf(char **ret, const char *fmt, va_list ap)
{
    int n = fails() ? -1 : __real_vasprintf(ret, fmt, ap);
    nth_malloc.live += n >= 0;
    return n;
}
#endif
