/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory owned by graphs: allocation nodes, and allocations captured from streams. The driver takes the memory when a
 * graph is instantiated, uploaded or launched, from one pool per device. That pool is charged by its actual size, and
 * before each such step the graph's own need is reserved.
 */
#ifndef SLUICE_PRELOAD_GRAPH_MEM_H
#define SLUICE_PRELOAD_GRAPH_MEM_H

/* A graph in this process has memory nodes; until then all of this costs one load. */
void sl_graph_mem_seen(void);

void sl_graph_mem_forget(void); /* in a forked child */

#endif
