/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the simulated MPS control daemon, its control program, and CUDA clients: lines of text
 * over the socket `control` in the pipe directory. A connection that begins with "client" is a CUDA
 * process's and stays open: it is that process's membership. On any other, each line is a command.
 *
 *   client <permille>                           the process's own limit of threads; 0: none
 *   ready <server> <permille> <card>=<bytes> …  in the client's order; 0 bytes: no limit
 *   refused <CUresult>
 */
#ifndef SLUICE_SIM_MPS_H
#define SLUICE_SIM_MPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/state.h"

#define SL_SIM_MPS_SOCKET  "control"
#define SL_SIM_MPS_PIPE    "/tmp/nvidia-mps" /* where the real one has it */
#define SL_SIM_MPS_LOG     "/var/log/nvidia-mps"
#define SL_SIM_MPS_CLIENTS 60
#define SL_SIM_MPS_LINE    1024

/* What a process slot is to MPS (struct sl_sim_proc_card). */
enum { SL_SIM_MPS_NOT = 0, SL_SIM_MPS_CLIENT = 1, SL_SIM_MPS_SERVER = 2 };

/* Directories may be longer than a socket's name can be, so both go through the directory itself.
 * A descriptor, or -errno: -ENOENT no such socket, -ECONNREFUSED nobody listens. */
int sl_sim_mps_connect(const char *pipe_dir);
int sl_sim_mps_listen(const char *pipe_dir);

/* "512M", "2G", "4096K", plain bytes. False for anything else. */
bool sl_sim_mps_bytes(const char *text, uint64_t *ret);

/* A percentage in (0, 100], in permille. */
bool sl_sim_mps_percent(const char *text, uint32_t *ret_permille);

/*
 * Chooses among `cards` by a list as CUDA_VISIBLE_DEVICES has it (NULL: all): positions or
 * (beginnings of) UUIDs; the first that is not there ends the list. Returns how many are in `out`.
 */
uint32_t sl_sim_choose_cards(const struct sl_sim_state *st, const char *list, const uint32_t *cards,
                             uint32_t count, uint32_t out[SL_SIM_MAX_DEVICES]);

#endif
