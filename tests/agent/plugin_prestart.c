/* SPDX-License-Identifier: Apache-2.0 */
/* PreStartContainer: who is asked, answers that come late, callers and plugins that do not wait for them. */
#include "plugin_world.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "deviceplugin.pb-c.h"

#define GPU "nvidia.com/gpu"
#define ID  "GPU-00000000-0000-0000-0000-000000000000::1"

static const char *const ids[] = {ID};
static const struct world_resource fractions = {
    .name = GPU, .gpus = 1, .replicas = 4, .fractions = true};

static struct fake_resource *open_fractions(struct world *w)
{
    world_open(w, 1);
    fake_start(&w->kubelet, w->loop, w->dir);
    world_apply(w, &fractions, 1);
    return world_wait(w, GPU, 4);
}

static void only_fractions_ask_for_it(void **state)
{
    (void)state;
    struct world w;
    struct fake_call call;
    world_open(&w, 1);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply_one(&w, GPU, 1, 4);
    struct fake_resource *r = world_wait(&w, GPU, 4);
    world_until(&w, r->options_answered);
    assert_false(r->prestart || r->prestart_registered);
    fake_prestart(r, ids, 1, SL_RPC_NO_TIMEOUT, &call); /* as any kubelet may */
    world_call_end(&w, &call);
    assert_int_equal(call.code, SL_RPC_OK);
    assert_int_equal(w.prestarts, 0);
    fake_call_free(&call);
    /* Kubelet learns by registration alone that this has changed, and how it changes back. */
    r->options_answered = false;
    world_apply(&w, &fractions, 1);
    world_until(&w, r->options_answered && r->registrations == 2);
    assert_true(r->prestart && r->prestart_registered);
    (void)world_wait(&w, GPU, 4);
    world_apply(&w, &fractions, 1);
    world_settle(&w);
    assert_int_equal(r->registrations, 2);
    world_apply_one(&w, GPU, 1, 4);
    world_until(&w, r->registrations == 3 && !r->prestart_registered);
    world_close(&w);
}

static void answers_later(void **state)
{
    (void)state;
    struct world w;
    struct fake_call call, other;
    struct sl_plugins_stats stats;
    struct fake_resource *r = open_fractions(&w);
    fake_prestart(r, ids, 1, 30 * SL_NS_PER_S, &call);
    world_until(&w, w.prestart);
    struct sl_prestart *first = w.prestart;
    uint64_t deadline = sl_prestart_deadline(first);
    assert_true(deadline > sl_loop_now(w.loop) &&
                deadline <= sl_loop_now(w.loop) + 30 * SL_NS_PER_S);
    /* Others are served meanwhile. */
    w.prestart_at_once = true;
    fake_prestart(r, ids, 1, SL_RPC_NO_TIMEOUT, &other);
    world_call_end(&w, &other);
    assert_int_equal(other.code, SL_RPC_OK);
    assert_false(call.done);
    fake_call_free(&other);
    sl_prestart_answer(first, NULL);
    world_call_end(&w, &call);
    assert_int_equal(call.code, SL_RPC_OK);
    fake_call_free(&call);
    sl_plugins_stats(w.plugins, &stats);
    assert_int_equal(stats.prestarts, 2);
    world_close(&w);
}

static void says_why_not(void **state)
{
    (void)state;
    struct world w;
    struct fake_call call;
    struct sl_plugins_stats stats;
    struct sl_err err = SL_ERR_INIT;
    struct fake_resource *r = open_fractions(&w);
    fake_prestart(r, ids, 1, SL_RPC_NO_TIMEOUT, &call);
    world_until(&w, w.prestart);
    (void)sl_err_set(&err, -ENODATA, "nothing was promised");
    sl_prestart_answer(w.prestart, &err);
    world_call_end(&w, &call);
    assert_int_not_equal(call.code, SL_RPC_OK);
    assert_string_equal(call.text, GPU ": nothing was promised");
    sl_plugins_stats(w.plugins, &stats);
    assert_int_equal(stats.prestart_failures, 1);
    fake_call_free(&call);
    world_close(&w);
}

static void callers_leave(void **state)
{
    (void)state;
    struct world w;
    struct fake_call call, late;
    struct fake_resource *r = open_fractions(&w);
    fake_prestart(r, ids, 1, SL_RPC_NO_TIMEOUT, &call);
    world_until(&w, w.prestart);
    struct sl_prestart *left = w.prestart;
    sl_rpc_call_cancel(call.call);
    world_until(&w, sl_prestart_deadline(left) == UINT64_MAX); /* noticed */
    w.prestart = NULL;
    fake_prestart(r, ids, 1, 50 * SL_NS_PER_MS, &late);
    world_until(&w, w.prestart);
    world_call_end(&w, &late);
    assert_int_equal(late.code, SL_RPC_DEADLINE_EXCEEDED);
    sl_prestart_answer(left, NULL); /* to nobody */
    sl_prestart_answer(w.prestart, NULL);
    world_settle(&w);
    fake_call_free(&call);
    fake_call_free(&late);
    world_close(&w);
}

static void plugins_leave(void **state)
{
    (void)state;
    struct world w;
    struct fake_call call, second;
    struct sl_err err = SL_ERR_INIT;
    struct fake_resource *r = open_fractions(&w);
    fake_prestart(r, ids, 1, SL_RPC_NO_TIMEOUT, &call);
    world_until(&w, w.prestart);
    struct sl_prestart *first = w.prestart;
    w.prestart = NULL;
    fake_prestart(r, ids, 1, SL_RPC_NO_TIMEOUT, &second);
    world_until(&w, w.prestart);
    sl_plugins_destroy(w.plugins);
    w.plugins = NULL;
    world_call_end(&w, &call);
    assert_int_not_equal(call.code, SL_RPC_OK);
    (void)sl_err_set(&err, -EAGAIN, "the agent is stopping");
    sl_prestart_answer(first, NULL);
    sl_prestart_answer(w.prestart, &err);
    fake_call_free(&call);
    fake_call_free(&second);
    world_close(&w);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    struct world w;
    struct fake_call call;
    struct fake_resource *r = open_fractions(&w);
    fake_call(r, "PreStartContainer", "\xff\xff\xff", 3, &call);
    world_call_end(&w, &call);
    assert_int_equal(call.code, SL_RPC_INTERNAL);
    assert_int_equal(w.prestarts, 0);
    fake_call_free(&call);
    fake_prestart(r, ids, 0, SL_RPC_NO_TIMEOUT, &call); /* no device: nothing to wait for */
    world_call_end(&w, &call);
    assert_int_equal(call.code, SL_RPC_OK);
    assert_int_equal(w.prestarts, 0);
    fake_call_free(&call);
    world_close(&w);
}

static void write_checkpoint(const struct world *w, const char *text)
{
    char path[160];
    (void)snprintf(path, sizeof(path), "%s/kubelet_internal_checkpoint", w->dir);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void vacate(struct world *w)
{
    struct sl_plan *plan = world_plan(w, &fractions, 1);
    sl_plugins_vacate(w->plugins, plan);
    world_plan_free(plan);
}

/* Fractions by a plugin, then an agent that serves claims: kubelet is not to ask a plugin that has gone. */
static void is_asked_for_no_longer(void **state)
{
    (void)state;
    struct world w;
    struct fake_resource *r = open_fractions(&w);
    world_until(&w, r->options_answered && r->prestart);
    sl_plugins_destroy(w.plugins); /* as an agent that ends: kubelet is told nothing */
    world_until(&w, r->ends == 1);
    w.plugins = world_plugins(&w);
    r->options_answered = false;
    write_checkpoint(&w, "{\"Data\":{\"PodDeviceEntries\":null,\"RegisteredDevices\":{\"" GPU
                         "\":[\"" ID "\"],\"example.com/nic\":[]}},\"Checksum\":1}");
    vacate(&w);
    world_until(&w, r->options_answered && r->registrations == 2 && r->ends == 2);
    assert_false(r->prestart || r->prestart_registered);
    assert_int_equal(r->devices, 0);
    world_settle(&w);
    assert_int_equal(w.kubelet.registrations, 2);
    assert_int_equal(sl_plugins_count(w.plugins), 0);
    assert_true(sl_plugins_ready(w.plugins));
    /* The name can be taken again. */
    world_apply(&w, &fractions, 1);
    (void)world_wait(&w, GPU, 4);
    assert_true(r->prestart_registered);
    world_close(&w);
}

static void disturbs_nobody_in_vain(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"Data\":{\"RegisteredDevices\":{\"example.com/nic\":[\"" GPU "\"]}}}",
        "{\"Data\":{\"PodDeviceEntries\":[{\"ResourceName\":\"" GPU "\"}]}}",
        "{\"Data\":[\"" GPU "\"]}",
        "{\"Data\":{\"RegisteredDevices\":{\"" GPU "\":[\"",
        "",
    };
    struct world w;
    world_open(&w, 1);
    fake_start(&w.kubelet, w.loop, w.dir);
    vacate(&w); /* no checkpoint at all */
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        write_checkpoint(&w, texts[i]);
        vacate(&w);
        world_settle(&w);
    }
    assert_int_equal(w.kubelet.registrations, 0);
    world_close(&w);
}

/* An agent that is on its way out is waited for, not pushed. */
static void waits_for_the_one_before(void **state)
{
    (void)state;
    struct world w;
    struct fake_resource *r = open_fractions(&w);
    struct sl_plugins *before = w.plugins;
    write_checkpoint(&w, "{\"Data\":{\"RegisteredDevices\":{\"" GPU "\":[]}}}");
    w.plugins = world_plugins(&w);
    vacate(&w);
    world_settle(&w);
    assert_int_equal(r->registrations, 1);
    assert_int_equal(r->ends, 0);
    sl_plugins_destroy(before);
    world_until(&w, r->registrations == 2 && r->ends == 2);
    assert_false(r->prestart_registered);
    assert_int_equal(w.notices, 0);
    /* Forgotten with the rest when the agent ends in the middle of it. */
    fake_stop(&w.kubelet, false);
    vacate(&w);
    world_settle(&w);
    world_close(&w);
}

/* NVIDIA's own plugin beside claims: it is left alone, and that both give the same cards out is said, once. */
static void another_plugin_stays(void **state)
{
    (void)state;
    struct world w;
    world_open_timeless(&w, 1);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply(&w, &fractions, 1);
    struct fake_resource *r = world_wait(&w, GPU, 4);
    struct sl_plugins *other = w.plugins;
    write_checkpoint(&w, "{\"Data\":{\"RegisteredDevices\":{\"" GPU "\":[]}}}");
    w.plugins = world_plugins(&w);
    vacate(&w);
    world_pass(&w, 50000);
    assert_int_equal(w.notices, 0);
    world_pass(&w, 20000);
    assert_int_equal(w.notices, 1);
    world_pass(&w, 260000);
    assert_int_equal(w.notices, 1);
    assert_int_equal(r->registrations, 1);
    assert_int_equal(r->ends, 0);
    sl_plugins_destroy(other);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_fractions_ask_for_it),
        cmocka_unit_test(answers_later),
        cmocka_unit_test(says_why_not),
        cmocka_unit_test(callers_leave),
        cmocka_unit_test(plugins_leave),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(is_asked_for_no_longer),
        cmocka_unit_test(disturbs_nobody_in_vain),
        cmocka_unit_test(waits_for_the_one_before),
        cmocka_unit_test(another_plugin_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
