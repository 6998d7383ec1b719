/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice config check FILE`: is the file right, what does it mean, what would this node advertise. */
#include <errno.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/errors.h"

/* The file after the word `check`; NULL when the command line is wrong. */
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
#include "cli/doctor.h"
#include "cli/table.h"
#include "config/plan.h"

struct view {
    const char *file; /* for messages */
    const struct sl_config *config;
    const struct sl_inventory *inv; /* NULL: no GPUs can be read here */
    const struct sl_plan *plan;     /* NULL likewise */
    const char *no_gpus;            /* why plan and inv are NULL */
};

/* The devices behind a resource, each once: consecutive replicas are of one device. */
static size_t next_device(const struct sl_plan_resource *r, size_t at)
{
    size_t end = at + 1;
    while (end < r->device_count && r->device[end].gpu == r->device[at].gpu &&
           r->device[end].mig == r->device[at].mig)
        end++;
    return end;
}

/* "GPU 0, 1" or "GPU 0:0, 0:1, 1:0"; the devices that do not fit are counted. */
static void describe(const struct sl_plan_resource *r, char *buf, size_t size)
{
    size_t used = (size_t)snprintf(buf, size, "GPU"), left_out = 0;
    const char *comma = " ";
    for (size_t i = 0; i < r->device_count; i = next_device(r, i)) {
        char one[32];
        const struct sl_plan_device *d = &r->device[i];
        int n = d->mig == SL_NO_MIG
                    ? snprintf(one, sizeof(one), "%s%zu", comma, d->gpu)
                    : snprintf(one, sizeof(one), "%s%zu:%zu", comma, d->gpu, d->mig);
        if (left_out > 0 || used + (size_t)n + sizeof(" and 999 more") > size) {
            left_out++;
            continue;
        }
        memcpy(buf + used, one, (size_t)n + 1);
        used += (size_t)n;
        comma = ", ";
    }
    if (left_out > 0)
        (void)snprintf(buf + used, size - used, " and %zu more", left_out);
}

/* "4", or "2-8" where the devices have different numbers. */
static void replicas(const struct sl_plan_resource *r, char *buf, size_t size)
{
    size_t least = SIZE_MAX, most = 0;
    for (size_t i = 0, end; i < r->device_count; i = end) {
        end = next_device(r, i);
        least = end - i < least ? end - i : least;
        most = end - i > most ? end - i : most;
    }
    if (least == most)
        (void)snprintf(buf, size, "%zu", most);
    else
        (void)snprintf(buf, size, "%zu-%zu", least, most);
}

static void resource_table(const struct sl_plan *plan, FILE *out)
{
    static const struct sl_table_column columns[] = {
        {"RESOURCE", SL_TABLE_LEFT},  {"COUNT", SL_TABLE_RIGHT}, {"SHARING", SL_TABLE_LEFT},
        {"REPLICAS", SL_TABLE_RIGHT}, {"A POD", SL_TABLE_LEFT},  {"OF", SL_TABLE_LEFT}};
    struct sl_table t;
    sl_table_init(&t, columns, SL_ARRAY_LEN(columns));
    for (size_t i = 0; i < plan->resource_count; i++) {
        const struct sl_plan_resource *r = &plan->resource[i];
        char of[48], each[24];
        describe(r, of, sizeof(of));
        replicas(r, each, sizeof(each));
        sl_table_cell(&t, "%s", r->name);
        sl_table_cell(&t, "%zu", r->device_count);
        sl_table_cell(&t, "%s", sl_config_sharing_name(r->sharing));
        sl_table_cell(&t, "%s", each);
        sl_table_cell(&t, "%s", r->fail_requests_greater_than_one ? "at most 1" : "any");
        sl_table_cell(&t, "%s", of);
    }
    (void)sl_table_print(&t, out, false);
}

/* The table, each line behind a '#'. */
static void comment_table(const struct sl_plan *plan, FILE *out)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = sl_xmemstream(&text, &size);
    resource_table(plan, f);
    sl_xmemstream_close(f);
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        (void)fprintf(out, "#%s\n", line);
    free(text);
}

/* What virtual machines get depends on the drivers that cards are bound to, which change while the agent runs. */
static void comment_vm(const struct sl_config_vm *vm, FILE *out)
{
    static const char *const ways[] = {[SL_VM_AUTO] =
                                           "by claims where it has --dra, else by plugins",
                                       [SL_VM_PLUGINS] = "by device plugins",
                                       [SL_VM_CLAIMS] = "by claims, for which it needs --dra"};
    if (!vm->enabled)
        return;
    (void)fprintf(
        out,
        "# Cards bound to vfio-pci, and vGPUs, are not counted here: the agent offers them to "
        "virtual machines %s,\n# and a card that has vGPUs not to containers.\n",
        ways[vm->by]);
    const struct sl_config_vgpu *v = vm->vgpu.item;
    for (size_t i = 0; i < vm->vgpu.count; i++)
        (void)fprintf(out, "# It makes %u vGPU%s %s on %s.\n", v[i].count,
                      v[i].count == 1 ? "" : "s", v[i].name,
                      v[i].devices.count ? "each card of the entry"
                                         : "each card that can have them");
}

/* YAML. All but the configuration is in comments, so that the whole output can be saved as a file. */
static void print_text(const struct view *v, FILE *out)
{
    sl_config_print(v->config, out);
    (void)fputs("#\n", out);
    comment_vm(&v->config->vm, out);
    if (!v->plan) {
        (void)fprintf(out,
                      "# The GPUs of this node cannot be read, so what it would advertise is "
                      "not known: %s\n",
                      v->no_gpus);
        return;
    }
    (void)fprintf(out, "# With %zu GPU%s (driver %s) this node would advertise%s\n",
                  v->inv->gpu_count, v->inv->gpu_count == 1 ? "" : "s", v->inv->driver_version,
                  v->plan->resource_count ? ":" : " nothing.");
    if (v->plan->resource_count)
        comment_table(v->plan, out);
    for (size_t i = 0; i < v->plan->warning_count; i++)
        (void)fprintf(out, "# warning: %s\n", v->plan->warning[i]);
}

static void json_resource(struct sl_json *j, const struct sl_plan_resource *r,
                          const struct sl_inventory *inv)
{
    sl_json_begin(j, NULL, '{');
    sl_json_string(j, "name", r->name);
    sl_json_string(j, "base_name", r->base_name);
    sl_json_uint(j, "count", r->device_count);
    sl_json_string(j, "sharing", sl_config_sharing_name(r->sharing));
    sl_json_bool(j, "fail_requests_greater_than_one", r->fail_requests_greater_than_one);
    sl_json_begin(j, "devices", '[');
    for (size_t i = 0, end; i < r->device_count; i = end) {
        const struct sl_plan_device *d = &r->device[i];
        const struct sl_inv_gpu *g = &inv->gpu[d->gpu];
        end = next_device(r, i);
        sl_json_begin(j, NULL, '{');
        sl_json_uint(j, "gpu", d->gpu);
        sl_json_string(j, "mig", d->mig == SL_NO_MIG ? NULL : g->mig[d->mig].info.profile);
        sl_json_string(j, "uuid", d->mig == SL_NO_MIG ? g->info.uuid : g->mig[d->mig].info.uuid);
        sl_json_string(j, "sharing", sl_config_sharing_name(d->sharing));
        sl_json_uint(j, "replicas", end - i);
        sl_json_end(j, '}');
    }
    sl_json_end(j, ']');
    sl_json_end(j, '}');
}

static void print_json(const struct view *v, FILE *out)
{
    struct sl_json j;
    sl_json_init(&j, out);
    sl_json_begin(&j, NULL, '{');
    sl_json_string(&j, "file", v->file);
    sl_config_json(v->config, "config", &j);
    sl_json_string(&j, "no_gpus", v->plan ? NULL : v->no_gpus);
    sl_json_uint(&j, "gpus", v->inv ? v->inv->gpu_count : 0);
    sl_json_begin(&j, "resources", '[');
    for (size_t i = 0; v->plan && v->inv && i < v->plan->resource_count; i++)
        json_resource(&j, &v->plan->resource[i], v->inv);
    sl_json_end(&j, ']');
    sl_json_begin(&j, "warnings", '[');
    for (size_t i = 0; v->plan && i < v->plan->warning_count; i++)
        sl_json_string(&j, NULL, v->plan->warning[i]);
    sl_json_end(&j, ']');
    sl_json_end(&j, '}');
}

/* --- reading --- */

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

/* The GPUs of this machine, or simulated ones: those of SLUICE_SIM_STATE where it is set, else new ones. */
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
    /* A workstation without a GPU may check files too, unless --sim names GPUs. */
    if (rc == 0 && read_gpus(&world, &inv, &no_gpus) < 0 && world.sim_lib[0])
        rc = sl_err_set(&err, no_gpus.code, "%s", no_gpus.msg);
    if (rc == 0 && inv)
        rc = sl_plan_make(config, inv, &plan, &err);
    struct view view = {strcmp(file, "-") == 0 ? STDIN_NAME : file, config, inv, plan, no_gpus.msg};
    int code;
    if (rc < 0) {
        code = refuse(args, &err);
    } else {
        if (sl_cli_value(args, "json"))
            print_json(&view, stdout);
        else
            print_text(&view, stdout);
        code = sl_cli_finish(SL_EXIT_OK);
    }
    sl_plan_free(plan);
    sl_inventory_free(inv);
    sl_config_free(config);
    return code;
}

#endif
