/* SPDX-License-Identifier: Apache-2.0 */
/* A ResourceClaim as this driver needs it: the devices that the scheduler allocated to us, checked. Pure. */
#ifndef SLUICE_AGENT_DRA_CLAIM_H
#define SLUICE_AGENT_DRA_CLAIM_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/dra/device_name.h"
#include "base/err.h"
#include "config/config.h"
#include "share/resize.h"
#include "share/share_json.h"

#define SL_CLAIM_RESULTS 32 /* of one claim; a limit of the API */
#define SL_UID_SIZE      64
#define SL_K8S_NAME      254

struct sl_claim_result {
    uint32_t timeslice; /* GpuConfig: the interval that a whole card is set to; 0: the driver's */
    char request[64];   /* without a subrequest's name, as kubelet wants it */
    char subrequest[64];
    char device[SL_DEVICE_NAME_SIZE];
    char share_id[SL_UID_SIZE]; /* "" for whole devices */
    bool admin;                 /* admin access: observes only, takes nothing */
    bool
        idle; /* the request names no cores, and no configuration a limit: it may use the idle time, as far as its
                  namespace may (sl_allow_claim) */
    struct sl_device_name name;
    struct sl_share
        share; /* GPU not known yet; of whole devices, only the values of a ShareConfig */
    struct sl_share by_class;     /* before the claim's own configuration */
    struct sl_config_allow allow; /* the rights that the device class adds */
    /* Results with the same number go to the same containers, and are one tenant. After sl_claim_parse each request has
     * its own number. */
    unsigned group;
};

struct sl_claim {
    char name_space[64], name[SL_K8S_NAME], uid[SL_UID_SIZE];
    char pod[SL_K8S_NAME], pod_uid[SL_UID_SIZE]; /* the first pod that it is reserved for; "" */
    char pod_claim[64]; /* its name in the pod, for a claim from a template; "" */
    struct sl_claim_result result[SL_CLAIM_RESULTS];
    size_t result_count;
};

/*
 * Reads the claim that kubelet named (namespace, name, uid) from the API's object. Errors are for the pod's owner:
 * -ESTALE another claim of that name, -EAGAIN not allocated (any more), -EINVAL something to change.
 */
int sl_claim_parse(const json_t *object, const struct sl_dra_names *names, const char *pool,
                   const char *uid, struct sl_claim *ret, struct sl_err *err) SL_MUST_CHECK;

/* Has the claim shares of more than one request? Then it matters which container uses which request. */
bool sl_claim_several(const struct sl_claim *claim);
/* Joins the requests that one container of the pod uses: a container can be one tenant only. */
void sl_claim_join(struct sl_claim *claim, const json_t *pod);
/* The name of a container that uses this request of one claim and that request of another; NULL: none does. */
const char *sl_claim_meeting(const json_t *pod, const char *claim, const char *request,
                             const char *other, const char *other_request);
/* The pod's containers that use a request of the claim, "a,b"; names that do not fit are left out. */
void sl_claim_containers(const json_t *pod, const char *claim, const char *request, char *buf,
                         size_t size);

/* --- share_config.c: ShareConfig --- */

/* The source of the configuration: only a DeviceClass may say which requests are allowed. */
struct sl_share_reader {
    const char *name_space; /* the claim's */
    struct sl_config_allow
        *allow; /* gets the rights from the class; NULL: a claim's config is read */
};

/* Lays one ShareConfig over `share`: the fields that it sets are replaced. Untouched on error. */
int sl_share_config_apply(const json_t *parameters, const struct sl_share_reader *reader,
                          struct sl_share *share, struct sl_err *err) SL_MUST_CHECK;

/* --- nvidia_config.c: the opaque parameters of NVIDIA's driver --- */

#define SL_NVIDIA_API_VERSION "resource.nvidia.com/v1beta1"
/* Takes a GpuConfig or MigDeviceConfig over into the result; it replaces an earlier one. `named`: the config names the
 * request; otherwise it may be for a device of another kind, and is no concern of this one. `place`: of this device
 * among those that the config is for. */
int sl_nvidia_config_apply(const json_t *parameters, bool named, size_t place,
                           struct sl_claim_result *r, struct sl_err *err) SL_MUST_CHECK;

#endif
