/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lease that changes while its container runs: sluice-controller has resized the pod. It changes an annotation of our
 * Node then, and after a start everything may have changed: the pods of all slots are read again.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/fraction/fraction_internal.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "base/json_read.h"
#include "base/log.h"
#include "base/utf8.h"

/* The amounts as one number; never 0. A tenant without cores of its own may use all idle time. */
static uint64_t amounts(const struct sl_msg_lease *lease)
{
    bool cores = lease->cores_request_permille;
    uint64_t request = cores ? lease->cores_request_permille : 1;
    uint64_t limit = cores ? lease->cores_limit_permille : 1000;
    uint64_t hash = sl_hash_bytes(SL_HASH_START ^ (request << 32 | limit), lease->gpu_memory_bytes,
                                  lease->gpu_count * sizeof(lease->gpu_memory_bytes[0]));
    return hash | 1;
}

/* Takes the annotation with the outcome. outcome_new: it was written while this agent looked on. */
static void take_outcome(struct sl_fraction_slot *slot, const char *text)
{
    bool other = slot->looked && strcmp(slot->outcome, text) != 0;
    slot->outcome_new = other || (slot->outcome_new && slot->failures);
    slot->looked = true;
    sl_utf8_copy(slot->outcome, sizeof(slot->outcome), text);
}

void sl_fraction_slot_known(struct sl_fraction_slot *slot, const struct sl_msg_lease *lease,
                            const char *outcome)
{
    uint64_t now = amounts(lease);
    /* A tenant that was there already keeps what it was set to. */
    slot->unsure |= slot->known && slot->known != now;
    slot->known = now;
    take_outcome(slot, outcome);
}

/* A pod may have several slots: one of them speaks. */
static bool speaks(const struct sl_fraction_slot *slot)
{
    const struct sl_fraction_slot *s = slot->fraction->slots;
    while (strcmp(s->uid, slot->uid) != 0)
        s = s->next;
    return s == slot;
}

static void tell(const struct sl_fraction_slot *slot, bool warning, const char *text)
{
    const struct sl_fraction_options *opt = &slot->fraction->opt;
    if (opt->event)
        opt->event(opt->data, slot->space, slot->pod, slot->uid, warning,
                   warning ? "SluiceResizeFailed" : "SluiceResized", text);
}

static void tell_outcome(struct sl_fraction_slot *slot)
{
    struct sl_promise_resized r;
    if (!slot->outcome_new)
        return;
    slot->outcome_new = false;
    sl_promise_resized_parse(slot->outcome, &r);
    if (speaks(slot) && r.message[0])
        tell(slot, !r.done, r.message);
}

static void look_ended(struct sl_fraction_slot *slot)
{
    if (!slot->look_again)
        return;
    slot->look_again = false;
    sl_fraction_slot_look(slot);
}

/* --- trying again -------------------------------------------------------------------------------- */

static void look_fired(struct sl_timer *timer);

/* One timer for all slots, for the first of them that is due. */
static void set_timer(struct sl_fraction *f)
{
    uint64_t first = 0;
    for (const struct sl_fraction_slot *s = f->slots; s; s = s->next)
        if (s->look_at_ns && (!first || s->look_at_ns < first))
            first = s->look_at_ns;
    f->look.fire = look_fired;
    if (first)
        sl_timer_set(f->loop, &f->look, first);
    else
        sl_timer_stop(f->loop, &f->look);
}

static void look_fired(struct sl_timer *timer)
{
    struct sl_fraction *f = sl_container_of(timer, struct sl_fraction, look);
    uint64_t now = sl_loop_now(f->loop);
    for (struct sl_fraction_slot *s = f->slots; s; s = s->next)
        if (s->look_at_ns && s->look_at_ns <= now) {
            s->look_at_ns = 0;
            sl_fraction_slot_look(s);
        }
    set_timer(f);
}

static void try_later(struct sl_fraction_slot *slot)
{
    struct sl_fraction *f = slot->fraction;
    slot->failures++;
    slot->look_at_ns = sl_loop_now(f->loop) + sl_leases_again_ns(slot->failures);
    set_timer(f);
}

/* The tenant has what the lease says, or never will. */
static void settled(struct sl_fraction_slot *slot)
{
    slot->failures = 0;
    slot->told = false;
    slot->look_at_ns = 0;
}

/* --- changing the tenant ------------------------------------------------------------------------- */

static void failed(struct sl_fraction_slot *slot, int rc, const struct sl_err *err)
{
    bool may_pass = sl_leases_may_pass(rc);
    slot->unsure |= rc == -ETIMEDOUT;
    if (may_pass)
        try_later(slot);
    /* The tenant of a deleted pod may still occupy the room. */
    if (rc == -ENOSPC && slot->failures < SL_LEASES_TRIES)
        sl_fraction_sweep_all(slot->fraction);
    else if (!slot->told)
        sl_fraction_say(slot->fraction, "cannot resize a tenant", err);
    if (!may_pass) {
        settled(slot); /* the next look asks again */
        tell(slot, true, err->msg);
    } else if (slot->failures >= SL_LEASES_TRIES && !slot->told) {
        slot->told = true;
        tell(slot, true, err->msg);
    }
}

static void changed(void *data, int rc, const char *text, const struct sl_err *err)
{
    struct sl_fraction_slot *slot = data;
    slot->setting = false;
    if (rc < 0) {
        failed(slot, rc, err);
    } else {
        settled(slot);
        slot->known = slot->asked;
        slot->unsure = false;
        sl_info("%s: resized", slot->tenant);
        if (text && text[0])
            tell(slot, false, text);
        tell_outcome(slot);
    }
    look_ended(slot);
}

static void compare(struct sl_fraction_slot *slot, const json_t *pod)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_msg_lease lease;
    const char *outcome = sl_jget_note(pod, SL_PROMISE_RESIZED_KEY);
    bool resized = outcome || sl_jget_note(pod, SL_PROMISE_BEFORE_KEY);
    take_outcome(slot, outcome ? outcome : "");
    if (sl_fraction_slot_lease(slot, pod, &lease, &err) < 0) {
        sl_fraction_say(slot->fraction, "cannot read a lease again", &err);
        return;
    }
    uint64_t now = amounts(&lease);
    bool same = slot->known ? slot->known == now : !resized;
    if (same && !slot->unsure) {
        settled(slot);
        slot->known = now;
        tell_outcome(slot);
        return;
    }
    if (now != slot->asked)
        settled(slot); /* the failures were those of another lease */
    slot->asked = now;
    slot->setting = true;
    sl_leases_ask(slot->fraction->leases, &(struct sl_leases_item){SL_MSG_SET, &lease, NULL}, 1,
                  changed, slot);
}

static void got_pod(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct sl_fraction_slot *slot = data;
    slot->looking = NULL;
    if (status == 200 && strcmp(sl_kube_meta(body, "uid"), slot->uid) == 0 && !slot->removing)
        compare(slot, body);
    else if (status != 200 && status != 404) {
        sl_fraction_say(slot->fraction, "cannot find out whether a pod was resized", err);
        try_later(slot);
    }
    if (!slot->setting)
        look_ended(slot);
}

void sl_fraction_slot_look(struct sl_fraction_slot *slot)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_fraction *f = slot->fraction;
    char path[400];
    if (!f->kube || slot->claim[0] || slot->removing)
        return;
    if (slot->looking || slot->setting) {
        slot->look_again = true;
        return;
    }
    (void)snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s", slot->space, slot->pod);
    if (sl_kube_request(f->kube, "GET", path, NULL, NULL, got_pod, slot, &slot->looking, &err) <
        0) {
        slot->looking = NULL;
        sl_fraction_say(f, "cannot find out whether a pod was resized", &err);
        try_later(slot);
    }
}

void sl_fraction_look(struct sl_fraction *f)
{
    for (struct sl_fraction_slot *s = f->slots; s; s = s->next)
        sl_fraction_slot_look(s);
}
