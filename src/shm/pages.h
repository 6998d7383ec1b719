/* SPDX-License-Identifier: Apache-2.0 */
/* Creating, sealing, checking and mapping the lease and ledger pages. */
#ifndef SLUICE_SHM_PAGES_H
#define SLUICE_SHM_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "sluice/pages.h"

/* A page and its descriptor. Without a page: fd -1 and page NULL. */
struct sl_lease_map {
    int fd;
    struct sl_lease_page *page; /* in a tenant: mapped read-only, a store faults */
};

struct sl_ledger_map {
    int fd;
    struct sl_ledger_page *page;
};

#define SL_LEASE_MAP_INIT  {-1, NULL}
#define SL_LEDGER_MAP_INIT {-1, NULL}

/* Arbiter: a new lease, mapped read-write here, sealed so that no other process can ever write it. The caller fills
 * name, gpu_count and gpu[] before it passes the descriptor on. */
int sl_lease_create(const uint8_t cookie[16], struct sl_lease_map *ret,
                    struct sl_err *err) SL_MUST_CHECK;

/* Arbiter: a fresh, empty, sealed ledger. */
int sl_ledger_create(const uint8_t cookie[16], uint32_t gpu_count, struct sl_ledger_map *ret,
                     struct sl_err *err) SL_MUST_CHECK;

/* Tenant: takes the received descriptors, checks them, maps them. On failure the caller keeps fd. Refuses another
 * magic, version or size: -EPROTO, saying which side to upgrade. */
int sl_lease_attach(int fd, struct sl_lease_map *ret, struct sl_err *err) SL_MUST_CHECK;

/* Both sides. `cookie` non-NULL must match (an arbiter adopting a ledger after a restart). The
 * descriptor must be a memfd sealed against shrinking, or a truncation could kill the reader. */
int sl_ledger_attach(int fd, const uint8_t *cookie, struct sl_ledger_map *ret,
                     struct sl_err *err) SL_MUST_CHECK;

/* Is this memory that cannot change its size, as our pages are? The check never blocks for any descriptor, and closing
 * a descriptor that passes does not block either. */
bool sl_page_fd(int fd);

/* Accept NULL and empty maps; unmap and close. */
void sl_lease_close(struct sl_lease_map *map);
void sl_ledger_close(struct sl_ledger_map *map);

#endif
