/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A container is about to start. The steps: find the pod that has the slot (kubelet), read its promise (API server),
 * remove the slot's old tenant, make the new tenant (arbiter), write the slot's spec, let kubelet go on. Every step may
 * be taken twice, and is when kubelet asks again: an agent that ends between two steps leaves nothing to repair.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "container/cdi.h"
#include "agent/fraction/errors.h"
#include "agent/fraction/fraction_internal.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/fault.h"
#include "base/json_read.h"
#include "base/list.h"
#include "base/log.h"
#include "base/utf8.h"
#include "base/xalloc.h"

#define PATIENCE_NS (20 * SL_NS_PER_S) /* kubelet waits 30 s */
#define MARGIN_NS   SL_NS_PER_S        /* before kubelet's deadline, so that our answer arrives */
#define AGAIN_NS    (250 * SL_NS_PER_MS)
#define ROOM_NS     SL_NS_PER_S
#define SETTLE_NS   (3 * SL_NS_PER_S)

/* A pod that kubelet lists with one of the devices. */
struct candidate {
    struct sl_start *op;
    struct sl_kube_call *asking;
    char space[SL_POD_SPACE_SIZE], pod[SL_POD_NAME_SIZE], container[64];
    json_t *object; /* NULL: the pod is gone, or over */
    enum sl_pod_state state;
};

struct sl_start {
    struct sl_start *next;
    struct sl_fraction *f;
    struct sl_prestart *call;
    char resource[SL_RESOURCE_NAME_SIZE], token[SL_DEVICE_ID_SIZE];
    char (*id)[SL_DEVICE_ID_SIZE];
    size_t id_count;
    uint64_t begun_ns, give_up_ns;
    bool running;
    bool waits_for_slot; /* the slot's old tenant is being removed */
    bool woken;          /* … has been, perhaps */
    bool made_room;      /* the same tenant with another lease has been removed */
    struct candidate *candidate;
    size_t candidate_count;
    size_t unanswered; /* open questions to the API server */
    struct sl_timer timer;
    void (*again)(struct sl_start *op);
    struct sl_msg_lease lease;
    char outcome[SL_FRACTION_OUTCOME]; /* of the last resize of the pod, when its lease was read */
};

static void ask_kubelet(struct sl_start *op);
static void take_slot(struct sl_start *op);

/* --- the end of a start -------------------------------------------------------------------------- */

static void drop_candidates(struct sl_start *op)
{
    for (size_t i = 0; i < op->candidate_count; i++) {
        sl_kube_cancel(op->candidate[i].asking);
        json_decref(op->candidate[i].object);
    }
    free(op->candidate);
    op->candidate = NULL;
    op->candidate_count = 0;
}

static void free_start(struct sl_start *op)
{
    drop_candidates(op);
    free(op->id);
    free(op);
}

static void finish(struct sl_start *op, const struct sl_err *err)
{
    struct sl_fraction *f = op->f;
    sl_list_drop(&f->starts, op);
    sl_timer_stop(f->loop, &op->timer);
    sl_prestart_answer(op->call, err);
    free_start(op);
    sl_fraction_wake(f);
}

static void fail(struct sl_start *op, int code, const char *fmt, ...) SL_PRINTF(3, 4);
static void fail(struct sl_start *op, int code, const char *fmt, ...)
{
    struct sl_err err = {.code = code};
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(err.msg, sizeof(err.msg), fmt, ap);
    va_end(ap);
    sl_utf8_mend(err.msg);
    finish(op, &err);
}

static void timer_fired(struct sl_timer *timer)
{
    struct sl_start *op = sl_container_of(timer, struct sl_start, timer);
    op->again(op);
}

static void later(struct sl_start *op, uint64_t when_ns, void (*step)(struct sl_start *))
{
    op->again = step;
    op->timer.fire = timer_fired;
    sl_timer_set(op->f->loop, &op->timer, when_ns);
}

/* Tries the step again in a moment; if that never helps, kubelet gets this error. */
static void try_again(struct sl_start *op, uint64_t in_ns, void (*step)(struct sl_start *),
                      const struct sl_err *why)
{
    uint64_t now = sl_loop_now(op->f->loop);
    if (now + in_ns >= op->give_up_ns)
        finish(op, why);
    else
        later(op, now + in_ns, step);
}

static void never_begun(struct sl_start *op)
{
    fail(op, -ETIMEDOUT, "%s", op->f->loaded ? SL_E_FRACTION_STARTING : SL_E_FRACTION_NO_ARBITER);
}

/* --- the tenant and its spec ---------------------------------------------------------------------- */

static int remember(struct sl_start *op, struct sl_err *err)
{
    const struct sl_fraction_slot *slot = sl_fraction_find(op->f, op->lease.name);
    if (slot && slot->removing)
        return sl_err_set(err, -EAGAIN, SL_E_FRACTION_POD_GONE, slot->space, slot->pod);
    if (slot)
        return 0;
    (void)sl_fraction_slot_add(op->f, op->lease.name, op->lease.about);
    sl_fraction_sweep_timer(op->f);
    return 0;
}

static int write_spec(void *data, struct sl_err *err)
{
    struct sl_start *op = data;
    const struct sl_fraction_options *opt = &op->f->opt;
    const struct sl_inventory *inv = NULL;
    const struct sl_driver *driver = NULL;
    struct sl_cdi_device device = {0};
    char attach[512];
    int rc = remember(op, err);
    if (rc < 0)
        return rc;
    opt->machine(opt->data, &inv, &driver);
    if (!inv || !driver)
        return sl_err_set(err, -EAGAIN, SL_E_FRACTION_NO_FILES);
    sl_cdi_common_edits(driver, &device.edits);
    for (uint32_t i = 0; rc == 0 && i < op->lease.gpu_count; i++) {
        size_t at = sl_inventory_find(inv, op->lease.gpu[i]);
        rc = at == SIZE_MAX || inv->gpu[at].lost
                 ? sl_err_set(err, -ENODEV, SL_E_FRACTION_GPU_GONE, op->lease.gpu[i])
                 : sl_cdi_device_edits(driver, inv, at, SL_NO_MIG, &device.edits, err);
    }
    if ((size_t)snprintf(attach, sizeof(attach), "%s/k/%s", opt->arbiter_dir_host,
                         op->lease.name) >= sizeof(attach))
        rc = sl_err_set(err, -ENAMETOOLONG, SL_E_FRACTION_DIR_LONG, opt->arbiter_dir_host);
    if (rc == 0)
        rc = sl_cdi_sluice_edits(opt->sluice_dir_host, attach, &device.edits, err);
    if (rc == 0)
        rc = sl_cdi_write(opt->cdi_dir, SL_CDI_SLOT, op->token, &device, 1, NULL, err);
    sl_edits_clear(&device.edits);
    return rc;
}

static void removed_other_lease(void *data, int rc, const char *text, const struct sl_err *err)
{
    struct sl_start *op = data;
    (void)text;
    if (rc < 0) {
        finish(op, err);
        return;
    }
    SL_FAULT("fraction.removed");
    take_slot(op);
}

static int remove_spec(void *data, struct sl_err *err)
{
    struct sl_start *op = data;
    return sl_cdi_remove(op->f->opt.cdi_dir, SL_CDI_SLOT, op->token, err);
}

static void remove_other_lease(struct sl_start *op)
{
    const struct sl_leases_item other = {SL_MSG_REMOVE, &op->lease, NULL};
    op->made_room = true;
    sl_leases_tenancy(op->f->leases,
                      &(struct sl_tenancy){false, &other, 1, remove_spec, NULL,
                                           SL_FAULT_NAME("fraction.unspecified")},
                      removed_other_lease, op);
}

static void made(void *data, int rc, const char *text, const struct sl_err *why)
{
    struct sl_start *op = data;
    if (text && rc == -EEXIST && !op->made_room) {
        remove_other_lease(op); /* the promise changed while the container was down */
    } else if (text && rc == -ENOSPC) {
        /* The tenant of a deleted pod may still occupy the room. */
        sl_fraction_sweep_all(op->f);
        try_again(op, ROOM_NS, take_slot, why);
    } else if (rc < 0) {
        finish(op, why);
    } else {
        struct sl_fraction_slot *slot = sl_fraction_find(op->f, op->lease.name);
        sl_info("%s: %s", op->lease.name, op->lease.about);
        if (slot) {
            sl_fraction_slot_known(slot, &op->lease, op->outcome);
            sl_fraction_slot_look(slot); /* the lease may have changed since it was read */
        }
        finish(op, NULL);
    }
}

/* The slot may have belonged to another pod, whose tenant may still be under removal. */
static void take_slot(struct sl_start *op)
{
    const struct sl_leases_item make = {SL_MSG_CREATE, &op->lease, SL_FAULT_NAME("fraction.lease")};
    bool wait = false;
    op->waits_for_slot = false;
    for (struct sl_fraction_slot *s = op->f->slots, *next; s; s = next) {
        next = s->next;
        if (strcmp(s->token, op->token) != 0 ||
            (strcmp(s->tenant, op->lease.name) == 0 && !s->removing))
            continue;
        if (sl_loop_now(op->f->loop) >= op->give_up_ns) {
            fail(op, -ETIMEDOUT, SL_E_FRACTION_SLOT_HELD, op->token, s->space, s->pod);
            return;
        }
        wait = true;
        sl_fraction_slot_remove(s);
    }
    op->waits_for_slot = wait; /* woken by the removal or, if that was not possible, by the timer */
    if (wait)
        later(op, sl_loop_now(op->f->loop) + ROOM_NS, take_slot);
    else
        sl_leases_tenancy(op->f->leases,
                          &(struct sl_tenancy){true, &make, 1, write_spec,
                                               SL_FAULT_NAME("fraction.leased"),
                                               SL_FAULT_NAME("fraction.ready")},
                          made, op);
}

/* --- promise ------------------------------------------------------------------------------------- */

static const struct candidate *choose(const struct sl_start *op, struct sl_err *err)
{
    const struct candidate *found = NULL, *leaving = NULL;
    for (size_t i = 0; i < op->candidate_count; i++) {
        const struct candidate *c = &op->candidate[i];
        if (!c->object)
            continue;
        if (c->state == SL_POD_LEAVING) {
            leaving = c;
            continue;
        }
        if (found) {
            (void)sl_err_set(err, -EAGAIN, SL_E_FRACTION_TWO_PODS, op->token, found->space,
                             found->pod, c->space, c->pod);
            return NULL;
        }
        found = c;
    }
    if (!found && !leaving)
        (void)sl_err_set(err, -EAGAIN, SL_E_FRACTION_POD_UNKNOWN, op->token);
    return found ? found : leaving;
}

/* When all candidates are read, one of them has the promise. */
static void got_pod(void *data, int status, json_t *body, const struct sl_err *why)
{
    struct candidate *asked = data;
    struct sl_start *op = asked->op;
    struct sl_err err = SL_ERR_INIT;
    asked->asking = NULL;
    if (status != 200 && status != 404) {
        fail(op, -EAGAIN, SL_E_FRACTION_POD_UNREAD, asked->space, asked->pod, why->msg);
        return;
    }
    if (status == 200 && json_is_object(body)) {
        asked->state = sl_fraction_pod_state(body);
        if (asked->state != SL_POD_OVER)
            asked->object = json_incref(body);
    }
    if (--op->unanswered > 0)
        return;
    const struct candidate *c = choose(op, &err);
    bool settled = sl_loop_now(op->f->loop) - op->begun_ns >= SETTLE_NS;
    int rc =
        c ? sl_fraction_lease(op->f, c->object, c->container, settled, op->token, &op->lease, &err)
          : err.code;
    const char *outcome = rc < 0 ? NULL : sl_jget_note(c->object, SL_PROMISE_RESIZED_KEY);
    sl_utf8_copy(op->outcome, sizeof(op->outcome), outcome ? outcome : "");
    SL_FAULT("fraction.promise");
    if (rc == -EAGAIN)
        try_again(op, AGAIN_NS, ask_kubelet, &err);
    else if (rc < 0)
        finish(op, &err);
    else
        take_slot(op);
}

/* --- the pods with the slot ---------------------------------------------------------------------- */

static bool name_ok(const char *text, size_t size)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-.");
    return n > 0 && n < size && text[n] == '\0';
}

static void add_candidate(struct sl_start *op, const struct sl_podres_device *d)
{
    struct candidate *c = op->candidate;
    for (size_t i = 0; i < op->candidate_count; i++)
        if (strcmp(c[i].space, d->pod_namespace) == 0 && strcmp(c[i].pod, d->pod) == 0)
            return;
    if (!name_ok(d->pod_namespace, sizeof(c->space)) || !name_ok(d->pod, sizeof(c->pod)))
        return; /* no such name can exist in the API server */
    c = sl_xreallocarray(c, op->candidate_count + 1, sizeof(*c));
    op->candidate = c;
    c += op->candidate_count++;
    *c = (struct candidate){.object = NULL};
    (void)snprintf(c->space, sizeof(c->space), "%s", d->pod_namespace);
    (void)snprintf(c->pod, sizeof(c->pod), "%s", d->pod);
    (void)snprintf(c->container, sizeof(c->container), "%.63s", d->container);
}

static void kubelet_listed(void *data, const struct sl_podres_map *map, const struct sl_err *err)
{
    struct sl_start *op = data;
    struct sl_err bad = SL_ERR_INIT;
    char path[400];
    SL_FAULT("fraction.listed");
    if (err) {
        fail(op, -EAGAIN, SL_E_FRACTION_OWNER_UNKNOWN, op->token, err->msg);
        return;
    }
    sl_fraction_listed(op->f, map);
    drop_candidates(op);
    for (size_t i = 0; i < op->id_count; i++) {
        const struct sl_podres_device *d;
        size_t n = sl_podres_find(map, op->resource, op->id[i], &d);
        for (size_t k = 0; k < n; k++)
            add_candidate(op, &d[k]);
    }
    if (op->candidate_count == 0) {
        fail(op, -ENODATA, SL_E_FRACTION_INIT_ALONE, op->token);
        return;
    }
    op->unanswered = op->candidate_count;
    for (size_t i = 0; i < op->candidate_count; i++) {
        struct candidate *c = &op->candidate[i];
        (void)snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s", c->space, c->pod);
        c->op = op;
        if (sl_kube_request(op->f->kube, "GET", path, NULL, NULL, got_pod, c, &c->asking, &bad) <
            0) {
            finish(op, &bad);
            return;
        }
    }
}

static void ask_kubelet(struct sl_start *op)
{
    sl_podres_fresh(op->f->podres, kubelet_listed, op);
}

/* --- a call of kubelet's --------------------------------------------------------------------------- */

/* One start at a time for a slot: kubelet asks again after it has given up. */
static bool is_first(const struct sl_fraction *f, const struct sl_start *op)
{
    const struct sl_start *o = f->starts;
    while (o != op && strcmp(o->token, op->token) != 0)
        o = o->next;
    return o == op;
}

void sl_fraction_wake(struct sl_fraction *f)
{
    struct sl_start *op;
    for (op = f->starts; op; op = op->next)
        op->woken = op->waits_for_slot;
    op = f->starts;
    while (op) {
        bool begin = f->loaded && !op->running && is_first(f, op), woken = op->woken;
        if (!begin && !woken) {
            op = op->next;
            continue;
        }
        op->running = true;
        op->woken = false;
        sl_timer_stop(f->loop, &op->timer);
        if (begin)
            ask_kubelet(op);
        else
            take_slot(op);
        op = f->starts; /* any start may have ended */
    }
}

static struct sl_start *new_start(struct sl_fraction *f, const char *resource,
                                  const char *const *ids, size_t n, struct sl_prestart *call,
                                  struct sl_err *err)
{
    struct sl_start *op = sl_xcalloc(1, sizeof(*op));
    op->id = sl_xcalloc(n, sizeof(*op->id));
    if (sl_fraction_token(ids, n, op->token, err) < 0) {
        free_start(op);
        return NULL;
    }
    for (; op->id_count < n; op->id_count++)
        (void)snprintf(op->id[op->id_count], sizeof(op->id[0]), "%s", ids[op->id_count]);
    (void)snprintf(op->resource, sizeof(op->resource), "%s", resource);
    uint64_t deadline = sl_prestart_deadline(call);
    op->f = f;
    op->call = call;
    op->begun_ns = sl_loop_now(f->loop);
    op->give_up_ns = op->begun_ns + PATIENCE_NS;
    if (deadline - MARGIN_NS < op->give_up_ns)
        op->give_up_ns = deadline - MARGIN_NS;
    return op;
}

void sl_fraction_prestart(struct sl_fraction *f, const char *resource, const char *const *ids,
                          size_t n, struct sl_prestart *call)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_start *op = NULL;
    if (!f->kube)
        (void)sl_err_set(&err, -EOPNOTSUPP, SL_E_FRACTION_NEEDS_API);
    else
        op = new_start(f, resource, ids, n, call, &err);
    if (!op) {
        sl_prestart_answer(call, &err);
        return;
    }
    struct sl_start **end = &f->starts;
    while (*end)
        end = &(*end)->next;
    *end = op;
    later(op, op->give_up_ns, never_begun);
    sl_fraction_wake(f);
}

void sl_fraction_starts_end(struct sl_fraction *f)
{
    struct sl_err err = SL_ERR_INIT;
    (void)sl_err_set(&err, -EAGAIN, SL_E_FRACTION_STOPPING);
    while (f->starts) {
        struct sl_start *op = f->starts;
        f->starts = op->next;
        sl_timer_stop(f->loop, &op->timer);
        sl_prestart_answer(op->call, &err);
        free_start(op);
    }
}
