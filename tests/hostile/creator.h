/* SPDX-License-Identifier: Apache-2.0 */
/* A process of its own that makes a tenant, so that a test can end the tenant's maker when it likes. */
#ifndef SLUICE_TESTS_HOSTILE_CREATOR_H
#define SLUICE_TESTS_HOSTILE_CREATOR_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/world_case.h"

/* A child that makes a tenant and waits to be told to end. */
struct creator {
    pid_t pid;
    int go;
    char path[256];
};

static inline void creator_begin(struct creator *c, const char *name, uint64_t bytes)
{
    int told[2], go[2];
    assert_int_equal(pipe(told), 0);
    assert_int_equal(pipe(go), 0);
    c->pid = fork();
    if (c->pid == 0) {
        union sl_packet p;
        char byte;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct sl_msg_lease m = lease_ask(name, bytes);
        if (world_call(world_connect(&world), &m.h, &p) != SL_MSG_CREATED ||
            write(told[1], p.created.attach_path, 256) != 256)
            _exit(1);
        (void)!read(go[0], &byte, 1);
        _exit(0);
    }
    assert_int_equal(read(told[0], c->path, 256), 256);
    (void)close(told[0]);
    (void)close(told[1]);
    (void)close(go[0]);
    c->go = go[1];
}

static inline void creator_end(struct creator *c)
{
    int status;
    assert_int_equal(write(c->go, "g", 1), 1);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    assert_int_equal(status, 0);
    (void)close(c->go);
}

#endif
