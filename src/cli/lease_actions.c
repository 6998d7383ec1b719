/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/lease_actions.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/errors.h"
#include "cli/lease_named.h"
#include "cli/table.h"
#include "container/cdi.h"
#include "share/share.h"

/* Where the leases of this command line are: its arbiter, its folder of specs. */
struct setting {
    struct sl_world world;
    char cdi_dir[PATH_MAX];
};

static int find_setting(const struct sl_cli_args *args, struct setting *ret, struct sl_err *err)
{
    int rc = sl_world_find(args, &ret->world, err);
    return rc < 0 ? rc
                  : sl_named_cdi_dir(sl_cli_value(args, "cdi-dir"), ret->cdi_dir,
                                     sizeof(ret->cdi_dir), err);
}

static int open_leases(const struct setting *set, bool start, struct sl_named *ret,
                       struct sl_err *err)
{
    int rc = sl_named_open(ret, &set->world, set->cdi_dir, start, err);
    if (rc == 0 && ret->restarted)
        sl_cli_complain(SL_E_LEASE_RESTARTED, set->world.place.dir);
    return rc;
}

/* --- create --- */

static bool searched_by_all(const char *cdi_dir)
{
    static const char *const dirs[] = {"/etc/cdi", "/run/cdi", SL_CDI_DIR};
    for (size_t i = 0; i < SL_ARRAY_LEN(dirs); i++)
        if (strcmp(cdi_dir, dirs[i]) == 0)
            return true;
    return false;
}

static void tell_created(const char *name, const char *cdi_dir)
{
    (void)printf("lease %s is made: start containers with --device sluice.io/lease=%s\n", name,
                 name);
    if (!searched_by_all(cdi_dir))
        (void)printf("the container tool must search %s for CDI specs: see sluice-lease(1)\n",
                     cdi_dir);
}

int sl_cmd_lease_create(const struct sl_cli_args *args, struct sl_err *err)
{
    struct setting set = {.cdi_dir = ""};
    struct sl_named leases;
    struct sl_msg_lease ask;
    struct sl_msg_created made;
    char libsluice[PATH_MAX];
    const char *name = args->rest[1];
    int rc = sl_named_check(name, err);
    if (rc == 0)
        rc = sl_world_lease(args, &ask, err);
    if (rc == 0)
        rc = sl_world_visible(&ask, err);
    if (rc == 0)
        rc = find_setting(args, &set, err);
    if (rc == 0)
        rc = sl_world_libsluice(&set.world, sl_cli_value(args, "libsluice"), libsluice,
                                sizeof(libsluice), err);
    if (rc == 0 && sl_cli_value(args, "libsluice"))
        rc = sl_world_libsluice_check(libsluice, err);
    if (rc == 0)
        rc = open_leases(&set, true, &leases, err);
    if (rc < 0)
        return rc;
    (void)snprintf(ask.name, sizeof(ask.name), "%s", name);
    rc = sl_named_create(&leases, &ask, libsluice, &made, err);
    if (rc == 0)
        sl_world_remark_hidden(&ask, &made, &leases.status, "lease");
    sl_named_close(&leases);
    if (rc == 0)
        tell_created(name, set.cdi_dir);
    return rc;
}

/* --- delete --- */

int sl_cmd_lease_delete(const struct sl_cli_args *args, struct sl_err *err)
{
    struct setting set = {.cdi_dir = ""};
    struct sl_named leases;
    const char *name = args->rest[1];
    int rc = sl_named_check(name, err);
    if (rc == 0)
        rc = find_setting(args, &set, err);
    if (rc == 0)
        rc = open_leases(&set, false, &leases, err);
    if (rc < 0)
        return rc;
    rc = sl_named_delete(&leases, name, sl_cli_value(args, "force"), err);
    sl_named_close(&leases);
    if (rc == 0)
        (void)printf("lease %s is deleted\n", name);
    return rc;
}

/* --- list --- */

static uint32_t gpu_index(const struct sl_named *n, const char *uuid)
{
    for (size_t i = 0; i < n->status.gpu_count; i++)
        if (strcmp(n->status.gpu[i].uuid, uuid) == 0)
            return n->status.gpu[i].index;
    return 0;
}

/* Somebody removed the spec while processes use the lease: it stays for them. */
static const char *state_of(const struct sl_named *n, const struct sl_msg_tenant *t)
{
    if (!sl_named_is_own(t)) /* its spec is a file of that user */
        return "another user's";
    return sl_named_has_spec(n, t) ? "ready" : "no spec";
}

static void print_lease(struct sl_table *table, const struct sl_named *n,
                        const struct sl_msg_tenant *t)
{
    char b[32];
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        uint64_t used = t->gpu[i].used_bytes + t->gpu[i].overhead_bytes;
        sl_table_cell(table, "%s", i ? "" : t->name);
        sl_table_cell(table, "%u", gpu_index(n, t->gpu[i].uuid));
        sl_table_cell(table, "%s", sl_format_bytes(t->gpu[i].limit_bytes, b, sizeof(b)));
        sl_table_cell(table, "%s", sl_format_bytes(used, b, sizeof(b)));
        if (i == 0 && t->cores_request_permille)
            sl_table_cell(
                table, "%s",
                sl_format_cores(t->cores_request_permille, t->cores_limit_permille, b, sizeof(b)));
        else
            sl_table_cell(table, "%s", i ? "" : "-");
        sl_table_cell(table, "%s", i ? "" : sl_priority_name(t->priority));
        (void)snprintf(b, sizeof(b), "%u", t->processes);
        sl_table_cell(table, "%s", i ? "" : b);
        sl_table_cell(table, "%s", i ? "" : state_of(n, t));
    }
}

static void print_table(const struct sl_named *n)
{
    static const struct sl_table_column columns[] = {
        {"LEASE", false}, {"GPU", true},       {"LIMIT", true}, {"USED", true},
        {"CORES", true},  {"PRIORITY", false}, {"PROCS", true}, {"STATE", false}};
    struct sl_table table;
    sl_table_init(&table, columns, SL_ARRAY_LEN(columns));
    for (size_t i = 0; i < n->status.tenant_count; i++)
        if (sl_named_is_lease(&n->status.tenant[i]))
            print_lease(&table, n, &n->status.tenant[i]);
    for (size_t i = 0; i < n->lost_count; i++) {
        sl_table_cell(&table, "%s", n->lost[i]);
        for (size_t c = 1; c + 1 < SL_ARRAY_LEN(columns); c++)
            sl_table_cell(&table, "-");
        sl_table_cell(&table, "lost");
    }
    if (table.cell_count == 0)
        (void)puts("no leases");
    else
        sl_table_print(&table, stdout, sl_table_colour(stdout));
}

static void json_begin(struct sl_json *j, const char *name, const char *state)
{
    char device[SL_CDI_NAME_SIZE];
    sl_json_begin(j, NULL, '{');
    sl_json_string(j, "name", name);
    sl_json_string(j, "state", state);
    if (sl_cdi_name(SL_CDI_LEASE, name, "", device, sizeof(device), NULL) == 0)
        sl_json_string(j, "device", device);
}

static void json_lease(struct sl_json *j, const struct sl_named *n, const struct sl_msg_tenant *t)
{
    char dir[PATH_MAX];
    json_begin(j, t->name, state_of(n, t));
    (void)sl_client_about(t->about, "cdi", dir, sizeof(dir));
    sl_json_string(j, "cdi_dir", dir);
    sl_json_uint(j, "processes", t->processes);
    sl_json_string(j, "priority", sl_priority_name(t->priority));
    sl_json_uint(j, "cores_request_permille", t->cores_request_permille);
    sl_json_uint(j, "cores_limit_permille", t->cores_limit_permille);
    sl_json_begin(j, "gpus", '[');
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        sl_json_begin(j, NULL, '{');
        sl_json_uint(j, "index", gpu_index(n, t->gpu[i].uuid));
        sl_json_string(j, "uuid", t->gpu[i].uuid);
        sl_json_uint(j, "limit_bytes", t->gpu[i].limit_bytes);
        sl_json_uint(j, "used_bytes", t->gpu[i].used_bytes + t->gpu[i].overhead_bytes);
        sl_json_end(j, '}');
    }
    sl_json_end(j, ']');
    sl_json_end(j, '}');
}

static void print_json(const struct sl_named *n)
{
    struct sl_json j;
    sl_json_init(&j, stdout);
    sl_json_begin(&j, NULL, '{');
    sl_json_begin(&j, "leases", '[');
    for (size_t i = 0; i < n->status.tenant_count; i++)
        if (sl_named_is_lease(&n->status.tenant[i]))
            json_lease(&j, n, &n->status.tenant[i]);
    for (size_t i = 0; i < n->lost_count; i++) {
        json_begin(&j, n->lost[i], "lost");
        sl_json_string(&j, "cdi_dir", n->cdi_dir);
        sl_json_end(&j, '}');
    }
    sl_json_end(&j, ']');
    sl_json_end(&j, '}');
}

int sl_cmd_lease_list(const struct sl_cli_args *args, struct sl_err *err)
{
    struct setting set = {.cdi_dir = ""};
    struct sl_named leases = {0};
    int rc = find_setting(args, &set, err);
    if (rc == 0)
        rc = open_leases(&set, false, &leases, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < leases.lost_count; i++)
        sl_cli_complain(SL_E_LEASE_LOST, leases.lost[i], leases.lost[i]);
    if (sl_cli_value(args, "json"))
        print_json(&leases);
    else
        print_table(&leases);
    sl_named_close(&leases);
    return 0;
}
