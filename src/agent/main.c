/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/version.h"
#include "base/xalloc.h"

#define BACKOFF_MIN_NS (20 * SL_NS_PER_MS)
#define BACKOFF_MAX_NS (10 * SL_NS_PER_S)
/* An agent that lived this long did not fail at its start. */
#define STEADY_NS      (10 * SL_NS_PER_S)

struct parent {
    pid_t child;
    sigset_t old; /* the mask that this process was started with; the agent gets it */
    bool stopping;
    uint64_t began_ns, backoff_ns;
    int status; /* of the ended child; -1: it is alive */
};

/* 0 in the child. */
static pid_t start(struct parent *p)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_NAME, "sluiced", 0, 0, 0);
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
        (void)prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
        (void)sigprocmask(SIG_SETMASK, &p->old, NULL);
        return 0;
    }
    p->child = pid;
    p->status = -1;
    p->began_ns = sl_now_ns();
    return pid;
}

/* Daemons of a dead agent become our children: reap them too, so that none stays a zombie. */
static void reap(struct parent *p)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        if (pid == p->child) {
            p->child = 0;
            p->status = status;
        }
}

static void wait_signal(struct parent *p, const sigset_t *set)
{
    siginfo_t info;
    int sig = sigwaitinfo(set, &info);
    if (sig == SIGTERM || sig == SIGINT)
        p->stopping = true;
    if (sig > 0 && sig != SIGCHLD && p->child > 0)
        (void)kill(p->child, sig);
    reap(p);
}

/*
 * A parent process that only starts the agent again when a signal ended it. Otherwise the death of the agent would end
 * its container, and with it the MPS daemons and the arbiter that pods use; and kubelet waits before it starts another
 * container. Returns -1 in the child, which becomes the agent. In the parent, returns the exit status once the agent
 * has ended by itself or after a signal that was passed on: SIGTERM, SIGINT, SIGHUP.
 */
static int supervise(void)
{
    struct parent p = {.backoff_ns = BACKOFF_MIN_NS};
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, &p.old);
    (void)prctl(PR_SET_NAME, "sluiced-parent", 0, 0, 0);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    for (;;) {
        pid_t pid = start(&p);
        if (pid == 0)
            return -1;
        if (pid < 0) {
            sl_error("cannot start the agent: %s", strerror(errno));
            return 1;
        }
        while (p.status == -1)
            wait_signal(&p, &set);
        if (WIFEXITED(p.status))
            return WEXITSTATUS(p.status);
        if (p.stopping)
            return 128 + WTERMSIG(p.status);
        if (sl_now_ns() - p.began_ns > STEADY_NS)
            p.backoff_ns = BACKOFF_MIN_NS;
        sl_error("signal %d ended the agent: it is started again", WTERMSIG(p.status));
        sl_sleep_ns(p.backoff_ns);
        p.backoff_ns = p.backoff_ns * 2 < BACKOFF_MAX_NS ? p.backoff_ns * 2 : BACKOFF_MAX_NS;
    }
}

int main(int argc, char **argv)
{
    struct sl_agent_options opt;
    struct sl_err err = SL_ERR_INIT;
    json_set_alloc_funcs(sl_xmalloc, free);
    if (argc > 1 && strcmp(argv[1], "arbiter") == 0) {
        sl_log_open(SL_LOG_INFO, STDERR_FILENO);
        return sl_arbiter_child_main(argc - 2, argv + 2);
    }
    if (sl_agent_options_parse(&opt, argc, argv, environ, &err) < 0) {
        (void)fprintf(stderr, "sluiced: %s\n", err.msg);
        return 2;
    }
    int status = 0;
    if (opt.help) {
        sl_agent_options_help(stdout);
    } else if (opt.version) {
        (void)printf("sluiced %s\n", sl_version());
    } else {
        sl_log_open(sl_log_level_parse(opt.log_level, SL_LOG_INFO), STDERR_FILENO);
        status = opt.supervise && !opt.cleanup ? supervise() : -1;
    }
    if (status < 0) { /* this process is the agent */
        status =
            (opt.cleanup ? sl_agent_cleanup(&opt, &err) : sl_agent_run(&opt, environ, &err)) < 0;
        if (status)
            sl_error("%s", err.msg);
    }
    sl_agent_options_clear(&opt);
    return status;
}
