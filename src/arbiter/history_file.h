/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The history of ended tenants: lines (policy/history.h) in memory, and in one file of the arbiter's directory. Both
 * are bounded. A new line is appended with one write; when the file has grown to twice the bound, or differs from what
 * was written, it is replaced by what is in memory. So a writer that is killed costs its own line at most, and a disk
 * that is full costs nothing while the arbiter lives.
 */
#ifndef SLUICE_ARBITER_HISTORY_FILE_H
#define SLUICE_ARBITER_HISTORY_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "policy/history.h"

#define SL_HISTORY_FILE "history"

struct sl_history_line {
    struct sl_history_line *next;
    uint64_t id;
    uint32_t uid;
    uint32_t size;
    char text[]; /* without a line feed; ends with a NUL */
};

struct sl_history_store {
    struct sl_history_line *oldest, *newest;
    uint32_t count;
    size_t bytes;     /* with line feeds */
    uint32_t damaged; /* lines of the file that could not be read */
    off_t written;    /* size of the file as we left it; -1: it must be replaced */
    bool failing;     /* the last write failed, and that was logged */
};

/* Reads the file. -ENOENT: there is none. The store is empty and usable after an error, too. */
int sl_history_load(struct sl_history_store *s, int dir_fd, struct sl_err *err) SL_MUST_CHECK;
bool sl_history_has(const struct sl_history_store *s, uint64_t id);
/* Adds the newest entry, forgets the oldest ones beyond the bounds, and writes the file. A user who has more than half
 * of the entries loses one of its own: one user's short commands do not push out the others' entries. */
void sl_history_add(struct sl_history_store *s, int dir_fd, const struct sl_history_entry *e);
void sl_history_free(struct sl_history_store *s);

#endif
