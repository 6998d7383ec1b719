/* SPDX-License-Identifier: Apache-2.0 */
#include "arbiter/history_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arbiter/errors.h"
#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/log.h"
#include "base/xalloc.h"

/* The file is replaced when it would be longer than this … */
#define FILE_MAX_BYTES ((off_t)(2 * SL_HISTORY_BYTES))
/* … and of a longer one only the end is read. */
#define READ_MAX       ((off_t)(4 * SL_HISTORY_BYTES))

/* Never waits: a pipe or a device in the place of the file is refused. */
static int open_file(int dir_fd, int flags, struct stat *st, struct sl_err *err)
{
    SL_CLEANUP(close)
    int fd = openat(dir_fd, SL_HISTORY_FILE, flags | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC,
                    0600);
    if (fd < 0)
        return sl_err_errno(err, errno, "cannot open " SL_HISTORY_FILE);
    if (fstat(fd, st) != 0)
        return sl_err_errno(err, errno, "cannot look at " SL_HISTORY_FILE);
    if (!S_ISREG(st->st_mode))
        return sl_err_set(err, -EINVAL, SL_E_HISTORY_NO_FILE);
    return sl_take_fd(fd);
}

/* --- in memory --- */

static void forget(struct sl_history_store *s, struct sl_history_line **at)
{
    struct sl_history_line *l = *at;
    *at = l->next;
    s->count--;
    s->bytes -= l->size + 1;
    if (s->newest == l) { /* only where it was the last of all, or `at` is its predecessor's */
        s->newest = NULL;
        for (struct sl_history_line *p = s->oldest; p; p = p->next)
            s->newest = p;
    }
    free(l);
}

/* The oldest line of the user who has more than half, else of all. */
static struct sl_history_line **spare(struct sl_history_store *s, uint32_t uid)
{
    uint32_t own = 0;
    struct sl_history_line **first = NULL;
    for (struct sl_history_line **p = &s->oldest; *p; p = &(*p)->next)
        if ((*p)->uid == uid) {
            first = first ? first : p;
            own++;
        }
    return own > s->count / 2 ? first : &s->oldest;
}

static void keep(struct sl_history_store *s, const struct sl_history_entry *e, const char *text,
                 size_t size)
{
    struct sl_history_line *l = sl_xmalloc(sizeof(*l) + size + 1);
    *l = (struct sl_history_line){.id = e->id, .uid = e->uid, .size = (uint32_t)size};
    memcpy(l->text, text, size);
    l->text[size] = '\0';
    if (s->newest)
        s->newest->next = l;
    else
        s->oldest = l;
    s->newest = l;
    s->count++;
    s->bytes += size + 1;
    while (s->count > SL_HISTORY_ENTRIES || s->bytes > SL_HISTORY_BYTES)
        forget(s, spare(s, e->uid));
}

bool sl_history_has(const struct sl_history_store *s, uint64_t id)
{
    for (const struct sl_history_line *l = s->oldest; l; l = l->next)
        if (l->id == id)
            return true;
    return false;
}

void sl_history_free(struct sl_history_store *s)
{
    while (s->oldest)
        forget(s, &s->oldest);
    *s = (struct sl_history_store){.written = -1};
}

/* --- reading --- */

static void take_lines(struct sl_history_store *s, const char *text, size_t size)
{
    while (size > 0) {
        const char *feed = memchr(text, '\n', size);
        size_t n = feed ? (size_t)(feed - text) : size;
        struct sl_history_entry e;
        if (n > 0 && sl_history_parse(text, n, &e))
            keep(s, &e, text, n);
        else if (n > 0)
            s->damaged++;
        n += feed != NULL;
        text += n;
        size -= n;
    }
}

static int read_end(int fd, off_t from, char *buf, size_t size, size_t *ret)
{
    *ret = 0;
    while (*ret < size) {
        ssize_t got = pread(fd, buf + *ret, size - *ret, from + (off_t)*ret);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : 0;
        *ret += (size_t)got;
    }
    return 0;
}

int sl_history_load(struct sl_history_store *s, int dir_fd, struct sl_err *err)
{
    struct stat st;
    *s = (struct sl_history_store){.written = -1};
    SL_CLEANUP(close) int fd = open_file(dir_fd, O_RDONLY, &st, err);
    if (fd < 0)
        return fd;
    bool cut = st.st_size > READ_MAX;
    size_t size = (size_t)(cut ? READ_MAX : st.st_size), got;
    SL_CLEANUP(free) char *text = sl_xmalloc(size + 1);
    int rc = read_end(fd, st.st_size - (off_t)size, text, size, &got);
    if (rc < 0)
        return sl_err_errno(err, -rc, "cannot read " SL_HISTORY_FILE);
    const char *feed = cut ? memchr(text, '\n', got) : NULL;
    size_t skip = feed ? (size_t)(feed - text) + 1 : 0; /* the rest of a line */
    take_lines(s, text + skip, got - skip);
    /* A last line without its end was cut off: the file is replaced before the next line. */
    if (!cut && (got == 0 || text[got - 1] == '\n'))
        s->written = (off_t)got;
    return 0;
}

/* --- writing --- */

static int replace(struct sl_history_store *s, int dir_fd, struct sl_err *err)
{
    SL_CLEANUP(free) char *text = sl_xmalloc(s->bytes + 1);
    size_t n = 0;
    for (const struct sl_history_line *l = s->oldest; l; l = l->next) {
        memcpy(text + n, l->text, l->size);
        n += l->size;
        text[n++] = '\n';
    }
    s->written = -1;
    int rc = sl_fs_replace(dir_fd, SL_HISTORY_FILE, text, n, 0600, err);
    if (rc < 0)
        return rc;
    s->written = (off_t)n;
    s->damaged = 0;
    return 0;
}

/* 1: the file must be replaced. */
static int append(struct sl_history_store *s, int dir_fd, struct sl_err *err)
{
    struct sl_history_line *l = s->newest;
    struct stat st;
    size_t n = l->size + 1;
    SL_CLEANUP(close) int fd = open_file(dir_fd, O_WRONLY | O_APPEND, &st, NULL);
    if (fd < 0 || st.st_size != s->written || st.st_size + (off_t)n > FILE_MAX_BYTES)
        return 1;
    l->text[l->size] = '\n';
    ssize_t put = write(fd, l->text, n);
    int cause = put < 0 ? errno : ENOSPC;
    l->text[l->size] = '\0';
    if (put == (ssize_t)n) {
        s->written += (off_t)n;
        return 0;
    }
    /* What half a line leaves behind counts as damaged; the file is replaced before the next one. */
    if (put > 0 && ftruncate(fd, st.st_size) != 0)
        sl_debug("half a line stays in " SL_HISTORY_FILE);
    s->written = -1;
    return sl_err_errno(err, cause, "cannot write " SL_HISTORY_FILE);
}

void sl_history_add(struct sl_history_store *s, int dir_fd, const struct sl_history_entry *e)
{
    char line[SL_HISTORY_LINE_MAX];
    struct sl_err err = SL_ERR_INIT;
    size_t size = sl_history_format(e, line);
    keep(s, e, line, size);
    int rc = s->written < 0 ? 1 : append(s, dir_fd, &err);
    if (rc == 1)
        rc = replace(s, dir_fd, &err);
    if (rc < 0 && !s->failing)
        sl_warn(SL_E_HISTORY_WRITE_LOG, err.msg);
    s->failing = rc < 0;
}
