/* SPDX-License-Identifier: Apache-2.0 */
/* A map from texts to structs that have their own link and key. */
#ifndef SLUICE_BASE_MAP_H
#define SLUICE_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

/* The first member of a kept struct. Its owner owns the key, which must not move while kept. */
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
/* The key must not be in the map. */
void sl_map_add(struct sl_map *map, struct sl_map_item *item);
void sl_map_drop(struct sl_map *map, struct sl_map_item *item);
/* Forgets all items and frees each by this function; NULL: their owner frees them. */
void sl_map_free(struct sl_map *map, void (*item_free)(void *item));

/* Walks all items, in no order; the current item may be dropped. Zeroed before first use. */
struct sl_map_walk {
    size_t bucket;
    struct sl_map_item *next;
};
void *sl_map_next(const struct sl_map *map, struct sl_map_walk *walk);

#endif
