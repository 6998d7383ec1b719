/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGHUP reads the file of rules again. A thread does so: users and groups may come from a server that does not answer,
 * and tenants must not wait for it. A file with a mistake changes nothing.
 */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "arbiter/errors.h"
#include "arbiter/rules.h"
#include "base/log.h"
#include "base/xalloc.h"

/* One reading. The thread owns it until `done`; then the loop does. It outlives an arbiter that does not wait for it. */
struct reading {
    char *file;
    int bell; /* a duplicate of the arbiter's */
    struct sl_rules *rules;
    struct sl_err err;
    atomic_bool done;
};

/* A signal handler can only use globals. A process has one arbiter. */
static volatile sig_atomic_t bell_fd = -1, asked;
static struct reading *under_way;
static struct sigaction before;

static void ring(int fd)
{
    uint64_t one = 1;
    ssize_t ignored = write(fd, &one, sizeof(one));
    (void)ignored;
}

static void on_hangup(int number)
{
    int saved = errno;
    (void)number;
    asked = 1;
    ring(bell_fd);
    errno = saved;
}

static void *read_rules(void *arg)
{
    struct reading *r = arg;
    int bell = r->bell;
    if (sl_rules_load(r->file, true, &r->rules, &r->err) < 0)
        r->rules = NULL;
    atomic_store(&r->done, true); /* from now on it is the loop's */
    ring(bell);
    (void)close(bell);
    return NULL;
}

static void reading_free(struct reading *r)
{
    sl_rules_free(r->rules);
    free(r->file);
    free(r);
}

static void begin(struct arbiter *a)
{
    pthread_t thread;
    struct reading *r = sl_xcalloc(1, sizeof(*r));
    r->file = sl_xstrdup(a->rules->file);
    r->bell = dup(a->reread.fd);
    if (r->bell < 0 || pthread_create(&thread, NULL, read_rules, r) != 0) {
        sl_error(SL_E_RULES_KEPT_LOG, r->file, "the system allows no more threads or descriptors");
        if (r->bell >= 0)
            (void)close(r->bell);
        reading_free(r);
        return;
    }
    (void)pthread_detach(thread);
    under_way = r;
}

/* The group may be another one now; the socket of a service manager is the manager's. */
static void give_socket(struct arbiter *a, gid_t old)
{
    struct sl_err err = SL_ERR_INIT;
    if (!a->opt.inherited && a->rules->gid != old &&
        sl_arb_open_to_group(a, SL_CONTROL_SOCKET, &err) < 0)
        sl_error("%s", err.msg);
}

static void take(struct arbiter *a, struct reading *r)
{
    if (r->rules) {
        struct sl_rules *old = a->rules;
        a->rules = r->rules;
        r->rules = NULL;
        give_socket(a, old->gid);
        sl_rules_free(old);
        sl_info("%s is in force as it is now", r->file);
        sl_arb_line_look(a); /* somebody may have more than before */
    } else {
        sl_error(SL_E_RULES_KEPT_LOG, r->file, r->err.msg);
    }
    reading_free(r);
}

static void bell_ready(struct arbiter *a, struct source *s)
{
    uint64_t count;
    ssize_t ignored = read(s->fd, &count, sizeof(count));
    (void)ignored;
    if (under_way && atomic_load(&under_way->done)) {
        struct reading *r = under_way;
        under_way = NULL;
        take(a, r);
    }
    if (asked && !under_way) { /* a signal during a reading: the file may have changed since */
        asked = 0;
        begin(a);
    }
}

int sl_arb_reload_open(struct arbiter *a, struct sl_err *err)
{
    a->reread = (struct source){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .ready = bell_ready};
    if (a->reread.fd < 0)
        return sl_err_errno(err, errno, "cannot create an event descriptor");
    bell_fd = a->reread.fd;
    struct sigaction act = {.sa_handler = on_hangup, .sa_flags = SA_RESTART};
    (void)sigemptyset(&act.sa_mask);
    (void)sigaction(SIGHUP, &act, &before);
    return sl_arb_watch(a, &a->reread, err);
}

void sl_arb_reload_close(struct arbiter *a)
{
    if (bell_fd < 0)
        return;
    (void)sigaction(SIGHUP, &before, NULL);
    bell_fd = -1;
    if (under_way && atomic_load(&under_way->done))
        reading_free(under_way); /* else its thread still has it, and the process ends soon */
    under_way = NULL;
    sl_arb_unwatch(a, &a->reread);
}
