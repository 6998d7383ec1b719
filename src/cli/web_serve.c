/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web_serve.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/xalloc.h"

#define HEADERS_MAX 2048

struct client {
    int fd; /* -1: free */
    uint64_t until_ns;
    size_t got;
    char head[SL_WEB_HEAD_MAX + 1];
    char headers[HEADERS_MAX]; /* of the answer */
    size_t headers_size, sent;
    struct sl_web_answer answer; /* status 0: the request is not whole yet */
    bool bodiless;
};

/* --- the request --- */

/* Ends the line at `line` and returns the next one; NULL: there is no end of it. */
static char *next_line(char *line)
{
    char *end = strstr(line, "\r\n");
    if (!end)
        return NULL;
    *end = '\0';
    return end + 2;
}

static int read_header(char *line, struct sl_web_request *r)
{
    const struct {
        const char *name;
        const char **at;
    } rows[] = {{"host", &r->host},
                {"origin", &r->origin},
                {SL_PAGE_TOKEN_HEADER, &r->token},
                {"authorization", &r->authorization}};
    char *colon = strchr(line, ':');
    if (!colon || colon == line || line[0] == ' ' || line[0] == '\t')
        return -EINVAL; /* a continued line is not allowed any more */
    *colon = '\0';
    char *value = colon + 1 + strspn(colon + 1, " \t");
    for (size_t n = strlen(value); n && (value[n - 1] == ' ' || value[n - 1] == '\t'); n--)
        value[n - 1] = '\0';
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++) {
        if (strcasecmp(line, rows[i].name) != 0)
            continue;
        if (*rows[i].at)
            return -EINVAL; /* twice: which one counts? */
        *rows[i].at = value;
    }
    return 0;
}

int sl_web_parse(char *head, struct sl_web_request *ret)
{
    struct sl_web_request r = {.query = ""};
    char *line = next_line(head);
    char *target = strchr(head, ' ');
    char *version = target ? strchr(target + 1, ' ') : NULL;
    if (!line || !version || target == head || target[1] != '/' ||
        strncmp(version, " HTTP/1.", 8) != 0 || strlen(version) != 9)
        return -EINVAL;
    *target++ = '\0';
    *version = '\0';
    r.method = head;
    r.path = target;
    char *mark = strchr(target, '?');
    if (mark) {
        *mark = '\0';
        r.query = mark + 1;
    }
    while (*line != '\r') {
        char *next = next_line(line);
        if (!next || read_header(line, &r) != 0)
            return -EINVAL;
        line = next;
    }
    *ret = r;
    return 0;
}

/* --- the answer --- */

static const char *status_word(unsigned status)
{
    switch (status) {
    case 200:
        return "OK";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 431:
        return "Request Header Fields Too Large";
    default:
        return "Internal Server Error";
    }
}

static void begin_answer(struct client *c)
{
    size_t n;
    FILE *out = fmemopen(c->headers, sizeof(c->headers), "w");
    if (!out) { /* no memory: the connection is closed without an answer */
        c->headers_size = 0;
        c->answer.size = 0;
        return;
    }
    (void)fprintf(out,
                  "HTTP/1.1 %u %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                  "Connection: close\r\n",
                  c->answer.status, status_word(c->answer.status), c->answer.type, c->answer.size);
    for (const struct sl_page_header *h = sl_page_headers(); h->name; h++)
        (void)fprintf(out, "%s: %s\r\n", h->name, h->value);
    (void)fputs("\r\n", out);
    (void)fflush(out);
    n = (size_t)ftell(out);
    (void)fclose(out);
    c->headers_size = n < sizeof(c->headers) ? n : sizeof(c->headers) - 1;
}

static void say(struct sl_web_answer *answer, unsigned status, const char *text)
{
    *answer = (struct sl_web_answer){.status = status, .type = "application/json", .owned = true};
    answer->body = sl_page_error(text, &answer->size);
}

static void client_close(struct client *c)
{
    if (c->answer.owned)
        free(c->answer.body);
    (void)close(c->fd);
    c->fd = -1;
}

/* Sends what the socket takes now. */
static void client_send(struct client *c)
{
    size_t body = c->bodiless ? 0 : c->answer.size;
    while (c->sent < c->headers_size + body) {
        bool in_head = c->sent < c->headers_size;
        const char *from =
            in_head ? c->headers + c->sent : c->answer.body + (c->sent - c->headers_size);
        size_t size = in_head ? c->headers_size - c->sent : body - (c->sent - c->headers_size);
        ssize_t n = send(c->fd, from, size, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0)
            break;
        c->sent += (size_t)n;
    }
    client_close(c);
}

static void client_answer(const struct sl_web_server *s, struct client *c)
{
    struct sl_web_request r;
    if (sl_web_parse(c->head, &r) != 0) {
        say(&c->answer, 400, "this is not a request of HTTP/1");
    } else if (strcmp(r.method, "GET") != 0 && strcmp(r.method, "HEAD") != 0) {
        say(&c->answer, 405, "this server takes GET only");
    } else {
        c->bodiless = strcmp(r.method, "HEAD") == 0;
        s->handle(s->data, &r, &c->answer);
    }
    explicit_bzero(c->head, sizeof(c->head)); /* it has the token */
    c->until_ns = sl_now_ns() + SL_WEB_TIME_NS;
    begin_answer(c);
    client_send(c);
}

static void client_read(const struct sl_web_server *s, struct client *c)
{
    ssize_t n = recv(c->fd, c->head + c->got, SL_WEB_HEAD_MAX - c->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || memchr(c->head + c->got, '\0', (size_t)n)) {
        client_close(c);
        return;
    }
    c->got += (size_t)n;
    c->head[c->got] = '\0';
    if (strstr(c->head, "\r\n\r\n")) {
        client_answer(s, c);
    } else if (c->got == SL_WEB_HEAD_MAX) {
        say(&c->answer, 431, "the request is too long");
        begin_answer(c);
        client_send(c);
    }
}

/* --- the server --- */

int sl_web_listen(unsigned port, unsigned *ret_port, struct sl_err *err)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    const int on = 1;
    SL_CLEANUP(close) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return sl_err_errno(err, errno, "cannot make a socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(fd, SL_WEB_CLIENTS) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        return sl_err_errno(err, errno, "cannot listen at 127.0.0.1:%u", port);
    *ret_port = ntohs(at.sin_port);
    return sl_take_fd(fd);
}

/* A place for a new client: a free one, or that of the client which has been silent for longest. */
static struct client *place_for(struct client *clients)
{
    struct client *oldest = &clients[0];
    for (size_t i = 0; i < SL_WEB_CLIENTS; i++) {
        if (clients[i].fd < 0)
            return &clients[i];
        if (clients[i].until_ns < oldest->until_ns)
            oldest = &clients[i];
    }
    client_close(oldest);
    return oldest;
}

static void client_accept(int fd, struct client *clients)
{
    int got = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (got < 0)
        return;
    struct client *c = place_for(clients);
    *c = (struct client){.fd = got, .until_ns = sl_now_ns() + SL_WEB_TIME_NS};
}

/* Closes those whose time is up. Returns the milliseconds until the next one's; -1: none. */
static int client_deadlines(struct client *clients)
{
    uint64_t now = sl_now_ns(), next = UINT64_MAX;
    for (size_t i = 0; i < SL_WEB_CLIENTS; i++) {
        if (clients[i].fd >= 0 && clients[i].until_ns <= now)
            client_close(&clients[i]);
        if (clients[i].fd >= 0 && clients[i].until_ns < next)
            next = clients[i].until_ns;
    }
    return next == UINT64_MAX ? -1 : (int)((next - now) / SL_NS_PER_MS) + 1;
}

int sl_web_serve(const struct sl_web_server *s, struct sl_err *err)
{
    struct client *clients SL_CLEANUP(free) = sl_xcalloc(SL_WEB_CLIENTS, sizeof(*clients));
    for (size_t i = 0; i < SL_WEB_CLIENTS; i++)
        clients[i].fd = -1;
    for (;;) {
        struct pollfd p[SL_WEB_CLIENTS + 1] = {{.fd = s->fd, .events = POLLIN}};
        int wait_ms = client_deadlines(clients);
        for (size_t i = 0; i < SL_WEB_CLIENTS; i++)
            p[i + 1] = (struct pollfd){.fd = clients[i].fd,
                                       .events = clients[i].answer.status ? POLLOUT : POLLIN};
        if (poll(p, SL_ARRAY_LEN(p), wait_ms) < 0 && errno != EINTR)
            return sl_err_errno(err, errno, "cannot wait for requests");
        for (size_t i = 0; i < SL_WEB_CLIENTS; i++) {
            if (clients[i].fd < 0 || !p[i + 1].revents)
                continue;
            if (clients[i].answer.status)
                client_send(&clients[i]);
            else
                client_read(s, &clients[i]);
        }
        if (p[0].revents)
            client_accept(s->fd, clients);
    }
}
