/* SPDX-License-Identifier: Apache-2.0 */
/* What every verb that talks to an arbiter needs: where it lives, which GPUs, which libraries. */
#ifndef SLUICE_CLI_WORLD_H
#define SLUICE_CLI_WORLD_H

#include <limits.h>

#include "arbiter/client.h"
#include "arbiter/dir.h"
#include "cli/cli.h"

/* Names the cards for the simulated driver, and the file its processes share. As a default for
 * --sim it also makes `sluice status` inside a simulated tenant speak of that tenant's world. */
#define SL_SIM_ENV       "SLUICE_SIM"
#define SL_SIM_STATE_ENV "SLUICE_SIM_STATE"

struct sl_world {
    struct sl_arbiter_dir place;
    char program[PATH_MAX]; /* this binary */
    char sim_lib[PATH_MAX]; /* folder of the simulated driver; empty: real GPUs */
};

/* From --dir, --sim and the environment. A --sim that names no known card is refused here. */
int sl_world_find(const struct sl_cli_args *args, struct sl_world *ret,
                  struct sl_err *err) SL_MUST_CHECK;

/* NVML of the real GPUs, or of the simulated ones. */
struct sl_gpu;
int sl_world_gpus(const struct sl_world *world, struct sl_gpu **ret,
                  struct sl_err *err) SL_MUST_CHECK;

/* The path of libsluice.so: the named file, or the file beside this binary. It must be a path
 * that LD_PRELOAD can express. */
int sl_world_libsluice(const struct sl_world *world, const char *named, char *buf, size_t size,
                       struct sl_err *err) SL_MUST_CHECK;

/* Is this a libsluice.so, by what it names? What it cannot preload the loader passes over with a word on stderr, and
 * the command would run without any limit. */
int sl_world_libsluice_check(const char *path, struct sl_err *err) SL_MUST_CHECK;

/* The cards an arbiter of ours was started with, from its command line: "" for real ones. -ENOENT
 * when it cannot be told (the agent's arbiter, another PID namespace). */
int sl_world_arbiter_cards(int pid, char *buf, size_t size) SL_MUST_CHECK;

/* Connects, starting an arbiter where none runs. */
int sl_world_start(const struct sl_world *world, struct sl_err *err) SL_MUST_CHECK; /* fd */

/* For a lease that names no GPU: names the GPUs of CUDA_VISIBLE_DEVICES; the arbiter chooses one
 * of them. */
int sl_world_visible(struct sl_msg_lease *lease, struct sl_err *err) SL_MUST_CHECK;

/* --memory, --cores, --priority, --name and --gpu as a lease to ask for. */
int sl_world_lease(const struct sl_cli_args *args, struct sl_msg_lease *ret,
                   struct sl_err *err) SL_MUST_CHECK;

#endif
