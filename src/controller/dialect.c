/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/dialect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/utf8.h"
#include "controller/errors.h"

enum word { COUNT, MEMORY, PERCENT, CORES, PRIORITY, WORDS };

/* The words of containers, in resources.limits or .requests. */
static const struct row {
    enum sl_dialect dialect;
    enum word word;
    const char *name;
    uint32_t unit_mib; /* of memory */
    bool alone;        /* no other word beside it says what the container means */
} rows[] = {
    {SL_DIALECT_HAMI, COUNT, SL_DIALECT_WHOLE_RESOURCE, 0, false},
    {SL_DIALECT_HAMI, MEMORY, "nvidia.com/gpumem", 1, false},
    {SL_DIALECT_HAMI, PERCENT, "nvidia.com/gpumem-percentage", 0, false},
    {SL_DIALECT_HAMI, CORES, "nvidia.com/gpucores", 0, false},
    {SL_DIALECT_HAMI, PRIORITY, "nvidia.com/priority", 0, false},
    {SL_DIALECT_VOLCANO, COUNT, "volcano.sh/vgpu-number", 0, false},
    {SL_DIALECT_VOLCANO, MEMORY, "volcano.sh/vgpu-memory", 1, false},
    {SL_DIALECT_VOLCANO, PERCENT, "volcano.sh/vgpu-memory-percentage", 0, false},
    {SL_DIALECT_VOLCANO, CORES, "volcano.sh/vgpu-cores", 0, false},
    /* Of Volcano's GPU plugin before vGPU: whole cards, or MiB of one card. */
    {SL_DIALECT_VOLCANO, COUNT, "volcano.sh/gpu-number", 0, true},
    {SL_DIALECT_VOLCANO, MEMORY, "volcano.sh/gpu-memory", 1, true},
    {SL_DIALECT_GPUSHARE, MEMORY, "aliyun.com/gpu-mem", 1024, false},
    {SL_DIALECT_GPUSHARE, CORES, "aliyun.com/gpu-core.percentage", 0, false},
};

/* The range of each word, and how to write it. */
static const struct {
    uint64_t max;
    const char *is;
} words[WORDS] = {
    [COUNT] = {SL_PROMISE_NODE_GPUS, "a number of GPUs from 1 to 16: write for example \"1\""},
    [MEMORY] = {64u << 20, NULL},
    [PERCENT] = {100, "a percentage of the card's memory from 1 to 100: write for example \"50\""},
    [CORES] = {100, "a percentage of one GPU's time from 1 to 100: write for example \"30\""},
    [PRIORITY] = {1, "0 (high) or 1 (low)"},
};

static const char *const dialects[] = {[SL_DIALECT_HAMI] = "HAMi",
                                       [SL_DIALECT_VOLCANO] = "Volcano",
                                       [SL_DIALECT_GPUSHARE] = "gpushare"};

bool sl_dialect_resource(const char *name)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++)
        if (strcmp(rows[i].name, name) == 0)
            return true;
    return false;
}

bool sl_dialect_scheduler(const char *name)
{
    static const char *const names[] = {"hami-scheduler", "volcano", "kubeshare-scheduler",
                                        "gpushare-scheduler"};
    for (size_t i = 0; i < SL_ARRAY_LEN(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* --- containers --- */

/* "10", "10k", "2M" and JSON numbers; -EINVAL for a number that is negative, malformed or in bytes. */
static int count_of(const json_t *value, uint64_t *ret)
{
    const char *text = json_string_value(value);
    const char *unit = text ? text + strspn(text, "0123456789") : "";
    if (*unit && strcmp(unit, "k") != 0 && strcmp(unit, "M") != 0)
        return -EINVAL;
    return sl_jget_quantity(value, 0, ret);
}

static const json_t *resource(const json_t *container, const char *name)
{
    const json_t *resources = json_object_get(container, "resources");
    const json_t *value = json_object_get(json_object_get(resources, "limits"), name);
    return value ? value : json_object_get(json_object_get(resources, "requests"), name);
}

static void value_text(const json_t *value, char *buf, size_t size)
{
    if (json_is_string(value))
        (void)snprintf(buf, size, "%.40s", json_string_value(value));
    else if (json_is_integer(value))
        (void)snprintf(buf, size, "%lld", (long long)json_integer_value(value));
    else
        (void)snprintf(buf, size, "(not a number)");
}

/* The figures of the container, by word; said[] tells which are set. */
struct said {
    uint64_t value[WORDS];
    bool said[WORDS];
    const char *name[WORDS];
    bool any;
    const struct row *last;
    enum sl_dialect dialect;
};

static int refuse_value(const struct row *row, const json_t *value, const char *container,
                        struct sl_err *err)
{
    char text[48];
    value_text(value, text, sizeof(text));
    if (row->word == MEMORY && row->unit_mib)
        return sl_err_set(err, -EINVAL, SL_E_DIALECT_NUMBER, container, row->name, text,
                          row->unit_mib == 1 ? "MiB" : "GiB", 3072 / row->unit_mib);
    return sl_err_set(err, -EINVAL, SL_E_DIALECT_VALUE, container, row->name, text,
                      words[row->word].is);
}

static int container_words(const json_t *container, const char *name, struct said *s,
                           struct sl_err *err)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++) {
        const struct row *row = &rows[i];
        const json_t *value = resource(container, row->name);
        uint64_t n;
        if (!value)
            continue;
        if (s->any && s->dialect != row->dialect)
            return sl_err_set(err, -EINVAL, SL_E_DIALECT_TWO, name, dialects[s->dialect],
                              dialects[row->dialect], row->name);
        if (s->any && (row->alone || s->last->alone))
            return sl_err_set(err, -EINVAL, SL_E_DIALECT_BOTH, name, s->last->name, row->name);
        uint64_t unit = row->unit_mib ? row->unit_mib : 1;
        if (count_of(value, &n) != 0 || n > words[row->word].max / unit)
            return refuse_value(row, value, name, err);
        s->any = true;
        s->last = row;
        s->dialect = row->dialect;
        s->name[row->word] = row->name;
        s->value[row->word] = n * unit;
        /* 0 means "not set", except for the priority, where 0 means high priority. */
        s->said[row->word] = n > 0 || row->word == PRIORITY;
    }
    return 0;
}

static int add_part(struct sl_request *r, const struct sl_request_part *part, struct sl_err *err)
{
    if (r->part_count == SL_REQUEST_PARTS)
        return sl_err_set(err, -EINVAL, SL_E_POD_GPU_CONTAINERS, SL_REQUEST_PARTS);
    r->part[r->part_count++] = *part;
    return 0;
}

/* An init container that keeps running beside the others needs its own GPUs: -2 marks it until all are read. */
static int8_t alone(const json_t *container)
{
    return strcmp(sl_jget_text(container, "restartPolicy"), "Always") == 0 ? -2 : -1;
}

/* plain stays true while the pod asks for whole GPUs only. */
static int read_containers(const json_t *list, bool init, uint16_t first, struct sl_request *r,
                           bool *plain, struct sl_err *err)
{
    const json_t *container;
    size_t i;
    json_array_foreach(list, i, container)
    {
        struct said s = {.any = false};
        struct sl_request_part p = {.index = (uint16_t)(first + i),
                                    .init = init,
                                    .same_as = init ? alone(container) : -1,
                                    .share = SL_SHARE_INIT};
        sl_utf8_copy(p.container, sizeof(p.container), sl_jget_text(container, "name"));
        int rc = container_words(container, p.container, &s, err);
        if (rc)
            return rc;
        if (!s.said[COUNT] && !s.said[MEMORY] && !s.said[PERCENT] && !s.said[CORES])
            continue; /* no word, or only zeros */
        if (s.said[MEMORY] && s.said[PERCENT])
            return sl_err_set(err, -EINVAL, SL_E_DIALECT_BOTH, p.container, s.name[MEMORY],
                              s.name[PERCENT]);
        p.count = (uint8_t)(s.said[COUNT] ? s.value[COUNT] : 1);
        if (s.said[MEMORY])
            p.share.memory_bytes = s.value[MEMORY] << 20;
        else
            p.share.memory_percent = s.said[PERCENT] ? (uint32_t)s.value[PERCENT] : 100;
        /* All of the memory: no other pod could use the rest of the GPU time. */
        p.share.cores_permille = s.said[CORES]                   ? (uint32_t)s.value[CORES] * 10
                                 : p.share.memory_percent == 100 ? 1000
                                                                 : 0;
        p.share.limit_permille = p.share.cores_permille ? 0 : 1000;
        if (s.said[PRIORITY])
            p.share.priority = s.value[PRIORITY] == 0 ? SL_PRIORITY_HIGH : SL_PRIORITY_LOW;
        rc = add_part(r, &p, err);
        if (rc)
            return rc;
        *plain = *plain && s.dialect == SL_DIALECT_HAMI && s.said[COUNT] && !s.said[MEMORY] &&
                 !s.said[PERCENT] && !s.said[CORES] && !s.said[PRIORITY];
    }
    return 0;
}

/* --- KubeShare: labels (or annotations) of the pod --- */

static const char *marked(const json_t *pod, const char *key)
{
    const json_t *meta = json_object_get(pod, "metadata");
    const json_t *value = json_object_get(json_object_get(meta, "labels"), key);
    return value ? json_string_value(value) : sl_jget_note(pod, key);
}

/* "0.5" is 50 of 100; at most two digits after the point count. */
static int hundredths(const char *text, uint32_t *ret)
{
    unsigned __int128 billionths = 0;
    const char *rest = sl_decimal_read(text, &billionths);
    if (!rest || *rest || billionths > (unsigned __int128)SL_PROMISE_NODE_GPUS * 1000000000)
        return -EINVAL;
    *ret = (uint32_t)((billionths + 5000000) / 10000000);
    return 0;
}

/* Lists become part of CEL expressions and of our own matching: plain characters only. */
static int take_list(const char *key, const char *text, char *buf, struct sl_err *err)
{
    static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                               " ._-+/(),";
    if (!text || strlen(text) >= SL_REQUEST_LIST || strspn(text, good) != strlen(text))
        return sl_err_set(err, -EINVAL, SL_E_NAMES_BAD, key);
    if (text[0])
        (void)snprintf(buf, SL_REQUEST_LIST, "%s", text);
    return 0;
}

static int kubeshare_memory(const json_t *pod, struct sl_request_part *p, struct sl_err *err)
{
    const char *text = marked(pod, "sharedgpu/gpu_mem");
    uint64_t bytes = 0;
    if (!text)
        return 0;
    if (text[strspn(text, "0123456789")] || sl_quantity_parse(text, 0, &bytes) != 0 || bytes == 0 ||
        bytes >> 46)
        return sl_err_set(err, -EINVAL, SL_E_KUBESHARE_MEM, text);
    p->share.memory_bytes = (bytes + (1u << 20) - 1) >> 20 << 20;
    p->share.memory_percent = 0;
    return 0;
}

static int kubeshare_part(const json_t *pod, const char *request, const char *limit,
                          struct sl_request_part *p, struct sl_err *err)
{
    uint32_t r = 0, l = 0;
    if (!limit || hundredths(limit, &l) != 0 || l == 0)
        return sl_err_set(err, -EINVAL, SL_E_KUBESHARE_LIMIT, limit ? limit : "");
    if (request && (hundredths(request, &r) != 0 || r > l))
        return sl_err_set(err, -EINVAL, SL_E_KUBESHARE_REQUEST, request);
    if (l > 100 && (r != l || l % 100))
        return sl_err_set(err, -EINVAL, SL_E_KUBESHARE_LIMIT_HIGH, limit);
    p->count = (uint8_t)(l > 100 ? l / 100 : 1);
    r = r > 100 ? 100 : r;
    p->share.cores_permille = r * 10;
    p->share.limit_permille = l > 100 || l == r ? 0 : l * 10;
    p->share.memory_percent = r ? r : 1; /* without gpu_mem: the same percentage as GPU time */
    return kubeshare_memory(pod, p, err);
}

static int read_kubeshare(const json_t *pod, uint16_t first, struct sl_request *r,
                          struct sl_err *err)
{
    const char *request = marked(pod, "sharedgpu/gpu_request");
    const char *limit = marked(pod, "sharedgpu/gpu_limit");
    const char *model = marked(pod, "sharedgpu/gpu_model");
    const char *priority = marked(pod, "sharedgpu/priority");
    if (!request && !limit && !marked(pod, "sharedgpu/gpu_mem"))
        return 0;
    if (r->part_count)
        return sl_err_set(err, -EINVAL, SL_E_DIALECT_LABELS_TOO);
    const json_t *container =
        json_array_get(json_object_get(json_object_get(pod, "spec"), "containers"), 0);
    struct sl_request_part p = {.index = first, .same_as = -1, .share = SL_SHARE_INIT};
    sl_utf8_copy(p.container, sizeof(p.container), sl_jget_text(container, "name"));
    int rc = kubeshare_part(pod, request, limit, &p, err);
    if (!rc && model)
        rc = take_list("sharedgpu/gpu_model", model, r->use_type, err);
    if (!rc && priority && strtol(priority, NULL, 10) > 0)
        p.share.priority = SL_PRIORITY_HIGH;
    return rc ? rc : add_part(r, &p, err);
}

/* --- the pod --- */

void sl_dialect_warn(const json_t *pod, void (*warn)(void *data, const char *text), void *data)
{
    static const char *const gangs[] = {"sharedgpu/min_available", "sharedgpu/group_headcount"};
    struct sl_err text = SL_ERR_INIT;
    for (size_t i = 0; i < SL_ARRAY_LEN(gangs); i++) {
        const char *said = marked(pod, gangs[i]);
        if (said && strcmp(said, "0") != 0 && strcmp(said, "1") != 0) {
            (void)sl_err_set(&text, -EOPNOTSUPP, SL_E_GANG_IGNORED, gangs[i], said);
            warn(data, text.msg);
        }
    }
    static const char key[] = "hami.io/gpu-scheduler-policy";
    const char *policy = sl_jget_note(pod, key);
    if (policy && (sl_request_uuid_listed(policy, "topology-aware") ||
                   sl_request_uuid_listed(policy, "mutex"))) {
        (void)sl_err_set(&text, -EOPNOTSUPP, SL_E_POLICY_IGNORED, key, policy);
        warn(data, text.msg);
    }
}

/* HAMi places a pod only where GPUs are shared in a mode that the pod lists. We share as its "hami-core" does. */
static int check_mode(const json_t *notes, struct sl_err *err)
{
    const json_t *mode = json_object_get(notes, SL_DIALECT_MODE);
    const char *text = json_string_value(mode);
    if (!mode || (text && (!text[0] || sl_request_uuid_listed(text, "hami-core"))))
        return 0;
    return sl_err_set(err, -EINVAL, SL_E_DIALECT_MODE, SL_DIALECT_MODE, text ? text : "");
}

static int read_annotations(const json_t *pod, struct sl_request *r, struct sl_err *err)
{
    const struct {
        const char *key;
        char *buf;
    } lists[] = {{"nvidia.com/use-gputype", r->use_type},
                 {"nvidia.com/nouse-gputype", r->no_type},
                 {"nvidia.com/use-gpuuuid", r->use_uuid},
                 {"nvidia.com/nouse-gpuuuid", r->no_uuid}};
    const json_t *notes = json_object_get(json_object_get(pod, "metadata"), "annotations");
    const char *gpu = sl_jget_text(notes, "hami.io/gpu-scheduler-policy");
    r->numa = strcmp(sl_jget_text(notes, "nvidia.com/numa-bind"), "true") == 0 ||
              sl_request_uuid_listed(gpu, "numa");
    r->node_policy = sl_request_policy_of(sl_jget_text(notes, "hami.io/node-scheduler-policy"));
    r->gpu_policy = sl_request_policy_of(gpu);
    int rc = check_mode(notes, err);
    for (size_t i = 0; !rc && i < SL_ARRAY_LEN(lists); i++) {
        const json_t *value = json_object_get(notes, lists[i].key);
        rc = value ? take_list(lists[i].key, json_string_value(value), lists[i].buf, err) : 0;
    }
    return rc;
}

static bool left_alone(const json_t *pod)
{
    static const char *const keys[] = {"hami.io/webhook", "sluice.io/webhook"};
    const json_t *labels = json_object_get(json_object_get(pod, "metadata"), "labels");
    for (size_t i = 0; i < SL_ARRAY_LEN(keys); i++)
        if (strcmp(sl_jget_text(labels, keys[i]), "ignore") == 0)
            return true;
    return false;
}

/* An init container whose share equals a container's runs before that container: the same GPUs serve both. */
static void share_with_init(struct sl_request *r)
{
    struct sl_request_part copy[SL_REQUEST_PARTS];
    size_t n = 0;
    for (int init = 0; init < 2; init++) /* containers first, so that same_as points back */
        for (size_t i = 0; i < r->part_count; i++)
            if (r->part[i].init == (init == 1))
                copy[n++] = r->part[i];
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; copy[i].init && copy[i].same_as == -1 && k < i; k++)
            if (!copy[k].init && copy[k].count == copy[i].count &&
                sl_share_same(&copy[k].share, &copy[i].share))
                copy[i].same_as = (int8_t)k;
    for (size_t i = 0; i < n; i++)
        if (copy[i].same_as == -2)
            copy[i].same_as = -1;
    memcpy(r->part, copy, n * sizeof(copy[0]));
}

const json_t *sl_dialect_container(const json_t *pod, const struct sl_request_part *p)
{
    const json_t *spec = json_object_get(pod, "spec");
    const json_t *inits = json_object_get(spec, "initContainers");
    return p->init ? json_array_get(inits, p->index)
                   : json_array_get(json_object_get(spec, "containers"),
                                    p->index - json_array_size(inits));
}

static int refuse_privileged(const json_t *pod, const struct sl_request *r, struct sl_err *err)
{
    for (size_t i = 0; i < r->part_count; i++) {
        const json_t *context =
            json_object_get(sl_dialect_container(pod, &r->part[i]), "securityContext");
        if (json_is_true(json_object_get(context, "privileged")))
            return sl_err_set(err, -EINVAL, SL_E_POD_PRIVILEGED, r->part[i].container);
    }
    return 0;
}

/* Kubelet lists the containers of a slot, but not an init container that ends. So another container must use the slot
 * after it. */
static int refuse_init_alone(const json_t *pod, const struct sl_request *r, struct sl_err *err)
{
    const struct sl_request_part *lonely = NULL;
    for (size_t i = 0; i < r->part_count; i++) {
        if (!r->part[i].init)
            return 0;
        if (alone(sl_dialect_container(pod, &r->part[i])) == -1)
            lonely = &r->part[i];
    }
    return lonely ? sl_err_set(err, -EINVAL, SL_E_INIT_ALONE, lonely->container) : 0;
}

int sl_dialect_check_slots(const json_t *pod, const struct sl_request *r, const char *slot,
                           struct sl_err *err)
{
    int rc = refuse_privileged(pod, r, err);
    if (!rc)
        rc = refuse_init_alone(pod, r, err);
    for (size_t i = 0; !rc && slot && i < r->part_count; i++) {
        uint64_t n;
        const json_t *value = resource(sl_dialect_container(pod, &r->part[i]), slot);
        if (!value || count_of(value, &n) != 0 || n == 0)
            rc = sl_err_set(err, -EINVAL, SL_E_POD_BYPASSED, r->part[i].container, slot);
    }
    return rc;
}

int sl_dialect_read(const json_t *pod, struct sl_request *ret, struct sl_err *err)
{
    const json_t *spec = json_object_get(pod, "spec");
    const json_t *inits = json_object_get(spec, "initContainers");
    const json_t *apps = json_object_get(spec, "containers");
    size_t all = json_array_size(inits) + json_array_size(apps);
    uint16_t first = (uint16_t)json_array_size(inits);
    bool plain = true;
    memset(ret, 0, sizeof(*ret));
    if (left_alone(pod))
        return SL_DIALECT_NOTHING;
    if (all > 255 || json_array_size(apps) == 0)
        return SL_DIALECT_NOTHING; /* no such pod is valid; the API server will refuse it */
    ret->containers = (uint16_t)all;
    int rc = read_containers(inits, true, 0, ret, &plain, err);
    if (!rc)
        rc = read_containers(apps, false, first, ret, &plain, err);
    size_t by_resources = ret->part_count;
    if (!rc)
        rc = read_kubeshare(pod, first, ret, err);
    if (rc)
        return rc;
    if (ret->part_count == 0)
        return SL_DIALECT_NOTHING;
    rc = read_annotations(pod, ret, err);
    if (rc)
        return rc;
    share_with_init(ret);
    plain = plain && by_resources && !ret->use_type[0] && !ret->no_type[0] && !ret->use_uuid[0] &&
            !ret->no_uuid[0];
    if (plain)
        return SL_DIALECT_PLAIN;
    rc = refuse_privileged(pod, ret, err);
    return rc ? rc : SL_DIALECT_ASKS;
}
