/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/tag.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Lines have less than a hundred characters. More locks than this are made only to disturb us. */
#define MOST_BYTES ((size_t)512 << 10)

bool sl_tag_put(int fd, uint64_t id, uint64_t units)
{
    int saved = errno;
    struct flock range = {.l_type = F_RDLCK,
                          .l_whence = SEEK_SET,
                          .l_start = (off_t)id,
                          .l_len = (off_t)(units ? units : 1)};
    bool ok = fcntl(fd, F_OFD_SETLK, &range) == 0;
    errno = saved;
    return ok;
}

struct tag {
    uint64_t first, last;
};

/* Called with every tag in a file of the kernel, until it returns true. */
typedef bool see_function(const struct tag *tag, void *arg);

static bool parse(const char *line, struct tag *tag)
{
    const char *lock = strstr(line, "OFDLCK");
    return lock &&
           sscanf(lock, "OFDLCK %*s READ %*d %*s %" SCNu64 " %" SCNu64, &tag->first, &tag->last) ==
               2 &&
           (tag->first & 1) && tag->last >= tag->first;
}

enum end { FOUND, NOT_FOUND, UNKNOWN };

static enum end scan(const char *path, see_function *see, void *arg)
{
    char buf[4096];
    size_t have = 0, all = 0;
    enum end end = UNKNOWN;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NOT_FOUND;
    while (end == UNKNOWN && all < MOST_BYTES) {
        ssize_t n = read(fd, buf + have, sizeof(buf) - 1 - have);
        if (n <= 0) {
            end = n == 0 ? NOT_FOUND : UNKNOWN;
            break;
        }
        have += (size_t)n;
        all += (size_t)n;
        buf[have] = '\0';
        char *line = buf, *stop;
        for (; end == UNKNOWN && (stop = strchr(line, '\n')); line = stop + 1) {
            struct tag tag;
            *stop = '\0';
            if (parse(line, &tag) && see(&tag, arg))
                end = FOUND;
        }
        have = strlen(line);
        if (have >= sizeof(buf) - 1)
            have = 0; /* no line of the kernel is so long */
        memmove(buf, line, have);
    }
    (void)close(fd);
    return end;
}

static bool take_first(const struct tag *tag, void *arg)
{
    *(struct tag *)arg = *tag;
    return true;
}

bool sl_tag_read(int fd, uint64_t *ret_id, uint64_t *ret_units)
{
    char path[64];
    struct tag tag;
    int saved = errno;
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    bool found = fd >= 0 && scan(path, take_first, &tag) == FOUND;
    errno = saved;
    if (!found)
        return false;
    *ret_id = tag.first;
    *ret_units = tag.last - tag.first + 1;
    return true;
}

static bool is_id(const struct tag *tag, void *arg)
{
    return tag->first == *(const uint64_t *)arg;
}

bool sl_tag_exists(uint64_t id)
{
    int saved = errno;
    enum end end = scan("/proc/locks", is_id, &id);
    errno = saved;
    return end != NOT_FOUND;
}

struct list {
    uint64_t *ids;
    size_t room, count;
};

static bool add(const struct tag *tag, void *arg)
{
    struct list *l = arg;
    if (l->count == l->room)
        return true;
    l->ids[l->count++] = tag->first;
    return false;
}

bool sl_tag_list(uint64_t *ids, size_t room, size_t *ret_count)
{
    int saved = errno;
    struct list l = {ids, room, 0};
    enum end end = scan("/proc/locks", add, &l);
    errno = saved;
    *ret_count = l.count;
    return end == NOT_FOUND;
}
