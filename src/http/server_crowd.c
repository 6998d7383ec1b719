/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits on the connections and bytes that strangers may hold.
 *
 * A server that stops accepting when it is full lets idle clients keep all others out, even a probe. So this server
 * always accepts. To make room, it closes the connection that is silent for longest, of the address with most
 * connections: a client that floods pushes itself out. Bytes work the same way: when all bodies together are too large,
 * the largest unfinished body is dropped. A small request has room beside any number of large ones.
 */
#include "http/server_internal.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"

enum { LOOK_AT = 32 }; /* how many connections to examine for one that can be closed */

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

void sl_http_conn_waits(struct http_conn *conn)
{
    struct sl_http_server *s = conn->server;
    sl_timer_set(s->loop, &conn->timer, sl_loop_now(s->loop) + s->opt.idle_timeout_s * SL_NS_PER_S);
    leave_line(conn);
    conn->prev = s->line_last;
    *(conn->prev ? &conn->prev->next : &s->line_first) = conn;
    s->line_last = conn;
    conn->in_line = true;
}

void sl_http_conn_busy(struct http_conn *conn)
{
    sl_timer_stop(conn->server->loop, &conn->timer);
    leave_line(conn);
}

/* Has the client sent bytes that the server has not read? Then the client waits for the server. */
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
    conn->server->from[conn->origin]--;
    (void)shutdown(conn->fd, SHUT_RDWR); /* MHD sees the end and closes it */
}

static uint8_t origin_of(const struct sl_http_server *s, int fd)
{
    struct sockaddr_storage sa = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof(sa);
    uint64_t hash = s->origin_secret;
    uint8_t address[16] = {0};
    if (getpeername(fd, (struct sockaddr *)&sa, &size) != 0)
        return 0;
    if (sa.ss_family == AF_INET6)
        memcpy(address, &((struct sockaddr_in6 *)&sa)->sin6_addr, 16);
    else if (sa.ss_family == AF_INET)
        memcpy(address, &((struct sockaddr_in *)&sa)->sin_addr, 4);
    for (size_t i = 0; i < sizeof(address); i++)
        hash = (hash ^ address[i]) * 0x9e3779b97f4a7c15ULL;
    return (uint8_t)(hash >> 56);
}

static void make_room(struct sl_http_server *s, const struct http_conn *newest)
{
    unsigned most = 0, looked = 0;
    for (const struct http_conn *c = s->line_first; c && c != newest; c = c->next)
        if (s->from[c->origin] > most)
            most = s->from[c->origin];
    for (struct http_conn *c = s->line_first; c && c != newest && looked < LOOK_AT; c = c->next) {
        if (s->from[c->origin] != most)
            continue;
        looked++;
        if (!has_spoken(c)) {
            send_away(c);
            return;
        }
    }
}

void sl_http_conn_arrived(struct http_conn *conn)
{
    struct sl_http_server *s = conn->server;
    s->conn_count++;
    conn->origin = origin_of(s, conn->fd);
    s->from[conn->origin]++;
    sl_http_conn_waits(conn);
    if (s->conn_count - s->leaving > s->opt.connections_max)
        make_room(s, conn);
}

void sl_http_conn_left(struct http_conn *conn)
{
    struct sl_http_server *s = conn->server;
    sl_http_conn_busy(conn);
    s->conn_count--;
    if (conn->sent_away)
        s->leaving--;
    else
        s->from[conn->origin]--;
}

/* --- bytes ---------------------------------------------------------------------------------- */

static struct sl_http_call *largest_body(struct sl_http_server *s)
{
    struct sl_http_call *largest = NULL;
    for (struct sl_http_call *call = s->calls; call; call = call->next)
        if (!call->handled && call->body &&
            (!largest || call->body_capacity > largest->body_capacity))
            largest = call;
    return largest;
}

void sl_http_body_drop(struct sl_http_call *call)
{
    call->server->held -= call->body_capacity;
    free(call->body);
    call->body = NULL;
    call->body_size = call->body_capacity = 0;
}

bool sl_http_room(struct sl_http_server *s, size_t more, size_t whole)
{
    while (s->held + more > s->opt.held_max) {
        struct sl_http_call *victim = largest_body(s);
        if (!victim || victim->body_capacity <= whole)
            return false;
        sl_http_body_drop(victim);
        victim->crowded_out = true;
    }
    return true;
}
