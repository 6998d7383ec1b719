/* SPDX-License-Identifier: Apache-2.0 */
/* A map from texts to things that carry their own link and key. */
#ifndef SLUICE_BASE_MAP_H
#define SLUICE_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

/* First member of what is kept. The key is the owner's and stays where it is while kept. */
struct sl_map_item {
    struct sl_map_item *next;
    const char *key;
    uint64_t hash;
};

/* Zeroed before first use. */
struct sl_map {
    struct sl_map_item **buckets;
    size_t bucket_count, count;
};

void *sl_map_find(const struct sl_map *map, const char *key, size_t size);
/* The key must not be there. */
void sl_map_add(struct sl_map *map, struct sl_map_item *item);
void sl_map_drop(struct sl_map *map, struct sl_map_item *item);
/* Forgets all items, each freed by this function; NULL: they are their owner's. */
void sl_map_free(struct sl_map *map, void (*item_free)(void *item));

/* All of them, in no order; the one at hand may be dropped. Zeroed before first use. */
struct sl_map_walk {
    size_t bucket;
    struct sl_map_item *next;
};
void *sl_map_next(const struct sl_map *map, struct sl_map_walk *walk);

#endif
