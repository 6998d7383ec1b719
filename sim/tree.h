/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated driver as files: which nodes a process can see decides which cards it has, as with
 * a real driver, and a driver root (`sluice-sim-ctl make-root`) has everything in it that an agent
 * looks for, at the places where a real one has it.
 */
#ifndef SLUICE_SIM_TREE_H
#define SLUICE_SIM_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/state.h"

/* Names in a driver root. */
#define SL_SIM_TREE_MARK  "sluice-sim"    /* says that this root is a simulated driver's */
#define SL_SIM_TREE_STATE "state/machine" /* the machine, unless somebody wants it elsewhere */

/*
 * Whether this process sees a node: `$SLUICE_SIM_DEV/<name>`. Without the variable it sees them
 * all. "nvidiactl" stands for the driver itself, "nvidia-uvm" for CUDA, "nvidia<N>" for card N.
 */
bool sl_sim_sees_node(const char *name);
bool sl_sim_sees_card(uint32_t card);

/* A MIG device takes its card and two capabilities: the GPU instance's and the compute
 * instance's. */
bool sl_sim_sees_mig(uint32_t card, uint32_t gi_id, uint32_t ci_id);

/* The minors of /dev/nvidia-caps, numbered as the real driver numbers them: 1 and 2 are for
 * managing and watching MIG, then nine for each GPU instance of each card. */
uint32_t sl_sim_cap_gi(uint32_t card, uint32_t gi_id);
uint32_t sl_sim_cap_ci(uint32_t card, uint32_t gi_id, uint32_t ci_id);

/* What the file `sluice-sim` of a root says. A relative state is inside the root. */
struct sl_sim_tree {
    char root[512], spec[256], state[1024];
};

/* The root the caller's own library or program lies in (…/lib/libcuda.so.1, …/bin/nvidia-smi), so
 * that a driver root needs no environment. False when it is in none. */
bool sl_sim_tree_near(struct sl_sim_tree *ret);

/* Makes the capability files of a card match its MIG instances, in the root of SLUICE_SIM_ROOT
 * or else the one the machine was made with. No such root: nothing to do. Lock held: two
 * processes that change MIG at once must not leave the older one's view. */
void sl_sim_tree_sync(const struct sl_sim_state *st, uint32_t card);

#endif
