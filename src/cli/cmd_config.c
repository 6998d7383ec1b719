/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice config check FILE`: is it right, what does it mean, what would this node advertise. */
#include <errno.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/errors.h"

/* The one word after `config`, and its file; NULL when the command line is wrong. */
static const char *checked_file(const struct sl_cli_args *args)
{
    if (args->rest_count == 0 || strcmp(args->rest[0], "check") != 0)
        sl_cli_complain(SL_E_CONFIG_NO_ACTION);
    else if (args->rest_count == 1)
        sl_cli_complain(SL_E_CONFIG_NO_FILE);
    else if (args->rest_count > 2)
        sl_cli_complain(SL_E_CONFIG_EXTRA_WORD, args->rest[2]);
    else
        return args->rest[1];
    return NULL;
}

#ifndef SLUICE_WITH_CONFIG

int sl_cmd_config(const struct sl_cli_args *args)
{
    if (!checked_file(args))
        return SL_EXIT_USAGE;
    sl_cli_complain(SL_E_CONFIG_NOT_BUILT);
    return SL_EXIT_FAILED;
}

#else

#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "cli/config_view.h"
#include "cli/doctor.h"

#define STDIN_NAME "stdin"

/* Standard input, as much as a configuration may have and one byte more. */
static int read_stdin(char **ret, size_t *ret_size, struct sl_err *err)
{
    const size_t max = ((size_t)1 << 20) + 1;
    SL_CLEANUP(free) char *text = sl_xmalloc(max);
    size_t n = fread(text, 1, max, stdin);
    if (ferror(stdin))
        return sl_err_errno(err, errno, "cannot read standard input");
    *ret = sl_take_ptr(text);
    *ret_size = n;
    return 0;
}

static int load(const char *file, struct sl_config **ret, struct sl_err *err)
{
    SL_CLEANUP(free) char *text = NULL;
    size_t size = 0;
    if (strcmp(file, "-") != 0)
        return sl_config_load(file, environ, NULL, 0, ret, err);
    int rc = read_stdin(&text, &size, err);
    return rc < 0 ? rc : sl_config_parse(STDIN_NAME, text, size, environ, NULL, 0, ret, err);
}

/* The GPUs of this machine, or simulated ones: those of SLUICE_SIM_STATE where it is set, else as
 * good as new. */
static int read_gpus(const struct sl_world *world, struct sl_inventory **ret, struct sl_err *err)
{
    struct sl_gpu *gpu = NULL;
    bool sim = world->sim_lib[0] != '\0', scratch = sim && !getenv(SL_SIM_STATE_ENV);
    int rc = scratch ? sl_doctor_scratch_begin(world->place.sim, err) : 0;
    if (rc == 0 && sim && setenv(SL_SIM_ENV, world->place.sim, 1) != 0)
        rc = sl_err_errno(err, errno, "cannot set the environment");
    if (rc == 0)
        rc = sl_world_gpus(world, &gpu, err);
    if (rc == 0)
        rc = sl_inventory_read(gpu, ret, err);
    sl_gpu_close(gpu);
    if (scratch)
        sl_doctor_scratch_end();
    return rc;
}

static int refuse(const struct sl_cli_args *args, const struct sl_err *err)
{
    if (sl_cli_value(args, "json")) {
        struct sl_json j;
        sl_json_init(&j, stdout);
        sl_json_begin(&j, NULL, '{');
        sl_json_string(&j, "error", err->msg);
        sl_json_end(&j, '}');
    }
    sl_cli_complain("config: %s", err->msg);
    return sl_cli_finish(SL_EXIT_FAILED);
}

int sl_cmd_config(const struct sl_cli_args *args)
{
    struct sl_err err = SL_ERR_INIT, no_gpus = SL_ERR_INIT;
    struct sl_world world;
    struct sl_config *config = NULL;
    struct sl_inventory *inv = NULL;
    struct sl_plan *plan = NULL;
    const char *file = checked_file(args);
    if (!file)
        return SL_EXIT_USAGE;
    int rc = sl_world_find(args, &world, &err);
    if (rc == 0)
        rc = load(file, &config, &err);
    /* A workstation without a GPU may check files too, unless it was told which GPUs. */
    if (rc == 0 && read_gpus(&world, &inv, &no_gpus) < 0 && world.sim_lib[0])
        rc = sl_err_set(&err, no_gpus.code, "%s", no_gpus.msg);
    if (rc == 0 && inv)
        rc = sl_plan_make(config, inv, &plan, &err);
    struct sl_config_view view = {strcmp(file, "-") == 0 ? STDIN_NAME : file, config, inv, plan,
                                  no_gpus.msg};
    int code;
    if (rc < 0) {
        code = refuse(args, &err);
    } else {
        if (sl_cli_value(args, "json"))
            sl_config_view_json(&view, stdout);
        else
            sl_config_view_text(&view, stdout);
        code = sl_cli_finish(SL_EXIT_OK);
    }
    sl_plan_free(plan);
    sl_inventory_free(inv);
    sl_config_free(config);
    return code;
}

#endif
