/* SPDX-License-Identifier: Apache-2.0 */
/* Which cards may be given out, on a virtual clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/cards/health.h"
#include "base/clock.h"

#define S SL_NS_PER_S

static uint64_t now_ns;
static uint64_t virtual_now(void)
{
    return now_ns;
}

struct world {
    struct sl_loop *loop;
    struct sl_health *health;
    struct sl_inventory inv;
    struct sl_inv_gpu gpu[2];
    struct sl_inv_mig mig[3];
    char log[2048]; /* "-GPU-0 +GPU-0": what `changed` said, in order */
    char reason[400];
    unsigned refreshes;
    uint64_t also_ignored, not_ignored;
};

static void changed(void *data, const char *uuid, bool healthy, const char *reason)
{
    struct world *w = data;
    size_t n = strlen(w->log);
    (void)snprintf(w->log + n, sizeof(w->log) - n, "%s%c%s", n ? " " : "", healthy ? '+' : '-',
                   uuid);
    (void)snprintf(w->reason, sizeof(w->reason), "%s", reason);
}

static void refresh(void *data)
{
    ((struct world *)data)->refreshes++;
}

static bool ignored(void *data, uint64_t xid)
{
    const struct world *w = data;
    return xid != w->not_ignored && (xid == 31 || xid == w->also_ignored);
}

/* GPU-0 is whole; GPU-1 has three MIG devices. */
static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    now_ns = 1000 * S;
    assert_int_equal(sl_loop_create(virtual_now, &w->loop, NULL), 0);
    struct sl_health_options options = {.ignored = ignored,
                                        .quiet_ns = 60 * S,
                                        .reset_quiet_ns = 300 * S,
                                        .changed = changed,
                                        .refresh = refresh,
                                        .data = w};
    w->health = sl_health_create(w->loop, &options);
    w->inv.gpu = w->gpu;
    w->inv.gpu_count = 2;
    strcpy(w->gpu[0].info.uuid, "GPU-0");
    strcpy(w->gpu[1].info.uuid, "GPU-1");
    w->gpu[1].mig = w->mig;
    w->gpu[1].mig_count = 3;
    for (uint32_t i = 0; i < 3; i++) {
        (void)snprintf(w->mig[i].info.uuid, sizeof(w->mig[i].info.uuid), "MIG-%u", i);
        w->mig[i].info.gpu_instance = 7 + i / 2; /* 7, 7, 8 */
        w->mig[i].info.compute_instance = i % 2;
    }
    sl_health_polled(w->health, &w->inv, now_ns);
    assert_string_equal(w->log, "");
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    sl_health_destroy(w->health);
    sl_loop_destroy(w->loop);
    free(w);
    return 0;
}

static void pass(struct world *w, uint64_t ns)
{
    now_ns += ns;
    assert_int_equal(sl_loop_step(w->loop, 0, NULL), 0);
}

static void poll_now(struct world *w)
{
    sl_health_polled(w->health, &w->inv, now_ns);
}

static void xid(struct world *w, const char *uuid, uint64_t number, uint32_t gi, uint32_t ci)
{
    struct sl_gpu_event e = {
        .device_known = uuid != NULL, .xid = number, .gpu_instance = gi, .compute_instance = ci};
    sl_health_xid(w->health, uuid, &e);
}

#define WHOLE SL_GPU_NO_INSTANCE, SL_GPU_NO_INSTANCE

static void test_application_xids(void **state)
{
    struct world *w = *state;
    xid(w, "GPU-0", 31, WHOLE);
    w->also_ignored = 63;
    xid(w, "GPU-0", 63, WHOLE);
    assert_string_equal(w->log, "");
    w->not_ignored = 31; /* the user wants to hear of it */
    xid(w, "GPU-0", 31, WHOLE);
    assert_string_equal(w->log, "-GPU-0");
}

static void test_whole_card_with_mig(void **state)
{
    struct world *w = *state;
    xid(w, "GPU-1", 92, WHOLE);
    assert_string_equal(w->log, "-GPU-1 -MIG-0 -MIG-1 -MIG-2");
    assert_true(sl_health_ok(w->health, "GPU-0"));
    assert_false(sl_health_ok(w->health, "MIG-2"));
}

static void test_one_instance(void **state)
{
    struct world *w = *state;
    xid(w, "GPU-1", 69, 7, 1);
    assert_string_equal(w->log, "-MIG-1");
    xid(w, "GPU-1", 69, 7, SL_GPU_NO_INSTANCE);
    assert_string_equal(w->log, "-MIG-1 -MIG-0");
    xid(w, "GPU-1", 69, 3, 0); /* none we know */
    assert_string_equal(w->log, "-MIG-1 -MIG-0 -GPU-1 -MIG-2");
}

/* A bus error is the card's, whatever instance it names. */
static void test_instance_of_card_error(void **state)
{
    struct world *w = *state;
    xid(w, "GPU-1", 79, 7, 0);
    assert_string_equal(w->log, "-GPU-1 -MIG-0 -MIG-1 -MIG-2");
    assert_non_null(strstr(w->reason, "XID 79 (the card has fallen off the bus)"));
}

static void test_recovery(void **state)
{
    struct world *w = *state;
    xid(w, "GPU-0", 92, WHOLE);
    assert_int_equal(w->refreshes, 1);
    pass(w, 59 * S);
    poll_now(w);
    assert_string_equal(w->log, "-GPU-0");
    pass(w, 1 * S); /* it answered after the XID: the quiet time is all that was missing */
    assert_string_equal(w->log, "-GPU-0 +GPU-0");
    assert_non_null(strstr(w->reason, "healthy again"));
}

/* Not without an answer: a stalled NVML keeps a sick card sick, and a healthy one healthy. */
static void test_no_answer_no_change(void **state)
{
    struct world *w = *state;
    now_ns += 1;
    xid(w, "GPU-0", 92, WHOLE);
    pass(w, 600 * S);
    assert_string_equal(w->log, "-GPU-0");
    assert_true(w->refreshes >= 2); /* it asks */
    assert_true(sl_health_ok(w->health, "GPU-1"));
    sl_health_polled(w->health, &w->inv, now_ns - 601 * S); /* a question from before the XID */
    assert_string_equal(w->log, "-GPU-0");
    poll_now(w);
    assert_string_equal(w->log, "-GPU-0 +GPU-0");
}

static void test_storm(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 1000; i++) {
        xid(w, "GPU-0", 92, WHOLE);
        pass(w, S / 10);
    }
    assert_string_equal(w->log, "-GPU-0");
    assert_true(w->refreshes <= 1000 / 50 + 1); /* every 5 s at most */
    poll_now(w);
    pass(w, 59 * S);
    assert_string_equal(w->log, "-GPU-0"); /* quiet counts from the last one */
    pass(w, 2 * S);
    assert_string_equal(w->log, "-GPU-0 +GPU-0");
}

/* Errors that call for a reset: the longer time, and a question put after it. */
static void test_reset_xids(void **state)
{
    struct world *w = *state;
    static const uint64_t numbers[] = {48, 62, 64, 74, 79, 94, 95, 119, 120};
    for (size_t i = 0; i < 9; i++) {
        xid(w, "GPU-0", numbers[i], WHOLE);
        assert_non_null(strstr(w->reason, "should be reset"));
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
        w = *state;
    }
    xid(w, "GPU-0", 48, WHOLE);
    assert_non_null(strstr(w->reason, "reset"));
    pass(w, 299 * S);
    poll_now(w);
    unsigned asked = w->refreshes;
    pass(w, 2 * S);
    assert_string_equal(w->log, "-GPU-0");
    assert_int_equal(w->refreshes, asked + 1);
    poll_now(w);
    assert_string_equal(w->log, "-GPU-0 +GPU-0");
}

/* It went and came back: that was the reset, the short time is enough. */
static void test_reset_seen(void **state)
{
    struct world *w = *state;
    xid(w, "GPU-0", 79, WHOLE);
    w->gpu[0].lost = true;
    pass(w, 30 * S);
    poll_now(w);
    w->gpu[0].lost = false;
    pass(w, 60 * S);
    poll_now(w);
    assert_string_equal(w->log, "-GPU-0 +GPU-0");
}

static void test_lost_card(void **state)
{
    struct world *w = *state;
    w->gpu[1].lost = true;
    poll_now(w);
    assert_string_equal(w->log, "-GPU-1 -MIG-0 -MIG-1 -MIG-2");
    assert_false(sl_health_ok(w->health, "MIG-0"));
    assert_non_null(strstr(w->reason, "does not answer: it fell off the bus"));
    w->gpu[1].lost = false;
    poll_now(w);
    assert_string_equal(w->log, "-GPU-1 -MIG-0 -MIG-1 -MIG-2 +GPU-1 +MIG-0 +MIG-1 +MIG-2");
}

/* A card that falls ill again and again is kept back longer each time. */
static void test_repeated(void **state)
{
    struct world *w = *state;
    for (unsigned i = 0; i < 3; i++) {
        w->log[0] = '\0';
        xid(w, "GPU-0", 92, WHOLE);
        pass(w, (60U << i) * S - S);
        poll_now(w);
        assert_string_equal(w->log, "-GPU-0");
        pass(w, S);
        assert_string_equal(w->log, "-GPU-0 +GPU-0");
    }
    pass(w, 3601 * S); /* an hour later it is forgotten */
    w->log[0] = '\0';
    xid(w, "GPU-0", 92, WHOLE);
    poll_now(w);
    pass(w, 60 * S);
    assert_string_equal(w->log, "-GPU-0 +GPU-0");
}

static void test_unknown_card(void **state)
{
    struct world *w = *state;
    xid(w, NULL, 79, WHOLE);
    assert_string_equal(w->log, "");
    assert_int_equal(w->refreshes, 1); /* the reading will show which */
}

static void test_no_driver(void **state)
{
    struct world *w = *state;
    struct sl_err gone = SL_ERR_INIT;
    (void)sl_err_set(&gone, -19, "no NVIDIA driver on this machine");
    sl_health_no_driver(w->health, &gone);
    assert_string_equal(w->log, "-GPU-0 -GPU-1 -MIG-0 -MIG-1 -MIG-2");
    assert_non_null(strstr(w->reason, "no NVIDIA driver"));
    w->log[0] = '\0';
    poll_now(w);
    assert_string_equal(w->log, "+GPU-0 +GPU-1 +MIG-0 +MIG-1 +MIG-2");
}

static void test_mig_destroyed_and_made(void **state)
{
    struct world *w = *state;
    xid(w, "GPU-1", 69, 8, 0);
    w->gpu[1].mig_count = 2;
    poll_now(w);
    assert_false(sl_health_ok(w->health, "MIG-2"));
    w->gpu[1].mig_count = 3; /* made anew: the old one's illness is not its own */
    poll_now(w);
    assert_true(sl_health_ok(w->health, "MIG-2"));
}

static void test_reload(void **state)
{
    struct world *w = *state;
    xid(w, "GPU-0", 63, WHOLE);
    assert_string_equal(w->log, "-GPU-0");
    sl_health_reload(w->health, 60 * S, 300 * S);
    assert_string_equal(w->log, "-GPU-0");
    w->also_ignored = 63;
    sl_health_reload(w->health, 60 * S, 300 * S);
    assert_string_equal(w->log, "-GPU-0 +GPU-0");
}

/* An XID that nobody knows is the card's. */
static void test_unknown_xid(void **state)
{
    struct world *w = *state;
    xid(w, "GPU-0", 999, WHOLE);
    assert_false(sl_health_ok(w->health, "GPU-0"));
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_application_xids),
        CASE(test_whole_card_with_mig),
        CASE(test_one_instance),
        CASE(test_instance_of_card_error),
        CASE(test_recovery),
        CASE(test_no_answer_no_change),
        CASE(test_storm),
        CASE(test_reset_xids),
        CASE(test_reset_seen),
        CASE(test_lost_card),
        CASE(test_repeated),
        CASE(test_unknown_card),
        CASE(test_no_driver),
        CASE(test_mig_destroyed_and_made),
        CASE(test_reload),
        CASE(test_unknown_xid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
