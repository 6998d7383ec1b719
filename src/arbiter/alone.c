/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lease of a kept tenant as a file, for a process that starts while no arbiter is there (SL_LEASE_FILE). It exists
 * only while such a start is safe. Whatever could end that removes the file at once; it is written again, when all is
 * well, after the next measurement. So an arbiter that dies at any moment leaves a file that is true, or none.
 */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/hash.h"
#include "base/log.h"

/* A context costs at least this much in the file: 120 to 600 MiB were seen. */
#define CONTEXT_BYTES (640ULL << 20)

void sl_arb_alone_close(struct arbiter *a, struct tenant *t)
{
    char path[SL_NAME_MAX + sizeof(SL_LEASE_FILE) + 2];
    if (!t->alone.there)
        return;
    (void)snprintf(path, sizeof(path), "%s/" SL_LEASE_FILE, t->name);
    if (unlinkat(sl_arb_kept_dir(a, t), path, 0) != 0 && errno != ENOENT)
        sl_warn("tenant %s: its file \"" SL_LEASE_FILE "\" cannot be removed: %s", t->name,
                strerror(errno));
    t->alone.there = false;
}

/* What the dearest process so far had as overhead; a process on another GPU of the tenant may cost as much there. */
static uint64_t context_bytes(const struct tenant *t)
{
    uint64_t most = CONTEXT_BYTES;
    for (uint32_t i = 0; i < t->gpu_count; i++)
        if (t->alone.most_bytes[i] > most)
            most = t->alone.most_bytes[i];
    return most;
}

/* Memory that is not in the ledger, a process that is not behind the lock, or a limit that depends on others. */
static bool is_safe(const struct tenant *t)
{
    if (!t->kept || t->recover_until_ns || t->doubt || t->terms.paused || !t->ledger.page)
        return false;
    for (uint32_t i = 0; i < t->gpu_count; i++)
        if (t->terms.memory_bytes[i] == SL_NO_LIMIT || t->unattached_bytes[i] ||
            t->unexplained_bytes[i])
            return false;
    for (const struct member *m = t->members; m; m = m->next)
        if (!atomic_load(&t->ledger.page->slot[m->slot].stays))
            return false;
    return true;
}

static void fill(const struct tenant *t, struct sl_lease_page *ret)
{
    struct sl_lease_page *from = t->lease.page;
    memset(ret, 0, sizeof(*ret));
    ret->magic = from->magic;
    ret->version = from->version;
    ret->size_bytes = from->size_bytes;
    memcpy(ret->cookie, from->cookie, sizeof(ret->cookie));
    memcpy(ret->name, from->name, sizeof(ret->name));
    ret->gpu_count = from->gpu_count;
    ret->gate = SL_GATE_WORD(0, SL_GATE_FREE);
    ret->priority = atomic_load(&from->priority);
    ret->cores_request_permille = atomic_load(&from->cores_request_permille);
    ret->cores_limit_permille = atomic_load(&from->cores_limit_permille);
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        memcpy(ret->gpu[i].uuid, from->gpu[i].uuid, sizeof(ret->gpu[i].uuid));
        ret->gpu[i].card_bytes = from->gpu[i].card_bytes;
        ret->gpu[i].memory_limit_bytes = atomic_load(&from->gpu[i].memory_limit_bytes);
        ret->gpu[i].overhead_bytes = context_bytes(t);
    }
}

static int put(struct arbiter *a, const struct tenant *t, const struct sl_lease_page *page,
               struct sl_err *err)
{
    SL_CLEANUP(close)
    int dir =
        openat(sl_arb_kept_dir(a, t), t->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return sl_err_errno(err, errno, "cannot open its directory");
    /* The directory is ours. If somebody can write there all the same, their link must not be followed. */
    (void)unlinkat(dir, SL_LEASE_FILE SL_FS_HALF, 0);
    int rc = sl_fs_replace(dir, SL_LEASE_FILE, page, sizeof(*page), 0444, err);
    /* With any umask of ours: every user of the container may read it. */
    if (rc == 0 && fchmodat(dir, SL_LEASE_FILE, 0444, 0) != 0)
        rc = sl_err_errno(err, errno, "cannot open it to the container");
    return rc;
}

void sl_arb_alone_look(struct arbiter *a, struct tenant *t)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_lease_page page;
    for (const struct member *m = t->members; m; m = m->next)
        for (uint32_t i = 0; i < t->gpu_count; i++)
            if (!(m->whole >> i & 1) && m->overhead_bytes[i] > t->alone.most_bytes[i])
                t->alone.most_bytes[i] = m->overhead_bytes[i];
    if (!is_safe(t)) {
        sl_arb_alone_close(a, t);
        return;
    }
    fill(t, &page);
    uint64_t hash = sl_hash_bytes(SL_HASH_START, &page, sizeof(page));
    if (t->alone.there && t->alone.hash == hash)
        return;
    /* After the hash: slices change often, and an old one does no harm. */
    page.slice_us = atomic_load(&t->lease.page->slice_us);
    t->alone.there = true;
    t->alone.hash = hash;
    if (put(a, t, &page, &err) < 0) {
        sl_debug("tenant %s: no process can start without an arbiter: %s", t->name, err.msg);
        sl_arb_alone_close(a, t);
    }
}
