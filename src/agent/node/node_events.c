/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events: a small table of events, and how much the server knows of each. The first occurrence makes an Event object,
 * later ones raise its count, at most twice a minute. One request at a time, a bucket of tokens, and a full table drops
 * its oldest entry: a broken card must not flood a cluster.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/node/errors.h"
#include "agent/node/node_internal.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/utf8.h"
#include "base/xalloc.h"

#define COMPONENT   "sluiced"
#define AGAIN_NS    (30 * SL_NS_PER_S)  /* between two requests about one event */
#define FORGET_NS   (600 * SL_NS_PER_S) /* after this time an equal event is a new event */
#define BURST       20.0
#define REFILL_S    3.0 /* seconds a token */
#define MESSAGE_MAX 1024

static void pump(struct sl_node *node);

uint64_t sl_node_wall_ns(const struct sl_node *node)
{
    if (node->opt.wall_ns)
        return node->opt.wall_ns();
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * SL_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void event_free(struct node_event *e)
{
    free(e->event_namespace);
    free(e->kind);
    free(e->object);
    free(e->uid);
    free(e->reason);
    free(e->message);
    free(e->name);
    free(e);
}

static void drop(struct node_events *events, size_t i)
{
    struct node_event *e = events->event[i];
    if (events->sending == e)
        events->sending = NULL;
    if (e->sent != e->count)
        events->dropped++;
    event_free(e);
    events->event[i] = events->event[--events->count];
}

/* ---- the table ---- */

static struct node_event *find(struct sl_node *node, const struct node_event *like)
{
    struct node_events *events = &node->events;
    uint64_t now = sl_loop_now(node->loop);
    for (size_t i = 0; i < events->count; i++) {
        struct node_event *e = events->event[i];
        if (e->sent == e->count && now - e->at_ns > FORGET_NS)
            continue;
        if (e->type == like->type && strcmp(e->reason, like->reason) == 0 &&
            strcmp(e->event_namespace, like->event_namespace) == 0 &&
            strcmp(e->kind, like->kind) == 0 && strcmp(e->object, like->object) == 0 &&
            strcmp(e->message, like->message) == 0)
            return e;
    }
    return NULL;
}

/* Drops the oldest event that the server knows already; if there is none, the oldest of all. */
static void make_room(struct node_events *events)
{
    size_t oldest = 0;
    for (size_t i = 1; i < events->count; i++) {
        const struct node_event *a = events->event[oldest], *b = events->event[i];
        bool a_done = a->sent == a->count, b_done = b->sent == b->count;
        if (a_done != b_done ? b_done : b->at_ns < a->at_ns)
            oldest = i;
    }
    drop(events, oldest);
}

/* Takes ownership of e. */
static void happen(struct sl_node *node, struct node_event *e)
{
    struct node_events *events = &node->events;
    struct node_event *known = find(node, e);
    uint64_t wall = sl_node_wall_ns(node);
    if (known) {
        event_free(e);
        e = known;
    } else {
        if (events->count == NODE_EVENTS)
            make_room(events);
        e->first_ns = wall;
        events->event[events->count++] = e;
    }
    e->last_ns = wall;
    e->at_ns = sl_loop_now(node->loop);
    e->count++;
    pump(node);
}

static void put(struct sl_node *node, const char *event_namespace, const char *kind,
                const char *object, const char *uid, enum sl_event_type type, const char *reason,
                const char *text)
{
    struct node_event *e = sl_xcalloc(1, sizeof(*e));
    char message[MESSAGE_MAX];
    sl_utf8_copy(message, sizeof(message), text); /* JSON and Go both require UTF-8 */
    e->type = type;
    e->event_namespace = sl_xstrdup(event_namespace);
    e->kind = sl_xstrdup(kind);
    e->object = sl_xstrdup(object);
    e->uid = sl_xstrdup(uid);
    e->reason = sl_xstrdup(reason);
    e->message = sl_xstrdup(message);
    happen(node, e);
}

void sl_node_event(struct sl_node *node, enum sl_event_type type, const char *reason,
                   const char *text)
{
    put(node, "default", "Node", node->name, NULL, type, reason, text);
}

void sl_pod_event(struct sl_node *node, const char *pod_namespace, const char *pod, const char *uid,
                  enum sl_event_type type, const char *reason, const char *text)
{
    if (sl_node_is_name(pod_namespace) && sl_node_is_name(pod))
        put(node, pod_namespace, "Pod", pod, uid, type, reason, text);
    else
        node->events.dropped++;
}

/* ---- the server ---- */

static void time_text(uint64_t wall_ns, char ret[32])
{
    time_t s = (time_t)(wall_ns / SL_NS_PER_S);
    struct tm parts;
    (void)gmtime_r(&s, &parts);
    (void)strftime(ret, 32, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

static json_t *new_body(const struct sl_node *node, const struct node_event *e)
{
    char first[32], last[32];
    time_text(e->first_ns, first);
    time_text(e->last_ns, last);
    bool is_node = strcmp(e->kind, "Node") == 0;
    json_t *about = json_pack("{s:s,s:s,s:s,s:s*,s:s*}", "apiVersion", "v1", "kind", e->kind,
                              "name", e->object, "namespace", is_node ? NULL : e->event_namespace,
                              "uid", is_node ? node->uid : e->uid);
    return json_pack("{s:s,s:s,s:{s:s,s:s},s:o,s:s,s:s,s:{s:s,s:s},s:s,s:s,s:I,s:s,s:s,s:s}",
                     "apiVersion", "v1", "kind", "Event", "metadata", "name", e->name, "namespace",
                     e->event_namespace, "involvedObject", about, "reason", e->reason, "message",
                     e->message, "source", "component", COMPONENT, "host", node->name,
                     "firstTimestamp", first, "lastTimestamp", last, "count", (json_int_t)e->count,
                     "type", e->type == SL_EVENT_WARNING ? "Warning" : "Normal",
                     "reportingComponent", COMPONENT, "reportingInstance", node->name);
}

static json_t *more_body(const struct node_event *e)
{
    char last[32];
    time_text(e->last_ns, last);
    return json_pack("{s:I,s:s}", "count", (json_int_t)e->count, "lastTimestamp", last);
}

static void forget_name(struct node_event *e)
{
    free(e->name);
    e->name = NULL;
    e->sent = 0;
    e->sent_at_ns = 0;
}

static void discard(struct node_events *events, const struct node_event *e)
{
    for (size_t i = 0; i < events->count; i++) {
        if (events->event[i] == e) {
            drop(events, i);
            return;
        }
    }
}

/* When to try again after a failure. */
static uint64_t later(struct sl_node *node)
{
    uint64_t now = sl_loop_now(node->loop);
    return now + sl_node_backoff(node->name, now + node->failures, &node->events.delay_ns);
}

static void answered(void *data, int status, json_t *body, const struct sl_err *err)
{
    (void)body;
    struct sl_node *node = data;
    struct node_events *events = &node->events;
    struct node_event *e = events->sending;
    events->call = NULL;
    events->sending = NULL;
    /* 409: our own first attempt made the object, and its answer got lost. */
    if (node_went_well(status) || (status == 409 && events->sending_new)) {
        events->sent++;
        events->delay_ns = events->not_before_ns = 0;
        if (e)
            e->sent = events->sending_count;
    } else if (e && status == 404 && !events->sending_new) {
        forget_name(e); /* the server has expired it: make another */
    } else if (node_try_again(status)) {
        sl_node_say(node, "cannot write an event", status, err);
        events->not_before_ns = later(node);
    } else {
        sl_node_say(node, "cannot write an event", status, err);
        if (e)
            discard(events, e);
    }
    pump(node);
}

static int send_event(struct sl_node *node, struct node_event *e, struct sl_err *err)
{
    struct node_events *events = &node->events;
    char path[640];
    bool fresh = e->sent == 0;
    if (fresh && !e->name)
        e->name = sl_xasprintf("%.200s.%" PRIx64 "-%" PRIx64, e->object, sl_node_wall_ns(node),
                               ++events->serial);
    (void)snprintf(path, sizeof(path), "/api/v1/namespaces/%s/events%s%s", e->event_namespace,
                   fresh ? "" : "/", fresh ? "" : e->name);
    json_t *body = fresh ? new_body(node, e) : more_body(e);
    if (!body)
        return sl_err_set(err, -EILSEQ, SL_E_EVENT_UTF8);
    events->sending = e;
    events->sending_count = e->count;
    events->sending_new = fresh;
    e->sent_at_ns = sl_loop_now(node->loop);
    int rc = node->opt.api.request(node->opt.api.server, fresh ? "POST" : "PATCH", path,
                                   fresh ? "application/json" : "application/merge-patch+json",
                                   body, answered, node, &events->call, err);
    json_decref(body);
    if (rc < 0) {
        events->call = NULL;
        events->sending = NULL;
    }
    return rc;
}

/* When this event may be sent; UINT64_MAX: nothing to tell. */
static uint64_t due(const struct node_event *e)
{
    if (e->sent == e->count)
        return UINT64_MAX;
    return e->sent > 0 ? e->sent_at_ns + AGAIN_NS : 0;
}

/* When there will be a token; now_ns: there is one. */
static uint64_t token(struct node_events *events, uint64_t now_ns)
{
    double seconds = (double)(now_ns - events->tokens_at_ns) / (double)SL_NS_PER_S;
    events->tokens += seconds / REFILL_S;
    if (events->tokens > BURST)
        events->tokens = BURST;
    events->tokens_at_ns = now_ns;
    if (events->tokens >= 1.0)
        return now_ns;
    return now_ns + (uint64_t)((1.0 - events->tokens) * REFILL_S * (double)SL_NS_PER_S) + 1;
}

static void pump(struct sl_node *node)
{
    struct node_events *events = &node->events;
    struct node_event *next = NULL;
    uint64_t now = sl_loop_now(node->loop), next_due = UINT64_MAX;
    sl_timer_stop(node->loop, &events->timer);
    if (events->call)
        return;
    for (size_t i = 0; i < events->count; i++) {
        struct node_event *e = events->event[i];
        uint64_t at = due(e);
        if (at < next_due || (next && at == next_due && e->first_ns < next->first_ns)) {
            next = e;
            next_due = at;
        }
    }
    if (next_due == UINT64_MAX)
        return;
    uint64_t when = next_due > events->not_before_ns ? next_due : events->not_before_ns;
    if (when <= now)
        when = token(events, now);
    if (when > now) {
        sl_timer_set(node->loop, &events->timer, when);
        return;
    }
    struct sl_err err = SL_ERR_INIT;
    events->tokens -= 1.0;
    if (send_event(node, next, &err) < 0) {
        sl_node_say(node, "cannot write an event", 0, &err);
        events->not_before_ns = later(node);
        sl_timer_set(node->loop, &events->timer, events->not_before_ns);
    }
}

static void fire(struct sl_timer *timer)
{
    pump(sl_container_of(timer, struct sl_node, events.timer));
}

void sl_node_events_start(struct sl_node *node)
{
    node->events.timer.fire = fire;
    node->events.tokens = BURST;
    node->events.tokens_at_ns = sl_loop_now(node->loop);
}

void sl_node_events_stop(struct sl_node *node)
{
    struct node_events *events = &node->events;
    sl_timer_stop(node->loop, &events->timer);
    if (events->call)
        node->opt.api.cancel(events->call);
    for (size_t i = 0; i < events->count; i++)
        event_free(events->event[i]);
    events->count = 0;
}

void sl_node_events_wake(struct sl_node *node)
{
    node->events.delay_ns = node->events.not_before_ns = 0;
    pump(node);
}
