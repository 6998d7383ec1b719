/* SPDX-License-Identifier: Apache-2.0 */
/* A card that stops answering keeps its name and its place: pods hold devices by both. */
#include <stdlib.h>
#include <string.h>

#include "agent/cards/devices_internal.h"
#include "base/cleanup.h"
#include "base/xalloc.h"

/* `to` is lost: it gets the data of `from`. */
static void recall(struct sl_inv_gpu *to, const struct sl_inv_gpu *from)
{
    struct sl_inv_mig *mig = NULL;
    if (from->mig_count) {
        mig = sl_xreallocarray(NULL, from->mig_count, sizeof(*mig));
        memcpy(mig, from->mig, from->mig_count * sizeof(*mig));
    }
    free(to->mig);
    *to = *from;
    to->mig = mig;
    to->lost = true;
}

static void recall_lost(const struct sl_inventory *before, char (*uuids)[SL_GPU_UUID_SIZE],
                        struct sl_inventory *fresh)
{
    for (size_t i = 0; i < fresh->gpu_count; i++) {
        struct sl_inv_gpu *g = &fresh->gpu[i];
        if (!g->lost)
            continue;
        size_t old = uuids[i][0] ? sl_inventory_find(before, uuids[i]) : SIZE_MAX;
        if (old != SIZE_MAX)
            recall(g, &before->gpu[old]);
    }
}

struct place {
    size_t old, now; /* index in before and in fresh; SIZE_MAX: absent */
};

static size_t make_places(const struct sl_inventory *before, const struct sl_inventory *fresh,
                          struct place *places)
{
    size_t n = 0;
    for (size_t i = 0; before && i < before->gpu_count; i++)
        places[n++] = (struct place){i, sl_inventory_find(fresh, before->gpu[i].info.uuid)};
    for (size_t i = 0; i < fresh->gpu_count; i++) {
        const char *uuid = fresh->gpu[i].info.uuid;
        if (uuid[0] && sl_inventory_find(before, uuid) == SIZE_MAX)
            places[n++] = (struct place){SIZE_MAX, i};
    }
    return n;
}

static uint8_t links(const struct sl_inventory *before, const struct sl_inventory *fresh,
                     const struct place *a, const struct place *b)
{
    if (a->now != SIZE_MAX && b->now != SIZE_MAX)
        return fresh->nvlinks ? fresh->nvlinks[a->now * fresh->gpu_count + b->now] : 0;
    if (before && a->old != SIZE_MAX && b->old != SIZE_MAX)
        return before->nvlinks ? before->nvlinks[a->old * before->gpu_count + b->old] : 0;
    return 0;
}

size_t sl_devices_merge(const struct sl_inventory *before, char (*uuids)[SL_GPU_UUID_SIZE],
                        struct sl_inventory *fresh)
{
    recall_lost(before, uuids, fresh);
    size_t most = fresh->gpu_count + (before ? before->gpu_count : 0);
    SL_CLEANUP(free) struct place *places = sl_xcalloc(most + 1, sizeof(*places));
    struct sl_inv_gpu *gpu = sl_xcalloc(most + 1, sizeof(*gpu));
    size_t n = make_places(before, fresh, places), gone = 0;
    uint8_t *nvlinks = sl_xcalloc(n * n + 1, sizeof(*nvlinks));
    for (size_t i = 0; i < n; i++) {
        if (before && places[i].now == SIZE_MAX)
            recall(&gpu[i], &before->gpu[places[i].old]);
        for (size_t j = 0; j < n; j++)
            nvlinks[i * n + j] = links(before, fresh, &places[i], &places[j]);
    }
    for (size_t i = 0; i < n; i++)
        if (places[i].now != SIZE_MAX)
            gpu[i] = fresh->gpu[places[i].now];
    for (size_t i = 0; i < fresh->gpu_count; i++)
        if (!fresh->gpu[i].info.uuid[0]) {
            free(fresh->gpu[i].mig);
            gone++;
        }
    free(fresh->gpu);
    free(fresh->nvlinks);
    fresh->gpu = gpu;
    fresh->nvlinks = nvlinks;
    fresh->gpu_count = n;
    return gone;
}
