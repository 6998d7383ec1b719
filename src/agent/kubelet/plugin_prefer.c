/* SPDX-License-Identifier: Apache-2.0 */
/* Translates kubelet's ids to the policy's numbers, and back. */
#include "agent/kubelet/errors.h"
#include "agent/kubelet/plugin_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/xalloc.h"

enum mark { MARK_NONE, MARK_AVAILABLE, MARK_MUST };

/* An unknown available id comes from an older list of kubelet's: ignore it, the newer list is on its way. An unknown id
 * that must be taken is an error. */
static int mark_ids(const struct plugin_devices *d, char *const *available, size_t available_count,
                    char *const *must, size_t must_count, uint8_t *marks, struct sl_err *err)
{
    for (size_t i = 0; i < available_count; i++) {
        size_t at = sl_plugin_devices_find(d, available[i]);
        if (at != SIZE_MAX)
            marks[at] = MARK_AVAILABLE;
    }
    for (size_t i = 0; i < must_count; i++) {
        size_t at = sl_plugin_devices_find(d, must[i]);
        if (at == SIZE_MAX)
            return sl_err_set(err, -ENOENT, SL_E_DEVICE_NOT_OFFERED, d->res.name, must[i]);
        marks[at] = MARK_MUST;
    }
    return 0;
}

static int prefer_whole(const struct plugin *p, const uint8_t *marks, size_t size, char **ret,
                        struct sl_err *err)
{
    const struct plugin_devices *d = &p->devices;
    const struct plugin_cards *cards = &p->owner->cards;
    size_t n = d->res.device_count, free_count = 0, must_count = 0;
    SL_CLEANUP(free) size_t *gpus = sl_xcalloc(n + 1, sizeof(*gpus));
    SL_CLEANUP(free) size_t *must = sl_xcalloc(n + 1, sizeof(*must));
    SL_CLEANUP(free) size_t *chosen = sl_xcalloc(n + 1, sizeof(*chosen));
    SL_CLEANUP(free) size_t *device_of = sl_xcalloc(cards->count + 1, sizeof(*device_of));
    for (size_t i = 0; i < n; i++) {
        device_of[d->res.device[i].gpu] = i;
        if (marks[i] == MARK_AVAILABLE)
            gpus[free_count++] = d->res.device[i].gpu;
        else if (marks[i] == MARK_MUST)
            must[must_count++] = d->res.device[i].gpu;
    }
    const struct sl_prefer_topology topology = {
        .gpu_count = cards->count, .links = cards->links, .numa = cards->numa};
    if (size > n)
        return sl_err_set(err, -ERANGE, SL_E_PREFER_IMPOSSIBLE, size, must_count,
                          must_count + free_count);
    int rc = sl_prefer_whole(&topology, gpus, free_count, must, must_count, size, chosen, err);
    for (size_t i = 0; rc == 0 && i < size; i++)
        ret[i] = d->res.device[device_of[chosen[i]]].id;
    return rc;
}

/* Shares of one card under MPS in one container are one larger share; shares of two cards are refused. */
static bool one_card(const struct plugin_devices *d)
{
    for (size_t i = 0; i < d->res.device_count; i++)
        if (d->res.device[i].sharing == SL_SHARING_MPS)
            return true;
    return false;
}

static int prefer_shares(const struct plugin *p, const uint8_t *marks, size_t size, char **ret,
                         struct sl_err *err)
{
    const struct plugin_devices *d = &p->devices;
    SL_CLEANUP(free) struct sl_prefer_unit *units = sl_xcalloc(d->unit_count + 1, sizeof(*units));
    SL_CLEANUP(free) unsigned *take = sl_xcalloc(d->unit_count + 1, sizeof(*take));
    for (size_t i = 0; i < d->unit_count; i++)
        units[i] = (struct sl_prefer_unit){.gpu = d->units[i].gpu, .used = d->units[i].replicas};
    for (size_t i = 0; i < d->res.device_count; i++) {
        struct sl_prefer_unit *u = &units[d->unit_of[i]];
        if (marks[i] == MARK_NONE)
            continue;
        u->used--;
        u->free++;
        u->must += marks[i] == MARK_MUST;
    }
    enum sl_prefer_share how = p->owner->options.share_policy == SL_POLICY_PACKED
                                   ? SL_PREFER_PACKED
                                   : SL_PREFER_DISTRIBUTED;
    if (!one_card(d) || !sl_prefer_together(how, units, d->unit_count, size, take)) {
        int rc =
            sl_prefer_shares(how, units, d->unit_count, p->owner->cards.count, size, take, err);
        if (rc < 0)
            return rc;
    }
    size_t n = 0;
    for (enum mark pass = MARK_MUST; pass > MARK_NONE; pass--)
        for (size_t i = 0; i < d->res.device_count; i++)
            if (marks[i] == pass && take[d->unit_of[i]] > 0) {
                take[d->unit_of[i]]--;
                ret[n++] = d->res.device[i].id;
            }
    return 0;
}

int sl_plugin_prefer(struct plugin *p, char *const *available, size_t available_count,
                     char *const *must, size_t must_count, size_t size, char **ret,
                     struct sl_err *err)
{
    SL_CLEANUP(free) uint8_t *marks = sl_xcalloc(p->devices.res.device_count + 1, sizeof(*marks));
    int rc = mark_ids(&p->devices, available, available_count, must, must_count, marks, err);
    if (rc < 0)
        return rc;
    return p->devices.whole ? prefer_whole(p, marks, size, ret, err)
                            : prefer_shares(p, marks, size, ret, err);
}
