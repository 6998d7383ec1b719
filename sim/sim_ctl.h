/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of sluice-sim-ctl. What returns int returns an exit code. */
#ifndef SLUICE_SIM_SIM_CTL_H
#define SLUICE_SIM_SIM_CTL_H

#include "sim/state.h"

/* Says what is wrong with the command line; 2. */
int sl_sim_ctl_bad(const char *what, const char *text);

struct sl_sim_ctl_mig {
    char uuid[48], name[40];
    uint32_t gi_id, ci_id;
};

/* The MIG devices of a card one by one: start with *at 0; false after the last. Lock held. */
bool sl_sim_ctl_next_mig(const struct sl_sim_card *c, size_t *at, struct sl_sim_ctl_mig *ret);

int sl_sim_ctl_list(struct sl_sim_state *st);
int sl_sim_ctl_mig(struct sl_sim_state *st, uint32_t card, int count, char **profiles);
int sl_sim_ctl_make_root(int argc, char **argv);
/* nvidia-smi, but for -L. */
int sl_sim_smi(int argc, char **argv);

#endif
