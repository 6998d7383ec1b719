/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The logs of the daemon and its servers: control.log and server.log, and daemon.out, which has both with -f. Logs show
 * a fault first; get_server_status tells whether it is real.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/mps/mps_internal.h"
#include "base/cleanup.h"
#include "base/container.h"
#include "base/xalloc.h"

static const char *const names[] = {"daemon.out", "control.log", "server.log"};
enum { NAMES = SL_ARRAY_LEN(names), CHUNK = 16 * 1024, FILE_MAX = 4 * 1024 * 1024 };

struct mps_log {
    struct sl_loop *loop;
    struct sl_source source;
    char dir[MPS_PATH_SIZE];
    off_t at[NAMES];
    void (*fault)(void *data, const char *line);
    void *data;
};

/* "[2025-01-07 12:57:36.231 Server 82] text" → "text" */
static const char *without_stamp(const char *line)
{
    const char *end = line[0] == '[' ? strchr(line, ']') : NULL;
    return end && end[1] == ' ' ? end + 2 : line;
}

bool sl_mps_speaks_of_fault(const char *text)
{
    for (const char *p = text; (p = strcasestr(p, "fault")) != NULL; p += 5)
        if (p - text < 2 || strncasecmp(p - 2, "de", 2) != 0)
            return true;
    return strcasestr(text, "fatal") != NULL;
}

/* A line about a fault, or about a server that ended with an error. */
static bool worth_a_look(const char *line)
{
    const char *status = strstr(line, "exited with status ");
    return sl_mps_speaks_of_fault(line) || (status && strcmp(status, "exited with status 0") != 0);
}

static int open_log(const char *dir, const char *name, int flags)
{
    char path[MPS_PATH_SIZE + 16];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return open(path, flags | O_CLOEXEC | O_NOFOLLOW);
}

/* Reads the text since the last look, up to the last whole line. */
static void follow(struct mps_log *log, size_t i, bool tell)
{
    char text[CHUNK + 1];
    struct stat st;
    SL_CLEANUP(close) int fd = open_log(log->dir, names[i], O_RDWR);
    if (fd < 0 || fstat(fd, &st) != 0)
        return;
    if (st.st_size < log->at[i])
        log->at[i] = 0;
    if (st.st_size - log->at[i] > CHUNK)
        log->at[i] = st.st_size - CHUNK;
    ssize_t n = pread(fd, text, CHUNK, log->at[i]);
    if (n <= 0)
        return;
    text[n] = '\0';
    char *line = text, *end;
    while ((end = memchr(line, '\n', (size_t)(text + n - line))) != NULL) {
        *end = '\0';
        if (tell && worth_a_look(line))
            log->fault(log->data, without_stamp(line));
        line = end + 1;
    }
    log->at[i] += line - text;
    /* The log is in memory (/run), and no other program shortens it. */
    if (st.st_size > FILE_MAX && ftruncate(fd, 0) == 0)
        log->at[i] = 0;
}

static void log_ready(struct sl_source *source, uint32_t events)
{
    (void)events;
    struct mps_log *log = sl_container_of(source, struct mps_log, source);
    _Alignas(struct inotify_event) char buf[4096];
    while (read(source->fd, buf, sizeof(buf)) > 0) /* any file: to read all three is cheap */
        ;
    for (size_t i = 0; i < NAMES; i++)
        follow(log, i, true);
}

int sl_mps_log_create(struct sl_loop *loop, const char *dir,
                      void (*fault)(void *data, const char *line), void *data, struct mps_log **ret,
                      struct sl_err *err)
{
    struct mps_log *log = sl_xcalloc(1, sizeof(*log));
    log->loop = loop;
    log->fault = fault;
    log->data = data;
    log->source.ready = log_ready;
    (void)snprintf(log->dir, sizeof(log->dir), "%s", dir);
    log->source.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    int rc = 0;
    if (log->source.fd < 0 || inotify_add_watch(log->source.fd, dir, IN_MODIFY | IN_CREATE) < 0)
        rc = sl_err_errno(err, errno, "cannot watch the logs in %s", dir);
    if (rc == 0)
        rc = sl_loop_watch(loop, &log->source, EPOLLIN, err);
    if (rc < 0) {
        sl_mps_log_destroy(log);
        return rc;
    }
    for (size_t i = 0; i < NAMES; i++) { /* skip old lines */
        struct stat st;
        SL_CLEANUP(close) int fd = open_log(dir, names[i], O_RDONLY);
        if (fd >= 0 && fstat(fd, &st) == 0)
            log->at[i] = st.st_size;
    }
    *ret = log;
    return 0;
}

void sl_mps_log_destroy(struct mps_log *log)
{
    if (!log)
        return;
    sl_loop_unwatch(log->loop, &log->source);
    if (log->source.fd >= 0)
        (void)close(log->source.fd);
    free(log);
}

void sl_mps_log_last(const char *dir, char *buf, size_t size)
{
    char text[2048];
    buf[0] = '\0';
    for (size_t i = 0; i < 2 && !buf[0]; i++) {
        struct stat st;
        SL_CLEANUP(close) int fd = open_log(dir, names[i], O_RDONLY);
        if (fd < 0 || fstat(fd, &st) != 0)
            continue;
        off_t at = st.st_size > (off_t)sizeof(text) ? st.st_size - (off_t)sizeof(text) : 0;
        ssize_t n = pread(fd, text, sizeof(text) - 1, at);
        while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\0'))
            n--;
        if (n <= 0)
            continue;
        text[n] = '\0';
        const char *line = strrchr(text, '\n');
        (void)snprintf(buf, size, "%s", without_stamp(line ? line + 1 : text));
    }
}
