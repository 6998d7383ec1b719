/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/request.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json_dump.h"
#include "base/json_read.h"
#include "controller/errors.h"
#include "share/share_json.h"

#define NOT_SHARED 127 /* sameAs of a part that has GPUs of its own */

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

/* NULL for an empty text: then json_pack() leaves it out. */
static const char *said(const char *text)
{
    return text[0] ? text : NULL;
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
    json_t *j = json_pack("{s:i,s:i,s:o,s:o*,s:s*,s:s*,s:s*,s:s*,s:s*,s:s*,s:s*}", "version", 1,
                          "containers", (int)r->containers, "parts", parts, "numa",
                          r->numa ? json_true() : NULL, "nodePolicy", policies[r->node_policy],
                          "gpuPolicy", policies[r->gpu_policy], "admission", said(r->admission),
                          "useType", said(r->use_type), "noType", said(r->no_type), "useUUID",
                          said(r->use_uuid), "noUUID", said(r->no_uuid));
    char *text = sl_json_dump(j, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(j);
    return text;
}

/* After an error the readers do nothing. */
static void read_text(const json_t *object, const char *key, char *buf, size_t size, int *rc,
                      struct sl_err *err)
{
    const json_t *value = json_object_get(object, key);
    const char *text = value ? json_string_value(value) : "";
    if (!*rc && (!text || strlen(text) >= size))
        *rc = sl_err_set(err, -EINVAL, SL_E_REQUEST_TEXT, key);
    if (!*rc)
        (void)snprintf(buf, size, "%s", text);
}

static uint32_t read_number(const json_t *object, const char *key, uint32_t missing, uint32_t max,
                            int *rc, struct sl_err *err)
{
    uint32_t n = missing;
    if (!*rc)
        *rc = sl_jget_number(object, key, missing, max, &n, err);
    return n;
}

int sl_request_parse(const char *text, struct sl_request *ret, struct sl_err *err)
{
    json_t *j = strlen(text) > (64u << 10) ? NULL : json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const json_t *parts = json_object_get(j, "parts");
    int rc = 0;
    memset(ret, 0, sizeof(*ret));
    uint32_t version = read_number(j, "version", 0, 1000, &rc, err);
    ret->containers = (uint16_t)read_number(j, "containers", 0, 256, &rc, err);
    if (!rc &&
        (version != 1 || json_array_size(parts) == 0 || json_array_size(parts) > SL_REQUEST_PARTS))
        rc = sl_err_set(err, -EINVAL, SL_E_REQUEST_FORM);
    for (size_t i = 0; !rc && i < json_array_size(parts); i++) {
        const json_t *one = json_array_get(parts, i);
        struct sl_request_part *p = &ret->part[ret->part_count++];
        p->share = (struct sl_share)SL_SHARE_INIT;
        read_text(one, "container", p->container, sizeof(p->container), &rc, err);
        p->index = (uint16_t)read_number(one, "index", 0, 255, &rc, err);
        p->count = (uint8_t)read_number(one, "gpus", 0, SL_PROMISE_NODE_GPUS, &rc, err);
        uint32_t same = read_number(one, "sameAs", NOT_SHARED, NOT_SHARED, &rc, err);
        p->same_as = same == NOT_SHARED ? -1 : (int8_t)same;
        p->init = json_is_true(json_object_get(one, "init"));
        if (!rc)
            rc = sl_share_read(one, SL_SHARE_REQUEST, &p->share, err);
        if (!rc && (p->count == 0 || !p->share.memory_bytes == !p->share.memory_percent ||
                    (same != NOT_SHARED && same >= i)))
            rc = sl_err_set(err, -EINVAL, SL_E_REQUEST_PART, i);
        if (!rc && p->index >= ret->containers)
            rc = sl_err_set(err, -EINVAL, SL_E_REQUEST_NO_CONTAINER, i);
    }
    ret->numa = json_is_true(json_object_get(j, "numa"));
    ret->node_policy = sl_request_policy_of(sl_jget_text(j, "nodePolicy"));
    ret->gpu_policy = sl_request_policy_of(sl_jget_text(j, "gpuPolicy"));
    read_text(j, "useType", ret->use_type, sizeof(ret->use_type), &rc, err);
    read_text(j, "noType", ret->no_type, sizeof(ret->no_type), &rc, err);
    read_text(j, "useUUID", ret->use_uuid, sizeof(ret->use_uuid), &rc, err);
    read_text(j, "noUUID", ret->no_uuid, sizeof(ret->no_uuid), &rc, err);
    read_text(j, "admission", ret->admission, sizeof(ret->admission), &rc, err);
    json_decref(j);
    return rc ? sl_err_wrap(err, "%s", SL_PROMISE_REQUEST_KEY) : 0;
}

/* --- cards --- */

/* The next word of a comma list without the blanks around it; *at moves on. Empty words are skipped. */
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

/* Labels cannot contain a blank, so KubeShare's models have a dash in its place. */
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

bool sl_request_allows_type(const struct sl_request *r, const char *model)
{
    return (!r->use_type[0] || sl_request_type_matches(r->use_type, model)) &&
           !sl_request_type_matches(r->no_type, model);
}

bool sl_request_allows(const struct sl_request *r, const char *model, const char *uuid)
{
    return sl_request_allows_type(r, model) &&
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
