/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"

#include <limits.h>
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

static void add(struct sl_table *t, char *text)
{
    if ((t->cell_count & (t->cell_count - 1)) == 0) {
        size_t room = t->cell_count ? t->cell_count * 2 : 1;
        t->cells = sl_xreallocarray(t->cells, room, sizeof(*t->cells));
    }
    t->cells[t->cell_count++] = text;
}

void sl_table_cell(struct sl_table *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add(t, sl_table_printable(sl_xvasprintf(fmt, ap)));
    va_end(ap);
}

void sl_table_line(struct sl_table *t, const char *text)
{
    add(t, sl_table_printable(sl_xstrdup(text)));
    while (t->cell_count % t->column_count != 0)
        add(t, NULL);
}

static bool is_line(const struct sl_table *t, size_t first)
{
    return t->column_count > 1 && !t->cells[first + 1];
}

/* At most `width` columns of it, with a mark where something is missing. Returns whether that is so. */
static bool put_cut(const char *text, int width, FILE *out)
{
    bool cut = (int)strlen(text) > width;
    if (cut)
        (void)fprintf(out, "%.*s%c", width - 1, text, SL_TABLE_CUT);
    else
        (void)fputs(text, out);
    return cut;
}

static bool print_cell(enum sl_table_kind kind, const char *text, int width, bool last, FILE *out)
{
    int missing = width - (int)strlen(text);
    int pad = missing > 0 ? missing : 0;
    bool right = kind == SL_TABLE_RIGHT;
    (void)fprintf(out, "  %*s", right ? pad : 0, "");
    bool cut = put_cut(text, width, out);
    (void)fprintf(out, "%*s", right || last ? 0 : pad, "");
    return cut;
}

/* Without spaces at its end. Returns whether a text was cut. */
static bool print_row(const struct sl_table *t, char *const cells[], const int width[], FILE *out)
{
    bool cut = false;
    size_t used = t->column_count;
    while (used > 0 && !cells[used - 1][0])
        used--;
    for (size_t c = 0; c < used; c++)
        cut |= print_cell(t->columns[c].kind, cells[c], width[c], c + 1 == used, out);
    return cut;
}

/* Takes from the widest column that may be cut, until the table fits or nothing is left to take. */
static void fit(const struct sl_table *t, int width[])
{
    int total = 0;
    for (size_t c = 0; c < t->column_count; c++)
        total += 2 + width[c];
    for (; t->max_width && total > t->max_width; total--) {
        size_t widest = t->column_count;
        for (size_t c = 0; c < t->column_count; c++)
            if (t->columns[c].kind == SL_TABLE_NAME &&
                width[c] > (int)strlen(t->columns[c].title) &&
                (widest == t->column_count || width[c] > width[widest]))
                widest = c;
        if (widest == t->column_count)
            return;
        width[widest]--;
    }
}

static void measure(const struct sl_table *t, int width[])
{
    for (size_t c = 0; c < t->column_count; c++)
        width[c] = (int)strlen(t->columns[c].title);
    for (size_t row = 0; row < t->cell_count; row += t->column_count)
        for (size_t c = 0; c < t->column_count && !is_line(t, row); c++) {
            int n = (int)strlen(t->cells[row + c]);
            width[c] = n > width[c] ? n : width[c];
        }
    fit(t, width);
}

bool sl_table_print(struct sl_table *t, FILE *out, bool colour)
{
    int width[SL_TABLE_COLUMNS] = {0};
    bool cut = false;
    if (!t->column_count)
        return false;
    measure(t, width);
    (void)fputs(colour ? SL_COLOUR_BOLD : "", out);
    for (size_t c = 0; c < t->column_count; c++)
        (void)print_cell(t->columns[c].kind, t->columns[c].title, width[c],
                         c + 1 == t->column_count, out);
    (void)fputs(colour ? SL_COLOUR_OFF "\n" : "\n", out);
    for (size_t row = 0; row < t->cell_count; row += t->column_count) {
        if (is_line(t, row))
            cut |= put_cut(t->cells[row], t->max_width ? t->max_width : INT_MAX, out);
        else
            cut |= print_row(t, &t->cells[row], width, out);
        (void)fputc('\n', out);
    }
    for (size_t i = 0; i < t->cell_count; i++)
        free(t->cells[i]);
    free(t->cells);
    *t = (struct sl_table){.columns = NULL};
    return cut;
}

void sl_table_prose(FILE *out, int width, int from, int indent, const char *text)
{
    bool begun = false;
    for (int at = from; *text; begun = true) {
        size_t n = strcspn(text, " ");
        if (begun && width && at + 1 + (int)n > width) {
            (void)fprintf(out, "\n%*s", indent, "");
            at = indent;
        } else if (begun) {
            (void)fputc(' ', out);
            at++;
        }
        (void)fwrite(text, 1, n, out);
        at += (int)n;
        text += n + strspn(text + n, " ");
    }
    (void)fputc('\n', out);
}
