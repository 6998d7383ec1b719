/* SPDX-License-Identifier: Apache-2.0 */
#include "base/xalloc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Noreturn void sl_out_of_memory(void)
{
    /* No stdio and no log: both may need memory. */
    static const char line[] = "out of memory: this process ends; give it or the machine more\n";
    ssize_t written = write(STDERR_FILENO, line, sizeof(line) - 1);
    (void)written;
    abort();
}

static void *sure(void *p)
{
    if (!p)
        sl_out_of_memory();
    return p;
}

void *sl_xmalloc(size_t size)
{
    return sure(malloc(size ? size : 1));
}

void *sl_xcalloc(size_t count, size_t size)
{
    return sure(calloc(count ? count : 1, size ? size : 1));
}

void *sl_xrealloc(void *p, size_t size)
{
    return sure(realloc(p, size ? size : 1));
}

void *sl_xreallocarray(void *p, size_t count, size_t size)
{
    return sure(reallocarray(p, count ? count : 1, size ? size : 1));
}

char *sl_xstrdup(const char *text)
{
    return text ? sure(strdup(text)) : NULL;
}

char *sl_xstrndup(const char *text, size_t max)
{
    return text ? sure(strndup(text, max)) : NULL;
}

char *sl_xvasprintf(const char *fmt, va_list ap)
{
    char *text;
    if (vasprintf(&text, fmt, ap) < 0)
        sl_out_of_memory();
    return text;
}

char *sl_xasprintf(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = sl_xvasprintf(fmt, ap);
    va_end(ap);
    return text;
}

/* glibc's own open_memstream() drops text when there is no memory, and neither ferror() nor fclose() tells. */
struct memstream {
    char **text;
    size_t *size, capacity;
};

static ssize_t memstream_write(void *cookie, const char *data, size_t size)
{
    struct memstream *m = cookie;
    size_t need = *m->size + size + 1;
    if (need > m->capacity) {
        m->capacity = need > 2 * m->capacity ? need : 2 * m->capacity;
        *m->text = sl_xrealloc(*m->text, m->capacity);
    }
    memcpy(*m->text + *m->size, data, size);
    *m->size += size;
    (*m->text)[*m->size] = '\0';
    return (ssize_t)size;
}

static int memstream_close(void *cookie)
{
    free(cookie);
    return 0;
}

FILE *sl_xmemstream(char **ret_text, size_t *ret_size)
{
    struct memstream *m = sl_xmalloc(sizeof(*m));
    *m = (struct memstream){.text = ret_text, .size = ret_size, .capacity = 1};
    *ret_text = sl_xcalloc(1, 1);
    *ret_size = 0;
    return sure(fopencookie(
        m, "w", (cookie_io_functions_t){.write = memstream_write, .close = memstream_close}));
}

void sl_xmemstream_close(FILE *stream)
{
    int failed = ferror(stream);
    if (fclose(stream) != 0 || failed)
        sl_out_of_memory();
}
