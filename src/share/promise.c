/* SPDX-License-Identifier: Apache-2.0 */
#include "share/promise.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json_dump.h"
#include "base/json_read.h"
#include "base/utf8.h"
#include "base/xalloc.h"
#include "share/errors.h"
#include "share/share_json.h"

#define TEXT_MAX (256u << 10) /* all annotations of an object together; a limit of the API */

static json_t *load(const char *text, struct sl_err *err)
{
    json_error_t e;
    if (strlen(text) > TEXT_MAX) {
        (void)sl_err_set(err, -EINVAL, SL_E_PROMISE_LARGE);
        return NULL;
    }
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    if (!j)
        (void)sl_err_set(err, -EINVAL, SL_E_PROMISE_JSON, e.text);
    return j;
}

/* Names become part of lists with these separators, and of JSON. */
static bool good_name(const char *text, size_t room)
{
    return text && text[0] && strlen(text) < room && !strpbrk(text, ",;:\n") && sl_utf8_valid(text);
}

static int get_text(const json_t *object, const char *key, char *buf, size_t size,
                    struct sl_err *err)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!good_name(text, size))
        return sl_err_set(err, -EINVAL, SL_E_PROMISE_FIELD, key);
    (void)snprintf(buf, size, "%s", text);
    return 0;
}

static int gpu_add(struct sl_promise_node *node, const struct sl_promise_gpu *gpu,
                   struct sl_err *err)
{
    for (size_t i = 0; i < node->count; i++)
        if (strcmp(node->gpu[i].uuid, gpu->uuid) == 0)
            return sl_err_set(err, -EINVAL, SL_E_PROMISE_GPU_TWICE, gpu->uuid);
    if (node->count == SL_PROMISE_NODE_GPUS)
        return sl_err_set(err, -EINVAL, SL_E_PROMISE_NODE_GPUS, SL_PROMISE_NODE_GPUS);
    if (gpu->memory_mib == 0)
        return sl_err_set(err, -EINVAL, SL_E_PROMISE_GPU_MEMORY, gpu->uuid);
    node->gpu[node->count++] = *gpu;
    return 0;
}

/* The names of the fields, ours and HAMi's. */
struct gpu_names {
    const char *uuid, *memory, *cores, *model, *healthy;
};
static const struct gpu_names our_names = {"uuid", "memoryMiB", "cores", "model", "healthy"};
static const struct gpu_names hami_names = {"id", "devmem", "devcore", "type", "health"};

static int gpu_read(const json_t *object, const struct gpu_names *names, struct sl_promise_gpu *g,
                    struct sl_err *err)
{
    const json_t *numa = json_object_get(object, "numa");
    int rc = get_text(object, names->uuid, g->uuid, sizeof(g->uuid), err);
    if (!rc)
        rc = sl_jget_number(object, names->memory, 0, SL_SHARE_MIB_MAX, &g->memory_mib, err);
    if (!rc)
        rc = sl_jget_number(object, names->cores, 100, 10000, &g->cores, err);
    if (rc)
        return rc;
    const char *model = json_string_value(json_object_get(object, names->model));
    sl_utf8_copy(g->model, sizeof(g->model), model ? model : "");
    json_int_t n = json_is_integer(numa) ? json_integer_value(numa) : -1;
    g->numa = n < 0 || n > 255 ? -1 : (int32_t)n;
    g->healthy = !json_is_false(json_object_get(object, names->healthy));
    return 0;
}

static int gpus_read(const char *text, const struct gpu_names *names, struct sl_promise_node *ret,
                     struct sl_err *err)
{
    struct sl_promise_node node = {.count = 0};
    const json_t *item;
    size_t i;
    json_t *list = load(text, err);
    if (!list)
        return -EINVAL;
    int rc = json_is_array(list) ? 0 : sl_err_set(err, -EINVAL, SL_E_PROMISE_LIST);
    json_array_foreach(list, i, item)
    {
        struct sl_promise_gpu g = {.numa = -1};
        if (!rc)
            rc = gpu_read(item, names, &g, err);
        if (!rc)
            rc = gpu_add(&node, &g, err);
    }
    json_decref(list);
    if (rc == 0)
        *ret = node;
    return rc;
}

int sl_promise_gpus_parse(const char *text, struct sl_promise_node *ret, struct sl_err *err)
{
    int rc = gpus_read(text, &our_names, ret, err);
    return rc ? sl_err_wrap(err, "%s", SL_PROMISE_GPUS_KEY) : 0;
}

/* Cuts the next field off *at; false: there is none. */
static bool field(char **at, char sep, char **ret)
{
    const char separator[] = {sep, '\0'};
    *ret = *at && **at ? strsep(at, separator) : NULL;
    return *ret != NULL;
}

static bool whole_number(const char *text, uint32_t max, uint32_t *ret)
{
    uint64_t n = 0;
    const char *rest = sl_number_read(text, max, &n);
    *ret = (uint32_t)n;
    return rest && !*rest;
}

/* The older form: UUID,count,memory,cores,type,numa,health: and so on. */
static int register_csv(const char *text, struct sl_promise_node *ret, struct sl_err *err)
{
    struct sl_promise_node node = {.count = 0};
    char *copy SL_CLEANUP(free) = sl_xstrdup(text);
    char *at = copy, *one;
    while (field(&at, ':', &one)) {
        char *part[7] = {NULL}, *rest = one;
        size_t n = 0;
        while (n < SL_ARRAY_LEN(part) && field(&rest, ',', &part[n]))
            n++;
        struct sl_promise_gpu g = {.numa = -1, .cores = 100, .healthy = true};
        uint32_t numa = 0;
        if (n < 5 || !good_name(part[0], sizeof(g.uuid)) ||
            !whole_number(part[2], SL_SHARE_MIB_MAX, &g.memory_mib) ||
            !whole_number(part[3], 10000, &g.cores))
            return sl_err_set(err, -EINVAL, SL_E_PROMISE_HAMI_DEVICE, node.count);
        (void)snprintf(g.uuid, sizeof(g.uuid), "%s", part[0]);
        (void)snprintf(g.model, sizeof(g.model), "%.63s", part[4]);
        sl_utf8_mend(g.model);
        if (n > 5 && whole_number(part[5], 255, &numa))
            g.numa = (int32_t)numa;
        if (n > 6)
            g.healthy = strcmp(part[6], "false") != 0;
        int rc = gpu_add(&node, &g, err);
        if (rc)
            return rc;
    }
    *ret = node;
    return 0;
}

int sl_promise_register_parse(const char *text, struct sl_promise_node *ret, struct sl_err *err)
{
    int rc = strlen(text) > TEXT_MAX ? sl_err_set(err, -EINVAL, SL_E_PROMISE_TEXT_LONG)
             : text[0] == '['        ? gpus_read(text, &hami_names, ret, err)
                                     : register_csv(text, ret, err);
    return rc ? sl_err_wrap(err, "%s", SL_PROMISE_REGISTER_KEY) : 0;
}

static char *dump_free(json_t *j)
{
    char *text = j ? sl_json_dump(j, JSON_COMPACT) : NULL;
    json_decref(j);
    return text;
}

char *sl_promise_gpus_text(const struct sl_promise_node *node)
{
    json_t *list = json_array();
    for (size_t i = 0; i < node->count; i++) {
        const struct sl_promise_gpu *g = &node->gpu[i];
        (void)json_array_append_new(list, json_pack("{s:s,s:I,s:I,s:s,s:i,s:b}", "uuid", g->uuid,
                                                    "memoryMiB", (json_int_t)g->memory_mib, "cores",
                                                    (json_int_t)g->cores, "model", g->model, "numa",
                                                    (int)g->numa, "healthy", (int)g->healthy));
    }
    return dump_free(list);
}

char *sl_promise_register_text(const struct sl_promise_node *node, unsigned split)
{
    json_t *list = json_array();
    for (size_t i = 0; i < node->count; i++) {
        const struct sl_promise_gpu *g = &node->gpu[i];
        char type[80]; /* HAMi's tools expect the maker's name in front */
        (void)snprintf(type, sizeof(type), "%s%s",
                       strncmp(g->model, "NVIDIA", 6) == 0 ? "" : "NVIDIA ", g->model);
        (void)json_array_append_new(list, json_pack("{s:s,s:i,s:i,s:I,s:I,s:s,s:i,s:s,s:b}", "id",
                                                    g->uuid, "index", (int)i, "count", (int)split,
                                                    "devmem", (json_int_t)g->memory_mib, "devcore",
                                                    (json_int_t)g->cores, "type", type, "numa",
                                                    g->numa < 0 ? 0 : (int)g->numa, "mode",
                                                    "hami-core", "health", (int)g->healthy));
    }
    return dump_free(list);
}

/* --- leases --- */

int sl_promise_lease_parse(const char *text, struct sl_promise *ret, struct sl_err *err)
{
    const json_t *one, *gpu;
    size_t i, k;
    uint32_t version = 0;
    json_t *j = load(text, err);
    const json_t *list = json_object_get(j, "containers");
    memset(ret, 0, sizeof(*ret));
    int rc = j ? sl_jget_number(j, "version", 0, 1000, &version, err) : -EINVAL;
    if (!rc && version != 1)
        rc = sl_err_set(err, -EINVAL, SL_E_PROMISE_VERSION, version);
    if (!rc)
        rc = get_text(j, "node", ret->node, sizeof(ret->node), err);
    if (!rc && !json_is_array(list))
        rc = sl_err_set(err, -EINVAL, SL_E_PROMISE_CONTAINERS_LIST);
    if (!rc && json_array_size(list) > SL_PROMISE_CONTAINERS)
        rc = sl_err_set(err, -EINVAL, SL_E_PROMISE_CONTAINERS, SL_PROMISE_CONTAINERS);
    json_array_foreach(list, i, one)
    {
        if (rc)
            break;
        const json_t *gpus = json_object_get(one, "gpus");
        struct sl_share all = SL_SHARE_INIT; /* the values for all GPUs of the container */
        struct sl_promise_container *c = &ret->container[ret->container_count++];
        c->first = (uint8_t)ret->share_count;
        rc = get_text(one, "name", c->name, sizeof(c->name), err);
        if (!rc)
            rc = sl_share_read(one, SL_SHARE_CONTAINER, &all, err);
        if (!rc && !json_is_array(gpus))
            rc = sl_err_set(err, -EINVAL, SL_E_PROMISE_CONTAINER_LIST, c->name);
        if (!rc && json_array_size(gpus) > SL_PROMISE_SHARES - ret->share_count)
            rc = sl_err_set(err, -EINVAL, SL_E_PROMISE_POD_GPUS, SL_PROMISE_SHARES);
        json_array_foreach(gpus, k, gpu)
        {
            struct sl_share *share = &ret->share[ret->share_count];
            if (rc)
                break;
            *share = all;
            rc = sl_share_read(gpu, SL_SHARE_GPU, share, err);
            ret->share_count += rc == 0;
        }
        c->count = (uint8_t)(ret->share_count - c->first);
    }
    json_decref(j);
    return rc ? sl_err_wrap(err, "%s", SL_PROMISE_LEASE_KEY) : 0;
}

char *sl_promise_lease_text(const struct sl_promise *p)
{
    json_t *list = json_array();
    for (size_t k = 0; k < p->container_count; k++) {
        const struct sl_promise_container *c = &p->container[k];
        const struct sl_share *share = &p->share[c->first];
        if (!c->count)
            continue;
        json_t *gpus = json_array();
        for (unsigned i = 0; i < c->count; i++)
            (void)json_array_append_new(gpus,
                                        sl_share_write(&share[i], SL_SHARE_GPU, json_object()));
        json_t *one = json_pack("{s:s,s:o}", "name", c->name, "gpus", gpus);
        (void)json_array_append_new(list, sl_share_write(share, SL_SHARE_CONTAINER, one));
    }
    return dump_free(json_pack("{s:i,s:s,s:o}", "version", 1, "node", p->node, "containers", list));
}

/* --- resizes --- */

#define MIB     (1ull << 20)
#define PERCENT 10u /* permille */

static uint32_t whole_percent(uint32_t permille)
{
    uint32_t whole = permille / PERCENT * PERCENT;
    return permille && !whole ? PERCENT : whole;
}

void sl_promise_resize(struct sl_promise *promise, const struct sl_resize *r)
{
    for (size_t i = 0; i < promise->share_count; i++) {
        struct sl_share now = sl_resize_share(&promise->share[i], r);
        now.memory_bytes = now.memory_bytes < MIB ? MIB : now.memory_bytes / MIB * MIB;
        now.cores_permille = whole_percent(now.cores_permille);
        now.limit_permille = whole_percent(now.limit_permille);
        promise->share[i] = now;
    }
}

void sl_promise_resized_parse(const char *text, struct sl_promise_resized *ret)
{
    json_t *j = load(text, NULL);
    memset(ret, 0, sizeof(*ret));
    ret->done = json_is_true(json_object_get(j, "done"));
    (void)snprintf(ret->resize, sizeof(ret->resize), "%s", sl_jget_text(j, "resize"));
    (void)snprintf(ret->message, sizeof(ret->message), "%s", sl_jget_text(j, "message"));
    sl_utf8_mend(ret->resize);
    sl_utf8_mend(ret->message);
    json_decref(j);
}

char *sl_promise_resized_text(const struct sl_promise_resized *r)
{
    return dump_free(json_pack("{s:s,s:b,s:s}", "resize", r->resize, "done", (int)r->done,
                               "message", r->message));
}

static int hami_device(char *one, struct sl_promise *p)
{
    char *part[4] = {NULL};
    size_t n = 0;
    uint32_t memory, cores;
    struct sl_share share = SL_SHARE_INIT;
    while (n < SL_ARRAY_LEN(part) && field(&one, ',', &part[n]))
        n++;
    if (n != 4 || (one && *one) || !good_name(part[0], sizeof(share.gpu)) ||
        !whole_number(part[2], SL_SHARE_MIB_MAX, &memory) || !whole_number(part[3], 100, &cores))
        return -EINVAL;
    if (p->share_count == SL_PROMISE_SHARES)
        return -E2BIG;
    (void)snprintf(share.gpu, sizeof(share.gpu), "%s", part[0]);
    share.memory_bytes = (uint64_t)memory << 20;
    share.cores_permille = cores * 10;
    p->share[p->share_count++] = share;
    return 0;
}

int sl_promise_hami_parse(const char *text, struct sl_promise *ret, struct sl_err *err)
{
    char *copy SL_CLEANUP(free) = sl_xstrdup(text);
    char *at = copy, *container, *one;
    int rc = strlen(text) > TEXT_MAX ? -EINVAL : 0;
    memset(ret, 0, sizeof(*ret));
    while (!rc && field(&at, ';', &container)) {
        if (ret->container_count == SL_PROMISE_CONTAINERS) {
            rc = -E2BIG;
            break;
        }
        struct sl_promise_container *c = &ret->container[ret->container_count++];
        c->first = (uint8_t)ret->share_count;
        while (!rc && field(&container, ':', &one))
            rc = hami_device(one, ret);
        c->count = (uint8_t)(ret->share_count - c->first);
    }
    return rc ? sl_err_set(err, rc, SL_E_PROMISE_HAMI_POD, SL_PROMISE_HAMI_TODO) : 0;
}

char *sl_promise_hami_text(const struct sl_promise *p)
{
    size_t n = 0;
    char *text = NULL;
    FILE *out = sl_xmemstream(&text, &n);
    for (size_t i = 0; i < p->container_count; i++) {
        const struct sl_promise_container *c = &p->container[i];
        for (unsigned d = c->first; d < c->first + c->count; d++)
            (void)fprintf(out, "%s,NVIDIA,%u,%u:", p->share[d].gpu,
                          (uint32_t)(p->share[d].memory_bytes >> 20),
                          p->share[d].cores_permille / 10);
        (void)fputc(';', out);
    }
    sl_xmemstream_close(out);
    return text;
}
