/* SPDX-License-Identifier: Apache-2.0 */
/* Device plugins with a kubelet of good manners: lists, plans, health, the calls. */
#include "plugin_world.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "deviceplugin.pb-c.h"
#include "rpc/pb.h"

#define GPU "nvidia.com/gpu"

static void set_health(struct world *w, const char *uuid, bool healthy)
{
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_plugins_set_health(w->plugins, uuid, healthy, &err), 0);
}

static void registers_and_lists(void **state)
{
    (void)state;
    struct world w;
    struct stat st;
    char path[120];
    world_open(&w, 8);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply_one(&w, GPU, 8, 1);
    struct fake_resource *r = world_wait(&w, GPU, 8);
    assert_string_equal(r->endpoint, "nvidia-gpu.sock");
    assert_int_equal(r->with_numa, 8);
    world_until(&w, r->options_answered);
    assert_true(r->preferred);
    assert_int_equal(r->registrations, 1);
    (void)snprintf(path, sizeof(path), "%s/nvidia-gpu.sock", w.dir);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    struct sl_plugins_resource info;
    assert_int_equal(sl_plugins_count(w.plugins), 1);
    sl_plugins_resource(w.plugins, 0, &info);
    assert_string_equal(info.name, GPU);
    assert_int_equal(info.advertised, 8);
    assert_int_equal(info.healthy, 8);
    assert_true(info.registered);
    sl_plugins_destroy(w.plugins);
    w.plugins = NULL;
    assert_int_not_equal(lstat(path, &st), 0); /* nothing is left behind */
    world_close(&w);
}

static void other_domains_have_their_own_socket(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    fake_start(&w.kubelet, w.loop, w.dir);
    char longest[128] = "a-rather-long-domain.example.com/";
    memset(longest + 33, 'x', 63);
    const struct world_resource r[] = {{.name = GPU, .gpus = 2, .replicas = 1},
                                       {.name = "example.com/gpu", .gpus = 2, .replicas = 1},
                                       {.name = longest, .gpus = 1, .replicas = 1}};
    world_apply(&w, r, 3);
    struct fake_resource *a = world_wait(&w, GPU, 2), *b = world_wait(&w, "example.com/gpu", 2);
    assert_string_not_equal(a->endpoint, b->endpoint);
    assert_true(world_wait(&w, longest, 1)->stream != NULL);
    world_close(&w);
}

static void plan_changes_live(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply_one(&w, GPU, 1, 2);
    struct fake_resource *r = world_wait(&w, GPU, 2);
    unsigned lists = r->lists;
    world_apply_one(&w, GPU, 1, 2); /* the same: not a word */
    world_settle(&w);
    assert_int_equal(r->lists, lists);
    world_apply_one(&w, GPU, 2, 2);
    assert_ptr_equal(world_wait(&w, GPU, 4), r);
    assert_int_equal(r->registrations, 1);
    assert_int_equal(r->ends, 0);
    assert_int_equal(r->blips, 0);
    /* A second resource comes, the first one stays. */
    const struct world_resource both[] = {
        {.name = "nvidia.com/gpu.shared", .gpus = 2, .replicas = 4},
        {.name = GPU, .gpus = 2, .replicas = 2}};
    world_apply(&w, both, 2);
    (void)world_wait(&w, "nvidia.com/gpu.shared", 8);
    assert_int_equal(r->registrations, 1);
    assert_int_equal(r->blips, 0);
    world_close(&w);
}

/* 1 replica → 2: other ids, the same registration. */
static void one_replica_becomes_two(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 1);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply_one(&w, GPU, 1, 1);
    struct fake_resource *r = world_wait(&w, GPU, 1);
    world_apply_one(&w, GPU, 1, 2);
    (void)world_wait(&w, GPU, 2);
    world_apply_one(&w, GPU, 1, 1);
    (void)world_wait(&w, GPU, 1);
    assert_int_equal(r->registrations, 1);
    assert_int_equal(r->ends, 0);
    world_close(&w);
}

static void a_resource_that_goes_is_emptied_first(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply_one(&w, GPU, 2, 1);
    struct fake_resource *r = world_wait(&w, GPU, 2);
    unsigned lists = r->lists;
    world_apply(&w, NULL, 0);
    world_until(&w, r->ends == 1);
    assert_int_equal(r->lists, lists + 1);
    assert_int_equal(r->devices, 0); /* the last it heard */
    assert_int_equal(sl_plugins_count(w.plugins), 0);
    assert_true(sl_plugins_ready(w.plugins));
    /* And back, at once: not to be taken for the one that went. */
    world_apply_one(&w, GPU, 2, 1);
    (void)world_wait(&w, GPU, 2);
    world_apply(&w, NULL, 0);
    world_apply_one(&w, GPU, 2, 1);
    (void)world_wait(&w, GPU, 2);
    world_close(&w);
}

static void health_flips_every_replica(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    fake_start(&w.kubelet, w.loop, w.dir);
    const struct world_resource both[] = {{.name = GPU, .gpus = 2, .replicas = 3},
                                          {.name = "nvidia.com/other", .gpus = 1, .replicas = 1}};
    world_apply(&w, both, 2);
    struct fake_resource *r = world_wait(&w, GPU, 6), *o = world_wait(&w, "nvidia.com/other", 1);
    const char *uuid = w.inv.gpu[0].info.uuid;
    set_health(&w, uuid, false);
    set_health(&w, uuid, false);
    world_until(&w, r->healthy == 3 && o->healthy == 0);
    for (size_t i = 0; i < r->devices; i++)
        assert_int_equal(r->ok[i], strncmp(r->id[i], uuid, strlen(uuid)) != 0);
    /* A new plan does not forget it. */
    world_apply_one(&w, GPU, 2, 4);
    world_until(&w, r->devices == 8 && r->healthy == 4);
    set_health(&w, uuid, true);
    (void)world_wait(&w, GPU, 8);
    /* One id alone. */
    char id[80];
    (void)snprintf(id, sizeof(id), "%s::2", uuid);
    set_health(&w, id, false);
    world_until(&w, r->healthy == 7);
    set_health(&w, id, true);
    (void)world_wait(&w, GPU, 8);
    /* Lost on the bus, says the inventory. */
    w.inv.gpu[1].lost = true;
    world_apply_one(&w, GPU, 2, 4);
    world_until(&w, r->healthy == 4);
    w.inv.gpu[1].lost = false;
    world_apply_one(&w, GPU, 2, 4);
    (void)world_wait(&w, GPU, 8);
    assert_int_equal(r->registrations, 1);
    world_close(&w);
}

static void many_devices_and_a_slow_reader(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 20);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply_one(&w, GPU, 20, 1000);
    struct fake_resource *r = world_wait(&w, GPU, 20000);
    sl_rpc_call_pause(r->stream);
    unsigned before = r->lists;
    for (int i = 0; i < 51; i++) { /* ends unhealthy */
        set_health(&w, w.inv.gpu[7].info.uuid, i % 2 == 1);
        world_settle(&w);
    }
    struct sl_plugins_stats stats;
    sl_plugins_stats(w.plugins, &stats);
    sl_rpc_call_resume(r->stream);
    world_until(&w, r->healthy == 19000);
    world_settle(&w);
    assert_int_equal(r->healthy, 19000); /* and nothing older comes after it */
    assert_true(r->lists - before <= 3);
    set_health(&w, w.inv.gpu[7].info.uuid, true);
    (void)world_wait(&w, GPU, 20000);
    world_close(&w);
}

static void small_lists_are_not_queued_either(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 8);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply_one(&w, GPU, 8, 1000);
    struct fake_resource *r = world_wait(&w, GPU, 8000);
    sl_rpc_call_pause(r->stream);
    unsigned before = r->lists;
    for (int i = 0; i < 101; i++) {
        set_health(&w, w.inv.gpu[0].info.uuid, i % 2 == 1);
        world_settle(&w);
    }
    sl_rpc_call_resume(r->stream);
    world_until(&w, r->healthy == 7000);
    world_settle(&w);
    assert_int_equal(r->healthy, 7000);
    assert_true(r->lists - before <= 4);
    world_close(&w);
}

static void allocates(void **state)
{
    (void)state;
    struct world w;
    struct fake_call c;
    world_open(&w, 2);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply_one(&w, GPU, 2, 2);
    struct fake_resource *r = world_wait(&w, GPU, 4);
    const char *ids[] = {r->id[0], r->id[3]};
    fake_allocate(r, ids, 2, &c);
    world_call_end(&w, &c);
    assert_int_equal(c.code, SL_RPC_OK);
    ProtobufCMessage *m;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(
        sl_rpc_pb_unpack(&dp__allocate_response__descriptor, c.answer, c.size, &m, &err), 0);
    const Dp__AllocateResponse *answer = (const void *)m;
    assert_int_equal(answer->n_container_responses, 1);
    const Dp__ContainerAllocateResponse *one = answer->container_responses[0];
    assert_int_equal(one->n_envs, 2);
    assert_string_equal(one->envs[0]->key, "DEVICES");
    assert_string_equal(one->envs[0]->value, ids[0]);
    assert_string_equal(one->envs[1]->value, GPU);
    assert_int_equal(one->n_annotations, 1);
    assert_string_equal(one->annotations[0]->key, "cdi.k8s.io/sluice");
    assert_int_equal(one->n_mounts, 1);
    assert_string_equal(one->mounts[0]->host_path, "/host");
    assert_true(one->mounts[0]->read_only);
    assert_int_equal(one->n_devices, 1);
    assert_string_equal(one->devices[0]->permissions, "rw");
    assert_int_equal(one->n_cdi_devices, 1);
    assert_string_equal(one->cdi_devices[0]->name, "k8s.device-plugin.nvidia.com/gpu=0");
    sl_rpc_pb_free(m);
    fake_call_free(&c);
    assert_int_equal(w.allocated_ids, 2);
    fake_call(r, "PreStartContainer", "", 0, &c);
    world_call_end(&w, &c);
    assert_int_equal(c.code, SL_RPC_OK);
    fake_call_free(&c);
    struct sl_plugins_stats stats;
    sl_plugins_stats(w.plugins, &stats);
    assert_int_equal(stats.allocations, 1);
    assert_int_equal(stats.allocation_failures, 0);
    assert_true(stats.allocate_ns_sum > 0);
    world_close(&w);
}

/* The text must say what is wrong. */
static void refused(struct world *w, struct fake_resource *r, const char *const *ids, size_t n,
                    enum sl_rpc_code code, const char *what)
{
    struct fake_call c;
    fake_allocate(r, ids, n, &c);
    world_call_end(w, &c);
    assert_int_equal(c.code, code);
    if (!strstr(c.text, what))
        fail_msg("\"%s\" is not in \"%s\"", what, c.text);
    fake_call_free(&c);
}

static void refuses_with_cause_and_cure(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    fake_start(&w.kubelet, w.loop, w.dir);
    const struct world_resource shared = {
        .name = GPU, .gpus = 2, .replicas = 2, .fail_more_than_one = true};
    world_apply(&w, &shared, 1);
    struct fake_resource *r = world_wait(&w, GPU, 4);
    char first[80], second[80];
    (void)snprintf(first, sizeof(first), "%s", r->id[0]);
    (void)snprintf(second, sizeof(second), "%s", r->id[1]);
    const char *unknown[] = {"GPU-nobody"}, *two[] = {first, second}, *twice[] = {first, first};
    refused(&w, r, unknown, 1, SL_RPC_NOT_FOUND, "no device \"GPU-nobody\"");
    refused(&w, r, two, 2, SL_RPC_INVALID_ARGUMENT,
            "maximum request size for shared resources is 1; found 2");
    refused(&w, r, NULL, 0, SL_RPC_INVALID_ARGUMENT, "asks for no device");
    assert_int_equal(w.allocated, 0);
    world_apply_one(&w, GPU, 2, 2);
    refused(&w, r, twice, 2, SL_RPC_INVALID_ARGUMENT, "twice");
    set_health(&w, w.inv.gpu[0].info.uuid, false);
    refused(&w, r, two, 1, SL_RPC_NOT_FOUND, "unhealthy");
    set_health(&w, w.inv.gpu[0].info.uuid, true);
    w.allocate_fails = true;
    refused(&w, r, two, 1, SL_RPC_INTERNAL, "the disk is full: make room");
    w.allocate_fails = false;
    w.bad_value = "\xc3(";
    refused(&w, r, two, 1, SL_RPC_INTERNAL, "not valid UTF-8");
    w.bad_value = "\xed\xa0\x80"; /* half a surrogate pair */
    refused(&w, r, two, 1, SL_RPC_INTERNAL, "not valid UTF-8");
    struct sl_plugins_stats stats;
    sl_plugins_stats(w.plugins, &stats);
    assert_int_equal(stats.allocations, 0);
    assert_int_equal(stats.allocation_failures, 8);
    w.bad_value = "grün ✓ 𝄞";
    struct fake_call c;
    fake_allocate(r, two, 1, &c);
    world_call_end(&w, &c);
    assert_int_equal(c.code, SL_RPC_OK);
    fake_call_free(&c);
    world_close(&w);
}

static size_t preferred(struct world *w, struct fake_resource *r, const char *const *available,
                        size_t n, const char *must, int want, char out[][80])
{
    struct fake_call c;
    fake_prefer(r, available, n, &must, must ? 1 : 0, want, &c);
    world_call_end(w, &c);
    if (c.code != SL_RPC_OK) {
        fake_call_free(&c);
        return SIZE_MAX;
    }
    ProtobufCMessage *m;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_rpc_pb_unpack(&dp__preferred_allocation_response__descriptor, c.answer,
                                      c.size, &m, &err),
                     0);
    const Dp__PreferredAllocationResponse *answer = (const void *)m;
    const Dp__ContainerPreferredAllocationResponse *one = answer->container_responses[0];
    size_t count = one->n_deviceids;
    for (size_t i = 0; i < count; i++)
        (void)snprintf(out[i], 80, "%s", one->deviceids[i]);
    sl_rpc_pb_free(m);
    fake_call_free(&c);
    return count;
}

static void prefers_what_is_linked(void **state)
{
    (void)state;
    struct world w;
    char out[8][80];
    world_open(&w, 8);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply_one(&w, GPU, 8, 1);
    struct fake_resource *r = world_wait(&w, GPU, 8);
    const char *free_ids[] = {r->id[1], r->id[5], r->id[6], "GPU-of-yesterday", r->id[2], r->id[7]};
    assert_int_equal(preferred(&w, r, free_ids, 6, NULL, 2, out), 2);
    /* 1 and 2 are a pair; taking two of 5, 6, 7 would leave worse. */
    assert_string_equal(out[0], r->id[1]);
    assert_string_equal(out[1], r->id[2]);
    assert_int_equal(preferred(&w, r, free_ids, 6, r->id[6], 3, out), 3);
    assert_string_equal(out[0], r->id[6]);
    assert_string_equal(out[1], r->id[5]);
    assert_string_equal(out[2], r->id[7]);
    assert_int_equal(preferred(&w, r, free_ids, 6, NULL, 6, out), SIZE_MAX);
    assert_int_equal(preferred(&w, r, free_ids, 6, NULL, -1, out), SIZE_MAX);
    assert_int_equal(preferred(&w, r, free_ids, 6, "GPU-of-yesterday", 2, out), SIZE_MAX);
    world_close(&w);
}

static void spreads_and_packs_shares(void **state)
{
    (void)state;
    struct world w;
    char out[8][80];
    world_open(&w, 2);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply_one(&w, GPU, 2, 4);
    struct fake_resource *r = world_wait(&w, GPU, 8);
    /* Card 0 has two of four left, card 1 all. */
    const char *free_ids[] = {r->id[2], r->id[3], r->id[4], r->id[5], r->id[6], r->id[7]};
    assert_int_equal(preferred(&w, r, free_ids, 6, NULL, 1, out), 1);
    assert_string_equal(out[0], r->id[4]);
    assert_int_equal(preferred(&w, r, free_ids, 6, NULL, 2, out), 2);
    assert_int_not_equal(strncmp(out[0], out[1], 40), 0);
    sl_plugins_set_policy(w.plugins, SL_POLICY_PACKED);
    assert_int_equal(preferred(&w, r, free_ids, 6, NULL, 2, out), 2);
    assert_string_equal(out[0], r->id[2]);
    assert_string_equal(out[1], r->id[3]);
    assert_int_equal(preferred(&w, r, free_ids, 6, r->id[7], 2, out), 2);
    assert_string_equal(out[0], r->id[7]);
    world_close(&w);
}

/* Several shares under MPS are a larger one: of one card, whatever the policy, while one has so many. */
static void larger_shares_are_of_one_card(void **state)
{
    (void)state;
    struct world w;
    char out[8][80];
    world_open(&w, 2);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply(&w, &(struct world_resource){.name = GPU, .gpus = 2, .replicas = 4, .mps = true},
                1);
    struct fake_resource *r = world_wait(&w, GPU, 8);
    /* Card 0 has two of four left, card 1 three. */
    const char *free_ids[] = {r->id[2], r->id[3], r->id[5], r->id[6], r->id[7]};
    assert_int_equal(preferred(&w, r, free_ids, 5, NULL, 2, out), 2);
    assert_string_equal(out[0], r->id[5]);
    assert_string_equal(out[1], r->id[6]);
    assert_int_equal(preferred(&w, r, free_ids, 5, r->id[3], 2, out), 2);
    assert_string_equal(out[0], r->id[3]);
    assert_string_equal(out[1], r->id[2]);
    sl_plugins_set_policy(w.plugins, SL_POLICY_PACKED);
    assert_int_equal(preferred(&w, r, free_ids, 5, NULL, 2, out), 2);
    assert_string_equal(out[0], r->id[2]);
    assert_int_equal(preferred(&w, r, free_ids, 5, NULL, 3, out), 3);
    assert_string_equal(out[0], r->id[5]);
    assert_int_equal(preferred(&w, r, free_ids, 5, NULL, 4, out),
                     4); /* nobody has: Allocate says so */
    world_close(&w);
}

static void a_bad_plan_changes_nothing(void **state)
{
    (void)state;
    struct world w;
    struct sl_err err = SL_ERR_INIT;
    world_open(&w, 2);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply_one(&w, GPU, 2, 1);
    struct fake_resource *r = world_wait(&w, GPU, 2);
    const struct world_resource twice[] = {{.name = GPU, .gpus = 1, .replicas = 1},
                                           {.name = GPU, .gpus = 2, .replicas = 1}};
    struct sl_plan *plan = world_plan(&w, twice, 2);
    assert_int_equal(sl_plugins_apply(w.plugins, plan, &w.inv, &err), -EEXIST);
    plan->resource[1].name[11] = 'h';
    plan->resource[1].device[1] = plan->resource[1].device[0];
    assert_int_equal(sl_plugins_apply(w.plugins, plan, &w.inv, &err), -EEXIST);
    plan->resource[1].device[1].gpu = 9;
    assert_int_equal(sl_plugins_apply(w.plugins, plan, &w.inv, &err), -EINVAL);
    plan->resource[1].device[1].gpu = 1;
    strcpy(plan->resource[1].device[1].id, "\xff");
    assert_int_equal(sl_plugins_apply(w.plugins, plan, &w.inv, &err), -EINVAL);
    for (size_t i = 0; i < 2; i++)
        free(plan->resource[i].device);
    free(plan->resource);
    free(plan);
    world_settle(&w);
    assert_int_equal(sl_plugins_count(w.plugins), 1);
    assert_int_equal(r->devices, 2);
    assert_int_equal(r->lists, 1);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registers_and_lists),
        cmocka_unit_test(other_domains_have_their_own_socket),
        cmocka_unit_test(plan_changes_live),
        cmocka_unit_test(one_replica_becomes_two),
        cmocka_unit_test(a_resource_that_goes_is_emptied_first),
        cmocka_unit_test(health_flips_every_replica),
        cmocka_unit_test(many_devices_and_a_slow_reader),
        cmocka_unit_test(small_lists_are_not_queued_either),
        cmocka_unit_test(allocates),
        cmocka_unit_test(refuses_with_cause_and_cure),
        cmocka_unit_test(prefers_what_is_linked),
        cmocka_unit_test(spreads_and_packs_shares),
        cmocka_unit_test(larger_shares_are_of_one_card),
        cmocka_unit_test(a_bad_plan_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
