/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Container Device Interface specs (version 0.5.0), written by Sluice itself; no hook program is needed. The node
 * spec has every card and MIG device, for the device plugin. A spec is replaced whole or not at all, and only when it
 * changed.
 */
#ifndef SLUICE_CONTAINER_CDI_H
#define SLUICE_CONTAINER_CDI_H

#include <stdbool.h>
#include <stddef.h>

#include "container/driver.h"
#include "container/edits.h"
#include "base/err.h"
#include "config/plan.h" /* SL_NO_MIG */
#include "gpu/inventory.h"

#define SL_CDI_NODE_KIND "k8s.device-plugin.nvidia.com/gpu" /* pods and runtimes know this kind */
#define SL_CDI_IMEX_KIND "k8s.device-plugin.nvidia.com/imex-channel"
#define SL_CDI_NAME_SIZE 256 /* a qualified name: kind=device */
#define SL_CDI_DIR       "/var/run/cdi"

/* The edits that a container needs besides its devices: driver files, control nodes, environment. */
void sl_cdi_common_edits(const struct sl_driver *driver, struct sl_edits *edits);
/* One card (mig SL_NO_MIG) or one MIG device, by their indices in the inventory; not the common edits. */
int sl_cdi_device_edits(const struct sl_driver *driver, const struct sl_inventory *inv, size_t gpu,
                        size_t mig, struct sl_edits *edits, struct sl_err *err) SL_MUST_CHECK;

/*
 * Writes the node spec in `dir` (made if missing): devices by UUID, by index ("0", MIG "0:1") and "all". Cards that are
 * lost or without a device node are left out. On error the old spec stays.
 */
int sl_cdi_write_node(const char *dir, const struct sl_driver *driver,
                      const struct sl_inventory *inv, struct sl_err *err) SL_MUST_CHECK;

/*
 * Specs of which there are many: one for each DRA claim, one for each slot (a slot is a device id of a fractional
 * resource), and one for each lease that a person named. A spec has the edits for the containers that have the claim,
 * the slot or the lease now.
 */
enum sl_cdi_kind { SL_CDI_CLAIM, SL_CDI_SLOT, SL_CDI_LEASE };
/* One device of a claim. The caller chooses the name (for example the request's), unique within the claim. A slot or a
 * lease has one device, and its name is "". */
struct sl_cdi_device {
    char name[140];
    struct sl_edits edits;
};
/* `common` (may be NULL): the edits that each device brings. The same id again replaces the spec. */
int sl_cdi_write(const char *dir, enum sl_cdi_kind kind, const char *id,
                 const struct sl_cdi_device *devices, size_t count, const struct sl_edits *common,
                 struct sl_err *err) SL_MUST_CHECK;
/* An id without a spec is a success: kubelet may unprepare more than once. */
int sl_cdi_remove(const char *dir, enum sl_cdi_kind kind, const char *id,
                  struct sl_err *err) SL_MUST_CHECK;
/* The name of a device for runtimes: "k8s.gpu.sluice.io/claim=<uid>-<name>", "k8s.gpu.sluice.io/slot=<slot>",
 * "sluice.io/lease=<name>" */
int sl_cdi_name(enum sl_cdi_kind kind, const char *id, const char *device, char *buf, size_t size,
                struct sl_err *err) SL_MUST_CHECK;
/* The ids that have a spec, sorted. A missing directory counts as empty. Free with sl_cdi_list_free(). */
int sl_cdi_list(const char *dir, enum sl_cdi_kind kind, char ***ret, size_t *ret_count,
                struct sl_err *err) SL_MUST_CHECK;
void sl_cdi_list_free(char **ids, size_t count);
/* The tenant's directory that a spec mounts, as the host sees it: whose spec it is. -ENOENT: the id has no spec.
 * -EPROTO: the file is not a spec of ours. */
int sl_cdi_attach_dir(const char *dir, enum sl_cdi_kind kind, const char *id, char *buf,
                      size_t size, struct sl_err *err) SL_MUST_CHECK;

/* The path of libsluice in a container. The container's /etc/ld.so.preload names it. */
#define SL_CDI_LIBSLUICE  "/usr/local/sluice/lib/libsluice.so"
#define SL_CDI_ATTACH_DIR "/run/sluice" /* holds attach.sock: sluice/attach.h */

/*
 * Puts a copy of libsluice.so and the ld.so.preload that names it into `dir`, a directory of the host as this process
 * sees it: the runtime cannot mount from inside the agent's image. Files that are already right stay, so that old and
 * new containers share one library.
 */
int sl_cdi_install_sluice(const char *dir, const char *libsluice, struct sl_err *err) SL_MUST_CHECK;
/* Removes the two, also half-written ones, and `dir`. What is gone is gone. */
void sl_cdi_uninstall_sluice(const char *dir);
/*
 * The edits that make a container a tenant: libsluice, a read-only /etc/ld.so.preload, and the tenant's attach
 * directory. It is a directory, so that the container sees the new socket of a restarted arbiter. Both paths are the
 * host's: `dir_host` is the directory of sl_cdi_install_sluice().
 */
int sl_cdi_sluice_edits(const char *dir_host, const char *attach_dir_host, struct sl_edits *edits,
                        struct sl_err *err) SL_MUST_CHECK;

#endif
