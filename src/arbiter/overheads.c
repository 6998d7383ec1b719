/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overhead across a restart. The cost of a process's contexts is measured when they are made. The next arbiter does not
 * know this cost before it has measured again, and a tenant at its limit could take too much meanwhile. So the cost is
 * saved for each process, and a process that returns has it from the start. A process is known by its PID and its start
 * time.
 */
#include "arbiter/arbiter_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/log.h"
#include "base/xalloc.h"

/* A line has a PID, a start time, and a number of up to 20 digits for each GPU. */
#define FILE_MAX_BYTES (SL_MAX_SLOTS * (48 + 21 * (size_t)SL_MAX_GPUS))

struct overhead_before {
    struct overhead_before *next;
    pid_t pid;
    uint64_t start;
    uint64_t bytes[SL_MAX_GPUS];
};

static void file_name(const struct tenant *t, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%s.overhead", t->name);
}

void sl_arb_overheads_save(struct arbiter *a, struct tenant *t)
{
    struct sl_err err = SL_ERR_INIT;
    char file[SL_NAME_MAX + 16];
    SL_CLEANUP(free) char *text = NULL;
    size_t size = 0;
    if (!t->overheads_new || t->recover_until_ns)
        return; /* processes that are about to return would be missing */
    t->overheads_new = false;
    FILE *f = sl_xmemstream(&text, &size);
    for (struct member *m = t->members; m; m = m->next) {
        if (m->whole)
            continue; /* the figure has its memory in it, too */
        if (m->start == 0)
            m->start = sl_arb_process_start(m->pid);
        (void)fprintf(f, "%d %" PRIu64, m->pid, m->start);
        for (uint32_t i = 0; i < t->gpu_count; i++)
            (void)fprintf(f, " %" PRIu64, m->overhead_bytes[i]);
        (void)fputc('\n', f);
    }
    sl_xmemstream_close(f);
    file_name(t, file, sizeof(file));
    /* Without this file the next arbiter measures, as it does anyway. */
    if (sl_fs_replace(a->tenants_fd, file, text, size, 0600, &err) < 0)
        sl_debug("tenant %s: its overhead cannot be saved: %s", t->name, err.msg);
}

static struct overhead_before *parse(const char *line, uint32_t gpu_count)
{
    struct overhead_before b = {0};
    int at = 0;
    if (sscanf(line, "%d %" SCNu64 "%n", &b.pid, &b.start, &at) != 2)
        return NULL;
    for (uint32_t i = 0; i < gpu_count; i++) {
        int used = 0;
        if (sscanf(line + at, " %" SCNu64 "%n", &b.bytes[i], &used) != 1)
            return NULL;
        at += used;
    }
    struct overhead_before *ret = sl_xmalloc(sizeof(*ret));
    *ret = b;
    return ret;
}

void sl_arb_overheads_load(struct arbiter *a, struct tenant *t)
{
    char file[SL_NAME_MAX + 16], *save = NULL;
    SL_CLEANUP(free) char *text = NULL;
    file_name(t, file, sizeof(file));
    if (sl_fs_read(a->tenants_fd, file, FILE_MAX_BYTES, &text, NULL, NULL) < 0)
        return;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        struct overhead_before *b = parse(line, t->gpu_count);
        if (!b)
            continue;
        b->next = t->overheads_before;
        t->overheads_before = b;
    }
}

void sl_arb_overheads_back(struct tenant *t, struct member *m)
{
    for (const struct overhead_before *b = t->overheads_before; b; b = b->next) {
        if (b->pid != m->pid || b->start != sl_arb_process_start(m->pid))
            continue;
        memcpy(m->overhead_bytes, b->bytes, sizeof(m->overhead_bytes));
        memcpy(m->reading_bytes, b->bytes, sizeof(m->reading_bytes));
        sl_arb_tenant_overhead(t);
        return;
    }
}

void sl_arb_overheads_forget(struct tenant *t)
{
    while (t->overheads_before) {
        struct overhead_before *b = t->overheads_before;
        t->overheads_before = b->next;
        free(b);
    }
}

void sl_arb_overheads_remove(struct arbiter *a, const struct tenant *t)
{
    char file[SL_NAME_MAX + 16];
    file_name(t, file, sizeof(file));
    (void)unlinkat(a->tenants_fd, file, 0);
}
