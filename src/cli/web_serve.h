/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small HTTP server for this machine only: one thread, loopback, GET, one request a connection. Requests are bounded in
 * size, number and time. It needs libc only, so that a core build has it too; the daemons use src/http.
 */
#ifndef SLUICE_CLI_WEB_SERVE_H
#define SLUICE_CLI_WEB_SERVE_H

#include <stddef.h>

#include "base/err.h"
#include "page/page.h"

#define SL_WEB_HEAD_MAX 8192 /* bytes of a request */
#define SL_WEB_CLIENTS  32
#define SL_WEB_TIME_NS  10000000000ULL /* to send a request, and to take an answer */

/* A request; the texts are in the buffer that was parsed. NULL: the header is absent. */
struct sl_web_request {
    const char *method, *path, *query;
    const char *host, *origin, *token, *authorization;
};
/* Cuts a whole head, with the empty line at its end, into its parts. -EINVAL: it is no request of HTTP/1. */
int sl_web_parse(char *head, struct sl_web_request *ret) SL_MUST_CHECK;

/* The answer. body is freed after it is sent if `owned`. */
struct sl_web_answer {
    unsigned status;
    const char *type;
    char *body;
    size_t size;
    bool owned;
};

struct sl_web_server {
    int fd;
    unsigned port;
    void (*handle)(void *data, const struct sl_web_request *request, struct sl_web_answer *ret);
    void *data;
};

/* Listens at 127.0.0.1; port 0: any free one, which *ret_port says. */
int sl_web_listen(unsigned port, unsigned *ret_port, struct sl_err *err) SL_MUST_CHECK; /* fd */
/* Does not return but for an error. */
int sl_web_serve(const struct sl_web_server *server, struct sl_err *err) SL_MUST_CHECK;

#endif
