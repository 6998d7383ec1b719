/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/screen.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"
#include "cli/table.h"

#define HEIGHTS 8

void sl_screen_init(struct sl_screen *s, int rows, int cols, bool unicode)
{
    *s = (struct sl_screen){.rows = rows, .cols = cols, .unicode = unicode};
    s->cells = sl_xcalloc((size_t)rows * (size_t)cols + 1, sizeof(*s->cells));
    sl_screen_clear(s);
}

void sl_screen_free(struct sl_screen *s)
{
    free(s->cells);
    *s = (struct sl_screen){0};
}

void sl_screen_clear(struct sl_screen *s)
{
    for (int i = 0; i < s->rows * s->cols; i++)
        s->cells[i] = (struct sl_cell){.rune = ' '};
}

static void set(struct sl_screen *s, int row, int col, uint32_t rune, enum sl_style style)
{
    if (row >= 0 && row < s->rows && col >= 0 && col < s->cols)
        s->cells[row * s->cols + col] = (struct sl_cell){.rune = rune, .style = (uint8_t)style};
}

int sl_screen_put(struct sl_screen *s, int row, int col, enum sl_style style, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    for (const char *p = sl_table_printable(text); *p; p++)
        set(s, row, col++, (unsigned char)*p, style);
    return col;
}

int sl_screen_field(struct sl_screen *s, int row, int col, int width, bool right,
                    enum sl_style style, const char *text)
{
    int n = (int)strlen(text);
    if (n > width) {
        (void)sl_screen_put(s, row, col, style, "%.*s~", width - 1, text);
        return col + width;
    }
    (void)sl_screen_put(s, row, right ? col + width - n : col, style, "%s", text);
    return col + width;
}

/* The length of the first row of a text: whole words where one fits. */
static int row_length(const char *text, int width)
{
    int n = (int)strlen(text), end = width;
    if (n <= width)
        return n;
    while (end > 0 && text[end] != ' ')
        end--;
    return end > 0 ? end : width;
}

int sl_screen_text_rows(const char *text, int width)
{
    int rows = 0;
    for (; *text && width > 0; rows++) {
        text += row_length(text, width);
        text += strspn(text, " ");
    }
    return rows;
}

int sl_screen_text(struct sl_screen *s, int row, enum sl_style style, const char *text)
{
    while (*text && s->cols > 0) {
        int n = row_length(text, s->cols);
        for (int col = 0; col < s->cols; col++)
            set(s, row, col, ' ', SL_STYLE_PLAIN);
        (void)sl_screen_put(s, row++, 0, style, "%.*s", n, text);
        text += n;
        text += strspn(text, " ");
    }
    return row;
}

void sl_screen_bar(struct sl_screen *s, int row, int col, int width, uint32_t permille,
                   enum sl_style style)
{
    int inner = width - 2;
    int full =
        (int)(((uint64_t)(permille > 1000 ? 1000 : permille) * (uint64_t)inner + 500) / 1000);
    if (full == 0 && permille)
        full = 1;
    set(s, row, col, '[', SL_STYLE_PLAIN);
    for (int i = 0; i < full; i++)
        set(s, row, col + 1 + i, '|', style);
    set(s, row, col + width - 1, ']', SL_STYLE_PLAIN);
}

void sl_screen_height(struct sl_screen *s, int row, int col, uint32_t permille, enum sl_style style)
{
    static const char ascii[HEIGHTS + 1] = "_.:-=+*#";
    uint32_t n = (permille > 1000 ? 1000 : permille) * (HEIGHTS - 1) / 1000;
    set(s, row, col, s->unicode ? 0x2581 + n : (unsigned char)ascii[n], style);
}

void sl_screen_row_style(struct sl_screen *s, int row, enum sl_style style)
{
    for (int i = 0; row >= 0 && row < s->rows && i < s->cols; i++)
        s->cells[row * s->cols + i].style = (uint8_t)style;
}

/* All that is drawn is below U+10000. */
static void put_rune(uint32_t rune, FILE *out)
{
    if (rune < 0x80) {
        (void)fputc((int)rune, out);
        return;
    }
    (void)fputc((int)(0xe0 | rune >> 12), out);
    (void)fputc((int)(0x80 | (rune >> 6 & 0x3f)), out);
    (void)fputc((int)(0x80 | (rune & 0x3f)), out);
}

static int last_used(const struct sl_screen *s, int row)
{
    int last = s->cols;
    while (last > 0 && s->cells[row * s->cols + last - 1].rune == ' ')
        last--;
    return last;
}

void sl_screen_print(const struct sl_screen *s, FILE *out, bool colour)
{
    static const char *const codes[SL_STYLES] = {[SL_STYLE_PLAIN] = "",
                                                 [SL_STYLE_BOLD] = SL_COLOUR_BOLD,
                                                 [SL_STYLE_DIM] = "\033[2m",
                                                 [SL_STYLE_SELECTED] = "\033[7m",
                                                 [SL_STYLE_GOOD] = SL_COLOUR_GREEN,
                                                 [SL_STYLE_WARN] = SL_COLOUR_YELLOW,
                                                 [SL_STYLE_BAD] = SL_COLOUR_RED};
    int rows = s->rows;
    while (rows > 0 && last_used(s, rows - 1) == 0)
        rows--;
    for (int row = 0; row < rows; row++) {
        uint8_t style = SL_STYLE_PLAIN;
        int last = last_used(s, row);
        for (int col = 0; col < last; col++) {
            const struct sl_cell *c = &s->cells[row * s->cols + col];
            if (colour && c->style != style)
                (void)fprintf(out, "%s%s", SL_COLOUR_OFF, codes[c->style]);
            style = c->style;
            put_rune(c->rune, out);
        }
        (void)fprintf(out, "%s\n", colour && style != SL_STYLE_PLAIN ? SL_COLOUR_OFF : "");
    }
}
