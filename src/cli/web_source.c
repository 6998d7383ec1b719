/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web_source.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "cli/status_words.h"
#include "policy/place.h"
#include "share/share.h"

#define MIB_OF(bytes) ((bytes) >> 20)

/* The part of a tenant on this GPU; -1: it is not there. */
static int gpu_of(const struct sl_msg_tenant *m, const char *uuid)
{
    for (uint32_t i = 0; i < m->gpu_count; i++)
        if (strcmp(m->gpu[i].uuid, uuid) == 0)
            return (int)i;
    return -1;
}

static void each_tenant(const struct sl_page_source *s, const struct sl_page_card *card,
                        sl_page_tenant_fn *each, void *to)
{
    const struct sl_client_status *status = s->data;
    for (size_t i = 0; i < status->tenant_count; i++) {
        const struct sl_msg_tenant *m = &status->tenant[i];
        char user[64] = "", pod[SL_ABOUT_MAX];
        int g = gpu_of(m, card->uuid);
        if (g < 0)
            continue;
        if (m->h.option)
            (void)sl_status_user(m, user, sizeof(user));
        (void)sl_status_pod(m->about, pod, sizeof(pod));
        bool no_limit = m->gpu[g].limit_bytes == SL_NO_LIMIT;
        const struct sl_page_tenant t = {
            .name = m->name,
            .space = pod[0]    ? pod
                     : user[0] ? user
                               : NULL,
            .state = m->flags & SL_LEASE_PAUSED ? "paused" : NULL,
            .priority = sl_priority_name(m->priority),
            .memory_mib = no_limit ? 0 : MIB_OF(m->gpu[g].limit_bytes),
            .no_limit = no_limit,
            .used_mib = (int64_t)MIB_OF(m->gpu[g].used_bytes + m->gpu[g].overhead_bytes),
            .cores_permille = m->cores_request_permille,
            .limit_permille = m->cores_limit_permille,
            .got_permille = (int32_t)m->share_1s_permille,
            .processes = m->processes};
        each(to, &t);
    }
}

static void each_waiter(const struct sl_page_source *s, size_t from, size_t count,
                        sl_page_waiter_fn *each, void *to)
{
    const struct sl_client_status *status = s->data;
    for (size_t i = from; i < status->waiter_count && i - from < count; i++) {
        const struct sl_msg_waiter *m = &status->waiter[i];
        bool memory = m->fields & SL_FIELD_MEMORY, cores = m->fields & SL_FIELD_CORES;
        const struct sl_page_waiter w = {
            .name = m->name[0] ? m->name : "a command without a name",
            .why = m->why,
            .waited_ns = m->waited_ns,
            .memory_mib = memory && !m->memory_percent ? MIB_OF(m->memory_bytes) : 0,
            .memory_percent = memory ? m->memory_percent : 0,
            .cores_permille = cores ? m->cores_request_permille : 0,
            .limit_permille = cores ? m->cores_limit_permille : 0,
            .gpus = m->wanted};
        each(to, &w);
    }
}

static int32_t got_of(const struct sl_client_status *status, const char *uuid)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < status->tenant_count; i++)
        if (gpu_of(&status->tenant[i], uuid) >= 0)
            sum += status->tenant[i].share_1s_permille;
    return (int32_t)(sum < 1000 ? sum : 1000);
}

static struct sl_page_card *cards_of(const struct sl_client_status *status)
{
    struct sl_page_card *list = sl_xcalloc(status->gpu_count + 1, sizeof(*list));
    for (size_t i = 0; i < status->gpu_count; i++) {
        const struct sl_msg_gpu *g = &status->gpu[i];
        uint64_t taken = g->promised_bytes < g->total_bytes ? g->promised_bytes : g->total_bytes;
        list[i] = (struct sl_page_card){
            .node = "",
            .index = g->index,
            .uuid = g->uuid,
            .model = g->name,
            .memory_mib = MIB_OF(g->total_bytes),
            .free_mib = MIB_OF(g->total_bytes - taken),
            .used_mib = (int64_t)MIB_OF(g->used_bytes),
            .free_permille = g->promised_permille < 1000 ? 1000 - g->promised_permille : 0,
            .got_permille = got_of(status, g->uuid)};
    }
    return list;
}

char *sl_web_data(const struct sl_status_view *view, const struct sl_page_ask *ask,
                  size_t *ret_size)
{
    struct sl_client_status status = *view->status;
    struct sl_page_card *cards SL_CLEANUP(free) = cards_of(&status);
    const struct sl_page_source s = {
        .kind = "machine",
        .title = "GPUs of this machine",
        .note = view->running ? NULL
                              : "No arbiter is running, so there are no tenants. `sluice run` "
                                "starts it.",
        .simulated = view->sim,
        .cards = cards,
        .card_count = status.gpu_count,
        .nodes = 1,
        .tenants = status.tenant_count,
        .waiting = status.waiter_count,
        .each_tenant = each_tenant,
        .each_waiter = each_waiter,
        .data = &status};
    return sl_page_data(&s, ask, ret_size);
}

/* As the arbiter decides: a request that says how much it takes is packed, another one goes where most is left. */
static enum sl_place_policy policy_for(const struct sl_page_want *want)
{
    bool memory = want->memory_bytes || want->memory_percent;
    return memory && want->cores_permille ? SL_PLACE_SLUICE : SL_PLACE_SPREAD;
}

char *sl_web_fit(const struct sl_status_view *view, const struct sl_page_want *want,
                 size_t *ret_size)
{
    size_t count = view->status->gpu_count, n = 0, chosen[16];
    struct sl_page_card *cards SL_CLEANUP(free) = cards_of(view->status);
    struct sl_place_card *left SL_CLEANUP(free) = sl_xcalloc(count + 1, sizeof(*left));
    const struct sl_page_card **fits SL_CLEANUP(free) =
        sl_xcalloc(count + 1, sizeof(struct sl_page_card *));
    struct sl_page_place place = {.by = "engine", .cards = count};
    uint64_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t mib = want->memory_percent ? cards[i].memory_mib * want->memory_percent / 100
                                            : MIB_OF(want->memory_bytes);
        largest = cards[i].memory_mib > largest ? cards[i].memory_mib : largest;
        if (!sl_page_card_fits(&cards[i], want))
            continue;
        left[n] =
            (struct sl_place_card){.memory_bytes = (cards[i].free_mib - mib) << 20,
                                   .cores_permille = cards[i].free_permille - want->cores_permille};
        fits[n++] = &cards[i];
    }
    place.fitting = n;
    if (n &&
        sl_place_cards(policy_for(want), left, n, largest << 20, want->gpus, chosen, NULL) == 0)
        place.node = "";
    for (unsigned i = 0; place.node && i < want->gpus; i++) {
        const struct sl_page_card *c = fits[chosen[i]];
        place.card[i].index = c->index;
        place.card[i].uuid = c->uuid;
        place.card[i].model = c->model;
        place.card_count++;
    }
    if (!place.node)
        place.why = !count ? "no arbiter runs that knows the GPUs"
                    : n    ? "too few GPUs have room"
                           : "no GPU has so much memory and time left";
    return sl_page_fit(want, &place, ret_size);
}
