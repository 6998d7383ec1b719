/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A share: the part of one GPU that a tenant may use. It is the same struct from the pod's request to the arbiter:
 *
 *   dialect or claim ─► struct sl_share ─► annotations (share_json.h, promise.h) ─► struct sl_share ─► lease (lease.h)
 *
 * A new field goes here, into the comparison (share.c), into the table of share_json.c, and into lease.c where the
 * arbiter must know it.
 */
#ifndef SLUICE_SHARE_SHARE_H
#define SLUICE_SHARE_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "sluice/pages.h" /* enum sl_priority */

/* The mechanism that limits a tenant to its share. */
enum sl_share_strategy { SL_SHARE_LIBSLUICE, SL_SHARE_MPS, SL_SHARE_TIME_SLICING };

struct sl_share {
    char gpu[SL_UUID_MAX]; /* UUID of the card; "" while no card is chosen */
    uint64_t memory_bytes; /* 0: memory_percent of the card */
    uint32_t memory_percent;
    uint32_t cores_permille; /* of the GPU's time; 0: no guaranteed time, only idle time */
    uint32_t limit_permille; /* … while others leave it idle; 0: as cores_permille */
    enum sl_priority priority;
    enum sl_share_strategy strategy;
    enum sl_compute compute; /* how its GPU time is shared; auto: as the node does */
};

/* The defaults. Not all zero: a priority of 0 is low. */
#define SL_SHARE_INIT {.priority = SL_PRIORITY_NORMAL}

/* The words of an enum, in the order of its values, NULL at the end. */
extern const char *const sl_priority_words[];
extern const char *const sl_strategy_words[];
extern const char *const sl_compute_words[];

/* "?" for a number that is no priority. */
const char *sl_priority_name(unsigned priority);
int sl_priority_parse(const char *text, enum sl_priority *ret, struct sl_err *err) SL_MUST_CHECK;
/* The place of `text` among the words; -1: it is not among them. */
int sl_word_find(const char *const *words, const char *text);

/* Is this all of a card? Then no other tenant can have a share of it. */
bool sl_share_whole(const struct sl_share *share);
/* The same GPU and the same terms. */
bool sl_share_same(const struct sl_share *a, const struct sl_share *b);
/* Memory in bytes on a card of this size. */
uint64_t sl_share_memory(const struct sl_share *share, uint64_t card_bytes);

#endif
