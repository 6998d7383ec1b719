/* SPDX-License-Identifier: Apache-2.0 */
#include "base/words.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

/* Lower case without - and _: time_slicing, timeslicing and time-slicing are all timeSlicing. */
static size_t plain(const char *text, char *buf, size_t size)
{
    size_t n = 0;
    for (; *text && n + 1 < size; text++)
        if (*text != '-' && *text != '_')
            buf[n++] = (char)tolower((unsigned char)*text);
    buf[n] = '\0';
    return n;
}

enum { WORD_MAX = 40 };

unsigned sl_word_distance(const char *written, const char *known)
{
    char a[WORD_MAX + 1], b[WORD_MAX + 1];
    unsigned row[3][WORD_MAX + 1]; /* the row before the last, the last row, this row */
    size_t na = plain(written, a, sizeof(a)), nb = plain(known, b, sizeof(b));
    if (strlen(written) > WORD_MAX)
        return SL_WORD_FAR;
    for (size_t j = 0; j <= nb; j++)
        row[1][j] = row[0][j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        row[2][0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned best = row[1][j - 1] + (a[i - 1] != b[j - 1]);
            best = row[1][j] + 1 < best ? row[1][j] + 1 : best;
            best = row[2][j - 1] + 1 < best ? row[2][j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                row[0][j - 2] + 1 < best)
                best = row[0][j - 2] + 1;
            row[2][j] = best;
        }
        memcpy(row[0], row[1], sizeof(row[0]));
        memcpy(row[1], row[2], sizeof(row[1]));
    }
    return row[1][nb] <= 1 + na / 4 ? row[1][nb] : SL_WORD_FAR;
}

const char *sl_word_closest(const char *written, const char *const *words)
{
    const char *best = NULL;
    unsigned best_d = SL_WORD_FAR;
    for (; *words; words++) {
        unsigned d = sl_word_distance(written, *words);
        if (d < best_d) {
            best = *words;
            best_d = d;
        }
    }
    return best;
}
