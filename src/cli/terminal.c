/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/terminal.h"

#include <errno.h>

#include "cli/errors.h"

#ifdef SLUICE_WITH_NCURSES

#include <ncurses.h>
#include <stdlib.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/xalloc.h"
#include "cli/top_model.h"

struct sl_terminal {
    SCREEN *screen;
    bool colour;
};

/* Ctrl-C leaves as q does, with the exit code of q; a signal would end the program in the middle. */
static void interrupt_is_a_key(void)
{
    struct termios mode;
    if (tcgetattr(STDIN_FILENO, &mode) != 0)
        return;
    mode.c_cc[VINTR] = _POSIX_VDISABLE;
    if (tcsetattr(STDIN_FILENO, TCSANOW, &mode) == 0)
        (void)def_prog_mode();
}

int sl_terminal_open(struct sl_terminal **ret, struct sl_err *err)
{
    if (isatty(STDIN_FILENO) != 1 || isatty(STDOUT_FILENO) != 1)
        return sl_err_set(err, -ENOTTY, SL_E_TOP_NO_TERMINAL);
    SCREEN *screen = newterm(NULL, stdout, stdin);
    if (screen && !cursor_address) {
        (void)endwin();
        delscreen(screen);
        screen = NULL;
    }
    if (!screen)
        return sl_err_set(err, -ENOTTY, SL_E_TOP_TERMINAL_KIND);
    struct sl_terminal *t = sl_xcalloc(1, sizeof(*t));
    const char *plain = getenv("NO_COLOR");
    t->screen = screen;
    (void)set_term(screen);
    (void)cbreak();
    interrupt_is_a_key();
    (void)noecho();
    (void)nonl();
    (void)keypad(stdscr, TRUE);
    (void)set_escdelay(50);
    (void)curs_set(0);
    t->colour = !(plain && plain[0]) && has_colors() && start_color() == OK;
    if (t->colour) {
        (void)use_default_colors();
        (void)init_pair(SL_STYLE_GOOD, COLOR_GREEN, -1);
        (void)init_pair(SL_STYLE_WARN, COLOR_YELLOW, -1);
        (void)init_pair(SL_STYLE_BAD, COLOR_RED, -1);
    }
    *ret = t;
    return 0;
}

void sl_terminal_close(struct sl_terminal *t)
{
    if (!t)
        return;
    (void)endwin();
    delscreen(t->screen);
    free(t);
}

void sl_terminal_size(const struct sl_terminal *t, int *ret_rows, int *ret_cols)
{
    (void)t;
    getmaxyx(stdscr, *ret_rows, *ret_cols);
}

static attr_t attributes(uint8_t style)
{
    return style == SL_STYLE_BOLD       ? A_BOLD
           : style == SL_STYLE_DIM      ? A_DIM
           : style == SL_STYLE_SELECTED ? A_REVERSE
                                        : A_NORMAL;
}

void sl_terminal_show(struct sl_terminal *t, const struct sl_screen *s)
{
    (void)erase();
    for (int row = 0; row < s->rows; row++)
        for (int col = 0; col < s->cols; col++) {
            const struct sl_cell *c = &s->cells[row * s->cols + col];
            bool pair = t->colour && (c->style == SL_STYLE_GOOD || c->style == SL_STYLE_WARN ||
                                      c->style == SL_STYLE_BAD);
            wchar_t text[2] = {(wchar_t)c->rune, L'\0'};
            cchar_t shown;
            if (c->rune == ' ' && c->style != SL_STYLE_SELECTED)
                continue;
            (void)setcchar(&shown, text, attributes(c->style), pair ? (short)c->style : 0, NULL);
            (void)mvadd_wch(row, col, &shown);
        }
    (void)refresh();
}

int sl_terminal_key(struct sl_terminal *t, uint64_t wait_ns)
{
    static const struct {
        int theirs, ours;
    } keys[] = {{KEY_UP, SL_KEY_UP},
                {KEY_DOWN, SL_KEY_DOWN},
                {KEY_PPAGE, SL_KEY_PAGE_UP},
                {KEY_NPAGE, SL_KEY_PAGE_DOWN},
                {KEY_HOME, SL_KEY_HOME},
                {KEY_END, SL_KEY_END},
                {KEY_ENTER, SL_KEY_ENTER},
                {'\r', SL_KEY_ENTER},
                {'\n', SL_KEY_ENTER},
                {0x1b, SL_KEY_ESCAPE},
                {'C' & 0x1f, SL_KEY_INTERRUPT},
                {KEY_BACKSPACE, SL_KEY_BACKSPACE},
                {0x7f, SL_KEY_BACKSPACE},
                {'\b', SL_KEY_BACKSPACE}};
    (void)t;
    timeout((int)(wait_ns / SL_NS_PER_MS));
    int key = getch();
    for (size_t i = 0; i < SL_ARRAY_LEN(keys); i++)
        if (key == keys[i].theirs)
            return keys[i].ours;
    return key == ERR || key > 0xff ? 0 : key;
}

#else

int sl_terminal_open(struct sl_terminal **ret, struct sl_err *err)
{
    (void)ret;
    return sl_err_set(err, -ENOTSUP, SL_E_TOP_NO_NCURSES);
}

void sl_terminal_close(struct sl_terminal *t)
{
    (void)t;
}

void sl_terminal_size(const struct sl_terminal *t, int *ret_rows, int *ret_cols)
{
    (void)t;
    *ret_rows = *ret_cols = 0;
}

void sl_terminal_show(struct sl_terminal *t, const struct sl_screen *s)
{
    (void)t;
    (void)s;
}

int sl_terminal_key(struct sl_terminal *t, uint64_t wait_ns)
{
    (void)t;
    (void)wait_ns;
    return 0;
}

#endif
