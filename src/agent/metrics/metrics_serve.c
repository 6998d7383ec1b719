/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/metrics/metrics_serve.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/tenant/leases.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/xalloc.h"
#include "sluice/pages.h"

#define TIMEOUT_NS    (2 * SL_NS_PER_S)
#define SAMPLE_AGE_NS (10 * SL_NS_PER_S)
#define LAG_EVERY_NS  SL_NS_PER_S

enum { SCRAPES = 16 };

enum part { PART_SAMPLE = 1, PART_PODS = 2, PART_ARBITER = 4 };

struct sl_exporter {
    struct sl_loop *loop;
    struct sl_exporter_options opt;
    struct sl_leases *arbiter;
    struct sl_http_call *call[SCRAPES];
    size_t calls;
    unsigned missing; /* enum part: the answers that this gathering still waits for */
    bool gathering, starting;
    struct sl_timer timeout;
    /* From NVML */
    bool sampling; /* asked and not answered, maybe since an earlier scrape */
    struct sl_gpu_sampled *numbers;
    size_t numbers_count;
    uint64_t numbers_ns;
    bool nvml_up, podres_up, arbiter_up;
    struct sl_client_status status;
    /* How late the loop runs its timers. */
    struct sl_timer lag;
    uint64_t lag_ns;
};

static void lag_fire(struct sl_timer *timer)
{
    struct sl_exporter *x = sl_container_of(timer, struct sl_exporter, lag);
    uint64_t now = sl_loop_now(x->loop);
    if (now > timer->at_ns && now - timer->at_ns > x->lag_ns)
        x->lag_ns = now - timer->at_ns;
    sl_timer_set(x->loop, timer, now + LAG_EVERY_NS);
}

/* ---- joins the parts of a scrape ---- */

static void fill_process(struct sl_metrics_agent *a)
{
    struct rusage usage;
    long pages = 0;
    a->resident_bytes = a->open_fds = a->cpu_seconds = (double)NAN;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        a->cpu_seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                         (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    SL_CLEANUP(fclose) FILE *statm = fopen("/proc/self/statm", "re");
    if (statm && fscanf(statm, "%*d %ld", &pages) == 1)
        a->resident_bytes = (double)pages * (double)sysconf(_SC_PAGESIZE);
    SL_CLEANUP(closedir) DIR *fds = opendir("/proc/self/fd");
    if (!fds)
        return;
    a->open_fds = -3; /* ".", ".." and this directory's descriptor */
    while (readdir(fds))
        a->open_fds += 1;
}

/* Adds the figures of NVML and kubelet to the agent's devices. */
static void fill_devices(const struct sl_exporter *x, struct sl_metrics *m)
{
    for (size_t j = 0; j < x->numbers_count; j++) {
        const struct sl_gpu_sampled *n = &x->numbers[j];
        for (size_t i = 0; i < m->gpu_count; i++)
            if (strcmp(n->uuid, m->gpu[i].uuid) == 0)
                m->gpu[i].now = n->now;
        for (size_t i = 0; i < m->mig_count; i++)
            if (strcmp(n->uuid, m->mig[i].uuid) == 0)
                m->mig[i].memory_used_bytes = n->now.memory_used_bytes;
    }
    for (size_t i = 0; x->podres_up && i < m->resource_count; i++)
        if (isnan(m->resource[i].in_use))
            m->resource[i].in_use =
                (double)sl_podres_in_use(sl_podres_last(x->opt.podres), m->resource[i].of.name);
}

static size_t fill_compute(struct sl_exporter *x, struct sl_metrics_compute *out)
{
    for (size_t i = 0; i < x->status.gpu_count; i++) {
        struct sl_msg_gpu *g = &x->status.gpu[i];
        bool turns = g->compute == SL_COMPUTE_TURNS;
        char *bracket = strstr(g->compute_why, " (");
        if (bracket)
            *bracket = '\0';
        out[i] = (struct sl_metrics_compute){
            .gpu = g->uuid, .turns = turns, .why = turns ? g->compute_why : NULL};
    }
    return x->status.gpu_count;
}

static void fill_owner(const struct sl_exporter *x, const struct sl_msg_tenant *t,
                       struct sl_tenant_owner *ret)
{
    *ret = (struct sl_tenant_owner){0};
    bool known =
        sl_client_about(t->about, "namespace", ret->pod_namespace, sizeof(ret->pod_namespace));
    known |= sl_client_about(t->about, "pod", ret->pod, sizeof(ret->pod));
    known |= sl_client_about(t->about, "container", ret->container, sizeof(ret->container));
    known |= sl_client_about(t->about, "claim", ret->claim, sizeof(ret->claim));
    if (!known && x->opt.owner)
        x->opt.owner(x->opt.data, t->name, x->opt.podres ? sl_podres_last(x->opt.podres) : NULL,
                     ret);
}

static double permille(uint32_t value)
{
    return value ? (double)value / 1000.0 : (double)NAN;
}

static size_t fill_tenants(const struct sl_exporter *x, struct sl_metrics_tenant *out,
                           struct sl_tenant_owner *owners)
{
    size_t n = 0;
    for (size_t i = 0; i < x->status.tenant_count; i++) {
        const struct sl_msg_tenant *t = &x->status.tenant[i];
        fill_owner(x, t, &owners[i]);
        for (size_t g = 0; g < t->gpu_count; g++) {
            bool limited = t->gpu[g].limit_bytes != SL_NO_LIMIT;
            out[n++] = (struct sl_metrics_tenant){
                .tenant = t->name,
                .pod_namespace = owners[i].pod_namespace,
                .pod = owners[i].pod,
                .container = owners[i].container,
                .claim = owners[i].claim,
                .gpu = t->gpu[g].uuid,
                .memory_limit_bytes = limited ? (double)t->gpu[g].limit_bytes : (double)NAN,
                .memory_used_bytes = (double)(t->gpu[g].used_bytes + t->gpu[g].overhead_bytes),
                .share_request_ratio = permille(t->cores_request_permille),
                .share_limit_ratio = permille(t->cores_limit_permille),
                .share_ratio = (double)t->share_1s_permille / 1000.0,
                .used_seconds = (double)t->used_ns / (double)SL_NS_PER_S,
                .waited_seconds = (double)t->waited_ns / (double)SL_NS_PER_S,
                .launches = t->launches,
                .oom = t->oom_count,
                .processes = t->processes,
            };
        }
    }
    return n;
}

static void fill_own(struct sl_exporter *x, struct sl_metrics_agent *a)
{
    char why[256];
    uint64_t now = sl_loop_now(x->loop);
    a->nvml_up = x->nvml_up;
    a->has_arbiter = x->arbiter != NULL;
    a->arbiter_up = x->arbiter_up;
    a->podres_up = x->podres_up;
    a->sample_age_seconds =
        x->numbers ? (double)(now - x->numbers_ns) / (double)SL_NS_PER_S : (double)NAN;
    a->loop_lag_seconds = (double)x->lag_ns / (double)SL_NS_PER_S;
    x->lag_ns = 0;
    a->ready = !x->opt.ready || x->opt.ready(x->opt.data, why, sizeof(why));
    fill_process(a);
}

static char *make_text(struct sl_exporter *x, size_t *ret_size)
{
    struct sl_metrics m = {0};
    size_t rows = 0;
    if (x->opt.fill)
        x->opt.fill(x->opt.data, &m);
    for (size_t i = 0; i < x->status.tenant_count; i++)
        rows += x->status.tenant[i].gpu_count;
    m.tenant = sl_xcalloc(rows, sizeof(*m.tenant));
    m.compute = sl_xcalloc(x->status.gpu_count, sizeof(*m.compute));
    SL_CLEANUP(free)
    struct sl_tenant_owner *owners = sl_xcalloc(x->status.tenant_count, sizeof(*owners));
    fill_devices(x, &m);
    m.compute_count = fill_compute(x, m.compute);
    m.tenant_count = fill_tenants(x, m.tenant, owners);
    fill_own(x, &m.agent);
    m.names = x->opt.names;
    char *text = sl_metrics_text(&m, ret_size);
    sl_metrics_clear(&m);
    return text;
}

/* ---- gathering ---- */

static void say(struct sl_http_call *call, unsigned status, const char *text)
{
    sl_http_answer(call, status, "text/plain; charset=utf-8", text, strlen(text));
}

static void finish(struct sl_exporter *x)
{
    size_t size = 0;
    x->gathering = false;
    sl_timer_stop(x->loop, &x->timeout);
    char *text = make_text(x, &size);
    size_t count = x->calls;
    x->calls = 0;
    for (size_t i = 0; i < count; i++)
        sl_http_answer(x->call[i], 200, SL_METRICS_CONTENT_TYPE, text, size);
    free(text);
}

static void got(struct sl_exporter *x, enum part part)
{
    x->missing &= ~(unsigned)part;
    if (x->gathering && !x->starting && !x->missing)
        finish(x);
}

void sl_exporter_sampled(struct sl_exporter *exporter, const struct sl_gpu_sampled *numbers,
                         size_t count, const struct sl_err *err)
{
    exporter->sampling = false;
    exporter->nvml_up = !err;
    if (!err) {
        struct sl_gpu_sampled *copy = sl_xcalloc(count + 1, sizeof(*copy));
        memcpy(copy, numbers, count * sizeof(*copy));
        free(exporter->numbers);
        exporter->numbers = copy;
        exporter->numbers_count = count;
        exporter->numbers_ns = sl_loop_now(exporter->loop);
    }
    got(exporter, PART_SAMPLE);
}

static void got_pods(void *data, const struct sl_podres_map *map, const struct sl_err *err)
{
    struct sl_exporter *x = data;
    x->podres_up = map && !err;
    got(x, PART_PODS);
}

static void got_status(void *data, struct sl_client_status *status, const struct sl_err *err)
{
    (void)err;
    struct sl_exporter *x = data;
    sl_client_status_free(&x->status);
    x->arbiter_up = status != NULL;
    if (status)
        x->status = *status;
    got(x, PART_ARBITER);
}

/* A part that did not answer in time: not up. Its old figures are served where an age goes with them. */
static void timeout_fire(struct sl_timer *timer)
{
    struct sl_exporter *x = sl_container_of(timer, struct sl_exporter, timeout);
    if (x->missing & PART_SAMPLE)
        x->nvml_up = false;
    if (x->missing & PART_PODS) {
        sl_podres_forget(x->opt.podres, x);
        x->podres_up = false;
    }
    if (x->missing & PART_ARBITER) {
        sl_leases_forget(x->arbiter, x);
        sl_client_status_free(&x->status);
        x->arbiter_up = false;
    }
    x->missing = 0;
    finish(x);
}

static void gather(struct sl_exporter *x)
{
    uint64_t now = sl_loop_now(x->loop);
    bool old = !x->numbers || now - x->numbers_ns >= x->opt.sample_age_ns;
    bool want_sample = x->opt.sample && (x->sampling || old);
    x->gathering = x->starting = true;
    x->missing = (want_sample ? PART_SAMPLE : 0U) | (x->opt.podres ? PART_PODS : 0U) |
                 (x->arbiter ? PART_ARBITER : 0U);
    sl_timer_set(x->loop, &x->timeout, now + x->opt.timeout_ns);
    if (want_sample && !x->sampling) {
        x->sampling = true;
        x->opt.sample(x->opt.data, x);
    }
    if (x->opt.podres)
        sl_podres_get(x->opt.podres, got_pods, x);
    if (x->arbiter)
        sl_leases_status(x->arbiter, true, got_status, x);
    x->starting = false;
    if (!x->missing)
        finish(x);
}

/* ---- HTTP ---- */

static void answer_ready(struct sl_exporter *x, struct sl_http_call *call)
{
    char why[256] = "", text[300];
    if (!x->opt.ready || x->opt.ready(x->opt.data, why, sizeof(why))) {
        say(call, 200, "ok\n");
        return;
    }
    (void)snprintf(text, sizeof(text), "not ready: %s\n", why);
    say(call, 503, text);
}

static void answer_metrics(struct sl_exporter *x, struct sl_http_call *call)
{
    if (x->calls == SCRAPES) {
        say(call, 503, "too many scrapes at once\n");
        return;
    }
    x->call[x->calls++] = call;
    if (!x->gathering)
        gather(x);
}

void sl_exporter_handle(void *data, struct sl_http_call *call,
                        const struct sl_http_request *request)
{
    struct sl_exporter *x = data;
    bool metrics = strcmp(request->path, "/metrics") == 0;
    bool health = strcmp(request->path, "/healthz") == 0;
    static const char others[] = "sluiced: /metrics, /healthz, /readyz\n";
    if (!metrics && !health && strcmp(request->path, "/readyz") != 0)
        sl_http_answer(call, 404, "text/plain", others, sizeof(others) - 1);
    else if (strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0)
        say(call, 405, "only GET and HEAD\n");
    else if (metrics)
        answer_metrics(x, call);
    else if (health)
        say(call, 200, "ok\n"); /* an answer shows that the loop runs */
    else
        answer_ready(x, call);
}

void sl_exporter_gone(void *data, struct sl_http_call *call)
{
    struct sl_exporter *x = data;
    for (size_t i = 0; i < x->calls; i++) {
        if (x->call[i] == call) {
            x->call[i] = x->call[--x->calls];
            return;
        }
    }
}

struct sl_exporter *sl_exporter_create(struct sl_loop *loop, const struct sl_exporter_options *opt)
{
    struct sl_exporter *x = sl_xcalloc(1, sizeof(*x));
    x->loop = loop;
    x->opt = *opt;
    x->opt.timeout_ns = opt->timeout_ns ? opt->timeout_ns : TIMEOUT_NS;
    x->opt.sample_age_ns = opt->sample_age_ns ? opt->sample_age_ns : SAMPLE_AGE_NS;
    x->timeout.fire = timeout_fire;
    x->lag.fire = lag_fire;
    sl_timer_set(loop, &x->lag, sl_loop_now(loop) + LAG_EVERY_NS);
    return x;
}

int sl_exporter_arbiter(struct sl_exporter *exporter, const struct sl_arbiter_dir *place,
                        struct sl_err *err)
{
    return exporter->arbiter ? 0
                             : sl_leases_create(exporter->loop, place->dir,
                                                exporter->opt.timeout_ns, &exporter->arbiter, err);
}

void sl_exporter_destroy(struct sl_exporter *exporter)
{
    if (!exporter)
        return;
    sl_timer_stop(exporter->loop, &exporter->timeout);
    sl_timer_stop(exporter->loop, &exporter->lag);
    if (exporter->opt.podres)
        sl_podres_forget(exporter->opt.podres, exporter);
    sl_leases_destroy(exporter->arbiter);
    sl_client_status_free(&exporter->status);
    for (size_t i = 0; i < exporter->calls; i++)
        say(exporter->call[i], 503, "the agent is stopping\n");
    free(exporter->numbers);
    free(exporter);
}
