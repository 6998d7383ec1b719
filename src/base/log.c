/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Atomic int log_level = SL_LOG_OFF;
static _Atomic int log_fd = -1;

void sl_log_open(enum sl_log_level level, int fd)
{
    atomic_store(&log_fd, fd);
    atomic_store(&log_level, (int)level);
}

enum sl_log_level sl_log_level_parse(const char *text, enum sl_log_level fallback)
{
    static const char *const names[] = {"off", "error", "warn", "info", "debug"};
    for (int i = 0; text && i < 5; i++)
        if (strcmp(text, names[i]) == 0)
            return (enum sl_log_level)i;
    return fallback;
}

void sl_log(enum sl_log_level level, const char *fmt, ...)
{
    int fd = atomic_load_explicit(&log_fd, memory_order_relaxed);
    if ((int)level > atomic_load_explicit(&log_level, memory_order_relaxed) || fd < 0)
        return;

    static const char names[][6] = {"off", "error", "warn", "info", "debug"};
    int saved = errno;
    char line[700];
    struct timespec ts;
    struct tm tm;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    (void)gmtime_r(&ts.tv_sec, &tm);
    size_t n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
    n += (size_t)snprintf(line + n, sizeof(line) - n, ".%03ldZ %s ", ts.tv_nsec / 1000000,
                          names[level]);
    va_list ap;
    va_start(ap, fmt);
    int body = vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
    va_end(ap);
    if (body > 0)
        n += (size_t)body < sizeof(line) - n - 1 ? (size_t)body : sizeof(line) - n - 2;
    line[n++] = '\n';
    /* One write per line keeps lines of several processes whole; a full disk is not our error. */
    ssize_t ignored = write(fd, line, n);
    (void)ignored;
    errno = saved;
}
