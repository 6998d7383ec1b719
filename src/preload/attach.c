/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "preload/child.h"
#include "preload/watch.h"
#include "shm/find.h"
#include "shm/packet.h"

#define WELCOME_MS    10000
#define FIRST_TRY_NS  SL_NS_PER_S /* an arbiter that is just restarting gets this long */
#define FIRST_STEP_NS (20 * SL_NS_PER_MS)

struct sl_process *_Atomic sl_process_current;

static struct sl_process none = {.mode = SL_MODE_NONE, .doorbell_fd = -1};
static struct sl_process refused = {.mode = SL_MODE_REFUSED, .doorbell_fd = -1};
static struct sl_process tenant;
static bool fork_watched;

/* Silent unless asked: this is someone else's process. */
static void open_log(void)
{
    static bool opened;
    const char *level = secure_getenv("SLUICE_LOG"), *file = secure_getenv("SLUICE_LOG_FILE");
    if (opened || !level)
        return;
    opened = true;
    enum sl_log_level at = sl_log_level_parse(level, SL_LOG_INFO);
    if (file)
        sl_log_open_file(
            at, sl_own_fd_take(open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)).fd, file);
    else
        sl_log_open(at, STDERR_FILENO);
}

/*
 * Where this tenant's arbiter is; NULL where there is none. What the agent mounted into the container
 * comes before what the environment says: a program could rewrite its environment.
 */
static const char *find_socket(void)
{
    enum sl_attach_found found = sl_attach_find();
    if (found == SL_ATTACH_MOUNTED || found == SL_ATTACH_HIDDEN)
        return SL_ATTACH_DEFAULT;
    const char *path = secure_getenv(SL_ATTACH_ENV);
    return path && path[0] ? path : NULL;
}

static void before_fork(void)
{
    sl_lock_take(&sl_attach_lock);
}

static void after_fork_parent(void)
{
    sl_lock_drop(&sl_attach_lock);
}

/* The child is a process of its own: it attaches at its first call. Its copies of the parent's
 * descriptors must go, or the parent's membership would outlive the parent. */
static void after_fork_child(void)
{
    int saved = errno;
    struct sl_process *p = atomic_load(&sl_process_current);
    if (p == &tenant)
        sl_watch_forget(p);
    atomic_store(&sl_process_current, NULL);
    sl_child_forget();
    sl_lock_reset(&sl_attach_lock);
    errno = saved;
}

static bool is_transient(int rc)
{
    return rc == -ECONNREFUSED || rc == -ENOENT || rc == -ECONNRESET || rc == -EAGAIN;
}

static int open_first(const char *path, struct sl_link *link, struct sl_err *err)
{
    uint64_t end_ns = sl_now_ns() + FIRST_TRY_NS;
    int rc;
    while ((rc = sl_link_open(path, SL_NO_SLOT, -1, WELCOME_MS, link, err)) < 0)
        if (!is_transient(rc) || sl_now_ns() >= end_ns)
            return rc;
        else
            sl_sleep_ns(FIRST_STEP_NS);
    return 0;
}

static struct sl_process *attach_now(void)
{
    struct sl_link link;
    struct sl_err err = SL_ERR_INIT;
    open_log();
    const char *path = find_socket();
    if (!path)
        return &none;
    if (!fork_watched)
        fork_watched = pthread_atfork(before_fork, after_fork_parent, after_fork_child) == 0;
    if (open_first(path, &link, &err) < 0) {
        sl_error("not attached: %s", err.msg);
        return &refused;
    }
    tenant.mode = SL_MODE_TENANT;
    atomic_store(&tenant.lease, link.lease.page);
    atomic_store(&tenant.ledger, link.ledger.page);
    atomic_store(&tenant.slot, link.slot);
    tenant.host_pid = link.host_pid;
    atomic_store(&sl_process_slot(&tenant)->pid, (uint32_t)getpid());
    sl_watch_start(&tenant, path, &link);
    sl_info("attached to %s as slot %u", path, link.slot);
    return &tenant;
}

static struct sl_process *attach_locked(const struct sl_process *unless)
{
    int saved = errno;
    sl_lock_take(&sl_attach_lock);
    struct sl_process *p = atomic_load(&sl_process_current);
    if (!p || p == unless) {
        p = attach_now();
        atomic_store_explicit(&sl_process_current, p, memory_order_release);
    }
    sl_lock_drop(&sl_attach_lock);
    errno = saved;
    return p;
}

struct sl_process *sl_process_attach(void)
{
    return attach_locked(NULL);
}

struct sl_process *sl_process_retry(void)
{
    struct sl_process *p = sl_process_get();
    return p->mode == SL_MODE_REFUSED ? attach_locked(&refused) : p;
}
