/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/kube_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "kube/kube.h"

static uint64_t hash_text(uint64_t h, const char *text)
{
    return sl_hash_bytes(sl_hash_bytes(h, text, strlen(text)), "\xff", 1);
}

static uint64_t hash_of(const json_t *object)
{
    uint64_t h = hash_text(SL_HASH_START, sl_kube_meta(object, "namespace"));
    return hash_text(h, sl_kube_meta(object, "name"));
}

struct kube_known *sl_kube_index_find(const struct kube_index *index, const json_t *object)
{
    if (!index->bucket_count)
        return NULL;
    uint64_t h = hash_of(object);
    struct kube_known *k = index->buckets[h & (index->bucket_count - 1)];
    while (k && (k->hash != h || strcmp(k->name, sl_kube_meta(object, "name")) != 0 ||
                 strcmp(k->namespace, sl_kube_meta(object, "namespace")) != 0))
        k = k->next;
    return k;
}

static bool grow(struct kube_index *index)
{
    size_t count = index->bucket_count ? index->bucket_count * 2 : 64;
    struct kube_known **buckets = calloc(count, sizeof(struct kube_known *));
    if (!buckets)
        return false;
    for (size_t i = 0; i < index->bucket_count; i++) {
        struct kube_known *next;
        for (struct kube_known *k = index->buckets[i]; k; k = next) {
            next = k->next;
            k->next = buckets[k->hash & (count - 1)];
            buckets[k->hash & (count - 1)] = k;
        }
    }
    free(index->buckets);
    index->buckets = buckets;
    index->bucket_count = count;
    return true;
}

struct kube_known *sl_kube_index_add(struct kube_index *index, const json_t *object)
{
    const char *texts[3] = {sl_kube_meta(object, "namespace"), sl_kube_meta(object, "name"),
                            sl_kube_meta(object, "uid")};
    size_t sizes[3], total = sizeof(struct kube_known);
    if (index->count >= index->max || (index->count >= index->bucket_count && !grow(index)))
        return NULL;
    for (int i = 0; i < 3; i++)
        total += sizes[i] = strlen(texts[i]) + 1;
    struct kube_known *k = calloc(1, total);
    if (!k)
        return NULL;
    char *p = (char *)(k + 1);
    const char **to[3] = {&k->namespace, &k->name, &k->uid};
    for (int i = 0; i < 3; i++) {
        *to[i] = memcpy(p, texts[i], sizes[i]);
        p += sizes[i];
    }
    k->hash = hash_of(object);
    k->next = index->buckets[k->hash & (index->bucket_count - 1)];
    index->buckets[k->hash & (index->bucket_count - 1)] = k;
    index->count++;
    return k;
}

void sl_kube_index_drop(struct kube_index *index, struct kube_known *known)
{
    struct kube_known **at = &index->buckets[known->hash & (index->bucket_count - 1)];
    while (*at != known)
        at = &(*at)->next;
    *at = known->next;
    index->count--;
    free(known);
}

struct kube_known *sl_kube_index_stale(const struct kube_index *index, unsigned round, size_t *at)
{
    for (; *at < index->bucket_count; ++*at)
        for (struct kube_known *k = index->buckets[*at]; k; k = k->next)
            if (k->round != round)
                return k;
    return NULL;
}

void sl_kube_index_free(struct kube_index *index)
{
    for (size_t i = 0; i < index->bucket_count; i++)
        while (index->buckets[i])
            sl_kube_index_drop(index, index->buckets[i]);
    free(index->buckets);
    *index = (struct kube_index){.max = index->max};
}

bool sl_kube_known_update(struct kube_known *known, const json_t *object)
{
    const char *version = sl_kube_meta(object, "resourceVersion");
    if (strlen(version) >= sizeof(known->version))
        version = ""; /* never equal: told once too often rather than not at all */
    bool same = version[0] && strcmp(version, known->version) == 0;
    (void)snprintf(known->version, sizeof(known->version), "%s", version);
    return !same;
}

json_t *sl_kube_known_stub(const struct kube_known *known, const char *api_version,
                           const char *kind)
{
    json_t *meta = json_object(), *stub = json_object();
    int rc = json_object_set_new(meta, "name", json_string(known->name));
    if (known->namespace[0])
        rc |= json_object_set_new(meta, "namespace", json_string(known->namespace));
    if (known->uid[0])
        rc |= json_object_set_new(meta, "uid", json_string(known->uid));
    if (api_version[0])
        rc |= json_object_set_new(stub, "apiVersion", json_string(api_version));
    if (kind[0])
        rc |= json_object_set_new(stub, "kind", json_string(kind));
    rc |= json_object_set_new(stub, "metadata", meta);
    if (rc == 0)
        return stub;
    json_decref(stub);
    return NULL;
}
