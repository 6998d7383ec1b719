/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/live_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/xalloc.h"
#include "explain/facts.h"
#include "share/affinity.h"

#define DRIVER          "gpu.sluice.io"
#define SYSTEM_PRIORITY 2000000000 /* of Kubernetes' own pods */

/* --- amounts beside GPUs --- */

/* In units of 10^-power; 0: not said. */
static uint64_t amount(const json_t *value, int power)
{
    uint64_t n = 0;
    return value && sl_jget_quantity(value, power, &n) == 0 ? n : 0;
}

static uint64_t container_asks(const json_t *container, const char *what, int power)
{
    const json_t *asked = sl_facts_at(container, "resources.requests");
    const json_t *value = json_object_get(asked, what);
    if (!value)
        value = json_object_get(sl_facts_at(container, "resources.limits"), what);
    return amount(value, power);
}

/* As the scheduler charges it: the sum of the containers, or the largest init container if that is more. */
static uint64_t pod_asks(const json_t *pod, const char *what, int power)
{
    const json_t *one;
    uint64_t all = 0, init = 0;
    size_t i;
    json_array_foreach(sl_facts_at(pod, "spec.containers"), i, one)
    {
        all += container_asks(one, what, power);
    }
    json_array_foreach(sl_facts_at(pod, "spec.initContainers"), i, one)
    {
        uint64_t n = container_asks(one, what, power);
        init = n > init ? n : init;
    }
    return init > all ? init : all;
}

static uint32_t fit32(uint64_t n)
{
    return n > UINT32_MAX / 4 ? UINT32_MAX / 4 : (uint32_t)n;
}

static uint32_t minus(uint32_t a, uint64_t b)
{
    return b < a ? a - (uint32_t)b : 0;
}

/* --- nodes --- */

static void add_card(struct live_node *n, struct sl_advice_node *a, const char *uuid, uint64_t mib,
                     bool healthy)
{
    unsigned at = a->node.gpu_count;
    if (at == SL_PLACE_MAX_GPUS || !*uuid)
        return;
    (void)snprintf(n->uuid[at], sizeof(n->uuid[at]), "%s", uuid);
    a->node.gpus[at].memory_mib = fit32(mib);
    if (!healthy)
        a->blocked = (uint16_t)(a->blocked | 1u << at);
    a->node.gpu_count++;
}

static void cards_by_note(const json_t *node, struct live_node *n, struct sl_advice_node *a)
{
    const char *text = sl_jget_note(node, SL_PROMISE_GPUS_KEY);
    struct sl_promise_node told;
    if (!text || !*text || sl_promise_gpus_parse(text, &told, NULL) != 0)
        return;
    for (size_t i = 0; i < told.count; i++)
        add_card(n, a, told.gpu[i].uuid, told.gpu[i].memory_mib, told.gpu[i].healthy);
    if (told.count)
        memcpy(n->model, told.gpu[0].model, sizeof(n->model));
}

/* The devices of our driver, one after the other; *at begins with 0. key: a path in the slice whose value is wanted. */
static const json_t *next_device(const json_t *slices, const char *key, const char *value,
                                 size_t *at)
{
    size_t i, k = 0, devices;
    const json_t *slice;
    json_array_foreach(slices, i, slice)
    {
        const json_t *list = sl_facts_at(slice, "spec.devices");
        if (strcmp(sl_facts_text(slice, "spec.driver"), DRIVER) != 0 ||
            strcmp(sl_facts_text(slice, key), value) != 0)
            continue;
        devices = json_array_size(list);
        if (*at < k + devices)
            return json_array_get(list, (*at)++ - k);
        k += devices;
    }
    return NULL;
}

/* A DRA driver offers each card as a device that many claims may share. */
static void cards_by_slices(const json_t *slices, struct live_node *n, struct sl_advice_node *a)
{
    const json_t *device;
    size_t at = 0;
    while ((device = next_device(slices, "spec.nodeName", n->name, &at))) {
        if (!json_is_true(sl_facts_at(device, "allowMultipleAllocations")))
            continue;
        uint64_t bytes = amount(sl_facts_at(device, "capacity.memory.value"), 0);
        add_card(n, a, sl_facts_text(device, "attributes.uuid.string"), bytes >> 20,
                 json_array_size(sl_facts_at(device, "taints")) == 0);
        (void)snprintf(n->model, sizeof(n->model), "%.63s",
                       sl_facts_text(device, "attributes.productName.string"));
    }
}

/* Nodes of one model have one number; beyond the last, models share it. */
static uint8_t model_number(const struct live_world *w, size_t node)
{
    uint8_t number = 0;
    for (size_t i = 0; i < node; i++) {
        if (strcmp(w->node[i].model, w->node[node].model) == 0)
            return w->advice_node[i].node.model;
        if (w->advice_node[i].node.model >= number)
            number = (uint8_t)(w->advice_node[i].node.model + 1);
    }
    return number < SL_PLACE_MAX_MODELS ? number : SL_PLACE_MAX_MODELS - 1;
}

static void make_nodes(const json_t *nodes, const json_t *slices, struct live_world *w)
{
    const json_t *node;
    size_t i;
    w->node = sl_xcalloc(json_array_size(nodes) + 1, sizeof(*w->node));
    w->advice_node = sl_xcalloc(json_array_size(nodes) + 1, sizeof(*w->advice_node));
    json_array_foreach(nodes, i, node)
    {
        struct live_node *n = &w->node[w->node_count];
        struct sl_advice_node *a = &w->advice_node[w->node_count];
        struct sl_node_has has = sl_facts_node(node);
        *n = (struct live_node){.name = sl_facts_text(node, "metadata.name"), .object = node};
        *a = (struct sl_advice_node){.open = has.ready && !has.cordoned};
        cards_by_note(node, n, a);
        if (a->node.gpu_count == 0)
            cards_by_slices(slices, n, a);
        if (a->node.gpu_count == 0)
            continue;
        const json_t *has_of = sl_facts_at(node, "status.allocatable");
        a->node.cpu_milli = fit32(amount(json_object_get(has_of, "cpu"), 3));
        a->node.memory_mib = fit32(amount(json_object_get(has_of, "memory"), 0) >> 20);
        a->node.max_pods = (uint16_t)amount(json_object_get(has_of, "pods"), 0);
        a->node.model = model_number(w, w->node_count);
        n->labels = sl_affinity_labels(node);
        w->node_count++;
    }
}

static int node_number(const struct live_world *w, const char *name)
{
    for (size_t i = 0; i < w->node_count; i++)
        if (strcmp(w->node[i].name, name) == 0)
            return (int)i;
    return -1;
}

static int card_number(const struct live_world *w, size_t node, const char *uuid)
{
    for (int i = 0; i < w->advice_node[node].node.gpu_count; i++)
        if (strcmp(w->node[node].uuid[i], uuid) == 0)
            return i;
    return -1;
}

/* --- what pods hold --- */

/* Equal shares on different cards are one part; the pod moves with all of them. */
static void add_share(struct sl_advice_pod *p, const struct sl_place_request *share, int gpu)
{
    for (unsigned i = 0; i < p->part_count; i++) {
        struct sl_place_request *r = &p->part[i].request;
        if (r->gpu_memory_mib == share->gpu_memory_mib &&
            r->gpu_memory_permille == share->gpu_memory_permille &&
            r->cores_permille == share->cores_permille && !(p->part[i].gpus >> gpu & 1)) {
            p->part[i].gpus = (uint16_t)(p->part[i].gpus | 1u << gpu);
            r->gpu_count++;
            return;
        }
    }
    if (p->part_count == SL_ADVICE_PARTS) {
        p->fixed = true; /* its cards are used by more than can be said here */
        return;
    }
    p->part[p->part_count].request = *share;
    p->part[p->part_count].request.gpu_count = 1;
    p->part[p->part_count++].gpus = (uint16_t)(1u << gpu);
}

static void block_card(struct live_world *w, size_t node, int gpu)
{
    w->advice_node[node].blocked = (uint16_t)(w->advice_node[node].blocked | 1u << gpu);
}

static void held_by_lease(struct live_world *w, const json_t *pod, struct sl_advice_pod *p)
{
    const char *ours = sl_jget_note(pod, SL_PROMISE_LEASE_KEY);
    const char *hami = sl_jget_note(pod, SL_PROMISE_HAMI_DONE);
    struct sl_promise promise;
    if (ours ? sl_promise_lease_parse(ours, &promise, NULL) != 0
             : !hami || sl_promise_hami_parse(hami, &promise, NULL) != 0)
        return;
    for (size_t i = 0; i < promise.share_count; i++) {
        const struct sl_share *s = &promise.share[i];
        struct sl_place_request r = {.gpu_memory_mib = (uint32_t)(s->memory_bytes >> 20),
                                     .cores_permille = (uint16_t)s->cores_permille};
        int gpu = card_number(w, p->node, s->gpu);
        p->fixed |= s->priority == SL_PRIORITY_HIGH;
        if (gpu >= 0)
            add_share(p, &r, gpu);
    }
}

/* The device of a claim, in its slice. */
static const json_t *device_of(const json_t *slices, const char *pool, const char *name)
{
    const json_t *device;
    size_t at = 0;
    while ((device = next_device(slices, "spec.pool.name", pool, &at)))
        if (strcmp(sl_facts_text(device, "name"), name) == 0)
            break;
    return device;
}

static void held_by_result(struct live_world *w, const json_t *slices, const json_t *got,
                           struct sl_advice_pod *p)
{
    const json_t *device =
        device_of(slices, sl_facts_text(got, "pool"), sl_facts_text(got, "device"));
    const json_t *consumed = sl_facts_at(got, "consumedCapacity");
    const char *uuid = sl_facts_text(device, "attributes.uuid.string");
    bool mig = !*uuid;
    struct sl_place_request r = {.cores_permille = SL_PLACE_WHOLE, .gpu_memory_permille = 1000};
    if (mig)
        uuid = sl_facts_text(device, "attributes.parentUUID.string");
    int gpu = card_number(w, p->node, uuid);
    if (gpu < 0)
        return;
    if (json_is_true(sl_facts_at(device, "allowMultipleAllocations")))
        r = (struct sl_place_request){
            .gpu_memory_mib = fit32(amount(json_object_get(consumed, "memory"), 0) >> 20),
            .cores_permille = (uint16_t)(amount(json_object_get(consumed, "cores"), 1))};
    if (mig) { /* an instance: its card is cut, and no place for shares */
        block_card(w, p->node, gpu);
        p->fixed = true;
        return;
    }
    add_share(p, &r, gpu);
}

static void held_by_claims(struct live_world *w, const json_t *claims, const json_t *slices,
                           const json_t *pod, struct sl_advice_pod *p)
{
    const char *uid = sl_facts_text(pod, "metadata.uid");
    const json_t *claim, *user, *got;
    size_t i, k;
    json_array_foreach(claims, i, claim)
    {
        const json_t *users = sl_facts_at(claim, "status.reservedFor");
        size_t mine = SIZE_MAX;
        json_array_foreach(users, k, user)
        {
            if (*uid && strcmp(sl_facts_text(user, "uid"), uid) == 0)
                mine = k;
        }
        if (mine == SIZE_MAX)
            continue;
        p->fixed |= json_array_size(users) > 1; /* its other pods would have to come along */
        json_array_foreach(sl_facts_at(claim, "status.allocation.devices.results"), k, got)
        {
            if (mine == 0 && strcmp(sl_facts_text(got, "driver"), DRIVER) == 0)
                held_by_result(w, slices, got, p);
        }
    }
}

/* --- where pods may be --- */

/* Something makes the pod again when it is deleted, and it may run elsewhere then. */
static bool is_made_again(const json_t *pod)
{
    const json_t *owner;
    size_t i;
    json_array_foreach(sl_facts_at(pod, "metadata.ownerReferences"), i, owner)
    {
        const char *kind = sl_facts_text(owner, "kind");
        if (json_is_true(json_object_get(owner, "controller")))
            return strcmp(kind, "DaemonSet") != 0 && strcmp(kind, "Node") != 0;
    }
    return false;
}

static bool must_stay(const json_t *pod)
{
    const char *safe = sl_jget_note(pod, "cluster-autoscaler.kubernetes.io/safe-to-evict");
    const json_t *priority = sl_facts_at(pod, "spec.priority");
    return !is_made_again(pod) || (safe && strcmp(safe, "false") == 0) ||
           *sl_facts_text(pod, "metadata.deletionTimestamp") ||
           strcmp(sl_facts_text(pod, "status.phase"), "Running") != 0 ||
           json_integer_value(priority) >= SYSTEM_PRIORITY ||
           sl_jget_note(pod, "nvidia.com/use-gpuuuid") ||
           sl_jget_note(pod, "nvidia.com/nouse-gpuuuid");
}

/* Rules between pods, which are not known here: the pod may change its card, and not its node. */
static bool must_stay_on_node(const json_t *pod)
{
    const json_t *one;
    size_t i;
    json_array_foreach(sl_facts_at(pod, "spec.topologySpreadConstraints"), i, one)
    {
        if (strcmp(sl_facts_text(one, "whenUnsatisfiable"), "DoNotSchedule") == 0)
            return true;
    }
    return json_array_size(sl_facts_at(pod, "spec.affinity.podAntiAffinity."
                                            "requiredDuringSchedulingIgnoredDuringExecution")) ||
           json_array_size(sl_facts_at(
               pod, "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"));
}

static void set_allowed(struct live_world *w, size_t pod)
{
    uint64_t *allow = w->allow + pod * w->allow_words;
    const json_t *object = w->pod[pod].object;
    uint32_t own = w->advice_pod[pod].node;
    bool here = must_stay_on_node(object);
    for (size_t n = 0; n < w->node_count; n++) {
        const struct live_node *node = &w->node[n];
        if (n == own || (!here && !sl_facts_taint(object, node->object) &&
                         !sl_facts_selector(object, node->object) &&
                         sl_affinity_required(object, node->name, node->labels)))
            allow[n / 64] |= 1ull << (n % 64);
    }
    w->advice_pod[pod].allow = allow;
}

/* --- pods --- */

static bool wants_model(const json_t *pod)
{
    return sl_jget_note(pod, "nvidia.com/use-gputype") ||
           sl_jget_note(pod, "nvidia.com/nouse-gputype") ||
           json_array_size(sl_facts_at(pod, "spec.resourceClaims")) > 0; /* its class may say */
}

static void charge_node(struct live_world *w, size_t node, const json_t *pod)
{
    struct sl_place_node *n = &w->advice_node[node].node;
    n->cpu_milli = minus(n->cpu_milli, pod_asks(pod, "cpu", 3));
    n->memory_mib = minus(n->memory_mib, pod_asks(pod, "memory", 0) >> 20);
    if (n->max_pods > 1)
        n->max_pods--;
}

static void add_pod(struct live_world *w, const json_t *claims, const json_t *slices,
                    const json_t *pod, size_t node)
{
    struct sl_advice_pod p = {.node = (uint32_t)node};
    held_by_lease(w, pod, &p);
    if (json_array_size(sl_facts_at(pod, "spec.resourceClaims")) > 0)
        held_by_claims(w, claims, slices, pod, &p);
    if (p.part_count == 0) {
        charge_node(w, node, pod);
        return;
    }
    p.fixed |= must_stay(pod);
    p.part[0].request.cpu_milli = fit32(pod_asks(pod, "cpu", 3));
    p.part[0].request.memory_mib = fit32(pod_asks(pod, "memory", 0) >> 20);
    for (unsigned i = 0; wants_model(pod) && i < p.part_count; i++)
        p.part[i].request.models = 1ull << w->advice_node[node].node.model;
    w->fixed += p.fixed;
    w->advice_pod[w->pod_count] = p;
    w->pod[w->pod_count++] =
        (struct live_pod){.name_space = sl_facts_text(pod, "metadata.namespace"),
                          .name = sl_facts_text(pod, "metadata.name"),
                          .object = pod};
}

void sl_live_make(const json_t *nodes, const json_t *pods, const json_t *claims,
                  const json_t *slices, struct live_world *ret)
{
    const json_t *pod;
    size_t i, all = json_array_size(pods);
    *ret = (struct live_world){0};
    make_nodes(nodes, slices, ret);
    ret->pod = sl_xcalloc(all + 1, sizeof(*ret->pod));
    ret->advice_pod = sl_xcalloc(all + 1, sizeof(*ret->advice_pod));
    json_array_foreach(pods, i, pod)
    {
        int node = node_number(ret, sl_facts_text(pod, "spec.nodeName"));
        if (node >= 0 && !sl_facts_ended(pod))
            add_pod(ret, claims, slices, pod, (size_t)node);
    }
    ret->allow_words = ret->node_count / 64 + 1;
    ret->allow = sl_xcalloc(ret->pod_count * ret->allow_words + 1, sizeof(*ret->allow));
    for (i = 0; i < ret->pod_count; i++)
        set_allowed(ret, i);
}

void sl_live_free(struct live_world *w)
{
    for (size_t i = 0; i < w->node_count; i++)
        free(w->node[i].labels);
    free(w->node);
    free(w->advice_node);
    free(w->pod);
    free(w->advice_pod);
    free(w->allow);
    *w = (struct live_world){0};
}
