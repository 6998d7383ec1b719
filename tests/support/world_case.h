/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The beginning of a cmocka program whose cases each have an arbiter of their own: one world, its begin and end, and a
 * reader of `status`. With an argument, only the case of that name runs.
 */
#ifndef SLUICE_TESTS_WORLD_CASE_H
#define SLUICE_TESTS_WORLD_CASE_H

/* cmocka's header needs the first three before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "integration/arbiter_world.h"

static struct world world;

static inline int world_setup(void **state)
{
    (void)state;
    world_begin(&world);
    return 0;
}

static inline int world_teardown(void **state)
{
    (void)state;
    world_end(&world); /* asserts that it ended in good order */
    return 0;
}

#define WORLD_CASE(test) cmocka_unit_test_setup_teardown(test, world_setup, world_teardown)

/* Every packet of a `status`, in order. */
static inline void world_status(void (*each)(const union sl_packet *p, void *arg), void *arg)
{
    struct sl_msg ask;
    union sl_packet p;
    int fd = world_connect(&world);
    sl_packet_init(&ask, SL_MSG_STATUS, sizeof(ask));
    for (enum sl_msg_type t = world_call(fd, &ask, &p); t != SL_MSG_END;) {
        struct sl_err err = SL_ERR_INIT;
        each(&p, arg);
        if (sl_packet_recv(fd, &p, NULL, &err) < 0)
            fail_msg("%s", err.msg);
        t = (enum sl_msg_type)p.h.type;
    }
    (void)close(fd);
}

static inline void world_take_card(const union sl_packet *p, void *arg)
{
    if (p->h.type == SL_MSG_GPU)
        *(struct sl_msg_gpu *)arg = p->gpu;
}

/* The last GPU, which on these worlds is the only one. */
static inline struct sl_msg_gpu world_card(void)
{
    struct sl_msg_gpu found = {.used_bytes = UINT64_MAX};
    world_status(world_take_card, &found);
    return found;
}

/* An unknown case name is an error. */
#define WORLD_MAIN(cases, argc, argv)                                                              \
    (world_chosen(cases, sizeof(cases) / sizeof((cases)[0]), argc, argv)                           \
         ? cmocka_run_group_tests(cases, NULL, NULL)                                               \
         : 2)

static inline bool world_chosen(const struct CMUnitTest *cases, size_t count, int argc, char **argv)
{
    if (argc < 2)
        return true;
    for (size_t i = 0; i < count; i++)
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cmocka_set_test_filter(argv[1]);
            return true;
        }
    (void)fprintf(stderr, "no case is named %s\n", argv[1]);
    return false;
}

#endif
