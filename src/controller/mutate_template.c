/* SPDX-License-Identifier: Apache-2.0 */
/* A request as a ResourceClaimTemplate of resource.k8s.io/v1. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/json_dump.h"
#include "controller/errors.h"
#include "controller/mutate.h"
#include "share/share_json.h"

#define CEL_MAX    8192
/* A capacity has its driver's domain, and the driver may have NVIDIA's name. */
#define CAPACITY   "device.capacity[device.driver]"
#define ATTRIBUTES "device.attributes[\"" SL_MUTATE_DRIVER "\"]"

void sl_mutate_request_name(const struct sl_request *r, size_t part, char buf[16])
{
    size_t at = r->part[part].same_as >= 0 ? (size_t)r->part[part].same_as : part;
    (void)snprintf(buf, 16, "gpu%zu", at);
}

struct text {
    char buf[CEL_MAX];
    size_t used;
    bool full;
};

static void SL_PRINTF(2, 3) say(struct text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->buf + t->used, sizeof(t->buf) - t->used, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(t->buf) - t->used)
        t->full = true;
    else
        t->used += (size_t)n;
}

/* One alternative for each word: "(x.contains('a') || x.contains('b'))". The dialect has checked that words are plain
 * characters. A dash may also stand for a blank: `dashed` replaces `before` for such words. */
static void say_list(struct text *t, const char *list, const char *before, const char *dashed,
                     const char *after)
{
    const char *sep = "";
    say(t, "(");
    for (const char *at = list; *at;) {
        const char *end = strchrnul(at, ',');
        char word[SL_REQUEST_LIST];
        size_t n = 0;
        for (; at < end; at++)
            if (n || *at != ' ')
                word[n++] = (char)(dashed ? tolower((unsigned char)*at) : *at);
        while (n && word[n - 1] == ' ')
            n--;
        word[n] = '\0';
        at = *end ? end + 1 : end;
        if (!n)
            continue;
        bool dash = dashed && strchr(word, '-');
        for (char *blank = dash ? strchr(word, ' ') : NULL; blank; blank = strchr(blank, ' '))
            *blank = '-';
        say(t, "%s%s\"%s\"%s", sep, dash ? dashed : before, word, after);
        sep = " || ";
    }
    say(t, "%s)", sep[0] ? "" : "false");
}

/* The cards that the pod may have, as CEL; empty when any card is fine. */
static void selectors(const struct sl_request *r, struct text *t)
{
    static const char model[] = ATTRIBUTES ".productName.lowerAscii().contains(";
    static const char dashed[] =
        ATTRIBUTES ".productName.lowerAscii().replace(\" \", \"-\").contains(";
    static const char uuid[] = ATTRIBUTES ".uuid == ";
    const char *and = "";
    const struct {
        const char *list, *not, *before, *dashed, *after;
    } rows[] = {{r->use_type, "", model, dashed, ")"},
                {r->no_type, "!", model, dashed, ")"},
                {r->use_uuid, "", uuid, NULL, ""},
                {r->no_uuid, "!", uuid, NULL, ""}};
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++) {
        if (!rows[i].list[0])
            continue;
        say(t, "%s%s", and, rows[i].not);
        say_list(t, rows[i].list, rows[i].before, rows[i].dashed, rows[i].after);
        and = " && ";
    }
}

static uint32_t memory_mib(const struct sl_request_part *p)
{
    return (uint32_t)(p->share.memory_bytes >> 20);
}

/* One way to serve a part. mib 0: the card's default, which is the whole memory. */
static json_t *device_request(const struct sl_request_part *p, const char *class, const char *cel,
                              uint32_t mib)
{
    json_t *j = json_pack("{s:s,s:s,s:I}", "deviceClassName", class, "allocationMode", "ExactCount",
                          "count", (json_int_t)p->count);
    if (cel[0])
        (void)json_object_set_new(j, "selectors",
                                  json_pack("[{s:{s:s}}]", "cel", "expression", cel));
    if (!sl_share_whole(&p->share)) {
        uint32_t percent = p->share.cores_permille / 10;
        char memory[24], cores[16];
        (void)snprintf(memory, sizeof(memory), mib % 1024 ? "%uMi" : "%uGi",
                       mib % 1024 ? mib : mib / 1024);
        /* One percent is the smallest amount of cores; the limit adds idle time on top. */
        (void)snprintf(cores, sizeof(cores), "%u", percent ? percent : 1u);
        json_t *want = json_pack("{s:s}", "cores", cores);
        if (mib)
            (void)json_object_set_new(want, "memory", json_string(memory));
        (void)json_object_set_new(j, "capacity", json_pack("{s:o}", "requests", want));
    }
    return j;
}

/* Cards differ, but a claim's amounts are absolute: one alternative for each size of card, largest share last. */
static int percent_request(const struct sl_request_part *p, const char *class,
                           const struct text *cel, const struct sl_mutate_options *opt,
                           json_t *request, struct sl_err *err)
{
    if (opt->card_count == 0)
        return sl_err_set(err, -EAGAIN, SL_E_CARD_SIZE_UNKNOWN, p->container,
                          p->share.memory_percent);
    json_t *list = json_array();
    (void)json_object_set_new(request, "firstAvailable", list);
    for (size_t i = 0; i < opt->card_count && i < SL_MUTATE_CARDS; i++) {
        uint32_t mib = (uint32_t)((uint64_t)opt->card_mib[i] * p->share.memory_percent / 100);
        struct text both = {.used = 0};
        char name[8];
        say(&both, "%s%s%s" CAPACITY ".memory.compareTo(quantity(\"%uMi\")) == 0",
            cel->used ? "(" : "", cel->buf, cel->used ? ") && " : "", opt->card_mib[i]);
        if (both.full)
            return sl_err_set(err, -EINVAL, SL_E_NAMES_LONG);
        json_t *one = device_request(p, class, both.buf, mib ? mib : 1);
        (void)snprintf(name, sizeof(name), "size%zu", i);
        (void)json_object_set_new(one, "name", json_string(name));
        (void)json_array_append_new(list, one);
    }
    return 0;
}

static int add_request(const struct sl_request *r, size_t i, const struct sl_mutate_options *opt,
                       json_t *requests, struct sl_err *err)
{
    const struct sl_request_part *p = &r->part[i];
    const char *class = sl_share_whole(&p->share) ? "whole." SL_MUTATE_DRIVER : SL_MUTATE_DRIVER;
    struct text cel = {.used = 0};
    char name[16];
    selectors(r, &cel);
    if (cel.full)
        return sl_err_set(err, -EINVAL, SL_E_NAMES_LONG);
    sl_mutate_request_name(r, i, name);
    json_t *request = json_pack("{s:s}", "name", name);
    (void)json_array_append_new(requests, request);
    if (!p->share.memory_bytes && p->share.memory_percent != 100)
        return percent_request(p, class, &cel, opt, request, err);
    (void)json_object_set_new(request, "exactly", device_request(p, class, cel.buf, memory_mib(p)));
    return 0;
}

/* Priority and the right to idle GPU time, as the driver's own parameters. */
static void add_config(const struct sl_request *r, size_t i, json_t *config)
{
    json_t *parameters = sl_share_config_write(&r->part[i].share);
    char name[16];
    if (!parameters)
        return;
    sl_mutate_request_name(r, i, name);
    (void)json_array_append_new(config,
                                json_pack("{s:[s],s:{s:s,s:o}}", "requests", name, "opaque",
                                          "driver", SL_MUTATE_DRIVER, "parameters", parameters));
}

/* "sluice-1x10240m-30c-0123456789abcdef": the size of the first part for people, a hash for programs. */
static void name_of(const struct sl_request *r, const char *content, char name[64])
{
    const struct sl_request_part *p = &r->part[0];
    char memory[16];
    if (p->share.memory_bytes)
        (void)snprintf(memory, sizeof(memory), "%um", memory_mib(p));
    else
        (void)snprintf(memory, sizeof(memory), "%up", p->share.memory_percent);
    (void)snprintf(name, 64, "sluice-%ux%s-%uc-%016llx", p->count, memory,
                   p->share.cores_permille / 10, (unsigned long long)sl_hash_text(content));
}

int sl_mutate_template(const struct sl_request *r, const struct sl_mutate_options *opt,
                       json_t **ret, char name[64], struct sl_err *err)
{
    json_t *requests = json_array(), *config = json_array();
    int rc = 0;
    for (size_t i = 0; !rc && i < r->part_count; i++) {
        if (r->part[i].same_as >= 0)
            continue;
        rc = add_request(r, i, opt, requests, err);
        add_config(r, i, config);
    }
    json_t *devices = json_pack("{s:o}", "requests", requests);
    if (json_array_size(config))
        (void)json_object_set(devices, "config", config);
    json_decref(config);
    json_t *spec = json_pack("{s:{s:o}}", "spec", "devices", devices);
    if (rc) {
        json_decref(spec);
        return rc;
    }
    char *content SL_CLEANUP(free) = sl_json_dump(spec, JSON_COMPACT | JSON_SORT_KEYS);
    name_of(r, content, name);
    *ret = json_pack("{s:s,s:s,s:{s:s,s:{s:s}},s:o}", "apiVersion", "resource.k8s.io/v1", "kind",
                     "ResourceClaimTemplate", "metadata", "name", name, "labels",
                     SL_MUTATE_MANAGED_KEY, SL_MUTATE_MANAGED_VALUE, "spec", spec);
    return 0;
}
