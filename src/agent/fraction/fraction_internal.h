/* SPDX-License-Identifier: Apache-2.0 */
/* The insides of fractions, shared by fraction*.c. */
#ifndef SLUICE_AGENT_FRACTION_FRACTION_INTERNAL_H
#define SLUICE_AGENT_FRACTION_FRACTION_INTERNAL_H

#include "agent/fraction/fraction.h"
#include "agent/kubelet/podres.h"
#include "agent/tenant/leases.h"
#include "config/plan.h"
#include "share/promise.h"

#define SL_POD_SPACE_SIZE 64
#define SL_POD_NAME_SIZE  254
#define SL_POD_UID_SIZE   64

/* A tenant of ours at the arbiter, and its slot. */
#define SL_FRACTION_CLAIM   160
#define SL_FRACTION_OUTCOME 640

struct sl_fraction_slot {
    struct sl_fraction_slot *next;
    char token[SL_DEVICE_ID_SIZE];
    char tenant[SL_NAME_MAX];
    char space[SL_POD_SPACE_SIZE], pod[SL_POD_NAME_SIZE], container[64], uid[SL_POD_UID_SIZE];
    char claim
        [SL_FRACTION_CLAIM]; /* the name of its claim, maybe cut: a tenant that a DRA agent left; "": a slot */
    struct sl_fraction *fraction;
    bool counting;               /* the arbiter was asked whether anybody uses it */
    bool removing;               /* the arbiter was asked to remove it */
    struct sl_kube_call *asking; /* a question to the API server: does the pod still exist? */
    /* resizes */
    struct sl_kube_call *looking; /* a question to the API server: is the lease another one now? */
    bool setting;                 /* the arbiter was asked to change it */
    bool look_again;              /* … and something changed meanwhile */
    bool looked, outcome_new;     /* the outcome was read before; it has changed since */
    unsigned failures;            /* in a row, to follow the lease; each may pass */
    bool told;                    /* … and the pod's users know */
    uint64_t look_at_ns;          /* the next try; 0: none is due */
    uint64_t asked;               /* the amounts that the arbiter was asked for last */
    uint64_t known;               /* the tenant's amounts as one number; 0: not known */
    bool unsure;                  /* the tenant may have others: ask, whatever the lease says */
    char outcome[SL_FRACTION_OUTCOME]; /* the pod's SL_PROMISE_RESIZED_KEY, maybe cut */
};

struct sl_start;

struct sl_fraction {
    struct sl_loop *loop;
    struct sl_fraction_options opt;
    struct sl_kube *kube;
    struct sl_leases *leases;
    struct sl_podres *podres;
    struct sl_fraction_slot *slots;
    struct sl_start *starts; /* in the order of arrival */
    bool loaded;             /* the arbiter's tenants are known */
    bool listing;            /* the sweep has asked kubelet */
    struct sl_timer timer;   /* load again, or sweep */
    struct sl_timer look;    /* the next try of those that did not follow their lease */
    uint64_t unsure_ns;      /* the next look, while a tenant is unlisted but its pod exists */
    char said[400];          /* the last error that was logged */
};

/* --- fraction_pod.c: reads a pod's object --- */

/* The same token for every order in which kubelet names the devices. */
int sl_fraction_token(const char *const *ids, size_t n, char buf[SL_DEVICE_ID_SIZE],
                      struct sl_err *err) SL_MUST_CHECK;

enum sl_pod_state { SL_POD_OVER, SL_POD_LEAVING, SL_POD_ALIVE };
enum sl_pod_state sl_fraction_pod_state(const json_t *pod);

/*
 * The lease that was promised to the pod's container, with the tenant's name and everything that a restart needs.
 *
 * Kubelet lists the container that finally has the devices, but not the init containers that had them before; the pod's
 * status tells which of these runs now. -EAGAIN: the status is behind kubelet, read it again; `settled`: the status has
 * had enough time, believe it.
 */
int sl_fraction_lease(const struct sl_fraction *f, const json_t *pod, const char *listed,
                      bool settled, const char *token, struct sl_msg_lease *ret,
                      struct sl_err *err) SL_MUST_CHECK;

/* Adds the slot of a tenant, from the arbiter's `about` text. False: the tenant is not ours. */
bool sl_fraction_slot_add(struct sl_fraction *f, const char *tenant, const char *about);

/* The amounts that the pod's lease has for the slot's container now, for SL_MSG_SET. */
int sl_fraction_slot_lease(const struct sl_fraction_slot *slot, const json_t *pod,
                           struct sl_msg_lease *ret, struct sl_err *err) SL_MUST_CHECK;

/* --- fraction_resize.c --- */
/* The tenant has these amounts, by a pod with this SL_PROMISE_RESIZED_KEY. */
void sl_fraction_slot_known(struct sl_fraction_slot *slot, const struct sl_msg_lease *lease,
                            const char *outcome);
/* Reads the slot's pod, and changes the tenant if the lease has changed. */
void sl_fraction_slot_look(struct sl_fraction_slot *slot);

/* --- fraction.c --- */
/* Cancels the slot's questions and frees it; it is in no list. */
void sl_fraction_slot_free(struct sl_fraction_slot *slot);
struct sl_fraction_slot *sl_fraction_find(const struct sl_fraction *f, const char *tenant);
void sl_fraction_say(struct sl_fraction *f, const char *what, const struct sl_err *err);

/* --- fraction_start.c --- */
/* Continues the starts that can go on. */
void sl_fraction_wake(struct sl_fraction *f);
void sl_fraction_starts_end(struct sl_fraction *f);

/* --- fraction_sweep.c --- */
void sl_fraction_load(struct sl_fraction *f);
/* Takes kubelet's list: a tenant that is not in it is looked up, and removed when its pod is gone. */
void sl_fraction_listed(struct sl_fraction *f, const struct sl_podres_map *map);
/* Looks up all tenants, listed or not: a new tenant needs the room. */
void sl_fraction_sweep_all(struct sl_fraction *f);
void sl_fraction_slot_remove(struct sl_fraction_slot *slot);
void sl_fraction_sweep_timer(struct sl_fraction *f);

#endif
