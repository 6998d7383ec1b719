/* SPDX-License-Identifier: Apache-2.0 */
#include "explain/facts.h"

#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "explain/explain.h"
#include "share/promise.h"

const json_t *sl_facts_at(const json_t *object, const char *path)
{
    while (object && *path) {
        size_t n = strcspn(path, ".");
        object = json_object_getn(object, path, n);
        path += n + (path[n] == '.');
    }
    return object;
}

const char *sl_facts_text(const json_t *object, const char *path)
{
    const char *text = json_string_value(sl_facts_at(object, path));
    return text ? text : "";
}

const json_t *sl_facts_named(const json_t *array, const char *name)
{
    size_t i;
    const json_t *one;
    json_array_foreach(array, i,
                       one) if (strcmp(sl_facts_text(one, "metadata.name"), name) == 0) return one;
    return NULL;
}

const json_t *sl_facts_condition(const json_t *object, const char *type)
{
    size_t i;
    const json_t *one;
    json_array_foreach(sl_facts_at(object, "status.conditions"), i,
                       one) if (strcmp(sl_facts_text(one, "type"), type) == 0) return one;
    return NULL;
}

/* Times of the API server are in UTC and of one length: as texts they are in order. */
static const char *time_of(const json_t *event)
{
    static const char *const places[] = {"series.lastObservedTime", "lastTimestamp", "eventTime",
                                         "metadata.creationTimestamp"};
    for (size_t i = 0; i < 4; i++)
        if (*sl_facts_text(event, places[i]))
            return sl_facts_text(event, places[i]);
    return "";
}

const json_t *sl_facts_event(const json_t *events, const char *reason)
{
    size_t i;
    const json_t *one, *newest = NULL;
    json_array_foreach(events, i, one)
    {
        if (strcmp(sl_facts_text(one, "reason"), reason) == 0 &&
            strcmp(sl_facts_text(one, "type"), "Normal") != 0 &&
            (!newest || strcmp(time_of(one), time_of(newest)) >= 0))
            newest = one;
    }
    return newest;
}

static uint64_t quantity(const json_t *value)
{
    uint64_t n = 0;
    return value && sl_jget_quantity(value, 0, &n) == 0 ? n : 0;
}

/* jansson's iterators take no const, and change nothing. */
static json_t *to_iterate(const json_t *object)
{
    return (json_t *)(uintptr_t)object;
}

/* The largest memoryMiB anywhere in a request. */
static uint64_t most_memory(const json_t *value)
{
    uint64_t most = 0, one;
    size_t i;
    const char *key;
    json_t *part;
    if (json_is_array(value)) {
        json_array_foreach(value, i, part) if ((one = most_memory(part)) > most) most = one;
    } else if (json_is_object(value)) {
        json_object_foreach(to_iterate(value), key, part)
        {
            one = strcmp(key, "memoryMiB") == 0 ? quantity(part) : most_memory(part);
            if (one > most)
                most = one;
        }
    }
    return most;
}

static void add_container(const json_t *container, struct sl_pod_asks *asks)
{
    const json_t *limits = sl_facts_at(container, "resources.limits");
    uint64_t memory = quantity(json_object_get(limits, "nvidia.com/gpumem"));
    asks->gpus += quantity(json_object_get(limits, SL_GPU_RESOURCE));
    asks->memory_mib = memory > asks->memory_mib ? memory : asks->memory_mib;
}

struct sl_pod_asks sl_facts_asks(const json_t *pod)
{
    struct sl_pod_asks asks = {0};
    size_t i;
    const json_t *one;
    json_array_foreach(sl_facts_at(pod, "spec.containers"), i, one) add_container(one, &asks);
    asks.claims = json_array_size(sl_facts_at(pod, "spec.resourceClaims"));
    const char *request = sl_jget_note(pod, SL_PROMISE_REQUEST_KEY);
    json_t *said = request ? json_loads(request, 0, NULL) : NULL;
    uint64_t memory = most_memory(said);
    asks.memory_mib = memory > asks.memory_mib ? memory : asks.memory_mib;
    json_decref(said);
    return asks;
}

struct sl_node_has sl_facts_node(const json_t *node)
{
    struct sl_promise_node cards = {0};
    struct sl_err err = SL_ERR_INIT;
    const char *said = sl_jget_note(node, SL_PROMISE_GPUS_KEY);
    struct sl_node_has has = {
        .gpus = quantity(json_object_get(sl_facts_at(node, "status.allocatable"), SL_GPU_RESOURCE)),
        .cordoned = json_is_true(sl_facts_at(node, "spec.unschedulable")),
        .ready = strcmp(sl_facts_text(sl_facts_condition(node, "Ready"), "status"), "True") == 0};
    if (said && sl_promise_gpus_parse(said, &cards, &err) == 0)
        has.cards = cards.count;
    for (size_t i = 0; i < has.cards; i++) {
        has.memory_mib += cards.gpu[i].memory_mib;
        if (cards.gpu[i].memory_mib > has.card_memory_mib)
            has.card_memory_mib = cards.gpu[i].memory_mib;
    }
    if (has.cards == 0)
        has.cards = has.gpus;
    return has;
}

bool sl_facts_ended(const json_t *pod)
{
    const char *phase = sl_facts_text(pod, "status.phase");
    return strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0;
}

struct sl_pod_holds sl_facts_holds(const json_t *pod)
{
    struct sl_pod_holds holds = {0};
    struct sl_promise promise = {0};
    struct sl_err err = SL_ERR_INIT;
    const char *lease = sl_jget_note(pod, SL_PROMISE_LEASE_KEY);
    if (sl_facts_ended(pod) || !*sl_facts_text(pod, "spec.nodeName"))
        return holds;
    holds.devices = sl_facts_asks(pod).gpus;
    if (!lease || sl_promise_lease_parse(lease, &promise, &err) < 0)
        return holds;
    for (size_t i = 0; i < promise.share_count; i++) {
        holds.memory_mib += promise.share[i].memory_bytes >> 20;
        holds.cores += promise.share[i].cores_permille / 10;
    }
    return holds;
}

static bool tolerates(const json_t *toleration, const json_t *taint)
{
    const char *key = sl_facts_text(toleration, "key");
    const char *effect = sl_facts_text(toleration, "effect");
    bool exists = strcmp(sl_facts_text(toleration, "operator"), "Exists") == 0;
    if (*effect && strcmp(effect, sl_facts_text(taint, "effect")) != 0)
        return false;
    if (!*key)
        return exists;
    return strcmp(key, sl_facts_text(taint, "key")) == 0 &&
           (exists ||
            strcmp(sl_facts_text(toleration, "value"), sl_facts_text(taint, "value")) == 0);
}

const json_t *sl_facts_taint(const json_t *pod, const json_t *node)
{
    size_t i, k;
    const json_t *taint, *toleration;
    json_array_foreach(sl_facts_at(node, "spec.taints"), i, taint)
    {
        bool fine = strcmp(sl_facts_text(taint, "effect"), "PreferNoSchedule") == 0;
        json_array_foreach(sl_facts_at(pod, "spec.tolerations"), k, toleration) fine |=
            tolerates(toleration, taint);
        if (!fine)
            return taint;
    }
    return NULL;
}

const char *sl_facts_selector(const json_t *pod, const json_t *node)
{
    const char *key;
    json_t *value;
    const json_t *labels = sl_facts_at(node, "metadata.labels");
    json_object_foreach(to_iterate(sl_facts_at(pod, "spec.nodeSelector")), key, value)
    {
        const char *has = json_string_value(json_object_get(labels, key));
        if (!has || strcmp(has, json_string_value(value) ? json_string_value(value) : "") != 0)
            return key;
    }
    return NULL;
}
