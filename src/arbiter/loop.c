/* SPDX-License-Identifier: Apache-2.0 */
/* The arbiter's single-threaded loop: the lock of the directory, the wake-ups, the end. */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "arbiter/errors.h"
#include "arbiter/rules.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fsutil.h"
#include "base/log.h"
#include "base/xalloc.h"

/* Later than this after its time the arbiter was not merely waiting for its turn on the processor. */
#define LATE_NS (20 * SL_NS_PER_MS)

#define NEW_SOCKET "new.sock" /* not longer than SL_CONTROL_SOCKET */

int sl_arb_watch(struct arbiter *a, struct source *s, struct sl_err *err)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = s};
    if (epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, s->fd, &e) != 0)
        return sl_err_errno(err, errno, "cannot watch descriptor %d", s->fd);
    return 0;
}

void sl_arb_unwatch(struct arbiter *a, struct source *s)
{
    if (s->fd < 0)
        return;
    (void)epoll_ctl(a->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
    (void)close(s->fd);
    s->fd = -1;
}

static void timer_ready(struct arbiter *a, struct source *s)
{
    (void)a;
    uint64_t count;
    ssize_t ignored = read(s->fd, &count, sizeof(count));
    (void)ignored;
}

/* `passed`: other users pass through to a socket of theirs that they know by name. */
static int open_inside(struct arbiter *a, const char *name, bool passed, int *ret_fd,
                       struct sl_err *err)
{
    mode_t mode = passed ? 0711 : 0700;
    if (mkdirat(a->dir_fd, name, mode) != 0 && errno != EEXIST)
        return sl_err_errno(err, errno, "cannot make %s/%s", a->opt.dir, name);
    *ret_fd = openat(a->dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret_fd < 0)
        return sl_err_errno(err, errno, "cannot open %s/%s", a->opt.dir, name);
    if (passed && fchmod(*ret_fd, mode) != 0) /* whatever the umask is */
        return sl_err_errno(err, errno, "cannot open %s/%s to its users", a->opt.dir, name);
    return 0;
}

/* One arbiter per directory: the lock is held for life and ends with the process. */
static int enter_directory(struct arbiter *a, struct sl_err *err)
{
    int rc = sl_fs_mkdirs(a->opt.dir, 0700, err);
    if (rc < 0)
        return rc;
    a->dir_fd = open(a->opt.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (a->dir_fd < 0)
        return sl_err_errno(err, errno, "cannot open %s", a->opt.dir);
    a->lock_fd = openat(a->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (a->lock_fd < 0)
        return sl_err_errno(err, errno, SL_E_PLACE_WRITE, a->opt.dir);
    if (flock(a->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            return sl_err_set(err, SL_ARBITER_TAKEN, SL_E_ARBITER_SECOND, a->opt.dir);
        return sl_err_errno(err, errno, "cannot lock %s/lock", a->opt.dir);
    }
    if (a->rules && fchmod(a->dir_fd, 0755) != 0)
        return sl_err_errno(err, errno, "cannot open %s to its users", a->opt.dir);
    rc = open_inside(a, "t", a->rules, &a->tenants_fd, err);
    if (rc == 0)
        rc = open_inside(a, "k", false, &a->kept_fd, err);
    return rc < 0 ? rc : open_inside(a, "u", a->rules, &a->users_fd, err);
}

int sl_arb_open_to_group(struct arbiter *a, const char *socket, struct sl_err *err)
{
    gid_t gid = a->rules->gid;
    if (fchownat(a->dir_fd, socket, geteuid(), gid, AT_SYMLINK_NOFOLLOW) != 0 ||
        fchmodat(a->dir_fd, socket, 0660, 0) != 0)
        return sl_err_errno(err, errno, SL_E_SYSTEM_SOCKET_GROUP, a->opt.dir, a->rules->group);
    return 0;
}

/* sl_arbiter_dir_find() knows the system's socket by its group. So there is no moment without it: the new socket takes
 * the place of one that a killed arbiter left when it belongs to the group already. */
static int share_control(struct arbiter *a, struct sl_err *err)
{
    int rc = sl_arb_open_to_group(a, NEW_SOCKET, err);
    if (rc == 0 && renameat(a->dir_fd, NEW_SOCKET, a->dir_fd, SL_CONTROL_SOCKET) != 0)
        rc = sl_err_errno(err, errno, "cannot make the socket in %s", a->opt.dir);
    return rc;
}

/* From a service manager, which also removes it. To listen again makes us the one whom the kernel names to clients. */
static int take_inherited(struct arbiter *a, struct sl_err *err)
{
    if (listen(a->opt.listen_fd, 4096) != 0 || fcntl(a->opt.listen_fd, F_SETFL, O_NONBLOCK) != 0 ||
        fcntl(a->opt.listen_fd, F_SETFD, FD_CLOEXEC) != 0)
        return sl_err_errno(err, errno, "cannot listen on the socket of the service manager");
    a->control = (struct source){.fd = a->opt.listen_fd, .ready = sl_arb_control_ready};
    return sl_arb_watch(a, &a->control, err);
}

static int open_control(struct arbiter *a, struct sl_err *err)
{
    char path[4096];
    if (a->opt.inherited)
        return take_inherited(a, err);
    (void)snprintf(path, sizeof(path), "%s/%s", a->opt.dir,
                   a->rules ? NEW_SOCKET : SL_CONTROL_SOCKET);
    a->control =
        (struct source){.fd = sl_packet_listen(path, 4096, err), .ready = sl_arb_control_ready};
    int rc = a->control.fd < 0 ? a->control.fd : sl_arb_watch(a, &a->control, err);
    return rc == 0 && a->rules ? share_control(a, err) : rc;
}

static int open_plumbing(struct arbiter *a, struct sl_err *err)
{
    a->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (a->epoll_fd < 0)
        return sl_err_errno(err, errno, "cannot create an epoll set");

    a->timer = (struct source){.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
                               .ready = timer_ready};
    if (a->timer.fd < 0)
        return sl_err_errno(err, errno, "cannot create the arbiter's timers");
    int rc = sl_arb_stop_open(a, err);
    if (rc == 0 && a->rules)
        rc = sl_arb_reload_open(a, err);
    return rc < 0 ? rc : sl_arb_watch(a, &a->timer, err);
}

/* Runs everything that is due, and returns the time of the next run. */
static uint64_t run_due(struct arbiter *a)
{
    uint64_t next = UINT64_MAX;
    for (struct tenant *t = a->tenants, *after; t; t = after) {
        after = t->next;
        if (t->recover_until_ns && a->now_ns >= t->recover_until_ns) {
            sl_arb_recovery_end(a, t);
            t->left = true;
        }
        if (t->left && sl_arb_tenant_maybe_end(a, t))
            continue;
        if (t->recover_until_ns)
            next = least(next, t->recover_until_ns);
        if (t->reap_retry_ns && a->now_ns >= t->reap_retry_ns)
            (void)sl_arb_reap_orphans(a, t);
        if (t->reap_retry_ns)
            next = least(next, t->reap_retry_ns);
    }
    next = least(next, sl_arb_line_tick(a));
    next = least(next, sl_arb_admit_tick(a));
    next = least(next, sl_arb_measure_tick(a));
    next = least(next, sl_arb_compute_tick(a));

    if (a->tenants || a->clients)
        a->quiet_since_ns = a->now_ns;
    else if (a->opt.idle_exit_ns) {
        if (a->now_ns - a->quiet_since_ns >= a->opt.idle_exit_ns)
            a->stopping = true;
        next = least(next, a->quiet_since_ns + a->opt.idle_exit_ns);
    }
    return next;
}

static void arm_timer(struct arbiter *a, uint64_t at_ns)
{
    struct itimerspec its = {0};
    if (at_ns != UINT64_MAX) {
        if (at_ns <= a->now_ns)
            at_ns = a->now_ns + 1;
        its.it_value.tv_sec = (time_t)(at_ns / SL_NS_PER_S);
        its.it_value.tv_nsec = (long)(at_ns % SL_NS_PER_S);
    }
    (void)timerfd_settime(a->timer.fd, TFD_TIMER_ABSTIME, &its, NULL);
}

/* The arbiter was stopped, or got no processor: it should have run at that time. Processes that came back meanwhile were
 * not heard, so that time does not count as time to come back. */
static void forgive(struct arbiter *a, uint64_t due_ns)
{
    uint64_t late_ns = a->now_ns > due_ns ? a->now_ns - due_ns : 0;
    for (struct tenant *t = late_ns > LATE_NS ? a->tenants : NULL; t; t = t->next)
        if (t->recover_until_ns) {
            uint64_t from_ns = t->recover_until_ns > a->now_ns ? t->recover_until_ns : a->now_ns;
            t->recover_until_ns = from_ns + least(late_ns, SL_ARB_RECOVER_NS);
        }
}

static void loop(struct arbiter *a)
{
    /* One event a round: a handler may free any source, and a batch could still name it. Level triggering brings the
     * other events back at once, in turn. */
    uint64_t armed = a->now_ns; /* what came before may have taken long */
    while (!a->stopping) {
        struct epoll_event e;
        int n = epoll_wait(a->epoll_fd, &e, 1, -1);
        a->now_ns = sl_now_ns();
        forgive(a, armed);
        if (n == 1) {
            struct source *s = e.data.ptr;
            s->ready(a, s);
        }
        uint64_t next = run_due(a);
        if (next != armed || (n == 1 && e.data.ptr == &a->timer)) {
            arm_timer(a, next);
            armed = next;
        }
    }
}

static void raise_descriptor_limit(void)
{
    /* Two descriptors per process of every tenant. */
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &r);
    }
}

/* All processes on the GPU wait for the arbiter, and it needs little time: take a high priority where allowed. */
static void go_first(void)
{
    errno = 0;
    if (getpriority(PRIO_PROCESS, 0) == 0 && errno == 0)
        (void)setpriority(PRIO_PROCESS, 0, -10);
}

static void shut_down(struct arbiter *a)
{
    /* First: a client that sees us end and connects again must not reach us, but find the next arbiter. */
    if (a->control.fd >= 0 && !a->opt.inherited)
        (void)unlinkat(a->dir_fd, SL_CONTROL_SOCKET, 0);
    sl_arb_unwatch(a, &a->control);
    /* Tenants with processes keep their state: the next arbiter takes them over. The same holds for tenants whose
     * processes may be about to return to us. */
    while (a->tenants) {
        struct tenant *t = a->tenants;
        if (t->kept || t->members || t->creator.fd >= 0 || t->recover_until_ns)
            sl_arb_tenant_drop(a, t);
        else
            sl_arb_tenant_destroy(a, t);
    }
    while (a->clients)
        sl_arb_client_remove(a, a->clients);
    sl_arb_line_close(a);
    sl_arb_history_close(a);
    if (a->compute)
        sl_arb_compute_close(a);
    if (a->measure)
        sl_arb_measure_close(a);
    sl_arb_unwatch(a, &a->timer);
    sl_arb_stop_close(a);
    sl_arb_reload_close(a);
    sl_arb_foreign_close(a);
    sl_arb_people_forget(a, true);
    sl_rules_free(a->rules);
    sl_cleanup_close(&a->epoll_fd);
    sl_cleanup_close(&a->tenants_fd);
    sl_cleanup_close(&a->kept_fd);
    sl_cleanup_close(&a->users_fd);
    sl_cleanup_close(&a->lock_fd);
    sl_cleanup_close(&a->dir_fd);
}

static int start(struct arbiter *a, struct sl_err *err)
{
    raise_descriptor_limit();
    go_first();
    int rc = enter_directory(a, err);
    if (rc == 0)
        rc = open_plumbing(a, err);
    if (rc == 0)
        rc = sl_arb_foreign_open(a, err);
    if (rc == 0)
        rc = sl_arb_measure_open(a, err);
    if (rc < 0)
        return rc;
    sl_arb_compute_open(a);
    a->now_ns = a->quiet_since_ns = sl_now_ns();
    a->born = sl_arb_process_start(getpid());
    sl_arb_history_open(a);
    sl_arb_state_load(a);
    sl_arb_kept_sweep(a);
    sl_arb_line_load(a);
    return open_control(a, err);
}

static void tell_starter(int fd, int rc, const struct sl_err *err)
{
    if (fd < 0)
        return;
    ssize_t ignored = write(fd, rc < 0 ? "E" : "R", 1);
    if (rc < 0)
        ignored = write(fd, err->msg, strlen(err->msg));
    (void)ignored;
    (void)close(fd);
}

int sl_arbiter_serve(const struct sl_arbiter_options *opt, struct sl_err *err)
{
    struct arbiter *a = sl_xcalloc(1, sizeof(*a));
    struct sl_err local = SL_ERR_INIT;
    a->opt = *opt;
    a->rules = opt->rules;
    a->epoll_fd = a->dir_fd = a->tenants_fd = a->kept_fd = a->users_fd = a->lock_fd = -1;
    a->control.fd = a->signals.fd = a->reread.fd = a->timer.fd = a->received.fd = -1;

    int rc = start(a, &local);
    tell_starter(opt->ready_fd, rc, &local);
    if (rc == 0) {
        sl_info("the arbiter serves %s: %u GPUs", opt->dir, a->gpu_count);
        loop(a);
    } else if (err) {
        *err = local;
    }
    shut_down(a);
    free(a);
    return rc;
}
