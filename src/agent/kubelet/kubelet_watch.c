/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/kubelet/plugin_internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/kubelet/errors.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "base/xalloc.h"

enum {
    INTEREST = IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF
};

/* The poll interval without a directory or without inotify. A restarted kubelet expects us within a second. */
static const uint64_t LOOK_NS = 250 * SL_NS_PER_MS;
/* The poll interval otherwise: inotify misses some changes, for example of a directory above. */
static const uint64_t CHECK_NS = 10 * SL_NS_PER_S;

/* The identity of a file. An inode's number alone is not enough: the next file may get it. */
struct identity {
    bool there;
    dev_t dev;
    ino_t ino;
    struct timespec made; /* last modification: a socket's inode is never written */
};

struct sl_kubelet_watch {
    struct sl_loop *loop;
    const struct sl_kubelet_watch_ops *ops;
    void *data;
    struct sl_source source; /* inotify; fd -1: not available */
    struct sl_timer timer;
    int wd; /* -1: the directory is not being watched */
    struct identity dir, kubelet;
    char *dir_path, *socket_path;
    const char *socket_name;
};

static struct identity identify(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return (struct identity){.there = false};
    return (struct identity){.there = true, .dev = st.st_dev, .ino = st.st_ino, .made = st.st_mtim};
}

static struct identity identify_dir(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return (struct identity){.there = false};
    return (struct identity){.there = true, .dev = st.st_dev, .ino = st.st_ino};
}

/* A directory's time changes with every file in it. */
static bool same_dir(const struct identity *a, const struct identity *b)
{
    return a->there == b->there && a->dev == b->dev && a->ino == b->ino;
}

static bool same_file(const struct identity *a, const struct identity *b)
{
    return same_dir(a, b) && a->made.tv_sec == b->made.tv_sec && a->made.tv_nsec == b->made.tv_nsec;
}

static void forget_dir(struct sl_kubelet_watch *w)
{
    if (w->wd >= 0)
        (void)inotify_rm_watch(w->source.fd, w->wd);
    w->wd = -1;
}

/* Watches the directory that is at the path now. */
static void watch_dir(struct sl_kubelet_watch *w)
{
    forget_dir(w);
    w->dir = identify_dir(w->dir_path);
    if (!w->dir.there || w->source.fd < 0)
        return;
    w->wd = inotify_add_watch(w->source.fd, w->dir_path, INTEREST | IN_ONLYDIR);
    if (w->wd < 0 && errno != ENOENT)
        sl_warn("cannot watch %s (%s): the agent looks at it four times a second instead",
                w->dir_path, strerror(errno));
}

static void kubelet_changed(struct sl_kubelet_watch *w, bool certainly)
{
    struct identity now = identify(w->socket_path);
    bool changed = certainly || !same_file(&now, &w->kubelet);
    w->kubelet = now;
    if (changed && now.there)
        w->ops->kubelet(w->data);
}

/* Compares the directory with its last known state. */
static void look(struct sl_kubelet_watch *w)
{
    struct identity dir = identify_dir(w->dir_path);
    if (!same_dir(&dir, &w->dir) || (w->wd < 0 && dir.there && w->source.fd >= 0))
        watch_dir(w);
    /* Our sockets first: a kubelet that starts removes our sockets before it makes its own. */
    w->ops->touched(NULL, w->data);
    kubelet_changed(w, false);
}

static void set_timer(struct sl_kubelet_watch *w)
{
    sl_timer_set(w->loop, &w->timer, sl_loop_now(w->loop) + (w->wd < 0 ? LOOK_NS : CHECK_NS));
}

static void timer_fires(struct sl_timer *timer)
{
    struct sl_kubelet_watch *w = sl_container_of(timer, struct sl_kubelet_watch, timer);
    look(w);
    set_timer(w);
}

/* True: single events are not enough, compare everything. */
static bool one_event(struct sl_kubelet_watch *w, const struct inotify_event *e)
{
    if (e->mask & IN_Q_OVERFLOW)
        return true;
    if (e->wd != w->wd)
        return false; /* an event of an earlier directory */
    if (e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)) {
        if (e->mask & (IN_IGNORED | IN_UNMOUNT | IN_DELETE_SELF))
            w->wd = -1; /* the kernel has dropped the watch */
        forget_dir(w);
        return true;
    }
    if (e->len == 0)
        return false;
    /* No event will report the end of the directory itself: our open sockets keep its inode. */
    if (e->mask & IN_DELETE)
        sl_timer_set(w->loop, &w->timer, sl_loop_now(w->loop) + LOOK_NS);
    if (strcmp(e->name, w->socket_name) != 0)
        w->ops->touched(e->name, w->data);
    else if (e->mask & (IN_CREATE | IN_MOVED_TO))
        kubelet_changed(w, true);
    else
        w->kubelet.there = false;
    return false;
}

static void inotify_ready(struct sl_source *source, uint32_t events)
{
    (void)events;
    struct sl_kubelet_watch *w = sl_container_of(source, struct sl_kubelet_watch, source);
    _Alignas(struct inotify_event) char buffer[4096];
    ssize_t n = read(source->fd, buffer, sizeof(buffer));
    bool all = false;
    for (ssize_t at = 0; at < n;) {
        const struct inotify_event *e = (const void *)(buffer + at);
        at += (ssize_t)sizeof(*e) + (ssize_t)e->len;
        all |= one_event(w, e);
    }
    if (all) {
        look(w);
        set_timer(w);
    }
}

static int split_path(struct sl_kubelet_watch *w, const char *path, struct sl_err *err)
{
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path || !slash[1])
        return sl_err_set(err, -EINVAL, SL_E_KUBELET_SOCKET, path);
    w->socket_path = sl_xstrdup(path);
    w->dir_path = sl_xstrndup(path, (size_t)(slash - path));
    w->socket_name = strrchr(w->socket_path, '/') + 1;
    return 0;
}

int sl_kubelet_watch_create(struct sl_loop *loop, const char *kubelet_socket,
                            const struct sl_kubelet_watch_ops *ops, void *data,
                            struct sl_kubelet_watch **ret, struct sl_err *err)
{
    struct sl_kubelet_watch *w = sl_xcalloc(1, sizeof(*w));
    w->loop = loop;
    w->ops = ops;
    w->data = data;
    w->wd = -1;
    w->timer.fire = timer_fires;
    w->source = (struct sl_source){.fd = -1, .ready = inotify_ready};
    int rc = split_path(w, kubelet_socket, err);
    if (rc < 0) {
        sl_kubelet_watch_destroy(w);
        return rc;
    }
    /* A node may run out of inotify instances (128 a user by default): serve all the same. */
    w->source.fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (w->source.fd >= 0 && sl_loop_watch(loop, &w->source, EPOLLIN, NULL) < 0) {
        (void)close(w->source.fd);
        w->source.fd = -1;
    }
    if (w->source.fd < 0)
        sl_warn("inotify is not available (fs.inotify.max_user_instances?): the agent looks at %s "
                "four times a second instead",
                w->dir_path);
    watch_dir(w);
    if (!w->dir.there)
        sl_warn("%s does not exist yet: is kubelet running on this node? The agent waits for it",
                w->dir_path);
    w->kubelet = identify(w->socket_path);
    set_timer(w);
    *ret = w;
    return 0;
}

void sl_kubelet_watch_destroy(struct sl_kubelet_watch *watch)
{
    if (!watch)
        return;
    sl_timer_stop(watch->loop, &watch->timer);
    sl_loop_unwatch(watch->loop, &watch->source);
    if (watch->source.fd >= 0)
        (void)close(watch->source.fd);
    free(watch->dir_path);
    free(watch->socket_path);
    free(watch);
}

const char *sl_kubelet_watch_dir(const struct sl_kubelet_watch *watch)
{
    return watch->dir_path;
}
