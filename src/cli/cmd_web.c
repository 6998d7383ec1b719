/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sluice web`: the page of this machine (docs/page.md), on loopback. Other users of the machine reach the port too: they
 * see nothing without the token, which is in the printed address only.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/quantity.h"
#include "cli/errors.h"
#include "cli/web_serve.h"
#include "cli/web_source.h"
#include "cli/world.h"
#include "page/errors.h"

#define TOKEN_BYTES 24

struct web {
    struct sl_world world;
    unsigned port;
    char token[2 * TOKEN_BYTES + 1];
};

static void answer_text(struct sl_web_answer *ret, unsigned status, const char *text)
{
    ret->status = status;
    ret->type = "application/json";
    ret->owned = true;
    ret->body = sl_page_error(text, &ret->size);
}

/* A page of another site cannot read our answers; that it may not even ask costs nothing. */
static bool from_here(const struct web *w, const struct sl_web_request *r)
{
    static const char scheme[] = "http://";
    if (!sl_page_host_local(r->host, w->port))
        return false;
    return !r->origin || (strncmp(r->origin, scheme, sizeof(scheme) - 1) == 0 &&
                          sl_page_host_local(r->origin + sizeof(scheme) - 1, w->port));
}

/* Asks the arbiter, as `sluice status` does. */
static void answer_status(const struct web *w, const struct sl_web_request *r, bool fit,
                          struct sl_web_answer *ret)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_client_status status = {0};
    struct sl_page_want want = {0};
    struct sl_page_ask ask;
    char cards[sizeof(w->world.place.sim)];
    if (fit && sl_page_want_read(r->query, &want, &err) != 0) {
        answer_text(ret, 400, err.msg);
        return;
    }
    SL_CLEANUP(close) int fd = sl_client_connect(&w->world.place, &err);
    int rc = fd < 0 ? fd : sl_client_status(fd, &status, &err);
    bool running = rc != -ENOENT && rc != -ECONNRESET;
    if (rc < 0 && running) {
        sl_client_status_free(&status);
        answer_text(ret, 500, err.msg);
        return;
    }
    struct sl_status_view view = {.dir = w->world.place.dir,
                                  .running = running,
                                  .arbiter_pid = running ? sl_client_peer_pid(fd) : 0,
                                  .status = &status};
    (void)snprintf(cards, sizeof(cards), "%s", w->world.place.sim);
    if (!cards[0] && sl_world_arbiter_cards(view.arbiter_pid, cards, sizeof(cards)) < 0)
        cards[0] = '\0';
    view.sim = cards[0] ? cards : NULL;
    sl_page_ask_read(r->query, &ask);
    *ret = (struct sl_web_answer){.status = 200, .type = "application/json", .owned = true};
    ret->body = fit ? sl_web_fit(&view, &want, &ret->size) : sl_web_data(&view, &ask, &ret->size);
    sl_client_status_free(&status);
}

static void handle(void *data, const struct sl_web_request *r, struct sl_web_answer *ret)
{
    const struct web *w = data;
    bool fit = strcmp(r->path, SL_PAGE_FIT_PATH) == 0;
    if (!from_here(w, r)) {
        answer_text(ret, 403, SL_E_PAGE_HOST);
    } else if (strcmp(r->path, SL_PAGE_PATH) == 0) { /* without data */
        *ret = (struct sl_web_answer){.status = 200, .type = "text/html; charset=utf-8"};
        ret->body = (char *)(uintptr_t)sl_page_html(&ret->size); /* is only read */
    } else if (!fit && strcmp(r->path, SL_PAGE_DATA_PATH) != 0) {
        answer_text(ret, 404, "there is no such path: the page is at /ui");
    } else if (!sl_page_token_same(sl_page_token_of(r->token, r->authorization), w->token)) {
        answer_text(ret, 401, SL_E_PAGE_TOKEN_MISSING);
    } else {
        answer_status(w, r, fit, ret);
    }
}

static int make_token(char *ret, struct sl_err *err)
{
    unsigned char bytes[TOKEN_BYTES];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return sl_err_errno(err, errno, "cannot get random numbers");
    for (size_t i = 0; i < sizeof(bytes); i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

static int read_port(const char *text, unsigned *ret, struct sl_err *err)
{
    uint64_t port = 0;
    const char *rest = text ? sl_number_read(text, 65535, &port) : "";
    if (!rest || *rest)
        return sl_err_set(err, -EINVAL, SL_E_WEB_PORT, text);
    *ret = (unsigned)port;
    return 0;
}

int sl_cmd_web(const struct sl_cli_args *args)
{
    struct sl_err err = SL_ERR_INIT;
    struct web w = {.port = 0};
    unsigned port = 0;
    int rc = read_port(sl_cli_value(args, "port"), &port, &err);
    if (rc < 0) {
        sl_cli_complain("web: %s", err.msg);
        return SL_EXIT_USAGE;
    }
    rc = sl_world_find(args, &w.world, &err);
    if (rc == 0)
        rc = make_token(w.token, &err);
    SL_CLEANUP(close) int fd = rc < 0 ? rc : sl_web_listen(port, &w.port, &err);
    if (fd >= 0) {
        (void)printf("http://127.0.0.1:%u" SL_PAGE_PATH "#token=%s\n"
                     "Open this address in a browser on this machine. The token in it is the key: "
                     "keep it to\nyourself. Ctrl-C ends the server.\n",
                     w.port, w.token);
        rc = sl_cli_finish(SL_EXIT_OK);
        if (rc)
            return rc;
        const struct sl_web_server server = {
            .fd = fd, .port = w.port, .handle = handle, .data = &w};
        (void)!sl_web_serve(&server, &err); /* returns for an error only */
    }
    sl_cli_complain("web: %s", err.msg);
    return SL_EXIT_FAILED;
}
