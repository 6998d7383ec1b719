/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice simulate`: the command line, and the loop over traces, policies and seeds. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/quantity.h"
#include "base/xalloc.h"
#include "cli/cli.h"
#include "cli/errors.h"
#include "cli/simulate.h"
#include "cli/simulate_live.h"

#define DEFAULT_NODES 1213

struct job {
    struct sim_options options;
    struct sim_cluster cluster;
    struct sim_report report;
    const char *paths[SIM_MAX_TRACES]; /* "" = generated */
    char *path_text;                   /* the text that paths point into */
    const char *svg;
    bool json;
};

static int usage(struct sl_err *err, const char *option, const char *value, const char *want)
{
    return sl_err_set(err, -EINVAL, "--%s \"%.60s\": %s", option, value, want);
}

/* A whole number of an option; absent leaves *ret as it is. */
static int number(const struct sl_cli_args *args, const char *option, unsigned min, unsigned max,
                  unsigned *ret, struct sl_err *err)
{
    const char *s = sl_cli_value(args, option);
    char want[60];
    uint64_t v = 0;
    if (!s)
        return 0;
    (void)snprintf(want, sizeof(want), "a whole number from %u to %u is needed", min, max);
    const char *rest = sl_number_read(s, max, &v);
    if (!rest || *rest || v < min)
        return usage(err, option, s, want);
    *ret = (unsigned)v;
    return 0;
}

/* The index of a word in a NULL-terminated list; absent leaves *ret as it is. */
static int word(const struct sl_cli_args *args, const char *option, const char *const *words,
                unsigned *ret, const char *want, struct sl_err *err)
{
    const char *s = sl_cli_value(args, option);
    for (unsigned i = 0; s && words[i]; i++)
        if (strcmp(s, words[i]) == 0) {
            *ret = i;
            return 0;
        }
    return s ? usage(err, option, s, want) : 0;
}

static int parse_seeds(const char *s, struct sim_report *r, struct sl_err *err)
{
    static const char want[] = "write seeds as 42-51, or 1,2,3; at most 1000";
    const char *all = s;
    r->seed_count = 0;
    while (*s) {
        uint64_t a = 0, b = 0;
        const char *end = sl_number_read(s, UINT64_MAX, &a);
        b = a;
        if (end && *end == '-')
            end = sl_number_read(end + 1, UINT64_MAX, &b);
        if (!end || (*end && *end != ',') || b < a || b - a >= SIM_MAX_SEEDS ||
            r->seed_count + (b - a) >= SIM_MAX_SEEDS)
            return usage(err, "seeds", all, want);
        for (; a <= b; a++)
            r->seeds[r->seed_count++] = a;
        s = end + (*end == ',');
    }
    return r->seed_count ? 0 : usage(err, "seeds", all, want);
}

static int parse_policies(const char *s, struct sim_report *r, struct sl_err *err)
{
    r->policy_count = 0;
    while (*s) {
        char name[24];
        size_t n = strcspn(s, ",");
        enum sl_place_policy p;
        (void)snprintf(name, sizeof(name), "%.*s", (int)(n < 23 ? n : 23), s);
        int rc = sl_place_policy_parse(name, &p, err);
        if (rc)
            return rc;
        for (size_t i = 0; i < r->policy_count; i++)
            if (r->policies[i] == p)
                return usage(err, "policy", name, "this name is given twice");
        r->policies[r->policy_count++] = p;
        s += n + (s[n] == ',');
    }
    return r->policy_count ? 0 : usage(err, "policy", "", "give at least one name");
}

static int parse_levels(const char *s, struct sim_report *r, unsigned until, struct sl_err *err)
{
    const char *all = s;
    r->level_count = 0;
    while (*s) {
        uint64_t v = 0;
        const char *end = sl_number_read(s, until, &v);
        if (!end || (*end && *end != ',') || r->level_count == SIM_MAX_LEVELS)
            return usage(err, "at", all,
                         "write percentages up to --until, separated by commas: 90,100");
        r->levels[r->level_count++] = (unsigned)v;
        s = end + (*end == ',');
    }
    return 0;
}

static int parse_tuning(const char *s, struct sl_place_tuning *t, struct sl_err *err)
{
    const struct {
        const char *name;
        double *value;
    } names[] = {{"band", &t->band},
                 {"size-power", &t->size_power},
                 {"load", &t->load},
                 {"price-gpu", &t->price_gpu},
                 {"price-cpu", &t->price_cpu},
                 {"capacity", &t->capacity},
                 {"slot", &t->slot},
                 {"slot-from", &t->slot_from},
                 {"slot-margin", &t->slot_margin}};
    while (*s) {
        size_t n = strcspn(s, "="), i = 0;
        while (i < SL_ARRAY_LEN(names) &&
               (strlen(names[i].name) != n || strncmp(names[i].name, s, n) != 0))
            i++;
        char *end = NULL;
        double v = s[n] == '=' ? strtod(s + n + 1, &end) : 0;
        if (i == SL_ARRAY_LEN(names) || !end || end == s + n + 1 || (*end && *end != ',') ||
            !(fabs(v) <= 1000) || (names[i].value == &t->slot_from && v <= 0))
            return usage(err, "tune", s,
                         "write NAME=VALUE with band, size-power, load, price-gpu, price-cpu, "
                         "capacity, slot, slot-margin or slot-from");
        *names[i].value = v;
        s = end + (*end == ',');
    }
    return 0;
}

static int parse_strategy(const char *s, struct sim_options *o, struct sl_err *err)
{
    uint64_t n = 0;
    const char *end = s && strncmp(s, "slots:", 6) == 0 ? sl_number_read(s + 6, 100, &n) : NULL;
    if (s && strcmp(s, "exclusive") == 0)
        o->strategy = SIM_EXCLUSIVE;
    else if (s && strcmp(s, "mig") == 0)
        o->strategy = SIM_MIG;
    else if (end && !*end && n >= 2)
        o->strategy = SIM_SLOTS;
    else if (s && strcmp(s, "fractional") != 0)
        return usage(err, "strategy", s,
                     "write one of fractional, exclusive, mig, slots:N (N from 2 to 100)");
    o->slots = (unsigned)n;
    return 0;
}

/* The file's name without folder, extension and the prefix all of them share. */
static void short_name(const char *path, char *out, size_t size)
{
    static const char prefix[] = "openb_pod_list_";
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (strncmp(name, prefix, sizeof(prefix) - 1) == 0)
        name += sizeof(prefix) - 1;
    size_t n = strlen(name);
    if (n > 4 && strcmp(name + n - 4, ".csv") == 0)
        n -= 4;
    (void)snprintf(out, size, "%.*s", (int)(n < size ? n : size - 1), name);
}

static int add_trace(struct job *job, const char *path, struct sl_err *err)
{
    struct sim_report *r = &job->report;
    if (r->trace_count == SIM_MAX_TRACES)
        return sl_err_set(err, -EINVAL, SL_E_SIM_MANY_FILES, SIM_MAX_TRACES);
    job->paths[r->trace_count] = path;
    short_name(*path ? path : "generated", r->traces[r->trace_count], sizeof(r->traces[0]));
    r->trace_count++;
    return 0;
}

static int parse_traces(const struct sl_cli_args *args, struct job *job, struct sl_err *err)
{
    const char *pods = sl_cli_value(args, "pods");
    int rc = 0;
    if (pods) {
        job->path_text = sl_xstrdup(pods);
        char *save = NULL;
        for (char *s = strtok_r(job->path_text, ",", &save); !rc && s;
             s = strtok_r(NULL, ",", &save))
            rc = add_trace(job, s, err);
    }
    for (int i = 0; !rc && i < args->rest_count; i++)
        rc = add_trace(job, args->rest[i], err);
    if (!rc && job->report.trace_count == 0)
        rc = add_trace(job, "", err);
    return rc;
}

static int parse_churn(const struct sl_cli_args *args, struct sim_options *o, struct sl_err *err)
{
    static const char *const lifetimes[] = {"exponential", "trace", NULL};
    static const char *const only[] = {"load", "turnovers", "lifetimes"};
    unsigned lifetime = 0;
    o->churn = sl_cli_value(args, "churn") != NULL;
    for (size_t i = 0; !o->churn && i < SL_ARRAY_LEN(only); i++)
        if (sl_cli_value(args, only[i]))
            return sl_err_set(err, -EINVAL, SL_E_SIM_ONLY_CHURN, only[i]);
    if (o->churn && sl_cli_value(args, "svg"))
        return sl_err_set(err, -EINVAL, SL_E_SIM_SVG_CHURN);
    int rc = number(args, "load", 1, 1000, &o->load_percent, err);
    if (!rc)
        rc = number(args, "turnovers", 1, 100, &o->turnovers, err);
    if (!rc)
        rc = word(args, "lifetimes", lifetimes, &lifetime, "exponential or trace", err);
    o->lifetimes = (enum sim_lifetimes)lifetime;
    return rc;
}

static int parse_options(const struct sl_cli_args *args, struct job *job, struct sl_err *err)
{
    static const char *const memories[] = {"none", "same", "independent", NULL};
    struct sim_options *o = &job->options;
    struct sim_report *r = &job->report;
    const char *policies = sl_cli_value(args, "policy"), *seeds = sl_cli_value(args, "seeds");
    const char *tune = sl_cli_value(args, "tune"), *at = sl_cli_value(args, "at");
    unsigned memory = 0;
    *o = (struct sim_options){.until_percent = 130, .load_percent = 100, .turnovers = 2};
    sl_place_config_init(&o->place, SL_PLACE_SLUICE);
    job->json = sl_cli_value(args, "json") != NULL;
    job->svg = sl_cli_value(args, "svg");
    o->learn = sl_cli_value(args, "learn") != NULL;
    o->place.learn_every = o->learn ? 1000 : 0;
    int rc = parse_policies(policies ? policies : "best-fit,fgd,sluice", r, err);
    if (!rc)
        rc = parse_seeds(seeds ? seeds : "42-51", r, err);
    if (!rc)
        rc = number(args, "until", 1, SIM_CURVE - 1, &o->until_percent, err);
    if (!at)
        at = o->until_percent >= 100 ? "90,100" : "";
    if (!rc)
        rc = parse_levels(at, r, o->until_percent, err);
    if (!rc && !r->level_count)
        r->levels[r->level_count++] = o->until_percent;
    if (!rc)
        rc = parse_churn(args, o, err);
    if (!rc)
        rc = parse_strategy(sl_cli_value(args, "strategy"), o, err);
    if (!rc)
        rc = word(args, "gpu-memory", memories, &memory, "none, same or independent", err);
    o->memory = (enum sim_memory)memory;
    if (!rc && tune)
        rc = parse_tuning(tune, &o->place.tuning, err);
    if (!rc)
        rc = parse_traces(args, job, err);
    return rc;
}

static int load_cluster(const struct sl_cli_args *args, struct job *job, int *ret_exit,
                        struct sl_err *err)
{
    const char *file = sl_cli_value(args, "nodes"), *mix = sl_cli_value(args, "mix");
    unsigned count = DEFAULT_NODES;
    if (!!file + !!mix + !!sl_cli_value(args, "generate") > 1)
        return sl_err_set(err, -EINVAL, SL_E_SIM_CLUSTER_TWICE);
    if (file) {
        *ret_exit = SL_EXIT_FAILED;
        return sl_sim_cluster_load(file, &job->cluster, err);
    }
    if (mix)
        return sl_sim_cluster_parse_mix(mix, &job->cluster, err);
    int rc = number(args, "generate", 1, 1000000, &count, err);
    if (!rc)
        sl_sim_cluster_generate(count, &job->cluster);
    return rc;
}

/* A bar on a terminal, nothing elsewhere. */
static void progress(const struct job *job, size_t done, const char *what, uint64_t start_ns)
{
    size_t all = job->report.trace_count * job->report.policy_count * job->report.seed_count;
    if (!isatty(STDERR_FILENO) || all < 2)
        return;
    double seconds = (double)(sl_now_ns() - start_ns) / 1e9;
    int filled = (int)(30 * done / all);
    (void)fprintf(stderr, "\r\033[K[%.*s%.*s] %zu/%zu %s", filled, "##############################",
                  30 - filled, "..............................", done, all, what);
    if (done && done < all)
        (void)fprintf(stderr, ", %.0f s left", seconds * (double)(all - done) / (double)done);
    if (done == all)
        (void)fputs("\r\033[K", stderr);
    (void)fflush(stderr);
}

/* Every policy and seed on one trace. */
static int run_trace(struct job *job, size_t trace, uint64_t start_ns, struct sl_err *err)
{
    struct sim_report *r = &job->report;
    struct sim_pods raw = {0}, pods = {0};
    struct sim_cluster cluster = {0};
    const char *path = job->paths[trace];
    int rc = *path ? sl_sim_pods_load(path, &job->cluster.models, &raw, err) : 0;
    if (rc)
        return rc;
    if (!*path)
        sl_sim_pods_generate(1, &raw);
    sl_sim_transform(&job->options, &job->cluster, &raw, &cluster, &pods);
    for (size_t p = 0; !rc && p < r->policy_count; p++) {
        struct sim_options o = job->options;
        o.place.policy = r->policies[p];
        for (size_t s = 0; !rc && s < r->seed_count; s++) {
            size_t done = (trace * r->policy_count + p) * r->seed_count + s;
            progress(job, done, r->traces[trace], start_ns);
            rc =
                sl_sim_run(&cluster, &pods, &o, r->seeds[s], sl_sim_report_at(r, trace, p, s), err);
            if (!rc && job->json)
                sl_sim_report_json(r, trace, p, s, stdout);
        }
    }
    sl_sim_pods_fini(&raw);
    sl_sim_pods_fini(&pods);
    sl_sim_cluster_fini(&cluster);
    return rc;
}

static int write_svg(const struct job *job, struct sl_err *err)
{
    SL_CLEANUP(free) char *text = NULL;
    size_t size = 0;
    FILE *memory = sl_xmemstream(&text, &size);
    sl_sim_report_svg(&job->report, memory);
    sl_xmemstream_close(memory);
    /* Written, not replaced: it may be /dev/stdout, or a link. */
    FILE *out = fopen(job->svg, "we");
    bool written = out && fwrite(text, 1, size, out) == size;
    int cause = written ? 0 : errno;
    if (out && fclose(out) != 0 && written)
        cause = errno;
    return cause ? sl_err_errno(err, cause, "cannot write %s", job->svg) : 0;
}

#ifndef SLUICE_WITH_CLUSTER
static int live(const struct sl_cli_args *args)
{
    (void)args;
    sl_cli_complain(SL_E_CLUSTER_NOT_BUILT);
    return SL_EXIT_FAILED;
}
#else
#define live sl_sim_live
#endif

/* Only --live reads a cluster. */
static int check_live(const struct sl_cli_args *args, struct sl_err *err)
{
    static const char *const only[] = {"moves", "context", "kubeconfig"};
    for (size_t i = 0; i < SL_ARRAY_LEN(only); i++)
        if (sl_cli_value(args, only[i]))
            return sl_err_set(err, -EINVAL, SL_E_SIM_ONLY_LIVE, only[i]);
    return 0;
}

static int simulate(const struct sl_cli_args *args, struct job *job, int *ret_exit,
                    struct sl_err *err)
{
    /* A wrong word on the command line and a wrong file have different exit codes. */
    *ret_exit = SL_EXIT_USAGE;
    int rc = check_live(args, err);
    if (!rc)
        rc = parse_options(args, job, err);
    if (!rc)
        rc = load_cluster(args, job, ret_exit, err);
    if (rc)
        return rc;
    *ret_exit = SL_EXIT_FAILED;
    job->report.options = &job->options;
    job->report.cluster = &job->cluster;
    size_t runs = job->report.trace_count * job->report.policy_count * job->report.seed_count;
    job->report.results = sl_xcalloc(runs, sizeof(*job->report.results));
    uint64_t start_ns = sl_now_ns();
    for (size_t t = 0; !rc && t < job->report.trace_count; t++)
        rc = run_trace(job, t, start_ns, err);
    if (rc)
        return rc;
    progress(job, runs, "", start_ns);
    if (!job->json)
        sl_sim_report_tables(&job->report, stdout);
    return job->svg ? write_svg(job, err) : 0;
}

int sl_cmd_simulate(const struct sl_cli_args *args)
{
    struct sl_err err = SL_ERR_INIT;
    if (sl_cli_value(args, "live"))
        return live(args);
    struct job *job = sl_xcalloc(1, sizeof(*job));
    int code = SL_EXIT_FAILED;
    if (simulate(args, job, &code, &err) != 0)
        sl_cli_complain("simulate: %s", err.msg);
    else
        code = SL_EXIT_OK;
    free(job->report.results);
    sl_sim_cluster_fini(&job->cluster);
    free(job->path_text);
    free(job);
    return sl_cli_finish(code);
}
