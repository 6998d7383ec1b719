/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/container_client.h"
#include "cli/errors.h"
#include "cli/run_child.h"
#include "cli/run_wait.h"
#include "cli/world.h"
#include "shm/find.h"

/* An arbiter that is about to exit may drop the connection; then a new arbiter is started. */
#define CREATE_ATTEMPTS  5
/* An arbiter that dies again and again is not restarted faster than this. */
#define RESTART_PAUSE_NS (500 * SL_NS_PER_MS)

struct keeper {
    const struct sl_world *world;
    pid_t starter; /* the process that starts an arbiter anew; 0: none is under way */
    uint64_t last_ns;
};

static int create_tenant(const struct sl_world *world, const struct sl_msg_lease *lease,
                         struct sl_msg_created *ret, struct sl_err *err)
{
    int rc = -ECONNRESET;
    for (int i = 0; i < CREATE_ATTEMPTS && rc == -ECONNRESET; i++) {
        int fd = sl_world_start(world, err);
        if (fd < 0)
            return fd == -ENOSPC ? -EIO : fd; /* a full disk is no full GPU */
        rc = sl_client_create(fd, lease, ret, err);
        if (rc == 0)
            return fd;
        (void)close(fd);
    }
    return rc;
}

/* libsluice prefers a socket that the agent mounted to the socket that `sluice run` names: tell the user first. */
static int check_attach(struct sl_err *err)
{
    switch (sl_attach_find()) {
    case SL_ATTACH_MOUNTED:
        sl_cli_complain(SL_E_RUN_HELD_BY_CONTAINER, SL_ATTACH_DEFAULT);
        return 0;
    case SL_ATTACH_GONE:
        return sl_err_set(err, -ENOENT, SL_E_RUN_ATTACH_GONE, SL_ATTACH_DEFAULT);
    case SL_ATTACH_HIDDEN:
        return sl_err_errno(err, errno, SL_E_RUN_ATTACH_HIDDEN, SL_ATTACH_DEFAULT);
    default:
        return 0;
    }
}

/* The tenant's socket, its GPUs, and libsluice before all other libraries. Never a limit. */
static void tenant_environment(const struct sl_world *world, const struct sl_msg_created *tenant,
                               const char *libsluice, struct sl_env *env)
{
    char visible[SL_VISIBLE_MAX];
    sl_env_tenant(env, tenant->attach_path, sl_world_visible_text(tenant, visible), libsluice);
    if (world->place.sim[0]) {
        sl_env_set(env, SL_SIM_ENV, world->place.sim);
        sl_env_set(env, SL_SIM_STATE_ENV, world->place.sim_state);
        sl_env_prepend(env, "LD_LIBRARY_PATH", world->sim_lib, ':');
    }
}

static void remark_adjusted(const struct sl_msg_lease *lease, const struct sl_msg_created *tenant)
{
    if (!(lease->fields & SL_FIELD_MEMORY) || lease->memory_percent)
        return;
    for (uint32_t i = 0; i < tenant->gpu_count; i++)
        if (tenant->memory_limit_bytes[i] != lease->memory_bytes) {
            sl_cli_complain(SL_E_RUN_MEMORY_ROUNDED, (unsigned long long)SL_UNIT_BYTES,
                            tenant->name, (unsigned long long)tenant->memory_limit_bytes[i],
                            (unsigned long long)lease->memory_bytes);
            return;
        }
}

static void remark_hidden(int control, const struct sl_msg_lease *lease,
                          const struct sl_msg_created *tenant)
{
    struct sl_client_status status = {0};
    if (!(lease->flags & SL_LEASE_ANY) && getenv("CUDA_VISIBLE_DEVICES") &&
        sl_client_status(control, &status, NULL) == 0)
        sl_world_remark_hidden(lease, tenant, &status, "run");
    sl_client_status_free(&status);
}

/* Starts the arbiter from a child process: the start blocks, and signals must not wait for it. */
static void start_again(struct keeper *k)
{
    uint64_t now = sl_now_ns();
    uint64_t pause = k->last_ns && now - k->last_ns < RESTART_PAUSE_NS ? RESTART_PAUSE_NS : 0;
    k->last_ns = now;
    k->starter = fork();
    if (k->starter != 0)
        return;
    struct sl_err err = SL_ERR_INIT;
    sl_sleep_ns(pause);
    int fd = sl_world_start(k->world, &err);
    if (fd < 0)
        sl_cli_complain(SL_E_RUN_ARBITER_LOST, err.msg);
    _exit(fd < 0 ? SL_EXIT_FAILED : SL_EXIT_OK);
}

/* The control connection broke, or the process that restarts the arbiter is done. */
static void watch_arbiter(struct sl_child *child, pid_t ended, int status)
{
    struct keeper *k = child->arg;
    if (ended == 0) {
        /* The arbiter sends nothing without a request: readable means closed. */
        sl_cleanup_close(&child->watch);
        child->watch = -1;
        if (!k->world->place.system) /* the system starts its arbiter itself */
            start_again(k);
    } else if (ended == k->starter) {
        k->starter = 0;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            return; /* the child printed the reason */
        child->watch = sl_client_connect(&k->world->place, NULL);
        if (child->watch >= 0)
            return;
        child->watch = -1; /* the new arbiter is gone again already */
        start_again(k);
    }
}

/* For the history: the file name of the command, as one word. Its arguments are nobody else's business. */
static void describe(struct sl_msg_lease *lease, const char *command)
{
    const char *slash = strrchr(command, '/');
    char word[32];
    (void)snprintf(word, sizeof(word), "%s", slash ? slash + 1 : command);
    for (char *p = word; *p; p++)
        if (*p <= ' ' || *p > '~' || *p == '=')
            *p = '?';
    (void)snprintf(lease->about, sizeof(lease->about), "command=%s", word);
}

/* Tells the arbiter that serves now. Where none does, the next one does not know the exit code. */
static void report_end(const struct sl_world *world, int control, const char *name, int status)
{
    SL_CLEANUP(close) int other = control < 0 ? sl_client_connect(&world->place, NULL) : -1;
    if (control >= 0 || other >= 0)
        sl_client_ended(control >= 0 ? control : other, name, status);
}

static int run_command(const struct sl_world *world, int control, const char *name,
                       char *const *argv, char *const *envp)
{
    struct sl_err err = SL_ERR_INIT;
    struct keeper keeper = {.world = world};
    struct sl_child child = {
        .signals = -1, .watch = control, .on_watch = watch_arbiter, .arg = &keeper};
    int code = sl_child_start(&child, argv, envp, &err);
    if (code != 0) {
        report_end(world, control, name, W_EXITCODE(code, 0));
        sl_cli_complain("run: %s", err.msg);
        return code;
    }
    int status = sl_child_wait(&child);
    report_end(world, child.watch, name, status);
    sl_child_follow(status);
}

int sl_cmd_run(const struct sl_cli_args *args)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_world world = {.program = ""};
    struct sl_msg_lease lease = {.fields = 0};
    struct sl_msg_created tenant = {.gpu_count = 0};
    struct sl_env env = {0};
    char libsluice[PATH_MAX];
    if (args->rest_count == 0) {
        sl_cli_complain(SL_E_RUN_NO_COMMAND);
        return SL_EXIT_RUN_OURS;
    }
    const char *wait = sl_cli_value(args, "wait");
    int rc = sl_container_client_refuse(args->rest, &err);
    if (rc == 0)
        rc = sl_run_wait_check(wait, &err);
    if (rc == 0)
        rc = sl_world_lease(args, &lease, &err);
    if (rc == 0)
        rc = sl_world_visible(&lease, &err);
    if (rc == 0) {
        int code = sl_child_lookup(args->rest[0], &err);
        if (code != 0) {
            sl_cli_complain("run: %s", err.msg);
            return code;
        }
        rc = sl_world_find(args, &world, &err);
    }
    if (rc == 0)
        rc = sl_world_libsluice(&world, sl_cli_value(args, "libsluice"), libsluice,
                                sizeof(libsluice), &err);
    if (rc == 0 && sl_cli_value(args, "libsluice"))
        rc = sl_world_libsluice_check(libsluice, &err);
    if (rc == 0)
        rc = check_attach(&err);
    describe(&lease, args->rest[0]);
    if (rc == 0)
        rc = wait ? sl_run_wait(&world, &lease, wait, &tenant, &err)
                  : create_tenant(&world, &lease, &tenant, &err);
    if (rc < 0) {
        sl_cli_complain((rc == -ENOSPC || rc == -EDQUOT) && !wait ? SL_E_RUN_NO_ROOM : "run: %s",
                        err.msg);
        return rc == -ETIME ? SL_EXIT_RUN_WAITED : SL_EXIT_RUN_OURS;
    }
    int control = rc;
    remark_adjusted(&lease, &tenant);
    remark_hidden(control, &lease, &tenant);
    tenant_environment(&world, &tenant, libsluice, &env);
    int code = run_command(&world, control, tenant.name, args->rest, env.list);
    sl_env_free(&env);
    (void)close(control);
    return code;
}
