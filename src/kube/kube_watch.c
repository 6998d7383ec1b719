/* SPDX-License-Identifier: Apache-2.0 */
/* Watches: a list in pages, then a stream of lines; a new list when the server has forgotten the version. */
#include "kube/errors.h"
#include "kube/kube_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/list.h"
#include "base/map.h"
#include "base/xalloc.h"
#include "kube/lines.h"

enum {
    PAGE = 500,
    OBJECTS_MAX = 1 << 20,
    STREAM_S = 300,       /* the server ends a watch after this time and up to a fifth more */
    STREAM_GRACE_S = 30,  /* this client ends it if the server does not */
    GOOD_STREAM_S = 30,   /* a stream that lasted this long counts as a success */
    REFUSALS_MAX = 3,     /* after so many refusals, list again */
    BACKOFF_MIN_MS = 200, /* doubles up to the maximum; the wait is half of it to all of it */
    BACKOFF_MAX_MS = 30000,
};

/* An object that was reported: enough to report its deletion, nothing of its contents. */
struct known {
    struct sl_map_item item; /* by "namespace/name" */
    char *key, *uid;
    unsigned round; /* the list that reported it last */
    char version[24];
};

struct sl_kube_watch {
    struct sl_kube *kube;
    struct sl_kube_watch *next;
    char *path;
    struct sl_kube_watch_ops ops;
    void *data;
    struct sl_timer timer; /* until the next attempt, or until an answer must have come */
    struct sl_kube_call *call;
    struct kube_transfer transfer;
    struct sl_lines lines;
    struct kube_buffer refusal; /* the body of an answer that is not 200 */
    struct sl_err broken;       /* set in curl's callback, reported later */
    struct sl_map known;
    unsigned round;
    char version[64]; /* the version to go on from; "": list first */
    char *page;       /* the server's token for the next page */
    unsigned attempts, refusals;
    uint64_t opened_ns;
    bool whole;   /* list without pages: the server forgot the list between two pages */
    bool pending; /* lines have come */
    bool stopped;
    unsigned busy; /* in callbacks: the memory must stay */
};

static void list(struct sl_kube_watch *w);
static void open_stream(struct sl_kube_watch *w);

/* --- reporting ------------------------------------------------------------------------------ */

static void tell(struct sl_kube_watch *w, enum sl_kube_event event, json_t *object)
{
    if (!w->stopped)
        w->ops.object(w->data, event, object);
}

static void trouble(struct sl_kube_watch *w, const struct sl_err *why)
{
    if (w->stopped || !w->ops.trouble)
        return;
    struct sl_err err = *why;
    (void)sl_err_wrap(&err, "watching %.*s", (int)strcspn(w->path, "?"), w->path);
    w->ops.trouble(w->data, &err);
}

static char *key_of(const json_t *object)
{
    return sl_xasprintf("%s/%s", sl_kube_meta(object, "namespace"), sl_kube_meta(object, "name"));
}

static struct known *find_known(const struct sl_kube_watch *w, const json_t *object)
{
    SL_CLEANUP(free) char *key = key_of(object);
    return sl_map_find(&w->known, key, strlen(key));
}

static struct known *add_known(struct sl_kube_watch *w, const json_t *object)
{
    struct known *k = sl_xcalloc(1, sizeof(*k));
    k->item.key = k->key = key_of(object);
    k->uid = sl_xstrdup(sl_kube_meta(object, "uid"));
    sl_map_add(&w->known, &k->item);
    return k;
}

static void free_known(void *item)
{
    struct known *k = item;
    free(k->key);
    free(k->uid);
    free(k);
}

/* The API server no longer has the object: listeners get the fields that name it. */
static void tell_gone(struct sl_kube_watch *w, struct known *k)
{
    const char *name = strchr(k->key, '/') + 1;
    json_t *gone = json_pack("{s:{s:s,s:s%,s:s}}", "metadata", "name", name, "namespace", k->key,
                             (size_t)(name - 1 - k->key), "uid", k->uid);
    sl_map_drop(&w->known, &k->item);
    free_known(k);
    tell(w, SL_KUBE_DELETED, gone);
    json_decref(gone);
}

/* Remembers the object's resourceVersion; false: it has not changed. */
static bool is_changed(struct known *known, const json_t *object)
{
    const char *version = sl_kube_meta(object, "resourceVersion");
    if (strlen(version) >= sizeof(known->version))
        version = ""; /* never equal: better report once too often than not at all */
    bool same = version[0] && strcmp(version, known->version) == 0;
    (void)snprintf(known->version, sizeof(known->version), "%s", version);
    return !same;
}

static void tell_object(struct sl_kube_watch *w, json_t *object)
{
    struct known *known = find_known(w, object);
    if (known && strcmp(known->uid, sl_kube_meta(object, "uid")) != 0) {
        tell_gone(w, known); /* another object of the same name */
        known = NULL;
    }
    if (!known && w->known.count >= OBJECTS_MAX) {
        struct sl_err err = SL_ERR_INIT;
        (void)sl_err_set(&err, -EMSGSIZE, SL_E_KUBE_OBJECT_DROPPED, OBJECTS_MAX);
        trouble(w, &err);
        return;
    }
    enum sl_kube_event event = known ? SL_KUBE_MODIFIED : SL_KUBE_ADDED;
    if (!known)
        known = add_known(w, object);
    known->round = w->round;
    if (is_changed(known, object) || event == SL_KUBE_ADDED)
        tell(w, event, object);
}

static void tell_deleted(struct sl_kube_watch *w, json_t *object)
{
    struct known *known = find_known(w, object);
    if (!known)
        return;
    sl_map_drop(&w->known, &known->item);
    free_known(known);
    tell(w, SL_KUBE_DELETED, object);
}

static void hold(struct sl_kube_watch *w)
{
    w->busy++;
}

static void let_go(struct sl_kube_watch *w)
{
    if (--w->busy == 0 && w->stopped)
        sl_kube_watch_free(w);
}

/* --- trying again --------------------------------------------------------------------------- */

static void close_stream(struct sl_kube_watch *w)
{
    sl_timer_stop(w->kube->loop, &w->timer);
    sl_kube_transfer_close(w->kube, &w->transfer);
    sl_lines_reset(&w->lines);
    sl_kube_buffer_free(&w->refusal);
    w->broken = (struct sl_err)SL_ERR_INIT;
    w->pending = false;
}

static void retry_fired(struct sl_timer *timer)
{
    struct sl_kube_watch *w = sl_container_of(timer, struct sl_kube_watch, timer);
    struct sl_kube *kube = w->kube;
    sl_kube_enter(kube);
    if (w->version[0])
        open_stream(w);
    else
        list(w);
    sl_kube_leave(kube);
}

/* why NULL: nothing went wrong, the stream just ended. The watch may be gone afterwards. */
static void again(struct sl_kube_watch *w, const struct sl_err *why)
{
    hold(w);
    close_stream(w);
    if (why)
        trouble(w, why);
    if (!w->stopped) {
        unsigned shift = w->attempts < 8 ? w->attempts : 8;
        uint64_t most = (uint64_t)BACKOFF_MIN_MS << shift;
        if (most > BACKOFF_MAX_MS)
            most = BACKOFF_MAX_MS;
        uint64_t wait_ns =
            (most / 2) * SL_NS_PER_MS + sl_kube_random(w->kube) % (most / 2 * SL_NS_PER_MS);
        w->attempts++;
        w->timer.fire = retry_fired;
        sl_timer_set(w->kube->loop, &w->timer, sl_loop_now(w->kube->loop) + wait_ns);
    }
    let_go(w);
}

static void list_again(struct sl_kube_watch *w, const struct sl_err *why)
{
    free(w->page);
    w->page = NULL;
    w->version[0] = 0;
    w->refusals = 0;
    again(w, why);
}

/* The server answered, but the answer is of no use: the same version may never work. */
static void refused(struct sl_kube_watch *w, const struct sl_err *why)
{
    if (why->code == -ESTALE || ++w->refusals >= REFUSALS_MAX)
        list_again(w, why);
    else
        again(w, why);
}

/* --- the list ------------------------------------------------------------------------------- */

static char separator(const struct sl_kube_watch *w)
{
    return strchr(w->path, '?') ? '&' : '?';
}

static void list_complete(struct sl_kube_watch *w, json_t *body)
{
    struct sl_map_walk walk = {0};
    struct known *k;
    while (!w->stopped && (k = sl_map_next(&w->known, &walk)))
        if (k->round != w->round)
            tell_gone(w, k);
    (void)snprintf(w->version, sizeof(w->version), "%s", sl_kube_meta(body, "resourceVersion"));
    w->whole = false;
    w->attempts = w->refusals = 0;
    if (!w->stopped && w->ops.synced)
        w->ops.synced(w->data);
}

static void tell_page(struct sl_kube_watch *w, json_t *body)
{
    const json_t *items = json_object_get(body, "items");
    for (size_t i = 0; !w->stopped && i < json_array_size(items); i++) {
        json_t *object = json_array_get(items, i);
        if (sl_kube_meta(object, "name")[0])
            tell_object(w, object);
    }
    const char *more = sl_kube_meta(body, "continue");
    free(w->page);
    w->page = more[0] ? sl_xstrdup(more) : NULL;
    if (!more[0])
        list_complete(w, body);
}

static void listed(void *data, int status, json_t *body, const struct sl_err *why)
{
    struct sl_kube_watch *w = data;
    struct sl_err err = *why;
    w->call = NULL;
    if (status == 410 && w->page)
        w->whole = true;
    const json_t *items = json_object_get(body, "items");
    /* the API server writes "items": null for an empty list */
    if (err.code == 0 && ((!json_is_array(items) && !json_is_null(items)) ||
                          !sl_kube_meta(body, "resourceVersion")[0] ||
                          strlen(sl_kube_meta(body, "resourceVersion")) >= sizeof(w->version)))
        (void)sl_err_set(&err, -EPROTO, SL_E_KUBE_NOT_A_LIST);
    if (err.code != 0) {
        list_again(w, &err);
        return;
    }
    hold(w);
    tell_page(w, body);
    if (!w->stopped && w->page)
        list(w);
    else if (!w->stopped)
        open_stream(w);
    let_go(w);
}

static void list(struct sl_kube_watch *w)
{
    struct sl_err err = SL_ERR_INIT;
    w->round += !w->page;
    SL_CLEANUP(free) char *more = w->page ? sl_kube_path("&continue=%s", w->page) : NULL;
    SL_CLEANUP(free)
    char *path =
        w->whole ? sl_xstrdup(w->path)
                 : sl_xasprintf("%s%climit=%d%s", w->path, separator(w), PAGE, more ? more : "");
    if (sl_kube_request(w->kube, "GET", path, NULL, NULL, listed, w, &w->call, &err) < 0)
        list_again(w, &err);
}

/* --- the stream ----------------------------------------------------------------------------- */

static size_t on_header(char *data, size_t size, size_t count, void *user)
{
    (void)data;
    struct sl_kube_watch *w = user;
    sl_timer_stop(w->kube->loop, &w->timer); /* the server answers */
    return size * count;
}

static size_t on_stream(char *data, size_t size, size_t count, void *user)
{
    struct sl_kube_watch *w = user;
    long status = 0;
    (void)curl_easy_getinfo(w->transfer.easy, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200) {
        w->pending = true;
        if (sl_lines_feed(&w->lines, data, size * count, &w->broken) < 0)
            return 0;
    } else {
        /* Bytes beyond the maximum are dropped. */
        (void)!sl_kube_buffer_add(&w->refusal, data, size * count);
    }
    return size * count;
}

static void stream_ended(struct kube_transfer *t, CURLcode code)
{
    struct sl_kube_watch *w = sl_container_of(t, struct sl_kube_watch, transfer);
    struct sl_err err = w->broken;
    long status = 0;
    (void)curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (sl_loop_now(w->kube->loop) - w->opened_ns >= GOOD_STREAM_S * SL_NS_PER_S)
        w->attempts = 0;
    if (err.code != 0) {
        refused(w, &err);
    } else if (code != CURLE_OK) {
        sl_kube_transfer_error(t, code, &err);
        again(w, &err);
    } else if (status != 200) {
        if (status == 401)
            sl_kube_token_refresh(w->kube, true);
        json_t *body = json_loadb(w->refusal.data ? w->refusal.data : "", w->refusal.size, 0, NULL);
        sl_kube_status_error("GET", w->path, status, body, &err);
        json_decref(body);
        refused(w, &err);
    } else {
        again(w, NULL);
    }
}

static void silent_fired(struct sl_timer *timer)
{
    struct sl_kube_watch *w = sl_container_of(timer, struct sl_kube_watch, timer);
    struct sl_kube *kube = w->kube;
    struct sl_err err = SL_ERR_INIT;
    (void)sl_err_set(&err, -ETIMEDOUT, SL_E_KUBE_SLOW);
    sl_kube_enter(kube);
    again(w, &err);
    sl_kube_leave(kube);
}

static int start_stream(struct sl_kube_watch *w, const char *path, unsigned seconds,
                        struct sl_err *err)
{
    struct kube_transfer *t = &w->transfer;
    int rc = sl_kube_transfer_open(w->kube, t, path, err);
    if (rc < 0)
        return rc;
    CURLcode code = CURLE_OK;
    KUBE_SET(code, t->easy, CURLOPT_WRITEFUNCTION, on_stream);
    KUBE_SET(code, t->easy, CURLOPT_WRITEDATA, w);
    KUBE_SET(code, t->easy, CURLOPT_HEADERFUNCTION, on_header);
    KUBE_SET(code, t->easy, CURLOPT_HEADERDATA, w);
    KUBE_SET(code, t->easy, CURLOPT_TIMEOUT_MS, (long)(seconds + STREAM_GRACE_S) * 1000);
    if (code != CURLE_OK)
        return sl_kube_curl_failed(code, err);
    sl_kube_transfer_header(t, "Accept", "application/json");
    return sl_kube_transfer_start(w->kube, t, err);
}

static void open_stream(struct sl_kube_watch *w)
{
    struct sl_err err = SL_ERR_INIT;
    unsigned seconds = STREAM_S + (unsigned)(sl_kube_random(w->kube) % (STREAM_S / 5));
    SL_CLEANUP(free)
    char *query = sl_kube_path("watch=1&allowWatchBookmarks=true&resourceVersion=%s", w->version);
    SL_CLEANUP(free)
    char *path = sl_xasprintf("%s%c%s&timeoutSeconds=%u", w->path, separator(w), query, seconds);
    if (start_stream(w, path, seconds, &err) < 0) {
        again(w, &err);
        return;
    }
    w->opened_ns = sl_loop_now(w->kube->loop);
    w->timer.fire = silent_fired;
    sl_timer_set(w->kube->loop, &w->timer, w->opened_ns + w->kube->timeout_ns);
}

/* --- lines ---------------------------------------------------------------------------------- */

static void error_event(struct sl_kube_watch *w, const json_t *object)
{
    struct sl_err err = SL_ERR_INIT;
    sl_kube_status_error("GET", w->path, (long)json_integer_value(json_object_get(object, "code")),
                         object, &err);
    refused(w, &err);
}

/* false: the stream is over. */
static bool handle_line(struct sl_kube_watch *w, const char *line, size_t size)
{
    struct sl_err err = SL_ERR_INIT;
    json_error_t why;
    json_t *event = json_loadb(line, size, 0, &why);
    const char *type = json_string_value(json_object_get(event, "type"));
    json_t *object = json_object_get(event, "object");
    bool deleted = type && strcmp(type, "DELETED") == 0;
    bool changed = type && (strcmp(type, "ADDED") == 0 || strcmp(type, "MODIFIED") == 0);
    bool bookmark = type && strcmp(type, "BOOKMARK") == 0;
    if (type && strcmp(type, "ERROR") == 0) {
        error_event(w, object);
        json_decref(event);
        return false;
    }
    const char *version = sl_kube_meta(object, "resourceVersion");
    if ((!deleted && !changed && !bookmark) || !version[0] ||
        strlen(version) >= sizeof(w->version) || (!bookmark && !sl_kube_meta(object, "name")[0])) {
        (void)sl_err_set(&err, -EPROTO, SL_E_KUBE_NOT_AN_EVENT,
                         event ? (type ? type : "it has no type") : why.text);
        json_decref(event);
        refused(w, &err);
        return false;
    }
    memcpy(w->version, version, strlen(version) + 1);
    w->attempts = w->refusals = 0;
    if (changed)
        tell_object(w, object);
    else if (deleted)
        tell_deleted(w, object);
    json_decref(event);
    return !w->stopped;
}

static void pump(struct sl_kube_watch *w)
{
    const char *line;
    size_t size;
    w->pending = false;
    hold(w);
    while ((line = sl_lines_next(&w->lines, &size)) && handle_line(w, line, size))
        ;
    let_go(w);
}

void sl_kube_watches_pump(struct sl_kube *kube)
{
    struct sl_kube_watch *w = kube->watches;
    while (w) {
        if (w->pending) {
            pump(w);
            w = kube->watches; /* callbacks may have changed the list */
        } else {
            w = w->next;
        }
    }
}

/* --- start and stop ------------------------------------------------------------------------- */

void sl_kube_watch_free(struct sl_kube_watch *w)
{
    sl_lines_reset(&w->lines);
    sl_kube_buffer_free(&w->refusal);
    sl_map_free(&w->known, free_known);
    free(w->page);
    free(w->path);
    free(w);
}

int sl_kube_watch_start(struct sl_kube *kube, const char *path, const struct sl_kube_watch_ops *ops,
                        void *data, struct sl_kube_watch **ret, struct sl_err *err)
{
    if (path[0] != '/' || strlen(path) > KUBE_PATH_MAX / 4)
        return sl_err_set(err, -EINVAL, SL_E_KUBE_PATH, path);
    struct sl_kube_watch *w = sl_xcalloc(1, sizeof(*w));
    w->path = sl_xstrdup(path);
    w->kube = kube;
    w->ops = *ops;
    w->data = data;
    w->transfer.done = stream_ended;
    w->lines.max_bytes = KUBE_LINE_MAX;
    w->refusal.max = KUBE_ERROR_MAX;
    w->next = kube->watches;
    kube->watches = w;
    w->timer.fire = retry_fired; /* begin the list in the loop: no callback from inside this call */
    sl_timer_set(kube->loop, &w->timer, sl_loop_now(kube->loop));
    *ret = w;
    return 0;
}

void sl_kube_watch_stop(struct sl_kube_watch *w)
{
    if (!w || w->stopped)
        return;
    w->stopped = true;
    sl_list_drop(&w->kube->watches, w);
    sl_kube_cancel(w->call);
    w->call = NULL;
    sl_timer_stop(w->kube->loop, &w->timer);
    sl_kube_transfer_close(w->kube, &w->transfer);
    if (w->busy == 0)
        sl_kube_watch_free(w);
}
