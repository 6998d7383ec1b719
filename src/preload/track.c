/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/track.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "preload/lock.h"

#define FIRST_CAPACITY 256

/* Open addressing, linear probing, deletion by shifting back: no tombstones to sweep. */
static struct {
    struct sl_lock lock;
    struct sl_track *entries;
    uint64_t capacity; /* a power of two */
    uint64_t count;
    uint64_t promised; /* room reserved and not yet used */
} table;

static _Atomic uint64_t last_id;

static uint64_t place_of(enum sl_kind kind, uint64_t key, uint64_t capacity)
{
    /* Addresses are multiples of the driver's blocks: the product's upper half mixes all their bits. */
    uint64_t x = (key ^ ((uint64_t)kind << 57)) * 0x9e3779b97f4a7c15ULL;
    return (x >> 32) & (capacity - 1);
}

static struct sl_track *find(enum sl_kind kind, uint64_t key)
{
    if (table.capacity == 0)
        return NULL;
    for (uint64_t i = place_of(kind, key, table.capacity);; i = (i + 1) & (table.capacity - 1)) {
        struct sl_track *e = &table.entries[i];
        if (e->kind == SL_KIND_FREE)
            return NULL;
        if (e->kind == kind && e->key == key)
            return e;
    }
}

/* True if the entry is new, false if it replaced an entry with the same key. */
static inline bool insert(struct sl_track *entries, uint64_t capacity, const struct sl_track *entry)
{
    uint64_t i = place_of(entry->kind, entry->key, capacity);
    while (entries[i].kind != SL_KIND_FREE &&
           (entries[i].key != entry->key || entries[i].kind != entry->kind))
        i = (i + 1) & (capacity - 1);
    bool is_new = entries[i].kind == SL_KIND_FREE;
    entries[i] = *entry;
    return is_new;
}

static void erase(struct sl_track *entry)
{
    uint64_t mask = table.capacity - 1;
    uint64_t hole = (uint64_t)(entry - table.entries);
    for (uint64_t i = (hole + 1) & mask; table.entries[i].kind != SL_KIND_FREE;
         i = (i + 1) & mask) {
        uint64_t home = place_of(table.entries[i].kind, table.entries[i].key, table.capacity);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            table.entries[hole] = table.entries[i];
            hole = i;
        }
    }
    table.entries[hole].kind = SL_KIND_FREE;
    table.count--;
}

__attribute__((noinline)) static bool grow(void)
{
    uint64_t capacity = table.capacity ? table.capacity * 4 : FIRST_CAPACITY;
    struct sl_track *entries = calloc(capacity, sizeof(*entries));
    if (!entries)
        return false;
    for (uint64_t i = 0; i < table.capacity; i++)
        if (table.entries[i].kind != SL_KIND_FREE)
            (void)insert(entries, capacity, &table.entries[i]);
    free(table.entries);
    table.entries = entries;
    table.capacity = capacity;
    return true;
}

bool sl_track_room(void)
{
    sl_lock_take(&table.lock);
    bool ok = true;
    while (ok && (table.count + table.promised + 1) * 2 > table.capacity)
        ok = grow();
    if (ok)
        table.promised++;
    sl_lock_drop(&table.lock);
    return ok;
}

void sl_track_cancel(void)
{
    sl_lock_take(&table.lock);
    table.promised--;
    sl_lock_drop(&table.lock);
}

void sl_track_put(const struct sl_track *entry)
{
    sl_lock_take(&table.lock);
    table.promised--;
    table.count += insert(table.entries, table.capacity, entry);
    sl_lock_drop(&table.lock);
}

static bool look(enum sl_kind kind, uint64_t key, struct sl_track *ret, bool take)
{
    sl_lock_take(&table.lock);
    struct sl_track *e = find(kind, key);
    if (e) {
        *ret = *e;
        if (take)
            erase(e);
    }
    sl_lock_drop(&table.lock);
    return e != NULL;
}

bool sl_track_take(enum sl_kind kind, uint64_t key, struct sl_track *ret)
{
    return look(kind, key, ret, true);
}

bool sl_track_get(enum sl_kind kind, uint64_t key, struct sl_track *ret)
{
    return look(kind, key, ret, false);
}

static bool scan(bool (*match)(const struct sl_track *, const void *), const void *arg,
                 struct sl_track *ret, bool take)
{
    bool found = false;
    sl_lock_take(&table.lock);
    for (uint64_t i = 0; i < table.capacity && !found; i++) {
        struct sl_track *e = &table.entries[i];
        if (e->kind == SL_KIND_FREE || !match(e, arg))
            continue;
        found = true;
        *ret = *e;
        if (take)
            erase(e);
    }
    sl_lock_drop(&table.lock);
    return found;
}

bool sl_track_take_if(bool (*match)(const struct sl_track *, const void *), const void *arg,
                      struct sl_track *ret)
{
    return scan(match, arg, ret, true);
}

bool sl_track_get_if(bool (*match)(const struct sl_track *, const void *), const void *arg,
                     struct sl_track *ret)
{
    return scan(match, arg, ret, false);
}

uint64_t sl_track_sum_if(bool (*match)(const struct sl_track *, const void *), const void *arg)
{
    uint64_t sum = 0;
    sl_lock_take(&table.lock);
    for (uint64_t i = 0; i < table.capacity; i++)
        if (table.entries[i].kind != SL_KIND_FREE && match(&table.entries[i], arg))
            sum += table.entries[i].units;
    sl_lock_drop(&table.lock);
    return sum;
}

uint64_t sl_track_new_id(void)
{
    return atomic_fetch_add(&last_id, 1) + 1;
}

void sl_track_forget(void)
{
    /* Another thread may have been changing the table when the process forked: leave the memory alone instead of
     * calling free(). */
    sl_lock_reset(&table.lock);
    table.entries = NULL;
    table.capacity = table.count = table.promised = 0;
}
