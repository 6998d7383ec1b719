/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/config_view.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "cli/table.h"

/* The devices behind a resource, each once: consecutive replicas are of one device. */
static size_t next_device(const struct sl_plan_resource *r, size_t at)
{
    size_t end = at + 1;
    while (end < r->device_count && r->device[end].gpu == r->device[at].gpu &&
           r->device[end].mig == r->device[at].mig)
        end++;
    return end;
}

/* "GPU 0, 1" or "GPU 0:0, 0:1, 1:0"; what does not fit is counted. */
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
    static const struct sl_table_column columns[] = {{"RESOURCE", false}, {"COUNT", true},
                                                     {"SHARING", false},  {"REPLICAS", true},
                                                     {"A POD", false},    {"OF", false}};
    struct sl_table t;
    sl_table_init(&t, columns, SL_ARRAY_LEN(columns));
    for (size_t i = 0; i < plan->resource_count; i++) {
        const struct sl_plan_resource *r = &plan->resource[i];
        char of[SL_TABLE_CELL], each[24];
        describe(r, of, sizeof(of));
        replicas(r, each, sizeof(each));
        sl_table_cell(&t, "%s", r->name);
        sl_table_cell(&t, "%zu", r->device_count);
        sl_table_cell(&t, "%s", sl_config_sharing_name(r->sharing));
        sl_table_cell(&t, "%s", each);
        sl_table_cell(&t, "%s", r->fail_requests_greater_than_one ? "at most 1" : "any");
        sl_table_cell(&t, "%s", of);
    }
    sl_table_print(&t, out, false);
    sl_table_free(&t);
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

void sl_config_view_text(const struct sl_config_view *v, FILE *out)
{
    sl_config_print(v->config, out);
    (void)fputs("#\n", out);
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

void sl_config_view_json(const struct sl_config_view *v, FILE *out)
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
