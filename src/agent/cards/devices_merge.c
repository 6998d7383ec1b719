/* SPDX-License-Identifier: Apache-2.0 */
/* A card that stops answering keeps its name and its place: pods hold devices by them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cards/devices_internal.h"
#include "base/cleanup.h"

static size_t find_gpu(const struct sl_inventory *inv, const char *uuid)
{
    for (size_t i = 0; inv && i < inv->gpu_count; i++)
        if (strcmp(inv->gpu[i].info.uuid, uuid) == 0)
            return i;
    return SIZE_MAX;
}

/* `to` is lost: it becomes what `from` was. */
static int recall(struct sl_inv_gpu *to, const struct sl_inv_gpu *from)
{
    struct sl_inv_mig *mig = NULL;
    if (from->mig_count) {
        mig = reallocarray(NULL, from->mig_count, sizeof(*mig));
        if (!mig)
            return -ENOMEM;
        memcpy(mig, from->mig, from->mig_count * sizeof(*mig));
    }
    free(to->mig);
    *to = *from;
    to->mig = mig;
    to->lost = true;
    return 0;
}

static int recall_lost(const struct sl_inventory *before, char (*uuids)[SL_GPU_UUID_SIZE],
                       struct sl_inventory *fresh)
{
    for (size_t i = 0; i < fresh->gpu_count; i++) {
        struct sl_inv_gpu *g = &fresh->gpu[i];
        if (!g->lost)
            continue;
        size_t old = uuids[i][0] ? find_gpu(before, uuids[i]) : SIZE_MAX;
        if (old != SIZE_MAX && recall(g, &before->gpu[old]) < 0)
            return -ENOMEM;
    }
    return 0;
}

struct place {
    size_t old, now; /* index in before and in fresh; SIZE_MAX: not in it */
};

static size_t make_places(const struct sl_inventory *before, const struct sl_inventory *fresh,
                          struct place *places)
{
    size_t n = 0;
    for (size_t i = 0; before && i < before->gpu_count; i++)
        places[n++] = (struct place){i, find_gpu(fresh, before->gpu[i].info.uuid)};
    for (size_t i = 0; i < fresh->gpu_count; i++) {
        const char *uuid = fresh->gpu[i].info.uuid;
        if (uuid[0] && find_gpu(before, uuid) == SIZE_MAX)
            places[n++] = (struct place){SIZE_MAX, i};
    }
    return n;
}

static uint8_t links(const struct sl_inventory *before, const struct sl_inventory *fresh,
                     const struct place *a, const struct place *b)
{
    if (a->now != SIZE_MAX && b->now != SIZE_MAX)
        return fresh->nvlinks ? fresh->nvlinks[a->now * fresh->gpu_count + b->now] : 0;
    if (a->old != SIZE_MAX && b->old != SIZE_MAX)
        return before->nvlinks ? before->nvlinks[a->old * before->gpu_count + b->old] : 0;
    return 0;
}

int sl_devices_merge(const struct sl_inventory *before, char (*uuids)[SL_GPU_UUID_SIZE],
                     struct sl_inventory *fresh)
{
    if (recall_lost(before, uuids, fresh) < 0)
        return -ENOMEM;
    size_t most = fresh->gpu_count + (before ? before->gpu_count : 0);
    SL_CLEANUP(free) struct place *places = calloc(most + 1, sizeof(*places));
    SL_CLEANUP(free) struct sl_inv_gpu *gpu = calloc(most + 1, sizeof(*gpu));
    SL_CLEANUP(free) uint8_t *nvlinks = NULL;
    if (!places || !gpu)
        return -ENOMEM;
    size_t n = make_places(before, fresh, places), gone = 0;
    nvlinks = calloc(n * n + 1, sizeof(*nvlinks));
    if (!nvlinks)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (before && places[i].now == SIZE_MAX && recall(&gpu[i], &before->gpu[places[i].old]) < 0) {
            while (i-- > 0)
                if (places[i].now == SIZE_MAX)
                    free(gpu[i].mig);
            return -ENOMEM;
        }
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
    fresh->gpu = sl_take_ptr(gpu);
    fresh->nvlinks = sl_take_ptr(nvlinks);
    fresh->gpu_count = n;
    return (int)gone;
}
