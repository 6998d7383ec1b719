/* SPDX-License-Identifier: Apache-2.0 */
/* Kubelet's PodResources, in the test's own loop: a placed device is listed until it is taken away. */
#ifndef SLUICE_TESTS_AGENT_FAKE_PODRES_H
#define SLUICE_TESTS_AGENT_FAKE_PODRES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/loop.h"
#include "rpc/server.h"

enum { FAKE_PLACED = 512 };

/* One device in a container. */
struct fake_placed {
    char space[64], pod[256], container[64], resource[128], id[64];
};

struct fake_podres {
    struct sl_loop *loop;
    struct sl_rpc_server *server;
    char path[104];
    struct fake_placed placed[FAKE_PLACED];
    size_t count;
    unsigned asked;
    bool silent; /* takes the question and does not answer */
    bool blank;  /* has just started and knows of no pod yet */
};

void fake_podres_start(struct fake_podres *p, struct sl_loop *loop, const char *path);
void fake_podres_stop(struct fake_podres *p);
void fake_podres_place(struct fake_podres *p, const char *space, const char *pod,
                       const char *container, const char *resource, const char *id);
void fake_podres_remove(struct fake_podres *p, const char *space, const char *pod);

#endif
