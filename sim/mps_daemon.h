/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated MPS control daemon: one loop over its socket, its servers and its clients. */
#ifndef SLUICE_SIM_MPS_DAEMON_H
#define SLUICE_SIM_MPS_DAEMON_H

#include <stdio.h>
#include <sys/types.h>

#include "sim/mps.h"

#define SL_SIM_MPS_SERVERS 16
#define SL_SIM_MPS_PEERS   128

struct mps_limits {
    uint32_t permille;
    uint64_t bytes[SL_SIM_MAX_DEVICES]; /* by the daemon's own numbers; 0: none */
};

struct mps_server {
    pid_t pid; /* 0: free */
    uid_t uid;
    bool fault; /* a client's fault: no new ones until those there are have gone */
    struct mps_limits limits;
};

struct mps_peer {
    int fd; /* -1: free */
    pid_t pid;
    uid_t uid;
    pid_t server; /* a CUDA client's; 0: not one (yet) */
    size_t len;
    char line[SL_SIM_MPS_LINE];
};

struct mps_daemon {
    struct sl_sim_state *st;
    const char *pipe_dir;
    FILE *control_log, *server_log;
    bool many_users;
    bool ending;
    int listener, signals;
    uint32_t card[SL_SIM_MAX_DEVICES], count;
    struct mps_limits limits; /* of servers to come */
    struct mps_server servers[SL_SIM_MPS_SERVERS];
    struct mps_peer peers[SL_SIM_MPS_PEERS];
};

/* Runs until told to quit. Exit code. */
int mps_daemon_run(struct mps_daemon *d);

__attribute__((format(printf, 4, 5))) void mps_log(FILE *f, const char *who, pid_t pid,
                                                   const char *format, ...);

/* mps_server.c */
struct mps_server *mps_server_by_pid(struct mps_daemon *d, pid_t pid);
/* A server for that user; NULL when there can be none now (another user's clients, or no
 * process). */
struct mps_server *mps_server_for(struct mps_daemon *d, uid_t uid);
void mps_server_end(struct mps_daemon *d, struct mps_server *s, const char *how);
void mps_peer_close(struct mps_daemon *d, struct mps_peer *p);
unsigned int mps_clients_of(const struct mps_daemon *d, pid_t server);
void mps_client_join(struct mps_daemon *d, struct mps_peer *p, uint32_t own_permille);

/* mps_command.c: one line of the control program. */
void mps_command(struct mps_daemon *d, struct mps_peer *p, char *line);

#endif
