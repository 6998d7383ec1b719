/* SPDX-License-Identifier: Apache-2.0 */
/* From a pod's object to the lease of one of its containers. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/fraction/errors.h"
#include "agent/fraction/fraction_internal.h"
#include "agent/tenant/allow.h"
#include "arbiter/client.h"
#include "base/hash.h"
#include "base/json_read.h"
#include "base/xalloc.h"
#include "kube/kube.h"
#include "share/lease.h"

int sl_fraction_token(const char *const *ids, size_t n, char buf[SL_DEVICE_ID_SIZE],
                      struct sl_err *err)
{
    const char *first = n ? ids[0] : "";
    for (size_t i = 1; i < n; i++)
        if (strcmp(ids[i], first) < 0)
            first = ids[i];
    if (!*first || strlen(first) >= SL_DEVICE_ID_SIZE)
        return sl_err_set(err, -EINVAL, SL_E_FRACTION_NO_DEVICE, first);
    (void)snprintf(buf, SL_DEVICE_ID_SIZE, "%s", first);
    return 0;
}

enum sl_pod_state sl_fraction_pod_state(const json_t *pod)
{
    const char *phase = json_string_value(json_object_get(json_object_get(pod, "status"), "phase"));
    if (phase && (strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0))
        return SL_POD_OVER;
    return *sl_kube_meta(pod, "deletionTimestamp") ? SL_POD_LEAVING : SL_POD_ALIVE;
}

static const struct sl_promise_container *promised(const struct sl_promise *promise,
                                                   const char *name)
{
    for (size_t i = 0; i < promise->container_count; i++)
        if (strcmp(promise->container[i].name, name) == 0 && promise->container[i].count > 0)
            return &promise->container[i];
    return NULL;
}

/* --- whose turn it is ---------------------------------------------------------------------------- */

enum turn { TURN_OVER, TURN_NOW, TURN_UNCLEAR };

/* The position in a list of containers, or of statuses; SIZE_MAX: absent. Init containers start before all others. */
static size_t position(const json_t *list, const char *name)
{
    size_t i = 0, n = json_array_size(list);
    while (i < n && strcmp(sl_jget_text(json_array_get(list, i), "name"), name) != 0)
        i++;
    return i < n ? i : SIZE_MAX;
}

/* The turn of an init container, by the API server's status: kubelet may be further. */
static enum turn init_turn(const json_t *pod, const char *name, bool started)
{
    const json_t *all = json_object_get(json_object_get(pod, "status"), "initContainerStatuses");
    const json_t *status = json_array_get(all, position(all, name));
    const json_t *state = json_object_get(status, "state");
    const json_t *terminated = json_object_get(state, "terminated");
    if (json_is_object(json_object_get(state, "running")))
        return TURN_UNCLEAR; /* while it runs, kubelet starts neither it nor its successor */
    if (json_is_object(terminated))
        return json_integer_value(json_object_get(terminated, "exitCode")) == 0 ? TURN_OVER
                                                                                : TURN_NOW;
    bool again = json_integer_value(json_object_get(status, "restartCount")) > 0;
    return started && !again ? TURN_UNCLEAR : TURN_NOW;
}

/* Has the pod's container a tenant? With `name` NULL: has a container that starts after the init container `at` a
 * tenant? Then the init container is over. */
static bool started(const struct sl_fraction *f, const json_t *pod, const json_t *inits,
                    const char *name, size_t at)
{
    for (const struct sl_fraction_slot *s = f->slots; s; s = s->next)
        if (!s->removing && strcmp(s->uid, sl_kube_meta(pod, "uid")) == 0 &&
            (name ? strcmp(s->container, name) == 0 : position(inits, s->container) > at))
            return true;
    return false;
}

/* The container that is about to start. */
static int find_container(const struct sl_fraction *f, const json_t *pod,
                          const struct sl_promise *promise, const char *listed, bool settled,
                          const char **ret, struct sl_err *err)
{
    const json_t *inits = json_object_get(json_object_get(pod, "spec"), "initContainers");
    size_t end = position(inits, listed);
    *ret = listed;
    /* Kubelet passes the devices of an init container on to later containers, sidecars too, and lists only those. */
    for (size_t i = 0; i < end && i < json_array_size(inits); i++) {
        const json_t *init = json_array_get(inits, i);
        const char *name = sl_jget_text(init, "name");
        bool sidecar = strcmp(sl_jget_text(init, "restartPolicy"), "Always") == 0;
        if (!promised(promise, name) || sidecar || started(f, pod, inits, NULL, i))
            continue;
        enum turn turn = init_turn(pod, name, started(f, pod, inits, name, 0));
        if (turn == TURN_UNCLEAR && !settled)
            return sl_err_set(err, -EAGAIN, SL_E_FRACTION_INIT_UNKNOWN,
                              sl_kube_meta(pod, "namespace"), sl_kube_meta(pod, "name"), name);
        if (turn != TURN_OVER) {
            *ret = name;
            return 0;
        }
    }
    return 0;
}

/* --- the lease ----------------------------------------------------------------------------------- */

/* The same pod, container and slot give the same name. The UID itself would be too long for SL_NAME_MAX. */
static void name_tenant(const struct sl_owner *owner, char buf[SL_NAME_MAX])
{
    uint64_t hash = SL_HASH_START;
    const char *const part[] = {owner->pod_uid, "/", owner->container, "/", owner->slot};
    for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++)
        hash = sl_hash_bytes(hash, part[i], strlen(part[i]));
    (void)snprintf(buf, SL_NAME_MAX, "slot-%016" PRIx64, hash);
}

int sl_fraction_lease(const struct sl_fraction *f, const json_t *pod, const char *listed,
                      bool settled, const char *token, struct sl_msg_lease *ret, struct sl_err *err)
{
    struct sl_promise promise;
    char tenant[SL_NAME_MAX];
    struct sl_owner owner = {.name_space = sl_kube_meta(pod, "namespace"),
                             .pod = sl_kube_meta(pod, "name"),
                             .pod_uid = sl_kube_meta(pod, "uid"),
                             .slot = token};
    const char *text = sl_jget_note(pod, SL_PROMISE_LEASE_KEY);
    if (!text)
        return sl_err_set(err, -ENODATA, SL_E_FRACTION_NO_PROMISE, owner.name_space, owner.pod,
                          SL_PROMISE_LEASE_KEY);
    int rc = sl_promise_lease_parse(text, &promise, err);
    if (rc < 0)
        return rc;
    if (strcmp(promise.node, f->opt.node_name) != 0)
        return sl_err_set(err, -EINVAL, SL_E_FRACTION_OTHER_NODE, owner.name_space, owner.pod,
                          promise.node, f->opt.node_name);
    rc = find_container(f, pod, &promise, listed, settled, &owner.container, err);
    if (rc < 0)
        return rc;
    const struct sl_promise_container *c = promised(&promise, owner.container);
    if (!c)
        return sl_err_set(err, -ENODATA, SL_E_FRACTION_NO_CONTAINER, owner.name_space, owner.pod,
                          SL_PROMISE_LEASE_KEY, owner.container);
    name_tenant(&owner, tenant);
    rc = sl_lease_compose(tenant, &owner, &promise.share[c->first], c->count, ret, err);
    if (rc < 0)
        return rc;
    const struct sl_config *config = f->opt.config ? f->opt.config(f->opt.data) : NULL;
    if (config)
        sl_lease_compute(ret, config->fractional.compute);
    return sl_allow_lease(config, owner.name_space, ret->priority, ret->cores_request_permille,
                          ret->cores_limit_permille, err);
}

int sl_fraction_slot_lease(const struct sl_fraction_slot *slot, const json_t *pod,
                           struct sl_msg_lease *ret, struct sl_err *err)
{
    const struct sl_fraction *f = slot->fraction;
    const struct sl_config *config = f->opt.config ? f->opt.config(f->opt.data) : NULL;
    const char *text = sl_jget_note(pod, SL_PROMISE_LEASE_KEY);
    struct sl_promise promise;
    if (!text)
        return sl_err_set(err, -ENODATA, SL_E_FRACTION_NO_PROMISE, slot->space, slot->pod,
                          SL_PROMISE_LEASE_KEY);
    int rc = sl_promise_lease_parse(text, &promise, err);
    if (rc < 0)
        return rc;
    const struct sl_promise_container *c = promised(&promise, slot->container);
    if (!c)
        return sl_err_set(err, -ENODATA, SL_E_FRACTION_NO_CONTAINER, slot->space, slot->pod,
                          SL_PROMISE_LEASE_KEY, slot->container);
    const struct sl_owner owner = {.name_space = slot->space};
    rc = sl_lease_compose(slot->tenant, &owner, &promise.share[c->first], c->count, ret, err);
    if (rc < 0)
        return rc;
    if (!(ret->fields & SL_FIELD_CORES)) { /* only idle time */
        ret->cores_request_permille = 1;
        ret->cores_limit_permille = 1000;
    }
    ret->fields = SL_FIELD_MEMORY | SL_FIELD_CORES;
    /* The node's administrator has the last word about idle time. */
    struct sl_config_allow allow = sl_config_allowed(config, slot->space);
    uint32_t furthest = allow.burst * 10;
    if (furthest < ret->cores_request_permille)
        furthest = ret->cores_request_permille;
    if (ret->cores_limit_permille > furthest)
        ret->cores_limit_permille = furthest;
    return 0;
}

/* A tenant of a slot, as this agent makes it; or one of a claim, if no DRA driver is here to look after it. */
static bool read_about(const struct sl_fraction *f, const char *about, struct sl_fraction_slot *s)
{
    if (!sl_client_about(about, "namespace", s->space, sizeof(s->space)) ||
        !sl_client_about(about, "pod", s->pod, sizeof(s->pod)))
        return false;
    bool container = sl_client_about(about, "container", s->container, sizeof(s->container));
    if (sl_client_about(about, "slot", s->token, sizeof(s->token)))
        return container && sl_client_about(about, "pod-uid", s->uid, sizeof(s->uid));
    return f->opt.claims_too && sl_client_about(about, "claim", s->claim, sizeof(s->claim)) &&
           sl_client_about(about, "uid", s->token, sizeof(s->token));
}

bool sl_fraction_slot_add(struct sl_fraction *f, const char *tenant, const char *about)
{
    struct sl_fraction_slot *s = sl_xcalloc(1, sizeof(*s));
    (void)snprintf(s->tenant, sizeof(s->tenant), "%s", tenant);
    if (!read_about(f, about, s)) {
        free(s);
        return false;
    }
    s->fraction = f;
    s->next = f->slots;
    f->slots = s;
    return true;
}
