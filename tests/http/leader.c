/* SPDX-License-Identifier: Apache-2.0 */
/* Two replicas and one lease, in a fake API server that keeps it with resource versions. Time is the test's. */
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kube/leader.h"

static struct fake fake;
static json_t *lease;
static unsigned version, writes;
static bool deaf[2]; /* the server does not answer this replica */

struct replica {
    struct sl_kube *kube;
    struct sl_leader *leader;
    unsigned started, stopped, released, troubles;
    bool destroys_itself;
};
static struct replica replicas[2];

static void answer_lease(struct fake_conn *c, unsigned status)
{
    char *text = json_dumps(lease, 0);
    fake_answer(c, status, text);
    free(text);
}

static void store(json_t *object)
{
    char text[20];
    (void)snprintf(text, sizeof(text), "%u", ++version);
    json_object_set_new(json_object_get(object, "metadata"), "resourceVersion", json_string(text));
    json_decref(lease);
    lease = object;
    writes++;
}

static void handle(void *data, struct fake_conn *c, const char *method, const char *path,
                   const char *head, const char *body)
{
    (void)data;
    (void)head;
    assert_non_null(strstr(path, "/apis/coordination.k8s.io/v1/namespaces/ns/leases"));
    json_t *object = body[0] ? json_loads(body, 0, NULL) : NULL;
    const char *who =
        json_string_value(json_object_get(json_object_get(object, "spec"), "holderIdentity"));
    bool post = strcmp(method, "POST") == 0, put = strcmp(method, "PUT") == 0;
    if (who && ((deaf[0] && strcmp(who, "r0") == 0) || (deaf[1] && strcmp(who, "r1") == 0))) {
        json_decref(object);
        return;
    }
    if (post && lease) {
        fake_answer(c, 409, "{\"message\":\"already exists\"}");
        json_decref(object);
    } else if (post || (put && lease &&
                        strcmp(sl_kube_meta(object, "resourceVersion"),
                               sl_kube_meta(lease, "resourceVersion")) == 0)) {
        store(object);
        answer_lease(c, post ? 201 : 200);
    } else {
        json_decref(object);
        if (put)
            fake_answer(c, 409, "{\"message\":\"the object has been modified\"}");
        else if (lease)
            answer_lease(c, 200);
        else
            fake_answer(c, 404, "{\"message\":\"not found\"}");
    }
}

static void never_both(void)
{
    assert_false(replicas[0].leader && replicas[1].leader && sl_leader_is(replicas[0].leader) &&
                 sl_leader_is(replicas[1].leader));
}

static void on_started(void *data)
{
    struct replica *r = data;
    r->started++;
    never_both();
}

static void on_stopped(void *data)
{
    struct replica *r = data;
    r->stopped++;
    if (r->destroys_itself) {
        sl_leader_destroy(r->leader);
        r->leader = NULL;
    }
}

static void on_trouble(void *data, const struct sl_err *err)
{
    assert_true(err->code < 0);
    ((struct replica *)data)->troubles++;
}

static void on_released(void *data)
{
    ((struct replica *)data)->released++;
}

static void start(unsigned i)
{
    static const char *const names[] = {"r0", "r1"};
    struct sl_err err = SL_ERR_INIT;
    struct sl_leader_options opt = {.namespace = "ns",
                                    .name = "lock",
                                    .identity = names[i],
                                    .lease_ns = 15 * SL_NS_PER_S,
                                    .renew_ns = 10 * SL_NS_PER_S,
                                    .retry_ns = 2 * SL_NS_PER_S,
                                    .started = on_started,
                                    .stopped = on_stopped,
                                    .trouble = on_trouble,
                                    .data = &replicas[i]};
    if (!replicas[i].kube)
        replicas[i].kube = world_kube(&fake, 0);
    assert_int_equal(
        sl_leader_create(world_loop, replicas[i].kube, &opt, &replicas[i].leader, &err), 0);
}

static int setup(void **state)
{
    (void)state;
    world_open();
    fake = (struct fake){.handle = handle};
    fake_open(&fake, 0);
    memset(replicas, 0, sizeof(replicas));
    deaf[0] = deaf[1] = false;
    lease = NULL;
    version = writes = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        sl_leader_destroy(replicas[i].leader);
        sl_kube_destroy(replicas[i].kube);
    }
    json_decref(lease);
    fake_close(&fake);
    world_close();
    return 0;
}

static void seconds(unsigned n)
{
    for (unsigned i = 0; i < n * 10; i++) {
        world_jump(100 * SL_NS_PER_MS);
        for (int k = 0; k < 4; k++)
            world_step(0);
        never_both();
    }
}

static const char *spec(const char *key)
{
    return json_string_value(json_object_get(json_object_get(lease, "spec"), key));
}

static void one_leads(void **state)
{
    (void)state;
    start(0);
    world_until(&replicas[0].started, 1, 20);
    assert_string_equal(spec("holderIdentity"), "r0");
    start(1);
    unsigned before = writes;
    seconds(60);
    assert_true(writes >= before + 15); /* renewed all the time */
    assert_int_equal(replicas[0].stopped, 0);
    assert_int_equal(replicas[1].started, 0);
    assert_string_equal(spec("holderIdentity"), "r0");
    assert_int_equal(replicas[0].troubles + replicas[1].troubles, 0);
}

static void both_at_once(void **state)
{
    (void)state;
    start(0);
    start(1);
    seconds(40);
    assert_int_equal(replicas[0].started + replicas[1].started, 1);
    assert_int_equal(replicas[0].stopped + replicas[1].stopped, 0);
}

/* The leader dies: the other waits the lease out, then leads. */
static void death(void **state)
{
    (void)state;
    start(0);
    world_until(&replicas[0].started, 1, 20);
    start(1);
    seconds(5);
    sl_leader_destroy(replicas[0].leader);
    replicas[0].leader = NULL;
    seconds(10);
    assert_int_equal(replicas[1].started, 0);
    seconds(12);
    assert_int_equal(replicas[1].started, 1);
    assert_string_equal(spec("holderIdentity"), "r1");
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(lease, "spec"), "leaseTransitions")), 1);
}

/* The leader is cut off: it stops before the other starts (never_both watches), and may lead again. */
static void cut_off(void **state)
{
    (void)state;
    start(0);
    world_until(&replicas[0].started, 1, 20);
    start(1);
    seconds(3);
    deaf[0] = true;
    seconds(30);
    assert_int_equal(replicas[0].stopped, 1);
    assert_int_equal(replicas[1].started, 1);
    assert_true(replicas[0].troubles > 0);
    deaf[0] = false;
    deaf[1] = true;
    seconds(40);
    assert_int_equal(replicas[1].stopped, 1);
    assert_int_equal(replicas[0].started, 2);
}

/* Somebody else's hand writes another name into the lease. */
static void taken_away(void **state)
{
    (void)state;
    start(0);
    world_until(&replicas[0].started, 1, 20);
    json_t *copy = json_deep_copy(lease);
    json_object_set_new(json_object_get(copy, "spec"), "holderIdentity", json_string("somebody"));
    store(copy);
    seconds(6);
    assert_int_equal(replicas[0].stopped, 1);
    assert_string_equal(spec("holderIdentity"), "somebody");
    seconds(20); /* who then says nothing more */
    assert_int_equal(replicas[0].started, 2);
}

/* Wild clocks in what is written do not matter. */
static void clock_skew(void **state)
{
    (void)state;
    store(json_pack("{s:{s:s,s:s},s:{s:s,s:s,s:i}}", "metadata", "name", "lock", "namespace", "ns",
                    "spec", "holderIdentity", "old", "renewTime", "2001-01-01T00:00:00.000000Z",
                    "leaseDurationSeconds", 1));
    start(0);
    seconds(12);
    assert_int_equal(replicas[0].started,
                     0); /* long over by its own words, but we saw it only now */
    seconds(6);
    assert_int_equal(replicas[0].started, 1);
}

static void release(void **state)
{
    (void)state;
    start(0);
    world_until(&replicas[0].started, 1, 20);
    start(1);
    seconds(1);
    sl_leader_release(replicas[0].leader, on_released);
    assert_int_equal(replicas[0].stopped, 1);
    world_until(&replicas[0].released, 1, 10);
    seconds(4); /* far less than a lease */
    assert_int_equal(replicas[1].started, 1);
    sl_leader_destroy(replicas[0].leader);
    replicas[0].leader = NULL;
    start(0);
    seconds(1);
    sl_leader_release(replicas[0].leader, on_released); /* one that does not lead */
    world_until(&replicas[0].released, 2, 10);
    replicas[1].destroys_itself = true; /* from inside its callback */
    sl_leader_release(replicas[1].leader, on_released);
    assert_null(replicas[1].leader);
    seconds(2);
    assert_int_equal(replicas[1].released, 0);
}

static void bad_options(void **state)
{
    (void)state;
    struct sl_leader *l = NULL;
    struct sl_err err = SL_ERR_INIT;
    replicas[0].kube = world_kube(&fake, 0);
    struct sl_leader_options opt = {.namespace = "ns",
                                    .name = "lock",
                                    .identity = "",
                                    .lease_ns = 3,
                                    .renew_ns = 2,
                                    .retry_ns = 1};
    assert_int_equal(sl_leader_create(world_loop, replicas[0].kube, &opt, &l, &err), -EINVAL);
    opt.identity = "x";
    opt.renew_ns = 3;
    assert_int_equal(sl_leader_create(world_loop, replicas[0].kube, &opt, &l, &err), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_leads, setup, teardown),
        cmocka_unit_test_setup_teardown(both_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(death, setup, teardown),
        cmocka_unit_test_setup_teardown(cut_off, setup, teardown),
        cmocka_unit_test_setup_teardown(taken_away, setup, teardown),
        cmocka_unit_test_setup_teardown(clock_skew, setup, teardown),
        cmocka_unit_test_setup_teardown(release, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_options, setup, teardown),
    };
    return cmocka_run_group_tests_name("http_leader", tests, NULL, NULL);
}
