/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/dra/claim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/dra/errors.h"
#include "base/json_read.h"
#include "base/quantity.h"
#include "base/units.h"

/* Kubernetes writes it to claims that it makes from a template. */
#define POD_CLAIM_ANNOTATION "resource.kubernetes.io/pod-claim-name"

static bool copy(char *to, size_t size, const char *from)
{
    return (size_t)snprintf(to, size, "%s", from) < size;
}

/* A claim as it is read. */
struct parsing {
    const struct sl_dra_names *names;
    const json_t *results, *configs, *requests;
    const char *name_space;
};

/* Does the config name the request? A name may include a subrequest's name. */
static bool names_request(const json_t *config, const char *full)
{
    const json_t *names = json_object_get(config, "requests");
    size_t n = strcspn(full, "/");
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (name && (strcmp(name, full) == 0 || (strncmp(name, full, n) == 0 && !name[n])))
            return true;
    }
    return false;
}

/* Is a config for this request? A config without names is for all requests. */
static bool concerns(const json_t *config, const char *full)
{
    return json_array_size(json_object_get(config, "requests")) == 0 || names_request(config, full);
}

/* The place of a result among those that the config is for. */
static size_t place_of(const struct parsing *p, const json_t *config, const json_t *result)
{
    size_t i, place = 0;
    const json_t *r;
    json_array_foreach(p->results, i, r)
    {
        if (r == result)
            break;
        place += concerns(config, sl_jget_text(r, "request"));
    }
    return place;
}

/* NVIDIA's parameters in a claim whose device is ours under our own name: somebody changed the class and left them.
 * They may be right where a request has alternatives, or where the claim has devices of both drivers. */
static bool forgotten(const struct parsing *p, const json_t *config, const char *full)
{
    size_t i;
    const json_t *r;
    bool others = strchr(full, '/') != NULL;
    json_array_foreach(p->results, i, r) others |=
        strcmp(sl_jget_text(r, "driver"), SL_DRA_DRIVER) != 0;
    return names_request(config, full) ? !strchr(full, '/') : !others;
}

/* A config of NVIDIA's driver. */
static int read_nvidia(const struct parsing *p, const json_t *config, const json_t *result,
                       struct sl_claim_result *r, struct sl_err *err)
{
    const char *full = sl_jget_text(result, "request");
    const json_t *parameters = json_object_get(json_object_get(config, "opaque"), "parameters");
    if (p->names->nvidia)
        return sl_nvidia_config_apply(parameters, names_request(config, full),
                                      place_of(p, config, result), r, err);
    if (!forgotten(p, config, full))
        return 0;
    return sl_err_set(err, -EINVAL, SL_E_NVIDIA_UNSERVED, r->device);
}

/* The class's config first, then the claim's config over it. */
static int read_config(const struct parsing *p, const json_t *result, struct sl_claim_result *r,
                       struct sl_err *err)
{
    static const char *const sources[] = {"FromClass", "FromClaim"};
    bool said = false;
    for (size_t s = 0; s < 2; s++) {
        const struct sl_share_reader reader = {p->name_space, s == 0 ? &r->allow : NULL};
        for (size_t i = 0; i < json_array_size(p->configs); i++) {
            const json_t *c = json_array_get(p->configs, i);
            const json_t *opaque = json_object_get(c, "opaque");
            const char *driver = sl_jget_text(opaque, "driver");
            bool own = strcmp(driver, SL_DRA_DRIVER) == 0;
            if (strcmp(sl_jget_text(c, "source"), sources[s]) != 0 ||
                (!own && strcmp(driver, SL_NVIDIA_DRIVER) != 0) ||
                !concerns(c, sl_jget_text(result, "request")))
                continue;
            int rc = own ? sl_share_config_apply(json_object_get(opaque, "parameters"), &reader,
                                                 &r->share, err)
                         : read_nvidia(p, c, result, r, err);
            if (rc < 0)
                return sl_err_wrap(err, "request %s", r->request);
            said |= own && s == 1;
        }
        if (s == 0)
            r->by_class = r->share;
    }
    if (said && r->name.kind != SL_DEVICE_SHARE)
        return sl_err_set(err, -EINVAL, SL_E_CLAIM_CONFIG_UNSHARED, r->request, r->device);
    if (r->share.limit_permille && r->share.limit_permille < r->share.cores_permille)
        return sl_err_set(err, -EINVAL, SL_E_CLAIM_LIMIT_LOW, r->request,
                          r->share.limit_permille / 10, r->share.cores_permille / 10);
    return 0;
}

/* Does the request say how much it wants of this capacity? "gpu" or, of alternatives, "gpu/small". */
static bool names_capacity(const json_t *requests, const char *full, const char *capacity)
{
    size_t n = strcspn(full, "/"), i, k;
    const json_t *request, *one;
    json_array_foreach(requests, i, request)
    {
        const char *name = sl_jget_text(request, "name");
        if (strlen(name) != n || strncmp(name, full, n) != 0)
            continue;
        const json_t *asked = json_object_get(request, "exactly");
        json_array_foreach(json_object_get(request, "firstAvailable"), k, one)
        {
            if (full[n] && strcmp(sl_jget_text(one, "name"), full + n + 1) == 0)
                asked = one;
        }
        if (asked)
            return json_object_get(json_object_get(json_object_get(asked, "capacity"), "requests"),
                                   capacity) != NULL;
    }
    return true; /* no such request: what was allocated is all we know */
}

/* NVIDIA's consumable shares: nobody scales memory and time by their number. */
static int check_shares(const struct parsing *p, const json_t *result, struct sl_claim_result *r,
                        struct sl_err *err)
{
    uint64_t n = 1;
    const char *full = sl_jget_text(result, "request");
    const char *text = sl_jget_text(json_object_get(result, "consumedCapacity"), "shares");
    int rc = text[0] ? sl_quantity_read(text, 0, &n, err) : 0;
    if (rc < 0 || n <= 1 ||
        (names_capacity(p->requests, full, "memory") && names_capacity(p->requests, full, "cores")))
        return rc;
    return sl_err_set(err, -EINVAL, SL_E_NVIDIA_SHARES, r->request, (unsigned)n);
}

/* The amounts that the scheduler subtracted from the card. */
static int read_share(const struct parsing *p, const json_t *result, struct sl_claim_result *r,
                      struct sl_err *err)
{
    const json_t *capacity = json_object_get(result, "consumedCapacity");
    const char *memory = sl_jget_text(capacity, "memory"), *cores = sl_jget_text(capacity, "cores");
    uint64_t permille = 0;
    bool unlimited = p->names->consumable == SL_CONSUMABLE_UNLIMITED;
    if (!copy(r->share_id, sizeof(r->share_id), sl_jget_text(result, "shareID")) ||
        !r->share_id[0] || !memory[0] || !cores[0])
        return sl_err_set(err, -EINVAL, SL_E_CLAIM_NO_SHARE, r->device);
    int rc = sl_quantity_read(memory, 0, &r->share.memory_bytes, err);
    if (rc == 0)
        rc = sl_quantity_read(cores, 1, &permille, err);
    if (rc < 0)
        return sl_err_wrap(err, "request %s", r->request);
    if (permille > 1000 || (!unlimited && (permille == 0 || r->share.memory_bytes == 0)))
        return sl_err_set(err, -EINVAL, SL_E_CLAIM_SHARE_BAD, r->request, memory, cores);
    r->share.cores_permille = (uint32_t)permille;
    if (unlimited) /* unless a ShareConfig says otherwise */
        r->share.strategy = SL_SHARE_TIME_SLICING;
    return check_shares(p, result, r, err);
}

/* The device; for a share, its amounts; then the configs. */
static int read_result(const struct parsing *p, const json_t *result, struct sl_claim_result *r,
                       struct sl_err *err)
{
    const char *full = sl_jget_text(result, "request");
    size_t n = strcspn(full, "/");
    if (n == 0 || n >= sizeof(r->request) ||
        !copy(r->device, sizeof(r->device), sl_jget_text(result, "device")))
        return sl_err_set(err, -EINVAL, SL_E_CLAIM_RESULT);
    memcpy(r->request, full, n);
    if (full[n] && !copy(r->subrequest, sizeof(r->subrequest), full + n + 1))
        return sl_err_set(err, -EINVAL, SL_E_CLAIM_RESULT);
    r->share = (struct sl_share)SL_SHARE_INIT;
    r->admin = json_is_true(json_object_get(result, "adminAccess"));
    int rc = sl_device_name_parse(r->device, &r->name, err);
    if (rc < 0)
        return rc;
    if (r->name.kind == SL_DEVICE_VM && r->admin)
        return sl_err_set(err, -EINVAL, SL_E_CLAIM_VM_ADMIN, r->request, r->device);
    if (r->name.kind != SL_DEVICE_SHARE || r->admin)
        return read_config(p, result, r, err);
    rc = read_share(p, result, r, err);
    if (rc == 0)
        rc = read_config(p, result, r, err);
    if (rc == 0 && r->share.strategy != SL_SHARE_TIME_SLICING &&
        (r->share.cores_permille == 0 || r->share.memory_bytes == 0))
        rc = sl_err_set(err, -EINVAL, SL_E_NVIDIA_UNLIMITED, r->request);
    r->idle = !r->share.limit_permille && !names_capacity(p->requests, full, "cores");
    return rc;
}

static int read_header(const json_t *object, const char *uid, struct sl_claim *c,
                       struct sl_err *err)
{
    const json_t *meta = json_object_get(object, "metadata");
    const json_t *pod =
        json_array_get(json_object_get(json_object_get(object, "status"), "reservedFor"), 0);
    if (strcmp(sl_jget_text(meta, "uid"), uid) != 0)
        return sl_err_set(err, -ESTALE, SL_E_CLAIM_REPLACED, sl_jget_text(meta, "namespace"),
                          sl_jget_text(meta, "name"), sl_jget_text(meta, "uid"));
    bool good = copy(c->name_space, sizeof(c->name_space), sl_jget_text(meta, "namespace")) &&
                copy(c->name, sizeof(c->name), sl_jget_text(meta, "name")) &&
                copy(c->uid, sizeof(c->uid), uid);
    if (!good)
        return sl_err_set(err, -EINVAL, SL_E_CLAIM_NAMES_LONG);
    (void)copy(c->pod_claim, sizeof(c->pod_claim),
               sl_jget_text(json_object_get(meta, "annotations"), POD_CLAIM_ANNOTATION));
    if (strcmp(sl_jget_text(pod, "resource"), "pods") == 0) {
        (void)copy(c->pod, sizeof(c->pod), sl_jget_text(pod, "name"));
        (void)copy(c->pod_uid, sizeof(c->pod_uid), sl_jget_text(pod, "uid"));
    }
    return 0;
}

int sl_claim_parse(const json_t *object, const struct sl_dra_names *names, const char *pool,
                   const char *uid, struct sl_claim *ret, struct sl_err *err)
{
    const char *driver = sl_dra_driver(names);
    *ret = (struct sl_claim){0};
    int rc = read_header(object, uid, ret, err);
    if (rc < 0)
        return rc;
    const json_t *devices = json_object_get(
        json_object_get(json_object_get(object, "status"), "allocation"), "devices");
    const json_t *results = json_object_get(devices, "results");
    const json_t *asked = json_object_get(json_object_get(object, "spec"), "devices");
    const struct parsing p = {names, results, json_object_get(devices, "config"),
                              json_object_get(asked, "requests"), ret->name_space};
    if (!json_array_size(results))
        return sl_err_set(err, -EAGAIN, SL_E_CLAIM_UNALLOCATED, ret->name_space, ret->name);
    for (size_t i = 0; i < json_array_size(results); i++) {
        const json_t *r = json_array_get(results, i);
        if (strcmp(sl_jget_text(r, "driver"), driver) != 0)
            continue;
        if (strcmp(sl_jget_text(r, "pool"), pool) != 0)
            return sl_err_set(err, -EINVAL, SL_E_CLAIM_OTHER_NODE, ret->name_space, ret->name,
                              sl_jget_text(r, "pool"), pool);
        if (ret->result_count == SL_CLAIM_RESULTS)
            return sl_err_set(err, -E2BIG, SL_E_CLAIM_DEVICES, ret->name_space, ret->name,
                              SL_CLAIM_RESULTS);
        rc = read_result(&p, r, &ret->result[ret->result_count], err);
        if (rc < 0)
            return rc;
        struct sl_claim_result *x = &ret->result[ret->result_count];
        x->group = (unsigned)ret->result_count;
        for (size_t k = 0; k < ret->result_count && x->group == ret->result_count; k++)
            if (strcmp(ret->result[k].request, x->request) == 0)
                x->group = ret->result[k].group;
        ret->result_count++;
    }
    if (ret->result_count == 0)
        return sl_err_set(err, -EINVAL, SL_E_CLAIM_NO_DEVICE, ret->name_space, ret->name, driver);
    return 0;
}

/* Is it one tenant with what its container has of the same kind: a share, or a card by MPS? */
static bool is_tenant(const struct sl_claim_result *r)
{
    return !r->admin && (r->name.kind == SL_DEVICE_SHARE || r->share.strategy == SL_SHARE_MPS);
}

bool sl_claim_several(const struct sl_claim *claim)
{
    const struct sl_claim_result *first = NULL;
    for (size_t i = 0; i < claim->result_count; i++) {
        const struct sl_claim_result *r = &claim->result[i];
        if (!is_tenant(r))
            continue;
        if (first && first->group != r->group)
            return true;
        first = r;
    }
    return false;
}

/* Is the pod's claim of this name the one? For a claim from a template, the pod's status has the claim's name. */
static bool is_claim(const json_t *pod, const char *name, const char *claim)
{
    const json_t *lists[] = {
        json_object_get(json_object_get(pod, "spec"), "resourceClaims"),
        json_object_get(json_object_get(pod, "status"), "resourceClaimStatuses")};
    for (size_t l = 0; l < 2; l++)
        for (size_t i = 0; i < json_array_size(lists[l]); i++) {
            const json_t *c = json_array_get(lists[l], i);
            if (strcmp(sl_jget_text(c, "name"), name) == 0 &&
                strcmp(sl_jget_text(c, "resourceClaimName"), claim) == 0)
                return true;
        }
    return false;
}

static const char *const kinds[] = {"containers", "initContainers"};

/* Does the container name the claim, or this request of it? */
static bool uses_request(const json_t *pod, const json_t *container, const char *claim,
                         const char *request)
{
    const json_t *uses = json_object_get(json_object_get(container, "resources"), "claims");
    for (size_t k = 0; k < json_array_size(uses); k++) {
        const json_t *u = json_array_get(uses, k);
        const char *only = sl_jget_text(u, "request");
        if (is_claim(pod, sl_jget_text(u, "name"), claim) &&
            (!only[0] || strcmp(only, request) == 0))
            return true;
    }
    return false;
}

static void join_container(struct sl_claim *claim, const json_t *pod, const json_t *container)
{
    struct sl_claim_result *first = NULL;
    for (size_t i = 0; i < claim->result_count; i++) {
        struct sl_claim_result *r = &claim->result[i];
        if (!uses_request(pod, container, claim->name, r->request) || !is_tenant(r))
            continue;
        if (!first)
            first = r;
        unsigned from = r->group, to = first->group;
        for (size_t k = 0; k < claim->result_count; k++)
            if (claim->result[k].group == from)
                claim->result[k].group = to;
    }
}

const char *sl_claim_meeting(const json_t *pod, const char *claim, const char *request,
                             const char *other, const char *other_request)
{
    for (size_t l = 0; l < 2; l++) {
        const json_t *list = json_object_get(json_object_get(pod, "spec"), kinds[l]);
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *c = json_array_get(list, i);
            if (uses_request(pod, c, claim, request) && uses_request(pod, c, other, other_request))
                return sl_jget_text(c, "name");
        }
    }
    return NULL;
}

void sl_claim_containers(const json_t *pod, const char *claim, const char *request, char *buf,
                         size_t size)
{
    buf[0] = '\0';
    for (size_t l = 0; l < 2; l++) {
        const json_t *list = json_object_get(json_object_get(pod, "spec"), kinds[l]);
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *c = json_array_get(list, i);
            size_t n = strlen(buf);
            const char *name = sl_jget_text(c, "name");
            if (uses_request(pod, c, claim, request) && n + strlen(name) + 2 <= size)
                (void)snprintf(buf + n, size - n, "%s%s", n ? "," : "", name);
        }
    }
}

void sl_claim_join(struct sl_claim *claim, const json_t *pod)
{
    for (size_t l = 0; l < 2; l++) {
        const json_t *list = json_object_get(json_object_get(pod, "spec"), kinds[l]);
        for (size_t i = 0; i < json_array_size(list); i++)
            join_container(claim, pod, json_array_get(list, i));
    }
}
