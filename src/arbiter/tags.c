/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that keep shared memory when no process maps it: the arbiter looks for their tags. */
#include "arbiter/arbiter_internal.h"

#include "base/clock.h"
#include "shm/tag.h"

/* One reading of the kernel's list serves all questions of the same time. */
#define FRESH_NS (20 * SL_NS_PER_MS)
#define ROOM     4096

static struct {
    uint64_t id[ROOM];
    size_t count;
    uint64_t read_ns;
    bool complete;
} tags;

bool sl_arb_descriptor_exists(uint64_t id)
{
    uint64_t now = sl_now_ns();
    if (tags.read_ns == 0 || now - tags.read_ns > FRESH_NS) {
        tags.complete = sl_tag_list(tags.id, ROOM, &tags.count);
        tags.read_ns = now;
    }
    for (size_t i = 0; i < tags.count; i++)
        if (tags.id[i] == id)
            return true;
    return !tags.complete;
}
