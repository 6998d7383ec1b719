/* SPDX-License-Identifier: Apache-2.0 */
#include "arbiter/slices_memo.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "sluice/pages.h"

#define MEMO_FILE "slices.txt"
#define MEMO_HEAD "sluice-slices 1"
#define MEMO_MAX  8192

struct memo_line {
    char uuid[SL_UUID_MAX], driver[64];
    struct sl_slices_result result;
};

static bool read_line(const char *line, struct memo_line *ret)
{
    unsigned verdict, off;
    char end;
    struct sl_slices_result *r = &ret->result;
    if (sscanf(line,
               "gpu %63s driver %63s verdict %u tenths %" SCNu32 " off %u status %" SCNu32 "%c",
               ret->uuid, ret->driver, &verdict, &r->tenths, &off, &r->status, &end) != 6 ||
        verdict > SL_SLICES_NO_GROUP || off > 1)
        return false;
    r->verdict = (enum sl_slices_verdict)verdict;
    r->off = off;
    return true;
}

/* The number of lines; 0 for a file that is missing or damaged. */
static size_t read_memo(int dir, struct memo_line ret[SL_MAX_GPUS])
{
    SL_CLEANUP(free) char *text = NULL;
    char *save = NULL;
    size_t n = 0;
    if (dir < 0 || sl_fs_read(dir, MEMO_FILE, MEMO_MAX, &text, NULL, NULL) < 0)
        return 0;
    const char *line = strtok_r(text, "\n", &save);
    if (!line || strcmp(line, MEMO_HEAD) != 0)
        return 0;
    while ((line = strtok_r(NULL, "\n", &save)) && strcmp(line, "end") != 0)
        if (n == SL_MAX_GPUS || !read_line(line, &ret[n++]))
            return 0;
    return line ? n : 0;
}

bool sl_slices_recall(int dir, const char *uuid, const char *driver, struct sl_slices_result *ret)
{
    struct memo_line line[SL_MAX_GPUS];
    size_t n = read_memo(dir, line);
    for (size_t i = 0; i < n; i++)
        if (strcmp(line[i].uuid, uuid) == 0 && strcmp(line[i].driver, driver) == 0) {
            *ret = line[i].result;
            return true;
        }
    return false;
}

void sl_slices_remember(int dir, const char *uuid, const char *driver,
                        const struct sl_slices_result *result)
{
    struct memo_line line[SL_MAX_GPUS];
    char text[MEMO_MAX];
    if (dir < 0 || strpbrk(driver, " \t\n") || strpbrk(uuid, " \t\n"))
        return;
    size_t n = read_memo(dir, line), size = 0;
    size += (size_t)snprintf(text, sizeof(text), MEMO_HEAD "\n");
    /* Results with another driver are of no use any more, for any card. */
    for (size_t i = 0; i <= n; i++) {
        const struct sl_slices_result *r = i < n ? &line[i].result : result;
        if (i < n && (strcmp(line[i].uuid, uuid) == 0 || strcmp(line[i].driver, driver) != 0))
            continue;
        size += (size_t)snprintf(text + size, sizeof(text) - size,
                                 "gpu %.63s driver %.63s verdict %u tenths %" PRIu32
                                 " off %u status %" PRIu32 "\n",
                                 i < n ? line[i].uuid : uuid, driver, (unsigned)r->verdict,
                                 r->tenths, (unsigned)r->off, r->status);
    }
    size += (size_t)snprintf(text + size, sizeof(text) - size, "end\n");
    /* Without this file the next doctor measures again; no other harm. */
    (void)!sl_fs_replace(dir, MEMO_FILE, text, size, 0600, NULL);
}
