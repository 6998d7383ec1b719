/* SPDX-License-Identifier: Apache-2.0 */
#define SL_ERR_ITSELF
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

SL_PRINTF(3, 0)
static int set_v(struct sl_err *err, int code, const char *fmt, va_list ap)
{
    if (err) {
        err->code = code;
        (void)vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
        sl_utf8_mend(err->msg);
    }
    return code;
}

int sl_err_set(struct sl_err *err, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set_v(err, code, fmt, ap);
    va_end(ap);
    return code;
}

int sl_err_errno(struct sl_err *err, int errno_value, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set_v(err, -errno_value, fmt, ap);
    va_end(ap);
    if (err) {
        char reason[128];
        size_t used = strlen(err->msg);
        /* The GNU variant may return a static string instead of filling the buffer. */
        const char *text = strerror_r(errno_value, reason, sizeof(reason));
        (void)snprintf(err->msg + used, sizeof(err->msg) - used, ": %s", text);
        sl_utf8_mend(err->msg);
    }
    return -errno_value;
}

int sl_err_wrap(struct sl_err *err, const char *fmt, ...)
{
    if (!err)
        return -EIO;
    char inner[sizeof(err->msg)];
    memcpy(inner, err->msg, sizeof(inner));

    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
    size_t used = strlen(err->msg);
    (void)snprintf(err->msg + used, sizeof(err->msg) - used, ": %s", inner);
    sl_utf8_mend(err->msg);
    return err->code ? err->code : -EIO;
}
