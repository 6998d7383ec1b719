/* SPDX-License-Identifier: Apache-2.0 */
/* The surroundings of a verb that talks to an arbiter: the arbiter's directory, the GPUs, the libraries. */
#ifndef SLUICE_CLI_WORLD_H
#define SLUICE_CLI_WORLD_H

#include <limits.h>

#include "arbiter/client.h"
#include "arbiter/dir.h"
#include "cli/cli.h"

/* Names the cards for the simulated driver, and the file its processes share. The variable is also the default of
 * --sim: `sluice status` inside a simulated tenant shows that tenant's world. */
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

/* Is this file a libsluice.so, by the symbols that it names? The loader skips a file that it cannot preload, with a
 * line on stderr, and the command would run without any limit. */
int sl_world_libsluice_check(const char *path, struct sl_err *err) SL_MUST_CHECK;

/* The cards of an arbiter that `sluice run` started, from the arbiter's command line: "" for real ones. -ENOENT when
 * the command line does not tell (the agent's arbiter, another PID namespace). */
int sl_world_arbiter_cards(int pid, char *buf, size_t size) SL_MUST_CHECK;

/* Connects, starting an arbiter where none runs. */
int sl_world_start(const struct sl_world *world, struct sl_err *err) SL_MUST_CHECK; /* fd */

/* visible.c. For a lease that names no GPU: names the GPUs of CUDA_VISIBLE_DEVICES; the arbiter chooses among
 * them. */
int sl_world_visible(struct sl_msg_lease *lease, struct sl_err *err) SL_MUST_CHECK;

/* Tells the user that a GPU which --gpu names is not among those of CUDA_VISIBLE_DEVICES: it is used all the same. */
void sl_world_remark_hidden(const struct sl_msg_lease *lease, const struct sl_msg_created *tenant,
                            const struct sl_client_status *status, const char *verb);

/* The GPUs of a tenant as CUDA_VISIBLE_DEVICES wants them. Returns buf. */
#define SL_VISIBLE_MAX ((SL_UUID_MAX + 1UL) * SL_MAX_GPUS)
char *sl_world_visible_text(const struct sl_msg_created *tenant, char buf[SL_VISIBLE_MAX]);

/* --memory, --cores, --priority, --name, --gpu and --gpus as a lease to ask for. */
int sl_world_lease(const struct sl_cli_args *args, struct sl_msg_lease *ret,
                   struct sl_err *err) SL_MUST_CHECK;

#endif
