/* SPDX-License-Identifier: Apache-2.0 */
/* A terminal that shows pages (screen.h) and reads keys. */
#ifndef SLUICE_CLI_TERMINAL_H
#define SLUICE_CLI_TERMINAL_H

#include <stdint.h>

#include "base/err.h"
#include "cli/screen.h"

struct sl_terminal;

/* Takes the terminal over. -ENOTTY: input or output is no terminal, or the terminal cannot place its cursor. -ENOTSUP:
 * this program was built without ncurses. */
int sl_terminal_open(struct sl_terminal **ret, struct sl_err *err) SL_MUST_CHECK;
/* Restores the terminal. NULL is fine. */
void sl_terminal_close(struct sl_terminal *t);

void sl_terminal_size(const struct sl_terminal *t, int *ret_rows, int *ret_cols);
void sl_terminal_show(struct sl_terminal *t, const struct sl_screen *s);
/* The next key: a character, or an enum sl_top_key. 0: no key within that time, or the size changed. */
int sl_terminal_key(struct sl_terminal *t, uint64_t wait_ns);

#endif
