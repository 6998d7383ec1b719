/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/quantity.h"
#include "preload/alloc.h"
#include "preload/alone.h"
#include "preload/capture.h"
#include "preload/channels.h"
#include "preload/charge.h"
#include "preload/errors.h"
#include "preload/gate.h"
#include "preload/graph_mem.h"
#include "preload/pool.h"
#include "preload/share.h"
#include "preload/watch.h"
#include "shm/find.h"
#include "shm/packet.h"

#define WELCOME_MS  10000
/* The socket exists and no process answers: the arbiter is being replaced, for example by an upgrade. SLUICE_ATTACH_WAIT
 * says another number of seconds. */
#define AWAY_S      30
#define AWAY_MAX_S  3600
#define AWAY_ENV    "SLUICE_ATTACH_WAIT"
/* There is no socket: the tenant is over, or its socket is being made again. The same limit holds for a program that
 * was refused and tries again. */
#define GONE_S      1
/* So long a program waits for an arbiter before it starts without, where that is safe: a restart takes a second. */
#define ALONE_NS    (2 * SL_NS_PER_S)
#define STEP_MIN_NS (20 * SL_NS_PER_MS)
#define STEP_MAX_NS (250 * SL_NS_PER_MS)

struct sl_process *_Atomic sl_process_current;

static struct sl_process none = {.mode = SL_MODE_NONE, .doorbell_fd = -1};
static struct sl_process refused = {.mode = SL_MODE_REFUSED, .doorbell_fd = -1};
static struct sl_process tenant;
static bool fork_watched;
static bool logs; /* the user asked for a log: lines go there and not to stderr */

/* Silent unless asked: this is another program's process. */
static void open_log(void)
{
    static bool opened;
    const char *level = secure_getenv("SLUICE_LOG"), *file = secure_getenv("SLUICE_LOG_FILE");
    if (opened || !level)
        return;
    opened = true;
    logs = true;
    enum sl_log_level at = sl_log_level_parse(level, SL_LOG_INFO);
    if (file)
        sl_log_open_file(
            at, sl_own_fd_take(open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)).fd,
            file);
    else
        sl_log_open(at, STDERR_FILENO);
}

/*
 * The socket of this tenant's arbiter; NULL where there is none. A socket that the agent mounted into the container
 * counts before the environment: a program could rewrite its environment.
 */
static const char *find_socket(void)
{
    enum sl_attach_found found = sl_attach_find();
    if (found == SL_ATTACH_MOUNTED || found == SL_ATTACH_HIDDEN || found == SL_ATTACH_GONE)
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

/* The parent's allocations belong to the parent. */
static void forget_all(void)
{
    sl_charge_forget();
    sl_track_forget();
    sl_device_forget();
    sl_context_forget();
    sl_pool_forget();
    sl_vmm_forget();
    sl_share_forget();
    sl_graph_mem_forget();
    sl_channels_forget();
    sl_capture_forget();
    sl_gate_forget();
}

/* The child is a process of its own: it attaches at its first call. It must close its copies of the parent's
 * descriptors, or the parent's membership would outlive the parent. */
static void after_fork_child(void)
{
    int saved = errno;
    struct sl_process *p = atomic_load(&sl_process_current);
    if (p == &tenant)
        sl_watch_forget(p);
    sl_alone_forget();
    atomic_store(&sl_process_current, NULL);
    forget_all();
    sl_lock_reset(&sl_attach_lock);
    errno = saved;
}

/* One line on stderr, for a person who waits or whose program fails. SLUICE_LOG takes it away, off too. */
static void say(const char *fmt, ...) SL_PRINTF(1, 2);

static void say(const char *fmt, ...)
{
    char line[512] = "sluice: ";
    size_t used = strlen(line), room = sizeof(line) - used - 1;
    va_list args;
    if (logs)
        return;
    va_start(args, fmt);
    int n = vsnprintf(line + used, room, fmt, args);
    va_end(args);
    if (n < 0)
        return;
    used += (size_t)n < room ? (size_t)n : room - 1;
    line[used++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, used);
    (void)written;
}

/* The attempts of one caller. */
struct patience {
    uint64_t since_ns, step_ns;
    bool again; /* it was refused before */
    bool said, shown;
};

/* How long a program waits for an arbiter that is away. A text that is no number is not obeyed. */
static unsigned int away_s(void)
{
    const char *text = secure_getenv(AWAY_ENV);
    uint64_t seconds = 0;
    const char *end = text ? sl_number_read(text, AWAY_MAX_S, &seconds) : NULL;
    if (end && !*end)
        return (unsigned int)seconds;
    if (text)
        sl_warn(SL_E_ATTACH_WAIT_LOG, AWAY_ENV, text, AWAY_MAX_S, AWAY_S);
    return AWAY_S;
}

/* How long to wait after this failure: seconds, 0 where waiting does not help. */
static unsigned int worth_s(int rc, bool again)
{
    switch (rc) {
    case -ENOENT:
        return GONE_S;
    case -ECONNREFUSED:
    case -ECONNRESET:
    case -EPIPE:
    case -EAGAIN:
    case -ETIMEDOUT:
        return again ? GONE_S : away_s();
    default:
        return 0;
    }
}

static bool try_later(struct patience *t, int rc, const struct sl_err *err)
{
    unsigned int seconds = worth_s(rc, t->again);
    uint64_t waited_ns = sl_now_ns() - t->since_ns;
    if (waited_ns >= seconds * SL_NS_PER_S)
        return false;
    if (!t->said && seconds > GONE_S)
        sl_warn(SL_E_ATTACH_AWAY_LOG, err->msg, seconds, AWAY_ENV);
    t->said = true;
    /* An ordinary restart takes less than a second, and nobody needs to hear of it. */
    if (!t->shown && seconds > GONE_S && waited_ns >= SL_NS_PER_S) {
        say(SL_E_ATTACH_AWAY_LOG, err->msg, seconds, AWAY_ENV);
        t->shown = true;
    }
    return true;
}

/* The socket is there, and no arbiter: has this process the tenant for itself? */
static bool start_alone(const struct patience *t, const char *path, struct sl_link *ret)
{
    uint64_t waited_ns = sl_now_ns() - t->since_ns;
    if (waited_ns < ALONE_NS && waited_ns < away_s() * SL_NS_PER_S)
        return false;
    if (sl_alone_start(path, ret) < 0)
        return false;
    sl_warn(SL_E_ALONE_LOG, ret->lease.page->name);
    say(SL_E_ALONE_LOG, ret->lease.page->name);
    return true;
}

/* One attempt. NULL: try again in a moment. */
static struct sl_process *attach_now(struct patience *tries)
{
    struct sl_link link;
    struct sl_err err = SL_ERR_INIT;
    open_log();
    const char *path = find_socket();
    if (!path)
        return &none;
    if (!fork_watched)
        fork_watched = pthread_atfork(before_fork, after_fork_parent, after_fork_child) == 0;
    sl_alone_stay(path);
    int rc = sl_link_open(path, SL_NO_SLOT, -1, WELCOME_MS, &link, &err);
    if (rc < 0)
        sl_alone_leave();
    if (rc == -ECONNREFUSED && start_alone(tries, path, &link))
        rc = 0;
    if (rc < 0 && try_later(tries, rc, &err))
        return NULL;
    if (rc < 0) {
        static bool shown;
        sl_error(SL_E_NOT_ATTACHED_LOG, err.msg);
        if (!shown)
            say(SL_E_NOT_ATTACHED_LOG, err.msg);
        shown = true;
        return &refused;
    }
    tenant.mode = SL_MODE_TENANT;
    atomic_store(&tenant.lease, link.lease.page);
    atomic_store(&tenant.ledger, link.ledger.page);
    atomic_store(&tenant.slot, link.slot);
    tenant.host_pid = link.host_pid;
    atomic_store(&sl_process_slot(&tenant)->pid, (uint32_t)getpid());
    sl_alone_put_by(&tenant);
    sl_watch_start(&tenant, path, &link);
    if (link.sock >= 0)
        sl_info("attached to %s as slot %u, protocol %u", path, link.slot, link.protocol);
    return &tenant;
}

static struct sl_process *attach_locked(const struct sl_process *unless)
{
    int saved = errno;
    struct patience tries = {.since_ns = sl_now_ns(), .step_ns = STEP_MIN_NS, .again = unless};
    struct sl_process *p;
    sl_lock_take(&sl_attach_lock);
    while (!(p = atomic_load(&sl_process_current)) || p == unless) {
        p = attach_now(&tries);
        if (p) {
            atomic_store_explicit(&sl_process_current, p, memory_order_release);
            break;
        }
        /* Another thread may fork meanwhile, or attach. */
        sl_lock_drop(&sl_attach_lock);
        sl_sleep_ns(tries.step_ns);
        tries.step_ns = tries.step_ns * 2 < STEP_MAX_NS ? tries.step_ns * 2 : STEP_MAX_NS;
        sl_lock_take(&sl_attach_lock);
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
    struct sl_process *p = atomic_load_explicit(&sl_process_current, memory_order_acquire);
    if (!p)
        return sl_process_attach();
    return p->mode == SL_MODE_REFUSED ? attach_locked(&refused) : p;
}
