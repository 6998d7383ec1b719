/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/version.h"
#include "base/xalloc.h"
#include "controller/errors.h"
#include "controller/options.h"

#define STOP_NS (20 * SL_NS_PER_S) /* for running binds */

struct program {
    struct sl_loop *loop;
    struct sl_controller *controller;
    struct sl_source signals;
    struct sl_timer patience;
    bool stopping, done;
};

static struct program program;

static void stopped(void *data)
{
    (void)data;
    program.done = true;
}

static void out_of_patience(struct sl_timer *timer)
{
    (void)timer;
    sl_warn("the controller ends, although some pods are still being bound");
    program.done = true;
}

static void signalled(struct sl_source *source, uint32_t events)
{
    struct signalfd_siginfo info;
    (void)events;
    if (read(source->fd, &info, sizeof(info)) != sizeof(info))
        return;
    if (program.stopping) {
        program.done = true; /* a second signal */
        return;
    }
    program.stopping = true;
    sl_info("ending");
    program.patience.fire = out_of_patience;
    sl_timer_set(program.loop, &program.patience, sl_loop_now(program.loop) + STOP_NS);
    sl_controller_stop(program.controller, stopped, NULL);
}

static int watch_signals(struct sl_err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    program.signals.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    program.signals.ready = signalled;
    if (program.signals.fd < 0)
        return sl_err_set(err, -1, SL_E_CONTROLLER_SIGNALS);
    return sl_loop_watch(program.loop, &program.signals, EPOLLIN, err);
}

static int run(const struct sl_ctl_args *args, struct sl_err *err)
{
    int rc = sl_loop_create(NULL, &program.loop, err);
    if (!rc)
        rc = watch_signals(err);
    if (!rc)
        rc = sl_controller_create(program.loop, &args->opt, &program.controller, err);
    while (!rc && !program.done)
        rc = sl_loop_step(program.loop, -1, err);
    sl_controller_destroy(program.controller);
    if (program.loop) {
        sl_timer_stop(program.loop, &program.patience);
        sl_loop_unwatch(program.loop, &program.signals);
        (void)close(program.signals.fd);
        sl_loop_destroy(program.loop);
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct sl_ctl_args args;
    struct sl_err err = SL_ERR_INIT;
    json_set_alloc_funcs(sl_xmalloc, free);
    if (sl_ctl_args_parse(argc, argv, &args, &err) != 0) {
        (void)fprintf(stderr, "sluice-controller: %s\n", err.msg);
        return 2;
    }
    if (args.help || args.version) {
        if (args.help)
            (void)fputs(sl_ctl_help, stdout);
        else
            (void)printf("sluice-controller %s\n", sl_version());
        return 0;
    }
    sl_log_open(args.log, STDERR_FILENO);
    if (run(&args, &err) != 0) {
        sl_error("%s", err.msg);
        return 1;
    }
    return 0;
}
