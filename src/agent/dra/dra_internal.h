/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the DRA driver. Everything runs in the thread of the loop. */
#ifndef SLUICE_AGENT_DRA_DRA_INTERNAL_H
#define SLUICE_AGENT_DRA_DRA_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/dra/checkpoint.h"
#include "agent/dra/claim.h"
#include "agent/dra/dra.h"
#include "agent/dra/slices.h"
#include "agent/tenant/leases.h"
#include "rpc/server.h"

#define SL_DRA_ARBITER_NS (5 * 1000000000ULL) /* for a hung arbiter; kubelet waits 45 s */
#define SL_CLAIMS_PATH    "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s"

struct op;
struct health_stream;
struct resize_watch;
struct dra_tell;

/* Outlives the driver while a job is running. */
struct dra_link {
    struct sl_dra *dra; /* NULL: the driver is gone */
    unsigned refs;
};

/* Facts about a card that the inventory does not have. */
struct card {
    char uuid[SL_GPU_UUID_SIZE];
    struct sl_gpu_mig_profile *profile;
    size_t profile_count;
    bool asked_profiles;
    char pcie_root[64];
    bool unhealthy, lost;
    bool lost_untold; /* lost, or back, since the last reading */
    char reason[200];
};

struct sl_dra {
    struct sl_loop *loop;
    struct sl_kube *kube;
    struct sl_dra_ops ops;
    void *data;
    struct dra_link *link; /* for jobs, which may outlive the driver */
    struct sl_dra_options opt;
    char dra_socket[108], reg_socket[108];

    int lock_fd;             /* held for life: only one driver uses the checkpoint */
    struct sl_timer standby; /* set: another driver has the checkpoint, we wait for its end */
    struct sl_rpc_server *registration, *plugin;
    struct sl_leases *leases;
    struct sl_checkpoint checkpoint;
    struct op *running; /* claims being prepared or unprepared, oldest first */
    struct op *committing;
    struct sl_timer commit;
    struct sl_timer retry;   /* to undo claims that a restart left half done */
    struct sl_timer telling; /* to write status and to watch prepared claims */
    struct sl_timer retell;  /* to write again a status that the API server did not take */
    bool silent;             /* the API server is away, and that is logged */
    bool recovered;

    const struct sl_inventory *inv;
    const struct sl_config *config;
    const struct sl_driver *driver;
    struct card *card; /* one for each card of the inventory */
    size_t card_count;
    unsigned owed; /* answers to wait for: do not publish slices that would change at once */
    const struct sl_vm_offer *vm; /* NULL: not known, or off */
    bool awaits_vm;               /* it is being read */
    bool alone;                   /* there is no driver for containers: publish without cards */
    bool recovered_vm;
    char node_uid[SL_UID_SIZE];
    struct sl_kube_call *node_call;
    struct sl_slices_publisher *publisher;
    /* Takes the slices of the other name away, from before the name was changed: they offer the same devices. NULL: done */
    struct sl_slices_publisher *former;
    struct sl_timer former_timer;
    bool taken_told; /* another program has our name, and that is told */

    struct health_stream *streams;
    struct sl_timer health_timer;
    struct resize_watch *watches;
    struct dra_tell *tells;
    struct sl_dra_stats stats;
};

/* dra.c */
struct card *sl_dra_card(struct sl_dra *dra, const char *uuid);
uint64_t sl_dra_card_bytes(const struct sl_dra *dra, const char *uuid); /* 0: the card is gone */
void sl_dra_republish(struct sl_dra *dra);
const char *sl_dra_card_trouble(const struct card *c); /* NULL: no trouble */
enum dra_fitness { DRA_UNKNOWN, DRA_FIT, DRA_TROUBLE };
/* How the device of a prepared claim is; with its reason when it is in trouble. */
enum dra_fitness sl_dra_fitness(struct sl_dra *dra, const struct sl_prepared_device *d,
                                const char **ret_reason);
/* Is all known that preparing this claim again needs: cards, driver, devices for virtual machines? */
bool sl_dra_knows(const struct sl_dra *dra, const struct sl_prepared *p);
void sl_dra_tell(struct sl_dra *dra, const struct sl_prepared *p, bool warning, const char *reason,
                 const char *message);

/* dra_plan.c: translates a claim to this node's cards, and checks that there is room. Pure. */
struct sl_prepared *sl_dra_plan(struct sl_dra *dra, struct sl_claim *claim, struct sl_err *err);
/* Would the share fit with its wanted size? */
int sl_dra_fits(struct sl_dra *dra, const struct sl_prepared_device *d,
                struct sl_err *err) SL_MUST_CHECK;
/* All shares of this device's tenant as one lease: as allocated, for CREATE, or with the wanted size, for SET. */
int sl_dra_compose(const struct sl_dra *dra, const struct sl_prepared *p, size_t device, bool now,
                   struct sl_msg_lease *ret, struct sl_err *err) SL_MUST_CHECK;
/* Is this device the first of its tenant? The other devices are part of the same lease. */
bool sl_dra_first_of_tenant(const struct sl_prepared *p, size_t device);

/* dra_cdi.c */
void sl_dra_cdi_name(const struct sl_prepared *p, const struct sl_prepared_device *d, char *buf,
                     size_t size);

/* dra_vm.c: claims of devices for virtual machines */
bool sl_dra_is_vm(const struct sl_prepared_device *d);
bool sl_dra_vm_takes(const struct sl_dra *dra, size_t gpu); /* have virtual machines the card? */
int sl_dra_vm_plan(struct sl_dra *dra, struct sl_prepared_device *d,
                   struct sl_err *err) SL_MUST_CHECK;
/* The nodes of VFIO, virt-launcher's variables, and the metadata of the request. */
int sl_dra_vm_edits(struct sl_dra *dra, const struct sl_prepared *p, size_t device,
                    struct sl_edits *e, struct sl_err *err) SL_MUST_CHECK;
void sl_dra_vm_told(struct sl_dra *dra); /* the offer has changed: tells those who have a device */

/* dra_metadata.c: the attributes of a request's devices as a file in its containers, as KEP-5304 says */
int sl_dra_metadata_write(struct sl_dra *dra, const struct sl_prepared *p, const char *request,
                          struct sl_edits *e, struct sl_err *err) SL_MUST_CHECK;
void sl_dra_metadata_remove(struct sl_dra *dra, const char *uid);

/* dra_mig.c: one job on the worker thread for all MIG devices of a claim; done is called on the loop. */
enum mig_work {
    MIG_LOOK,   /* finds existing instances: fills mig, uuid and instances; plans the others */
    MIG_MAKE,   /* makes planned instances; turns MIG on for them, or off for a whole card */
    MIG_UNMAKE, /* destroys the instances that we made */
};
typedef void sl_dra_mig_done(struct op *op, int rc, const struct sl_err *err);
int sl_dra_mig(struct sl_dra *dra, struct op *op, struct sl_prepared *p, enum mig_work work,
               sl_dra_mig_done *done, struct sl_err *err) SL_MUST_CHECK;
bool sl_dra_mig_needed(struct sl_dra *dra, const struct sl_prepared *p, enum mig_work work);
void sl_dra_ask_profiles(struct sl_dra *dra);
void sl_dra_link_put(struct dra_link *link);

/* dra_op.c */
void sl_dra_prepare_init(struct sl_dra *dra);
enum op_kind { OP_PREPARE, OP_UNPREPARE };
typedef void sl_dra_op_done(void *data, int rc, const struct sl_err *err,
                            const struct sl_prepared *p);
struct waiter {
    struct waiter *next;
    sl_dra_op_done *done;
    void *data;
};
/* Prepares or unprepares a claim, after earlier operations on it. done (may be NULL) is called once, maybe from inside
 * this call. */
void sl_dra_begin(struct sl_dra *dra, enum op_kind kind, const char *name_space, const char *name,
                  const char *uid, sl_dra_op_done *done, void *data);
void sl_dra_recover(struct sl_dra *dra); /* the claims that the checkpoint has from before */
void sl_dra_forget_ops(struct sl_dra *dra);
void sl_dra_mark_dirty(struct sl_dra *dra); /* writes the checkpoint soon */

/* --- one claim being prepared or unprepared: dra_op.c, dra_prepare.c --- */

/* Of a prepare: the next or the current step. */
enum op_step { OP_LOOK_AT_MIG, OP_MAKE_MIG, OP_MAKE_TENANTS, OP_DONE };

struct op {
    struct op *next;        /* in dra->running */
    struct op *next_commit; /* in dra->committing */
    struct sl_dra *dra;
    enum op_kind kind;
    enum op_step step;
    void (*run)(struct op *op); /* its first step */
    char name_space[64], name[SL_K8S_NAME], uid[SL_UID_SIZE];
    struct waiter *waiters;
    struct sl_kube_call *get;
    struct sl_claim *claim; /* from the API server; NULL: not read */
    void (*after_commit)(struct op *op);
    struct sl_leases_item *item; /* the requests to the arbiter, one after the other */
    size_t item_count;
    struct sl_msg_lease *lease; /* the leases of these requests */
    struct sl_timer again;      /* waits for an MPS daemon */
    unsigned waits;
    bool undoing; /* a prepare that failed */
    int rc;       /* why it failed */
    struct sl_err err;
};

/* dra_op.c */
struct sl_prepared *sl_dra_op_entry(struct op *op); /* in the checkpoint; NULL: none */
/* The operation is over: tells its callers, and begins the next operation of the claim. */
void sl_dra_op_end(struct op *op);
void sl_dra_op_give_up(struct op *op, int rc, const struct sl_err *err);
/* Writes the checkpoint to disk, then calls `then`. */
void sl_dra_op_commit(struct op *op, void (*then)(struct op *op));
void sl_dra_retry_soon(struct sl_dra *dra);
/* Fills op->item with the requests that make the claim's tenants, or remove them. */
int sl_dra_op_list_tenants(struct op *op, bool make, struct sl_err *err) SL_MUST_CHECK;

/* dra_cdi.c: the CDI spec of the claim. The spec is written after the last tenant is made, and removed before the first
 * tenant is removed: no spec ever names a missing tenant. */
int sl_dra_write_spec(void *op, struct sl_err *err) SL_MUST_CHECK;

/* dra_prepare.c */
void sl_dra_op_prepare(struct op *op);
void sl_dra_op_wait_fired(struct sl_timer *t);
void sl_dra_tell_fired(struct sl_timer *t);
void sl_dra_op_unprepare(struct op *op); /* also undoes a prepare that failed */

/* timeslice.c: blocks. interval: 0 the driver's own, 1 short, 2 medium, 3 long. */
int sl_dra_timeslice(const char *driver_root, const char *uuid, uint32_t interval,
                     struct sl_err *err) SL_MUST_CHECK;

/* dra_rpc.c */
int sl_dra_serve(struct sl_dra *dra, struct sl_err *err) SL_MUST_CHECK;
void sl_dra_serve_end(struct sl_dra *dra);
void sl_dra_health_send(struct sl_dra *dra); /* to every kubelet that listens */

/* dra_status.c: the claim's status.devices */
/* After a resize: the reason, whether it succeeded, and a sentence. Otherwise resized is NULL. */
void sl_dra_status_write(struct sl_dra *dra, const struct sl_prepared *p, const char *resized,
                         bool good, const char *message);
void sl_dra_status_end(struct sl_dra *dra);

/* claim_pb.c: a claim in the API server's protobuf */
/* Returns the object with the status.devices of `driver` replaced by these (as in JSON); those
 * of other drivers stay. The caller frees *ret. -ESTALE: the claim has another uid; -EBADMSG:
 * the object is not a claim. */
int sl_claim_pb_devices(const uint8_t *object, size_t size, const char *uid, const char *driver,
                        const json_t *devices, uint8_t **ret, size_t *ret_size,
                        struct sl_err *err) SL_MUST_CHECK;

/* claim_allow.c: the rights of claims and of their resize annotations, by the rules of allow.h. Pure. */
/* May the claim have all that it asks for? -EPERM with a sentence: it may not. Shares that named no time get the limit
 * that is allowed. */
int sl_allow_claim(const struct sl_config *config, struct sl_claim *claim,
                   struct sl_err *err) SL_MUST_CHECK;

/* The rights that all shares of the claim have: of several classes, those of the strictest. */
struct sl_config_allow sl_allow_resizes(const struct sl_config *config,
                                        const struct sl_claim *claim);
/* May this share be resized as wanted? card_bytes is the memory of its GPU. */
int sl_allow_resize(const struct sl_config_allow *allow, const struct sl_prepared_device *device,
                    const struct sl_resize *wanted, uint64_t card_bytes,
                    struct sl_err *err) SL_MUST_CHECK;

/* dra_resize.c: the resize annotation */
void sl_dra_resize_watch(struct sl_dra *dra, const struct sl_prepared *p);
void sl_dra_resize_unwatch(struct sl_dra *dra, const char *uid);
void sl_dra_resize_end(struct sl_dra *dra);

#endif
