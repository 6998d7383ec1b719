/* SPDX-License-Identifier: Apache-2.0 */
/* The arbiter of one directory: of one user, as `sluice run` starts it, or of the system. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arbiter/arbiter.h"
#include "arbiter/rules.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/quantity.h"
#include "cli/arbiter_system.h"
#include "cli/errors.h"
#include "cli/world.h"

/* True for a number, and for an absent option (*ret stays as it is). */
static bool is_number(const char *text, uint64_t most, uint64_t *ret)
{
    const char *rest = text ? sl_number_read(text, most, ret) : "";
    return rest && !*rest;
}

/* Tells the process that waits at the ready descriptor why the arbiter does not start. */
static int give_up(int ready_fd, const struct sl_err *err)
{
    sl_cli_complain("arbiter: %s", err->msg);
    if (ready_fd >= 0) {
        char text[sizeof(err->msg) + 1];
        int n = snprintf(text, sizeof(text), "%c%s", SL_READY_NO, err->msg);
        (void)!write(ready_fd, text, (size_t)n);
    }
    return SL_EXIT_FAILED;
}

/* The simulated driver reads its cards from the environment, in the arbiter as in the tenants. */
static int enter_world(const struct sl_world *w, struct sl_err *err)
{
    if (!w->place.sim[0])
        return 0;
    if (setenv(SL_SIM_ENV, w->place.sim, 1) != 0 ||
        setenv(SL_SIM_STATE_ENV, w->place.sim_state, 1) != 0)
        return sl_err_errno(err, errno, "cannot set the environment");
    return 0;
}

/* The stderr of an arbiter that a client started leads nowhere: the log, if asked for, goes to a file. */
static void open_log(const struct sl_arbiter_dir *place, bool detached, bool system)
{
    const char *level = getenv("SLUICE_LOG");
    char path[sizeof(place->dir) + 16];
    int fd = STDERR_FILENO;
    (void)snprintf(path, sizeof(path), "%s/arbiter.log", place->dir);
    if (detached && level)
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    sl_log_open(sl_log_level_parse(level, system ? SL_LOG_INFO : SL_LOG_WARN), fd);
}

/* The words after the verb: none, or `check [FILE]`. -1: go on and serve; else the exit code. */
static int read_words(const struct sl_cli_args *args)
{
    if (args->rest_count == 0)
        return -1;
    if (strcmp(args->rest[0], "check") != 0)
        sl_cli_complain(SL_E_ARBITER_WORD, args->rest[0]);
    else if (args->rest_count > 2)
        sl_cli_complain(SL_E_ARBITER_WORD, args->rest[2]);
    else
        return sl_system_check(args->rest[1]);
    return SL_EXIT_USAGE;
}

int sl_cmd_arbiter(const struct sl_cli_args *args)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_world world;
    uint64_t idle_s = 0, ready = UINT64_MAX;
    if (!is_number(sl_cli_value(args, "idle-exit"), 86400, &idle_s) ||
        !is_number(sl_cli_value(args, "ready-fd"), 65535, &ready)) {
        sl_cli_complain(SL_E_ARBITER_NEEDS_NUMBERS);
        return SL_EXIT_USAGE;
    }
    int done = read_words(args);
    if (done >= 0)
        return done;
    bool system = sl_cli_value(args, "system");
    const char *config = sl_cli_value(args, "config");
    if (config && !system) {
        sl_cli_complain(SL_E_ARBITER_CONFIG);
        return SL_EXIT_USAGE;
    }
    int ready_fd = ready == UINT64_MAX ? -1 : (int)ready;
    struct sl_arbiter_options options = {.listen_fd = -1};
    (void)umask(077);
    int rc = system && geteuid() != 0 ? sl_err_set(&err, -EPERM, SL_E_SYSTEM_ROOT) : 0;
    if (rc == 0)
        rc = sl_world_find(args, &world, &err);
    if (rc == 0 && !system)
        rc = sl_system_absent(&world, &err);
    if (rc == 0)
        rc = sl_arbiter_dir_make(&world.place, &err);
    if (rc == 0 && system)
        rc = sl_system_prepare(&world, config, &options, &err);
    if (rc == 0)
        rc = enter_world(&world, &err);
    if (rc < 0) {
        sl_rules_free(options.rules);
        return give_up(ready_fd, &err);
    }
    open_log(&world.place, ready_fd >= 0, system);

    char nvml[PATH_MAX + 32];
    (void)snprintf(nvml, sizeof(nvml), "%s/libnvidia-ml.so.1", world.sim_lib);
    bool simulated = world.place.sim[0] != '\0';
    options.dir = world.place.dir;
    options.nvml_library = simulated ? nvml : NULL;
    options.idle_exit_ns = idle_s * SL_NS_PER_S;
    options.ready_fd = ready_fd;
    rc = sl_arbiter_serve(&options, &err);
    if (rc == 0)
        return SL_EXIT_OK;
    sl_cli_complain("arbiter: %s", err.msg);
    return rc == SL_ARBITER_TAKEN ? SL_ARBITER_EXIT_TAKEN : SL_EXIT_FAILED;
}
