/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/labels_publish.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/node/errors.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/fsutil.h"
#include "base/log.h"
#include "base/xalloc.h"

struct sl_labeler {
    struct sl_loop *loop;
    struct sl_timer timer;
    struct sl_labeler_options opt;
    uint64_t start_s;
    const struct sl_config *config;
    const struct sl_inventory *inv;
    const struct sl_plan *plan;
    struct sl_labels last; /* as published */
    bool published, oneshot_done;
    char *file;         /* the file that has our labels */
    struct sl_err said; /* the last error that was logged */
};

/* Opens the folder of a path; *ret_name is the rest. */
static int open_folder(const char *path, const char **ret_name, struct sl_err *err)
{
    const char *slash = strrchr(path, '/');
    *ret_name = slash ? slash + 1 : path;
    if (!**ret_name)
        return sl_err_set(err, -EISDIR, SL_E_LABEL_FILE_BAD, path);
    SL_CLEANUP(free)
    char *folder =
        slash ? sl_xstrndup(path, slash == path ? 1 : (size_t)(slash - path)) : sl_xstrdup(".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? fd : sl_err_errno(err, errno, "cannot open the folder %s", folder);
}

static char *file_text(const struct sl_labels *labels, size_t *ret_size)
{
    char *text = NULL;
    FILE *out = sl_xmemstream(&text, ret_size);
    for (size_t i = 0; i < labels->count; i++)
        (void)fprintf(out, "%s=%s\n", labels->label[i].key, labels->label[i].value);
    sl_xmemstream_close(out);
    return text;
}

/* `key=value` lines, replaced in one step; unchanged content is not written again. */
static int replace_file(const struct sl_labels *labels, const char *path, struct sl_err *err)
{
    const char *name;
    size_t size = 0, old_size = 0;
    SL_CLEANUP(free) char *text = file_text(labels, &size), *old = NULL;
    SL_CLEANUP(close) int folder = open_folder(path, &name, err);
    if (folder < 0)
        return folder;
    if (sl_fs_read(folder, name, size, &old, &old_size, NULL) == 0 && old_size == size &&
        memcmp(old, text, size) == 0)
        return 0;
    /* Node Feature Discovery reads all files there but hidden ones: a half-written file is hidden. */
    char hidden[NAME_MAX + 1];
    if ((size_t)snprintf(hidden, sizeof(hidden), ".%s", name) >= sizeof(hidden) - 8)
        return sl_err_set(err, -ENAMETOOLONG, SL_E_LABEL_FILE_LONG, name);
    int rc = sl_fs_replace(folder, hidden, text, size, 0644, err);
    if (rc == 0 && renameat(folder, hidden, folder, name) != 0) {
        rc = sl_err_errno(err, errno, "cannot replace %s", path);
        (void)unlinkat(folder, hidden, 0);
    }
    return rc;
}

static void remove_file(struct sl_labeler *l)
{
    if (l->file)
        (void)unlink(l->file);
    free(l->file);
    l->file = NULL;
}

static void write_file(struct sl_labeler *l, const struct sl_labels *labels)
{
    const char *path = l->config->gfd_output_file;
    if (!l->opt.write_file || !path || !*path) {
        remove_file(l);
        return;
    }
    if (l->file && strcmp(l->file, path) != 0)
        remove_file(l);
    struct sl_err err = SL_ERR_INIT;
    if (replace_file(labels, path, &err) < 0) {
        if (strcmp(l->said.msg, err.msg) != 0) /* a full disk is logged once, not every minute */
            sl_warn("labels: %s", err.msg);
        l->said = err;
        return;
    }
    l->said = (struct sl_err)SL_ERR_INIT;
    if (!l->file)
        l->file = sl_xstrdup(path);
}

static void refresh(struct sl_labeler *l)
{
    struct sl_labels_host host;
    sl_labels_host_read(l->opt.sys_root, l->config->gfd_machine_type_file, l->inv, &host);
    host.start_s = l->start_s;
    struct sl_labels labels = sl_labels_make(l->config, l->inv, l->plan, &host);
    write_file(l, &labels);
    if (l->published && sl_labels_equal(&labels, &l->last)) {
        sl_labels_clear(&labels);
        return;
    }
    sl_labels_clear(&l->last);
    l->last = labels;
    l->published = true;
    l->opt.changed(l->opt.data);
}

static void set_timer(struct sl_labeler *l)
{
    sl_timer_stop(l->loop, &l->timer);
    uint64_t every = l->config->gfd_sleep_ns;
    if (every < SL_NS_PER_S)
        every = SL_NS_PER_S;
    if (every != UINT64_MAX && !l->config->gfd_oneshot)
        sl_timer_set(l->loop, &l->timer, sl_loop_now(l->loop) + every);
}

static void fire(struct sl_timer *timer)
{
    struct sl_labeler *l = sl_container_of(timer, struct sl_labeler, timer);
    refresh(l);
    set_timer(l);
}

struct sl_labeler *sl_labeler_create(struct sl_loop *loop, const struct sl_labeler_options *opt)
{
    struct sl_labeler *l = sl_xcalloc(1, sizeof(*l));
    l->loop = loop;
    l->opt = *opt;
    l->timer.fire = fire;
    l->start_s = opt->wall_s ? opt->wall_s() : (uint64_t)time(NULL);
    return l;
}

void sl_labeler_destroy(struct sl_labeler *labeler)
{
    if (!labeler)
        return;
    sl_timer_stop(labeler->loop, &labeler->timer);
    if (!labeler->oneshot_done)
        remove_file(labeler);
    free(labeler->file);
    sl_labels_clear(&labeler->last);
    free(labeler);
}

void sl_labeler_update(struct sl_labeler *labeler, const struct sl_config *config,
                       const struct sl_inventory *inv, const struct sl_plan *plan)
{
    labeler->config = config;
    labeler->inv = inv;
    labeler->plan = plan;
    if (labeler->oneshot_done && config->gfd_oneshot)
        return;
    refresh(labeler);
    labeler->oneshot_done = config->gfd_oneshot;
    set_timer(labeler);
}

const struct sl_labels *sl_labeler_last(const struct sl_labeler *labeler)
{
    return labeler->published ? &labeler->last : NULL;
}
