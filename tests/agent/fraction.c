/* SPDX-License-Identifier: Apache-2.0 */
/* From a pod's object to a lease: promises, containers, names; and what a pod's author may write there. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "agent/fraction/fraction_internal.h"

static json_t *pod(const char *lease)
{
    json_t *p = json_pack("{s:{s:s,s:s,s:s,s:{s:s*}},s:{},s:{}}", "metadata", "name", "a",
                          "namespace", "team", "uid", "u-1", "annotations", SL_PROMISE_LEASE_KEY,
                          lease, "spec", "status");
    assert_non_null(p);
    return p;
}

/* A node whose pods may ask for anything. */
static const struct sl_config *generous(void *data)
{
    static const struct sl_config config = {
        .fractional.allow = {.burst = 100, .priority = SL_PRIORITY_HIGH}};
    (void)data;
    return &config;
}
static const struct sl_config *strict(void *data)
{
    static const struct sl_config config = {.fractional.allow = {.burst = 50}};
    (void)data;
    return &config;
}
static const struct sl_fraction on_node_1 = {.opt = {.node_name = "node-1", .config = generous}};

/* The lease of a pod's only container. */
static int lease_of(const json_t *p, const char *container, const char *token,
                    struct sl_msg_lease *ret, struct sl_err *err)
{
    return sl_fraction_lease(&on_node_1, p, container, false, token, ret, err);
}

#define LEASE(containers)     "{\"version\":1,\"node\":\"node-1\",\"containers\":[" containers "]}"
#define GPU(uuid, mib, cores) "{\"uuid\":\"" uuid "\",\"memoryMiB\":" #mib ",\"cores\":" #cores "}"

static void one_name_whatever_the_order(void **state)
{
    (void)state;
    const char *const one[] = {"GPU-b::3", "GPU-a::7", "GPU-a::9"}, *const other[] = {"GPU-a::9",
                                                                                      "GPU-b::3",
                                                                                      "GPU-a::7"};
    char a[SL_DEVICE_ID_SIZE], b[SL_DEVICE_ID_SIZE], longest[100];
    const char *const bad[] = {longest};
    memset(longest, 'x', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(sl_fraction_token(one, 3, a, NULL), 0);
    assert_int_equal(sl_fraction_token(other, 3, b, NULL), 0);
    assert_string_equal(a, "GPU-a::7");
    assert_string_equal(a, b);
    assert_int_equal(sl_fraction_token(one, 0, a, NULL), -EINVAL);
    assert_int_equal(sl_fraction_token(bad, 1, a, NULL), -EINVAL);
}

static void allocate_names_the_slot(void **state)
{
    (void)state;
    const char *const ids[] = {"GPU-b::3", "GPU-a::7"}, *const bad[] = {"../../etc"};
    struct sl_config config = {.list_strategy = SL_LIST_ENVVAR};
    struct sl_edits edits = {0};
    assert_int_equal(sl_fraction_allocate(&config, ids, 2, &edits, NULL), 0);
    assert_int_equal(edits.env_count + edits.mount_count + edits.node_count, 0);
    assert_int_equal(edits.cdi_count, 1);
    assert_string_equal(edits.cdi[0], "k8s.gpu.sluice.io/slot=GPU-a::7");
    assert_int_equal(sl_fraction_allocate(&config, bad, 1, &edits, NULL), -EINVAL);
    sl_edits_clear(&edits);
    config.list_strategy = SL_LIST_CDI_ANNOTATIONS | SL_LIST_CDI_CRI; /* once is enough */
    assert_int_equal(sl_fraction_allocate(&config, ids, 2, &edits, NULL), 0);
    assert_int_equal(edits.cdi_count, 1);
    assert_int_equal(edits.annotation_count, 0);
    sl_edits_clear(&edits);
}

static void leases(void **state)
{
    (void)state;
    struct sl_msg_lease m, again;
    json_t *p = pod(LEASE("{\"name\":\"c\",\"coresLimit\":90,\"priority\":\"low\",\"gpus\":[" GPU(
        "GPU-a", 1000, 30) "," GPU("GPU-b", 500, 20) "," GPU("GPU-a", 24, 5) "]}"));
    assert_int_equal(lease_of(p, "c", "GPU-z::1", &m, NULL), 0);
    assert_int_equal(m.gpu_count, 2);
    assert_string_equal(m.gpu[0], "GPU-a");
    assert_int_equal(m.gpu_memory_bytes[0], 1024ULL << 20); /* shares of one card add up */
    assert_int_equal(m.gpu_memory_bytes[1], 500ULL << 20);
    assert_int_equal(m.cores_request_permille, 200); /* the least of 35 and 20 */
    assert_int_equal(m.cores_limit_permille, 900);
    assert_int_equal(m.priority, SL_PRIORITY_LOW);
    assert_int_equal(m.flags, SL_LEASE_KEEP);
    assert_string_equal(m.about, "namespace=team pod=a container=c slot=GPU-z::1 pod-uid=u-1");
    /* The name is the pod's, the container's and the slot's, and the same each time. */
    assert_int_equal(lease_of(p, "c", "GPU-z::1", &again, NULL), 0);
    assert_string_equal(m.name, again.name);
    assert_int_equal(lease_of(p, "c", "GPU-z::2", &again, NULL), 0);
    assert_string_not_equal(m.name, again.name);
    json_object_set_new(json_object_get(p, "metadata"), "uid", json_string("u-2"));
    assert_int_equal(lease_of(p, "c", "GPU-z::1", &again, NULL), 0);
    assert_string_not_equal(m.name, again.name);
    assert_int_equal(lease_of(p, "d", "GPU-z::1", &again, NULL), -ENODATA);
    json_decref(p);
}

static void cores_of_all_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *lease;
        bool field;
        uint32_t request, limit;
    } row[] = {
        {LEASE("{\"name\":\"c\",\"gpus\":[" GPU("G", 1, 30) "]}"), true, 300, 300},
        {LEASE("{\"name\":\"c\",\"gpus\":[" GPU("G", 1, 0) "]}"), false, 0, 0},
        {LEASE("{\"name\":\"c\",\"coresLimit\":50,\"gpus\":[" GPU("G", 1, 0) "]}"), true, 1, 500},
        {LEASE("{\"name\":\"c\",\"coresLimit\":10,\"gpus\":[" GPU("G", 1, 30) "]}"), true, 300,
         300},
        {LEASE("{\"name\":\"c\",\"gpus\":[" GPU("G", 1, 60) "," GPU("G", 1, 60) "]}"), true, 1000,
         1000},
    };
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct sl_msg_lease m;
        json_t *p = pod(row[i].lease);
        assert_int_equal(lease_of(p, "c", "t", &m, NULL), 0);
        assert_int_equal((m.fields & SL_FIELD_CORES) != 0, row[i].field);
        assert_int_equal(m.cores_request_permille, row[i].request);
        assert_int_equal(m.cores_limit_permille, row[i].limit);
        assert_int_equal(m.priority, SL_PRIORITY_NORMAL);
        json_decref(p);
    }
}

static void promises_are_checked(void **state)
{
    (void)state;
    struct sl_msg_lease m;
    struct sl_err err = SL_ERR_INIT;
    const struct sl_fraction on_node_2 = {.opt = {.node_name = "node-2"}};
    json_t *none = pod(NULL), *elsewhere = pod(LEASE("")), *bad = pod("{]");
    assert_int_equal(lease_of(none, "c", "t", &m, &err), -ENODATA);
    assert_non_null(strstr(err.msg, "extender"));
    assert_int_equal(sl_fraction_lease(&on_node_2, elsewhere, "c", false, "t", &m, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "node-1"));
    assert_int_equal(lease_of(bad, "c", "t", &m, &err), -EINVAL);
    json_t *greedy =
        pod(LEASE("{\"name\":\"c\",\"coresLimit\":90,\"gpus\":[" GPU("G", 1, 30) "]}"));
    const struct sl_fraction refuses = {.opt = {.node_name = "node-1", .config = strict}};
    assert_int_equal(sl_fraction_lease(&refuses, greedy, "c", false, "t", &m, &err), -EPERM);
    json_decref(greedy);
    json_t *empty = json_object();
    assert_int_equal(lease_of(empty, "c", "t", &m, &err), -ENODATA);
    assert_int_equal(sl_fraction_pod_state(empty), SL_POD_ALIVE);
    json_decref(empty);
    json_decref(none);
    json_decref(elsewhere);
    json_decref(bad);
}

static void states_of_a_pod(void **state)
{
    (void)state;
    json_t *p = pod(NULL), *status = json_object_get(p, "status");
    assert_int_equal(sl_fraction_pod_state(p), SL_POD_ALIVE);
    json_object_set_new(json_object_get(p, "metadata"), "deletionTimestamp", json_string("now"));
    assert_int_equal(sl_fraction_pod_state(p), SL_POD_LEAVING);
    json_object_set_new(status, "phase", json_string("Failed"));
    assert_int_equal(sl_fraction_pod_state(p), SL_POD_OVER);
    json_object_set_new(status, "phase", json_string("Succeeded"));
    assert_int_equal(sl_fraction_pod_state(p), SL_POD_OVER);
    json_decref(p);
}

/* Init containers "get" (nothing promised) and "fill", a sidecar "log", container "main". */
static json_t *pod_with_inits(const char *fill_state, int restarts)
{
    json_t *p = pod(LEASE("{\"name\":\"fill\",\"gpus\":[" GPU(
        "G", 1, 1) "]},{\"name\":\"log\","
                   "\"gpus\":[" GPU("G", 1, 1) "]},{\"name\":\"main\",\"gpus\":[" GPU("G", 1,
                                                                                      1) "]}"));
    json_object_set_new(json_object_get(p, "spec"), "initContainers",
                        json_pack("[{s:s},{s:s},{s:s,s:s}]", "name", "get", "name", "fill", "name",
                                  "log", "restartPolicy", "Always"));
    if (fill_state)
        json_object_set_new(json_object_get(p, "status"), "initContainerStatuses",
                            json_pack("[{s:s,s:i,s:o}]", "name", "fill", "restartCount", restarts,
                                      "state", json_loads(fill_state, 0, NULL)));
    return p;
}

#define OVER    "{\"terminated\":{\"exitCode\":0}}"
#define FAILED  "{\"terminated\":{\"exitCode\":2}}"
#define RUNS    "{\"running\":{}}"
#define WAITING "{\"waiting\":{}}"

static void whose_turn_it_is(void **state)
{
    (void)state;
    static const char *const fill[] = {"fill"}, *const log[] = {"log"},
                             *const side[] = {"log", "fill"}, *const started[] = {"main"};
    static const struct {
        const char *fill_state;
        int restarts;
        const char *listed;
        const char *const *seen;
        size_t seen_count;
        bool settled;
        const char *turn; /* NULL: not known yet */
    } row[] = {
        {NULL, 0, "main", NULL, 0, false, "fill"},
        {WAITING, 0, "main", NULL, 0, false, "fill"},
        {WAITING, 0, "main", fill, 1, false, NULL}, /* it may have run already */
        {WAITING, 0, "main", fill, 1, true, "fill"},
        {WAITING, 3, "main", fill, 1, false, "fill"}, /* in its back-off */
        {RUNS, 0, "main", fill, 1, false, NULL},
        {FAILED, 0, "main", fill, 1, false, "fill"},
        {OVER, 0, "main", fill, 1, false, "main"},
        {OVER, 0, "main", side, 2, false, "main"},
        /* The sidecar's devices were the init container's before: kubelet lists the sidecar for both. */
        {NULL, 0, "log", NULL, 0, false, "fill"},
        {WAITING, 0, "log", fill, 1, false, NULL},
        {FAILED, 0, "log", fill, 1, false, "fill"},
        {OVER, 0, "log", fill, 1, false, "log"},
        {WAITING, 0, "log", log, 1, false, "log"},       /* it has started before: old news */
        {WAITING, 0, "main", log, 1, false, "main"},     /* so the init container is over for all */
        {WAITING, 0, "main", started, 1, false, "main"}, /* old news */
    };
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        char name[64];
        struct sl_msg_lease m;
        struct sl_fraction f = on_node_1;
        struct sl_fraction_slot slot[2] = {0};
        json_t *p = pod_with_inits(row[i].fill_state, row[i].restarts);
        for (size_t k = 0; k < row[i].seen_count; k++) {
            (void)snprintf(slot[k].container, sizeof(slot[k].container), "%s", row[i].seen[k]);
            (void)snprintf(slot[k].uid, sizeof(slot[k].uid), "u-1");
            slot[k].next = f.slots;
            f.slots = &slot[k];
        }
        int rc = sl_fraction_lease(&f, p, row[i].listed, row[i].settled, "t", &m, NULL);
        assert_int_equal(rc, row[i].turn ? 0 : -EAGAIN);
        if (row[i].turn) {
            assert_true(sl_client_about(m.about, "container", name, sizeof(name)));
            assert_string_equal(name, row[i].turn);
        }
        json_decref(p);
    }
}

static void tenants_tell_their_slots(void **state)
{
    (void)state;
    struct sl_fraction f = {0};
    assert_true(sl_fraction_slot_add(&f, "slot-1",
                                     "namespace=team pod=a container=c slot=GPU-z::1 pod-uid=u-1"));
    /* a claim's */
    assert_false(sl_fraction_slot_add(&f, "x", "namespace=team pod=a claim=b uid=u-1 request=r"));
    struct sl_fraction_slot *slot = f.slots;
    assert_ptr_equal(slot->fraction, &f);
    assert_null(slot->next);
    assert_string_equal(slot->tenant, "slot-1");
    assert_string_equal(slot->token, "GPU-z::1");
    assert_string_equal(slot->space, "team");
    assert_string_equal(slot->pod, "a");
    assert_string_equal(slot->container, "c");
    assert_string_equal(slot->uid, "u-1");
    free(slot);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_name_whatever_the_order),
        cmocka_unit_test(allocate_names_the_slot),
        cmocka_unit_test(leases),
        cmocka_unit_test(cores_of_all_kinds),
        cmocka_unit_test(promises_are_checked),
        cmocka_unit_test(states_of_a_pod),
        cmocka_unit_test(whose_turn_it_is),
        cmocka_unit_test(tenants_tell_their_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
