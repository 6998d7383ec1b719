/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for programs of our own. A daemon without memory cannot go on in any useful way: it prints one line and
 * aborts, and its supervisor starts it again. So none of these functions returns NULL, and callers need no path for
 * that.
 *
 * Not for libsluice, which lives in another program's process, and not for sizes that a peer chooses.
 */
#ifndef SLUICE_BASE_XALLOC_H
#define SLUICE_BASE_XALLOC_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

#define SL_RETURNS_MEMORY __attribute__((malloc, returns_nonnull, warn_unused_result))

/* One line on stderr, then SIGABRT. */
_Noreturn void sl_out_of_memory(void);

/* Size 0 gives memory too. */
void *sl_xmalloc(size_t size) SL_RETURNS_MEMORY;
void *sl_xcalloc(size_t count, size_t size) SL_RETURNS_MEMORY;
void *sl_xrealloc(void *p, size_t size) __attribute__((returns_nonnull, warn_unused_result));
void *sl_xreallocarray(void *p, size_t count, size_t size)
    __attribute__((returns_nonnull, warn_unused_result));

/* A copy of NULL is NULL. */
char *sl_xstrdup(const char *text) SL_MUST_CHECK;
char *sl_xstrndup(const char *text, size_t max) SL_MUST_CHECK;
char *sl_xasprintf(const char *fmt, ...) SL_PRINTF(1, 2) SL_RETURNS_MEMORY;
char *sl_xvasprintf(const char *fmt, va_list ap) SL_PRINTF(1, 0) SL_RETURNS_MEMORY;

/* A stream. Its text is in *ret_text, *ret_size bytes long, after sl_xmemstream_close(). */
FILE *sl_xmemstream(char **ret_text, size_t *ret_size) SL_RETURNS_MEMORY;
void sl_xmemstream_close(FILE *stream);

#endif
