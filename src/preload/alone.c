/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two locks, both of flock(), which ask for no right to write and end with the process.
 *
 * The directory: every process of the tenant holds it shared. Whoever gets it exclusively is the only process.
 * The lease file: exclusively held by the process that starts alone, until it has found an arbiter. It keeps two
 * processes that start at the same moment apart, while the first turns its exclusive lock into a shared one.
 */
#include "preload/alone.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "preload/charge.h"
#include "preload/watch.h"
#include "sluice/attach.h"

static struct sl_own_fd here = SL_OWN_FD_INIT;  /* the directory */
static struct sl_own_fd alone = SL_OWN_FD_INIT; /* the lease file */
static bool stays;                              /* the lock of the directory is ours */
static uint64_t put_by_units[SL_MAX_GPUS];

/* A directory of one tenant, or -1. Directories of several tenants have sockets of other names. */
static int open_directory(const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash || strcmp(slash + 1, SL_ATTACH_FILE) != 0 ||
        (size_t)snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path) >= sizeof(dir))
        return -1;
    return open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* A program may have closed our descriptor, and with it the lock. */
static bool has_directory(const char *path)
{
    if (sl_own_fd_valid(&here))
        return true;
    stays = false;
    here = sl_own_fd_take(open_directory(path));
    return here.fd >= 0;
}

void sl_alone_stay(const char *path)
{
    int saved = errno;
    if (has_directory(path) && !stays)
        stays = flock(here.fd, LOCK_SH | LOCK_NB) == 0;
    errno = saved;
}

void sl_alone_leave(void)
{
    int saved = errno;
    if (stays && sl_own_fd_valid(&here))
        (void)flock(here.fd, LOCK_UN);
    stays = false;
    errno = saved;
}

void sl_alone_told(struct sl_process *p)
{
    atomic_store(&sl_process_slot(p)->stays, stays && sl_own_fd_valid(&here));
}

void sl_alone_keep(struct sl_process *p, const char *path)
{
    sl_lock_take(&sl_attach_lock);
    if (stays && !sl_own_fd_valid(&here)) {
        sl_alone_stay(path);
        sl_alone_told(p);
    }
    sl_lock_drop(&sl_attach_lock);
}

static int no(int rc, const char *why)
{
    sl_debug("no start without an arbiter: %s", why);
    return rc;
}

/* The file was not replaced or removed before it was locked. */
static bool is_current(int dir, int fd)
{
    struct stat ours, now;
    SL_CLEANUP(close) int again = openat(dir, SL_LEASE_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return again >= 0 && fstat(fd, &ours) == 0 && fstat(again, &now) == 0 &&
           S_ISREG(ours.st_mode) && ours.st_ino == now.st_ino && ours.st_dev == now.st_dev;
}

/* This process holds none of them yet. */
static int take_locks(int file)
{
    if (flock(file, LOCK_EX | LOCK_NB) != 0 || !is_current(here.fd, file))
        return no(-EBUSY, "another process of the tenant starts alone");
    if (flock(here.fd, LOCK_EX | LOCK_NB) != 0)
        return no(-EBUSY, "the tenant has other processes");
    stays = flock(here.fd, LOCK_SH | LOCK_NB) == 0;
    return stays ? 0 : no(-EBUSY, "the lock of the tenant is not ours");
}

static int check(const struct sl_lease_page *page)
{
    if (page->magic != SL_LEASE_MAGIC || page->version != SL_PAGE_VERSION ||
        page->size_bytes != sizeof(*page) || page->gpu_count == 0 || page->gpu_count > SL_MAX_GPUS)
        return no(-EPROTO, "the file \"" SL_LEASE_FILE "\" is of another build");
    for (uint32_t i = 0; i < page->gpu_count; i++)
        if (page->gpu[i].memory_limit_bytes == SL_NO_LIMIT ||
            page->gpu[i].memory_limit_bytes <= page->gpu[i].overhead_bytes)
            return no(-ENOSPC, "the limit has no room for a context");
    return 0;
}

/* A copy of our own: a file could become shorter. */
static int copy_page(int file, struct sl_lease_page **ret)
{
    struct sl_lease_page *page =
        mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return no(-errno, "cannot copy the lease");
    ssize_t got = pread(file, page, sizeof(*page), 0);
    int rc = got == (ssize_t)sizeof(*page)
                 ? check(page)
                 : no(-EPROTO, "the file \"" SL_LEASE_FILE "\" is too short");
    for (uint32_t i = 0; i < SL_MAX_GPUS && rc == 0; i++) {
        put_by_units[i] = i < page->gpu_count ? page->gpu[i].overhead_bytes / SL_UNIT_BYTES : 0;
        page->gpu[i].overhead_bytes = 0; /* charged instead: see sl_alone_put_by */
    }
    if (rc == 0 && mprotect(page, sizeof(*page), PROT_READ) != 0)
        rc = no(-errno, "cannot protect the lease");
    if (rc < 0) {
        (void)munmap(page, sizeof(*page));
        return rc;
    }
    *ret = page;
    return 0;
}

int sl_alone_start(const char *path, struct sl_link *ret)
{
    struct sl_link link = {-1, -1, SL_LEASE_MAP_INIT, SL_LEDGER_MAP_INIT, 0, 0, SL_PROTOCOL};
    if (!has_directory(path))
        return no(-ENOENT, "the tenant has no directory");
    SL_CLEANUP(close)
    int file = openat(here.fd, SL_LEASE_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return no(-errno, "the arbiter left no lease");
    int rc = take_locks(file);
    if (rc == 0)
        rc = copy_page(file, &link.lease.page);
    if (rc == 0)
        rc = sl_ledger_create(link.lease.page->cookie, link.lease.page->gpu_count, &link.ledger,
                              NULL);
    if (rc < 0) {
        sl_link_close(&link);
        sl_alone_leave();
        memset(put_by_units, 0, sizeof(put_by_units));
        return rc;
    }
    alone = sl_own_fd_take(sl_take_fd(file));
    *ret = link;
    return 0;
}

void sl_alone_put_by(struct sl_process *p)
{
    for (int gpu = 0; gpu < SL_MAX_GPUS; gpu++)
        if (put_by_units[gpu] && !sl_charge_estimate(p, gpu, put_by_units[gpu]))
            put_by_units[gpu] = 0; /* cannot be: the ledger is empty, and check() saw to the room */
}

void sl_alone_over(struct sl_process *p)
{
    for (uint32_t gpu = 0; gpu < SL_MAX_GPUS; gpu++) {
        uint64_t units = put_by_units[gpu];
        put_by_units[gpu] = 0;
        if (units)
            (void)sl_process_measure(p, gpu, false, units);
    }
    sl_own_fd_close(&alone);
}

void sl_alone_forget(void)
{
    sl_own_fd_close(&here);
    sl_own_fd_close(&alone);
    stays = false;
    memset(put_by_units, 0, sizeof(put_by_units));
}
