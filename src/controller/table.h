/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table of things that carry their own link and key. */
#ifndef SLUICE_CONTROLLER_TABLE_H
#define SLUICE_CONTROLLER_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* First member of what is kept. The key is the owner's and stays where it is while kept. */
struct sl_table_item {
    struct sl_table_item *next;
    const char *key;
    uint64_t hash;
};

/* Zeroed before first use. */
struct sl_table {
    struct sl_table_item **buckets;
    size_t bucket_count, count;
};

void *sl_table_find(const struct sl_table *table, const char *key, size_t size);
/* The key must not be there. */
void sl_table_add(struct sl_table *table, struct sl_table_item *item);
void sl_table_drop(struct sl_table *table, struct sl_table_item *item);
void sl_table_free(struct sl_table *table); /* the items are their owner's */

/* All of them, in no order; the one at hand may be dropped. Zeroed before first use. */
struct sl_table_walk {
    size_t bucket;
    struct sl_table_item *next;
};
void *sl_table_next(const struct sl_table *table, struct sl_table_walk *walk);

#endif
