/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice simulate`: what it reads, what it makes up, and that runs add up. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "cli/simulate.h"

static char path[] = "/tmp/place_trace.XXXXXX";

static const char *file(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fputs(text, f) < 0, 0);
    assert_int_equal(fclose(f), 0);
    return path;
}

static int make_path(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void test_nodes_by_column_name(void **state)
{
    (void)state;
    struct sim_cluster c;
    assert_int_equal(
        sl_sim_cluster_load(file("\xef\xbb\xbfmodel,extra,gpu,memory_mib,cpu_milli,sn\r\n"
                                 "T4,x,2,1024,8000,a\r\n\r\n"
                                 "\"G2\",,8,2048,96000,b\r\n"
                                 "T4,x,0,1024,8000,c\r\n"),
                            &c, NULL),
        0);
    assert_int_equal(c.count, 2);
    assert_int_equal(c.gpu_milli, 10000);
    assert_string_equal(c.models.names[c.nodes[1].model], "G2");
    assert_int_equal(c.nodes[1].cpu_milli, 96000);
    assert_int_equal(c.nodes[0].gpu_count, 2);
    sl_sim_cluster_fini(&c);
}

static void test_pods_with_five_columns_and_with_all(void **state)
{
    (void)state;
    struct sim_models models = {0};
    struct sim_pods p;
    assert_int_equal(sl_sim_pods_load(file("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
                                           "a,1000,2048,1,470\nb,2000,1024,0,0\nc,88000,1,8,1000"),
                                      &models, &p, NULL),
                     0);
    assert_int_equal(p.count, 3);
    assert_int_equal(p.gpu_milli, 8470);
    assert_int_equal(p.pods[0].request.cores_permille, 470);
    assert_int_equal(p.pods[1].request.gpu_count, 0);
    assert_int_equal(p.pods[0].runtime_s, 0);
    sl_sim_pods_fini(&p);

    assert_int_equal(
        sl_sim_pods_load(file("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,"
                              "pod_phase,creation_time,deletion_time,scheduled_time\n"
                              "a,1000,2048,1,1000,T4|G2|T4,LS,Running,10,70,11\n"
                              "b,1000,2048,1,1000,,BE,Pending,10,,\n"),
                         &models, &p, NULL),
        0);
    assert_int_equal(models.count, 2);
    assert_int_equal(p.pods[0].request.models, 3);
    assert_int_equal(p.pods[0].runtime_s, 60);
    assert_int_equal(p.pods[1].request.models, 0);
    sl_sim_pods_fini(&p);
}

static void test_errors_say_file_line_and_column(void **state)
{
    (void)state;
    static const struct {
        const char *text, *where, *what;
    } bad[] = {
        {"", ":1:1:", "empty"},
        {"a,b\n1,2\n", ":1:1:", "cpu_milli"},
        {"cpu_milli,memory_mib,num_gpu,gpu_milli\n1,2,1,100\n1,x2,1,100\n", ":3:3:", "memory_mib"},
        {"cpu_milli,memory_mib,num_gpu,gpu_milli\n1,2,1,1001\n", ":2:7:", "gpu_milli"},
        {"cpu_milli,memory_mib,num_gpu,gpu_milli\n1,2,17,100\n", ":2:5:", "num_gpu"},
        {"cpu_milli,memory_mib,num_gpu,gpu_milli\n-1,2,1,100\n", ":2:1:", "cpu_milli"},
        {"cpu_milli,memory_mib,num_gpu,gpu_milli\n,2,1,100\n", ":2:1:", "cpu_milli"},
        {"cpu_milli,memory_mib,num_gpu,gpu_milli\n99999999999999999999999,2,1,1\n", ":2:1:", ""},
        {"cpu_milli,memory_mib,num_gpu,gpu_milli\n1,2,1\n", ":2:5:", "fewer columns"},
        {"cpu_milli,memory_mib,num_gpu,gpu_milli\n1,2,1,0\n", ":2:7:", "num_gpu asks"},
        {"cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n1,2,1,1,A|\n1,2,1,1,|A\n", ":3:9:", "|"},
        {"cpu_milli,memory_mib,num_gpu,gpu_milli\n1,2,0,0\n", "",
         "no pod in this file asks for a GPU"},
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        struct sim_models models = {0};
        struct sim_pods p;
        struct sl_err err = SL_ERR_INIT;
        assert_int_equal(sl_sim_pods_load(file(bad[i].text), &models, &p, &err), -EINVAL);
        if (!strstr(err.msg, bad[i].where) || !strstr(err.msg, bad[i].what) ||
            !strstr(err.msg, path))
            fail_msg("case %zu: %s", i, err.msg);
        assert_null(p.pods);
    }
}

static void test_mixes(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",           "x",         "3xA",        "3xA:1:2",  "3xA:0:1:1",
        "3xA:17:1:1", "0xA:1:1:1", "3xA:1:1:1;", "3x:1:1:1", "3xA:1:1:1:1:1"};
    struct sim_cluster c;
    assert_int_equal(
        sl_sim_cluster_parse_mix("2xH200:8:192000:2097152:143771,1xT4:1:8000:4096", &c, NULL), 0);
    assert_int_equal(c.count, 3);
    assert_int_equal(c.gpu_milli, 17000);
    assert_int_equal(c.nodes[0].gpus[7].memory_mib, 143771);
    sl_sim_cluster_fini(&c);
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++)
        assert_int_equal(sl_sim_cluster_parse_mix(bad[i], &c, NULL), -EINVAL);
}

static void test_made_up_data_has_the_proportions(void **state)
{
    (void)state;
    struct sim_cluster c;
    struct sim_pods p;
    sl_sim_cluster_generate(1000, &c);
    sl_sim_pods_generate(1, &p);
    assert_int_equal(c.count, 1000);
    size_t cpu = 0, shared = 0, one = 0;
    for (size_t i = 0; i < p.count; i++) {
        const struct sl_place_request *r = &p.pods[i].request;
        assert_int_equal(sl_place_validate(r, NULL), 0);
        cpu += r->gpu_count == 0;
        shared += r->gpu_count == 1 && r->cores_permille < 1000;
        one += r->gpu_count == 1 && r->cores_permille == 1000;
    }
    assert_in_range(1000 * cpu / p.count, 133, 134);
    assert_in_range(1000 * shared / p.count, 377, 378);
    assert_in_range(1000 * one / p.count, 479, 480);
    sl_sim_cluster_fini(&c);
    sl_sim_pods_fini(&p);
}

struct world {
    struct sim_cluster cluster;
    struct sim_pods pods;
    struct sim_options options;
};

static void world_init(struct world *w)
{
    sl_sim_cluster_generate(60, &w->cluster);
    sl_sim_pods_generate(1, &w->pods);
    w->options = (struct sim_options){.until_percent = 130, .load_percent = 100, .turnovers = 1};
    sl_place_config_init(&w->options.place, SL_PLACE_SLUICE);
}

static void world_fini(struct world *w)
{
    sl_sim_cluster_fini(&w->cluster);
    sl_sim_pods_fini(&w->pods);
}

static void test_runs_add_up(void **state)
{
    (void)state;
    struct world w;
    struct sim_result a, b;
    world_init(&w);
    for (unsigned policy = 0; policy < SL_PLACE_POLICIES; policy++) {
        w.options.place.policy = (enum sl_place_policy)policy;
        assert_int_equal(sl_sim_run(&w.cluster, &w.pods, &w.options, 3, &a, NULL), 0);
        assert_int_equal(sl_sim_run(&w.cluster, &w.pods, &w.options, 3, &b, NULL), 0);
        assert_memory_equal(a.unallocated, b.unallocated, sizeof(a.unallocated));
        assert_int_equal(a.samples, 131);
        for (unsigned i = 1; i < a.samples; i++) {
            assert_true(a.unallocated[i] <= a.unallocated[i - 1]); /* nothing leaves */
            assert_true(a.unallocated[i] >= 0);
        }
        /* Early on everything is placed, unless it is strewn about: what is left is what has not arrived. */
        bool spreads = policy == SL_PLACE_RANDOM || policy == SL_PLACE_SPREAD;
        assert_true(spreads || a.unallocated[30] <= 70);
        assert_true(a.unallocated[30] > 66);
        assert_true(a.rejected > 0 && a.rejected < a.pods);
    }
    world_fini(&w);
}

static void test_churn_reaches_a_steady_state(void **state)
{
    (void)state;
    struct world w;
    struct sim_result r;
    world_init(&w);
    w.options.churn = true;
    w.options.load_percent = 60;
    assert_int_equal(sl_sim_run(&w.cluster, &w.pods, &w.options, 3, &r, NULL), 0);
    assert_true(r.mean_unallocated > 30 && r.mean_unallocated < 55);
    w.options.load_percent = 200;
    assert_int_equal(sl_sim_run(&w.cluster, &w.pods, &w.options, 3, &r, NULL), 0);
    assert_true(r.mean_unallocated < 20);
    assert_true(r.rejected_gpu_percent > 30);
    w.options.lifetimes = SIM_LIFETIME_TRACE;
    w.options.load_percent = 60;
    assert_int_equal(sl_sim_run(&w.cluster, &w.pods, &w.options, 3, &r, NULL), 0);
    assert_true(r.mean_unallocated > 25 && r.mean_unallocated < 60);
    for (size_t i = 0; i < w.pods.count; i++)
        w.pods.pods[i].runtime_s = 0;
    assert_int_equal(sl_sim_run(&w.cluster, &w.pods, &w.options, 3, &r, NULL), -EINVAL);
    world_fini(&w);
}

/* Sharing finely serves more than fixed slots, and these more than whole cards. */
static void test_strategies_order_as_they_must(void **state)
{
    (void)state;
    struct world w;
    struct sim_cluster cluster;
    struct sim_pods pods;
    struct sim_result r;
    double unallocated[4];
    world_init(&w);
    w.options.slots = 2;
    for (unsigned s = 0; s < 4; s++) {
        w.options.strategy = (enum sim_strategy)s;
        sl_sim_transform(&w.options, &w.cluster, &w.pods, &cluster, &pods);
        assert_int_equal(sl_sim_run(&cluster, &pods, &w.options, 3, &r, NULL), 0);
        unallocated[s] = r.unallocated[100];
        sl_sim_cluster_fini(&cluster);
        sl_sim_pods_fini(&pods);
    }
    assert_true(unallocated[SIM_FRACTIONAL] < unallocated[SIM_SLOTS]);
    assert_true(unallocated[SIM_SLOTS] < unallocated[SIM_EXCLUSIVE]);
    assert_true(unallocated[SIM_FRACTIONAL] < unallocated[SIM_MIG]);
    assert_true(unallocated[SIM_MIG] < unallocated[SIM_EXCLUSIVE]);
    world_fini(&w);
}

static void test_memory_is_a_second_dimension(void **state)
{
    (void)state;
    struct world w;
    struct sim_cluster cluster;
    struct sim_pods pods;
    struct sim_result r[3];
    world_init(&w);
    for (unsigned m = 0; m < 3; m++) {
        w.options.memory = (enum sim_memory)m;
        sl_sim_transform(&w.options, &w.cluster, &w.pods, &cluster, &pods);
        assert_int_equal(sl_sim_run(&cluster, &pods, &w.options, 3, &r[m], NULL), 0);
        sl_sim_cluster_fini(&cluster);
        sl_sim_pods_fini(&pods);
    }
    /* Memory in step with compute never binds first; independent memory does. */
    assert_true(r[SIM_MEMORY_SAME].unallocated[100] < r[SIM_MEMORY_NONE].unallocated[100] + 1.5);
    assert_true(r[SIM_MEMORY_INDEPENDENT].unallocated[100] >
                r[SIM_MEMORY_NONE].unallocated[100] + 1);
    world_fini(&w);
}

static void test_reports(void **state)
{
    (void)state;
    struct world w;
    struct sim_report r = {.trace_count = 1, .policy_count = 1, .seed_count = 1, .level_count = 1};
    char *text = NULL;
    size_t size = 0;
    world_init(&w);
    r.options = &w.options;
    r.cluster = &w.cluster;
    r.policies[0] = SL_PLACE_SLUICE;
    r.seeds[0] = 7;
    r.levels[0] = 100;
    (void)snprintf(r.traces[0], sizeof(r.traces[0]), "a\"<b>\n&");
    r.results = calloc(1, sizeof(*r.results));
    assert_int_equal(sl_sim_run(&w.cluster, &w.pods, &w.options, 7, &r.results[0], NULL), 0);
    FILE *out = open_memstream(&text, &size);
    sl_sim_report_json(&r, 0, 0, 0, out);
    (void)fflush(out);
    assert_ptr_equal(strchr(text, '\n'), text + size - 1); /* one line */
    assert_non_null(strstr(text, "\"unallocated_percent\": {\"90\": "));
    assert_non_null(strstr(text, "\"130\": "));
    rewind(out);
    sl_sim_report_svg(&r, out);
    sl_sim_report_tables(&r, out);
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(text, "<svg"));
    assert_non_null(strstr(text, "a\"&lt;b>&amp;"));
    assert_non_null(strstr(text, "100 % has arrived"));
    free(text);
    free(r.results);
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_by_column_name),
        cmocka_unit_test(test_pods_with_five_columns_and_with_all),
        cmocka_unit_test(test_errors_say_file_line_and_column),
        cmocka_unit_test(test_mixes),
        cmocka_unit_test(test_made_up_data_has_the_proportions),
        cmocka_unit_test(test_runs_add_up),
        cmocka_unit_test(test_churn_reaches_a_steady_state),
        cmocka_unit_test(test_strategies_order_as_they_must),
        cmocka_unit_test(test_memory_is_a_second_dimension),
        cmocka_unit_test(test_reports),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
