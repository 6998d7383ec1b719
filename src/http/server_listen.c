/* SPDX-License-Identifier: Apache-2.0 */
/* From "127.0.0.1:9400" to a listening socket. */
#include "http/errors.h"
#include "http/server_internal.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 512 };

static int split(const char *address, char host[64], char port[8], struct sl_err *err)
{
    const char *colon = strrchr(address, ':');
    size_t host_size = colon ? (size_t)(colon - address) : 0;
    bool bracketed = host_size >= 2 && address[0] == '[' && colon[-1] == ']';
    bool bad = !colon || !colon[1] || strlen(colon + 1) > 5 ||
               strspn(colon + 1, "0123456789") != strlen(colon + 1) || atoi(colon + 1) > 65535 ||
               host_size >= 64 || (!bracketed && memchr(address, ':', host_size));
    if (bad)
        return sl_err_set(err, -EINVAL, SL_E_LISTEN_ADDRESS, address);
    (void)snprintf(host, 64, "%.*s", (int)(host_size - (bracketed ? 2 : 0)), address + bracketed);
    (void)snprintf(port, 8, "%s", colon + 1);
    return 0;
}

static int open_one(const struct addrinfo *a)
{
    const int on = 1, off = 0;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    /* Accepted connections inherit this: a short answer does not wait for a delayed acknowledgement. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (a->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        int rc = -errno;
        (void)close(fd);
        return rc;
    }
    return fd;
}

int sl_http_listen(const char *address, struct sl_err *err)
{
    char host[64] = "", port[8] = "";
    int rc = split(address, host, port, err);
    if (rc < 0)
        return rc;
    static const int families[] = {AF_INET6, AF_INET}; /* IPv6 first: it takes IPv4 too */
    int fd = -EADDRNOTAVAIL;
    for (size_t i = 0; fd < 0 && i < 2; i++) {
        struct addrinfo hints = {.ai_family = host[0] ? AF_UNSPEC : families[i],
                                 .ai_socktype = SOCK_STREAM,
                                 .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
        struct addrinfo *found = NULL;
        if (getaddrinfo(host[0] ? host : NULL, port, &hints, &found) != 0)
            return sl_err_set(err, -EINVAL, SL_E_LISTEN_ADDRESS, address);
        fd = open_one(found);
        freeaddrinfo(found);
        if (host[0])
            break;
    }
    return fd < 0 ? sl_err_errno(err, -fd, "cannot listen on %.100s", address) : fd;
}

unsigned sl_http_listen_port(int fd)
{
    struct sockaddr_storage sa = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof(sa);
    if (getsockname(fd, (struct sockaddr *)&sa, &size) != 0)
        return 0;
    return sa.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&sa)->sin6_port)
                                    : ntohs(((struct sockaddr_in *)&sa)->sin_port);
}
