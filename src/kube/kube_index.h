/* SPDX-License-Identifier: Apache-2.0 */
/* The objects of a collection that are known: enough to say which were deleted, nothing of their
 * contents. */
#ifndef SLUICE_KUBE_KUBE_INDEX_H
#define SLUICE_KUBE_KUBE_INDEX_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kube_known {
    struct kube_known *next;
    uint64_t hash;
    unsigned round; /* of the list that told it last */
    char version[24];
    const char *namespace, *name, *uid; /* behind this struct */
};

/* Zeroed before first use. */
struct kube_index {
    struct kube_known **buckets;
    size_t bucket_count, count, max;
};

struct kube_known *sl_kube_index_find(const struct kube_index *index, const json_t *object);
/* NULL: out of memory, or max reached. The object must not be known. */
struct kube_known *sl_kube_index_add(struct kube_index *index, const json_t *object);
void sl_kube_index_drop(struct kube_index *index, struct kube_known *known);
/* One whose round is not this one, from bucket *at on; NULL: none. */
struct kube_known *sl_kube_index_stale(const struct kube_index *index, unsigned round, size_t *at);
void sl_kube_index_free(struct kube_index *index);

/* Remembers the object's resourceVersion; false: it was that already. */
bool sl_kube_known_update(struct kube_known *known, const json_t *object);
/* The object with nothing but its names. NULL: out of memory. */
json_t *sl_kube_known_stub(const struct kube_known *known, const char *api_version,
                           const char *kind);

#endif
