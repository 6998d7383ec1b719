/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/arbiter_child.h"
#include "agent/supervise.h"
#include "base/log.h"
#include "base/xalloc.h"

extern char **environ;

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
    if (opt.help || opt.version) {
        if (opt.help)
            sl_agent_options_help(stdout);
        else
            (void)puts("sluiced " SLUICE_VERSION);
        sl_agent_options_clear(&opt);
        return 0;
    }
    sl_log_open(sl_log_level_parse(opt.log_level, SL_LOG_INFO), STDERR_FILENO);
    int status = opt.supervise ? sl_supervise() : -1;
    if (status >= 0) {
        sl_agent_options_clear(&opt);
        return status;
    }
    int rc = sl_agent_run(&opt, environ, &err);
    if (rc < 0)
        sl_error("%s", err.msg);
    sl_agent_options_clear(&opt);
    return rc < 0;
}
