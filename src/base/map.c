/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/xalloc.h"

static uint64_t hash_of(const char *key, size_t size)
{
    uint64_t h = sl_hash_bytes(SL_HASH_START, key, size);
    return h ^ h >> 29;
}

void *sl_map_find(const struct sl_map *t, const char *key, size_t size)
{
    if (!t->bucket_count)
        return NULL;
    uint64_t h = hash_of(key, size);
    struct sl_map_item *i = t->buckets[h & (t->bucket_count - 1)];
    while (i && (i->hash != h || strncmp(i->key, key, size) != 0 || i->key[size]))
        i = i->next;
    return i;
}

static void grow(struct sl_map *t, size_t count)
{
    struct sl_map_item **buckets = sl_xcalloc(count, sizeof(struct sl_map_item *));
    for (size_t b = 0; b < t->bucket_count; b++)
        while (t->buckets[b]) {
            struct sl_map_item *i = t->buckets[b];
            t->buckets[b] = i->next;
            i->next = buckets[i->hash & (count - 1)];
            buckets[i->hash & (count - 1)] = i;
        }
    free(t->buckets);
    t->buckets = buckets;
    t->bucket_count = count;
}

void sl_map_add(struct sl_map *t, struct sl_map_item *item)
{
    if (t->count >= t->bucket_count)
        grow(t, t->bucket_count ? t->bucket_count * 2 : 64);
    item->hash = hash_of(item->key, strlen(item->key));
    struct sl_map_item **at = &t->buckets[item->hash & (t->bucket_count - 1)];
    item->next = *at;
    *at = item;
    t->count++;
}

void sl_map_drop(struct sl_map *t, struct sl_map_item *item)
{
    struct sl_map_item **at = &t->buckets[item->hash & (t->bucket_count - 1)];
    while (*at != item)
        at = &(*at)->next;
    *at = item->next;
    t->count--;
}

void sl_map_free(struct sl_map *t, void (*item_free)(void *item))
{
    struct sl_map_walk walk = {.bucket = 0};
    void *item;
    while (item_free && (item = sl_map_next(t, &walk)))
        item_free(item);
    free(t->buckets);
    *t = (struct sl_map){.buckets = NULL};
}

void *sl_map_next(const struct sl_map *t, struct sl_map_walk *w)
{
    struct sl_map_item *i = w->next;
    while (!i && w->bucket < t->bucket_count)
        i = t->buckets[w->bucket++];
    w->next = i ? i->next : NULL;
    return i;
}
