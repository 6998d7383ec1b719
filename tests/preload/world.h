/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libsluice's own code linked into the test, in front of the simulated driver: the test owns the tenant's pages, and
 * can remove the function behind each hook or make it fail.
 */
#ifndef SLUICE_TESTS_PRELOAD_WORLD_H
#define SLUICE_TESTS_PRELOAD_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "preload/attach.h"
#include "preload/charge.h"
#include "preload/gate.h"
#include "preload/hooks.h"
#include "support/nth_malloc.h"

#define MIB (1ULL << 20)
#define GIB (1ULL << 30)

extern struct sl_process world_process; /* what sl_process_get() returns */
extern struct sl_lease_page world_lease;
extern struct sl_ledger_page world_ledger;

/* A simulation of its own (`spec`), cuInit, a tenant of one GPU with this much memory. */
void world_open(const char *spec, uint64_t limit_bytes);
void world_close(void); /* removes the simulation's file */

void world_limit(uint64_t bytes);
void world_gate(uint32_t turn, enum sl_gate state);
uint64_t world_used_bytes(void);

/* Removes the function behind a symbol; world_restore() undoes all of that. */
void world_missing(enum sl_symbol symbol);
void world_failing(enum sl_symbol symbol); /* answers 999 from now on */
void world_answer(enum sl_symbol symbol, void *function);
void world_restore(void);

#define WORLD_ANSWER(symbol, function)                                                             \
    world_answer(SL_SYMBOL_##symbol, (void *)(uintptr_t)(function))

const char *world_name(enum sl_symbol symbol);

#endif
