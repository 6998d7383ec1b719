/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's files on this machine: libraries, programs, sockets, firmware and device nodes. They are found under
 * given roots and kept as the edits that bring them into a container. Nothing here calls NVML.
 *
 * One tree has two paths: `root` for this process, `root_host` for the container runtime. Edits use the runtime's.
 *
 * A root that contains a file `sluice-sim` belongs to a simulated driver (docs/simulated-gpu.md): its nodes are regular
 * files, so they are mounted, and the container gets the simulation's state and variables.
 */
#ifndef SLUICE_CONTAINER_DRIVER_H
#define SLUICE_CONTAINER_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "container/edits.h"
#include "base/err.h"
#include "config/config.h"

struct sl_driver_options {
    const char *root;          /* NULL: "/" */
    const char *root_host;     /* NULL: as root */
    const char *dev_root;      /* holds dev/; NULL: as root */
    const char *dev_root_host; /* NULL: as dev_root, or as root_host where that is NULL too */
    const char *proc;          /* NULL: "/proc", and root's own proc/ for a simulated driver */
    const char *version;       /* from the inventory; NULL or "": that of libcuda */
    bool gdrcopy, gds, mofed;  /* also find the device nodes of these */
};

struct sl_driver {
    char *root, *root_host, *dev, *dev_host, *proc; /* dev: "<dev root>/dev" */
    char version[80];
    bool simulated;
    struct sl_edits files; /* libraries, programs, sockets, firmware; a simulation's environment */
    struct sl_edits nodes; /* for every container with a GPU: nvidiactl, nvidia-uvm … */
    char **warning;        /* sentences about files that a container will miss */
    size_t warning_count;
};

/*
 * Sets the options from a configuration: its driver root, below containerDriverRoot where that exists (the agent in its
 * container). The strings belong to the configuration.
 */
void sl_driver_options_set(struct sl_driver_options *options, const struct sl_config *config,
                           const char *version);
/* -ENOENT: there is no libcuda of that version, so no container could use a GPU. */
int sl_driver_find(const struct sl_driver_options *options, struct sl_driver **ret,
                   struct sl_err *err) SL_MUST_CHECK;
void sl_driver_free(struct sl_driver *driver); /* NULL is fine */

/* /dev/nvidia<minor>. -ENOENT: neither the node nor its number is known. */
int sl_driver_gpu_node(const struct sl_driver *driver, uint32_t minor, struct sl_edits *edits,
                       struct sl_err *err) SL_MUST_CHECK;
/* The two capability nodes of a MIG device; the card's own node is not among them. */
int sl_driver_mig_nodes(const struct sl_driver *driver, uint32_t minor, uint32_t gpu_instance,
                        uint32_t compute_instance, struct sl_edits *edits,
                        struct sl_err *err) SL_MUST_CHECK;
/* An IMEX channel; -ENOENT where the machine has none. */
int sl_driver_imex_node(const struct sl_driver *driver, unsigned channel, struct sl_edits *edits,
                        struct sl_err *err) SL_MUST_CHECK;

/* Mounts a library of the driver under this name, into each directory that loaders search. What is mounted there
 * already stays. */
int sl_driver_mount_library(struct sl_edits *edits, const char *host, const char *name,
                            struct sl_err *err) SL_MUST_CHECK;

/* A variable of a simulated driver, for a container. The state's value is the host's absolute path; it is mounted. */
void sl_driver_sim_variable(struct sl_edits *edits, const char *name, const char *value);

/*
 * The path of a library ("libnvidia-ml.so.1") or program ("nvidia-cuda-mps-control") of the driver, for this process.
 * Needs no inventory, so that NVML can be loaded from the driver's root first.
 */
int sl_driver_locate(const char *root, const char *name, char *path, size_t size,
                     struct sl_err *err) SL_MUST_CHECK;

#endif
