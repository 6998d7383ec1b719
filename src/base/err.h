/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors. A fallible function returns 0 or a negative errno-style code and takes a
 * `struct sl_err *` last. The struct is owned by the caller and never allocates, so the error
 * path cannot fail itself. It is left untouched on success. NULL is accepted everywhere.
 * A message is always well-formed UTF-8, also where it quotes something and cuts it: messages go into answers that are
 * JSON or protobuf, and one wrong byte would make the whole answer unreadable.
 */
#ifndef SLUICE_BASE_ERR_H
#define SLUICE_BASE_ERR_H

#include <stdarg.h>

struct sl_err {
    int code;      /* negative errno, 0 = none */
    char msg[400]; /* one sentence: what went wrong and, where known, what to do about it */
};

#define SL_ERR_INIT     {0, {0}}
#define SL_PRINTF(a, b) __attribute__((format(printf, a, b)))
#define SL_MUST_CHECK   __attribute__((warn_unused_result))

/* Sets err and returns code, so that `return sl_err_set(err, -EINVAL, "…")` reads well. */
int sl_err_set(struct sl_err *err, int code, const char *fmt, ...) SL_PRINTF(3, 4);

/* As sl_err_set with -errno_value, and ": <strerror>" after the text. */
int sl_err_errno(struct sl_err *err, int errno_value, const char *fmt, ...) SL_PRINTF(3, 4);

/* Prepends context ("reading lease: …") to an error already set; returns its code. */
int sl_err_wrap(struct sl_err *err, const char *fmt, ...) SL_PRINTF(2, 3);

/* clang's analyzer sees one file at a time. Here it learns which code these functions return. */
#if defined(__clang_analyzer__) && !defined(SL_ERR_ITSELF)
static inline int sl_err_returned(int returned, int code)
{
    (void)returned;
    return code < 0 ? code : -1;
}
#define sl_err_set(err, code, ...)   sl_err_returned(sl_err_set(err, code, __VA_ARGS__), code)
#define sl_err_errno(err, code, ...) sl_err_returned(sl_err_errno(err, code, __VA_ARGS__), -(code))
#endif

#endif
