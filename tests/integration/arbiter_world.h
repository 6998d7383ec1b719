/* SPDX-License-Identifier: Apache-2.0 */
/* A real arbiter in a child process over the simulated NVML, and peers that speak its protocol. */
#ifndef SLUICE_TESTS_ARBITER_WORLD_H
#define SLUICE_TESTS_ARBITER_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "shm/packet.h"
#include "shm/pages.h"

#define GIB             (1ULL << 30)
/* After this time the arbiter counts as dead; a slow arbiter with a thousand processes answers earlier. */
#define WORLD_ANSWER_MS 60000

struct world {
    char dir[64];
    pid_t arbiter;
};

/* SLUICE_TEST_NVML names the simulated library; the simulation's state lives in the directory. */
void world_begin(struct world *w);
void world_start(struct world *w); /* (again) */
/* Stops a child of ours, and returns once all its threads stand still: the signal alone lets some of them run on for a
 * while on a busy machine. */
void world_stop_process(pid_t pid);
void world_kill(struct world *w); /* SIGKILL */
void world_stop(struct world *w); /* SIGTERM, as a service manager does */
void world_end(struct world *w);  /* checks that an orderly stop leaves nothing */

int world_connect(const struct world *w); /* control socket */

/* A lease as `sluice run --memory … --name …` would ask for. */
struct sl_msg_lease lease_ask(const char *name, uint64_t memory_bytes);

/* Returns the answer's type; text in *ret. */
enum sl_msg_type world_call(int fd, const struct sl_msg *ask, union sl_packet *ret);

/* The descriptors and pages of a tenant's process after HELLO. */
struct peer {
    int sock;
    uint32_t slot;
    struct sl_lease_map lease;
    struct sl_ledger_map ledger;
    int doorbell;
};

/* slot and ledger_fd as in sl_msg_hello; 0 or the arbiter's error code. */
int peer_attach(const char *path, uint32_t slot, int ledger_fd, struct peer *ret);
void peer_close(struct peer *p);

/* Used bytes of the tenant on its first GPU as `status` tells; UINT64_MAX when it is gone. */
uint64_t world_used(const struct world *w, const char *name, uint32_t *ret_processes);

/* Waits up to a minute for a condition that must come true. */
#define EVENTUALLY(condition)                                                                      \
    do {                                                                                           \
        int tries_ = 0;                                                                            \
        while (!(condition) && tries_++ < 6000)                                                    \
            usleep(10000);                                                                         \
        assert_true(condition);                                                                    \
    } while (0)

#endif
