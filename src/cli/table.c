/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/xalloc.h"

bool sl_table_colour(FILE *out)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return !(no && no[0]) && term && strcmp(term, "dumb") != 0 && isatty(fileno(out)) == 1;
}

char *sl_table_printable(char *text)
{
    for (char *p = text; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
    return text;
}

void sl_table_init(struct sl_table *t, const struct sl_table_column *columns, size_t count)
{
    *t = (struct sl_table){.columns = columns, .column_count = count};
}

void sl_table_cell(struct sl_table *t, const char *fmt, ...)
{
    if ((t->cell_count & (t->cell_count - 1)) == 0) {
        size_t room = t->cell_count ? t->cell_count * 2 : 1;
        t->cells = sl_xreallocarray(t->cells, room, sizeof(*t->cells));
    }
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(t->cells[t->cell_count], SL_TABLE_CELL, fmt, ap);
    va_end(ap);
    (void)sl_table_printable(t->cells[t->cell_count++]);
}

static void print_cell(const struct sl_table *t, size_t column, const char *text, int width,
                       FILE *out)
{
    bool last = column + 1 == t->column_count;
    if (t->columns[column].right)
        (void)fprintf(out, "  %*s", width, text);
    else
        (void)fprintf(out, "  %-*s", last ? 0 : width, text);
}

void sl_table_print(struct sl_table *t, FILE *out, bool colour)
{
    int width[SL_TABLE_COLUMNS] = {0};
    if (!t->column_count)
        return;
    for (size_t c = 0; c < t->column_count; c++)
        width[c] = (int)strlen(t->columns[c].title);
    for (size_t i = 0; i < t->cell_count; i++) {
        int n = (int)strlen(t->cells[i]);
        if (n > width[i % t->column_count])
            width[i % t->column_count] = n;
    }
    (void)fputs(colour ? SL_COLOUR_BOLD : "", out);
    for (size_t c = 0; c < t->column_count; c++)
        print_cell(t, c, t->columns[c].title, width[c], out);
    (void)fputs(colour ? SL_COLOUR_OFF "\n" : "\n", out);
    for (size_t i = 0; i < t->cell_count; i++) {
        print_cell(t, i % t->column_count, t->cells[i], width[i % t->column_count], out);
        if ((i + 1) % t->column_count == 0)
            (void)fputc('\n', out);
    }
    free(t->cells);
    *t = (struct sl_table){.columns = NULL};
}
