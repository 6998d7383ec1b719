/* SPDX-License-Identifier: Apache-2.0 */
/* PreStartContainer: who is asked, answers that come late, callers and plugins that do not wait for them. */
#include "plugin_world.h"

#include <errno.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_fractions_ask_for_it), cmocka_unit_test(answers_later),
        cmocka_unit_test(says_why_not),              cmocka_unit_test(callers_leave),
        cmocka_unit_test(plugins_leave),             cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
