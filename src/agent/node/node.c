/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Labels on our Node. A watch brings the present labels, our callers set the wanted ones. Each difference becomes one
 * merge patch: the labels, and the annotation that lists our own.
 */
#include "agent/node/node.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/node/errors.h"
#include "agent/node/node_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/xalloc.h"

#define BACKOFF_MIN_NS  SL_NS_PER_S
#define BACKOFF_MAX_NS  (30 * SL_NS_PER_S)
#define STALE_NS        (10 * SL_NS_PER_S) /* how long the watch may lag behind our own writing */
#define RIVAL_TIMES     3
#define RIVAL_WINDOW_NS (600 * SL_NS_PER_S)
#define RIVAL_YIELD_NS  (3600 * SL_NS_PER_S)

static void sync_labels(struct sl_node *node);

uint64_t sl_node_backoff(const char *name, uint64_t salt, uint64_t *delay_ns)
{
    uint64_t next = *delay_ns ? *delay_ns * 2 : BACKOFF_MIN_NS;
    *delay_ns = next < BACKOFF_MAX_NS ? next : BACKOFF_MAX_NS;
    uint64_t mix = sl_hash_bytes(salt, name, strlen(name));
    return *delay_ns - (mix >> 11) % (*delay_ns / 4);
}

void sl_node_say(struct sl_node *node, const char *what, int status, const struct sl_err *err)
{
    char text[sizeof(node->said)], number[16] = "";
    if (status)
        (void)snprintf(number, sizeof(number), "%d ", status);
    (void)snprintf(text, sizeof(text), "%s: %s%s", what, number, err && err->code ? err->msg : "");
    if (strcmp(text, node->said) == 0)
        return;
    (void)memcpy(node->said, text, sizeof(text));
    sl_warn("node %s: %s", node->name, text);
}

bool sl_node_is_name(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-.");
    return n > 0 && n < 254 && text[n] == '\0';
}

static uint64_t number(const char *text)
{
    char *end = NULL;
    errno = 0;
    uint64_t n = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    return errno == 0 && end && *end == '\0' ? n : 0;
}

/* ---- the present labels ---- */

static struct node_rival *rival_of(struct sl_node *node, const char *key, bool make)
{
    for (size_t i = 0; i < node->rival_count; i++) {
        if (strcmp(node->rival[i].key, key) == 0)
            return &node->rival[i];
    }
    if (!make)
        return NULL;
    node->rival = sl_xreallocarray(node->rival, node->rival_count + 1, sizeof(*node->rival));
    node->rival[node->rival_count] = (struct node_rival){.key = sl_xstrdup(key)};
    return &node->rival[node->rival_count++];
}

static bool yielded(struct sl_node *node, const char *key)
{
    struct node_rival *r = rival_of(node, key, false);
    if (!r || r->until_ns == 0)
        return false;
    if (sl_loop_now(node->loop) < r->until_ns)
        return true;
    r->until_ns = 0;
    r->count = 0;
    return false;
}

/* Another writer changed a label that had our value. */
static void meet_rival(struct sl_node *node, const char *key)
{
    struct node_rival *r = rival_of(node, key, true);
    uint64_t now = sl_loop_now(node->loop);
    if (!r || r->until_ns > now)
        return;
    if (r->count == 0 || now - r->since_ns > RIVAL_WINDOW_NS) {
        r->count = 0;
        r->since_ns = now;
    }
    if (++r->count < RIVAL_TIMES)
        return;
    r->until_ns = now + RIVAL_YIELD_NS;
    sl_warn(SL_E_LABEL_FOREIGN_LOG, node->name, key);
    SL_CLEANUP(free)
    char *text =
        sl_xasprintf("Another program sets label %s, too; Sluice does not change it for an "
                     "hour. Does NVIDIA's GPU Feature Discovery run on this node?",
                     key);
    sl_node_event(node, SL_EVENT_WARNING, "LabelConflict", text);
}

static void look_for_rivals(struct sl_node *node, const struct sl_labels *now)
{
    for (size_t i = 0; i < node->wanted.count; i++) {
        const struct sl_label *w = &node->wanted.label[i];
        const char *before = sl_labels_get(&node->seen, w->key);
        const char *after = sl_labels_get(now, w->key);
        if (before && strcmp(before, w->value) == 0 && (!after || strcmp(after, w->value) != 0))
            meet_rival(node, w->key);
    }
}

static struct sl_labels read_labels(const json_t *object)
{
    const char *key;
    json_t *value;
    struct sl_labels labels = {0};
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (json_is_string(value))
            sl_labels_set(&labels, key, json_string_value(value));
    }
    return labels;
}

static struct sl_labels read_owned(const char *text)
{
    struct sl_labels owned = {0};
    SL_CLEANUP(free) char *copy = sl_xstrdup(text ? text : "");
    char *rest = NULL;
    for (char *key = strtok_r(copy, ",", &rest); key; key = strtok_r(NULL, ",", &rest))
        sl_labels_set(&owned, key, "");
    return owned;
}

static void tell_config(struct sl_node *node)
{
    const char *value = sl_labels_get(&node->seen, SL_NODE_CONFIG_LABEL);
    bool same = node->config && value ? strcmp(node->config, value) == 0 : node->config == value;
    if (node->config_told && same)
        return;
    char *copy = sl_xstrdup(value);
    free(node->config);
    node->config = copy;
    node->config_told = true;
    if (node->opt.config_label)
        node->opt.config_label(node->opt.data, node->config);
}

/* Takes the Node as the server has it. */
static void take_object(struct sl_node *node, const json_t *object)
{
    const json_t *meta = json_object_get(object, "metadata");
    const char *name = json_string_value(json_object_get(meta, "name"));
    const char *uid = json_string_value(json_object_get(meta, "uid"));
    const json_t *notes = json_object_get(meta, "annotations");
    if (!name || strcmp(name, node->name) != 0)
        return;
    struct sl_labels labels = read_labels(json_object_get(meta, "labels"));
    node->by = number(json_string_value(json_object_get(notes, SL_NODE_SINCE_ANNOTATION)));
    /* The labels of an agent before us, or after us, are no rival's. */
    if (node->present && node->by == node->since)
        look_for_rivals(node, &labels);
    sl_labels_clear(&node->seen);
    sl_labels_clear(&node->owned);
    node->seen = labels;
    node->owned = read_owned(json_string_value(json_object_get(notes, SL_NODE_OWNED_ANNOTATION)));
    sl_labels_clear(&node->notes_seen);
    node->notes_seen = read_labels(notes);
    if (uid && (!node->uid || strcmp(uid, node->uid) != 0)) {
        free(node->uid);
        node->uid = sl_xstrdup(uid);
    }
    node->present = true;
}

static void on_object(void *data, enum sl_kube_event event, json_t *object)
{
    struct sl_node *node = data;
    if (event == SL_KUBE_DELETED) {
        node->present = false;
        return;
    }
    /* The watch may report a state from before our last write. */
    uint64_t version = number(sl_kube_meta(object, "resourceVersion"));
    if (version && version < node->version && sl_loop_now(node->loop) - node->written_ns < STALE_NS)
        return;
    take_object(node, object);
    if (!node->present)
        return;
    sync_labels(node);
    tell_config(node);
    if (node->opt.seen)
        node->opt.seen(node->opt.data);
}

static void on_synced(void *data)
{
    struct sl_node *node = data;
    sl_timer_stop(node->loop, &node->retry);
    node->delay_ns = 0;
    if (!node->present) {
        struct sl_err err = SL_ERR_INIT;
        (void)sl_err_set(&err, -ENOENT, SL_E_NODE_MISSING);
        sl_node_say(node, "cannot watch it", 0, &err);
    }
    sync_labels(node);
    sl_node_events_wake(node);
}

static void on_trouble(void *data, const struct sl_err *err)
{
    sl_node_say(data, "cannot watch it", 0, err);
}

/* ---- the wanted labels ---- */

/* Adds the necessary changes to `labels` and returns our keys after them, with commas. */
static char *difference(struct sl_node *node, json_t *labels)
{
    char *keys = NULL;
    size_t size = 0;
    FILE *out = sl_xmemstream(&keys, &size);
    bool first = true;
    for (size_t i = 0; i < node->wanted.count; i++) {
        const struct sl_label *w = &node->wanted.label[i];
        if (yielded(node, w->key))
            continue;
        const char *now = sl_labels_get(&node->seen, w->key);
        bool right = now && strcmp(now, w->value) == 0;
        if (right && !sl_labels_get(&node->owned, w->key))
            continue; /* another writer set the same value: the label stays theirs */
        if (!right)
            (void)json_object_set_new(labels, w->key, json_string(w->value));
        (void)fprintf(out, "%s%s", first ? "" : ",", w->key);
        first = false;
    }
    for (size_t i = 0; i < node->owned.count && !node->leave; i++) {
        const char *key = node->owned.label[i].key;
        if (!sl_labels_get(&node->wanted, key) && sl_labels_get(&node->seen, key))
            (void)json_object_set_new(labels, key, json_null());
    }
    sl_xmemstream_close(out);
    return keys;
}

static bool same_keys(const struct sl_labels *owned, const char *keys)
{
    struct sl_labels now = read_owned(keys);
    bool same = sl_labels_equal(&now, owned);
    sl_labels_clear(&now);
    return same;
}

static void difference_of_notes(const struct sl_node *node, json_t *notes)
{
    for (size_t i = 0; i < node->notes.count; i++) {
        const struct sl_label *w = &node->notes.label[i];
        const char *now = sl_labels_get(&node->notes_seen, w->key);
        if (strcmp(now ? now : "", w->value) != 0 || (now && !*w->value))
            (void)json_object_set_new(notes, w->key,
                                      *w->value ? json_string(w->value) : json_null());
    }
}

/* NULL: the Node has the wanted labels. */
static json_t *make_patch(struct sl_node *node)
{
    json_t *labels = json_object(), *notes = json_object();
    json_t *body = NULL;
    /* An agent that began later has the labels: we are about to end. A time to come is of a clock that was wrong. */
    bool ours = node->wanted_set && (node->by <= node->since || node->by > sl_node_wall_ns(node));
    SL_CLEANUP(free) char *keys = ours ? difference(node, labels) : NULL;
    bool owned = keys && (json_object_size(labels) > 0 || !same_keys(&node->owned, keys));
    difference_of_notes(node, notes);
    if (owned) {
        char since[24];
        (void)snprintf(since, sizeof(since), "%llu", (unsigned long long)node->since);
        (void)json_object_set_new(notes, SL_NODE_OWNED_ANNOTATION,
                                  *keys ? json_string(keys) : json_null());
        (void)json_object_set_new(notes, SL_NODE_SINCE_ANNOTATION,
                                  *keys ? json_string(since) : json_null());
    }
    if (owned)
        body = json_pack("{s:{s:O,s:O}}", "metadata", "labels", labels, "annotations", notes);
    else if (json_object_size(notes) > 0)
        body = json_pack("{s:{s:O}}", "metadata", "annotations", notes);
    json_decref(labels);
    json_decref(notes);
    return body;
}

static void retry_later(struct sl_node *node)
{
    node->failures++;
    uint64_t now = sl_loop_now(node->loop);
    uint64_t in = sl_node_backoff(node->name, now + node->failures, &node->delay_ns);
    sl_timer_set(node->loop, &node->retry, now + in);
}

static void patched(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct sl_node *node = data;
    node->call = NULL;
    if (!node_went_well(status)) {
        sl_node_say(node, "cannot write labels", status, err);
        if (status == 404)
            node->present = false; /* the watch will report when the Node is there again */
        else
            retry_later(node);
        return;
    }
    node->writes++;
    node->delay_ns = 0;
    node->said[0] = '\0';
    if (body) {
        node->version = number(sl_kube_meta(body, "resourceVersion"));
        node->written_ns = sl_loop_now(node->loop);
        take_object(node, body);
    }
    sync_labels(node);
}

static void sync_labels(struct sl_node *node)
{
    if (!node->present || node->call || node->retry.set)
        return;
    json_t *body = make_patch(node);
    if (!body)
        return;
    char path[300];
    struct sl_err err = SL_ERR_INIT;
    (void)snprintf(path, sizeof(path), "/api/v1/nodes/%s", node->name);
    int rc = node->opt.api.request(node->opt.api.server, "PATCH", path, SL_KUBE_PATCH_MERGE, body,
                                   patched, node, &node->call, &err);
    json_decref(body);
    if (rc < 0) {
        node->call = NULL;
        sl_node_say(node, "cannot write labels", 0, &err);
        retry_later(node);
    }
}

static void retry(struct sl_timer *timer)
{
    sync_labels(sl_container_of(timer, struct sl_node, retry));
}

/* ---- life ---- */

int sl_node_create(struct sl_loop *loop, const struct sl_node_options *opt, struct sl_node **ret,
                   struct sl_err *err)
{
    static const struct sl_kube_watch_ops ops = {on_object, on_synced, on_trouble};
    if (!opt->name || !sl_node_is_name(opt->name))
        return sl_err_set(err, -EINVAL, SL_E_NODE_NAME_BAD, opt->name ? opt->name : "");
    struct sl_node *node = sl_xcalloc(1, sizeof(*node));
    node->loop = loop;
    node->opt = *opt;
    node->name = sl_xstrdup(opt->name);
    node->retry.fire = retry;
    node->since = sl_node_wall_ns(node);
    sl_node_events_start(node);
    char path[360];
    (void)snprintf(path, sizeof(path), "/api/v1/nodes?fieldSelector=metadata.name%%3D%s",
                   node->name);
    int rc = opt->api.watch(opt->api.server, path, &ops, node, &node->watch, err);
    if (rc < 0) {
        node->watch = NULL;
        sl_node_destroy(node);
        return rc;
    }
    *ret = node;
    return 0;
}

void sl_node_destroy(struct sl_node *node)
{
    if (!node)
        return;
    if (node->watch)
        node->opt.api.unwatch(node->watch);
    if (node->call)
        node->opt.api.cancel(node->call);
    sl_timer_stop(node->loop, &node->retry);
    sl_node_events_stop(node);
    sl_labels_clear(&node->seen);
    sl_labels_clear(&node->owned);
    sl_labels_clear(&node->wanted);
    sl_labels_clear(&node->notes);
    sl_labels_clear(&node->notes_seen);
    for (size_t i = 0; i < node->rival_count; i++)
        free(node->rival[i].key);
    free(node->rival);
    free(node->config);
    free(node->uid);
    free(node->name);
    free(node);
}

void sl_node_labels(struct sl_node *node, const struct sl_labels *labels)
{
    sl_labels_copy(&node->wanted, labels);
    node->wanted_set = true;
    node->leave = false;
    sync_labels(node);
}

void sl_node_disown(struct sl_node *node)
{
    sl_labels_clear(&node->wanted);
    node->wanted_set = node->leave = true;
    sync_labels(node);
}

void sl_node_annotations(struct sl_node *node, const struct sl_labels *notes)
{
    sl_labels_copy(&node->notes, notes);
    sync_labels(node);
}

const char *sl_node_annotation(const struct sl_node *node, const char *key)
{
    return sl_labels_get(&node->notes_seen, key);
}

const char *sl_node_uid(const struct sl_node *node)
{
    return node->uid;
}

struct sl_node_stats sl_node_stats(const struct sl_node *node)
{
    return (struct sl_node_stats){
        .labels_current = node->present && node->wanted_set && !node->call && !node->retry.set,
        .label_writes = node->writes,
        .label_failures = node->failures,
        .events_sent = node->events.sent,
        .events_dropped = node->events.dropped,
    };
}
