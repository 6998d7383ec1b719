/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/history_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arbiter/client.h"
#include "arbiter/history_file.h"
#include "base/cleanup.h"
#include "base/xalloc.h"
#include "cli/errors.h"

static void take_line(struct sl_past *p, const char *line, size_t size)
{
    struct sl_history_entry e;
    if (!sl_history_parse(line, size, &e)) {
        p->damaged++;
        return;
    }
    if ((p->count & (p->count - 1)) == 0)
        p->list = sl_xreallocarray(p->list, p->count ? 2 * p->count : 1, sizeof(*p->list));
    p->list[p->count++] = e;
}

/* The arbiter tells each user what that user may see. */
static int ask_arbiter(const struct sl_arbiter_dir *place, struct sl_past *p, struct sl_err *err)
{
    SL_CLEANUP(close) int fd = sl_client_connect(place, err);
    SL_CLEANUP(free) char *text = NULL;
    size_t size = 0;
    int rc = fd < 0 ? fd : sl_client_history(fd, &text, &size, &p->damaged, err);
    if (rc < 0)
        return rc;
    for (const char *line = text, *feed; (feed = strchr(line, '\n')); line = feed + 1)
        take_line(p, line, (size_t)(feed - line));
    p->running = true;
    return 0;
}

/* Without an arbiter, only its user and root can read the file. No directory and no file are no error. */
static int read_file(const struct sl_arbiter_dir *place, struct sl_past *p, struct sl_err *err)
{
    struct sl_history_store s = {.written = -1};
    SL_CLEANUP(close) int dir = open(place->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = dir < 0 ? -errno : sl_history_load(&s, dir, err);
    if (rc == -ENOENT)
        return 0;
    if (rc == -EACCES || rc == -EPERM)
        return sl_err_set(err, rc, SL_E_HISTORY_FORBIDDEN, place->dir);
    if (rc < 0)
        return dir < 0 ? sl_err_errno(err, -rc, "cannot open %s", place->dir) : rc;
    p->damaged = s.damaged;
    for (const struct sl_history_line *l = s.oldest; l; l = l->next)
        take_line(p, l->text, l->size);
    sl_history_free(&s);
    return 0;
}

int sl_past_read(const struct sl_arbiter_dir *place, struct sl_past *ret, struct sl_err *err)
{
    *ret = (struct sl_past){.list = NULL};
    int rc = ask_arbiter(place, ret, err);
    /* None runs, it left while we asked, or it is too old to know the question. */
    if (rc == -ENOENT || rc == -ECONNRESET)
        rc = read_file(place, ret, err);
    return rc;
}

void sl_past_free(struct sl_past *p)
{
    free(p->list);
    *p = (struct sl_past){.list = NULL};
}
