/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cards/health.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/units.h"
#include "base/xalloc.h"

#define STRIKE_MEMORY_NS (3600 * SL_NS_PER_S) /* errors this old do not count against a card */
#define STRIKES_MAX      5                    /* the quiet time doubles that often at most */
#define REFRESH_APART_NS (5 * SL_NS_PER_S)    /* XID storms read NVML no more often */
#define REFRESH_LATER_NS (10 * SL_NS_PER_S)   /* ask again if there is still no answer */

/* The known XIDs, by number: how long a card is held back, and a text for people. An unknown XID counts as an error of
 * the card, without a text. */
static const struct xid_kind {
    uint64_t xid;
    const char *words;
    bool reset;      /* the card does not work again before it is reset */
    bool whole_card; /* also if it names one MIG instance */
} kinds[] = {
    {13, "a program's kernel raised an exception", .reset = false},
    {31, "a program touched memory it does not have", .reset = false},
    {43, "a program's work was stopped after an error", .reset = false},
    {45, "a program's work was cleaned up after it ended", .reset = false},
    {48, "uncorrectable memory error", .reset = true, .whole_card = true},
    {61, "the card's microcontroller stopped", .reset = true, .whole_card = true},
    {62, "the card's microcontroller halted", .reset = true, .whole_card = true},
    {63, "a memory row was marked for replacement", .reset = false},
    {64, "a memory row could not be replaced", .reset = true, .whole_card = true},
    {68, "a video decoder raised an exception", .reset = false},
    {69, "the compute engine raised a class error", .reset = false},
    {74, "NVLink error", .reset = true, .whole_card = true},
    {79, "the card has fallen off the bus", .reset = true, .whole_card = true},
    {92, "many corrected memory errors", .reset = false},
    {94, "uncorrectable memory error, contained in one program", .reset = true},
    {95, "uncorrectable memory error, not contained", .reset = true, .whole_card = true},
    {109, "a program's context did not switch in time", .reset = false},
    {110, "security fault", .reset = true, .whole_card = true},
    {119, "the card's system processor did not answer", .reset = true, .whole_card = true},
    {120, "the card's system processor failed", .reset = true, .whole_card = true},
    {136, "NVLink training failed", .reset = true, .whole_card = true},
    {140, "uncorrectable memory errors, not recovered", .reset = true, .whole_card = true},
    {143, "the card did not initialise", .reset = true, .whole_card = true},
    {154, "the driver changed what it advises for the card", .reset = false},
};

static const struct xid_kind *kind_of(uint64_t xid)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(kinds); i++)
        if (kinds[i].xid == xid)
            return &kinds[i];
    return NULL;
}

/* A card or a MIG device. */
struct thing {
    char uuid[SL_GPU_UUID_SIZE], card[SL_GPU_UUID_SIZE];
    bool mig;
    uint32_t gpu_instance, compute_instance;
    bool seen; /* in the current reading */

    bool lost, no_driver;
    bool hit; /* by an XID, and not recovered yet */
    uint64_t xid, hit_ns;
    bool reset;    /* an XID since it was last healthy needs a reset */
    bool was_gone; /* it stopped answering since: that was the reset, or the reset follows */
    unsigned strikes;
    uint64_t answer_ns; /* loop time of the last question that it answered; 0: none */

    bool healthy; /* as reported */
    char reason[320];
};

struct sl_health {
    struct sl_loop *loop;
    struct sl_health_options opt;
    struct sl_timer timer;
    uint64_t refresh_ns; /* when a reading was last requested */
    bool refreshed;
    struct thing *things;
    size_t count, room;
};

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
    h->opt.refresh(h->opt.data);
}

/* The time without another XID until the device counts as healthy again. */
static uint64_t quiet_for(const struct sl_health *h, const struct thing *t)
{
    uint64_t quiet = t->reset && !t->was_gone ? h->opt.reset_quiet_ns : h->opt.quiet_ns;
    for (unsigned i = 1; i < t->strikes && quiet < STRIKE_MEMORY_NS; i++)
        quiet *= 2;
    return quiet;
}

static uint64_t quiet_until(const struct sl_health *h, const struct thing *t)
{
    uint64_t quiet = quiet_for(h, t);
    return quiet > UINT64_MAX - t->hit_ns ? UINT64_MAX : t->hit_ns + quiet;
}

/* Has the device recovered? After an XID that needs a reset, the device must answer a question that was asked after the
 * quiet time: a broken card may answer for a while. */
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
        return; /* sl_health_no_driver() wrote the reason */
    if (t->lost) {
        (void)snprintf(t->reason, sizeof(t->reason),
                       "%s %s does not answer: it fell off the bus or is being reset; it is "
                       "healthy again when it answers",
                       name, t->uuid);
        return;
    }
    const struct xid_kind *kind = kind_of(t->xid);
    (void)snprintf(t->reason, sizeof(t->reason),
                   "%s %s: XID %" PRIu64 "%s%s%s; %sit is healthy again after %s without another "
                   "XID",
                   name, t->uuid, t->xid, kind ? " (" : "", kind ? kind->words : "",
                   kind ? ")" : "", t->reset ? "the card should be reset (nvidia-smi -r); " : "",
                   sl_format_duration(quiet_for(h, t), after, sizeof(after)));
}

/* Reports once that the device became healthy or unhealthy. */
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
    h->opt.changed(h->opt.data, t->uuid, healthy, t->reason);
}

static void forgive(struct thing *t)
{
    t->hit = t->reset = t->was_gone = false;
}

/* Ends what is over, and sets the timer for the rest. */
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
        if (at <= now) { /* quiet for long enough; only the answer is missing */
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
    const struct xid_kind *kind = kind_of(xid);
    uint64_t now = sl_loop_now(h->loop);
    bool reset = kind && kind->reset;
    if (!t->hit) { /* a new failure, not another XID of the same failure */
        if (t->hit_ns && now - t->hit_ns > STRIKE_MEMORY_NS)
            t->strikes = 0;
        if (t->strikes < STRIKES_MAX)
            t->strikes++;
    }
    /* The reason names the graver error. */
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
    if (h->opt.ignored(h->opt.data, e->xid))
        return;
    if (!uuid) { /* the card is not known: the next reading shows it */
        want_refresh(h);
        return;
    }
    const struct xid_kind *kind = kind_of(e->xid);
    bool whole = e->gpu_instance == SL_GPU_NO_INSTANCE || (kind && kind->whole_card), any = false;
    for (size_t i = 0; !whole && i < h->count; i++)
        any = any || (strcmp(h->things[i].card, uuid) == 0 && concerns(&h->things[i], e));
    whole = whole || !any; /* an unknown instance: the whole card counts as hit */
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
    size_t kept = 0; /* MIG devices that were destroyed are forgotten */
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

void sl_health_reload(struct sl_health *h, uint64_t quiet_ns, uint64_t reset_quiet_ns)
{
    h->opt.quiet_ns = quiet_ns;
    h->opt.reset_quiet_ns = reset_quiet_ns;
    for (size_t i = 0; i < h->count; i++)
        if (h->things[i].hit && h->opt.ignored(h->opt.data, h->things[i].xid))
            forgive(&h->things[i]);
    review(h);
}

bool sl_health_ok(const struct sl_health *h, const char *uuid)
{
    const struct thing *t = find(h, uuid);
    return t && t->healthy;
}

/* ---- life ---- */

struct sl_health *sl_health_create(struct sl_loop *loop, const struct sl_health_options *options)
{
    struct sl_health *h = sl_xcalloc(1, sizeof(*h));
    h->loop = loop;
    h->opt = *options;
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
