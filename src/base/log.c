/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *const names[] = {"off", "error", "warn", "info", "debug"};
static _Atomic int log_level = SL_LOG_OFF;
static _Atomic int log_fd = -1;
/* The file of log_fd when it was opened; written before log_fd. */
static struct {
    bool known;
    dev_t device;
    ino_t inode;
    char path[PATH_MAX];
} file;

static void use(enum sl_log_level level, int fd)
{
    atomic_store(&log_fd, fd);
    atomic_store(&log_level, (int)level);
}

void sl_log_open(enum sl_log_level level, int fd)
{
    file.known = false;
    use(level, fd);
}

void sl_log_open_file(enum sl_log_level level, int fd, const char *path)
{
    struct stat st;
    file.known = fd >= 0 && fstat(fd, &st) == 0;
    if (file.known) {
        file.device = st.st_dev;
        file.inode = st.st_ino;
        /* By its full name: the program may change its directory. Not every file has a name. */
        if (!realpath(path, file.path))
            file.path[0] = '\0';
    }
    use(level, fd);
}

/* One write per line keeps lines of several processes whole; a full disk is not our error. */
static void put(int fd, const char *line, size_t n)
{
    struct stat st;
    bool lost =
        file.known && (fstat(fd, &st) != 0 || st.st_dev != file.device || st.st_ino != file.inode);
    if (lost)
        fd = open(file.path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    ssize_t ignored = write(fd, line, n);
    (void)ignored;
    if (lost && fd >= 0)
        (void)close(fd);
}

enum sl_log_level sl_log_level_parse(const char *text, enum sl_log_level fallback)
{
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
    put(fd, line, n);
    errno = saved;
}
