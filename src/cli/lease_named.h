/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases with a name, for containers. Such a lease is three things: a kept tenant of the arbiter, a folder with what
 * containers load (libsluice.so, ld.so.preload), and a CDI spec that names both.
 *
 *   make    tenant | folder | spec
 *   unmake  spec | tenant | folder
 *
 * So no spec names a tenant that was never there, and what a killed process leaves is a tenant without a spec or a
 * folder without a tenant. sl_named_open() removes both. A spec whose tenant is gone (the arbiter's directory was
 * lost, by a reboot for instance) is a lost lease: it is listed; making it again or deleting it mends that.
 */
#ifndef SLUICE_CLI_LEASE_NAMED_H
#define SLUICE_CLI_LEASE_NAMED_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "cli/world.h"
#include "container/edits.h"

/* The named leases of one arbiter. While it is open nobody else changes them. */
struct sl_named {
    const struct sl_world *world;
    const char *cdi_dir;
    int lock; /* of the arbiter's directory; -1: there is none */
    int fd;   /* control connection; -1: no arbiter runs, and no lease needs one */
    bool restarted;
    struct sl_client_status status;
    char **lost; /* names of lost leases in cdi_dir */
    size_t lost_count;
};

/* Where the spec goes: `named`, or the folder that the container tools of this user may search. */
int sl_named_cdi_dir(const char *named, char *buf, size_t size, struct sl_err *err) SL_MUST_CHECK;
/* May a lease be called this, in the arbiter and in CDI? */
int sl_named_check(const char *name, struct sl_err *err) SL_MUST_CHECK;

/* start: an arbiter is started where none runs. Else only where there are leases that need one. */
int sl_named_open(struct sl_named *n, const struct sl_world *world, const char *cdi_dir, bool start,
                  struct sl_err *err) SL_MUST_CHECK;
void sl_named_close(struct sl_named *n);

bool sl_named_is_lease(const struct sl_msg_tenant *tenant);
bool sl_named_is_own(const struct sl_msg_tenant *tenant); /* of this user */
/* Can containers be started with it? */
bool sl_named_has_spec(const struct sl_named *n, const struct sl_msg_tenant *lease);
/* On error nothing of the lease is left. */
int sl_named_create(struct sl_named *n, const struct sl_msg_lease *ask, const char *libsluice,
                    struct sl_msg_created *ret, struct sl_err *err) SL_MUST_CHECK;
/* -EBUSY: processes use it, and there is no `force`. */
int sl_named_delete(struct sl_named *n, const char *name, bool force,
                    struct sl_err *err) SL_MUST_CHECK;

/* --- lease_edits.c: what a container with the lease is given --- */

struct sl_named_gear; /* what this machine's driver brings */
int sl_named_gear_find(const struct sl_world *world, struct sl_named_gear **ret,
                       struct sl_err *err) SL_MUST_CHECK;
void sl_named_gear_free(struct sl_named_gear *gear); /* NULL is fine */
/* `folder` has libsluice.so and ld.so.preload. */
int sl_named_edits(const struct sl_named_gear *gear, const struct sl_world *world,
                   const struct sl_msg_created *tenant, const char *folder, struct sl_edits *edits,
                   struct sl_err *err) SL_MUST_CHECK;

#endif
