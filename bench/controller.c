/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement at scale: 5,000 nodes of 8 GPUs. In process: filter and bind through the cluster's books. As a program: the
 * real sluice-controller with a fake API server behind it that knows 5,000 nodes and 50,000 pods; its memory, how long
 * a filter takes over HTTP on loopback, and filters with binds.
 * Usage: bench_controller SLUICE-CONTROLLER [JSON-FILE]
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/xalloc.h"
#include "controller/extender.h"
#include "http/server.h"
#include "../tests/support/cluster_audit.h"

enum {
    NODES = 5000,
    GPUS = 8,
    CARD_MIB = 81920,
    PODS = 50000,
    IN_PROCESS = 20000,
    FILTERS = 2000,
    BINDS = 1000
};
static const double BAR_DECISIONS = 1000, BAR_P99_MS = 5, BAR_RSS_MIB = 300;

struct figures {
    double decisions_s, p50_ms, p99_ms, p50_all_ms, p99_all_ms, http_binds_s, rss_mib, start_s;
};

static void check(int rc, const struct sl_err *err, const char *what)
{
    if (rc >= 0)
        return;
    (void)fprintf(stderr, "bench_controller: %s: %s\n", what, err->msg);
    exit(1);
}

/* --- the cluster ------------------------------------------------------------------------------ */

static void put_node(FILE *t, int n)
{
    (void)fprintf(t,
                  "{\"metadata\":{\"name\":\"node-%05d\",\"resourceVersion\":\"1\","
                  "\"annotations\":{\"sluice.io/gpus\":\"[",
                  n);
    for (int g = 0; g < GPUS; g++)
        (void)fprintf(
            t,
            "%s{\\\"uuid\\\":\\\"GPU-%05d-%d-5ee1-4c0d-9a3b-0123456789ab\\\",\\\"memoryMiB\\\":%d,"
            "\\\"cores\\\":100,\\\"model\\\":\\\"NVIDIA H100 80GB HBM3\\\",\\\"numa\\\":%d,"
            "\\\"healthy\\\":true}",
            g ? "," : "", n, g, CARD_MIB, g / 4);
    (void)fputs("]\"}},\"status\":{\"allocatable\":{\"cpu\":\"128\",\"memory\":\"1Ti\"}}}", t);
}

/* The sizes of shares, over and over: MiB and percent. */
static const struct {
    int mib, cores;
} sizes[] = {{10240, 20}, {4096, 5}, {20480, 25}, {8192, 0}};

/* Pod i is on node i / 10 and on GPU i % 8 of it, so that nothing is over-committed. */
static void put_pod(FILE *t, int i)
{
    int node = i / (PODS / NODES), mib = 8192, cores = 10;
    (void)fprintf(t,
                  "{\"metadata\":{\"name\":\"pod-%d\",\"namespace\":\"ns-%d\",\"uid\":\"%08d-1111-"
                  "2222-3333-444444444444\","
                  "\"resourceVersion\":\"1\",\"labels\":{\"app\":\"inference\"},\"annotations\":{"
                  "\"sluice.io/lease\":\"",
                  i, i % 50, i);
    (void)fprintf(t,
                  "{\\\"version\\\":1,\\\"node\\\":\\\"node-%05d\\\",\\\"containers\\\":[{"
                  "\\\"name\\\":\\\"main\\\",\\\"gpus\\\":["
                  "{\\\"uuid\\\":\\\"GPU-%05d-%d-5ee1-4c0d-9a3b-0123456789ab\\\","
                  "\\\"memoryMiB\\\":%d,\\\"cores\\\":%d}]}]}\"}},",
                  node, node, i % GPUS, mib, cores);
    (void)fprintf(t,
                  "\"spec\":{\"nodeName\":\"node-%05d\",\"containers\":[{\"name\":\"main\","
                  "\"image\":\"registry/app:1\",\"resources\":"
                  "{\"requests\":{\"cpu\":\"2\",\"memory\":\"8Gi\"},\"limits\":{\"nvidia.com/"
                  "gpu\":\"1\"}}}]},\"status\":{\"phase\":\"Running\"}}",
                  node);
}

/* A pod to be placed, with so many candidates. */
static char *filter_body(unsigned long i, int candidates, uint64_t *rng)
{
    char *text;
    size_t size;
    FILE *t = sl_xmemstream(&text, &size);
    int k = (int)(i % (sizeof(sizes) / sizeof(sizes[0])));
    (void)fprintf(t,
                  "{\"Pod\":{\"metadata\":{\"name\":\"new-%lu\",\"namespace\":\"bench\",\"uid\":"
                  "\"new-%lu\",\"annotations\":{"
                  "\"sluice.io/"
                  "request\":\"{\\\"version\\\":1,\\\"containers\\\":1,\\\"parts\\\":[{"
                  "\\\"container\\\":\\\"main\\\","
                  "\\\"gpus\\\":1,\\\"memoryMiB\\\":%d,\\\"cores\\\":%d}]}\"}},\"spec\":{"
                  "\"containers\":[{\"name\":\"main\",\"resources\":"
                  "{\"requests\":{\"cpu\":\"2\"},\"limits\":{\"nvidia.com/"
                  "gpu\":\"1\"}}}]}},\"Nodes\":null,\"NodeNames\":[",
                  i, i, sizes[k].mib, sizes[k].cores);
    *rng = *rng * 6364136223846793005ULL + 1442695040888963407ULL;
    int first = (int)((*rng >> 33) % NODES);
    for (int n = 0; n < candidates; n++)
        (void)fprintf(t, "%s\"node-%05d\"", n ? "," : "", (first + n) % NODES);
    (void)fputs("]}", t);
    sl_xmemstream_close(t);
    return text;
}

static int by_time(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* --- in process ------------------------------------------------------------------------------- */

static void in_process(struct figures *f)
{
    struct sl_cluster_options opt = {.policy = SL_PLACE_SLUICE, .seed = 1};
    struct sl_cluster *c = NULL;
    struct sl_err err = SL_ERR_INIT;
    check(sl_cluster_create(&opt, &c, &err), &err, "cluster");
    for (int n = 0; n < NODES; n++) {
        char *text;
        size_t size;
        FILE *t = sl_xmemstream(&text, &size);
        put_node(t, n);
        sl_xmemstream_close(t);
        json_t *j = json_loads(text, 0, NULL);
        check(sl_cluster_node_set(c, j, &err), &err, "node");
        json_decref(j);
        free(text);
    }
    struct sl_request r = {.part_count = 1, .containers = 1};
    (void)snprintf(r.part[0].container, sizeof(r.part[0].container), "main");
    r.part[0].count = 1;
    r.part[0].same_as = -1;
    uint64_t began = sl_now_ns();
    for (unsigned i = 0; i < IN_PROCESS; i++) {
        char uid[32];
        const char *node;
        struct sl_promise promise;
        if (i == IN_PROCESS / 4)
            sl_cluster_learn(c); /* its time counts */
        (void)snprintf(uid, sizeof(uid), "uid-%u", i);
        r.part[0].share.memory_bytes = (uint64_t)sizes[i % 4].mib << 20;
        r.part[0].share.cores_permille = (uint32_t)sizes[i % 4].cores * 10;
        struct sl_cluster_ask ask = {
            .uid = uid, .name_space = "ns", .request = &r, .cpu_milli = 2000};
        check(sl_cluster_choose(c, &ask, 1, &node, &err), &err, "choose");
        check(sl_cluster_bind_begin(c, uid, node, 1, &promise, &err), &err, "bind");
        char *lease = sl_promise_lease_text(&promise);
        sl_cluster_bind_end(c, uid, SL_CLUSTER_BOUND, lease, 1);
        free(lease);
    }
    f->decisions_s = IN_PROCESS / ((double)(sl_now_ns() - began) / 1e9);
    check(cluster_audit(c, &err), &err, "audit");
    sl_cluster_destroy(c);
}

/* --- the fake API server, a process of its own ------------------------------------------------- */

static void list(struct sl_http_call *call, const char *query, int total, void (*put)(FILE *, int))
{
    const char *at = strstr(query, "continue=");
    int from = at ? atoi(at + 9) : 0;
    char *text;
    size_t size;
    FILE *t = sl_xmemstream(&text, &size);
    (void)fputs("{\"kind\":\"List\",\"apiVersion\":\"v1\",\"items\":[", t);
    int i = from;
    for (; i < total && i < from + 500; i++) {
        if (i > from)
            (void)fputs(",", t);
        put(t, i);
    }
    (void)fprintf(t, "],\"metadata\":{\"resourceVersion\":\"1\"");
    if (i < total)
        (void)fprintf(t, ",\"continue\":\"%d\"", i);
    (void)fputs("}}", t);
    sl_xmemstream_close(t);
    sl_http_answer(call, 200, "application/json", text, size);
    free(text);
}

static void api(void *data, struct sl_http_call *call, const struct sl_http_request *r)
{
    (void)data;
    if (strstr(r->query, "watch="))
        return; /* nothing ever happens */
    if (strcmp(r->path, "/api/v1/nodes") == 0)
        list(call, r->query, NODES, put_node);
    else if (strcmp(r->path, "/api/v1/pods") == 0)
        list(call, r->query, PODS, put_pod);
    else
        sl_http_answer(call, 200, "application/json", "{}", 2);
}

static void gone(void *data, struct sl_http_call *call)
{
    (void)data;
    (void)call;
}

static pid_t start_api(unsigned *port)
{
    int ends[2];
    if (pipe(ends) != 0)
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        struct sl_err err = SL_ERR_INIT;
        struct sl_loop *loop = NULL;
        struct sl_http_server *server = NULL;
        struct sl_http_server_options opt = {.address = "127.0.0.1:0", .handle = api, .gone = gone};
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        check(sl_loop_create(NULL, &loop, &err), &err, "loop");
        check(sl_http_server_create(loop, &opt, &server, &err), &err, "fake API server");
        unsigned p = sl_http_server_port(server);
        if (write(ends[1], &p, sizeof(p)) != sizeof(p))
            exit(1);
        for (;;)
            check(sl_loop_step(loop, -1, &err), &err, "step");
    }
    if (read(ends[0], port, sizeof(*port)) != sizeof(*port))
        exit(1);
    return pid;
}

/* --- a client --------------------------------------------------------------------------------- */

static unsigned free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        exit(1);
    (void)close(fd);
    return ntohs(at.sin_port);
}

static int dial(unsigned port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0) {
        (void)close(fd);
        return -1;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

/* One request on a kept connection; the answer's body is in buf. The status. */
static int ask(int fd, const char *method, const char *path, const char *body, char *buf,
               size_t room)
{
    char head[256];
    size_t size = body ? strlen(body) : 0, have = 0;
    int n = snprintf(head, sizeof(head),
                     "%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: "
                     "application/json\r\nContent-Length: %zu\r\n\r\n",
                     method, path, size);
    if (write(fd, head, (size_t)n) != n)
        return -1;
    for (size_t sent = 0; sent < size;) {
        ssize_t k = write(fd, body + sent, size - sent);
        if (k <= 0)
            return -1;
        sent += (size_t)k;
    }
    for (;;) {
        ssize_t k = read(fd, buf + have, room - have - 1);
        if (k <= 0)
            return -1;
        have += (size_t)k;
        buf[have] = '\0';
        char *end = strstr(buf, "\r\n\r\n"), *length = strcasestr(buf, "content-length:");
        if (!end || !length)
            continue;
        size_t want = (size_t)(end + 4 - buf) + strtoul(length + 15, NULL, 10);
        if (have < want)
            continue;
        int status = atoi(buf + 9);
        memmove(buf, end + 4, have - (size_t)(end + 4 - buf) + 1);
        return status;
    }
}

static char answer_text[1 << 20];

static void latencies(int fd, int candidates, unsigned count, double *p50, double *p99)
{
    static double took[FILTERS];
    uint64_t rng = 5;
    for (unsigned i = 0; i < count; i++) {
        char *body = filter_body(i % 500 + (unsigned)candidates * 1000u, candidates, &rng);
        uint64_t began = sl_now_ns();
        int status = ask(fd, "POST", "/filter", body, answer_text, sizeof(answer_text));
        took[i] = (double)(sl_now_ns() - began) / 1e6;
        if (status != 200 || !strstr(answer_text, "\"NodeNames\":[\"node-")) {
            (void)fprintf(stderr, "bench_controller: filter: %d %.200s\n", status, answer_text);
            exit(1);
        }
        free(body);
    }
    qsort(took, count, sizeof(took[0]), by_time);
    *p50 = took[count / 2];
    *p99 = took[count * 99 / 100];
}

static double filters_and_binds(int fd)
{
    uint64_t rng = 9, began = sl_now_ns();
    for (unsigned i = 0; i < BINDS; i++) {
        unsigned long number = 90000000ul + i;
        char *body = filter_body(number, 500, &rng), bind_body[256], *node, *end;
        if (ask(fd, "POST", "/filter", body, answer_text, sizeof(answer_text)) != 200 ||
            !(node = strstr(answer_text, "\"NodeNames\":[\"node-")) ||
            !(end = strchr(node + 14, '"')))
            exit(1);
        *end = '\0';
        (void)snprintf(bind_body, sizeof(bind_body),
                       "{\"PodName\":\"new-%lu\",\"PodNamespace\":\"bench\",\"PodUID\":\"new-%lu\","
                       "\"Node\":\"%s\"}",
                       number, number, node + 14);
        if (ask(fd, "POST", "/bind", bind_body, answer_text, sizeof(answer_text)) != 200 ||
            !strstr(answer_text, "\"Error\":\"\"")) {
            (void)fprintf(stderr, "bench_controller: bind: %.200s\n", answer_text);
            exit(1);
        }
        free(body);
    }
    return BINDS / ((double)(sl_now_ns() - began) / 1e9);
}

static double rss_mib(pid_t pid)
{
    char path[64], line[128];
    double kib = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, "VmHWM:", 6) == 0) /* the most it ever had */
            kib = strtod(line + 6, NULL);
    if (f)
        (void)fclose(f);
    return kib / 1024;
}

static void as_program(const char *program, struct figures *f)
{
    unsigned api_port, extender = free_port(), metrics = free_port();
    pid_t server = start_api(&api_port);
    uint64_t began = sl_now_ns();
    pid_t pid = fork();
    if (pid == 0) {
        char url[64], e[64], m[64];
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u", api_port);
        (void)snprintf(e, sizeof(e), "127.0.0.1:%u", extender);
        (void)snprintf(m, sizeof(m), "127.0.0.1:%u", metrics);
        (void)execl(program, program, "--server", url, "--admission", "off", "--extender", "choose",
                    "--listen", "off", "--extender-http", e, "--metrics", m, "--leader-election",
                    "off", "--log", "warn", (char *)NULL);
        _exit(127);
    }
    int ready = 0;
    for (int i = 0; i < 1200 && !ready; i++) {
        int fd = dial(metrics);
        ready = fd >= 0 && ask(fd, "GET", "/readyz", NULL, answer_text, sizeof(answer_text)) == 200;
        if (fd >= 0)
            (void)close(fd);
        if (!ready)
            sl_sleep_ns(50 * SL_NS_PER_MS);
    }
    f->start_s = (double)(sl_now_ns() - began) / 1e9;
    int fd = ready ? dial(extender) : -1;
    if (fd >= 0) {
        latencies(fd, 500, 100, &f->p50_ms, &f->p99_ms); /* warm */
        latencies(fd, 500, FILTERS, &f->p50_ms, &f->p99_ms);
        latencies(fd, NODES, FILTERS / 4, &f->p50_all_ms, &f->p99_all_ms);
        f->http_binds_s = filters_and_binds(fd);
        f->rss_mib = rss_mib(pid);
        (void)close(fd);
    }
    (void)kill(pid, SIGKILL);
    (void)kill(server, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    (void)waitpid(server, NULL, 0);
    if (fd < 0) {
        (void)fprintf(stderr, "bench_controller: the controller did not become ready\n");
        exit(1);
    }
}

static int report(FILE *out, const struct figures *f)
{
    struct sl_json j;
    sl_json_init(&j, out);
    sl_json_begin(&j, NULL, '{');
    const struct {
        const char *name;
        double value;
    } rows[] = {{"nodes", NODES},
                {"gpus_per_node", GPUS},
                {"pods", PODS},
                {"filter_bind_per_s_in_process", f->decisions_s},
                {"filter_http_p50_ms", f->p50_ms},
                {"filter_http_p99_ms", f->p99_ms},
                {"filter_http_all_nodes_p50_ms", f->p50_all_ms},
                {"filter_http_all_nodes_p99_ms", f->p99_all_ms},
                {"filter_bind_http_per_s_one_at_a_time", f->http_binds_s},
                {"peak_rss_mib", f->rss_mib},
                {"start_to_ready_s", f->start_s}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        sl_json_double(&j, rows[i].name, rows[i].value);
    }
    int good =
        f->decisions_s >= BAR_DECISIONS && f->p99_ms <= BAR_P99_MS && f->rss_mib <= BAR_RSS_MIB;
    sl_json_bool(&j, "pass", good);
    sl_json_end(&j, '}');
    return !good;
}

int main(int argc, char **argv)
{
    struct figures f = {0};
    if (argc < 2) {
        (void)fprintf(stderr, "usage: bench_controller SLUICE-CONTROLLER [JSON-FILE]\n");
        return 2;
    }
    in_process(&f);
    as_program(argv[1], &f);
    int bad = report(stdout, &f);
    FILE *out = argc > 2 ? fopen(argv[2], "we") : NULL;
    if (out) {
        (void)report(out, &f);
        (void)fclose(out);
    }
    return bad;
}
