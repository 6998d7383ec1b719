/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/request.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json_dump.h"
#include "base/json_read.h"
#include "controller/errors.h"
#include "share/share_json.h"

#define NOT_SHARED 127 /* sameAs, where a part has GPUs of its own */

static const char *const policies[] = {[SL_REQUEST_POLICY_NONE] = NULL,
                                       [SL_REQUEST_BINPACK] = "binpack",
                                       [SL_REQUEST_SPREAD] = "spread"};

uint8_t sl_request_policy_of(const char *text)
{
    for (unsigned i = SL_REQUEST_BINPACK; i <= SL_REQUEST_SPREAD; i++)
        if (sl_request_uuid_listed(text, policies[i]))
            return (uint8_t)i;
    return SL_REQUEST_POLICY_NONE;
}

/* --- the annotation --- */

static const char *const list_keys[] = {"useType", "noType", "useUUID", "noUUID"};

static const char *list_of(const struct sl_request *r, size_t i)
{
    const char *const all[] = {r->use_type, r->no_type, r->use_uuid, r->no_uuid};
    return all[i];
}

char *sl_request_text(const struct sl_request *r)
{
    json_t *parts = json_array();
    for (size_t i = 0; i < r->part_count; i++) {
        const struct sl_request_part *p = &r->part[i];
        json_t *one =
            json_pack("{s:s,s:i,s:i,s:o*,s:o*}", "container", p->container, "index", (int)p->index,
                      "gpus", (int)p->count, "init", p->init ? json_true() : NULL, "sameAs",
                      p->same_as >= 0 ? json_integer(p->same_as) : NULL);
        (void)json_array_append_new(parts, sl_share_write(&p->share, SL_SHARE_REQUEST, one));
    }
    json_t *j =
        json_pack("{s:i,s:i,s:o,s:o*,s:s*,s:s*,s:s*}", "version", 1, "containers",
                  (int)r->containers, "parts", parts, "numa", r->numa ? json_true() : NULL,
                  "nodePolicy", policies[r->node_policy], "gpuPolicy", policies[r->gpu_policy],
                  "admission", r->admission[0] ? r->admission : NULL);
    for (size_t i = 0; i < SL_ARRAY_LEN(list_keys); i++)
        if (list_of(r, i)[0])
            (void)json_object_set_new(j, list_keys[i], json_string(list_of(r, i)));
    char *text = sl_json_dump(j, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(j);
    return text;
}

static int text_of(const json_t *object, const char *key, char *buf, size_t size,
                   struct sl_err *err)
{
    const json_t *value = json_object_get(object, key);
    const char *text = value ? json_string_value(value) : "";
    if (!text || strlen(text) >= size)
        return sl_err_set(err, -EINVAL, SL_E_REQUEST_TEXT, key);
    (void)snprintf(buf, size, "%s", text);
    return 0;
}

static int part_read(const json_t *j, size_t at, struct sl_request_part *p, struct sl_err *err)
{
    uint32_t index = 0, count = 0, same = NOT_SHARED;
    *p = (struct sl_request_part){.share = SL_SHARE_INIT};
    int rc = text_of(j, "container", p->container, sizeof(p->container), err);
    if (!rc)
        rc = sl_jget_number(j, "index", 0, 255, &index, err);
    if (!rc)
        rc = sl_jget_number(j, "gpus", 0, SL_PROMISE_NODE_GPUS, &count, err);
    if (!rc)
        rc = sl_jget_number(j, "sameAs", NOT_SHARED, NOT_SHARED, &same, err);
    if (!rc)
        rc = sl_share_read(j, SL_SHARE_REQUEST, &p->share, err);
    if (rc)
        return rc;
    p->index = (uint16_t)index;
    p->count = (uint8_t)count;
    p->init = json_is_true(json_object_get(j, "init"));
    p->same_as = same == NOT_SHARED ? -1 : (int8_t)same;
    if (p->count == 0 || (p->share.memory_bytes == 0) == (p->share.memory_percent == 0) ||
        (p->same_as >= 0 && (size_t)p->same_as >= at))
        return sl_err_set(err, -EINVAL, SL_E_REQUEST_PART, at);
    return 0;
}

int sl_request_parse(const char *text, struct sl_request *ret, struct sl_err *err)
{
    json_t *j = strlen(text) > (64u << 10) ? NULL : json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const json_t *parts = json_object_get(j, "parts"), *one;
    uint32_t version = 0, containers = 0;
    size_t i;
    memset(ret, 0, sizeof(*ret));
    int rc = sl_jget_number(j, "version", 0, 1000, &version, err);
    if (!rc)
        rc = sl_jget_number(j, "containers", 0, 256, &containers, err);
    if (!rc && (version != 1 || !json_is_array(parts) || json_array_size(parts) == 0 ||
                json_array_size(parts) > SL_REQUEST_PARTS))
        rc = sl_err_set(err, -EINVAL, SL_E_REQUEST_FORM);
    json_array_foreach(parts, i, one)
    {
        if (!rc)
            rc = part_read(one, i, &ret->part[i], err);
        if (!rc && ret->part[i].index >= containers)
            rc = sl_err_set(err, -EINVAL, SL_E_REQUEST_NO_CONTAINER, i);
    }
    ret->part_count = json_array_size(parts) > SL_REQUEST_PARTS ? 0 : json_array_size(parts);
    ret->containers = (uint16_t)containers;
    ret->numa = json_is_true(json_object_get(j, "numa"));
    const char *node = json_string_value(json_object_get(j, "nodePolicy"));
    const char *gpu = json_string_value(json_object_get(j, "gpuPolicy"));
    ret->node_policy = sl_request_policy_of(node ? node : "");
    ret->gpu_policy = sl_request_policy_of(gpu ? gpu : "");
    char *const lists[] = {ret->use_type, ret->no_type, ret->use_uuid, ret->no_uuid};
    for (i = 0; !rc && i < SL_ARRAY_LEN(lists); i++)
        rc = text_of(j, list_keys[i], lists[i], SL_REQUEST_LIST, err);
    if (!rc)
        rc = text_of(j, "admission", ret->admission, sizeof(ret->admission), err);
    json_decref(j);
    return rc ? sl_err_wrap(err, "%s", SL_PROMISE_REQUEST_KEY) : 0;
}

/* --- cards --- */

/* The next word of a comma list without the blanks around it; *at moves on. Length 0 words are skipped. */
static bool next_word(const char **at, const char **ret, size_t *ret_size)
{
    while (**at) {
        const char *end = strchrnul(*at, ','), *from = *at, *until = end;
        *at = *end ? end + 1 : end;
        while (from < until && isspace((unsigned char)*from))
            from++;
        while (until > from && isspace((unsigned char)until[-1]))
            until--;
        if (until > from) {
            *ret = from;
            *ret_size = (size_t)(until - from);
            return true;
        }
    }
    return false;
}

/* Labels cannot hold a blank, so that KubeShare's models have a dash in its place. */
static bool begins(const char *text, const char *word, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (tolower((unsigned char)text[i]) != tolower((unsigned char)word[i]) &&
            !(text[i] == ' ' && word[i] == '-'))
            return false;
    return true;
}

static bool contains(const char *text, const char *word, size_t size)
{
    for (size_t n = strlen(text); n >= size; text++, n--)
        if (begins(text, word, size))
            return true;
    return false;
}

bool sl_request_type_matches(const char *list, const char *model)
{
    const char *word;
    size_t size;
    while (next_word(&list, &word, &size))
        if (contains(model, word, size))
            return true;
    return false;
}

bool sl_request_uuid_listed(const char *list, const char *uuid)
{
    const char *word;
    size_t size;
    while (next_word(&list, &word, &size))
        if (strlen(uuid) == size && strncmp(uuid, word, size) == 0)
            return true;
    return false;
}

bool sl_request_allows(const struct sl_request *r, const char *model, const char *uuid)
{
    return (!r->use_type[0] || sl_request_type_matches(r->use_type, model)) &&
           !sl_request_type_matches(r->no_type, model) &&
           (!r->use_uuid[0] || sl_request_uuid_listed(r->use_uuid, uuid)) &&
           !sl_request_uuid_listed(r->no_uuid, uuid);
}

void sl_request_sums(const struct sl_request *r, uint32_t card_mib, uint64_t *ret_memory_mib,
                     uint64_t *ret_cores)
{
    uint64_t memory = 0, cores = 0;
    for (size_t i = 0; i < r->part_count; i++) {
        const struct sl_request_part *p = &r->part[i];
        if (p->same_as >= 0)
            continue;
        memory += (sl_share_memory(&p->share, (uint64_t)card_mib << 20) >> 20) * p->count;
        cores += (uint64_t)(p->share.cores_permille / 10) * p->count;
    }
    *ret_memory_mib = memory;
    *ret_cores = cores;
}
