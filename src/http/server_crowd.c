/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What strangers may hold of the server: connections and bytes.
 *
 * A server that stops accepting when it is full lets idle clients keep everybody else out, a probe too. So it always
 * accepts, and the connection that has kept it waiting longest goes. Bytes work the same way: when all bodies together
 * are too many, the largest unfinished one goes, so that a small request has room beside any number of large ones.
 */
#include "http/server_internal.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"

enum { LOOK_AT = 32 }; /* connections looked at for one that may go */

/* --- connections ---------------------------------------------------------------------------- */

static void leave_line(struct http_conn *conn)
{
    struct sl_http_server *s = conn->server;
    if (!conn->in_line)
        return;
    *(conn->prev ? &conn->prev->next : &s->line_first) = conn->next;
    *(conn->next ? &conn->next->prev : &s->line_last) = conn->prev;
    conn->prev = conn->next = NULL;
    conn->in_line = false;
}

void http_conn_waits(struct http_conn *conn)
{
    struct sl_http_server *s = conn->server;
    sl_timer_set(s->loop, &conn->timer, sl_loop_now(s->loop) + s->opt.idle_timeout_s * SL_NS_PER_S);
    leave_line(conn);
    conn->prev = s->line_last;
    *(conn->prev ? &conn->prev->next : &s->line_first) = conn;
    s->line_last = conn;
    conn->in_line = true;
}

void http_conn_busy(struct http_conn *conn)
{
    sl_timer_stop(conn->server->loop, &conn->timer);
    leave_line(conn);
}

/* It has said something that we have not read: then it is us who keep it waiting. */
static bool has_spoken(const struct http_conn *conn)
{
    int unread = 0;
    return ioctl(conn->fd, FIONREAD, &unread) == 0 && unread > 0;
}

static void send_away(struct http_conn *conn)
{
    leave_line(conn);
    conn->sent_away = true;
    conn->server->leaving++;
    (void)shutdown(conn->fd, SHUT_RDWR); /* MHD sees the end and closes it */
}

void http_conn_arrived(struct http_conn *conn)
{
    struct sl_http_server *s = conn->server;
    struct http_conn *oldest = s->line_first;
    s->conn_count++;
    http_conn_waits(conn);
    if (s->conn_count - s->leaving <= s->opt.connections_max)
        return;
    for (unsigned i = 0; i < LOOK_AT && oldest && oldest != conn; i++, oldest = oldest->next)
        if (!has_spoken(oldest)) {
            send_away(oldest);
            return;
        }
}

void http_conn_left(struct http_conn *conn)
{
    struct sl_http_server *s = conn->server;
    http_conn_busy(conn);
    s->conn_count--;
    s->leaving -= conn->sent_away;
}

/* --- bytes ---------------------------------------------------------------------------------- */

static struct sl_http_call *largest_body(struct sl_http_server *s)
{
    struct sl_http_call *largest = NULL;
    for (struct sl_http_call *call = s->calls; call; call = call->next)
        if (!call->handled && call->body && (!largest || call->body_capacity > largest->body_capacity))
            largest = call;
    return largest;
}

void http_body_drop(struct sl_http_call *call)
{
    call->server->held -= call->body_capacity;
    free(call->body);
    call->body = NULL;
    call->body_size = call->body_capacity = 0;
}

bool http_room(struct sl_http_server *s, size_t more, size_t whole)
{
    while (s->held + more > s->opt.held_max) {
        struct sl_http_call *victim = largest_body(s);
        if (!victim || victim->body_capacity <= whole)
            return false;
        http_body_drop(victim);
        victim->crowded_out = true;
    }
    return true;
}
