/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of sluice-controller. */
#ifndef SLUICE_CONTROLLER_OPTIONS_H
#define SLUICE_CONTROLLER_OPTIONS_H

#include "base/err.h"
#include "base/log.h"
#include "controller/controller.h"

struct sl_ctl_args {
    struct sl_controller_options opt;
    enum sl_log_level log;
    bool help, version;
    char name_space[64], identity[256]; /* the values used where an option is not given */
};

/* The strings belong to argv and to the environment. -EINVAL: err says what is wrong. */
int sl_ctl_args_parse(int argc, char **argv, struct sl_ctl_args *ret,
                      struct sl_err *err) SL_MUST_CHECK;
extern const char sl_ctl_help[];

#endif
