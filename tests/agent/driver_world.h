/* SPDX-License-Identifier: Apache-2.0 */
/* A driver's tree in a temporary directory, as it looks on a real machine. */
#ifndef SLUICE_TESTS_DRIVER_WORLD_H
#define SLUICE_TESTS_DRIVER_WORLD_H

#include <stdbool.h>
#include <stddef.h>

#include "container/driver.h"
#include "gpu/inventory.h"

#if defined(__x86_64__)
#define MULTIARCH "x86_64-linux-gnu"
#else
#define MULTIARCH "aarch64-linux-gnu"
#endif
#define WORLD_VERSION "580.65.06"

struct driver_world {
    char dir[256];  /* the temporary directory */
    char root[300]; /* dir/root: the driver's root as the agent sees it */
    char proc[300]; /* dir/proc */
    char cdi[300];  /* dir/cdi, not made yet */
};

/* cmocka set-up and tear-down: *state is a struct driver_world. */
int driver_world_make(void **state);
int driver_world_remove(void **state);

/* All below root, directories made as needed. */
void world_text(const struct driver_world *w, const char *rel, const char *text);
void world_link(const struct driver_world *w, const char *rel, const char *target);
void world_library(const struct driver_world *w, const char *rel, const char *soname_kind);
void world_unlink(const struct driver_world *w, const char *rel);
/* A character device: a link to one, since making one needs root. */
void world_node(const struct driver_world *w, const char *rel);
/* Below proc. */
void world_proc(const struct driver_world *w, const char *rel, const char *text);

/* The tree of a Debian machine with two cards: libraries, links, programs, nodes, capabilities. */
void world_debian(const struct driver_world *w);
/* The driver found in it, with the host seeing the root as /run/nvidia/driver. */
struct sl_driver *world_find(const struct driver_world *w);

/* Card 0 is whole; card 1 has MIG devices 1/0 and 2/0. The caller frees with world_free_inventory(). */
struct sl_inventory *world_inventory(void);
void world_free_inventory(struct sl_inventory *inv);

const struct sl_edit_mount *world_mount(const struct sl_edits *e, const char *container);
const struct sl_edit_node *world_has_node(const struct sl_edits *e, const char *container);
const char *world_env(const struct sl_edits *e, const char *name);

#endif
