/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of the cluster (docs/page.md): its cards with the pods on them, who waits and why, what would fit where. It
 * shows the controller's own books and asks the API server for nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/log.h"
#include "controller/controller_internal.h"
#include "controller/errors.h"
#include "page/errors.h"
#include "page/page.h"

#define TOKEN_FILE_MAX 4096

static void answer(struct sl_http_call *call, unsigned status, const char *type, const char *body,
                   size_t size)
{
    const struct sl_page_header *from = sl_page_headers();
    struct sl_http_header headers[16];
    size_t n = 0;
    for (; from[n].name && n + 1 < SL_ARRAY_LEN(headers); n++)
        headers[n] = (struct sl_http_header){from[n].name, from[n].value};
    headers[n] = (struct sl_http_header){NULL, NULL};
    sl_http_answer_with(call, status, type, headers, body, size);
}

static void answer_json(struct sl_http_call *call, unsigned status, char *text, size_t size)
{
    answer(call, status, "application/json", text, size);
    free(text);
}

static void refuse(struct sl_http_call *call, unsigned status, const char *message)
{
    size_t size;
    char *text = sl_page_error(message, &size);
    answer_json(call, status, text, size);
}

static int read_token(const struct sl_controller *c, char token[SL_PAGE_TOKEN_MOST + 1],
                      struct sl_err *err)
{
    char *text = NULL;
    size_t size;
    int rc = sl_fs_read(AT_FDCWD, c->opt.ui_token_file, TOKEN_FILE_MAX, &text, &size, err);
    if (!rc)
        rc = sl_page_token_read(text, token, err);
    sl_free_secret(text);
    return rc ? sl_err_wrap(err, "--ui-token-file %s", c->opt.ui_token_file) : 0;
}

int sl_ui_check(const struct sl_controller *c, struct sl_err *err)
{
    char token[SL_PAGE_TOKEN_MOST + 1];
    int rc = c->opt.ui_token_file ? read_token(c, token, err) : 0;
    explicit_bzero(token, sizeof(token));
    return rc;
}

/* The file is read for each request: a new token counts at once, and a file that cannot be read shows nothing. */
static bool token_good(const struct sl_controller *c, struct sl_http_call *call)
{
    char token[SL_PAGE_TOKEN_MOST + 1];
    struct sl_err err = SL_ERR_INIT;
    const char *given = sl_page_token_of(sl_http_header(call, SL_PAGE_TOKEN_HEADER),
                                         sl_http_header(call, "Authorization"));
    if (!c->opt.ui_token_file)
        return true;
    int rc = read_token(c, token, &err);
    if (rc)
        sl_warn("the page shows nothing: %s", err.msg);
    bool good = !rc && sl_page_token_same(given, token);
    explicit_bzero(token, sizeof(token));
    return good;
}

/* On loopback a page of another site may reach us by a name of its own that leads here. */
static bool host_good(struct sl_http_call *call, bool loopback)
{
    const char *host = sl_http_header(call, "Host");
    const char *colon = host ? strrchr(host, ':') : NULL;
    /* `kubectl port-forward` listens at a port of the user's choice. */
    return !loopback ||
           sl_page_host_local(host, colon ? (unsigned)strtoul(colon + 1, NULL, 10) : 80);
}

bool sl_ui_on(const struct sl_controller *c)
{
    return c->opt.ui_token_file || c->opt.ui_loopback;
}

/* Where DRA places pods, its slices and claims are shown. */
static struct sl_cluster *shown(struct sl_controller *c, bool *ret_dra)
{
    *ret_dra =
        c->dra && c->opt.extender != SL_EXTENDER_CHOOSE && c->opt.extender != SL_EXTENDER_ALL;
    return *ret_dra ? sl_ui_dra_cluster(c->dra) : c->cluster;
}

static void each_tenant(const struct sl_page_source *s, const struct sl_page_card *card,
                        sl_page_tenant_fn *each, void *to)
{
    (void)s;
    sl_cluster_card_tenants(card->owner, card->index, each, to);
}

static void each_waiter(const struct sl_page_source *s, size_t from, size_t count,
                        sl_page_waiter_fn *each, void *to)
{
    struct sl_controller *c = s->data;
    sl_cluster_each_waiting(c->cluster, from, count, each, to);
}

static const char *note_of(const struct sl_controller *c, bool dra)
{
    if (!sl_feeds_synced(c))
        return "The controller does not know the whole cluster yet.";
    if (dra)
        return "The claims of DRA are shown: kube-scheduler places them.";
    return sl_controller_leads(c) ? NULL
                                  : "Another replica places pods: what it reserved in the last "
                                    "seconds is not shown here.";
}

static void data(struct sl_controller *c, struct sl_http_call *call,
                 const struct sl_http_request *request)
{
    struct sl_page_ask ask;
    bool dra;
    size_t size, unused;
    struct sl_cluster *books = shown(c, &dra);
    struct sl_page_source s = {.kind = "cluster",
                               .title = "GPUs of the cluster",
                               .note = note_of(c, dra),
                               .each_tenant = each_tenant,
                               .each_waiter = each_waiter,
                               .data = c};
    struct sl_page_card *cards = sl_cluster_cards(books, &s.card_count, &s.nodes);
    s.cards = cards;
    sl_cluster_pods(c->cluster, &s.tenants, &s.waiting);
    if (dra)
        sl_cluster_pods(books, &s.tenants, &unused);
    sl_page_ask_read(request->query, &ask);
    char *text = sl_page_data(&s, &ask, &size);
    free(cards);
    answer_json(call, 200, text, size);
}

/* Fills in the cards that the engine chose, and counts those that have room. */
static void tell_place(const struct sl_page_card *cards, size_t count,
                       const struct sl_page_want *want, const char *node, uint16_t gpus,
                       struct sl_page_place *ret)
{
    ret->node = node;
    ret->cards = count;
    for (size_t i = 0; i < count; i++) {
        ret->fitting += sl_page_card_fits(&cards[i], want);
        if (!node || strcmp(cards[i].node, node) != 0 || !(gpus >> cards[i].index & 1) ||
            ret->card_count == SL_ARRAY_LEN(ret->card))
            continue;
        ret->card[ret->card_count].index = cards[i].index;
        ret->card[ret->card_count].uuid = cards[i].uuid;
        ret->card[ret->card_count++].model = cards[i].model;
    }
}

static void fit(struct sl_controller *c, struct sl_http_call *call,
                const struct sl_http_request *request)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_page_want want;
    struct sl_request r;
    struct sl_page_place place = {.node = NULL};
    const char *node = NULL;
    uint16_t gpus = 0;
    size_t count, nodes, size;
    bool dra;
    if (sl_page_want_read(request->query, &want, &err) != 0) {
        refuse(call, 400, err.msg);
        return;
    }
    memset(&r, 0, sizeof(r));
    r.part_count = 1;
    r.part[0] = (struct sl_request_part){.count = (uint8_t)want.gpus,
                                         .same_as = -1,
                                         .share = {.memory_bytes = want.memory_bytes,
                                                   .memory_percent = want.memory_percent,
                                                   .cores_permille = want.cores_permille,
                                                   .limit_permille = want.cores_limit_permille}};
    struct sl_cluster *books = shown(c, &dra);
    int rc = sl_cluster_would(books, &r, &node, &gpus, &err);
    if (rc && rc != -ENOSPC) {
        refuse(call, 400, err.msg);
        return;
    }
    struct sl_page_card *cards = sl_cluster_cards(books, &count, &nodes);
    tell_place(cards, count, &want, rc ? NULL : node, gpus, &place);
    place.by = dra ? "scheduler" : "engine";
    place.why = !rc             ? NULL
                : !count        ? "no node has GPUs of Sluice's"
                : place.fitting ? "no single node has so many GPUs with room"
                                : "no GPU has so much memory and time left";
    char *text = sl_page_fit(&want, &place, &size);
    free(cards);
    answer_json(call, 200, text, size);
}

void sl_ui_handle(struct sl_controller *c, struct sl_http_call *call,
                  const struct sl_http_request *request, bool loopback)
{
    if (!host_good(call, loopback)) {
        refuse(call, 403, SL_E_PAGE_HOST);
    } else if (strcmp(request->path, SL_PAGE_PATH) == 0) { /* without data: the same for all */
        size_t size;
        const char *html = sl_page_html(&size);
        answer(call, 200, "text/html; charset=utf-8", html, size);
    } else if (!token_good(c, call)) {
        refuse(call, 401, SL_E_PAGE_TOKEN_MISSING);
    } else if (strcmp(request->path, SL_PAGE_DATA_PATH) == 0) {
        data(c, call, request);
    } else {
        fit(c, call, request);
    }
}
