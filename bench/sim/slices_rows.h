/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of bench/sim/slices.c: programs, slices in us (0: the driver's 2048), what an H200 gave; then
 * the p99 of a step in percent of alone, and what cannot be compared. Requests come 10 ms after the
 * last one ended: at one every 10 ms, what the others got would sum up to more than the card. */

/* The driver's own slices. */
{{GEMM, GEMM}, {0, 0}, {46.8, 46.8}, 0, 0, NULL},
{{INFERENCE, TRAINING}, {0, 0}, {81, 100}, 0, 0, NULL},
{{INFERENCE, GEMM}, {0, 0}, {72, 92}, 0, 0,
 "a step that waits for its end waits for the neighbour's slice; on the H200 it waits less"},
{{TRAINING, TRAINING}, {0, 0}, {51, 51}, 0, 0,
 "two of them lose a tenth more to each other on the H200 (caches, clocks, the host)"},
{{SYNC, GEMM}, {0, 0}, {4.6, 88}, 0, 0, NULL},
{{MIXED, GEMM}, {0, 0}, {45, 49}, 0, 0, NULL},
{{STREAMS8, FMA100}, {0, 0}, {45, 45}, 0, 0, NULL},
{{COPIES, GEMM}, {0, 0}, {100, 98}, 0, 0, NULL},
{{REQUEST, GEMM}, {0, 0}, {0, 87}, 0, 209, NULL},
{{REQUEST, FMA20MS}, {0, 0}, {0, 84}, 0, 207, NULL},
{{REQUEST, GRAPH}, {0, 0}, {0, 83}, 0, 207, NULL},
{{REQUEST, TRAINING}, {0, 0}, {0, 99}, 0, 106, NULL},

/* Slices that were set. */
{{GEMM, GEMM}, {3000, 7000}, {28.8, 68.0}, 0, 0, NULL},
{{GEMM, GEMM}, {1000, 9000}, {9.2, 87.5}, 0, 0, NULL},
{{GEMM, GEMM}, {1000, 3000}, {22.7, 71.5}, 0, 0, NULL},
{{GEMM, GEMM}, {10000, 10000}, {49.2, 49.2}, 0, 0, NULL},
{{GEMM, GEMM}, {20000, 20000}, {49.6, 49.6}, 0, 0, NULL},
{{GEMM, GEMM}, {300, 700}, {0, 0}, 68.6, 0, NULL},
{{GEMM, GEMM}, {200, 200}, {18.7, 18.7}, 0, 0, NULL},
{{GEMM, GRAPH, FMA100}, {2000, 3000, 5000}, {20.0, 28.6, 47.0}, 0, 0, NULL},
{{STREAMS8, FMA100}, {3000, 7000}, {29.0, 67.1}, 0, 0, NULL},
/* The inference was "within its noise", which is 30 %. */
{{INFERENCE, TRAINING}, {5000, 5000}, {0, 100.6}, 0, 0, NULL},
{{INFERENCE, GEMM}, {5000, 5000}, {100, 96}, 0, 0,
 "as above: the H200 hardly makes it wait; turns by slice cannot explain that"},
{{SYNC, GEMM}, {5000, 5000}, {2.0, 95.3}, 0, 0, NULL},

/* A request with a slice of 5 ms beside others. */
{{REQUEST, GEMM}, {5000, 100}, {0, 86.6}, 0, 115, NULL},
{{REQUEST, GEMM}, {5000, 20}, {0, 86.6}, 0, 110, NULL},
{{REQUEST, FMA20MS}, {5000, 100}, {0, 82.9}, 0, 113, NULL},
{{REQUEST, FMA20MS}, {5000, 20}, {0, 82.9}, 0, 111, NULL},
{{REQUEST, FMA2S}, {5000, 20}, {0, 0}, 0, 109, NULL},
{{REQUEST, GRAPH}, {5000, 100}, {0, 82.6}, 0, 114, NULL},
{{REQUEST, STREAMS8}, {5000, 100}, {0, 82.6}, 0, 115, NULL},
{{REQUEST, GEMM, GEMM}, {5000, 1000, 1000}, {0, 36, 36}, 0, 223, NULL},
{{REQUEST, GEMM, GEMM}, {5000, 100, 100}, {0, 4, 4}, 0, -140,
 "the request waits for two switches; on the H200 it waits longer than they take"},
{{REQUEST, GEMM, GEMM}, {5000, 20, 20}, {0, 0, 0}, 0, -133, "as above"},
