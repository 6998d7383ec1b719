/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGTERM and SIGINT. The loop ends in good order when it can. If the loop is blocked, the signal ends the process all
 * the same, a little later. Nothing is lost: tenants go on, and the next arbiter takes them over, as after a SIGKILL.
 */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"

#define GRACE_S 3 /* less than service managers and the agent wait */

static const int handled[] = {SIGTERM, SIGINT, SIGALRM};

/* A signal handler can only use globals. A process has one arbiter. */
static volatile sig_atomic_t stop_fd = -1, stop_signal;
static struct sigaction before[SL_ARRAY_LEN(handled)];

static void on_stop(int number)
{
    int saved = errno;
    uint64_t one = 1;
    stop_signal = number;
    ssize_t ignored = write(stop_fd, &one, sizeof(one));
    (void)ignored;
    (void)alarm(GRACE_S);
    errno = saved;
}

static void on_stuck(int number)
{
    static const char text[] = "sluice: the arbiter should end and did not do so in time: it ends "
                               "now; tenants continue, and the next arbiter takes them over\n";
    (void)number;
    ssize_t ignored = write(STDERR_FILENO, text, sizeof(text) - 1);
    (void)ignored;
    _exit(1);
}

static void stop_ready(struct arbiter *a, struct source *s)
{
    uint64_t count;
    if (read(s->fd, &count, sizeof(count)) == (ssize_t)sizeof(count)) {
        sl_info("stopping on signal %d", (int)stop_signal);
        a->stopping = true;
    }
}

int sl_arb_stop_open(struct arbiter *a, struct sl_err *err)
{
    a->signals = (struct source){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .ready = stop_ready};
    if (a->signals.fd < 0)
        return sl_err_errno(err, errno, "cannot create an event descriptor");
    stop_fd = a->signals.fd;
    sigset_t ours;
    (void)sigemptyset(&ours);
    for (size_t i = 0; i < SL_ARRAY_LEN(handled); i++) {
        struct sigaction act = {.sa_handler = handled[i] == SIGALRM ? on_stuck : on_stop,
                                .sa_flags = SA_RESTART};
        (void)sigemptyset(&act.sa_mask);
        (void)sigaction(handled[i], &act, &before[i]);
        (void)sigaddset(&ours, handled[i]);
    }
    (void)sigprocmask(SIG_UNBLOCK, &ours, NULL);
    return sl_arb_watch(a, &a->signals, err);
}

void sl_arb_stop_close(struct arbiter *a)
{
    if (stop_fd < 0)
        return;
    for (size_t i = 0; i < SL_ARRAY_LEN(handled); i++)
        (void)sigaction(handled[i], &before[i], NULL);
    (void)alarm(0);
    stop_fd = -1;
    sl_arb_unwatch(a, &a->signals);
}
