/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pod has which device: asks kubelet's PodResources API on demand, at most every few seconds.
 */
#ifndef SLUICE_AGENT_KUBELET_PODRES_H
#define SLUICE_AGENT_KUBELET_PODRES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/loop.h"

struct sl_podres;

/* A device of a device plugin in a container. */
struct sl_podres_device {
    const char *resource, *id;
    const char *pod_namespace, *pod, *container;
};

/*
 * A device of a claim. Kubelet lists all devices of a claim for every container that names the claim, even for a
 * container that uses one request of it, and gives no pod UID: (driver, pool, device, share) is the key.
 */
struct sl_podres_claim {
    const char *driver, *pool, *device, *share_id; /* share_id "": none */
    const char *claim_namespace, *claim;
    const char *pod_namespace, *pod, *container;
};

/* One answer of kubelet, never changed. Devices are sorted by resource and id, claims by driver, pool, device and
 * share. */
struct sl_podres_map {
    struct sl_podres_device *device;
    size_t device_count;
    struct sl_podres_claim *claim;
    size_t claim_count;
};

/* socket NULL: kubelet's usual one. max_age_ns 0: 5 s. Connects at the first question. */
struct sl_podres *sl_podres_create(struct sl_loop *loop, const char *socket, uint64_t max_age_ns);
/* Callers that still wait are not called back. NULL is fine; not from inside a callback. */
void sl_podres_destroy(struct sl_podres *podres);

/* map: the newest answer, NULL if there never was one; borrowed for the call. err: why it is not fresh, else NULL. */
typedef void sl_podres_done(void *data, const struct sl_podres_map *map, const struct sl_err *err);

/* Asks kubelet unless the last answer is young enough; calls back once, perhaps before this returns. */
void sl_podres_get(struct sl_podres *podres, sl_podres_done *done, void *data);
/* The same, but always with a new question to kubelet: the answer shows everything that happened before this call. Any
 * number of callers share one question. */
void sl_podres_fresh(struct sl_podres *podres, sl_podres_done *done, void *data);
/* Cancels every question that was asked with this data. */
void sl_podres_forget(struct sl_podres *podres, void *data);

/* The last answer, of any age; NULL: none. Valid until the loop runs again. */
const struct sl_podres_map *sl_podres_last(const struct sl_podres *podres);

/* The first entry for this device, and the number of entries: a pod that has ended may still be listed beside its
 * successor (kubelet before 1.34). 0 and NULL: no container has the device. */
size_t sl_podres_find(const struct sl_podres_map *map, const char *resource, const char *id,
                      const struct sl_podres_device **ret);
/* How many different devices of a resource are in containers. */
size_t sl_podres_in_use(const struct sl_podres_map *map, const char *resource);

#endif
