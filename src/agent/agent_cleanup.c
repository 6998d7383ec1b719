/* SPDX-License-Identifier: Apache-2.0 */
/* `sluiced --cleanup`: no agent, but what comes after the last one (deploy/cleanup). */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent_internal.h"
#include "agent/node/cleanup.h"
#include "base/log.h"

static int clean_node(const struct sl_agent_options *opt, const char *name, struct sl_err *err)
{
    const struct sl_kube_options options = {.kubeconfig = opt->kubeconfig};
    struct sl_loop *loop = NULL;
    struct sl_kube *kube = NULL;
    int rc = sl_loop_create(NULL, &loop, err);
    if (rc < 0)
        return rc;
    rc = sl_kube_create(loop, &options, &kube, err);
    if (rc == 0)
        rc = sl_cleanup_node(loop, kube, name, err);
    sl_kube_destroy(kube);
    sl_loop_destroy(loop);
    return rc;
}

int sl_agent_cleanup(const struct sl_agent_options *opt, struct sl_err *err)
{
    char host[256] = "localhost";
    const char *name = opt->node_name;
    (void)signal(SIGPIPE, SIG_IGN);
    if (!name && gethostname(host, sizeof(host) - 1) == 0)
        name = host;
    int rc = sl_cleanup_files(opt->cleanup, err);
    if (rc == 0 && !opt->no_api)
        rc = clean_node(opt, name, err);
    if (rc < 0)
        return rc;
    sl_info("nothing of Sluice is left on node %s", name);
    if (opt->cleanup_stay) {
        /* The first process of a container gets no signal that it does not ask for. */
        int sig = 0;
        sigset_t set;
        (void)sigemptyset(&set);
        (void)sigaddset(&set, SIGTERM);
        (void)sigaddset(&set, SIGINT);
        (void)sigprocmask(SIG_BLOCK, &set, NULL);
        (void)sigwait(&set, &sig);
    }
    return 0;
}
