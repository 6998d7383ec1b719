/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/xalloc.h"
#include "cli/table.h"

static const unsigned json_levels[] = {90, 95, 100, 130};

struct sim_result *sl_sim_report_at(const struct sim_report *r, size_t trace, size_t policy,
                                    size_t seed)
{
    return &r->results[(trace * r->policy_count + policy) * r->seed_count + seed];
}

enum column { COLUMN_LEVEL, COLUMN_CHURN_UNALLOCATED, COLUMN_CHURN_REJECTED };

/* Mean over the seeds. */
static double cell(const struct sim_report *r, size_t trace, size_t policy, enum column what,
                   unsigned level)
{
    double sum = 0;
    for (size_t s = 0; s < r->seed_count; s++) {
        const struct sim_result *x = sl_sim_report_at(r, trace, policy, s);
        sum += what == COLUMN_LEVEL            ? x->unallocated[level]
               : what == COLUMN_CHURN_REJECTED ? x->rejected_gpu_percent
                                               : x->mean_unallocated;
    }
    return sum / (double)r->seed_count;
}

double sl_sim_report_mean(const struct sim_report *r, size_t trace, size_t policy, unsigned level)
{
    return cell(r, trace, policy, COLUMN_LEVEL, level);
}

static void print_table(const struct sim_report *r, enum column what, unsigned level, FILE *out)
{
    struct sl_table_column columns[SIM_MAX_POLICIES + 1] = {{"TRACE", SL_TABLE_LEFT}};
    for (size_t p = 0; p < r->policy_count; p++)
        columns[p + 1] =
            (struct sl_table_column){sl_place_policy_name(r->policies[p]), SL_TABLE_RIGHT};
    struct sl_table t;
    sl_table_init(&t, columns, r->policy_count + 1);
    for (size_t i = 0; i < r->trace_count; i++) {
        sl_table_cell(&t, "%.40s", r->traces[i]);
        for (size_t p = 0; p < r->policy_count; p++)
            sl_table_cell(&t, "%.2f", cell(r, i, p, what, level));
    }
    if (r->trace_count > 1) {
        sl_table_cell(&t, "mean");
        for (size_t p = 0; p < r->policy_count; p++) {
            double sum = 0;
            for (size_t i = 0; i < r->trace_count; i++)
                sum += cell(r, i, p, what, level);
            sl_table_cell(&t, "%.2f", sum / (double)r->trace_count);
        }
    }
    (void)sl_table_print(&t, out, sl_table_colour(out));
}

void sl_sim_report_tables(const struct sim_report *r, FILE *out)
{
    (void)fprintf(out, "%zu nodes, %llu GPUs; mean of %zu seed%s\n", r->cluster->count,
                  (unsigned long long)(r->cluster->gpu_milli / 1000), r->seed_count,
                  r->seed_count == 1 ? "" : "s");
    if (r->options->churn) {
        (void)fprintf(out, "\nGPU unallocated, %% of capacity, pods leaving, load %u %%\n",
                      r->options->load_percent);
        print_table(r, COLUMN_CHURN_UNALLOCATED, 0, out);
        (void)fprintf(out, "\nGPU demand rejected, %% of what arrived\n");
        print_table(r, COLUMN_CHURN_REJECTED, 0, out);
        return;
    }
    for (size_t l = 0; l < r->level_count; l++) {
        (void)fprintf(out, "\nGPU unallocated, %% of capacity, when %u %% has arrived\n",
                      r->levels[l]);
        print_table(r, COLUMN_LEVEL, r->levels[l], out);
    }
}

/* Ten seeds cannot tell hundredths apart; thousandths keep rounding errors out of comparisons. */
static double rounded(double x)
{
    return round(x * 1000) / 1000;
}

static void json_curve(struct sl_json *j, const char *key, const double *curve, unsigned samples)
{
    sl_json_begin(j, key, '{');
    for (size_t i = 0; i < SL_ARRAY_LEN(json_levels); i++) {
        char level[16];
        if (json_levels[i] >= samples)
            continue;
        (void)snprintf(level, sizeof(level), "%u", json_levels[i]);
        sl_json_double(j, level, rounded(curve[json_levels[i]]));
    }
    sl_json_end(j, '}');
}

static void json_run(struct sl_json *j, const struct sim_report *r, size_t trace, size_t policy,
                     size_t seed)
{
    const struct sim_result *x = sl_sim_report_at(r, trace, policy, seed);
    sl_json_begin(j, NULL, '{');
    sl_json_string(j, "trace", r->traces[trace]);
    sl_json_string(j, "policy", sl_place_policy_name(r->policies[policy]));
    sl_json_uint(j, "seed", r->seeds[seed]);
    sl_json_uint(j, "nodes", r->cluster->count);
    sl_json_uint(j, "gpus", r->cluster->gpu_milli / 1000);
    if (r->options->churn) {
        sl_json_uint(j, "load_percent", r->options->load_percent);
        sl_json_double(j, "mean_unallocated_percent", rounded(x->mean_unallocated));
    } else {
        json_curve(j, "unallocated_percent", x->unallocated, x->samples);
        json_curve(j, "fragmentation_percent", x->fragmentation, x->samples);
    }
    sl_json_uint(j, "pods", x->pods);
    sl_json_uint(j, "rejected_pods", x->rejected);
    sl_json_double(j, "rejected_gpu_percent", rounded(x->rejected_gpu_percent));
    sl_json_double(j, "seconds", rounded(x->wall_s));
    sl_json_uint(j, "decisions_per_second", (uint64_t)x->decisions_per_s);
    sl_json_end(j, '}');
}

void sl_sim_report_json(const struct sim_report *r, size_t trace, size_t policy, size_t seed,
                        FILE *out)
{
    SL_CLEANUP(free) char *text = NULL;
    size_t size = 0;
    FILE *memory = sl_xmemstream(&text, &size);
    struct sl_json j;
    sl_json_init(&j, memory);
    json_run(&j, r, trace, policy, seed);
    sl_xmemstream_close(memory);
    /* The writer indents, but tools want one run a line. Strings have no raw newline. */
    for (const char *s = text; *s;) {
        if (*s == '\n') {
            s += strspn(s, "\n ");
            continue;
        }
        fputc(*s++, out);
    }
    fputc('\n', out);
    (void)fflush(out); /* a reader of the output sees each run as it ends */
}
