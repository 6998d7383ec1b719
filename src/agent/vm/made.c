/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/vm/made.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/vm/errors.h"
#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/log.h"
#include "base/xalloc.h"

#define FILE_NAME "vgpu-made"
#define FILE_MAX  (1 << 20)

static void push(struct sl_vgpu_made *made, const char *id, unsigned type)
{
    made->id = sl_xreallocarray(made->id, made->count + 1, sizeof(*made->id));
    made->type = sl_xreallocarray(made->type, made->count + 1, sizeof(*made->type));
    made->type[made->count] = type;
    (void)snprintf(made->id[made->count++], sizeof(*made->id), "%s", id);
}

static size_t find(const struct sl_vgpu_made *made, const char *id)
{
    size_t i = 0;
    while (i < made->count && strcmp(made->id[i], id) != 0)
        i++;
    return i;
}

static void read_boot(char *ret, size_t size)
{
    SL_CLEANUP(free) char *text = NULL;
    ret[0] = '\0';
    if (sl_fs_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", size, &text, NULL, NULL) == 0)
        (void)snprintf(ret, size, "%.*s", (int)strcspn(text, "\n"), text);
}

void sl_vgpu_made_open(const char *state_dir, struct sl_vgpu_made *ret)
{
    SL_CLEANUP(free) char *text = NULL;
    char *save = NULL;
    *ret = (struct sl_vgpu_made){0};
    (void)snprintf(ret->dir, sizeof(ret->dir), "%s", state_dir);
    (void)snprintf(ret->file, sizeof(ret->file), "%s/" FILE_NAME, state_dir);
    read_boot(ret->boot, sizeof(ret->boot));
    if (sl_fs_read(AT_FDCWD, ret->file, FILE_MAX, &text, NULL, NULL) < 0)
        return;
    char *line = strtok_r(text, "\n", &save);
    if (!line || strcmp(line, ret->boot) != 0)
        return;
    while ((line = strtok_r(NULL, "\n", &save))) {
        char *blank = strchr(line, ' ');
        unsigned long type = blank ? strtoul(blank, NULL, 10) : 0;
        if (blank)
            *blank = '\0';
        if ((sl_mdev_uuid_valid(line) || sl_pci_address_valid(line)) &&
            find(ret, line) == ret->count)
            push(ret, line, type <= UINT32_MAX ? (unsigned)type : 0);
    }
}

void sl_vgpu_made_clear(struct sl_vgpu_made *made)
{
    free(made->id);
    free(made->type);
    *made = (struct sl_vgpu_made){0};
}

static int save(const struct sl_vgpu_made *made, struct sl_err *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = sl_xmemstream(&text, &size);
    (void)fprintf(out, "%s\n", made->boot);
    for (size_t i = 0; i < made->count; i++)
        (void)fprintf(out, "%s %u\n", made->id[i], made->type[i]);
    sl_xmemstream_close(out);
    int rc = sl_fs_mkdirs(made->dir, 0755, err);
    if (rc == 0)
        rc = sl_fs_replace(AT_FDCWD, made->file, text, size, 0644, err);
    free(text);
    return rc;
}

int sl_vgpu_made_add(struct sl_vgpu_made *made, const char *id, unsigned type, struct sl_err *err)
{
    size_t at = find(made, id);
    if (at < made->count && made->type[at] == type)
        return 0;
    if (at < made->count) { /* a list that says too little does no harm */
        made->type[at] = type;
        return save(made, err);
    }
    push(made, id, type);
    int rc = save(made, err);
    if (rc < 0)
        made->count--;
    return rc;
}

static void forget(struct sl_vgpu_made *made, size_t at)
{
    memmove(made->id[at], made->id[at + 1], (made->count - at - 1) * sizeof(*made->id));
    memmove(&made->type[at], &made->type[at + 1], (made->count - at - 1) * sizeof(*made->type));
    made->count--;
}

/* A list that is too long does no harm: its vGPUs are not there. */
static void save_or_warn(const struct sl_vgpu_made *made)
{
    struct sl_err err = SL_ERR_INIT;
    if (save(made, &err) < 0)
        sl_warn(SL_E_VGPU_STALE_LOG, err.msg);
}

void sl_vgpu_made_drop(struct sl_vgpu_made *made, const char *id)
{
    size_t at = find(made, id);
    if (at == made->count)
        return;
    forget(made, at);
    save_or_warn(made);
}

static bool is_there(const struct sl_vm_tree *tree, const char *id, unsigned type)
{
    const struct sl_vm_function *f = sl_vm_tree_function(tree, id);
    bool there = f && f->vgpu_type && (!type || f->vgpu_type == type);
    for (size_t i = 0; i < tree->mdev_count; i++)
        there |= strcmp(tree->mdev[i].uuid, id) == 0;
    return there;
}

void sl_vgpu_made_prune(struct sl_vgpu_made *made, const struct sl_vm_tree *tree)
{
    size_t before = made->count;
    for (size_t i = 0; i < made->count;)
        if (is_there(tree, made->id[i], made->type[i]))
            i++;
        else
            forget(made, i);
    if (made->count != before)
        save_or_warn(made);
}
