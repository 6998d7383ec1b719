/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prepared claims on disk: one versioned JSON file with a checksum, replaced whole; its predecessor is kept beside
 * it. Unprepare gets only the uid of a claim, maybe after the claim is deleted. So each step is in this file before the
 * step is taken, with all that is needed to undo it.
 */
#ifndef SLUICE_AGENT_DRA_CHECKPOINT_H
#define SLUICE_AGENT_DRA_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/dra/claim.h"
#include "base/err.h"
#include "gpu/gpu.h"
#include "sluice/pages.h"

#define SL_CHECKPOINT_FILE "checkpoint.json"

enum sl_prepared_state { SL_PREPARING, SL_PREPARED, SL_UNPREPARING };
enum sl_prepared_mig {
    SL_MIG_NO,
    SL_MIG_PLANNED, /* this agent will make it: there was no instance at this time */
    SL_MIG_MADE,    /* this agent made it */
    SL_MIG_FOUND,   /* another program made it; used as it is */
};

#define SL_CONTAINERS_SIZE 128

/* The time since when a condition of the claim's status holds, in seconds of the calendar. One of them is 0. */
struct sl_prepared_since {
    uint64_t yes_s, no_s;
};

/* One device of a prepared claim. */
struct sl_prepared_device {
    char request[64], subrequest[64], device[SL_DEVICE_NAME_SIZE], share_id[SL_UID_SIZE];
    bool admin;
    char tenant[SL_NAME_MAX]; /* in the arbiter; "": none */
    struct sl_share
        share; /* as allocated; of a whole device, only the GPU; of a virtual machine's, its id */
    struct sl_resize resized; /* the changes since then */
    uint32_t timeslice;       /* of a whole card: the interval to set, 1 to 3; 0: the driver's */
    enum sl_prepared_mig mig;
    uint32_t mig_profile_id, mig_start, mig_size;
    char mig_profile[32], mig_uuid[SL_GPU_UUID_SIZE]; /* uuid: once the instance is made or found */
    uint32_t mig_gpu_instance, mig_compute_instance;
    struct sl_prepared_since ready_since, resized_since;
    char containers[SL_CONTAINERS_SIZE]; /* not kept: its containers, "a,b"; "": not known yet */
};

struct sl_prepared {
    char uid[SL_UID_SIZE], name_space[64], name[SL_K8S_NAME], pod[SL_K8S_NAME],
        pod_uid[SL_UID_SIZE], pod_claim[64];
    enum sl_prepared_state state;
    struct sl_prepared_device *device;
    size_t device_count;
    uint32_t unsure; /* 1: the arbiter did not answer a resize; a tenant may have other amounts */
    bool untold;     /* not kept: its status is not written yet */
    bool retell;     /* … writing failed, and is tried again later */
    struct sl_prepared *next;
};

struct sl_checkpoint {
    struct sl_prepared *claims;
    bool doubtful; /* the newest file could not be read: claims may be missing */
};

/* -ENOENT is no error: an empty checkpoint. A file that is cut short or has a wrong checksum is set aside and logged,
 * and its predecessor is used. */
int sl_checkpoint_load(const char *dir, struct sl_checkpoint *ret,
                       struct sl_err *err) SL_MUST_CHECK;
int sl_checkpoint_save(const char *dir, const struct sl_checkpoint *c,
                       struct sl_err *err) SL_MUST_CHECK;
void sl_checkpoint_clear(struct sl_checkpoint *c);

struct sl_prepared *sl_checkpoint_find(const struct sl_checkpoint *c, const char *uid);
/* Adds an empty entry with room for so many devices to the list. */
struct sl_prepared *sl_checkpoint_add(struct sl_checkpoint *c, const char *uid, size_t devices);
void sl_checkpoint_drop(struct sl_checkpoint *c, struct sl_prepared *entry); /* frees it */

/* The share's amounts now, resized or not. */
struct sl_share sl_prepared_share(const struct sl_prepared_device *d);

#endif
