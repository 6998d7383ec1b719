/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "agent/agent_internal.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "base/xalloc.h"

#define SETTLE_NS (100 * SL_NS_PER_MS)
#define LOOK_NS   (20 * SL_NS_PER_S)

struct sl_reload {
    struct sl_loop *loop;
    struct sl_source inotify;
    struct sl_timer settle, look;
    int watch; /* of the file's directory; -1: none */
    void (*changed)(void *data);
    void *data;
    char path[PATH_MAX]; /* "": none */
};

/* Watches the directory, not the file: editors and kubelet replace the file of that name. */
static void watch_directory(struct sl_reload *r)
{
    char copy[PATH_MAX];
    if (r->inotify.fd < 0 || r->watch >= 0 || r->path[0] == '\0')
        return;
    (void)snprintf(copy, sizeof(copy), "%s", r->path);
    r->watch = inotify_add_watch(r->inotify.fd, dirname(copy),
                                 IN_CLOSE_WRITE | IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM |
                                     IN_DELETE | IN_DELETE_SELF | IN_ONLYDIR);
}

static void inotify_ready(struct sl_source *s, uint32_t events)
{
    (void)events;
    struct sl_reload *r = sl_container_of(s, struct sl_reload, inotify);
    _Alignas(struct inotify_event) char buf[4096];
    ssize_t n;
    while ((n = read(s->fd, buf, sizeof(buf))) > 0) {
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *e = (const void *)(buf + at);
            if ((e->mask & IN_IGNORED) && e->wd == r->watch)
                r->watch = -1;
            at += (ssize_t)(sizeof(*e) + e->len);
        }
    }
    sl_timer_set(r->loop, &r->settle, sl_loop_now(r->loop) + SETTLE_NS);
}

static void settled(struct sl_timer *timer)
{
    struct sl_reload *r = sl_container_of(timer, struct sl_reload, settle);
    watch_directory(r); /* the directory was replaced */
    if (r->path[0] != '\0')
        r->changed(r->data);
}

static void looked(struct sl_timer *timer)
{
    struct sl_reload *r = sl_container_of(timer, struct sl_reload, look);
    sl_timer_set(r->loop, &r->look, sl_loop_now(r->loop) + LOOK_NS);
    settled(&r->settle);
}

int sl_reload_create(struct sl_loop *loop, void (*changed)(void *data), void *data,
                     struct sl_reload **ret, struct sl_err *err)
{
    struct sl_reload *r = sl_xcalloc(1, sizeof(*r));
    *r = (struct sl_reload){.loop = loop, .watch = -1, .changed = changed, .data = data};
    r->settle.fire = settled;
    r->look.fire = looked;
    r->inotify =
        (struct sl_source){.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), .ready = inotify_ready};
    if (r->inotify.fd < 0)
        sl_warn("inotify is not available (%s): a changed configuration is noticed within 20 s",
                strerror(errno));
    else if (sl_loop_watch(loop, &r->inotify, EPOLLIN, err) < 0) {
        (void)close(r->inotify.fd);
        free(r);
        return err->code;
    }
    sl_timer_set(loop, &r->look, sl_loop_now(loop) + LOOK_NS);
    *ret = r;
    return 0;
}

void sl_reload_destroy(struct sl_reload *r)
{
    if (!r)
        return;
    sl_timer_stop(r->loop, &r->settle);
    sl_timer_stop(r->loop, &r->look);
    if (r->inotify.fd >= 0) {
        sl_loop_unwatch(r->loop, &r->inotify);
        (void)close(r->inotify.fd);
    }
    free(r);
}

void sl_reload_watch(struct sl_reload *r, const char *path)
{
    if (strcmp(r->path, path ? path : "") == 0)
        return;
    if (r->watch >= 0)
        (void)inotify_rm_watch(r->inotify.fd, r->watch);
    r->watch = -1;
    (void)snprintf(r->path, sizeof(r->path), "%s", path ? path : "");
    watch_directory(r);
}
