/* SPDX-License-Identifier: Apache-2.0 */
/* A ResourceClaim as this driver needs it: what the scheduler allocated to us, checked. Pure. */
#ifndef SLUICE_AGENT_DRA_CLAIM_H
#define SLUICE_AGENT_DRA_CLAIM_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/dra/device_name.h"
#include "base/err.h"
#include "config/config.h"
#include "share/share_json.h"

#define SL_CLAIM_RESULTS 32 /* of one claim, by the API */
#define SL_UID_SIZE      64
#define SL_K8S_NAME      254

#define SL_RESIZE_ANNOTATION "gpu.sluice.io/resize"

struct sl_claim_result {
    char request[64]; /* without a subrequest's name, as kubelet wants it */
    char device[SL_DEVICE_NAME_SIZE];
    char share_id[SL_UID_SIZE]; /* "" for devices given whole */
    bool admin;                 /* admin access: looks on, takes nothing */
    struct sl_device_name name;
    struct sl_share
        share; /* GPU not known yet; of devices given whole, only what a ShareConfig says */
    struct sl_share by_class;     /* before the claim's own words */
    struct sl_config_allow allow; /* what its class adds to what may be asked for */
    /* Results with the same number go to the same containers, and are one tenant. From sl_claim_parse:
     * each request by itself. */
    unsigned group;
};

struct sl_claim {
    char name_space[64], name[SL_K8S_NAME], uid[SL_UID_SIZE];
    char pod[SL_K8S_NAME], pod_uid[SL_UID_SIZE]; /* the first it is reserved for; "" */
    struct sl_claim_result result[SL_CLAIM_RESULTS];
    size_t result_count;
};

/*
 * Reads what kubelet named (namespace, name, uid) out of the API's object. Errors are for the pod's owner:
 * -ESTALE another claim of that name, -EAGAIN not allocated (any more), -EINVAL something to change.
 */
int sl_claim_parse(const json_t *object, const char *pool, const char *uid, struct sl_claim *ret,
                   struct sl_err *err) SL_MUST_CHECK;

/* Returns whether the claim has shares of more than one request, so that it matters which
 * container uses which. */
bool sl_claim_several(const struct sl_claim *claim);
/* Joins the requests that one container of the pod uses together: it can be one tenant only. */
void sl_claim_join(struct sl_claim *claim, const json_t *pod);
/* The pod's containers that use a request of the claim, "a,b"; those that do not fit are left out. */
void sl_claim_containers(const json_t *pod, const char *claim, const char *request, char *buf,
                         size_t size);

/* --- share_config.c: ShareConfig --- */

/* Where the configuration comes from: only a DeviceClass may say what claims may ask for. */
struct sl_share_reader {
    const char *name_space; /* the claim's */
    struct sl_config_allow
        *allow; /* gets what the class allows there; NULL: a claim's config is read */
};

/* Lays one ShareConfig over `share`: what it says replaces, the rest stays. Untouched on error. */
int sl_share_config_apply(const json_t *parameters, const struct sl_share_reader *reader,
                          struct sl_share *share, struct sl_err *err) SL_MUST_CHECK;

/* "memory=12Gi,cores=40" or "cores=30:100": what is not named stays. permille 0: not named. */
struct sl_claim_resize {
    uint64_t memory_bytes;
    uint32_t cores_permille, limit_permille;
};
int sl_claim_resize_parse(const char *text, struct sl_claim_resize *ret,
                          struct sl_err *err) SL_MUST_CHECK;

#endif
