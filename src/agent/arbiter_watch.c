/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/arbiter_watch.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/errors.h"
#include "arbiter/client.h"
#include "base/clock.h"
#include "base/container.h"
#include "shm/packet.h"

#define ASK_NS SL_NS_PER_S

static void hang_up(struct sl_arbiter_watch *w)
{
    if (w->conn.fd < 0)
        return;
    sl_loop_unwatch(w->loop, &w->conn);
    (void)close(w->conn.fd);
    w->conn.fd = -1;
}

/* Whatever it says, it lives. An arbiter of an older build ends the connection instead: it lives too. */
static void heard(struct sl_source *s, uint32_t events)
{
    struct sl_arbiter_watch *w = sl_container_of(s, struct sl_arbiter_watch, conn);
    union sl_packet p;
    (void)events;
    int rc = sl_packet_recv(s->fd, &p, NULL, NULL);
    if (rc == -EAGAIN)
        return;
    w->asked = false;
    w->silent_s = 0;
    if (rc < 0)
        hang_up(w);
}

/* Never waits: -EAGAIN says that nobody has taken the calls before this one. */
static int dial(struct sl_arbiter_watch *w)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    memcpy(addr.sun_path, w->path, sizeof(w->path));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) != 0) {
        int cause = errno;
        (void)close(fd);
        return -cause;
    }
    w->conn = (struct sl_source){.fd = fd, .ready = heard};
    int rc = sl_loop_watch(w->loop, &w->conn, EPOLLIN, NULL);
    if (rc < 0) {
        (void)close(fd);
        w->conn.fd = -1;
    }
    return rc;
}

/* 0 or -EAGAIN: an answer is owed. Anything else: there is nobody to ask, which its parent sees. */
static int ask(struct sl_arbiter_watch *w)
{
    int rc = w->conn.fd < 0 ? dial(w) : 0;
    struct sl_msg m;
    sl_packet_init(&m, SL_MSG_PING, sizeof(m));
    if (rc == 0)
        rc = sl_packet_send(w->conn.fd, &m, NULL, 0, NULL);
    if (rc < 0 && rc != -EAGAIN)
        hang_up(w);
    return rc;
}

static void tick(struct sl_timer *timer)
{
    struct sl_arbiter_watch *w = sl_container_of(timer, struct sl_arbiter_watch, timer);
    sl_timer_set(w->loop, timer, sl_loop_now(w->loop) + ASK_NS);
    if (w->asked && ++w->silent_s >= SL_ARBITER_SILENT_S) {
        pid_t pid = w->conn.fd >= 0 ? sl_client_peer_pid(w->conn.fd) : 0;
        w->asked = false;
        w->silent_s = 0;
        hang_up(w);
        w->stuck(w->data, pid);
        return;
    }
    if (!w->asked || w->conn.fd < 0) {
        int rc = ask(w);
        w->asked = rc == 0 || rc == -EAGAIN;
    }
    if (!w->asked)
        w->silent_s = 0;
}

int sl_arbiter_watch_init(struct sl_arbiter_watch *w, struct sl_loop *loop, const char *arbiter_dir,
                          void (*stuck)(void *data, pid_t pid), void *data, struct sl_err *err)
{
    *w = (struct sl_arbiter_watch){.loop = loop, .conn.fd = -1, .stuck = stuck, .data = data};
    w->timer.fire = tick;
    if ((size_t)snprintf(w->path, sizeof(w->path), "%s/%s", arbiter_dir, SL_CONTROL_SOCKET) >=
        sizeof(w->path))
        return sl_err_set(err, -ENAMETOOLONG, SL_E_ARBITER_DIR_LONG, arbiter_dir);
    return 0;
}

void sl_arbiter_watch_begin(struct sl_arbiter_watch *w)
{
    if (!w->timer.set)
        sl_timer_set(w->loop, &w->timer, sl_loop_now(w->loop) + ASK_NS);
}

void sl_arbiter_watch_end(struct sl_arbiter_watch *w)
{
    sl_timer_stop(w->loop, &w->timer);
    hang_up(w);
    w->asked = false;
    w->silent_s = 0;
}
