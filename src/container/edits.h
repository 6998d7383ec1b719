/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The edits for a container: environment, mounts, device nodes, annotations, CDI names. Strategies fill them; they are
 * written as an Allocate answer or as a CDI spec.
 */
#ifndef SLUICE_CONTAINER_EDITS_H
#define SLUICE_CONTAINER_EDITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each struct begins with the text that identifies it. */
struct sl_edit_pair {
    char *name, *value;
};
struct sl_edit_mount {
    char *container, *host;
    bool read_only;
};
struct sl_edit_node {
    char *container, *host;
    /* The host has no such node (yet); its number is known, and a CDI runtime makes the node from that. */
    bool numbered;
    uint32_t major, minor;
};

/* Zero-initialised is empty. */
struct sl_edits {
    struct sl_edit_pair *env, *annotation;
    size_t env_count, annotation_count;
    struct sl_edit_mount *mount;
    size_t mount_count;
    struct sl_edit_node *node;
    size_t node_count;
    char **cdi;
    size_t cdi_count;
};

/* Each function copies its strings. Where an env name or a container path comes twice, the last counts. */
void sl_edits_env(struct sl_edits *e, const char *name, const char *value);
void sl_edits_annotation(struct sl_edits *e, const char *name, const char *value);
void sl_edits_mount(struct sl_edits *e, const char *host, const char *container, bool read_only);
/* For reading and writing. */
void sl_edits_node(struct sl_edits *e, const char *host, const char *container);
void sl_edits_node_numbered(struct sl_edits *e, const char *host, const char *container,
                            uint32_t major, uint32_t minor);
void sl_edits_cdi(struct sl_edits *e, const char *name);
/* Adds everything of `from`, by the same rule: `from` counts more than the old entries. */
void sl_edits_add(struct sl_edits *e, const struct sl_edits *from);
void sl_edits_clear(struct sl_edits *e);

#endif
