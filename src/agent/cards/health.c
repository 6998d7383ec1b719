/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cards/health.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/units.h"
#include "base/xalloc.h"

#define STRIKE_MEMORY_NS (3600 * SL_NS_PER_S) /* errors this old do not count against a card */
#define STRIKES_MAX      5                    /* the quiet time doubles that often at most */
#define REFRESH_APART_NS (5 * SL_NS_PER_S)    /* XID storms ask NVML no oftener */
#define REFRESH_LATER_NS (10 * SL_NS_PER_S)   /* an answer still missing is asked for again */

/* A card or a MIG device. */
struct thing {
    char uuid[SL_GPU_UUID_SIZE], card[SL_GPU_UUID_SIZE];
    bool mig;
    uint32_t gpu_instance, compute_instance;
    bool seen; /* in the reading at hand */

    bool lost, no_driver;
    bool hit; /* by an XID, and not yet over it */
    uint64_t xid, hit_ns;
    bool reset;    /* one of the XIDs since it was healthy calls for a reset */
    bool was_gone; /* it stopped answering since: that was, or will be, the reset */
    unsigned strikes;
    uint64_t answer_ns; /* the last question it answered was put then; 0: none */

    bool healthy; /* as told */
    char reason[320];
};

struct sl_health {
    struct sl_loop *loop;
    struct sl_health_ops ops;
    void *data;
    bool (*ignored)(void *data, uint64_t xid);
    uint64_t quiet_ns, reset_quiet_ns;
    struct sl_timer timer;
    uint64_t refresh_ns; /* when a reading was last asked for */
    bool refreshed;
    struct thing *things;
    size_t count, room;
};

static bool application_xid(void *data, uint64_t xid)
{
    (void)data;
    const struct sl_health_xid_kind *kind = sl_health_xid_kind(xid);
    return kind && kind->application;
}

static struct thing *find(const struct sl_health *h, const char *uuid)
{
    for (size_t i = 0; i < h->count; i++)
        if (strcmp(h->things[i].uuid, uuid) == 0)
            return &h->things[i];
    return NULL;
}

static void want_refresh(struct sl_health *h)
{
    uint64_t now = sl_loop_now(h->loop);
    if (h->refreshed && now - h->refresh_ns < REFRESH_APART_NS)
        return;
    h->refreshed = true;
    h->refresh_ns = now;
    if (h->ops.refresh)
        h->ops.refresh(h->data);
}

/* How long without another XID until it is trusted again. */
static uint64_t quiet_for(const struct sl_health *h, const struct thing *t)
{
    uint64_t quiet = t->reset && !t->was_gone ? h->reset_quiet_ns : h->quiet_ns;
    for (unsigned i = 1; i < t->strikes && quiet < STRIKE_MEMORY_NS; i++)
        quiet *= 2;
    return quiet;
}

static uint64_t quiet_until(const struct sl_health *h, const struct thing *t)
{
    uint64_t quiet = quiet_for(h, t);
    return quiet > UINT64_MAX - t->hit_ns ? UINT64_MAX : t->hit_ns + quiet;
}

/* Is the XID over? After one that calls for a reset only a question put after the quiet time
 * counts: a card may answer for a while before it does not. */
static bool recovered(const struct sl_health *h, const struct thing *t)
{
    uint64_t until = quiet_until(h, t);
    return sl_loop_now(h->loop) >= until && t->answer_ns >= t->hit_ns &&
           (!t->reset || t->answer_ns >= until);
}

static void bad_reason(const struct sl_health *h, struct thing *t)
{
    char after[32];
    const char *name = t->mig ? "MIG device" : "GPU";
    if (t->no_driver)
        return; /* said by whoever knew */
    if (t->lost) {
        (void)snprintf(t->reason, sizeof(t->reason),
                       "%s %s does not answer: it fell off the bus or is being reset; it is "
                       "healthy again when it answers",
                       name, t->uuid);
        return;
    }
    const struct sl_health_xid_kind *kind = sl_health_xid_kind(t->xid);
    (void)snprintf(t->reason, sizeof(t->reason),
                   "%s %s: XID %" PRIu64 "%s%s%s; %sit is healthy again after %s without another "
                   "XID",
                   name, t->uuid, t->xid, kind ? " (" : "", kind ? kind->words : "",
                   kind ? ")" : "", t->reset ? "the card should be reset (nvidia-smi -r); " : "",
                   sl_format_duration(quiet_for(h, t), after, sizeof(after)));
}

/* Says what has become of it, once. */
static void settle(struct sl_health *h, struct thing *t)
{
    bool healthy = !t->lost && !t->no_driver && !t->hit;
    if (!healthy)
        bad_reason(h, t);
    if (healthy == t->healthy)
        return;
    t->healthy = healthy;
    if (healthy)
        (void)snprintf(t->reason, sizeof(t->reason), "%s %s is healthy again: it answers%s",
                       t->mig ? "MIG device" : "GPU", t->uuid,
                       t->hit_ns ? " and had no further XID" : "");
    if (h->ops.changed)
        h->ops.changed(h->data, t->uuid, healthy, t->reason);
}

static void forgive(struct thing *t)
{
    t->hit = t->reset = t->was_gone = false;
}

/* Lets go what is over, and sets the alarm for what is not. */
static void review(struct sl_health *h)
{
    uint64_t now = sl_loop_now(h->loop), next = UINT64_MAX;
    for (size_t i = 0; i < h->count; i++) {
        struct thing *t = &h->things[i];
        if (t->hit && recovered(h, t))
            forgive(t);
        settle(h, t);
        if (!t->hit)
            continue;
        uint64_t at = quiet_until(h, t);
        if (at <= now) { /* quiet long enough; only the answer is missing */
            want_refresh(h);
            at = now + REFRESH_LATER_NS;
        }
        if (at < next)
            next = at;
    }
    if (next != UINT64_MAX)
        sl_timer_set(h->loop, &h->timer, next);
    else
        sl_timer_stop(h->loop, &h->timer);
}

static void timer_fire(struct sl_timer *timer)
{
    review(sl_container_of(timer, struct sl_health, timer));
}

/* ---- XIDs ---- */

static void hit(struct sl_health *h, struct thing *t, uint64_t xid)
{
    const struct sl_health_xid_kind *kind = sl_health_xid_kind(xid);
    uint64_t now = sl_loop_now(h->loop);
    bool reset = kind && kind->reset;
    if (!t->hit) { /* one more time that it fell ill, not one more line of the same illness */
        if (t->hit_ns && now - t->hit_ns > STRIKE_MEMORY_NS)
            t->strikes = 0;
        if (t->strikes < STRIKES_MAX)
            t->strikes++;
    }
    /* The graver error names the illness. */
    if (!t->hit || reset || !t->reset)
        t->xid = xid;
    t->hit = true;
    t->hit_ns = now;
    t->was_gone = t->was_gone && !reset;
    t->reset = t->reset || reset;
}

static bool concerns(const struct thing *t, const struct sl_gpu_event *e)
{
    return t->mig && t->gpu_instance == e->gpu_instance &&
           (e->compute_instance == SL_GPU_NO_INSTANCE ||
            t->compute_instance == e->compute_instance);
}

void sl_health_xid(struct sl_health *h, const char *uuid, const struct sl_gpu_event *e)
{
    if (h->ignored(h->data, e->xid))
        return;
    if (!uuid) { /* some card, nobody knows which: the reading that follows shows it */
        want_refresh(h);
        return;
    }
    const struct sl_health_xid_kind *kind = sl_health_xid_kind(e->xid);
    bool whole = e->gpu_instance == SL_GPU_NO_INSTANCE || (kind && kind->whole_card), any = false;
    for (size_t i = 0; !whole && i < h->count; i++)
        any = any || (strcmp(h->things[i].card, uuid) == 0 && concerns(&h->things[i], e));
    whole = whole || !any; /* an instance we do not know: nobody on the card is safe */
    for (size_t i = 0; i < h->count; i++) {
        struct thing *t = &h->things[i];
        if (strcmp(t->card, uuid) == 0 && (whole || concerns(t, e)))
            hit(h, t, e->xid);
    }
    want_refresh(h);
    review(h);
}

/* ---- readings ---- */

static struct thing *learn(struct sl_health *h, const char *uuid, const char *card)
{
    struct thing *t = find(h, uuid);
    if (t)
        return t;
    if (h->count == h->room) {
        h->room = h->room ? h->room * 2 : 8;
        h->things = sl_xreallocarray(h->things, h->room, sizeof(*h->things));
    }
    t = &h->things[h->count++];
    *t = (struct thing){.healthy = true};
    (void)snprintf(t->uuid, sizeof(t->uuid), "%s", uuid);
    (void)snprintf(t->card, sizeof(t->card), "%s", card);
    return t;
}

static void observe(struct thing *t, const struct sl_inv_gpu *gpu, uint64_t asked_ns)
{
    t->seen = true;
    t->no_driver = false;
    t->lost = gpu->lost;
    if (!gpu->lost)
        t->answer_ns = asked_ns;
    else if (t->hit)
        t->was_gone = true;
}

void sl_health_polled(struct sl_health *h, const struct sl_inventory *inv, uint64_t asked_ns)
{
    for (size_t i = 0; i < h->count; i++)
        h->things[i].seen = false;
    for (size_t i = 0; i < inv->gpu_count; i++) {
        const struct sl_inv_gpu *gpu = &inv->gpu[i];
        const char *card = gpu->info.uuid;
        struct thing *t = learn(h, card, card);
        observe(t, gpu, asked_ns);
        for (size_t k = 0; k < gpu->mig_count; k++) {
            const struct sl_gpu_mig_info *mig = &gpu->mig[k].info;
            t = learn(h, mig->uuid, card);
            t->mig = true;
            t->gpu_instance = mig->gpu_instance;
            t->compute_instance = mig->compute_instance;
            observe(t, gpu, asked_ns);
        }
    }
    size_t kept = 0; /* MIG devices that were destroyed are nobody's business any more */
    for (size_t i = 0; i < h->count; i++)
        if (h->things[i].seen)
            h->things[kept++] = h->things[i];
    h->count = kept;
    review(h);
}

void sl_health_no_driver(struct sl_health *h, const struct sl_err *why)
{
    for (size_t i = 0; i < h->count; i++) {
        struct thing *t = &h->things[i];
        t->no_driver = true;
        (void)snprintf(t->reason, sizeof(t->reason), "%s %s: the driver is not loaded: %.160s",
                       t->mig ? "MIG device" : "GPU", t->uuid, why->msg);
    }
    review(h);
}

void sl_health_reload(struct sl_health *h)
{
    for (size_t i = 0; i < h->count; i++)
        if (h->things[i].hit && h->ignored(h->data, h->things[i].xid))
            forgive(&h->things[i]);
    review(h);
}

void sl_health_set_quiet(struct sl_health *h, uint64_t quiet_ns, uint64_t reset_quiet_ns)
{
    h->quiet_ns = quiet_ns;
    h->reset_quiet_ns = reset_quiet_ns;
    review(h);
}

bool sl_health_ok(const struct sl_health *h, const char *uuid, const char **ret_reason)
{
    const struct thing *t = find(h, uuid);
    if (ret_reason)
        *ret_reason = t ? t->reason : "the card has not been seen on this node";
    return t && t->healthy;
}

/* ---- life ---- */

struct sl_health *sl_health_create(struct sl_loop *loop, const struct sl_health_options *options,
                                   const struct sl_health_ops *ops, void *data)
{
    struct sl_health *h = sl_xcalloc(1, sizeof(*h));
    h->loop = loop;
    h->ops = *ops;
    h->data = data;
    h->ignored = options->ignored ? options->ignored : application_xid;
    h->quiet_ns = options->quiet_ns ? options->quiet_ns : 60 * SL_NS_PER_S;
    h->reset_quiet_ns = options->reset_quiet_ns ? options->reset_quiet_ns : 300 * SL_NS_PER_S;
    h->timer.fire = timer_fire;
    return h;
}

void sl_health_destroy(struct sl_health *h)
{
    if (!h)
        return;
    sl_timer_stop(h->loop, &h->timer);
    free(h->things);
    free(h);
}
