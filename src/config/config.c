/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/xalloc.h"
#include "config/errors.h"
#include "config/schema.h"

#define MAX_FILE_BYTES ((size_t)1 << 20) /* a ConfigMap is no larger */

/* Rows of items are cleared with their list. */
static bool of_item(const struct sl_schema_row *row)
{
    return row->path && strstr(row->path, "[]");
}

static void draft_clear(struct sl_draft *d)
{
    for (size_t i = 0; i < sl_schema_count; i++)
        if (!of_item(&sl_schema[i]))
            sl_value_clear(&sl_schema[i], d);
}

void sl_draft_view(const struct sl_config *config, struct sl_draft *ret)
{
    *ret = (struct sl_draft){.c = *config, .file = ""};
    struct sl_draft_block block = {config->rename_by_default,
                                   config->fail_requests_greater_than_one,
                                   {config->shared, config->shared_count}};
    if (config->sharing == SL_SHARING_TIME_SLICING)
        ret->time_slicing = block;
    if (config->sharing == SL_SHARING_MPS)
        ret->mps = block;
}

void sl_config_free(struct sl_config *config)
{
    if (!config)
        return;
    struct sl_draft d;
    sl_draft_view(config, &d);
    draft_clear(&d);
    free(config);
}

bool sl_config_equal(const struct sl_config *a, const struct sl_config *b)
{
    struct sl_draft da, db;
    sl_draft_view(a, &da);
    sl_draft_view(b, &db);
    da.c.config_file = db.c.config_file; /* the path of the file is not part of its content */
    for (size_t i = 0; i < sl_schema_count; i++)
        if (!of_item(&sl_schema[i]) && !sl_value_equal(&sl_schema[i], &da, &db))
            return false;
    return a->sharing == b->sharing;
}

const char *sl_config_sharing_name(enum sl_sharing sharing)
{
    static const char *const names[] = {[SL_SHARING_NONE] = "none",
                                        [SL_SHARING_TIME_SLICING] = "time-slicing",
                                        [SL_SHARING_MPS] = "mps",
                                        [SL_SHARING_FRACTIONAL] = "fractional"};
    return (size_t)sharing < SL_ARRAY_LEN(names) ? names[sharing] : "?";
}

static bool has_xid(const struct sl_xid_list *list, uint64_t xid)
{
    bool has = list->all;
    for (size_t i = 0; i < list->count && !has; i++)
        has = list->xid[i] == xid;
    return has;
}

bool sl_config_xid_ignored(const struct sl_config *c, uint64_t xid)
{
    return !has_xid(&c->watched_xids, xid) && has_xid(&c->ignored_xids, xid);
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Sorts the list, and removes doubles and the XIDs of `but`. */
static void tidy(struct sl_xid_list *list, const struct sl_xid_list *but)
{
    size_t n = 0;
    if (list->count > 0)
        qsort(list->xid, list->count, sizeof(*list->xid), by_number);
    for (size_t i = 0; i < list->count; i++)
        if ((n == 0 || list->xid[n - 1] != list->xid[i]) && !(but && has_xid(but, list->xid[i])))
            list->xid[n++] = list->xid[i];
    list->count = n;
}

/* Adds the application's errors to the ignored XIDs, then removes the watched ones. */
static int finish_xids(struct sl_draft *d, struct sl_err *err)
{
    const struct sl_schema_row *row = sl_schema_path("health.ignoreXIDs");
    struct sl_scalar s = {
        .text = SL_APPLICATION_XIDS, .len = strlen(SL_APPLICATION_XIDS), .outside = true};
    int rc = sl_value_add(d, row, d, &s, err);
    if (rc < 0)
        return rc;
    struct sl_xid_list *ignored = &d->c.ignored_xids, *watched = &d->c.watched_xids;
    tidy(watched, NULL);
    tidy(ignored, watched);
    d->c.health_checks = !ignored->all || watched->all || watched->count > 0;
    return 0;
}

/* An empty text becomes the default; the default of the device root is the driver root. */
static int finish_texts(struct sl_draft *d, struct sl_err *err)
{
    for (size_t i = 0; i < sl_schema_count; i++) {
        const struct sl_schema_row *row = &sl_schema[i];
        if (row->type != SL_TYPE_STRING || !row->initial)
            continue;
        const char *text = *(char **)((char *)d + row->offset);
        bool dev = row->offset == offsetof(struct sl_draft, c.dev_root);
        struct sl_scalar s = {.text = dev ? d->c.driver_root : row->initial, .outside = true};
        s.len = strlen(s.text);
        int rc = text[0] == '\0' ? sl_value_set(d, row, d, &s, err) : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* An entry that says nothing about devices means all devices. */
static void finish_block(struct sl_draft_block *block)
{
    struct sl_config_shared *s = block->shared.item;
    for (size_t i = 0; i < block->shared.count; i++)
        s[i].all_devices = s[i].device_count == 0 && s[i].devices_count == 0;
}

/* The draft's values move to the configuration's own fields. */
static int finish(struct sl_draft *d, struct sl_err *err)
{
    int rc = finish_texts(d, err);
    if (rc == 0)
        rc = finish_xids(d, err);
    if (rc < 0)
        return rc;
    struct sl_draft_block *block = NULL;
    d->c.sharing = d->c.fractional.enabled ? SL_SHARING_FRACTIONAL : SL_SHARING_NONE;
    if (d->time_slicing.shared.count > 0) {
        d->c.sharing = SL_SHARING_TIME_SLICING;
        block = &d->time_slicing;
    } else if (d->mps.shared.count > 0) {
        d->c.sharing = SL_SHARING_MPS;
        block = &d->mps;
    }
    if (block) {
        finish_block(block);
        d->c.rename_by_default = block->rename_by_default;
        d->c.fail_requests_greater_than_one = block->fail_requests_greater_than_one;
        d->c.shared = block->shared.item;
        d->c.shared_count = block->shared.count;
    }
    return 0;
}

static int fill(struct sl_draft *d, const char *text, size_t size, char *const *environ_list,
                const struct sl_config_override *flags, size_t flags_count, struct sl_err *err)
{
    int rc = sl_layer_defaults(d, err);
    if (rc == 0 && text && size > MAX_FILE_BYTES)
        rc = sl_err_set(err, -EFBIG, SL_E_CONFIG_LARGE, d->file);
    if (rc == 0 && text)
        rc = sl_yaml_read(d, text, size, err);
    if (rc == 0)
        rc = sl_layer_environment(d, environ_list, err);
    if (rc == 0)
        rc = sl_layer_flags(d, flags, flags_count, err);
    if (rc == 0)
        rc = sl_draft_check(d, err);
    if (rc == 0)
        rc = finish(d, err);
    if (rc == 0 && text) {
        free(d->c.config_file);
        d->c.config_file = sl_xstrdup(d->file);
    }
    return rc;
}

int sl_config_parse(const char *file, const char *text, size_t size, char *const *environ_list,
                    const struct sl_config_override *flags, size_t flags_count,
                    struct sl_config **ret, struct sl_err *err)
{
    struct sl_draft *d = sl_xcalloc(1, sizeof(*d));
    d->file = file ? file : "";
    int rc = fill(d, text, size, environ_list, flags, flags_count, err);
    if (rc < 0) {
        draft_clear(d);
    } else {
        *ret = sl_xmalloc(sizeof(**ret));
        **ret = d->c;
    }
    free(d);
    return rc;
}

int sl_config_load(const char *config_file, char *const *environ_list,
                   const struct sl_config_override *flags, size_t flags_count,
                   struct sl_config **ret, struct sl_err *err)
{
    SL_CLEANUP(free) char *text = NULL;
    size_t size = 0;
    bool given = config_file && config_file[0];
    int rc = given ? sl_fs_read(AT_FDCWD, config_file, MAX_FILE_BYTES, &text, &size, err) : 0;
    if (rc < 0)
        return rc;
    return sl_config_parse(config_file, text, size, environ_list, flags, flags_count, ret, err);
}

/* --- sharing.fractional.allow: who may ask for what --- */

/* yaml.c tells the two kinds of entries apart by their size. */
_Static_assert(sizeof(struct sl_config_allow_space) != sizeof(struct sl_config_shared),
               "see walk_items");
_Static_assert(sizeof(struct sl_config_vgpu) != sizeof(struct sl_config_shared), "see walk_items");

#define MORE(field)                                                                                \
    do {                                                                                           \
        if (more->field > allow->field)                                                            \
            allow->field = more->field;                                                            \
    } while (0)

void sl_config_allow_add(struct sl_config_allow *allow, const struct sl_config_allow *more)
{
    /* resize_to counts with `free` only: the figure of an entry that does not allow `free` is ignored. */
    bool free_before = allow->resize == SL_ALLOW_FREE, free_now = more->resize == SL_ALLOW_FREE;
    unsigned to = more->resize_to ? more->resize_to : 100;
    if (free_now && (!free_before || to > allow->resize_to))
        allow->resize_to = to;
    allow->strategies |= more->strategies;
    MORE(priority);
    MORE(burst);
    MORE(resize);
}

struct sl_config_allow sl_config_allowed(const struct sl_config *config, const char *name_space)
{
    struct sl_config_allow allow = SL_CONFIG_ALLOW_DEFAULT;
    if (!config)
        return allow;
    const struct sl_config_fractional *f = &config->fractional;
    allow = f->allow;
    const struct sl_config_allow_space *space = f->allow_spaces.item;
    for (size_t i = 0; i < f->allow_spaces.count; i++)
        if (sl_config_match(space[i].name, name_space))
            sl_config_allow_add(&allow, &space[i].allow);
    return allow;
}
