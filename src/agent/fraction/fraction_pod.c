/* SPDX-License-Identifier: Apache-2.0 */
/* From a pod's object to the lease of one of its containers. Pure. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/fraction/errors.h"
#include "agent/fraction/fraction_internal.h"
#include "arbiter/client.h"
#include "base/hash.h"
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

int sl_fraction_promise(const json_t *pod, const char *node, struct sl_promise *ret,
                        struct sl_err *err)
{
    const json_t *notes = json_object_get(json_object_get(pod, "metadata"), "annotations");
    const char *text = json_string_value(json_object_get(notes, SL_PROMISE_LEASE_KEY));
    if (!text)
        return sl_err_set(err, -ENODATA, SL_E_FRACTION_NO_PROMISE, sl_kube_meta(pod, "namespace"),
                          sl_kube_meta(pod, "name"), SL_PROMISE_LEASE_KEY);
    int rc = sl_promise_lease_parse(text, ret, err);
    if (rc == 0 && strcmp(ret->node, node) != 0)
        rc = sl_err_set(err, -EINVAL, SL_E_FRACTION_OTHER_NODE, sl_kube_meta(pod, "namespace"),
                        sl_kube_meta(pod, "name"), ret->node, node);
    return rc;
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

static const json_t *status_of(const json_t *pod, const char *name)
{
    const json_t *list = json_object_get(json_object_get(pod, "status"), "initContainerStatuses");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_object_get(json_array_get(list, i), "name"));
        if (text && strcmp(text, name) == 0)
            return json_array_get(list, i);
    }
    return NULL;
}

/* Of an init container, as the API server has it: kubelet may have gone on since. */
static enum turn init_turn(const json_t *pod, const char *name, bool started)
{
    const json_t *status = status_of(pod, name), *state = json_object_get(status, "state");
    const json_t *terminated = json_object_get(state, "terminated");
    if (json_is_object(json_object_get(state, "running")))
        return TURN_UNCLEAR; /* neither it nor its successor would be started while it runs */
    if (json_is_object(terminated))
        return json_integer_value(json_object_get(terminated, "exitCode")) == 0 ? TURN_OVER
                                                                                : TURN_NOW;
    bool again = json_integer_value(json_object_get(status, "restartCount")) > 0;
    return started && !again ? TURN_UNCLEAR : TURN_NOW;
}

static bool among(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

/* Where among the init containers; SIZE_MAX: it is none, and comes after all of them. *ret_stays: it runs beside the
 * others (a sidecar). */
static size_t init_position(const json_t *inits, const char *name, bool *ret_stays)
{
    *ret_stays = false;
    for (size_t i = 0; i < json_array_size(inits); i++) {
        const json_t *c = json_array_get(inits, i);
        const char *text = json_string_value(json_object_get(c, "name"));
        const char *restart = json_string_value(json_object_get(c, "restartPolicy"));
        if (text && strcmp(text, name) == 0) {
            *ret_stays = restart && strcmp(restart, "Always") == 0;
            return i;
        }
    }
    return SIZE_MAX;
}

/* Has a container started that starts after the init container `at`? Then that one is over. */
static bool passed(const json_t *inits, size_t at, const char *const *seen, size_t seen_count)
{
    bool stays;
    for (size_t i = 0; i < seen_count; i++)
        if (init_position(inits, seen[i], &stays) > at)
            return true;
    return false;
}

int sl_fraction_container(const json_t *pod, const struct sl_promise *promise, const char *listed,
                          const char *const *seen, size_t seen_count, bool settled, char buf[64],
                          struct sl_err *err)
{
    const json_t *inits = json_object_get(json_object_get(pod, "spec"), "initContainers");
    bool stays = false;
    size_t end = init_position(inits, listed, &stays);
    (void)snprintf(buf, 64, "%s", listed);
    /* Kubelet gives the devices of an init container on to those that come after it, sidecars too, and lists only those. */
    for (size_t i = 0; i < end && i < json_array_size(inits); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(inits, i), "name"));
        if (!name || !promised(promise, name) ||
            (init_position(inits, name, &stays) == i && stays) ||
            passed(inits, i, seen, seen_count))
            continue;
        enum turn turn = init_turn(pod, name, among(name, seen, seen_count));
        if (turn == TURN_UNCLEAR && !settled)
            return sl_err_set(err, -EAGAIN, SL_E_FRACTION_INIT_UNKNOWN,
                              sl_kube_meta(pod, "namespace"), sl_kube_meta(pod, "name"), name);
        if (turn != TURN_OVER) {
            (void)snprintf(buf, 64, "%s", name);
            return 0;
        }
    }
    return 0;
}

/* --- the lease ----------------------------------------------------------------------------------- */

/* Same pod, container and slot: same name. Not the UID itself, which leaves too little of SL_NAME_MAX. */
static void name_tenant(const char *uid, const char *container, const char *token,
                        char buf[SL_NAME_MAX])
{
    uint64_t hash = SL_HASH_START;
    const char *const part[] = {uid, "/", container, "/", token};
    for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++)
        hash = sl_hash_bytes(hash, part[i], strlen(part[i]));
    (void)snprintf(buf, SL_NAME_MAX, "slot-%016" PRIx64, hash);
}

int sl_fraction_lease(const json_t *pod, const struct sl_promise *promise, const char *container,
                      const char *token, struct sl_msg_lease *ret, struct sl_err *err)
{
    char tenant[SL_NAME_MAX];
    const struct sl_owner owner = {.name_space = sl_kube_meta(pod, "namespace"),
                                   .pod = sl_kube_meta(pod, "name"),
                                   .pod_uid = sl_kube_meta(pod, "uid"),
                                   .container = container,
                                   .slot = token};
    const struct sl_promise_container *c = promised(promise, container);
    if (!c)
        return sl_err_set(err, -ENODATA, SL_E_FRACTION_NO_CONTAINER, owner.name_space, owner.pod,
                          SL_PROMISE_LEASE_KEY, container);
    name_tenant(owner.pod_uid, container, token, tenant);
    return sl_lease_compose(tenant, &owner, &promise->share[c->first], c->count, ret, err);
}

static bool read_about(const char *about, struct sl_fraction_slot *ret)
{
    return sl_client_about(about, "slot", ret->token, sizeof(ret->token)) &&
           sl_client_about(about, "namespace", ret->space, sizeof(ret->space)) &&
           sl_client_about(about, "pod", ret->pod, sizeof(ret->pod)) &&
           sl_client_about(about, "container", ret->container, sizeof(ret->container)) &&
           sl_client_about(about, "pod-uid", ret->uid, sizeof(ret->uid));
}

bool sl_fraction_slot_read(const struct sl_msg_tenant *tenant, struct sl_fraction_slot *ret)
{
    *ret = (struct sl_fraction_slot){.removing = false};
    (void)snprintf(ret->tenant, sizeof(ret->tenant), "%s", tenant->name);
    return (tenant->flags & SL_LEASE_KEEP) && read_about(tenant->about, ret);
}

void sl_fraction_slot_of(const struct sl_msg_lease *lease, struct sl_fraction_slot *ret)
{
    *ret = (struct sl_fraction_slot){.removing = false};
    (void)snprintf(ret->tenant, sizeof(ret->tenant), "%s", lease->name);
    (void)read_about(lease->about, ret);
}
