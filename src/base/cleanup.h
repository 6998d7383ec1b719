/* SPDX-License-Identifier: Apache-2.0 */
/* Scope-exit cleanup. `SL_CLEANUP(free)` on a pointer, `SL_CLEANUP(close)` on an fd. */
#ifndef SLUICE_BASE_CLEANUP_H
#define SLUICE_BASE_CLEANUP_H

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void sl_cleanup_free(void *p)
{
    free(*(void **)p);
}

/* Keeps errno: a failing function must report its own cause, not close()'s. */
static inline void sl_cleanup_close(const int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        (void)close(*fd);
        errno = saved;
    }
}

static inline void sl_cleanup_fclose(FILE **f)
{
    if (*f)
        (void)fclose(*f);
}

static inline void sl_cleanup_closedir(DIR **d)
{
    if (*d)
        (void)closedir(*d);
}

/* Clears a secret before its memory is freed. NULL is fine. */
static inline void sl_free_secret(char *secret)
{
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

#define SL_CLEANUP(what) __attribute__((cleanup(sl_cleanup_##what)))

/* Moves a value out of a cleanup scope and leaves the neutral value behind. */
#define sl_take_ptr(p)                                                                             \
    __extension__({                                                                                \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    })
#define sl_take_fd(fd)                                                                             \
    __extension__({                                                                                \
        int taken_ = (fd);                                                                         \
        (fd) = -1;                                                                                 \
        taken_;                                                                                    \
    })

#define SL_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
