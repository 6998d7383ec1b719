/* SPDX-License-Identifier: Apache-2.0 */
/* Scrapes over HTTP with an arbiter and an NVML that answer, are late, or are not there. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "../unit/gpu_fake.h"
#include "agent/metrics/metrics_serve.h"
#include "base/clock.h"
#include "base/xalloc.h"
#include "shm/packet.h"

static struct sl_loop *loop;
static struct sl_http_server *http;
static struct sl_exporter *exporter;
static struct sl_arbiter_dir place;
static int arbiter = -1, arbiter_peer = -1;
static unsigned samples;
static bool sample_now, sample_fails, ready_now;

static void fill(void *data, struct sl_metrics *m)
{
    (void)data;
    static const struct sl_metrics_gpu gpu = {"GPU-a", "NVIDIA H200", "0",
                                              0,       true,          {NAN, NAN, NAN, NAN, NAN}};
    static const struct sl_metrics_resource resource = {
        .of = {.name = "nvidia.com/gpu", .advertised = 4, .healthy = 4}, .in_use = NAN};
    static const struct sl_metrics_mig mig[] = {{"GPU-a", "MIG-1", "1g.18gb", 200, NAN},
                                                {"GPU-a", "MIG-2", "1g.18gb", 200, NAN}};
    m->gpu = memcpy(sl_xmalloc(sizeof(gpu)), &gpu, sizeof(gpu));
    m->gpu_count = 1;
    m->mig = memcpy(sl_xmalloc(sizeof(mig)), mig, sizeof(mig));
    m->mig_count = 2;
    m->resource = memcpy(sl_xmalloc(sizeof(resource)), &resource, sizeof(resource));
    m->resource_count = 1;
    m->agent = (struct sl_metrics_agent){.version = "test", .reload_time_seconds = NAN};
}

static void answer_sample(void)
{
    struct sl_err err = {-ENODEV, "gone"};
    struct sl_gpu_sampled n[] = {{"GPU-a", {100, 40, 0.5, NAN, 40}},
                                 {"MIG-1", {.memory_used_bytes = 70}}};
    sl_exporter_sampled(exporter, n, sample_fails ? 0 : 2, sample_fails ? &err : NULL);
}

static void sample(void *data, struct sl_exporter *x)
{
    (void)data;
    (void)x;
    samples++;
    if (sample_now)
        answer_sample();
}

static bool ready(void *data, char *why, size_t size)
{
    (void)data;
    (void)snprintf(why, size, "no kubelet");
    return ready_now;
}

/* A test may put another exporter in the place of the first. */
static void handle(void *data, struct sl_http_call *call, const struct sl_http_request *request)
{
    sl_exporter_handle(*(struct sl_exporter **)data, call, request);
}

static void gone(void *data, struct sl_http_call *call)
{
    sl_exporter_gone(*(struct sl_exporter **)data, call);
}

static int setup(void **state)
{
    (void)state;
    memset(&place, 0, sizeof(place));
    (void)strcpy(place.dir, "/tmp/sluice-exporter-XXXXXX");
    assert_non_null(mkdtemp(place.dir));
    (void)snprintf(place.socket, sizeof(place.socket), "%.60s/arbiter.sock", place.dir);
    assert_int_equal(sl_loop_create(NULL, &loop, NULL), 0);
    struct sl_exporter_options opt = {.fill = fill,
                                      .sample = sample,
                                      .ready = ready,
                                      .timeout_ns = 200 * SL_NS_PER_MS,
                                      .sample_age_ns = 3600 * SL_NS_PER_S};
    exporter = sl_exporter_create(loop, &opt);
    assert_int_equal(sl_exporter_arbiter(exporter, &place, NULL), 0);
    struct sl_http_server_options serve = {
        .address = "127.0.0.1:0", .handle = handle, .gone = gone, .data = &exporter};
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_http_server_create(loop, &serve, &http, &err), 0);
    samples = 0;
    sample_now = ready_now = true;
    sample_fails = false;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sl_exporter_destroy(exporter);
    sl_http_server_destroy(http);
    sl_loop_destroy(loop);
    if (arbiter >= 0)
        (void)close(arbiter);
    if (arbiter_peer >= 0)
        (void)close(arbiter_peer);
    arbiter = arbiter_peer = -1;
    (void)unlink(place.socket);
    (void)rmdir(place.dir);
    return 0;
}

static int ask(const char *method, const char *path)
{
    char text[128];
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    addr.sin_port = htons((uint16_t)sl_http_server_port(http));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    int n = snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                     method, path);
    assert_int_equal(write(fd, text, (size_t)n), n);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

static void say_gpu(const char *uuid, uint32_t compute, const char *why)
{
    struct sl_msg_gpu g = {.compute = compute};
    (void)snprintf(g.uuid, sizeof(g.uuid), "%s", uuid);
    (void)snprintf(g.compute_why, sizeof(g.compute_why), "%s", why);
    sl_packet_init(&g.h, SL_MSG_GPU, sizeof(g));
    assert_int_equal(sl_packet_send(arbiter_peer, &g.h, NULL, 0, NULL), 0);
}

/* The arbiter's part: says one tenant and two GPUs when asked. */
static void play_arbiter(void)
{
    union sl_packet got;
    if (arbiter < 0)
        return;
    if (arbiter_peer < 0)
        arbiter_peer = accept4(arbiter, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (arbiter_peer < 0 || sl_packet_recv(arbiter_peer, &got, NULL, NULL) < 0)
        return;
    assert_int_equal(got.h.type, SL_MSG_STATUS);
    struct sl_msg_tenant t = {.gpu_count = 1,
                              .launches = 9,
                              .cores_request_permille = 300,
                              .share_1s_permille = 310,
                              .used_ns = 2500000000,
                              .processes = 1};
    struct sl_msg end;
    (void)strcpy(t.name, "t1");
    (void)strcpy(t.about, "namespace=team pod=train-0 container=main claim=gpu");
    (void)strcpy(t.gpu[0].uuid, "GPU-a");
    t.gpu[0].limit_bytes = 1 << 20;
    t.gpu[0].used_bytes = 1 << 10;
    sl_packet_init(&t.h, SL_MSG_TENANT, sizeof(t));
    sl_packet_init(&end, SL_MSG_END, sizeof(end));
    assert_int_equal(sl_packet_send(arbiter_peer, &t.h, NULL, 0, NULL), 0);
    say_gpu("GPU-a", SL_COMPUTE_TURNS, "the driver refuses to set time slices (status 0x56)");
    say_gpu("GPU-b", SL_COMPUTE_SLICES, "");
    assert_int_equal(sl_packet_send(arbiter_peer, &end, NULL, 0, NULL), 0);
}

static char answer[65536];

/* Runs the loop until the answer is there in full. */
static const char *wait_answer(int fd)
{
    size_t have = 0;
    for (unsigned i = 0; i < 2000; i++) {
        assert_int_equal(sl_loop_step(loop, 5, NULL), 0);
        play_arbiter();
        ssize_t n = read(fd, answer + have, sizeof(answer) - 1 - have);
        if (n == 0) {
            (void)close(fd);
            answer[have] = '\0';
            return answer;
        }
        have += n > 0 ? (size_t)n : 0;
    }
    fail_msg("no answer");
    return NULL;
}

static const char *get(const char *path)
{
    return wait_answer(ask("GET", path));
}

static void has(const char *text)
{
    if (!strstr(answer, text))
        fail_msg("not in the answer: %s\n%s", text, answer);
}

static void everything_answers(void **state)
{
    (void)state;
    arbiter = sl_packet_listen(place.socket, 4, NULL);
    assert_true(arbiter >= 0);
    for (unsigned i = 0; i < 2; i++) { /* the second on the same connection */
        get("/metrics");
        has("HTTP/1.1 200");
        has("text/plain; version=0.0.4");
        has("sluice_gpu_memory_used_bytes{gpu=\"GPU-a\"} 40\n");
        has("sluice_mig_memory_used_bytes{gpu=\"GPU-a\",mig=\"MIG-1\",profile=\"1g.18gb\"} 70\n");
        assert_null(strstr(answer, "sluice_mig_memory_used_bytes{gpu=\"GPU-a\",mig=\"MIG-2\""));
        has("sluice_tenant_launches_total{tenant=\"t1\",namespace=\"team\",pod=\"train-0\","
            "container=\"main\",claim=\"gpu\"} 9\n");
        has("sluice_tenant_memory_limit_bytes{tenant=\"t1\",namespace=\"team\",pod=\"train-0\","
            "container=\"main\",claim=\"gpu\",gpu=\"GPU-a\"} 1048576\n");
        /* Not the status: whoever writes it could make series without end. */
        has("sluice_gpu_compute_mode{gpu=\"GPU-a\",mode=\"turns\","
            "reason=\"the driver refuses to set time slices\"} 1\n");
        has("sluice_gpu_compute_mode{gpu=\"GPU-b\",mode=\"slices\",reason=\"\"} 1\n");
        has("sluice_source_up{source=\"arbiter\"} 1\n");
        has("sluice_source_up{source=\"nvml\"} 1\n");
        has("sluice_source_up{source=\"podresources\"} 0\n");
        has("process_resident_memory_bytes ");
        assert_null(strstr(answer, "sluice_gpu_power_watts"));
        assert_null(strstr(answer, "sluice_shares_in_use"));
    }
    assert_int_equal(samples, 1); /* the cards are not asked for each scrape */
}

/* An agent that is told of fractions while it runs has an arbiter from then on. */
static void an_arbiter_that_comes_later(void **state)
{
    (void)state;
    sl_exporter_destroy(exporter);
    struct sl_exporter_options opt = {.fill = fill};
    exporter = sl_exporter_create(loop, &opt);
    get("/metrics");
    has("sluice_source_up{source=\"nvml\"} 0\n");
    assert_null(strstr(answer, "source=\"arbiter\"")); /* none is wanted: it is not down */
    arbiter = sl_packet_listen(place.socket, 4, NULL);
    assert_true(arbiter >= 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(sl_exporter_arbiter(exporter, &place, NULL), 0);
    get("/metrics");
    has("sluice_source_up{source=\"arbiter\"} 1\n");
    has("sluice_tenant_processes{tenant=\"t1\"");
}

/* A loop that was held up says so once. */
static void lateness_is_told(void **state)
{
    (void)state;
    get("/metrics");
    (void)usleep(1200000); /* the timer that notices goes every second */
    get("/metrics");
    const char *at = strstr(answer, "\nsluice_loop_lag_seconds ");
    assert_non_null(at);
    assert_true(strtod(at + strlen("\nsluice_loop_lag_seconds "), NULL) >= 0.1);
    get("/metrics");
    at = strstr(answer, "\nsluice_loop_lag_seconds ");
    assert_true(at && strtod(at + strlen("\nsluice_loop_lag_seconds "), NULL) < 0.1);
}

static void nobody_answers(void **state)
{
    (void)state;
    sample_now = false;
    arbiter = sl_packet_listen(place.socket, 4, NULL); /* listens, never says a word */
    int hung = arbiter;
    arbiter = -1;
    get("/metrics");
    has("HTTP/1.1 200");
    has("sluice_source_up{source=\"arbiter\"} 0\n");
    has("sluice_source_up{source=\"nvml\"} 0\n");
    has("sluice_shares_advertised{resource=\"nvidia.com/gpu\"} 4\n");
    assert_null(strstr(answer, "sluice_tenant_"));
    answer_sample(); /* late, and good for the next */
    sample_now = true;
    get("/metrics");
    has("sluice_gpu_memory_used_bytes{gpu=\"GPU-a\"} 40\n");
    assert_int_equal(samples, 1);
    (void)close(hung);
}

static void nvml_fails(void **state)
{
    (void)state;
    sample_fails = true;
    get("/metrics");
    has("sluice_source_up{source=\"nvml\"} 0\n");
    has("sluice_source_up{source=\"arbiter\"} 0\n"); /* its folder is there, its socket is not */
    assert_null(strstr(answer, "sluice_gpu_sample_age_seconds"));
}

static void scrapes_share(void **state)
{
    (void)state;
    sample_now = false;
    int fd[3];
    for (unsigned i = 0; i < 3; i++)
        fd[i] = ask("GET", "/metrics");
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(sl_loop_step(loop, 5, NULL), 0);
    (void)close(fd[0]); /* leaves without waiting */
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(sl_loop_step(loop, 5, NULL), 0);
    answer_sample();
    wait_answer(fd[1]);
    has("HTTP/1.1 200");
    wait_answer(fd[2]);
    has("HTTP/1.1 200");
    assert_int_equal(samples, 1);
}

static void health_and_the_rest(void **state)
{
    (void)state;
    get("/healthz");
    has("HTTP/1.1 200");
    get("/readyz");
    has("HTTP/1.1 200");
    ready_now = false;
    get("/readyz");
    has("HTTP/1.1 503");
    has("not ready: no kubelet");
    get("/other");
    has("HTTP/1.1 404");
    wait_answer(ask("DELETE", "/metrics"));
    has("HTTP/1.1 405");
}

static int fake_sample(struct sl_gpu *gpu, size_t i, struct sl_gpu_sample *ret, struct sl_err *err)
{
    (void)gpu;
    (void)err;
    memset(ret, 0xff, sizeof(*ret)); /* nothing is known */
    ret->power_mw = 250500;
    ret->gpu_percent = i == 0 ? 75 : SL_GPU_UNKNOWN;
    return 0;
}

static void numbers_of_cards(void **state)
{
    (void)state;
    struct sl_gpu_ops ops = gpu_fake_ops;
    struct gpu_fake fake = {.base = {&ops}, .count = 3};
    struct sl_gpu_sampled *n = NULL;
    size_t count = 0;
    ops.sample = fake_sample;
    for (size_t i = 0; i < 3; i++)
        (void)snprintf(fake.devices[i].info.uuid, SL_GPU_UUID_SIZE, "GPU-%zu", i);
    fake.devices[1].lost = true;
    fake.devices[0].memory = (struct sl_gpu_memory){.total_bytes = 100, .used_bytes = 30};
    assert_int_equal(sl_gpu_numbers_read(&fake.base, &n, &count, NULL), 0);
    assert_int_equal(count, 2);
    assert_string_equal(n[0].uuid, "GPU-0");
    assert_string_equal(n[1].uuid, "GPU-2");
    assert_true(n[0].now.memory_used_bytes == 30 && n[0].now.power_watts == 250.5);
    assert_true(fabs(n[0].now.utilisation_ratio - 0.75) < 1e-9);
    assert_true(isnan(n[1].now.utilisation_ratio) && isnan(n[0].now.temperature_celsius));
    free(n);
}

/* Slots 0 and 2 have one. */
static int fake_mig(struct sl_gpu *gpu, size_t i, uint32_t slot, struct sl_gpu_mig_info *ret,
                    struct sl_err *err)
{
    (void)gpu;
    if (i != 1 || slot == 1)
        return sl_err_set(err, -ENOENT, "empty");
    *ret = (struct sl_gpu_mig_info){.memory_total_bytes = 100, .memory_used_bytes = 10 + slot};
    (void)snprintf(ret->uuid, sizeof(ret->uuid), "MIG-%u", slot);
    return 0;
}

static void numbers_of_mig_devices(void **state)
{
    (void)state;
    struct sl_gpu_ops ops = gpu_fake_ops;
    struct gpu_fake fake = {.base = {&ops}, .count = 2};
    struct sl_gpu_sampled *n = NULL;
    size_t count = 0;
    ops.mig_info = fake_mig;
    fake.devices[1].info.mig_slots = 3;
    assert_int_equal(sl_gpu_numbers_read(&fake.base, &n, &count, NULL), 0);
    assert_int_equal(count, 4);
    assert_string_equal(n[2].uuid, "MIG-0");
    assert_string_equal(n[3].uuid, "MIG-2");
    assert_true(n[3].now.memory_used_bytes == 12 && isnan(n[3].now.power_watts));
    free(n);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(everything_answers),
        TEST(an_arbiter_that_comes_later),
        TEST(lateness_is_told),
        TEST(nobody_answers),
        TEST(nvml_fails),
        TEST(scrapes_share),
        TEST(health_and_the_rest),
        TEST(numbers_of_cards),
        TEST(numbers_of_mig_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
