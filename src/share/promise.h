/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The annotations between controller and agent: the GPUs of a node, and the promise to a pod. Ours are JSON; the same
 * content is also in HAMi's form, which existing tools read. Pure.
 *
 *   node  sluice.io/gpus                 [{"uuid":…,"memoryMiB":…,"cores":100,"model":…,"numa":0,"healthy":true}]
 *   node  hami.io/node-nvidia-register   [{"id":…,"count":10,"devmem":…,"devcore":100,"type":…,…}]
 *   pod   sluice.io/lease                {"version":1,"node":…,"containers":[{"name":…,"gpus":[
 *                                          {"uuid":…,"memoryMiB":…,"cores":…}],"coresLimit":100,"priority":"high"}]}
 *   pod   sluice.io/lease-allocated      the lease before the pod was resized
 *   pod   sluice.io/resized              {"resize":"memory=8Gi","done":true,"message":…}
 *   node  sluice.io/resized-at           a number: it changes when a lease of the node was resized
 *   pod   hami.io/vgpu-devices-…         UUID,NVIDIA,MiB,cores:;  one part a container, init containers first
 */
#ifndef SLUICE_SHARE_PROMISE_H
#define SLUICE_SHARE_PROMISE_H

#include "share/resize.h"
#include "share/share.h"

#define SL_PROMISE_GPUS_KEY     "sluice.io/gpus"
#define SL_PROMISE_REGISTER_KEY "hami.io/node-nvidia-register"
#define SL_PROMISE_REQUEST_KEY  "sluice.io/request"
#define SL_PROMISE_LEASE_KEY    "sluice.io/lease"
#define SL_PROMISE_BEFORE_KEY   "sluice.io/lease-allocated"
#define SL_PROMISE_RESIZED_KEY  "sluice.io/resized"
#define SL_PROMISE_NUDGE_KEY    "sluice.io/resized-at"
#define SL_PROMISE_HAMI_NODE    "hami.io/vgpu-node"
#define SL_PROMISE_HAMI_TIME    "hami.io/vgpu-time"
#define SL_PROMISE_HAMI_PHASE   "hami.io/bind-phase"
#define SL_PROMISE_HAMI_BOUND   "hami.io/bind-time"
#define SL_PROMISE_HAMI_TODO    "hami.io/vgpu-devices-to-allocate"
#define SL_PROMISE_HAMI_DONE    "hami.io/vgpu-devices-allocated"

#define SL_PROMISE_NODE_GPUS  16
#define SL_PROMISE_CONTAINERS 32
#define SL_PROMISE_SHARES     64 /* of a pod, all containers together */

struct sl_promise_gpu {
    char uuid[64];
    char model[64]; /* as NVML names it */
    uint32_t memory_mib;
    uint32_t cores; /* percent: 100 */
    int32_t numa;   /* -1: not known */
    bool healthy;
};

struct sl_promise_node {
    struct sl_promise_gpu gpu[SL_PROMISE_NODE_GPUS];
    size_t count;
};

/* Both read our own texts and texts of others: every field is checked, -EINVAL names the wrong field. */
int sl_promise_gpus_parse(const char *text, struct sl_promise_node *ret,
                          struct sl_err *err) SL_MUST_CHECK;
/* HAMi's, in its JSON form or the older form with commas. */
int sl_promise_register_parse(const char *text, struct sl_promise_node *ret,
                              struct sl_err *err) SL_MUST_CHECK;
/* To be freed; NULL: out of memory. split: how many tenants a card may have, for HAMi's "count". */
char *sl_promise_gpus_text(const struct sl_promise_node *node);
char *sl_promise_register_text(const struct sl_promise_node *node, unsigned split);

struct sl_promise_container {
    char name[64];
    uint8_t first, count; /* of the shares */
};

/* In the order of the pod, init containers first; those without a GPU have count 0. */
struct sl_promise {
    char node[254];
    struct sl_promise_container container[SL_PROMISE_CONTAINERS];
    size_t container_count;
    struct sl_share share[SL_PROMISE_SHARES];
    size_t share_count;
};

int sl_promise_lease_parse(const char *text, struct sl_promise *ret,
                           struct sl_err *err) SL_MUST_CHECK;
char *sl_promise_lease_text(const struct sl_promise *promise); /* to be freed; NULL: no memory */

/* Changes all shares alike. Amounts are rounded down to whole MiB and percent, as a lease has them; at least 1. */
void sl_promise_resize(struct sl_promise *promise, const struct sl_resize *r);

/* What became of a resize: the content of SL_PROMISE_RESIZED_KEY. */
struct sl_promise_resized {
    char resize[128]; /* the annotation that was carried out, or refused; "": it was removed */
    bool done;
    char message[400];
};
/* A text that cannot be read counts as absent: all empty, not done. */
void sl_promise_resized_parse(const char *text, struct sl_promise_resized *ret);
char *sl_promise_resized_text(const struct sl_promise_resized *r); /* to be freed */

/* HAMi's devices annotation; names and node are left empty. */
int sl_promise_hami_parse(const char *text, struct sl_promise *ret,
                          struct sl_err *err) SL_MUST_CHECK;
char *sl_promise_hami_text(const struct sl_promise *promise);

#endif
