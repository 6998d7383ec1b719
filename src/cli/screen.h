/* SPDX-License-Identifier: Apache-2.0 */
/* A page of characters with a style each: drawn in memory, then shown on a terminal or printed. */
#ifndef SLUICE_CLI_SCREEN_H
#define SLUICE_CLI_SCREEN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum sl_style {
    SL_STYLE_PLAIN,
    SL_STYLE_BOLD,
    SL_STYLE_DIM,
    SL_STYLE_SELECTED,
    SL_STYLE_GOOD,
    SL_STYLE_WARN,
    SL_STYLE_BAD,
    SL_STYLES
};

struct sl_cell {
    uint32_t rune; /* Unicode */
    uint8_t style; /* enum sl_style */
};

struct sl_screen {
    int rows, cols;
    bool unicode; /* false: ASCII alone */
    struct sl_cell *cells;
};

void sl_screen_init(struct sl_screen *s, int rows, int cols, bool unicode);
void sl_screen_free(struct sl_screen *s);
/* Spaces everywhere. */
void sl_screen_clear(struct sl_screen *s);

/* Writes text that is cut at the right edge, and returns the column after it. Nothing is written outside the page. A
 * character that is not printable ASCII becomes '?': names come from other people's processes. */
int sl_screen_put(struct sl_screen *s, int row, int col, enum sl_style style, const char *fmt, ...)
    SL_PRINTF(5, 6);
/* As sl_screen_put, in `width` columns; a longer text ends in '~'. `right`: the text stands to the right. */
int sl_screen_field(struct sl_screen *s, int row, int col, int width, bool right,
                    enum sl_style style, const char *text);
/* How many rows a text takes in `width` columns, when it is broken at spaces. */
int sl_screen_text_rows(const char *text, int width);
/* Writes the text broken at spaces, from this row on, each row from column 0 and cleared first. Returns the row after
 * it. */
int sl_screen_text(struct sl_screen *s, int row, enum sl_style style, const char *text);
/* A bar of `width` columns, of which `permille` are full. */
void sl_screen_bar(struct sl_screen *s, int row, int col, int width, uint32_t permille,
                   enum sl_style style);
/* A column of height `permille` in one character. */
void sl_screen_height(struct sl_screen *s, int row, int col, uint32_t permille,
                      enum sl_style style);
/* Everything in a row has this style from now on. */
void sl_screen_row_style(struct sl_screen *s, int row, enum sl_style style);

/* Prints the page without spaces at the ends of lines, and without empty lines at its end. */
void sl_screen_print(const struct sl_screen *s, FILE *out, bool colour);

#endif
